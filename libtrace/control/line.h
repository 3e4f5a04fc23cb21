/* SPDX-License-Identifier: MIT */
/*
 * The line protocol of the control socket: what a line says, and how an answer is built.
 * docs/control.md describes both for people.
 *
 *   line    VERB [KEY=VALUE ...]; words are separated by blanks. A value with blanks, quotes or
 *           nothing stands in double quotes, in which \" \\ and \n have their usual meaning.
 *   answer  any number of lines KEY VALUE, then ok, or error CODE TEXT. In values a backslash
 *           is \\ and a newline \n.
 */
#ifndef MT_CONTROL_LINE_H
#define MT_CONTROL_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Longest line, without its newline: two paths fit. */
#define MT_CONTROL_LINE_BYTES 8192u
#define MT_CONTROL_MAX_ARGS 8u

struct mt_control_line {
	const char *verb;
	uint32_t n_args;
	struct {
		const char *key;
		const char *value;
	} args[MT_CONTROL_MAX_ARGS];
	char text[MT_CONTROL_LINE_BYTES + 1]; /* that the pointers point into */
};

/**
 * Take a line apart.
 *
 * @bytes      The line without its newline; a carriage return at its end is left out.
 * @ret_line   Valid on success; an empty line has the verb "".
 * @ret_error  What is wrong, on failure.
 *
 * Returns MOETRACE_OK or MOETRACE_E_FORMAT.
 */
int mt_control_line_parse(const char *bytes, size_t n_bytes, struct mt_control_line *ret_line,
			  const char **ret_error);

/* The value of an argument; NULL: it was not given. */
const char *mt_control_line_value(const struct mt_control_line *line, const char *key);

/* An answer on its way. All zero is an empty one. */
struct mt_reply {
	char *text;
	size_t n_bytes;
	size_t capacity_bytes;
	int has_failed; /* out of memory: an answer is missing lines, the peer is let go */
};

void mt_reply_free(struct mt_reply *reply);
/* Add a line KEY VALUE. */
void mt_reply_text(struct mt_reply *reply, const char *key, const char *value);
void mt_reply_number(struct mt_reply *reply, const char *key, uint64_t value);
void mt_reply_double(struct mt_reply *reply, const char *key, double value);
/* Add a line as it is. */
void mt_reply_line(struct mt_reply *reply, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The last line of an answer. */
void mt_reply_end(struct mt_reply *reply, int status, const char *text);

#endif
