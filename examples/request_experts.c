/* SPDX-License-Identifier: MIT */
/*
 * The experts of one request, read from a trace: prints [positions][layers][k] as JSON, null
 * where the file has nothing for a position and layer. Positions that the request computed and
 * those that it took from a prefix cache are printed alike; of a request that was computed more
 * than once, the last attempt. Uses SQLite alone, so any program can do the same.
 *
 *   make request_experts && ./request_experts trace.db REQUEST
 *
 * REQUEST is the runtime's own id (moetrace_request_info.external_id), or a request_id.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

/* In a file with several recordings, or ids that are used again: the latest of that name. */
static const char find_request[] =
	"SELECT request_id, n_attempts - 1, n_positions FROM request"
	" WHERE external_id = ?1 OR CAST(request_id AS TEXT) = ?1"
	" ORDER BY external_id IS NULL OR external_id <> ?1, request_id DESC LIMIT 1";

/* Draft models have rows of the request, too: what counts is the model it is answered by. */
static const char find_layers[] = "SELECT layer_id FROM layer WHERE model_id ="
				  " (SELECT min(model_id) FROM token_topk WHERE request_id = ?1"
				  "  AND state IN ('computed', 'reused')) ORDER BY layer";

static const char find_experts[] =
	"SELECT position, layer_id, n_valid, id_bytes, topk_ids FROM token_topk"
	" WHERE request_id = ?1 AND attempt = ?2 AND state IN ('computed', 'reused')"
	" ORDER BY position, layer_id";

struct request {
	sqlite3_int64 id;
	sqlite3_int64 attempt;
	sqlite3_int64 n_positions;
	sqlite3_int64 *layer_ids;
	int n_layers;
};

static int fail(sqlite3 *db, const char *what)
{
	fprintf(stderr, "request_experts: %s: %s\n", what, sqlite3_errmsg(db));
	return -1;
}

static int load_request(sqlite3 *db, const char *name, struct request *ret_request)
{
	sqlite3_stmt *stmt;
	int rc;

	if (sqlite3_prepare_v2(db, find_request, -1, &stmt, NULL) != SQLITE_OK)
		return fail(db, "this is not a trace");
	sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		ret_request->id = sqlite3_column_int64(stmt, 0);
		ret_request->attempt = sqlite3_column_int64(stmt, 1);
		ret_request->n_positions = sqlite3_column_int64(stmt, 2);
	}
	sqlite3_finalize(stmt);
	if (rc == SQLITE_DONE)
		fprintf(stderr, "request_experts: there is no request '%s' in this trace\n", name);
	return rc == SQLITE_ROW ? 0 : -1;
}

static int load_layers(sqlite3 *db, struct request *request)
{
	sqlite3_int64 *grown;
	sqlite3_stmt *stmt;
	int rc;

	if (sqlite3_prepare_v2(db, find_layers, -1, &stmt, NULL) != SQLITE_OK)
		return fail(db, "layers");
	sqlite3_bind_int64(stmt, 1, request->id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		grown = realloc(request->layer_ids,
				(size_t)(request->n_layers + 1) * sizeof(*grown));
		if (!grown)
			break;
		request->layer_ids = grown;
		request->layer_ids[request->n_layers++] = sqlite3_column_int64(stmt, 0);
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? 0 : fail(db, "layers");
}

/* Ids are unsigned, little-endian, of one or two bytes; entries past n_valid are no experts. */
static void print_row(sqlite3_stmt *stmt)
{
	const unsigned char *ids = sqlite3_column_blob(stmt, 4);
	const int id_bytes = sqlite3_column_int(stmt, 3);
	const int n_stored =
		id_bytes == 1 || id_bytes == 2 ? sqlite3_column_bytes(stmt, 4) / id_bytes : 0;
	int n_valid = sqlite3_column_int(stmt, 2), i;

	if (n_valid > n_stored)
		n_valid = n_stored;
	putchar('[');
	for (i = 0; i < n_valid; i++)
		printf("%s%d", i ? "," : "",
		       id_bytes == 1 ? ids[i] : ids[2 * i] + 256 * ids[2 * i + 1]);
	putchar(']');
}

/* Whether the statement's current row is of this position and layer. */
static int is_at(sqlite3_stmt *stmt, int rc, sqlite3_int64 position, sqlite3_int64 layer_id)
{
	return rc == SQLITE_ROW && sqlite3_column_int64(stmt, 0) == position &&
	       sqlite3_column_int64(stmt, 1) == layer_id;
}

/* Both the rows and the loops ascend by position and layer, so that one walk is enough. */
static int print_experts(sqlite3 *db, const struct request *request)
{
	sqlite3_int64 position;
	sqlite3_stmt *stmt;
	int rc, i;

	if (sqlite3_prepare_v2(db, find_experts, -1, &stmt, NULL) != SQLITE_OK)
		return fail(db, "experts");
	sqlite3_bind_int64(stmt, 1, request->id);
	sqlite3_bind_int64(stmt, 2, request->attempt);
	rc = sqlite3_step(stmt);
	putchar('[');
	for (position = 0; position < request->n_positions; position++) {
		printf("%s[", position ? ",\n " : "");
		for (i = 0; i < request->n_layers; i++) {
			fputs(i ? "," : "", stdout);
			if (!is_at(stmt, rc, position, request->layer_ids[i])) {
				fputs("null", stdout);
				continue;
			}
			print_row(stmt);
			rc = sqlite3_step(stmt);
		}
		putchar(']');
	}
	puts("]");
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : fail(db, "experts");
}

int main(int argc, char **argv)
{
	struct request request = {0, 0, 0, NULL, 0};
	int result = EXIT_FAILURE;
	sqlite3 *db = NULL;

	if (argc != 3) {
		fprintf(stderr, "usage: request_experts FILE REQUEST\n");
		return 2;
	}
	if (sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
		fail(db, argv[1]);
	else if (!load_request(db, argv[2], &request) && !load_layers(db, &request) &&
		 !print_experts(db, &request))
		result = EXIT_SUCCESS;
	free(request.layer_ids);
	sqlite3_close(db);
	return result;
}
