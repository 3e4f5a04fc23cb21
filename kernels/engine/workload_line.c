/* SPDX-License-Identifier: MIT */
/*
 * One line of a workload. The request under construction owns what it holds from the first
 * allocation on, so that one release serves every failure.
 */
#include "kernels/engine/workload_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/json.h"

#define LINE_MAX_DEPTH 2

enum key {
	KEY_ID,
	KEY_PROMPT,
	KEY_MAX_NEW_TOKENS,
	KEY_ATTRIBUTE,
};

struct line {
	struct mtk_workload_request request;
	enum key key;
	char *attribute_key;
	size_t max_attributes;
};

static int refuse(struct mt_json_error *error, int status, const char *what)
{
	snprintf(error->text, sizeof(error->text), "%s", what);
	return status;
}

/* A terminated copy of bytes; a zero byte within would cut it short and is refused. */
static int text_copy(const char *text, size_t n_bytes, const char *what, char **ret_copy,
		     struct mt_json_error *error)
{
	char *copy;

	if (n_bytes > 0 && memchr(text, '\0', n_bytes)) {
		snprintf(error->text, sizeof(error->text), "%s holds a zero byte; remove it", what);
		return MOETRACE_E_FORMAT;
	}
	copy = malloc(n_bytes + 1);
	if (!copy)
		return refuse(error, MOETRACE_E_NOMEM, "out of memory");
	if (n_bytes > 0)
		memcpy(copy, text, n_bytes);
	copy[n_bytes] = '\0';
	*ret_copy = copy;
	return MOETRACE_OK;
}

static int key_read(struct line *line, const struct mt_json_event *event,
		    struct mt_json_error *error)
{
	if (mt_json_text_is(event, "id"))
		line->key = KEY_ID;
	else if (mt_json_text_is(event, "prompt"))
		line->key = KEY_PROMPT;
	else if (mt_json_text_is(event, "max_new_tokens"))
		line->key = KEY_MAX_NEW_TOKENS;
	else
		line->key = KEY_ATTRIBUTE;
	if (line->key != KEY_ATTRIBUTE)
		return MOETRACE_OK;
	if (event->n_bytes == 0)
		return refuse(error, MOETRACE_E_FORMAT, "a key is empty; give it a name");
	return text_copy(event->text, event->n_bytes, "a key", &line->attribute_key, error);
}

static int id_read(struct line *line, const struct mt_json_event *event,
		   struct mt_json_error *error)
{
	if (event->kind == MT_JSON_NUMBER && event->is_int64)
		line->request.id_is_integer = true;
	else if (event->kind != MT_JSON_STRING || event->n_bytes == 0)
		return refuse(error, MOETRACE_E_FORMAT,
			      "id is neither a string that is not empty nor a 64-bit integer; give "
			      "one of them, or no id");
	return text_copy(event->text, event->n_bytes, "id", &line->request.id, error);
}

static int prompt_read(struct line *line, const struct mt_json_event *event,
		       struct mt_json_error *error)
{
	if (event->kind != MT_JSON_STRING)
		return refuse(error, MOETRACE_E_FORMAT, "prompt is not a string; put it between double quotes");
	if (event->n_bytes == 0)
		return refuse(error, MOETRACE_E_FORMAT, "prompt is empty; give it at least one byte");
	line->request.prompt = malloc(event->n_bytes);
	if (!line->request.prompt)
		return refuse(error, MOETRACE_E_NOMEM, "out of memory");
	memcpy(line->request.prompt, event->text, event->n_bytes);
	line->request.n_prompt_bytes = event->n_bytes;
	return MOETRACE_OK;
}

static int max_new_tokens_read(struct line *line, const struct mt_json_event *event,
			       struct mt_json_error *error)
{
	if (event->kind != MT_JSON_NUMBER || !event->is_int64 || event->int64 < 1)
		return refuse(error, MOETRACE_E_FORMAT, "max_new_tokens is not a positive integer; give a whole number from 1");
	line->request.max_new_tokens = (uint64_t)event->int64;
	return MOETRACE_OK;
}

static int attributes_reserve(struct line *line, struct mt_json_error *error)
{
	struct mtk_workload_request *request = &line->request;
	size_t max = line->max_attributes ? line->max_attributes * 2 : 4;
	void *grown;

	if (request->n_attributes < line->max_attributes)
		return MOETRACE_OK;
	grown = realloc(request->attributes, max * sizeof(*request->attributes));
	if (!grown)
		return refuse(error, MOETRACE_E_NOMEM, "out of memory");
	request->attributes = grown;
	line->max_attributes = max;
	return MOETRACE_OK;
}

