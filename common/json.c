/* SPDX-License-Identifier: MIT */
/*
 * JSON reading over yajl. yajl checks the grammar; this file adds what it leaves out: limits,
 * duplicate keys, exact integers, UTF-8 (yajl takes overlong forms) and surrogate escapes. The last
 * two are checked before yajl sees the text, because its decoder replaces a lone surrogate in
 * silence and may read past one that ends a string.
 */
#include "common/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include <moetrace/status.h>

#include "common/json_keys.h"
#include "common/utf8.h"

struct parse {
	const struct mt_json_limits *limits;
	mt_json_event_fn *receive;
	void *context;
	struct mt_json_error *error;
	struct mt_json_keys *keys; /* [max_depth] */
	uint32_t depth;
	int status;
};

static void error_place(struct mt_json_error *error, const char *text, size_t n_bytes, size_t byte)
{
	size_t i, line_begin = 0;
	uint32_t line = 1;

	if (byte > n_bytes)
		byte = n_bytes;
	for (i = 0; i < byte; i++) {
		if (text[i] == '\n') {
			line++;
			line_begin = i + 1;
		}
	}
	error->byte = byte;
	error->line = line;
	error->column = (uint32_t)(byte - line_begin) + 1;
}

static int fail(struct parse *parse, int status, const char *text)
{
	snprintf(parse->error->text, sizeof(parse->error->text), "%s", text);
	parse->status = status;
	return 0;
}

static int deliver(struct parse *parse, const struct mt_json_event *event)
{
	parse->status = parse->receive(parse->context, event, parse->error);
	return parse->status >= 0;
}

static int on_null(void *context)
{
	struct parse *parse = context;

	return deliver(parse, &(struct mt_json_event){.kind = MT_JSON_NULL, .depth = parse->depth});
}

static int on_boolean(void *context, int boolean)
{
	struct parse *parse = context;

	return deliver(parse, &(struct mt_json_event){.kind = MT_JSON_BOOLEAN,
						      .depth = parse->depth,
						      .boolean = boolean != 0});
}

/* Longest decimal of an int64_t with its sign. */
#define INT64_DIGITS 20

static bool int64_from_text(const char *text, size_t n_bytes, int64_t *ret_value)
{
	char copy[INT64_DIGITS + 1];
	long long value;
	char *end;

	if (n_bytes > INT64_DIGITS || memchr(text, '.', n_bytes) || memchr(text, 'e', n_bytes) ||
	    memchr(text, 'E', n_bytes))
		return false;
	memcpy(copy, text, n_bytes);
	copy[n_bytes] = '\0';
	errno = 0;
	value = strtoll(copy, &end, 10);
	if (errno != 0 || *end != '\0')
		return false;
	*ret_value = value;
	return true;
}

static int on_number(void *context, const char *text, size_t n_bytes)
{
	struct parse *parse = context;
	struct mt_json_event event = {
		.kind = MT_JSON_NUMBER, .depth = parse->depth, .text = text, .n_bytes = n_bytes};

	event.is_int64 = int64_from_text(text, n_bytes, &event.int64);
	return deliver(parse, &event);
}

static int on_string(void *context, const unsigned char *text, size_t n_bytes)
{
	struct parse *parse = context;

	return deliver(parse, &(struct mt_json_event){.kind = MT_JSON_STRING,
						      .depth = parse->depth,
						      .text = (const char *)text,
						      .n_bytes = n_bytes});
}

static int on_key(void *context, const unsigned char *text, size_t n_bytes)
{
	struct parse *parse = context;
	int status = mt_json_keys_add(&parse->keys[parse->depth - 1], (const char *)text, n_bytes);

	if (status == MOETRACE_E_FORMAT) {
		snprintf(parse->error->text, sizeof(parse->error->text),
			 "key \"%.*s\" comes twice in an object",
			 n_bytes > 100 ? 100 : (int)n_bytes, (const char *)text);
		parse->status = status;
		return 0;
	}
	if (status < 0)
		return fail(parse, status, "out of memory");
	return deliver(parse, &(struct mt_json_event){.kind = MT_JSON_KEY,
						      .depth = parse->depth,
						      .text = (const char *)text,
						      .n_bytes = n_bytes});
}

static int container_begin(struct parse *parse, enum mt_json_kind kind)
{
	struct mt_json_event event = {.kind = kind, .depth = parse->depth};

	if (parse->depth >= parse->limits->max_depth) {
		snprintf(parse->error->text, sizeof(parse->error->text),
			 "nested deeper than %u levels", parse->limits->max_depth);
		parse->status = MOETRACE_E_FORMAT;
		return 0;
	}
	mt_json_keys_reset(&parse->keys[parse->depth]);
	parse->depth++;
	return deliver(parse, &event);
}

static int container_end(struct parse *parse, enum mt_json_kind kind)
{
	parse->depth--;
	return deliver(parse, &(struct mt_json_event){.kind = kind, .depth = parse->depth});
}

static int on_object_begin(void *context)
{
	return container_begin(context, MT_JSON_OBJECT_BEGIN);
}

static int on_object_end(void *context)
{
	return container_end(context, MT_JSON_OBJECT_END);
}

static int on_array_begin(void *context)
{
	return container_begin(context, MT_JSON_ARRAY_BEGIN);
}

static int on_array_end(void *context)
{
	return container_end(context, MT_JSON_ARRAY_END);
}

