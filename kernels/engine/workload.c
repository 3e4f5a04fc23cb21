/* SPDX-License-Identifier: MIT */
/*
 * Reading a workload: the file is taken into memory, cut into lines, and checked for ids that come
 * twice once all lines are known.
 */
#include "kernels/engine/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <moetrace/status.h>

#include "kernels/engine/workload_impl.h"

#define FIRST_BYTES (64u * 1024u)

static bool line_is_blank(const char *text, size_t n_bytes)
{
	size_t i;

	for (i = 0; i < n_bytes; i++) {
		if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
			return false;
	}
	return true;
}

static int request_add(struct mtk_workload *workload, size_t line, const char *text, size_t n_bytes,
		       struct mtk_error *error)
{
	int status;

	if (workload->n_requests == workload->max_requests) {
		size_t max = workload->max_requests ? workload->max_requests * 2 : 64;
		void *grown = realloc(workload->requests, max * sizeof(*workload->requests));

		if (!grown)
			return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory",
					     workload->name);
		workload->requests = grown;
		workload->max_requests = max;
	}
	status = mtk_workload_line_read(workload->name, line, text, n_bytes,
					&workload->requests[workload->n_requests], error);
	if (status < 0)
		return status;
	workload->n_requests++;
	return MOETRACE_OK;
}

static int lines_read(struct mtk_workload *workload, const char *bytes, size_t n_bytes,
		      struct mtk_error *error)
{
	static const char mark[] = "\xef\xbb\xbf";
	const char *at = bytes, *end = bytes + n_bytes;
	size_t line = 1;

	if (n_bytes >= strlen(mark) && memcmp(bytes, mark, strlen(mark)) == 0)
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     "%s: begins with a UTF-8 byte order mark; remove it",
				     workload->name);
	for (; at < end; line++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *line_end = newline ? newline : end;
		size_t line_bytes = (size_t)(line_end - at);

		if (!line_is_blank(at, line_bytes)) {
			int status = request_add(workload, line, at, line_bytes, error);

			if (status < 0)
				return status;
		}
		at = newline ? newline + 1 : end;
	}
	if (workload->n_requests == 0)
		return mtk_error_set(error, MOETRACE_E_FORMAT, "%s: the workload has no requests; write one JSON object a line, "
				     "with prompt and max_new_tokens",
				     workload->name);
	return MOETRACE_OK;
}

static int compare_ids(const void *a, const void *b)
{
	const struct mtk_workload_request *left = *(const struct mtk_workload_request *const *)a;
	const struct mtk_workload_request *right = *(const struct mtk_workload_request *const *)b;
	int order = strcmp(left->id, right->id);

	if (order != 0)
		return order;
	return left->line < right->line ? -1 : left->line > right->line;
}

static int ids_check(const struct mtk_workload *workload, struct mtk_error *error)
{
	const struct mtk_workload_request **sorted;
	size_t n = workload->n_requests, i;
	int status = MOETRACE_OK;

	sorted = malloc(n * sizeof(*sorted));
	if (!sorted)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", workload->name);
	for (i = 0; i < n; i++)
		sorted[i] = &workload->requests[i];
	qsort(sorted, n, sizeof(*sorted), compare_ids);
	for (i = 1; i < n && status == MOETRACE_OK; i++) {
		if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
			status = mtk_error_set(error, MOETRACE_E_FORMAT,
					       "%s: line %zu: id %.100s is that of line %zu too; "
					       "give each request its own",
					       workload->name, sorted[i]->line, sorted[i]->id,
					       sorted[i - 1]->line);
	}
	free(sorted);
	return status;
}

int mtk_workload_parse(const char *name, const char *bytes, size_t n_bytes,
		       struct mtk_workload **ret_workload, struct mtk_error *error)
{
	struct mtk_workload *workload = calloc(1, sizeof(*workload));
	int status;

	if (!workload)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", name);
	workload->name = strdup(name);
	if (!workload->name) {
		status = mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", name);
		goto err_workload;
	}
	status = lines_read(workload, bytes, n_bytes, error);
	if (status < 0)
		goto err_workload;
	status = ids_check(workload, error);
	if (status < 0)
		goto err_workload;
	*ret_workload = workload;
	return MOETRACE_OK;

err_workload:
	mtk_workload_destroy(workload);
	return status;
}

void mtk_workload_destroy(struct mtk_workload *workload)
{
	size_t i;

	if (!workload)
		return;
	for (i = 0; i < workload->n_requests; i++)
		mtk_workload_request_release(&workload->requests[i]);
	free(workload->requests);
	free(workload->name);
	free(workload);
}

