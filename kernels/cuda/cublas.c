/* SPDX-License-Identifier: MIT */
/*
 * cuBLAS 12 and 13, whose functions and constants used here are the same (cublas_api.h and
 * library_types.h of CUDA 12.4 and 13.0). Matrices are column by column there: y transposed is w,
 * transposed, times x.
 */
#include "kernels/cuda/cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "common/library.h"
#include "kernels/cuda/device.h"

enum {
	CUBLAS_OK = 0,
	CUBLAS_NO_TRANSPOSE = 0,
	CUBLAS_TRANSPOSE = 1,
	CUBLAS_DEFAULT_ALGORITHM = -1,
	CUBLAS_COMPUTE_FP32 = 68,
	TYPE_FP32 = 0,
	TYPE_FP16 = 2,
	TYPE_BF16 = 14,
};

/* What the library asks for on Hopper; given by us, so that it takes nothing in the stream. */
#define WORKSPACE_BYTES ((size_t)32 << 20)

typedef int create_fn(void **handle);
typedef int destroy_fn(void *handle);
typedef int version_fn(void *handle, int *version);
typedef int stream_fn(void *handle, void *stream);
typedef int workspace_fn(void *handle, void *workspace, size_t n_bytes);
typedef int gemm_fn(void *handle, int a_op, int b_op, int m, int n, int k, const void *alpha,
		    const void *a, int a_type, int a_stride, const void *b, int b_type,
		    int b_stride, const void *beta, void *c, int c_type, int c_stride, int compute,
		    int algorithm);

struct mtk_cublas {
	void *library;
	void *handle;
	void *workspace;
	create_fn *create;
	destroy_fn *destroy;
	version_fn *version;
	stream_fn *set_stream;
	workspace_fn *set_workspace;
	gemm_fn *gemm;
};

/* NULL: there is none, as @ret_text says. Each takes another library, which the loader opens. */
static void *library_open(char *ret_text, size_t n_bytes)
{
	static const char *const names[][2] = {{"libcublasLt.so.13", "libcublas.so.13"},
					       {"libcublasLt.so.12", "libcublas.so.12"}};
	char why[256];
	void *library = NULL;

	snprintf(ret_text, n_bytes, "no cuBLAS: libcublas.so.13 and .12 were not found");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		enum mt_library_state state = mt_library_look(names[i][0], why, sizeof(why));

		if (state != MT_LIBRARY_WRONG)
			state = mt_library_open(names[i][1], RTLD_NOW | RTLD_LOCAL, &library, why,
						sizeof(why));
		if (state == MT_LIBRARY_FOUND)
			return library;
		if (state == MT_LIBRARY_WRONG)
			snprintf(ret_text, n_bytes, "no cuBLAS: it cannot be opened: %s", why);
	}
	return NULL;
}

/* The name of a function that is missing; NULL: all are there. */
static const char *functions_find(struct mtk_cublas *c)
{
	const struct {
		const char *name;
		void **place;
	} functions[] = {
		{"cublasCreate_v2", (void **)&c->create},
		{"cublasDestroy_v2", (void **)&c->destroy},
		{"cublasGetVersion_v2", (void **)&c->version},
		{"cublasSetStream_v2", (void **)&c->set_stream},
		{"cublasSetWorkspace_v2", (void **)&c->set_workspace},
		{"cublasGemmEx", (void **)&c->gemm},
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		*functions[i].place = dlsym(c->library, functions[i].name);
		if (!*functions[i].place)
			return functions[i].name;
	}
	return NULL;
}

static int handle_make(struct mtk_cublas *c, void *stream)
{
	if (c->create(&c->handle) != CUBLAS_OK)
		return MOETRACE_E_UNSUPPORTED;
	if (mtk_cuda_alloc(WORKSPACE_BYTES, NULL, &c->workspace) ||
	    c->set_stream(c->handle, stream) != CUBLAS_OK ||
	    c->set_workspace(c->handle, c->workspace, WORKSPACE_BYTES) != CUBLAS_OK)
		return MOETRACE_E_UNSUPPORTED;
	return MOETRACE_OK;
}

struct mtk_cublas *mtk_cublas_open(void *stream, char *ret_text, size_t n_bytes)
{
	struct mtk_cublas *c = calloc(1, sizeof(*c));
	const char *missing;
	int version = 0;

	snprintf(ret_text, n_bytes, "no cuBLAS: out of memory");
	if (!c)
		return NULL;
	c->library = library_open(ret_text, n_bytes);
	if (!c->library)
		goto err_cublas;
	missing = functions_find(c);
	if (missing) {
		snprintf(ret_text, n_bytes, "no cuBLAS: it has no %s", missing);
		goto err_cublas;
	}
	if (handle_make(c, stream)) {
		snprintf(ret_text, n_bytes, "no cuBLAS: it does not start on this GPU");
		goto err_cublas;
	}
	c->version(c->handle, &version);
	snprintf(ret_text, n_bytes, "cuBLAS %d.%d.%d", version / 10000, version / 100 % 100,
		 version % 100);
	return c;

err_cublas:
	mtk_cublas_close(c);
	return NULL;
}

void mtk_cublas_close(struct mtk_cublas *cublas)
{
	if (!cublas)
		return;
	if (cublas->handle)
		cublas->destroy(cublas->handle);
	mtk_cuda_free(cublas->workspace);
	if (cublas->library)
		dlclose(cublas->library);
	free(cublas);
}

int mtk_cublas_multiply(struct mtk_cublas *cublas, const struct mtk_cublas_product *p,
			struct mtk_error *error)
{
	const int type = p->dtype == MTK_DTYPE_BF16 ? TYPE_BF16 : TYPE_FP16;
	const float one = 1.0f, zero = 0.0f;
	int status;

	if (p->n_rows == 0 || p->n_out == 0)
		return MOETRACE_OK;
	status = cublas->gemm(cublas->handle, CUBLAS_TRANSPOSE, CUBLAS_NO_TRANSPOSE, (int)p->n_out,
			      (int)p->n_rows, (int)p->n_in, &one, p->w, type, (int)p->n_in, p->x,
			      type, (int)p->n_in, &zero, p->y, TYPE_FP32, (int)p->n_out,
			      CUBLAS_COMPUTE_FP32, CUBLAS_DEFAULT_ALGORITHM);
	if (status != CUBLAS_OK)
		return mtk_error_set(error, MOETRACE_E_IO,
				     "cuda: cuBLAS refused a product of %u x %u x %u: its status %d",
				     p->n_rows, p->n_in, p->n_out, status);
	return MOETRACE_OK;
}
