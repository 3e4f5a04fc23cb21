/* SPDX-License-Identifier: MIT */
/*
 * A strict reader of safetensors files: a little-endian 64-bit header length, a JSON object that
 * names every tensor with its type, shape and byte range, then the tensors' bytes without holes
 * or overlaps. The whole file is read into memory, so that a file that is truncated later cannot
 * fault the process. Every range is checked before it is used; a file that passes has only tensors
 * whose byte range equals shape times type size. Objects are read-only once open and may be shared
 * by threads.
 */
#ifndef MTK_ENGINE_SAFETENSORS_H
#define MTK_ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"

/* Dimensions of a tensor: the format has no limit, no known model needs more than four. */
#define MTK_TENSOR_MAX_DIMS 8
/* The format's own limit on the JSON header. */
#define MTK_SAFETENSORS_MAX_HEADER_BYTES (100u * 1000u * 1000u)

enum mtk_dtype {
	MTK_DTYPE_F32,
	MTK_DTYPE_F16,
	MTK_DTYPE_BF16,
};

struct mtk_tensor {
	const char *name;
	enum mtk_dtype dtype;
	uint32_t n_dims;
	uint64_t shape[MTK_TENSOR_MAX_DIMS];	/* slowest dimension first */
	uint64_t n_elements;
	const unsigned char *data;		/* little-endian, any alignment */
	size_t data_bytes;
};

struct mtk_safetensors;

/**
 * Read and check the file at @path.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_NOTFOUND     there is no such file
 *          MOETRACE_E_IO           it cannot be read, or is not a regular file
 *          MOETRACE_E_FORMAT       it is not a sound safetensors file
 *          MOETRACE_E_UNSUPPORTED  it has a tensor type that this reader refuses, or the program
 *                                  was built without a JSON parser
 *          MOETRACE_E_NOMEM        it does not fit into memory
 * Owner    caller; release with mtk_safetensors_close().
 */
int mtk_safetensors_open(const char *path, struct mtk_safetensors **ret_file,
			 struct mtk_error *error);

/**
 * The same over bytes in memory, which are copied; @name stands for the file in errors.
 */
int mtk_safetensors_parse(const char *name, const void *bytes, size_t n_bytes,
			  struct mtk_safetensors **ret_file, struct mtk_error *error);

void mtk_safetensors_close(struct mtk_safetensors *file);

/* The path or name given at opening; valid until close. */
const char *mtk_safetensors_name(const struct mtk_safetensors *file);

size_t mtk_safetensors_n_tensors(const struct mtk_safetensors *file);

/* Tensor @index in the order of the data section; @index below mtk_safetensors_n_tensors(). */
const struct mtk_tensor *mtk_safetensors_at(const struct mtk_safetensors *file, size_t index);

/* The tensor called @name, or NULL. */
const struct mtk_tensor *mtk_safetensors_find(const struct mtk_safetensors *file,
					      const char *name);

/**
 * The tensor called @name, which must have exactly the shape @shape[@n_dims].
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_FORMAT  absent or of another shape; @error names file, tensor and both shapes
 */
int mtk_safetensors_expect(const struct mtk_safetensors *file, const char *name, uint32_t n_dims,
			   const uint64_t *shape, const struct mtk_tensor **ret_tensor,
			   struct mtk_error *error);

/* The string under @key of the header's __metadata__, or NULL; valid until close. */
const char *mtk_safetensors_metadata(const struct mtk_safetensors *file, const char *key);

/* "F32", "F16" or "BF16". */
const char *mtk_dtype_name(enum mtk_dtype dtype);

size_t mtk_dtype_bytes(enum mtk_dtype dtype);

/**
 * Widen @n elements of @tensor from element @first to fp32, exactly.
 *
 * Pre  @first + @n is at most tensor->n_elements.
 */
void mtk_tensor_widen(const struct mtk_tensor *tensor, uint64_t first, uint64_t n, float *ret_values);

#endif
