/* SPDX-License-Identifier: MIT */
/*
 * The peaks of a GPU: there are some, measured twice they are about the same, and no device that is
 * not there has any.
 */
#include <stdio.h>

#include <moetrace/status.h>

#include "kernels/peaks/peaks_cuda.h"

int main(void)
{
	struct mtk_peaks_cuda peaks, again;
	struct mtk_error error = {""};
	double ratio_flop, ratio_bytes;
	int status = mtk_peaks_measure_cuda(0, &error, &peaks);

	if (status == MOETRACE_E_UNSUPPORTED) {
		printf("skipped: %s\n", error.text);
		return 77;
	}
	if (status != MOETRACE_OK || mtk_peaks_measure_cuda(0, &error, &again) != MOETRACE_OK) {
		printf("FAIL: %s\n", error.text);
		return 1;
	}
	printf("%s: %.1f TFLOP/s by %s, %.1f GB/s\n", peaks.device.name, peaks.flop_per_s / 1e12,
	       peaks.is_cublas ? "cuBLAS" : "our own product", peaks.bytes_per_s / 1e9);
	ratio_flop = peaks.flop_per_s / again.flop_per_s;
	ratio_bytes = peaks.bytes_per_s / again.bytes_per_s;
	if (peaks.bytes_per_s < 1e10 || peaks.bytes_per_s > 1e14 || peaks.flop_per_s < 1e11 ||
	    peaks.flop_per_s > 1e17 || ratio_flop < 0.5 || ratio_flop > 2 || ratio_bytes < 0.5 ||
	    ratio_bytes > 2) {
		printf("FAIL: again %.1f TFLOP/s, %.1f GB/s\n", again.flop_per_s / 1e12,
		       again.bytes_per_s / 1e9);
		return 1;
	}
	if (mtk_peaks_measure_cuda(1000, &error, &peaks) == MOETRACE_OK) {
		printf("FAIL: GPU 1000 was measured\n");
		return 1;
	}
	return 0;
}
