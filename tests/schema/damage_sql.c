/* SPDX-License-Identifier: MIT */
/*
 * damage_sql FILE.db N [SEED [requests]]: damages a copy of the trace in memory N times and reads it
 * through the functions each time. Half of the times a value of a table is replaced, half of the times
 * bytes of the file are. Whatever they answer, they must answer: rows, or an error with a text.
 * Built with a sanitizer, this finds reads outside of blobs.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>

#include "schema/functions/mt_sql.h"

static uint64_t random_state = 88172645463325252u;

static uint32_t random_u32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16);
}

static uint32_t below(uint32_t n)
{
	return random_u32() % n;
}

struct column {
	const char *table, *name;
};

static const struct column columns[] = {
	{"pass", "recording_id"},
	{"pass", "model_id"},
	{"pass", "n_rows"},
	{"pass", "begin_ns"},
	{"pass_request", "request_id"},
	{"pass_request", "attempt"},
	{"pass_request", "first_position"},
	{"pass_request", "positions"},
	{"pass_request", "row_offset"},
	{"pass_request", "n_rows"},
	{"pass_request", "phase"},
	{"pass_request", "accepted"},
	{"pass_request", "slice"},
	{"pass_layer", "state"},
	{"pass_layer", "n_rows"},
	{"pass_layer", "topk_id"},
	{"pass_layer", "topk_row"},
	{"pass_layer", "layer_id"},
	{"layer", "layer"},
	{"layer", "model_id"},
	{"topk", "n_rows"},
	{"topk", "k"},
	{"topk", "id_bytes"},
	{"topk", "weight_format"},
	{"topk", "topk_ids"},
	{"topk", "topk_weights"},
	{"topk", "row_map"},
	{"topk", "n_valid"},
};

static const char *const values[] = {
	"NULL",
	"0",
	"1",
	"2",
	"-1",
	"255",
	"256",
	"65536",
	"2147483647",
	"2147483648",
	"4294967295",
	"9223372036854775807",
	"-9223372036854775808",
	"1.5",
	"1e300",
	"'decode'",
	"'fp16'",
	"'bf16'",
	"'none'",
	"''",
	"x''",
	"x'00'",
	"x'ffffffffffffffff'",
	"zeroblob(100000)",
	"randomblob(64)",
	"%c + 1",
	"%c - 1",
	"%c * 2",
	"substr(%c, 2)",
	"%c || x'00'",
	"substr(%c, 1, length(%c) / 2)",
	"CAST(%c AS TEXT)",
	"randomblob(length(%c))",
};

static const char *const queries[] = {
	"SELECT count(*), sum(expert), sum(weight), sum(position), count(state) FROM moe_topk",
	"SELECT sum(expert), max(position) FROM moe_topk(2)",
	"SELECT count(weight) FROM moe_topk WHERE position = 7",
	"SELECT count(weight) FROM moe_topk WHERE pass_id = 3 AND attempt = 1 AND layer = 2",
	"SELECT count(*), sum(tokens) FROM moe_load",
	"SELECT count(*), sum(tokens) FROM moe_load(30000000, 300000000, NULL) WHERE layer_id = 4",
	"SELECT count(*), sum(tokens) FROM moe_load(NULL, NULL, 3)",
	"SELECT count(*), sum(active_after), sum(lost_weight) FROM moe_oea(1, 1, 'oea', 2)",
	"SELECT count(*), sum(active_after), sum(retained_score) FROM moe_oea(0, 0, 'budget:9')",
	"SELECT count(*), sum(changed_rows) FROM moe_rule",
	"SELECT count(*), sum(free_entries) FROM moe_expand(1)",
	"SELECT count(*), sum(a_ns) FROM moe_fit(1)",
};

/* Of whole requests: for traces whose positions are those of texts. */
static const char *const request_queries[] = {
	"SELECT count(*), sum(differing_choices), sum(weight_distance) FROM moe_diff(1, 1)",
	"SELECT count(*), sum(reused_rows), max(first_position) FROM moe_diff_request(1, 1, 'main')",
	"SELECT count(*), sum(same) FROM (SELECT choices - differing_choices AS same FROM moe_attempts(1))",
	"SELECT count(*), max(score), sum(floor) FROM moe_outliers(1)",
	"SELECT count(*), sum(overlap) FROM moe_similarity(2, 3)",
};

static unsigned n_answers, n_errors;

static bool is_of_requests;

