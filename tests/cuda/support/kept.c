/* SPDX-License-Identifier: MIT */
/*
 * Comparing a file with kept outputs. Files have hundreds of thousands of layers, so a run of rows
 * is read once, as passes follow each other in it, and no assertion of Check's is made in loops.
 */
#include "tests/cuda/support/kept.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/half.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* One replay's outputs, and the run of the file that was read last. */
struct reader {
	const struct kept *kept;
	int32_t *ids;
	float *weights;
	int64_t number; /* of the replay in ids and weights; -1: none */
	int64_t topk_id;
	sqlite3_stmt *run; /* at its row; the blobs belong to it */
};

static struct reader reader_open(const struct kept *kept)
{
	const size_t n = (size_t)kept->n_layers * kept->n_rows * GRAPH_TOP_K;
	struct reader reader = {.kept = kept,
				.ids = malloc(n * sizeof(int32_t)),
				.weights = malloc(n * sizeof(float)),
				.number = -1};

	REQUIRE(reader.ids && reader.weights, "out of memory");
	return reader;
}

static void reader_close(struct reader *reader)
{
	sqlite3_finalize(reader->run);
	free(reader->ids);
	free(reader->weights);
}

static void read_replay(struct reader *reader, int64_t number)
{
	if (number == reader->number)
		return;
	graph_kept(reader->kept->buffers, (uint32_t)number, reader->ids, reader->weights);
	reader->number = number;
}

static void read_run(struct reader *reader, int64_t topk_id)
{
	if (topk_id == reader->topk_id)
		return;
	sqlite3_reset(reader->run);
	sqlite3_bind_int64(reader->run, 1, topk_id);
	REQUIRE(db_step(reader->run), "there is no run %lld", (long long)topk_id);
	reader->topk_id = topk_id;
}

/* A layer of a pass: @n_rows rows from @topk_row of the run on. */
static void compare_layer(const struct reader *reader, int64_t number, uint32_t layer,
			  uint64_t topk_row, uint32_t n_rows)
{
	const struct kept *kept = reader->kept;
	const size_t at = (size_t)layer * kept->n_rows * GRAPH_TOP_K;
	const uint8_t *ids = sqlite3_column_blob(reader->run, 0);
	const uint8_t *halves = sqlite3_column_blob(reader->run, 1);

	REQUIRE(sqlite3_column_int(reader->run, 2) == 1 &&
			sqlite3_column_int(reader->run, 3) == GRAPH_TOP_K &&
			kept->without_weights == !halves,
		"pass %lld, layer %u: another format", (long long)number, layer);
	for (size_t i = 0; i < (size_t)n_rows * GRAPH_TOP_K; i++) {
		const size_t from = topk_row * GRAPH_TOP_K + i;
		uint16_t want;

		REQUIRE(ids[from] == (uint8_t)reader->ids[at + i],
			"pass %lld, layer %u, entry %zu: id %u for %d", (long long)number, layer, i,
			ids[from], reader->ids[at + i]);
		if (!halves)
			continue;
		want = half_from_double(&half_fp16, (double)reader->weights[at + i]);
		REQUIRE(halves[2 * from] + 256u * halves[2 * from + 1] == want,
			"pass %lld, layer %u, entry %zu: weight", (long long)number, layer, i);
	}
}

static uint32_t count_wanted(const struct kept *kept)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < kept->n_replays; i++)
		n += !kept->is_wanted || kept->is_wanted[i];
	return n;
}

static void expect_passes(sqlite3 *db, const struct kept *kept)
{
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT runtime_pass - %lld, verdict = 'complete' FROM pass"
				      " WHERE runtime_pass >= %lld AND runtime_pass < %lld",
				      (long long)kept->first_number, (long long)kept->first_number,
				      (long long)(kept->first_number + kept->n_replays));
	uint8_t *is_seen = calloc(kept->n_replays + 1u, 1);

	REQUIRE(is_seen, "out of memory");
	while (db_step(stmt)) {
		const int64_t number = sqlite3_column_int64(stmt, 0);

		REQUIRE(!is_seen[number], "pass %lld is there twice", (long long)number);
		REQUIRE(sqlite3_column_int(stmt, 1), "pass %lld is not complete", (long long)number);
		is_seen[number] = 1;
	}
	sqlite3_finalize(stmt);
	for (uint32_t i = 0; i < kept->n_replays; i++)
		REQUIRE(is_seen[i] == (!kept->is_wanted || kept->is_wanted[i]),
			is_seen[i] ? "pass %u must not be there" : "pass %u is not there", i);
	free(is_seen);
}

