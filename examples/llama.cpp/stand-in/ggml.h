/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for llama.cpp's ggml.h, for compiling and testing the glue without llama.cpp: only
 * the declarations that it uses, under the names of the real interface. Members lie elsewhere in
 * the real structs and the enumerators have other values, so an object compiled with this header
 * works with the tests alone.
 */
#ifndef STAND_IN_GGML_H
#define STAND_IN_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GGML_MAX_DIMS 4
#define GGML_MAX_SRC 10
#define GGML_MAX_NAME 64

enum ggml_type {
	GGML_TYPE_F32 = 0,
	GGML_TYPE_F16 = 1,
	GGML_TYPE_I32 = 26,
};

enum ggml_op {
	GGML_OP_NONE = 0,
	GGML_OP_GET_ROWS,
	GGML_OP_SOFT_MAX,
	GGML_OP_ARGSORT,
	GGML_OP_VIEW,
};

enum ggml_log_level {
	GGML_LOG_LEVEL_NONE = 0,
};

typedef void (*ggml_log_callback)(enum ggml_log_level level, const char *text, void *user_data);

struct ggml_backend_buffer;

struct ggml_tensor {
	enum ggml_type type;
	struct ggml_backend_buffer *buffer;
	int64_t ne[GGML_MAX_DIMS]; /* elements of each dimension, fastest first */
	size_t nb[GGML_MAX_DIMS];  /* bytes from one to the next */
	enum ggml_op op;
	struct ggml_tensor *src[GGML_MAX_SRC];
	struct ggml_tensor *view_src;
	void *data;
	char name[GGML_MAX_NAME];
};

#ifdef __cplusplus
}
#endif

#endif
