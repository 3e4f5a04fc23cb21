/* SPDX-License-Identifier: MIT */
/*
 * Strict JSON reading, event by event. The text must be one RFC 8259 value in valid UTF-8 and
 * nothing else: no comments, no trailing text, no lone surrogates, no key twice in an object.
 * Integers arrive exact to 64 bits, never by way of a double. Depth and size are limited by the
 * caller. Parsing keeps no global state; any thread may parse.
 */
#ifndef MT_COMMON_JSON_H
#define MT_COMMON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mt_json_kind {
	MT_JSON_NULL,
	MT_JSON_BOOLEAN,
	MT_JSON_NUMBER,
	MT_JSON_STRING,
	MT_JSON_KEY,
	MT_JSON_OBJECT_BEGIN,
	MT_JSON_OBJECT_END,
	MT_JSON_ARRAY_BEGIN,
	MT_JSON_ARRAY_END,
};

struct mt_json_event {
	enum mt_json_kind kind;
	uint32_t depth;	  /* containers around this event; a container's begin and end agree */
	const char *text; /* string and key: decoded bytes; number: as written; else NULL */
	size_t n_bytes;	  /* of text, which is not terminated and may hold zero bytes */
	bool boolean;
	bool is_int64; /* number: written without point and exponent, and fits */
	int64_t int64; /* valid if is_int64 */
};

struct mt_json_limits {
	size_t max_bytes;
	uint32_t max_depth; /* containers within one another */
};

struct mt_json_error {
	size_t byte;	 /* offset of the fault, from 0 */
	uint32_t line;	 /* from 1 */
	uint32_t column; /* in characters, from 1; of the token at fault, or just behind the text */
	char text[320];	 /* what was wrong, without the place; one line */
};

/**
 * Receives one event; @event and its text are valid during the call only.
 *
 * Returns  MOETRACE_OK to go on, or a negative status that ends the parse and is returned by it.
 *          The receiver then writes what was wrong into @error->text; the parser adds the place.
 */
typedef int mt_json_event_fn(void *context, const struct mt_json_event *event,
			     struct mt_json_error *error);

/**
 * Parse @n_bytes of @text and hand every event to @receive.
 *
 * @ret_error  Filled exactly when the call fails; may not be NULL.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_FORMAT       not JSON in the sense above, or beyond @limits
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_UNSUPPORTED  the program was built without a JSON parser
 *          any status of @receive
 */
int mt_json_parse(const char *text, size_t n_bytes, const struct mt_json_limits *limits,
		  mt_json_event_fn *receive, void *context, struct mt_json_error *ret_error);

/* Whether the text of string or key @event equals the terminated string @name. */
bool mt_json_text_is(const struct mt_json_event *event, const char *name);

/**
 * The number @event as the nearest double, in any locale.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_FORMAT  not a number, or too large for a double
 *          MOETRACE_E_NOMEM
 */
int mt_json_double(const struct mt_json_event *event, double *ret_value);

#endif
