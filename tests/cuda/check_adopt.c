/* SPDX-License-Identifier: MIT */
/*
 * Adopted buffers of every integer type, at every address and distance: what the file holds is what
 * was in the buffer as each pass ended, though the runtime writes over it at once, and nothing is
 * read that is not the buffer's. Against a fake driver.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

enum { N_LAYERS = 3, TOP_K = 5, MAX_ROWS = 7, N_PASSES = 12, ROW_IDS = N_LAYERS * TOP_K };

struct type {
	uint32_t type; /* enum moetrace_type */
	uint32_t bytes;
	uint32_t n_experts;
	int64_t none; /* what means no expert */
};

static const struct type types[] = {
	{MOETRACE_TYPE_I8, 1, 100, -1},	   {MOETRACE_TYPE_U8, 1, 200, UINT8_MAX},
	{MOETRACE_TYPE_I16, 2, 300, -7},   {MOETRACE_TYPE_U16, 2, 300, UINT16_MAX},
	{MOETRACE_TYPE_I32, 4, 300, -1},   {MOETRACE_TYPE_U32, 4, 300, UINT32_MAX},
	{MOETRACE_TYPE_I64, 8, 200, -300}, {MOETRACE_TYPE_U64, 8, 200, -1},
};

/* Distances in ids; the last id lies so many bytes before the end of readable memory. */
struct layout {
	uint32_t row_ids, layer_ids, max_rows, bytes_behind;
	uint32_t padding_rows;
	bool has_padding_ids;
};

static const struct layout layouts[] = {
	{ROW_IDS, TOP_K, MAX_ROWS, 0, 2, true},
	{ROW_IDS + 4, TOP_K + 1, MAX_ROWS, 1, 0, true},
	{ROW_IDS + 1, TOP_K, MAX_ROWS, 7, 2, false},
	{TOP_K, MAX_ROWS *TOP_K, MAX_ROWS, 0, 2, true},
	{TOP_K + 2, MAX_ROWS *(TOP_K + 2) + 3, MAX_ROWS, 3, 2, false},
	{TOP_K, TOP_K, 1, 0, 0, false},
	{TOP_K + 2, TOP_K + 2, 1, 5, 0, false},
};
enum { N_LAYOUTS = sizeof(layouts) / sizeof(layouts[0]), N_TYPES = sizeof(types) / sizeof(types[0]) };

struct buffer {
	struct type type;
	struct layout layout;
	uint8_t *memory;
	size_t memory_bytes;
	uint8_t *ids;
};