uint32_t kept_compare(sqlite3 *db, const struct kept *kept)
{
	const uint32_t n_wanted = count_wanted(kept);
	struct reader reader = reader_open(kept);
	sqlite3_stmt *layers;
	uint64_t n_layers = 0;

	expect_passes(db, kept);
	reader.run = db_query(db, "SELECT topk_ids, topk_weights, id_bytes, k FROM topk"
				  " WHERE topk_id = ?");
	layers = db_query(db,
			  "SELECT p.runtime_pass - %lld, l.layer_id - 1, l.topk_id, l.topk_row,"
			  " p.n_rows FROM pass AS p JOIN pass_layer AS l USING (pass_id)"
			  " WHERE p.runtime_pass >= %lld AND p.runtime_pass < %lld"
			  " ORDER BY p.pass_id, l.layer_id",
			  (long long)kept->first_number, (long long)kept->first_number,
			  (long long)(kept->first_number + kept->n_replays));
	while (db_step(layers)) {
		const int64_t number = sqlite3_column_int64(layers, 0);

		read_replay(&reader, number);
		read_run(&reader, sqlite3_column_int64(layers, 2));
		compare_layer(&reader, number, (uint32_t)sqlite3_column_int(layers, 1),
			      (uint64_t)sqlite3_column_int64(layers, 3),
			      (uint32_t)sqlite3_column_int(layers, 4));
		n_layers++;
	}
	sqlite3_finalize(layers);
	reader_close(&reader);
	ck_assert_uint_eq(n_layers, (uint64_t)n_wanted * kept->n_layers);
	return n_wanted;
}

/* A pass from host memory; the rings have room, or it is tried again. */
static void hand_over(const struct toy *toy, const struct reader *reader)
{
	const struct kept *kept = reader->kept;
	const uint64_t runtime_pass = kept->first_number + (uint64_t)reader->number;
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = kept->n_rows;
	info.runtime_pass = &runtime_pass;
	WAIT_UNTIL((pass = moetrace_pass_begin(toy->session, &info)) != NULL);
	for (uint32_t layer = 0; layer < kept->n_layers; layer++) {
		const size_t at = (size_t)layer * kept->n_rows * GRAPH_TOP_K;
		struct moetrace_selection selection;

		MOETRACE_INIT(&selection);
		selection.layer_index = layer;
		selection.n_rows = kept->n_rows;
		selection.order = MOETRACE_ORDER_SELECTION;
		selection.id_type = MOETRACE_TYPE_I32;
		selection.ids = reader->ids + at;
		if (!kept->without_weights) {
			selection.weight_type = MOETRACE_TYPE_F32;
			selection.weights = reader->weights + at;
		}
		moetrace_select_experts(pass, &selection);
	}
	moetrace_pass_end(pass);
}

sqlite3 *kept_record(const struct kept *kept, const char *name)
{
	struct toy toy = toy_start(name, NULL, kept->n_layers, GRAPH_EXPERTS, GRAPH_TOP_K);
	struct reader reader = reader_open(kept);
	uint32_t n = 0;

	for (uint32_t i = 0; i < kept->n_replays; i++) {
		if (kept->is_wanted && !kept->is_wanted[i])
			continue;
		read_replay(&reader, i);
		hand_over(&toy, &reader);
		if (++n % 50 == 0)
			ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	}
	reader_close(&reader);
	ck_assert_uint_eq(toy_status(&toy).dropped_passes, 0);
	toy_close(&toy);
	return db_open(toy.path);
}

/* All rows of a file as one stream of bytes. */
struct stream {
	sqlite3_stmt *stmt;
	const uint8_t *bytes;
	size_t n_left;
};

static bool stream_fill(struct stream *stream)
{
	while (!stream->n_left && db_step(stream->stmt)) {
		stream->bytes = sqlite3_column_blob(stream->stmt, 0);
		stream->n_left = (size_t)sqlite3_column_bytes(stream->stmt, 0);
	}
	return stream->n_left > 0;
}

static uint64_t same_column(sqlite3 *db, sqlite3 *other, const char *column)
{
	struct stream a = {.stmt = db_query(db, "SELECT %s FROM topk ORDER BY topk_id", column)};
	struct stream b = {.stmt = db_query(other, "SELECT %s FROM topk ORDER BY topk_id", column)};
	uint64_t n_same = 0;

	for (;;) {
		const bool has_a = stream_fill(&a), has_b = stream_fill(&b);
		const size_t n = a.n_left < b.n_left ? a.n_left : b.n_left;

		REQUIRE(has_a == has_b, "%s: one file ends after %llu bytes", column,
			(unsigned long long)n_same);
		if (!has_a)
			break;
		REQUIRE(memcmp(a.bytes, b.bytes, n) == 0, "%s: differ after %llu bytes", column,
			(unsigned long long)n_same);
		a.bytes += n;
		a.n_left -= n;
		b.bytes += n;
		b.n_left -= n;
		n_same += n;
	}
	sqlite3_finalize(a.stmt);
	sqlite3_finalize(b.stmt);
	return n_same;
}

uint64_t kept_same_rows(sqlite3 *db, sqlite3 *other)
{
	return same_column(db, other, "topk_ids") + same_column(db, other, "topk_weights");
}
