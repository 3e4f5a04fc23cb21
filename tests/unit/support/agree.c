/* SPDX-License-Identifier: MIT */
/*
 * The consistency of a trace: after the statements of agree_sql.c a pass over all blobs, which
 * counts anew what pass_layer, expert_load_window and the requests' verdicts say. Windows are
 * compared up to stats.last_pass_id, the last pass that they include.
 */
#include "tests/unit/support/agree.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* Recordings in which all rows of all layers are kept. */
#define KEEPS_ROWS                                                                                 \
	"SELECT recording_id FROM recording AS k WHERE mode = 'per_token'"                         \
	" AND instr(coalesce(sampling, ''), 'requests') = 0 AND NOT EXISTS (SELECT 1 FROM"         \
	" layer_load JOIN pass USING (pass_id) WHERE pass.recording_id = k.recording_id)"

/* Classes of tokens, in the order of expert_load_window's columns. */
enum { PREFILL, DECODE, VERIFY, OTHER, N_CLASSES };

struct layer_facts {
	int64_t model_id;
	uint32_t n_experts;
	uint32_t n_ids;
	uint32_t top_k;
	uint64_t *counts; /* [n_ids][N_CLASSES] of the window that is being compared */
};

struct request_facts {
	int64_t n_positions; /* -1: nothing to prove */
	unsigned char *computed;
};

struct run {
	int64_t topk_id;
	sqlite3_stmt *stmt; /* at its row; its blobs belong to it */
};

struct agree {
	sqlite3 *db;
	struct layer_facts *layers; /* by layer_id */
	int64_t n_layers;
	struct request_facts *requests; /* by request_id */
	int64_t n_requests;
	struct run run;
	unsigned char *classes; /* of the current pass's rows */
	uint32_t *load;		/* of the current layer's ids */
};

static void load_layers(struct agree *agree)
{
	sqlite3_stmt *stmt = db_query(
		agree->db, "SELECT layer_id, model_id, n_experts,"
			   " n_experts + n_zero_experts + n_shared_slots, top_k FROM layer");

	agree->n_layers = db_int(agree->db, "SELECT coalesce(max(layer_id), 0) FROM layer");
	agree->layers = calloc((size_t)agree->n_layers + 1, sizeof(*agree->layers));
	REQUIRE(agree->layers, "out of memory");
	while (db_step(stmt)) {
		struct layer_facts *layer = &agree->layers[sqlite3_column_int64(stmt, 0)];

		layer->model_id = sqlite3_column_int64(stmt, 1);
		layer->n_experts = (uint32_t)sqlite3_column_int64(stmt, 2);
		layer->n_ids = (uint32_t)sqlite3_column_int64(stmt, 3);
		layer->top_k = (uint32_t)sqlite3_column_int64(stmt, 4);
		layer->counts = calloc((size_t)layer->n_ids * N_CLASSES, sizeof(*layer->counts));
		REQUIRE(layer->counts, "out of memory");
	}
	sqlite3_finalize(stmt);
}

static void load_requests(struct agree *agree)
{
	sqlite3_stmt *stmt = db_query(agree->db, "SELECT request_id, n_positions FROM request"
						 " JOIN (" KEEPS_ROWS ") USING (recording_id)"
						 " WHERE verdict = 'complete'");
	int64_t i;

	agree->n_requests = db_int(agree->db, "SELECT coalesce(max(request_id), 0) FROM request");
	agree->requests = calloc((size_t)agree->n_requests + 1, sizeof(*agree->requests));
	REQUIRE(agree->requests, "out of memory");
	for (i = 0; i <= agree->n_requests; i++)
		agree->requests[i].n_positions = -1;
	while (db_step(stmt)) {
		struct request_facts *request = &agree->requests[sqlite3_column_int64(stmt, 0)];

		request->n_positions = sqlite3_column_int64(stmt, 1);
		request->computed = calloc((size_t)request->n_positions + 1, 1);
		REQUIRE(request->computed, "out of memory");
	}
	sqlite3_finalize(stmt);
}