static int attributes_copy(const struct mtk_workload_request *from, struct mtk_workload_request *to)
{
	to->attributes = calloc(from->n_attributes + 1, sizeof(*to->attributes));
	if (!to->attributes)
		return -1;
	for (; to->n_attributes < from->n_attributes; to->n_attributes++) {
		struct mtk_workload_attribute *attribute = &to->attributes[to->n_attributes];

		attribute->key = strdup(from->attributes[to->n_attributes].key);
		attribute->value = strdup(from->attributes[to->n_attributes].value);
		if (!attribute->key || !attribute->value) {
			to->n_attributes++;
			return -1;
		}
	}
	return 0;
}

/* The same request for the @n_th time; what cannot be copied is left to be released. */
static int request_copy(const struct mtk_workload_request *from, uint32_t n_th,
			struct mtk_workload_request *to)
{
	size_t n_id_bytes = strlen(from->id) + 16;

	*to = (struct mtk_workload_request){.line = from->line,
					    .n_prompt_bytes = from->n_prompt_bytes,
					    .max_new_tokens = from->max_new_tokens};
	to->id = malloc(n_id_bytes);
	to->prompt = malloc(from->n_prompt_bytes);
	if (!to->id || !to->prompt)
		return -1;
	snprintf(to->id, n_id_bytes, "%s.%lu", from->id, (unsigned long)n_th);
	memcpy(to->prompt, from->prompt, from->n_prompt_bytes);
	return attributes_copy(from, to);
}

int mtk_workload_repeat(struct mtk_workload *workload, uint32_t n_times, struct mtk_error *error)
{
	size_t n = workload->n_requests, i;
	struct mtk_workload_request *requests;

	if (n_times && n > UINT32_MAX / n_times)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "%s: %zu requests %u times over are too many", workload->name,
				     n, n_times);
	requests = realloc(workload->requests, n * n_times * sizeof(*requests));
	if (!requests)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", workload->name);
	workload->requests = requests;
	workload->max_requests = n * n_times;
	for (i = n; i < n * n_times; i++) {
		int status = request_copy(&requests[i % n], (uint32_t)(i / n) + 1, &requests[i]);

		workload->n_requests++;
		if (status < 0)
			return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory",
					     workload->name);
	}
	return MOETRACE_OK;
}

/* Double the buffer, up to one byte more than the limit, so that a longer file shows itself. */
static int buffer_grow(const char *path, char **bytes, size_t *max_bytes, struct mtk_error *error)
{
	size_t max = *max_bytes ? *max_bytes * 2 : FIRST_BYTES;
	char *grown;

	if (*max_bytes > MTK_WORKLOAD_MAX_BYTES)
		return mtk_error_set(error, MOETRACE_E_LIMIT, "%s: more than %u bytes; split it into several workloads", path,
				     MTK_WORKLOAD_MAX_BYTES);
	if (max > MTK_WORKLOAD_MAX_BYTES)
		max = (size_t)MTK_WORKLOAD_MAX_BYTES + 1;
	grown = realloc(*bytes, max);
	if (!grown)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", path);
	*bytes = grown;
	*max_bytes = max;
	return MOETRACE_OK;
}

static int file_read(const char *path, int fd, char **ret_bytes, size_t *ret_n_bytes,
		     struct mtk_error *error)
{
	char *bytes = NULL;
	size_t n_bytes = 0, max_bytes = 0;
	ssize_t n = 1;
	int status;

	while (n != 0) {
		if (n_bytes == max_bytes) {
			status = buffer_grow(path, &bytes, &max_bytes, error);
			if (status < 0)
				goto err_bytes;
		}
		n = read(fd, bytes + n_bytes, max_bytes - n_bytes);
		if (n < 0 && errno != EINTR) {
			status = mtk_error_set(error, MOETRACE_E_IO, "%s: cannot read: %s", path,
					       strerror(errno));
			goto err_bytes;
		}
		n_bytes += n > 0 ? (size_t)n : 0;
	}
	*ret_bytes = bytes;
	*ret_n_bytes = n_bytes;
	return MOETRACE_OK;

err_bytes:
	free(bytes);
	return status;
}

int mtk_workload_read(const char *path, struct mtk_workload **ret_workload, struct mtk_error *error)
{
	char *bytes = NULL;
	size_t n_bytes = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int status;

	if (fd < 0)
		return mtk_error_set(error, errno == ENOENT ? MOETRACE_E_NOT_FOUND : MOETRACE_E_IO,
				     "%s: cannot open: %s", path, strerror(errno));
	status = file_read(path, fd, &bytes, &n_bytes, error);
	close(fd);
	if (status < 0)
		return status;
	status = mtk_workload_parse(path, bytes, n_bytes, ret_workload, error);
	free(bytes);
	return status;
}