static const yajl_callbacks callbacks = {
	.yajl_null = on_null,
	.yajl_boolean = on_boolean,
	.yajl_number = on_number,
	.yajl_string = on_string,
	.yajl_start_map = on_object_begin,
	.yajl_map_key = on_key,
	.yajl_end_map = on_object_end,
	.yajl_start_array = on_array_begin,
	.yajl_end_array = on_array_end,
};

/* The four hexadecimal digits of an escape as a number, or UINT32_MAX. */
static uint32_t escape_value(const char *text, size_t n_bytes)
{
	uint32_t value = 0;
	size_t i;

	if (n_bytes < 6 || text[0] != '\\' || text[1] != 'u')
		return UINT32_MAX;
	for (i = 2; i < 6; i++) {
		char c = text[i];

		if (c >= '0' && c <= '9')
			value = value << 4 | (uint32_t)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
		else
			return UINT32_MAX;
	}
	return value;
}

/* Whether every surrogate escape is half of a pair; the place of the first that is not. */
static bool surrogates_are_paired(const char *text, size_t n_bytes, size_t *ret_byte)
{
	const char *at = text, *end = text + n_bytes;
	uint32_t value;

	while ((at = memchr(at, '\\', (size_t)(end - at))) != NULL) {
		value = escape_value(at, (size_t)(end - at));
		if (value == UINT32_MAX) {
			/* Another escape, or none: yajl judges it. Step over "\\" as a whole. */
			at += end - at > 1 ? 2 : 1;
			continue;
		}
		if (value >= 0xd800 && value <= 0xdfff) {
			uint32_t low = escape_value(at + 6, (size_t)(end - at) - 6);

			if (value >= 0xdc00 || low < 0xdc00 || low > 0xdfff) {
				*ret_byte = (size_t)(at - text);
				return false;
			}
			at += 6;
		}
		at += 6;
	}
	return true;
}

/* yajl's own sentence ends in a newline and may span lines. */
static void error_from_yajl(struct mt_json_error *error, yajl_handle yajl)
{
	unsigned char *text = yajl_get_error(yajl, 0, NULL, 0);

	snprintf(error->text, sizeof(error->text), "%s", text ? (const char *)text : "not JSON");
	error->text[strcspn(error->text, "\n")] = '\0';
	if (text)
		yajl_free_error(yajl, text);
}

static int parse_run(struct parse *parse, const char *text, size_t n_bytes)
{
	yajl_handle yajl = yajl_alloc(&callbacks, NULL, parse);
	yajl_status result;
	size_t byte;

	if (!yajl) {
		fail(parse, MOETRACE_E_NOMEM, "out of memory");
		error_place(parse->error, text, n_bytes, 0);
		return parse->status;
	}
	result = yajl_parse(yajl, (const unsigned char *)text, n_bytes);
	byte = yajl_get_bytes_consumed(yajl);
	if (result == yajl_status_ok) {
		byte = n_bytes;
		result = yajl_complete_parse(yajl);
	}
	if (result != yajl_status_ok) {
		error_place(parse->error, text, n_bytes, byte);
		if (parse->status >= 0) {
			parse->status = MOETRACE_E_FORMAT;
			error_from_yajl(parse->error, yajl);
		}
	}
	yajl_free(yajl);
	return parse->status;
}

static bool utf8_is_valid(const char *text, size_t n_bytes, size_t *ret_byte)
{
	size_t byte = 0, length;

	for (; byte < n_bytes; byte += length) {
		if (!mt_utf8_sequence((const unsigned char *)text + byte, n_bytes - byte,
				      &length)) {
			*ret_byte = byte;
			return false;
		}
	}
	return true;
}

static int text_check(const char *text, size_t n_bytes, const struct mt_json_limits *limits,
		      struct mt_json_error *error)
{
	size_t byte;

	if (n_bytes > limits->max_bytes) {
		snprintf(error->text, sizeof(error->text), "%zu bytes, more than the limit of %zu",
			 n_bytes, limits->max_bytes);
		error_place(error, text, n_bytes, 0);
		return MOETRACE_E_FORMAT;
	}
	if (!utf8_is_valid(text, n_bytes, &byte)) {
		snprintf(error->text, sizeof(error->text), "bytes that are not UTF-8");
		error_place(error, text, n_bytes, byte);
		return MOETRACE_E_FORMAT;
	}
	if (!surrogates_are_paired(text, n_bytes, &byte)) {
		snprintf(error->text, sizeof(error->text),
			 "a surrogate escape without its other half");
		error_place(error, text, n_bytes, byte);
		return MOETRACE_E_FORMAT;
	}
	return MOETRACE_OK;
}

int mt_json_parse(const char *text, size_t n_bytes, const struct mt_json_limits *limits,
		  mt_json_event_fn *receive, void *context, struct mt_json_error *ret_error)
{
	struct parse parse = {
		.limits = limits, .receive = receive, .context = context, .error = ret_error};
	uint32_t i;
	int status = text_check(text, n_bytes, limits, ret_error);

	if (status < 0)
		return status;
	parse.keys = calloc(limits->max_depth ? limits->max_depth : 1, sizeof(*parse.keys));
	if (!parse.keys) {
		fail(&parse, MOETRACE_E_NOMEM, "out of memory");
		error_place(ret_error, text, n_bytes, 0);
		return parse.status;
	}
	status = parse_run(&parse, text, n_bytes);
	for (i = 0; i < limits->max_depth; i++)
		mt_json_keys_release(&parse.keys[i]);
	free(parse.keys);
	return status;
}
