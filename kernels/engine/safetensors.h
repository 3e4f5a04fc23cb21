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
#include "kernels/engine/model.h"

/* The format's own limit on the JSON header. */
#define MTK_SAFETENSORS_MAX_HEADER_BYTES (100u * 1000u * 1000u)

struct mtk_safetensors;

/**
 * Read and check the file at @path.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_NOT_FOUND    there is no such file
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
 * The same over @n_bytes in memory, which are copied; @name stands for the file in errors.
 */
int mtk_safetensors_parse(const char *name, const void *bytes, size_t n_bytes,
			  struct mtk_safetensors **ret_file, struct mtk_error *error);

/* NULL is allowed. */
void mtk_safetensors_close(struct mtk_safetensors *file);

/* The path or name given at opening; valid until close. */
const char *mtk_safetensors_name(const struct mtk_safetensors *file);

size_t mtk_safetensors_n_tensors(const struct mtk_safetensors *file);

/**
 * Tensor @index in the order of the names; the name and the data are valid until close.
 *
 * Pre  @index is below mtk_safetensors_n_tensors().
 */
const char *mtk_safetensors_tensor_at(const struct mtk_safetensors *file, size_t index,
				      struct mtk_tensor *ret_tensor);

/* The file as the model's loader sees it: MOETRACE_E_NOT_FOUND for an absent tensor. */
struct mtk_tensor_source mtk_safetensors_source(struct mtk_safetensors *file);

/* The string under @key of the header's __metadata__, or NULL; valid until close. */
const char *mtk_safetensors_metadata(const struct mtk_safetensors *file, const char *key);

#endif