/* What the last attempt of a complete request reused is there as if it were computed. */
static void load_links(struct agree *agree)
{
	sqlite3_stmt *stmt = db_query(agree->db,
				      "SELECT request_id, first_position, u.n_positions,"
				      " source_request_id FROM request_reuse AS u"
				      " JOIN request AS r USING (request_id)"
				      " WHERE u.attempt = r.n_attempts - 1");
	int64_t i;

	while (db_step(stmt)) {
		struct request_facts *request = &agree->requests[sqlite3_column_int64(stmt, 0)];
		const int64_t first = sqlite3_column_int64(stmt, 1);

		for (i = first; i < first + sqlite3_column_int64(stmt, 2); i++) {
			if (i >= request->n_positions)
				break;
			REQUIRE(sqlite3_column_type(stmt, 3) != SQLITE_NULL,
				"a complete request reuses what nobody knows");
			REQUIRE(!request->computed[i], "a complete request reuses a position twice");
			request->computed[i] = 1;
		}
	}
	sqlite3_finalize(stmt);
}

static unsigned int class_of(const char *phase, bool has_request)
{
	if (!has_request)
		return OTHER;
	if (strcmp(phase, "prefill") == 0)
		return PREFILL;
	if (strcmp(phase, "decode") == 0)
		return DECODE;
	return strcmp(phase, "verify") == 0 ? VERIFY : OTHER;
}

static uint32_t u32_at(const unsigned char *bytes, size_t index)
{
	bytes += 4 * index;
	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
	       (uint32_t)bytes[3] << 24;
}

static void mark_computed(struct request_facts *request, uint32_t position, bool pass_is_stored)
{
	if (position >= request->n_positions)
		return;
	REQUIRE(pass_is_stored, "a complete request has a row whose layers are not all stored");
	REQUIRE(!request->computed[position], "a complete request computes a position twice");
	request->computed[position] = 1;
}

/* A slice's rows: their class, and what they compute of complete requests. */
static void read_slice(struct agree *agree, sqlite3_stmt *slice, bool pass_is_stored)
{
	const bool has_request = sqlite3_column_type(slice, 0) != SQLITE_NULL;
	const unsigned char *positions = sqlite3_column_blob(slice, 2);
	const uint32_t first = (uint32_t)sqlite3_column_int64(slice, 1);
	const size_t offset = (size_t)sqlite3_column_int64(slice, 3);
	const size_t n_rows = (size_t)sqlite3_column_int64(slice, 4);
	const char *phase = (const char *)sqlite3_column_text(slice, 5);
	const unsigned int class = class_of(phase, has_request);
	const unsigned char *accepted = sqlite3_column_blob(slice, 6);
	struct request_facts *request = NULL;
	size_t i;

	/* A target model's rows of the last attempt. */
	if (sqlite3_column_int(slice, 7) && class != OTHER)
		request = &agree->requests[sqlite3_column_int64(slice, 0)];
	for (i = 0; i < n_rows; i++) {
		agree->classes[offset + i] = (unsigned char)class;
		if (request && request->n_positions >= 0 &&
		    (class != VERIFY || (accepted && accepted[i])))
			mark_computed(request,
				      positions ? u32_at(positions, i) : first + (uint32_t)i,
				      pass_is_stored);
	}
}

static void read_slices(struct agree *agree, int64_t pass_id, size_t n_rows)
{
	const bool is_stored = db_int(agree->db,
				      "SELECT count(*) FROM pass_layer WHERE"
				      " pass_id = %lld AND state <> 0",
				      (long long)pass_id) == 0;
	sqlite3_stmt *slice = db_query(agree->db,
				       "SELECT s.request_id, s.first_position, s.positions,"
				       " s.row_offset, s.n_rows, s.phase, s.accepted,"
				       " m.kind = 'target' AND s.attempt = r.n_attempts - 1"
				       " FROM pass_request AS s JOIN pass AS p USING (pass_id)"
				       " JOIN model AS m USING (model_id)"
				       " LEFT JOIN request AS r USING (request_id)"
				       " WHERE s.pass_id = %lld",
				       (long long)pass_id);

	free(agree->classes);
	agree->classes = malloc(n_rows + 1);
	REQUIRE(agree->classes, "out of memory");
	while (db_step(slice))
		read_slice(agree, slice, is_stored);
	sqlite3_finalize(slice);
}

