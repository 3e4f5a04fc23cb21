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
	error->column = 1;
	for (i = line_begin; i < byte; i++)
		error->column += ((unsigned char)text[i] & 0xc0) != 0x80;
}

struct token {
	size_t begin, end;
};

static bool is_one_of(char c, const char *characters)
{
	return c != '\0' && strchr(characters, c);
}

/* The token at or behind @byte, as far as it goes; empty at the end of the text. */
static struct token token_at(const char *text, size_t n_bytes, size_t byte)
{
	struct token token;
	size_t i = byte;

	while (i < n_bytes && is_one_of(text[i], " \t\r\n"))
		i++;
	token.begin = i;
	if (i < n_bytes && text[i] == '"') {
		for (i++; i < n_bytes && text[i] != '"'; i++)
			i += text[i] == '\\' && i + 1 < n_bytes;
		i += i < n_bytes;
	} else if (i < n_bytes && is_one_of(text[i], "{}[],:")) {
		i++;
	} else {
		i += i < n_bytes && text[i] == '-';
		/* No digit follows a leading zero: 01 is two numbers. */
		if (n_bytes - i > 1 && text[i] == '0' && is_one_of(text[i + 1], "0123456789"))
			n_bytes = i + 1;
		while (i < n_bytes && !is_one_of(text[i], " \t\r\n\"{}[],:"))
			i++;
	}
	token.end = i;
	return token;
}

/* The last token that begins before @byte, or the first one of all. */
static struct token token_before(const char *text, size_t n_bytes, size_t byte)
{
	struct token token = token_at(text, n_bytes, 0), next;

	for (;;) {
		next = token_at(text, n_bytes, token.end);
		if (next.begin >= byte || next.begin == next.end)
			return token;
		token = next;
	}
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
			 "key \"%.*s\" comes twice in an object; remove one",
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

/* What the number of bytes that yajl has read means when it fails. */
enum fault {
	FAULT_BEHIND, /* it is behind the token at fault */
	FAULT_WITHIN, /* it is in the token, or at its first byte */
	FAULT_END,    /* the text is too short */
	FAULT_BYTE,   /* it is about a byte, see fault_byte() */
};

#define LEXICAL "lexical error: "
#define GRAMMAR "parse error: "

/* How yajl's sentences begin, and what to tell the writer of the text instead. */
static const struct {
	const char *yajl;
	enum fault fault;
	const char *text;
} sentences[] = {
	{GRAMMAR "premature EOF", FAULT_END,
	 "the JSON ends too early; close each string, array and object"},
	{GRAMMAR "trailing garbage", FAULT_BEHIND,
	 "something follows the JSON value; remove it"},
	{GRAMMAR "unallowed token", FAULT_BEHIND,
	 "this cannot stand here; remove it, or write the missing value before it"},
	{GRAMMAR "after array element", FAULT_BEHIND,
	 "a comma or ] is missing before this; add it"},
	{GRAMMAR "after key and value", FAULT_WITHIN,
	 "a comma or } is missing before this; add it"},
	{GRAMMAR "object key and value", FAULT_BEHIND,
	 "a colon is missing before this; add it"},
	{GRAMMAR "invalid object key", FAULT_BEHIND,
	 "this is not a key; put keys between double quotes"},
	{LEXICAL "invalid char in", FAULT_BYTE,
	 "this is not a JSON value; put text between double quotes"},
	{LEXICAL "invalid string in", FAULT_BYTE,
	 "this is not a JSON value; put text between double quotes"},
	{LEXICAL "invalid character inside", FAULT_BYTE,
	 "a control character in a string; write it as an escape such as \\n"},
	{LEXICAL "inside a string", FAULT_BYTE,
	 "not an escape of JSON; write \\\\ for a backslash"},
	{LEXICAL "invalid (non-hex)", FAULT_BYTE,
	 "not a hexadecimal digit; \\u takes four of them"},
	{LEXICAL "malformed number", FAULT_BYTE,
	 "a digit is missing in a number; add it"},
	{LEXICAL "probable comment", FAULT_BYTE,
	 "JSON has no comments; remove it"},
};

/* Fills the words and returns what they are about. */
static enum fault error_from_yajl(struct mt_json_error *error, yajl_handle yajl)
{
	unsigned char *text = yajl_get_error(yajl, 0, NULL, 0);
	const char *words = text ? (const char *)text : "not JSON";
	enum fault fault = FAULT_BEHIND;
	size_t i;

	for (i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++) {
		if (strncmp(words, sentences[i].yajl, strlen(sentences[i].yajl)) == 0) {
			words = sentences[i].text;
			fault = sentences[i].fault;
			break;
		}
	}
	snprintf(error->text, sizeof(error->text), "%s", words);
	error->text[strcspn(error->text, "\n")] = '\0';
	if (text)
		yajl_free_error(yajl, text);
	return fault;
}

/*
 * Where to point, yajl having read up to @byte: at the token that it or the receiver refused; within
 * a string or number, or at something that begins no token, at the byte itself.
 */
static size_t fault_byte(const char *text, size_t n_bytes, size_t byte, enum fault fault)
{
	struct token token = token_before(text, n_bytes, fault == FAULT_WITHIN ? byte + 1 : byte);

	if (fault == FAULT_END)
		return n_bytes;
	if (fault != FAULT_BYTE)
		return token.begin;
	if (byte == 0 || token.end < byte || token.begin == n_bytes ||
	    is_one_of(text[token.begin], "\"-0123456789{}[],:"))
		return byte;
	return token.begin;
}

static int parse_run(struct parse *parse, const char *text, size_t n_bytes)
{
	yajl_handle yajl = yajl_alloc(&callbacks, NULL, parse);
	enum fault fault = FAULT_BEHIND;
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
		if (parse->status >= 0) {
			parse->status = MOETRACE_E_FORMAT;
			fault = error_from_yajl(parse->error, yajl);
		}
		error_place(parse->error, text, n_bytes, fault_byte(text, n_bytes, byte, fault));
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
		snprintf(error->text, sizeof(error->text),
			 "bytes that are not UTF-8; save the text as UTF-8");
		error_place(error, text, n_bytes, byte);
		return MOETRACE_E_FORMAT;
	}
	if (!surrogates_are_paired(text, n_bytes, &byte)) {
		snprintf(error->text, sizeof(error->text),
			 "a surrogate escape without its other half; write both, or the character");
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
