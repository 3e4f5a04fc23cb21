# SPDX-License-Identifier: MIT
#
# The operations against their definitions, and the engine against the
# reference implementation's results on the example model.

if HAVE_CHECK
%C%_programs = \
	%D%/check_determinism \
	%D%/check_golden \
	%D%/check_model \
	%D%/check_ops \
	%D%/check_threads

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += %D%/check_threads

%C%_cflags = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_libs = kernels/libmtk.la $(CHECK_LIBS) -lm
%C%_support = \
	%D%/support/levels.h \
	%D%/support/tinymoe.c %D%/support/tinymoe.h

%C%_check_determinism_SOURCES = %D%/check_determinism.c $(%C%_support)
%C%_check_determinism_CFLAGS = $(%C%_cflags)
%C%_check_determinism_LDADD = $(%C%_libs)

%C%_check_golden_SOURCES = %D%/check_golden.c $(%C%_support) \
	%D%/support/greedy.c %D%/support/greedy.h
%C%_check_golden_CFLAGS = $(%C%_cflags)
%C%_check_golden_LDADD = $(%C%_libs)

%C%_check_model_SOURCES = %D%/check_model.c $(%C%_support)
%C%_check_model_CFLAGS = $(%C%_cflags)
%C%_check_model_LDADD = $(%C%_libs)

%C%_check_ops_SOURCES = %D%/check_ops.c %D%/support/levels.h \
	%D%/support/random.c %D%/support/random.h
%C%_check_ops_CFLAGS = $(%C%_cflags)
%C%_check_ops_LDADD = $(%C%_libs)

%C%_check_threads_SOURCES = %D%/check_threads.c
%C%_check_threads_CFLAGS = $(%C%_cflags)
%C%_check_threads_LDADD = $(%C%_libs)
endif

EXTRA_DIST += \
	tests/data/tinymoe/greedy.json \
	tests/data/tinymoe/golden/ce.f32 \
	tests/data/tinymoe/golden/cut_gap.f32 \
	tests/data/tinymoe/golden/last_logits.f32 \
	tests/data/tinymoe/golden/meta.json \
	tests/data/tinymoe/golden/moe_layer0_in.f32 \
	tests/data/tinymoe/golden/moe_layer0_out.f32 \
	tests/data/tinymoe/golden/moe_layer3_in.f32 \
	tests/data/tinymoe/golden/moe_layer3_out.f32 \
	tests/data/tinymoe/golden/moe_layer5_in.f32 \
	tests/data/tinymoe/golden/moe_layer5_out.f32 \
	tests/data/tinymoe/golden/router_logits.f32 \
	tests/data/tinymoe/golden/tokens.u8 \
	tests/data/tinymoe/golden/topk_ids.u8 \
	tests/data/tinymoe/golden/topk_weights.f32