/* Columns of the run: 0 n_rows, 1 k, 2 id_bytes, 3 ids, 4 weights, 5 row_map, 6 n_valid. */
static sqlite3_stmt *find_run(struct agree *agree, int64_t topk_id)
{
	if (agree->run.stmt && agree->run.topk_id == topk_id)
		return agree->run.stmt;
	sqlite3_finalize(agree->run.stmt);
	agree->run.topk_id = topk_id;
	agree->run.stmt = db_query(agree->db,
				   "SELECT n_rows, k, id_bytes, topk_ids, topk_weights,"
				   " row_map, n_valid, rule_id IS NOT NULL FROM topk"
				   " WHERE topk_id = %lld",
				   (long long)topk_id);
	REQUIRE(db_step(agree->run.stmt), "no run %lld", (long long)topk_id);
	return agree->run.stmt;
}

struct row_reader {
	const unsigned char *ids;
	const unsigned char *weights;
	const unsigned char *row_map;
	const unsigned char *n_valid;
	uint32_t k;
	uint32_t id_bytes;
	int has_rule;
};

static struct row_reader read_run(sqlite3_stmt *run)
{
	return (struct row_reader){
		.k = (uint32_t)sqlite3_column_int64(run, 1),
		.id_bytes = (uint32_t)sqlite3_column_int64(run, 2),
		.ids = sqlite3_column_blob(run, 3),
		.weights = sqlite3_column_blob(run, 4),
		.row_map = sqlite3_column_blob(run, 5),
		.n_valid = sqlite3_column_blob(run, 6),
		.has_rule = sqlite3_column_int(run, 7),
	};
}

static uint32_t id_at(const struct row_reader *reader, size_t index)
{
	if (reader->id_bytes == 1)
		return reader->ids[index];
	return reader->ids[2 * index] | (uint32_t)reader->ids[2 * index + 1] << 8;
}

/* Counts one stored row into the layer's load; @class is that of its pass row. */
static void count_row(struct agree *agree, struct layer_facts *layer,
		      const struct row_reader *reader, size_t row, unsigned int class)
{
	const uint32_t n_valid = reader->n_valid ? reader->n_valid[row] : reader->k;
	uint32_t i;

	REQUIRE(n_valid <= reader->k, "n_valid %u of k %u", n_valid, reader->k);
	for (i = 0; i < reader->k; i++) {
		const size_t at = row * reader->k + i;
		const uint32_t id = id_at(reader, at);

		if (i >= n_valid) {
			REQUIRE(id == 0 && (!reader->weights || (reader->weights[2 * at] |
								 reader->weights[2 * at + 1]) == 0),
				"an entry past n_valid is not 0");
			continue;
		}
		REQUIRE(id < layer->n_ids, "id %u of a layer with %u ids", id, layer->n_ids);
		agree->load[id]++;
		layer->counts[(size_t)id * N_CLASSES + class]++;
	}
}

static void check_layer(struct agree *agree, sqlite3_stmt *pass_layer, size_t pass_rows)
{
	struct layer_facts *layer = &agree->layers[sqlite3_column_int64(pass_layer, 0)];
	const size_t n_rows = (size_t)sqlite3_column_int64(pass_layer, 3);
	const size_t first = (size_t)sqlite3_column_int64(pass_layer, 5);
	uint32_t n_active = 0, max_load = 0, id;
	struct row_reader reader;
	size_t i, last_row = 0;

	agree->load = calloc(layer->n_ids, sizeof(*agree->load));
	REQUIRE(agree->load, "out of memory");
	if (n_rows > 0) {
		reader = read_run(find_run(agree, sqlite3_column_int64(pass_layer, 4)));
		REQUIRE(reader.k <= (reader.has_rule ? layer->n_ids : layer->top_k),
			"k %u above top_k %u", reader.k, layer->top_k);
		REQUIRE(reader.id_bytes == (layer->n_ids <= 256 ? 1 : 2), "%u bytes an id of %u",
			reader.id_bytes, layer->n_ids);
		REQUIRE(reader.row_map || n_rows == pass_rows, "rows without a map");
	}
	for (i = 0; i < n_rows; i++) {
		const size_t row = reader.row_map ? u32_at(reader.row_map, first + i) : i;

		REQUIRE(row < pass_rows && (i == 0 || row > last_row), "a bad row map");
		last_row = row;
		count_row(agree, layer, &reader, first + i, agree->classes[row]);
	}
	for (id = 0; id < layer->n_experts; id++) {
		n_active += agree->load[id] > 0;
		max_load = agree->load[id] > max_load ? agree->load[id] : max_load;
	}
	REQUIRE(sqlite3_column_int64(pass_layer, 1) == n_active, "active_experts %lld, counted %u",
		(long long)sqlite3_column_int64(pass_layer, 1), n_active);
	REQUIRE(sqlite3_column_int64(pass_layer, 2) == max_load, "max_load %lld, counted %u",
		(long long)sqlite3_column_int64(pass_layer, 2), max_load);
	free(agree->load);
}

