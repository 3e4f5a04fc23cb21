/* SPDX-License-Identifier: MIT */
/*
 * A workload: the requests that the engine serves, read from JSON lines. Each line that is not
 * empty is one object with `prompt` (a string that is not empty; its bytes are the tokens),
 * `max_new_tokens` (a positive integer) and optionally `id` (a string or an integer; by default the
 * line's number from 0). Every other key is an attribute of the request: a string, a number or a
 * boolean. External ids differ from one another as text. A workload is immutable once read and repeated.
 */
#ifndef MTK_ENGINE_WORKLOAD_H
#define MTK_ENGINE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"

/* Of the whole file. */
#define MTK_WORKLOAD_MAX_BYTES (1u << 30)

struct mtk_workload_attribute {
	char *key;
	char *value; /* a number as written; a boolean as true or false */
};

struct mtk_workload_request {
	size_t line;	    /* of the file, from 1 */
	char *id;	    /* external id as text */
	bool id_is_integer; /* it was an integer, or the default */
	unsigned char *prompt;
	size_t n_prompt_bytes;
	uint64_t max_new_tokens;
	struct mtk_workload_attribute *attributes;
	size_t n_attributes;
};

struct mtk_workload {
	char *name; /* the path given at reading, for errors */
	struct mtk_workload_request *requests;
	size_t n_requests; /* at least 1 */
	size_t max_requests;
};

/**
 * Read the workload at @path, which need not be a regular file.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_NOT_FOUND    there is no such file
 *          MOETRACE_E_IO           it cannot be read
 *          MOETRACE_E_FORMAT       not a workload in the sense above; @error names file and line
 *          MOETRACE_E_LIMIT        more than MTK_WORKLOAD_MAX_BYTES
 *          MOETRACE_E_UNSUPPORTED  the program was built without a JSON parser
 *          MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_workload_destroy().
 */
int mtk_workload_read(const char *path, struct mtk_workload **ret_workload,
		      struct mtk_error *error);

/* The same over @n_bytes in memory; @name stands for the file in errors. */
int mtk_workload_parse(const char *name, const char *bytes, size_t n_bytes,
		       struct mtk_workload **ret_workload, struct mtk_error *error);

/**
 * Make the workload @n_times as long by copies of its requests, whose ids end in .2, .3, ...
 *
 * Returns MOETRACE_OK; MOETRACE_E_LIMIT: it would be more than UINT32_MAX requests; or
 * MOETRACE_E_NOMEM, which leaves a workload to be destroyed only.
 */
int mtk_workload_repeat(struct mtk_workload *workload, uint32_t n_times, struct mtk_error *error);

/* NULL is allowed. */
void mtk_workload_destroy(struct mtk_workload *workload);

#endif
