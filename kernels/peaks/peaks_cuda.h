/* SPDX-License-Identifier: MIT */
/* The peaks of a GPU: bytes a second of a copy on the device, read and written, and of a product. */
#ifndef MTK_PEAKS_PEAKS_CUDA_H
#define MTK_PEAKS_PEAKS_CUDA_H

#include <stdbool.h>

#include "kernels/cuda/device.h"
#include "kernels/engine/error.h"

struct mtk_peaks_cuda {
	struct mtk_cuda_device device;
	bool is_cublas; /* the product is the vendor's, else our own */
	double flop_per_s; /* bf16 in, fp32 out */
	double bytes_per_s;
};

/**
 * Measure a GPU, the best of several runs. Takes 1 GiB of its memory and a fraction of a second.
 *
 * Returns MOETRACE_OK, or what mtk_cuda_open(), an allocation or a launch failed with.
 */
int mtk_peaks_measure_cuda(uint32_t number, struct mtk_error *error,
			   struct mtk_peaks_cuda *ret_peaks);

#endif
