/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for llama.cpp's ggml-backend.h; see ggml.h beside it. The evaluation callback returns
 * bool in llama.cpp and int in its fork ik_llama.cpp; STAND_IN_RESULT chooses.
 */
#ifndef STAND_IN_GGML_BACKEND_H
#define STAND_IN_GGML_BACKEND_H

#include "ggml.h"

#ifndef STAND_IN_RESULT
#define STAND_IN_RESULT bool
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ggml_backend_buffer *ggml_backend_buffer_t;

/* Asked about each node before it is computed (ask), then shown those that were wanted. */
typedef STAND_IN_RESULT (*ggml_backend_sched_eval_callback)(struct ggml_tensor *t, bool ask,
							     void *user_data);

bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);
void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset,
			     size_t size);

#ifdef __cplusplus
}
#endif

#endif
