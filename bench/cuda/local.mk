# SPDX-License-Identifier: MIT
#
# Benchmarks of the code for GPUs; `make bench` builds and runs them where nvcc
# was found, and without a GPU they say so and end with 77.

if HAVE_NVCC
%C%_programs = \
	%D%/bench_branches \
	%D%/bench_capture \
	%D%/bench_collect \
	%D%/bench_ends \
	%D%/bench_engine \
	%D%/bench_experts_cuda \
	%D%/bench_pass \
	%D%/bench_route_cuda

EXTRA_PROGRAMS += $(%C%_programs)
bench_programs += $(%C%_programs)
EXTRA_LIBRARIES = %D%/libgpu_time.a
endif

%C%_libgpu_time_a_SOURCES = %D%/gpu_time.cu %D%/gpu_time.h
%C%_libs = %D%/libgpu_time.a $(mtk_cuda_libs)

%C%_bench_branches_SOURCES = %D%/bench_branches.c %D%/branches.cu %D%/branches.h
%C%_bench_branches_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS)
%C%_bench_branches_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CUDA_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_bench_capture_SOURCES = %D%/bench_capture.c \
	tests/cuda/support/graph.cu tests/cuda/support/graph.h
%C%_bench_capture_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_bench_capture_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CUDA_LIBS) $(PTHREAD_LIBS) -lm

%C%_bench_experts_cuda_SOURCES = %D%/bench_experts_cuda.c
%C%_bench_experts_cuda_LDADD = $(%C%_libs)

%C%_bench_ends_SOURCES = %D%/bench_ends.c
%C%_bench_ends_LDADD = $(%C%_libs) collectors/libmt_collectors.la libtrace/libmt_trace.la \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_bench_route_cuda_SOURCES = %D%/bench_route_cuda.c
%C%_bench_route_cuda_LDADD = $(%C%_libs)

%C%_bench_engine_SOURCES = %D%/bench_engine.c %D%/engine_rig.c %D%/engine_rig.h
%C%_bench_engine_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_bench_engine_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CUDA_LIBS) $(PTHREAD_LIBS) -lm

%C%_bench_pass_SOURCES = %D%/bench_pass.c \
	%D%/engine_rig.c %D%/engine_rig.h \
	%D%/pass_kernels.cu %D%/pass_kernels.h \
	%D%/pass_ways.c %D%/pass_ways.h
%C%_bench_pass_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_bench_pass_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CUDA_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_bench_collect_SOURCES = %D%/bench_collect.c %D%/engine_rig.c %D%/engine_rig.h
%C%_bench_collect_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_bench_collect_LDADD = kernels/libmtk_cuda.a kernels/libmtk.la libtrace/libmoetrace.la \
	$(CUDA_LIBS) $(PTHREAD_LIBS) -lm -ldl
