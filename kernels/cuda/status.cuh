/* SPDX-License-Identifier: MIT */
/* From the runtime's errors to status codes, for the files that launch. */
#ifndef MTK_CUDA_STATUS_CUH
#define MTK_CUDA_STATUS_CUH

#include <cuda_runtime.h>

#include <moetrace/status.h>

#include "kernels/engine/error.h"

/* Names the call or kernel that failed. Clears the error, so that it is not seen twice. */
static inline int mtk_cuda_fail(struct mtk_error *error, cudaError_t code, const char *what)
{
	int status = MOETRACE_E_IO;

	if (code == cudaSuccess)
		return MOETRACE_OK;
	cudaGetLastError();
	if (code == cudaErrorMemoryAllocation)
		status = MOETRACE_E_NOMEM;
	else if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
		 code == cudaErrorNoKernelImageForDevice)
		status = MOETRACE_E_UNSUPPORTED;
	else if (code == cudaErrorInvalidValue || code == cudaErrorInvalidDevice)
		status = MOETRACE_E_INVALID;
	else if (code == cudaErrorStreamCaptureUnsupported ||
		 code == cudaErrorStreamCaptureInvalidated)
		status = MOETRACE_E_STATE;
	return mtk_error_set(error, status, "cuda: %s: %s", what, cudaGetErrorString(code));
}

/* After a launch, which itself returns nothing. */
static inline int mtk_cuda_launched(struct mtk_error *error, const char *what)
{
	return mtk_cuda_fail(error, cudaGetLastError(), what);
}

#endif