static void check_pass(struct agree *agree, int64_t pass_id, size_t n_rows)
{
	sqlite3_stmt *layer = db_query(agree->db,
				       "SELECT layer_id, active_experts, max_load, n_rows,"
				       " topk_id, topk_row FROM pass_layer WHERE pass_id = %lld AND"
				       " state = 0",
				       (long long)pass_id);

	read_slices(agree, pass_id, n_rows);
	while (db_step(layer))
		check_layer(agree, layer, n_rows);
	sqlite3_finalize(layer);
}

/* The window's rows against the counts of its passes; the counts start anew. */
static void compare_window(struct agree *agree, int64_t recording_id, int64_t start_ns)
{
	static const uint64_t zero[N_CLASSES];
	sqlite3_stmt *stmt = db_query(agree->db,
				      "SELECT layer_id, expert, prefill_tokens,"
				      " decode_tokens, verify_tokens, other_tokens"
				      " FROM expert_load_window WHERE recording_id = %lld AND"
				      " start_ns = %lld",
				      (long long)recording_id, (long long)start_ns);
	int64_t i;
	size_t j;

	while (db_step(stmt)) {
		struct layer_facts *layer = &agree->layers[sqlite3_column_int64(stmt, 0)];
		const uint32_t id = (uint32_t)sqlite3_column_int64(stmt, 1);
		uint64_t *counts = &layer->counts[(size_t)id * N_CLASSES];

		REQUIRE(id < layer->n_ids, "a window row of expert %u of %u", id, layer->n_ids);
		for (j = 0; j < N_CLASSES; j++)
			REQUIRE((uint64_t)sqlite3_column_int64(stmt, (int)j + 2) == counts[j],
				"window %lld, layer_id %lld, expert %u, class %zu: %lld instead"
				" of %llu tokens",
				(long long)start_ns, (long long)sqlite3_column_int64(stmt, 0), id,
				j, (long long)sqlite3_column_int64(stmt, (int)j + 2),
				(unsigned long long)counts[j]);
		memset(counts, 0, sizeof(zero));
	}
	sqlite3_finalize(stmt);
	for (i = 1; i <= agree->n_layers; i++)
		for (j = 0; j < agree->layers[i].n_ids; j++)
			REQUIRE(memcmp(&agree->layers[i].counts[j * N_CLASSES], zero,
				       sizeof(zero)) == 0,
				"window %lld lacks layer_id %lld, expert %zu", (long long)start_ns,
				(long long)i, j);
}

/* The passes in [start_ns, end_ns) up to @last_pass_id; returns how many. */
static int64_t check_passes(struct agree *agree, int64_t recording_id, int64_t start_ns,
			    int64_t end_ns, int64_t first_pass_id, int64_t last_pass_id)
{
	sqlite3_stmt *pass =
		db_query(agree->db,
			 "SELECT pass_id, n_rows FROM pass WHERE"
			 " recording_id = %lld AND begin_ns >= %lld AND begin_ns < %lld"
			 " AND pass_id >= %lld AND pass_id <= %lld",
			 (long long)recording_id, (long long)start_ns, (long long)end_ns,
			 (long long)first_pass_id, (long long)last_pass_id);
	int64_t n_passes = 0;

	while (db_step(pass)) {
		check_pass(agree, sqlite3_column_int64(pass, 0),
			   (size_t)sqlite3_column_int64(pass, 1));
		n_passes++;
	}
	sqlite3_finalize(pass);
	return n_passes;
}

