# SPDX-License-Identifier: MIT
#
# The engine's code for NVIDIA GPUs: an archive of its own, made where nvcc
# runs, with the CUDA runtime in it. libmoetrace never links it.

if HAVE_NVCC
noinst_LIBRARIES += kernels/libmtk_cuda.a
endif

kernels_libmtk_cuda_a_SOURCES = \
	kernels/attention/attention_cuda.cu kernels/attention/attention_cuda.h \
	kernels/embed/embed_cuda.cu kernels/embed/embed_cuda.h \
	kernels/engine/cuda_backend.c kernels/engine/cuda_backend.h \
	kernels/engine/cuda_context.c kernels/engine/cuda_internal.h \
	kernels/engine/cuda_forward.c \
	kernels/engine/cuda_moe.c \
	kernels/engine/cuda_pass.c \
	kernels/engine/cuda_weights.c kernels/engine/cuda_weights.h \
	kernels/experts/experts_f32_cuda.cu kernels/experts/experts_f32_cuda.h \
	kernels/gemm/linear_cuda.cu kernels/gemm/linear_cuda.h \
	kernels/oea/oea_cuda.cu kernels/oea/oea_cuda.h \
	kernels/rmsnorm/rmsnorm_cuda.cu kernels/rmsnorm/rmsnorm_cuda.h \
	kernels/rope/rope_cuda.cu kernels/rope/rope_cuda.h \
	kernels/sample/sample_cuda.cu kernels/sample/sample_cuda.h \
	%D%/element.cuh \
	%D%/weights.cu %D%/weights.h \
	kernels/align/align_cuda.cu kernels/align/align_cuda.h \
	kernels/combine/combine_cuda.cu kernels/combine/combine_cuda.h \
	kernels/experts/experts_cuda.cu kernels/experts/experts_cuda.h \
	kernels/gemm/router_cuda.cu kernels/gemm/router_cuda.h \
	kernels/gemm/tiles.cuh \
	kernels/map/map_cuda.cu kernels/map/map_cuda.h \
	kernels/peaks/peaks_cuda.c kernels/peaks/peaks_cuda.h \
	kernels/permute/permute_cuda.cu kernels/permute/permute_cuda.h \
	kernels/route/route_cuda.cu kernels/route/route_cuda.h \
	kernels/route/route_record.cu \
	kernels/route/route_lean.cu kernels/route/route_lean_launch.cuh \
	kernels/route/route_variants.cuh \
	kernels/route/route_args.cuh \
	kernels/route/route_define.cuh \
	kernels/route/route_fast.cuh \
	kernels/route/route_kernel.cuh \
	kernels/route/route_keys.cuh \
	kernels/route/route_lean.cuh \
	kernels/route/route_lean_keys.cuh \
	kernels/route/route_score.cuh \
	%D%/cublas.c %D%/cublas.h \
	%D%/device.cu %D%/device.h \
	%D%/mma.cuh \
	%D%/status.cuh

# What a program that uses it links after it.
mtk_cuda_libs = kernels/libmtk_cuda.a kernels/libmtk.la $(CUDA_LIBS) -lm

NVCC_COMPILE = $(CCACHE_NVCC) $(NVCC) $(NVCCFLAGS) $(MT_NVCC_FLAGS) $(AM_CPPFLAGS) -I.
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =

SUFFIXES = .cu
# The list of headers that nvcc read lies beside the object, with a target for
# each header, so that a header which went away is no error.
.cu.o:
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(NVCC_COMPILE) -MD -MP -MF $(@:.o=.cu.d) -c -o $@ $<

-include $(wildcard $(kernels_libmtk_cuda_a_OBJECTS:.o=.cu.d) \
	tests/kernels/cuda/*.cu.d tests/cuda/support/*.cu.d bench/cuda/*.cu.d)

clean-local: clean-cuda
clean-cuda:
	-rm -f kernels/*/*.cu.d tests/kernels/cuda/*.cu.d tests/cuda/support/*.cu.d bench/cuda/*.cu.d
.PHONY: clean-cuda
