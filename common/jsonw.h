/* SPDX-License-Identifier: MIT */
/*
 * JSON writing to a stdio stream. The writer places commas and colons, escapes strings, and writes
 * one U+FFFD for each maximal ill-formed part of a string, so that its output is valid UTF-8
 * whatever goes in. Calls never fail one by one: a stream error is kept and told at the end.
 * Nesting is the caller's duty; it is checked, and a writer that was driven wrongly reports
 * MOETRACE_E_STATE at the end.
 */
#ifndef MT_COMMON_JSONW_H
#define MT_COMMON_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Containers within one another. */
#define MT_JSONW_MAX_DEPTH 64

struct mt_jsonw {
	FILE *out;
	uint64_t in_object; /* bit d: the container at depth d is an object */
	uint64_t has_item;  /* bit d: it has an item already */
	uint32_t depth;
	bool after_key;
	bool misused;
};

void mt_jsonw_init(struct mt_jsonw *writer, FILE *out);

void mt_jsonw_object_begin(struct mt_jsonw *writer);
void mt_jsonw_object_end(struct mt_jsonw *writer);
void mt_jsonw_array_begin(struct mt_jsonw *writer);
void mt_jsonw_array_end(struct mt_jsonw *writer);

void mt_jsonw_key(struct mt_jsonw *writer, const char *key);
void mt_jsonw_string(struct mt_jsonw *writer, const char *text);
void mt_jsonw_bytes(struct mt_jsonw *writer, const void *bytes, size_t n_bytes);
/* Two lower-case digits a byte, as a string. */
void mt_jsonw_hex(struct mt_jsonw *writer, const void *bytes, size_t n_bytes);
void mt_jsonw_int64(struct mt_jsonw *writer, int64_t value);
void mt_jsonw_uint64(struct mt_jsonw *writer, uint64_t value);
/* The shortest decimal that reads back as @value; null if it is not finite. */
void mt_jsonw_double(struct mt_jsonw *writer, double value);
void mt_jsonw_boolean(struct mt_jsonw *writer, bool value);
void mt_jsonw_null(struct mt_jsonw *writer);

/**
 * End the line after a complete value; the next value starts a new document (JSON lines).
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_IO      the stream has an error; errno of the write is not kept
 *          MOETRACE_E_STATE  a container was left open or a call came in a wrong place
 */
int mt_jsonw_end_line(struct mt_jsonw *writer);

#endif