static void forget_counts(struct agree *agree)
{
	int64_t i;

	for (i = 1; i <= agree->n_layers; i++)
		if (agree->layers[i].counts)
			memset(agree->layers[i].counts, 0,
			       (size_t)agree->layers[i].n_ids * N_CLASSES * sizeof(uint64_t));
}

/*
 * Passes with tokens lie in windows; the others (no rows, or no layer stored) may lie
 * between them, so that the rest is read without a window and must count nothing.
 */
static void check_recording(struct agree *agree, int64_t recording_id)
{
	const int64_t last = db_int(agree->db,
				    "SELECT coalesce((SELECT value FROM stats WHERE"
				    " recording_id = %lld AND name = 'last_pass_id'), 0)",
				    (long long)recording_id);
	sqlite3_stmt *window = db_query(agree->db,
					"SELECT DISTINCT start_ns, length_ns FROM"
					" expert_load_window WHERE recording_id = %lld"
					" ORDER BY start_ns",
					(long long)recording_id);
	int64_t before_ns = INT64_MIN;

	while (db_step(window)) {
		const int64_t start_ns = sqlite3_column_int64(window, 0);
		const int64_t end_ns = start_ns + sqlite3_column_int64(window, 1);

		check_passes(agree, recording_id, before_ns, start_ns, 0, last);
		check_passes(agree, recording_id, start_ns, end_ns, 0, last);
		compare_window(agree, recording_id, start_ns);
		before_ns = end_ns;
	}
	sqlite3_finalize(window);
	check_passes(agree, recording_id, before_ns, INT64_MAX, 0, last);
	compare_window(agree, recording_id, INT64_MAX);
	check_passes(agree, recording_id, INT64_MIN, INT64_MAX, last + 1, INT64_MAX);
	forget_counts(agree);
}

static void check_complete_requests(const struct agree *agree)
{
	int64_t i, position;

	for (i = 1; i <= agree->n_requests; i++)
		for (position = 0; position < agree->requests[i].n_positions; position++)
			REQUIRE(agree->requests[i].computed[position],
				"request_id %lld is complete without position %lld", (long long)i,
				(long long)position);
}

static void agree_free(struct agree *agree)
{
	int64_t i;

	for (i = 0; i <= agree->n_layers; i++)
		free(agree->layers[i].counts);
	for (i = 0; i <= agree->n_requests; i++)
		free(agree->requests[i].computed);
	free(agree->layers);
	free(agree->requests);
	free(agree->classes);
	sqlite3_finalize(agree->run.stmt);
}

/* ThreadSanitizer watches who records; what a file says is looked at in the builds without it. */
static bool is_looked_at(void)
{
	return !suite_has_sanitizer("thread");
}

void agree_check(sqlite3 *db)
{
	struct agree agree = {.db = db};
	sqlite3_stmt *recording;

	if (!is_looked_at())
		return;
	/* One snapshot, also of a file that is being written. */
	ck_assert_int_eq(sqlite3_exec(db, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
	db_check_integrity(db);
	agree_check_statements(db);
	load_layers(&agree);
	load_requests(&agree);
	load_links(&agree);
	/* Where all rows are kept, their sums are those of the windows. */
	recording = db_query(db, KEEPS_ROWS " ORDER BY recording_id");
	while (db_step(recording))
		check_recording(&agree, sqlite3_column_int64(recording, 0));
	sqlite3_finalize(recording);
	check_complete_requests(&agree);
	agree_free(&agree);
	ck_assert_int_eq(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
}

void agree_check_file(const char *path)
{
	sqlite3 *db = db_open(path);

	agree_check(db);
	db_close(db);
}

void agree_prove(const char *path)
{
	const char *build = getenv("MOETRACE_BUILDDIR");
	char command[8192];

	if (!build || !is_looked_at())
		return;
	snprintf(command, sizeof(command), "'%s/cli/moetrace' check --format jsonl '%s' >&2", build,
		 path);
	REQUIRE(system(command) == 0, "%s: moetrace check does not prove it", path);
}