static void run_queries(sqlite3 *db)
{
	const char *const *sql = is_of_requests ? request_queries : queries;
	const size_t n = is_of_requests ? sizeof(request_queries) / sizeof(request_queries[0])
					: sizeof(queries) / sizeof(queries[0]);

	for (size_t i = 0; i < n; i++) {
		char *error = NULL;
		int rc = sqlite3_exec(db, sql[i], NULL, NULL, &error);

		if (rc != SQLITE_OK && (!error || !*error)) {
			fprintf(stderr, "damage_sql: error %d without a text: %s\n", rc,
				sql[i]);
			exit(1);
		}
		n_answers += rc == SQLITE_OK;
		n_errors += rc != SQLITE_OK;
		sqlite3_free(error);
	}
}

static char *expand(const char *value, const char *column)
{
	char *text = sqlite3_mprintf("%s", value);

	for (char *at; text && (at = strstr(text, "%c")) != NULL;) {
		char *next = sqlite3_mprintf("%.*s%s%s", (int)(at - text), text, column, at + 2);

		sqlite3_free(text);
		text = next;
	}
	return text;
}

/* Replaces a value in some rows; a key that collides is another valid case of nothing. */
static void damage_value(sqlite3 *db)
{
	const struct column *column = &columns[below(sizeof(columns) / sizeof(columns[0]))];
	char *value = expand(values[below(sizeof(values) / sizeof(values[0]))], column->name);
	char *sql = sqlite3_mprintf("UPDATE OR IGNORE %s SET %s = %s WHERE abs(random()) %% %u = 0",
				    column->table, column->name, value, 1 + below(200));

	sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
	sqlite3_free(value);
}

static sqlite3 *open_copy(const unsigned char *image, sqlite3_int64 n_bytes)
{
	unsigned char *copy = sqlite3_malloc64((sqlite3_uint64)n_bytes);
	sqlite3 *db = NULL;

	if (!copy || sqlite3_open(":memory:", &db) != SQLITE_OK ||
	    mt_sql_register(db) != SQLITE_OK) {
		fputs("damage_sql: out of memory\n", stderr);
		exit(1);
	}
	memcpy(copy, image, (size_t)n_bytes);
	if (sqlite3_deserialize(db, "main", copy, n_bytes, n_bytes,
				SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) !=
	    SQLITE_OK) {
		fprintf(stderr, "damage_sql: %s\n", sqlite3_errmsg(db));
		exit(1);
	}
	return db;
}

static void damage_bytes(unsigned char *image, sqlite3_int64 n_bytes)
{
	sqlite3_int64 at[8];
	unsigned char kept[8];
	unsigned n = 1 + below(8);
	sqlite3 *db;

	for (unsigned i = 0; i < n; i++) {
		at[i] = (sqlite3_int64)(((uint64_t)random_u32() << 20 ^ random_u32()) %
					(uint64_t)n_bytes);
		kept[i] = image[at[i]];
		image[at[i]] = (unsigned char)random_u32();
	}
	db = open_copy(image, n_bytes);
	run_queries(db);
	sqlite3_close(db);
	while (n--)
		image[at[n]] = kept[n];
}

static unsigned char *read_image(const char *path, sqlite3_int64 *ret_n_bytes)
{
	unsigned char *image;
	sqlite3 *db = NULL;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
		fprintf(stderr, "damage_sql: %s: %s\n", path, sqlite3_errmsg(db));
		exit(1);
	}
	image = sqlite3_serialize(db, "main", ret_n_bytes, 0);
	sqlite3_close(db);
	if (!image) {
		fprintf(stderr, "damage_sql: %s: empty\n", path);
		exit(1);
	}
	return image;
}

int main(int argc, char **argv)
{
	sqlite3_int64 n_bytes;
	unsigned char *image;
	int n = argc > 2 ? atoi(argv[2]) : 0;
	sqlite3 *db;

	if (n <= 0) {
		fputs("usage: damage_sql FILE.db N [SEED [requests]]\n", stderr);
		return 2;
	}
	random_state ^= argc > 3 ? strtoull(argv[3], NULL, 10) << 1 : 0;
	is_of_requests = argc > 4 && strcmp(argv[4], "requests") == 0;
	image = read_image(argv[1], &n_bytes);
	db = open_copy(image, n_bytes);
	for (int i = 0; i < n; i++) {
		if (i % 2) {
			damage_bytes(image, n_bytes);
			continue;
		}
		sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
		damage_value(db);
		run_queries(db);
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	}
	sqlite3_close(db);
	sqlite3_free(image);
	printf("damage_sql: %u answers, %u errors\n", n_answers, n_errors);
	return n_errors == 0;
}
