# SPDX-License-Identifier: MIT
#
# The serving half of the engine and the JSON reader under it. What serves
# the example model does so with a stand-in for the recorder, which it does not link.

if HAVE_CHECK
%C%_json_programs = \
	%D%/check_json \
	%D%/check_qwen3moe_config \
	%D%/check_safetensors \
	%D%/check_scheduler \
	%D%/check_serve \
	%D%/check_serve_retract \
	%D%/check_workload
%C%_programs = \
	%D%/check_choice \
	%D%/check_f16 \
	%D%/check_jsonw \
	%D%/check_no_json \
	%D%/check_shape
if HAVE_YAJL
%C%_programs += $(%C%_json_programs)
endif

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)

%C%_libs = kernels/libmtk.la common/libmt_json.la $(CHECK_LIBS) $(PTHREAD_LIBS) -lm
%C%_model_file = %D%/support/model_file.c %D%/support/model_file.h

%C%_check_choice_SOURCES = %D%/check_choice.c
%C%_check_choice_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_choice_LDADD = $(%C%_libs)

%C%_check_f16_SOURCES = %D%/check_f16.c
%C%_check_f16_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_f16_LDADD = $(CHECK_LIBS) -lm

%C%_check_jsonw_SOURCES = %D%/check_jsonw.c
%C%_check_jsonw_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_jsonw_LDADD = $(%C%_libs)

%C%_check_shape_SOURCES = %D%/check_shape.c
%C%_check_shape_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_shape_LDADD = $(%C%_libs)

# The replacement itself, in every build: before the library, so that it wins.
%C%_check_no_json_SOURCES = %D%/check_no_json.c common/no_json.c
%C%_check_no_json_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_no_json_LDADD = $(CHECK_LIBS)

%C%_check_json_SOURCES = %D%/check_json.c
%C%_check_json_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_json_LDADD = $(%C%_libs)

%C%_check_safetensors_SOURCES = %D%/check_safetensors.c $(%C%_model_file)
%C%_check_safetensors_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_safetensors_LDADD = $(%C%_libs)

%C%_check_qwen3moe_config_SOURCES = %D%/check_qwen3moe_config.c $(%C%_model_file)
%C%_check_qwen3moe_config_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_qwen3moe_config_LDADD = $(%C%_libs)

%C%_check_workload_SOURCES = %D%/check_workload.c $(%C%_model_file)
%C%_check_workload_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_workload_LDADD = $(%C%_libs)

%C%_check_scheduler_SOURCES = %D%/check_scheduler.c
%C%_check_scheduler_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_scheduler_LDADD = $(%C%_libs)

%C%_served = $(%C%_model_file) \
	%D%/support/fake_recorder.c %D%/support/fake_recorder.h \
	%D%/support/served.c %D%/support/served.h

%C%_check_serve_SOURCES = %D%/check_serve.c $(%C%_served)
%C%_check_serve_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_serve_LDADD = $(%C%_libs)

%C%_check_serve_retract_SOURCES = %D%/check_serve_retract.c $(%C%_served)
%C%_check_serve_retract_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_serve_retract_LDADD = $(%C%_libs)
endif

TESTS += \
	%D%/eval.sh \
	%D%/oea-golden.sh \
	%D%/run-device.sh \
	%D%/run-failures.sh \
	%D%/run-output.sh \
	%D%/run-refusals.sh \
	%D%/run-retract.sh \
	%D%/run-reuse.sh \
	%D%/run-shapes.sh \
	%D%/run-compare.sh \
	%D%/run-rule.sh \
	%D%/run-interrupt.sh %D%/run-kernels.sh %D%/run-margins.sh %D%/run-moments.sh

if HAVE_NVCC
gpu_tests += %D%/run-device.sh
endif

EXTRA_DIST += \
	%D%/eval.sh \
	%D%/oea-golden.sh \
	%D%/run-device.sh \
	%D%/run-failures.sh \
	%D%/run-output.sh \
	%D%/run-refusals.sh \
	%D%/run-retract.sh \
	%D%/run-reuse.sh \
	%D%/run-shapes.sh \
	%D%/run-compare.sh \
	%D%/run-rule.sh \
	%D%/run-interrupt.sh %D%/run-kernels.sh %D%/run-margins.sh %D%/run-moments.sh
