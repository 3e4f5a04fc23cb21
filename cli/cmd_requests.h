/* SPDX-License-Identifier: MIT */
/*
 * The parts of `moetrace requests`: the command line and the list (cmd_requests.c), one request
 * (cmd_requests_one.c), requests compared with each other (cmd_requests_compare.c).
 */
#ifndef MT_CLI_CMD_REQUESTS_H
#define MT_CLI_CMD_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"

struct requests_args {
	struct mt_args common;
	const char *id; /* NULL: the list */
	const char *similar; /* another one to compare it with */
	bool has_outliers, has_attempts;
	uint64_t layer;
	bool has_layer;
	uint64_t attempt;
	bool has_attempt; /* else the last one */
	uint64_t first_position;
	uint64_t last_position;
	bool has_positions;
};

/* Attributes of a request as text are cut at this size. */
#define MT_ATTRIBUTES_BYTES 1024

/* A statement for the two functions below, to be finalized by the caller; NULL: error line. */
sqlite3_stmt *mt_requests_attributes_prepare(const struct mt_trace *trace);
int mt_requests_attributes_json(const struct mt_trace *trace, sqlite3_stmt *stmt,
				int64_t request_id, struct mt_jsonw *json);
int mt_requests_attributes_text(const struct mt_trace *trace, sqlite3_stmt *stmt,
				int64_t request_id, char text[MT_ATTRIBUTES_BYTES]);

/* Print request @request_id. Returns an enum mt_exit. */
int mt_requests_one_print(const struct mt_trace *trace, const struct requests_args *args,
			  int64_t request_id);

/* --similar with the requests' numbers, --outliers and --attempts. Return an enum mt_exit. */
int mt_requests_similar_print(const struct mt_trace *trace, const struct requests_args *args,
			      int64_t request_a, int64_t request_b);
int mt_requests_judged_print(const struct mt_trace *trace, const struct requests_args *args);

#endif