static size_t align(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Behind the last id is, but for the layout's few bytes, a page that must not be read. */
static struct buffer buffer_new(const struct type *type, const struct layout *layout)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t n_bytes = ((layout->max_rows - 1) * layout->row_ids +
				(N_LAYERS - 1) * layout->layer_ids + TOP_K) *
			       (size_t)type->bytes;
	const size_t readable = align(n_bytes + layout->bytes_behind, page);
	struct buffer buffer = {.type = *type, .layout = *layout, .memory_bytes = readable + page};

	buffer.memory = mmap(NULL, buffer.memory_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(buffer.memory != MAP_FAILED, "out of memory");
	REQUIRE(mprotect(buffer.memory + readable, page, PROT_NONE) == 0, "no guard");
	buffer.ids = buffer.memory + readable - layout->bytes_behind - n_bytes;
	return buffer;
}

static void buffer_free(struct buffer *buffer)
{
	munmap(buffer->memory, buffer->memory_bytes);
}

static void adopt(struct gpu *gpu, const struct buffer *buffer)
{
	struct moetrace_cuda_buffer info;

	MOETRACE_INIT(&info);
	info.ids = (uint64_t)(uintptr_t)buffer->ids;
	info.id_type = buffer->type.type;
	info.order = MOETRACE_ORDER_SELECTION;
	info.max_rows = buffer->layout.max_rows;
	info.padding_is_valid = buffer->layout.has_padding_ids;
	info.row_bytes = (uint64_t)buffer->layout.row_ids * buffer->type.bytes;
	info.layer_bytes = (uint64_t)buffer->layout.layer_ids * buffer->type.bytes;
	ck_assert_int_eq(moetrace_cuda_adopt(gpu->lane, &info), MOETRACE_OK);
}

static uint8_t *place(const struct buffer *buffer, uint32_t layer, uint32_t row, uint32_t i)
{
	const struct layout *layout = &buffer->layout;

	return buffer->ids + (size_t)(row * layout->row_ids + layer * layout->layer_ids + i) *
				     buffer->type.bytes;
}

/* One pass of the runtime's: what its kernels write, and what a test's kernel finds behind them. */
struct step {
	struct buffer buffer;
	uint32_t pass;
	int64_t *found; /* [N_LAYERS][MAX_ROWS][TOP_K]; -1: no expert */
};

/* Some rows have fewer experts, in any of their places; some have none. */
static int64_t id_of(const struct step *step, uint32_t layer, uint32_t row, uint32_t i)
{
	const uint32_t from = step->pass * 31 + layer * 7 + row * 13;
	const bool is_none = (from % 3 == 0 && (i + row) % 3 == 1) || from % 11 == 0;

	return is_none ? step->buffer.type.none : (from + i * 17) % step->buffer.type.n_experts;
}

/* Little-endian: the low bytes of a wide number are the narrow one. */
static void run_write(void *argument)
{
	const struct step *step = argument;
	const struct buffer *buffer = &step->buffer;

	for (uint32_t row = 0; row < buffer->layout.max_rows; row++)
		for (uint32_t layer = 0; layer < N_LAYERS; layer++)
			for (uint32_t i = 0; i < TOP_K; i++) {
				const int64_t id = id_of(step, layer, row, i);

				memcpy(place(buffer, layer, row, i), &id, buffer->type.bytes);
			}
}

static void run_find(void *argument)
{
	const struct step *step = argument;
	const struct type *type = &step->buffer.type;

	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (uint32_t row = 0; row < step->buffer.layout.max_rows; row++)
			for (uint32_t i = 0; i < TOP_K; i++) {
				int64_t id = 0;

				memcpy(&id, place(&step->buffer, layer, row, i), type->bytes);
				step->found[(layer * MAX_ROWS + row) * TOP_K + i] =
					memcmp(&id, &type->none, type->bytes) ? id : -1;
			}
}

static void run_spoil(void *argument)
{
	const struct step *step = argument;

	for (uint32_t row = 0; row < step->buffer.layout.max_rows; row++)
		for (uint32_t layer = 0; layer < N_LAYERS; layer++)
			memset(place(&step->buffer, layer, row, 0), 1,
			       (size_t)TOP_K * step->buffer.type.bytes);
}

static int64_t *found_new(uint32_t n_passes)
{
	int64_t *found = calloc((size_t)n_passes * N_LAYERS * MAX_ROWS * TOP_K, sizeof(*found));

	REQUIRE(found, "out of memory");
	return found;
}

static int64_t *found_in(int64_t *found, uint32_t pass)
{
	return found + (size_t)pass * N_LAYERS * MAX_ROWS * TOP_K;
}

static void run_pass(struct gpu *gpu, const struct buffer *buffer, uint32_t pass, int64_t *found)
{
	const struct step step = {.buffer = *buffer, .pass = pass, .found = found_in(found, pass)};
	const uint32_t n_padding = buffer->layout.padding_rows;
	const uint64_t number = pass;
	struct moetrace_slice slice;
	struct moetrace_pass_info info =
		gpu_info(gpu, &slice, MOETRACE_NO_REQUEST, 0, buffer->layout.max_rows - n_padding,
			 n_padding);

	info.runtime_pass = &number;
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu->lane, &info), MOETRACE_OK);
	gpu->fake->launch(gpu->stream, run_write, &step, sizeof(step));
	gpu->fake->launch(gpu->stream, run_find, &step, sizeof(step));
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu->lane), MOETRACE_OK);
	gpu->fake->launch(gpu->stream, run_spoil, &step, sizeof(step));
}

/* The ids of a row as they were found, without those that are none: as many as the file has, or fail. */
static void expect_row(const struct buffer *buffer, const int64_t *found, sqlite3_stmt *stmt)
{
	const uint32_t id_bytes = buffer->type.n_experts > 256 ? 2 : 1;
	const uint8_t *stored = sqlite3_column_blob(stmt, 1);
	uint32_t n = 0;

	REQUIRE(sqlite3_column_bytes(stmt, 1) == (int)(TOP_K * id_bytes), "ids of another width");
	for (uint32_t i = 0; i < TOP_K; i++) {
		const uint8_t *id = stored + n * id_bytes;

		if (found[i] < 0)
			continue;
		REQUIRE(id[0] + (id_bytes > 1 ? id[1] * 256 : 0) == found[i], "entry %u is not %lld",
			i, (long long)found[i]);
		n++;
	}
	REQUIRE(sqlite3_column_int(stmt, 0) == (int)n, "%u entries are not none", n);
}

