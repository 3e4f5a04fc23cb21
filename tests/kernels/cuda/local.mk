# SPDX-License-Identifier: MIT
#
# The operations on a GPU against their definitions. Without a GPU all but one
# are skipped; `make check-gpu` runs these alone, and under compute-sanitizer.

if HAVE_NVCC
%C%_programs = \
	%D%/check_device_cuda \
	%D%/check_experts_cuda \
	%D%/check_experts_f32_cuda \
	%D%/check_kernels_cuda \
	%D%/check_layers_cuda \
	%D%/check_moe_cuda \
	%D%/check_oea_cuda \
	%D%/check_oracle_cuda \
	%D%/check_peaks_cuda \
	%D%/check_route_cuda

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
gpu_tests += $(%C%_programs) %D%/sanitize.sh %D%/sanitize-ops.sh %D%/serve.sh
if HAVE_CHECK
%C%_engine_programs = %D%/check_decode_cuda %D%/check_engine_cuda %D%/check_lost_cuda
check_PROGRAMS += $(%C%_engine_programs)
TESTS += $(%C%_engine_programs)
gpu_tests += $(%C%_engine_programs)
endif
endif

dist_check_SCRIPTS += %D%/sanitize.sh %D%/sanitize-ops.sh %D%/serve.sh

%C%_support = %D%/support/gpu.c %D%/support/gpu.h
%C%_values = %D%/support/values.c %D%/support/values.h \
	tests/routing/support/settings.c tests/routing/support/settings.h

%C%_check_device_cuda_SOURCES = %D%/check_device_cuda.c $(%C%_support)
%C%_check_device_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_experts_cuda_SOURCES = %D%/check_experts_cuda.c $(%C%_support) $(%C%_values)
%C%_check_experts_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_experts_f32_cuda_SOURCES = %D%/check_experts_f32_cuda.c $(%C%_support) $(%C%_values)
%C%_check_experts_f32_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_kernels_cuda_SOURCES = %D%/check_kernels_cuda.c \
	bench/cuda/engine_rig.c bench/cuda/engine_rig.h
%C%_check_kernels_cuda_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS)
%C%_check_kernels_cuda_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CUDA_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_moe_cuda_SOURCES = %D%/check_moe_cuda.c $(%C%_support) $(%C%_values)
%C%_check_moe_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_oracle_cuda_SOURCES = %D%/check_oracle_cuda.c $(%C%_support) \
	tests/routing/support/oracle.c tests/routing/support/oracle.h
%C%_check_oracle_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_peaks_cuda_SOURCES = %D%/check_peaks_cuda.c
%C%_check_peaks_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_route_cuda_SOURCES = %D%/check_route_cuda.c $(%C%_support) \
	%D%/support/route_batch.c %D%/support/route_batch.h \
	tests/routing/support/settings.c tests/routing/support/settings.h
%C%_check_route_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_layers_cuda_SOURCES = %D%/check_layers_cuda.c $(%C%_support) $(%C%_values)
%C%_check_layers_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_oea_cuda_SOURCES = %D%/check_oea_cuda.c $(%C%_support) \
	tests/routing/support/settings.c tests/routing/support/settings.h
%C%_check_oea_cuda_LDADD = $(mtk_cuda_libs)

%C%_check_decode_cuda_SOURCES = %D%/check_decode_cuda.c \
	tests/kernels/support/greedy.c tests/kernels/support/greedy.h \
	tests/kernels/support/levels.h \
	tests/kernels/support/tinymoe.c tests/kernels/support/tinymoe.h
%C%_check_decode_cuda_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_check_decode_cuda_LDADD = $(%C%_check_engine_cuda_LDADD) $(SQLITE3_LIBS)

%C%_check_engine_cuda_SOURCES = %D%/check_engine_cuda.c \
	%D%/support/tiny_rig.c %D%/support/tiny_rig.h \
	tests/kernels/support/levels.h \
	tests/kernels/support/tinymoe.c tests/kernels/support/tinymoe.h
%C%_check_engine_cuda_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_engine_cuda_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(CUDA_LIBS) -lm

%C%_check_lost_cuda_SOURCES = %D%/check_lost_cuda.c \
	tests/kernels/support/levels.h \
	tests/kernels/support/tinymoe.c tests/kernels/support/tinymoe.h
%C%_check_lost_cuda_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_lost_cuda_LDADD = $(%C%_check_engine_cuda_LDADD)