static int attribute_read(struct line *line, const struct mt_json_event *event,
			  struct mt_json_error *error)
{
	struct mtk_workload_request *request = &line->request;
	const char *text = event->text;
	size_t n_bytes = event->n_bytes;
	char *value;
	int status;

	if (event->kind == MT_JSON_BOOLEAN) {
		text = event->boolean ? "true" : "false";
		n_bytes = strlen(text);
	} else if (event->kind != MT_JSON_STRING && event->kind != MT_JSON_NUMBER) {
		snprintf(error->text, sizeof(error->text),
			 "%.100s is not a string, a number or a boolean; give one of them",
			 line->attribute_key);
		return MOETRACE_E_FORMAT;
	}
	status = attributes_reserve(line, error);
	if (status < 0)
		return status;
	status = text_copy(text, n_bytes, line->attribute_key, &value, error);
	if (status < 0)
		return status;
	request->attributes[request->n_attributes++] =
		(struct mtk_workload_attribute){line->attribute_key, value};
	line->attribute_key = NULL;
	return MOETRACE_OK;
}

static int value_read(struct line *line, const struct mt_json_event *event,
		      struct mt_json_error *error)
{
	switch (line->key) {
	case KEY_ID:
		return id_read(line, event, error);
	case KEY_PROMPT:
		return prompt_read(line, event, error);
	case KEY_MAX_NEW_TOKENS:
		return max_new_tokens_read(line, event, error);
	case KEY_ATTRIBUTE:
		break;
	}
	return attribute_read(line, event, error);
}

static int receive(void *context, const struct mt_json_event *event, struct mt_json_error *error)
{
	struct line *line = context;

	if (event->depth == 0) {
		if (event->kind == MT_JSON_OBJECT_BEGIN || event->kind == MT_JSON_OBJECT_END)
			return MOETRACE_OK;
		return refuse(error, MOETRACE_E_FORMAT, "not a JSON object; write a request as {...}");
	}
	if (event->kind == MT_JSON_KEY)
		return key_read(line, event, error);
	return value_read(line, event, error);
}

static int request_complete(const char *name, size_t line, struct mtk_workload_request *request,
			    struct mtk_error *error)
{
	char id[24];

	if (!request->prompt)
		return mtk_error_set(error, MOETRACE_E_FORMAT, "%s: line %zu: prompt is missing; add \"prompt\": \"TEXT\"", name, line);
	if (request->max_new_tokens == 0)
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     "%s: line %zu: max_new_tokens is missing; add \"max_new_tokens\": N",
				     name, line);
	if (request->id)
		return MOETRACE_OK;
	snprintf(id, sizeof(id), "%zu", line - 1);
	request->id = strdup(id);
	request->id_is_integer = true;
	if (!request->id)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", name);
	return MOETRACE_OK;
}

int mtk_workload_line_read(const char *name, size_t line, const char *text, size_t n_bytes,
			   struct mtk_workload_request *ret_request, struct mtk_error *error)
{
	struct mt_json_limits limits = {MTK_WORKLOAD_MAX_BYTES, LINE_MAX_DEPTH};
	struct line state = {.request.line = line};
	struct mt_json_error json_error;
	int status = mt_json_parse(text, n_bytes, &limits, receive, &state, &json_error);

	free(state.attribute_key);
	if (status == MOETRACE_E_UNSUPPORTED)
		mtk_error_set(error, status, "%s: %s", name, json_error.text);
	else if (status < 0)
		mtk_error_set(error, status, "%s: line %zu, column %u: %s", name, line,
			      json_error.column, json_error.text);
	else
		status = request_complete(name, line, &state.request, error);
	if (status < 0) {
		mtk_workload_request_release(&state.request);
		return status;
	}
	*ret_request = state.request;
	return MOETRACE_OK;
}

void mtk_workload_request_release(struct mtk_workload_request *request)
{
	size_t i;

	for (i = 0; i < request->n_attributes; i++) {
		free(request->attributes[i].key);
		free(request->attributes[i].value);
	}
	free(request->attributes);
	free(request->prompt);
	free(request->id);
	memset(request, 0, sizeof(*request));
}
