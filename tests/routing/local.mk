# SPDX-License-Identifier: MIT
#
# Routing: the reference implementations' choices, random rows against brute
# force, the faults of other routers by name, and the command.

if HAVE_CHECK
%C%_programs = \
	%D%/check_oea \
	%D%/check_oea_cases \
	%D%/check_oracle \
	%D%/check_property \
	%D%/check_route \
	%D%/check_route_weights \
	%D%/check_setting

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)

%C%_cflags = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_libs = kernels/libmtk.la $(CHECK_LIBS) -lm
%C%_settings = %D%/support/settings.c %D%/support/settings.h

%C%_trial = %D%/support/oea_trial.c %D%/support/oea_trial.h

%C%_check_oea_SOURCES = %D%/check_oea.c $(%C%_settings) $(%C%_trial) \
	%D%/support/brute.c %D%/support/brute.h
%C%_check_oea_CFLAGS = $(%C%_cflags)
%C%_check_oea_LDADD = $(%C%_libs)

%C%_check_oea_cases_SOURCES = %D%/check_oea_cases.c $(%C%_settings) $(%C%_trial)
%C%_check_oea_cases_CFLAGS = $(%C%_cflags)
%C%_check_oea_cases_LDADD = $(%C%_libs)

%C%_check_oracle_SOURCES = %D%/check_oracle.c \
	%D%/support/brute.c %D%/support/brute.h \
	%D%/support/oracle.c %D%/support/oracle.h
%C%_check_oracle_CFLAGS = $(%C%_cflags)
%C%_check_oracle_LDADD = $(%C%_libs)

%C%_check_property_SOURCES = %D%/check_property.c $(%C%_settings) \
	%D%/support/brute.c %D%/support/brute.h
%C%_check_property_CFLAGS = $(%C%_cflags)
%C%_check_property_LDADD = $(%C%_libs)

%C%_routed = %D%/support/routed.c %D%/support/routed.h
%C%_check_route_SOURCES = %D%/check_route.c $(%C%_settings) $(%C%_routed)
%C%_check_route_CFLAGS = $(%C%_cflags)
%C%_check_route_LDADD = $(%C%_libs)

%C%_check_route_weights_SOURCES = %D%/check_route_weights.c $(%C%_settings) $(%C%_routed)
%C%_check_route_weights_CFLAGS = $(%C%_cflags)
%C%_check_route_weights_LDADD = $(%C%_libs)

%C%_check_setting_SOURCES = %D%/check_setting.c
%C%_check_setting_CFLAGS = $(%C%_cflags)
%C%_check_setting_LDADD = $(%C%_libs)
endif

TESTS += \
	%D%/models.sh \
	%D%/route.sh

%C%_oracle = \
	afmoe deepseek-v2-236b deepseek-v2-lite deepseek-v3 deepseek-v4 \
	ernie-4.5-moe exaone-moe glm-4.5 glm-5 gpt-oss-120b granite-moe \
	hunyuan-a13b kimi-k2 lfm2-moe llama4-maverick longcat-flash \
	mixtral-8x7b olmoe-1b-7b phi-3.5-moe qwen2-moe-57b qwen3-30b-a3b \
	qwen3-next-80b
%C%_oracle_biased = \
	afmoe deepseek-v3 deepseek-v4 ernie-4.5-moe exaone-moe glm-4.5 glm-5 \
	kimi-k2 lfm2-moe longcat-flash

EXTRA_DIST += \
	%D%/models.sh \
	%D%/route.sh \
	$(%C%_oracle:%=tests/data/router-oracle/%/case.json) \
	$(%C%_oracle:%=tests/data/router-oracle/%/ids_sorted.i32) \
	$(%C%_oracle:%=tests/data/router-oracle/%/logits.f32) \
	$(%C%_oracle:%=tests/data/router-oracle/%/weights_by_id.f32) \
	$(%C%_oracle_biased:%=tests/data/router-oracle/%/correction_bias.f32)
