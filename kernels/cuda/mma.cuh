/* SPDX-License-Identifier: MIT */
/*
 * The tensor cores' 16 x 8 x 16 product of 16-bit floats with sums in fp32, for bf16 and fp16.
 * Lane l, with g = l / 4 and t = l % 4, holds of A the elements (row, k) = (g, 2t + {0, 1}),
 * (g + 8, 2t + {0, 1}), (g, 2t + 8 + {0, 1}), (g + 8, 2t + 8 + {0, 1}); of B (k, column) =
 * (2t + {0, 1}, g), (2t + 8 + {0, 1}, g); of the sums (g, 2t + {0, 1}), (g + 8, 2t + {0, 1}).
 *
 * Which k is which does not matter as long as A and B agree. Streaming kernels use that: a lane
 * loads eight adjacent elements, 16 bytes, of a row at k = 8 t, and takes them as two products'
 * parts.
 */
#ifndef MTK_CUDA_MMA_CUH
#define MTK_CUDA_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

template <class T> struct mma_type;

template <> struct mma_type<__nv_bfloat16> {
	static __device__ __forceinline__ void multiply(float *sums, uint32_t a0, uint32_t a1,
							uint32_t a2, uint32_t a3, uint32_t b0,
							uint32_t b1)
	{
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
			     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
			     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
	}
	static __device__ __forceinline__ __nv_bfloat16 narrow(float value)
	{
		return __float2bfloat16_rn(value);
	}
};

template <> struct mma_type<__half> {
	static __device__ __forceinline__ void multiply(float *sums, uint32_t a0, uint32_t a1,
							uint32_t a2, uint32_t a3, uint32_t b0,
							uint32_t b1)
	{
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
			     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
			     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
	}
	static __device__ __forceinline__ __half narrow(float value)
	{
		return __float2half_rn(value);
	}
};

/*
 * Two products from 16 bytes a lane of each of two rows of A and of one row of B: 32 of k.
 */
template <class T>
static __device__ __forceinline__ void mma_stream(float *sums, const uint4 &low, const uint4 &high,
						  const uint4 &b)
{
	mma_type<T>::multiply(sums, low.x, high.x, low.y, high.y, b.x, b.y);
	mma_type<T>::multiply(sums, low.z, high.z, low.w, high.w, b.z, b.w);
}

/* 16 bytes that are read once, past the first-level cache; zeros where there is nothing. */
static __device__ __forceinline__ uint4 mma_load_stream(const void *from, bool is_there)
{
	uint4 value = make_uint4(0, 0, 0, 0);

	if (is_there)
		asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
			     : "l"(from));
	return value;
}

static __device__ __forceinline__ uint4 mma_load(const void *from, bool is_there)
{
	return is_there ? __ldg((const uint4 *)from) : make_uint4(0, 0, 0, 0);
}

#endif