static void expect_pass(sqlite3 *db, const struct buffer *buffer, uint32_t pass, int64_t *found)
{
	const uint32_t n_rows = buffer->layout.max_rows - buffer->layout.padding_rows;
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT n_valid, topk_ids FROM stored_topk JOIN pass AS p"
				      " USING (pass_id) WHERE runtime_pass = %u"
				      " AND p.verdict = 'complete' ORDER BY layer, row",
				      pass);

	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (uint32_t row = 0; row < n_rows; row++) {
			REQUIRE(db_step(stmt), "pass %u, layer %u has no row %u", pass, layer, row);
			expect_row(buffer, found_in(found, pass) + (layer * MAX_ROWS + row) * TOP_K,
				   stmt);
		}
	REQUIRE(!db_step(stmt), "pass %u has more rows", pass);
	sqlite3_finalize(stmt);
}

/* Every type and layout; of the passes the middle third is in no recording. */
START_TEST(test_what_is_there)
{
	const struct type *type = &types[_i / N_LAYOUTS];
	const struct layout *layout = &layouts[_i % N_LAYOUTS];
	struct gpu gpu = gpu_start("there.db", N_LAYERS, type->n_experts, TOP_K, 0);
	struct buffer buffer = buffer_new(type, layout);
	int64_t *found = found_new(N_PASSES);
	sqlite3 *db;

	adopt(&gpu, &buffer);
	for (uint32_t pass = 0; pass < N_PASSES; pass++) {
		if (pass == N_PASSES / 3)
			ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_OK);
		if (pass == N_PASSES / 3 * 2)
			ck_assert_int_eq(moetrace_start(gpu.toy.session, NULL), MOETRACE_OK);
		run_pass(&gpu, &buffer, pass, found);
	}
	db = toy_close_and_open(&gpu.toy);
	for (uint32_t pass = 0; pass < N_PASSES; pass++)
		if (pass / (N_PASSES / 3) != 1)
			expect_pass(db, &buffer, pass, found);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), N_PASSES / 3 * 2);
	for (uint32_t recording = 1; recording <= 2; recording++)
		ck_assert_int_eq(db_stat(db, recording, "invalid_ids"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE"
				    " (padding_active_experts IS NULL) <> %d",
				layout->padding_rows && !layout->has_padding_ids),
			 0);
	db_close(db);
	free(found);
	buffer_free(&buffer);
}
END_TEST

/* The lane changes to another buffer and to none while passes of the one before are on the GPU. */
START_TEST(test_another_buffer)
{
	struct gpu gpu = gpu_start("another.db", N_LAYERS, 100, TOP_K, 0);
	struct buffer bytes = buffer_new(&types[0], &layouts[1]);
	struct buffer wide = buffer_new(&(struct type){MOETRACE_TYPE_I64, 8, 100, -1}, &layouts[2]);
	int64_t *found = found_new(2);
	sqlite3 *db;

	gpu.fake->hold(true);
	adopt(&gpu, &bytes);
	run_pass(&gpu, &bytes, 0, found);
	adopt(&gpu, &wide);
	run_pass(&gpu, &wide, 1, found);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, NULL), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	gpu.fake->hold(false);
	db = toy_close_and_open(&gpu.toy);
	expect_pass(db, &bytes, 0, found);
	expect_pass(db, &wide, 1, found);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE topk_weights IS NOT NULL"), 1);
	db_close(db);
	free(found);
	buffer_free(&bytes);
	buffer_free(&wide);
}
END_TEST

/* A model without experts has no ids anywhere: nothing is read. */
START_TEST(test_no_layers)
{
	struct gpu gpu = gpu_start("dense.db", 0, 100, TOP_K, 0);
	struct moetrace_cuda_buffer info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.ids = 4096;
	info.id_type = MOETRACE_TYPE_I32;
	info.max_rows = MAX_ROWS;
	info.row_bytes = info.layer_bytes = TOP_K * 4;
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &info), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, MAX_ROWS, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("adopt");
	TCase *tc = tcase_create("adopt");
	/* All layouts, and of types what a sanitizer's time allows. */
	const bool is_slow = suite_has_sanitizer("address") || suite_has_sanitizer("thread");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_what_is_there, 0, (is_slow ? 2 : N_TYPES) * N_LAYOUTS);
	tcase_add_test(tc, test_another_buffer);
	tcase_add_test(tc, test_no_layers);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
