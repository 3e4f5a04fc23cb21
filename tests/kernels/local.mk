# SPDX-License-Identifier: MIT
#
# The operations against their definitions, and the engine against the
# reference implementation's results on the example model.

if HAVE_CHECK
%C%_programs = \
	%D%/check_golden

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)

%C%_support = %D%/support/tinymoe.c %D%/support/tinymoe.h

%C%_check_golden_SOURCES = %D%/check_golden.c $(%C%_support)
%C%_check_golden_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_golden_LDADD = kernels/libmtk.la $(CHECK_LIBS) -lm
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
