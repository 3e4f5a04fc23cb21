# SPDX-License-Identifier: MIT
#
# The routing engine. Products and sums are contracted only where the code says
# so: the compiler must not choose for itself, or two loops over the same
# numbers could round differently. The vector files name their instruction sets
# function by function, so that no flag depends on the machine.

noinst_LTLIBRARIES += %D%/libmtk.la

%C%_libmtk_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
%C%_libmtk_la_LIBADD = common/libmt_json.la $(PTHREAD_LIBS) -lm
%C%_libmtk_la_SOURCES = \
	%D%/align/align.h \
	%D%/align/align_cpu.c \
	%D%/align/align_impl.h \
	%D%/align/align_sort.c \
	%D%/attention/attention.h \
	%D%/attention/attention_cpu.c \
	%D%/attention/attention_vec.h \
	%D%/combine/combine.h \
	%D%/combine/combine_cpu.c \
	%D%/combine/combine_vec.h \
	%D%/cpu.c %D%/cpu.h \
	%D%/cpu_avx2.c \
	%D%/cpu_avx512.c \
	%D%/embed/embed.h \
	%D%/embed/embed_cpu.c \
	%D%/engine/choice.c %D%/engine/choice.h \
	%D%/engine/expert_pool.c %D%/engine/expert_pool.h \
	%D%/engine/forward.c %D%/engine/forward_internal.h \
	%D%/engine/kv_cache.c %D%/engine/kv_cache.h \
	%D%/engine/kv_layout.h \
	%D%/engine/model.c %D%/engine/model.h \
	%D%/engine/model_config.c \
	%D%/engine/model_info.c \
	%D%/engine/model_memory.c \
	%D%/engine/model_internal.h \
	%D%/engine/moe.c \
	%D%/engine/shape.c %D%/engine/shape.h \
	%D%/engine/shape_fill.c %D%/engine/shape_internal.h \
	%D%/engine/workspace.c \
	%D%/experts/experts.h \
	%D%/experts/experts_cpu.c \
	%D%/experts/experts_settings.c \
	%D%/experts/experts_vec.h \
	%D%/gemm/gemm.h \
	%D%/gemm/gemm_cpu.c \
	%D%/gemm/gemm_vec.h \
	%D%/map/map.h \
	%D%/map/map_cpu.c \
	%D%/map/map_tables.h \
	%D%/matrix.c %D%/matrix.h \
	%D%/peaks/peaks.h \
	%D%/peaks/peaks_cpu.c \
	%D%/peaks/peaks_vec.h \
	%D%/permute/permute.h \
	%D%/permute/permute_cpu.c \
	%D%/rmsnorm/rmsnorm.h \
	%D%/rmsnorm/rmsnorm_cpu.c \
	%D%/rmsnorm/rmsnorm_vec.h \
	%D%/rope/rope.h \
	%D%/rope/rope_cpu.c \
	%D%/sample/sample.h \
	%D%/sample/sample_cpu.c \
	%D%/threads.c %D%/threads.h \
	%D%/vec.h \
	%D%/vec_avx2.h \
	%D%/vec_avx512.h

include kernels/engine/local.mk
include kernels/route/local.mk
include kernels/oea/local.mk
include kernels/presets/local.mk
include kernels/cuda/local.mk
