/* SPDX-License-Identifier: MIT */
/*
 * Runtimes whose kernels do not store rows themselves: buffers that are adopted, and layers that
 * the recorder's own kernel gathers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/cuda/capture.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/half.h"
#include "tests/unit/support/suite.h"

enum { N_LAYERS = 3, N_EXPERTS = 300, TOP_K = 5, N_ROWS = 9, MAX_ROWS = 16, N_PASSES = 6 };

/* What the runtime's kernels leave behind: [rows][layers][k], or [layers][rows][k]. */
struct fill {
	struct toy toy;
	int32_t *ids;
	uint32_t row_entries, layer_entries, n_rows, pass;
};

static void run_fill(void *argument)
{
	const struct fill *fill = argument;

	for (uint32_t row = 0; row < fill->n_rows; row++)
		for (uint32_t layer = 0; layer < N_LAYERS; layer++)
			for (uint32_t i = 0; i < TOP_K; i++)
				fill->ids[row * fill->row_entries + layer * fill->layer_entries +
					  i] =
					(int32_t)toy_expert(&fill->toy, layer, row + fill->pass, i);
}

/* What must be stored of it. */
static char *want_ids(const struct toy *toy, uint32_t n_rows)
{
	char *want = malloc((size_t)N_PASSES * N_LAYERS * N_ROWS * TOP_K * 4 + 1);
	char *at = want;

	REQUIRE(want, "out of memory");
	for (uint32_t pass = 0; pass < N_PASSES; pass++)
		for (uint32_t layer = 0; layer < N_LAYERS; layer++)
			for (uint32_t row = 0; row < n_rows; row++)
				for (uint32_t i = 0; i < TOP_K; i++) {
					const uint32_t id = toy_expert(toy, layer, row + pass, i);

					at += sprintf(at, "%02X%02X", id & 255, id >> 8);
				}
	return want;
}

static void expect_ids(sqlite3 *db, const struct toy *toy, uint32_t n_rows)
{
	char *want = want_ids(toy, n_rows);
	char *got = gpu_stored(db);

	got[strcspn(got, " ")] = '\0';
	ck_assert_str_eq(got, want);
	free(got);
	free(want);
}

/* Orders of a buffer: rows outside, layers outside, and layers outside for one row. */
static const struct {
	uint32_t row_entries, layer_entries, max_rows, n_rows, n_padding_rows;
} orders[] = {
	{N_LAYERS * TOP_K, TOP_K, MAX_ROWS, N_ROWS, 2},
	{TOP_K, MAX_ROWS *TOP_K, MAX_ROWS, N_ROWS, 2},
	{TOP_K, TOP_K, 1, 1, 0},
	{TOP_K + 3, TOP_K + 3, 1, 1, 0},
};

/* The runtime overwrites its buffer at once for the next pass: each pass has its own ids. */
START_TEST(test_adopt)
{
	struct gpu gpu = gpu_start("adopt.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	int32_t *ids = malloc(N_LAYERS * MAX_ROWS * TOP_K * sizeof(*ids));
	struct fill fill = {.toy = gpu.toy,
			    .ids = ids,
			    .row_entries = orders[_i].row_entries,
			    .layer_entries = orders[_i].layer_entries,
			    .n_rows = orders[_i].max_rows};
	struct moetrace_cuda_buffer buffer;
	sqlite3 *db;

	REQUIRE(ids, "out of memory");
	MOETRACE_INIT(&buffer);
	buffer.ids = (uint64_t)(uintptr_t)ids;
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.max_rows = orders[_i].max_rows;
	buffer.row_bytes = fill.row_entries * 4;
	buffer.layer_bytes = fill.layer_entries * 4;
	buffer.padding_is_valid = 1;
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &buffer), MOETRACE_OK);
	gpu.fake->delay(100);
	for (uint32_t i = 0; i < N_PASSES; i++) {
		struct moetrace_slice slice;
		const struct moetrace_pass_info info =
			gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, orders[_i].n_rows,
				 orders[_i].n_padding_rows);

		fill.pass = i;
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		gpu.fake->launch(gpu.stream, run_fill, &fill, sizeof(fill));
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 N_PASSES);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM pass_layer JOIN pass USING (pass_id)"
				" WHERE selected_ns IS NOT NULL OR"
				" (padding_active_experts IS NULL AND padding_rows > 0)"),
			 0);
	expect_ids(db, &gpu.toy, orders[_i].n_rows);
	db_close(db);
	free(ids);
}
END_TEST

/*
 * Ids that lie at the end of each row, or of each layer, of an array that ends with them: nothing is
 * read behind it. AddressSanitizer would say so.
 */
START_TEST(test_adopt_reads_no_more)
{
	enum { GAP = 7 };
	const int is_outside = _i;
	const uint32_t row_entries = is_outside ? N_LAYERS * TOP_K + GAP : TOP_K + GAP;
	const uint32_t layer_entries = is_outside ? TOP_K : N_ROWS * (TOP_K + GAP);
	const size_t n_entries = is_outside ? N_ROWS * row_entries : N_LAYERS * layer_entries;
	struct gpu gpu = gpu_start("end.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	int32_t *all = calloc(n_entries, sizeof(*all));
	struct fill fill = {.toy = gpu.toy,
			    .ids = all + GAP,
			    .row_entries = row_entries,
			    .layer_entries = layer_entries,
			    .n_rows = N_ROWS};
	struct moetrace_cuda_buffer buffer;
	sqlite3 *db;

	REQUIRE(all, "out of memory");
	MOETRACE_INIT(&buffer);
	buffer.ids = (uint64_t)(uintptr_t)fill.ids;
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.max_rows = N_ROWS;
	buffer.row_bytes = row_entries * 4;
	buffer.layer_bytes = layer_entries * 4;
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &buffer), MOETRACE_OK);
	for (fill.pass = 0; fill.pass < N_PASSES; fill.pass++) {
		struct moetrace_slice slice;
		const struct moetrace_pass_info info =
			gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, N_ROWS, 0);

		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		gpu.fake->launch(gpu.stream, run_fill, &fill, sizeof(fill));
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 N_PASSES);
	expect_ids(db, &gpu.toy, N_ROWS);
	db_close(db);
	free(all);
}
END_TEST

/* Other lanes have had half of all stamps since the lane's last pass: its word seems to be a later one. */
START_TEST(test_adopt_after_long)
{
	struct gpu gpu = gpu_start("long.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	int32_t ids[MAX_ROWS * N_LAYERS * TOP_K] = {0};
	struct fill fill = {.toy = gpu.toy,
			    .ids = ids,
			    .row_entries = N_LAYERS * TOP_K,
			    .layer_entries = TOP_K,
			    .n_rows = MAX_ROWS};
	struct moetrace_cuda_buffer buffer;
	sqlite3 *db;

	MOETRACE_INIT(&buffer);
	buffer.ids = (uint64_t)(uintptr_t)ids;
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.max_rows = MAX_ROWS;
	buffer.row_bytes = fill.row_entries * 4;
	buffer.layer_bytes = fill.layer_entries * 4;
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &buffer), MOETRACE_OK);
	for (fill.pass = 0; fill.pass < N_PASSES; fill.pass++) {
		struct moetrace_slice slice;
		const struct moetrace_pass_info info =
			gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, N_ROWS, 0);

		if (fill.pass == N_PASSES / 2) {
			ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
			atomic_fetch_add(&gpu.cuda->n_stamps, MT_CUDA_STAMP_MASK / 2 + 10);
			gpu.fake->hold_one(gpu.stream, true);
		}
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		gpu.fake->launch(gpu.stream, run_fill, &fill, sizeof(fill));
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	}
	/* Time for a side stream that does not wait. */
	suite_sleep_ms(20);
	gpu.fake->hold_one(gpu.stream, false);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 N_PASSES);
	expect_ids(db, &gpu.toy, N_ROWS);
	db_close(db);
}
END_TEST

START_TEST(test_adopt_refuses)
{
	struct gpu gpu = gpu_start("refuses.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, MAX_ROWS + 1, 0);
	struct moetrace_cuda_buffer good, buffer;
	sqlite3 *db;

	MOETRACE_INIT(&good);
	good.ids = 4096;
	good.id_type = MOETRACE_TYPE_I16;
	good.max_rows = MAX_ROWS;
	good.row_bytes = N_LAYERS * TOP_K * 2;
	good.layer_bytes = TOP_K * 2;
#define REFUSED(member, value)                                                                \
	do {                                                                                  \
		buffer = good;                                                                \
		buffer.member = (value);                                                      \
		ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &buffer), MOETRACE_E_INVALID); \
	} while (0)
	REFUSED(size, 0);
	REFUSED(ids, 0);
	REFUSED(id_type, MOETRACE_TYPE_F32);
	REFUSED(order, 9);
	REFUSED(max_rows, 0);
	REFUSED(row_bytes, N_LAYERS * TOP_K * 2 - 1);
	REFUSED(row_bytes, N_LAYERS * TOP_K * 2 - 2);
	REFUSED(layer_bytes, TOP_K * 2 - 2);
	REFUSED(layer_bytes, UINT64_MAX - 1);
	REFUSED(row_bytes, UINT64_MAX - 1);
	REFUSED(row_bytes, TOP_K * 2);
#undef REFUSED
	ck_assert_int_eq(moetrace_cuda_adopt(NULL, &good), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &good), MOETRACE_OK);
	/* More rows than the buffer holds: nothing is read, the pass is dropped. */
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_LIMIT);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, NULL), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 1);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), 1);
	db_close(db);
}
END_TEST

/* One launch a pass for all layers, or one a layer; every type of ids and weights. */
static const struct {
	uint32_t id_type, weight_type;
	int is_one_launch;
} kinds[] = {
	{MOETRACE_TYPE_I32, MOETRACE_TYPE_F32, 1},
	{MOETRACE_TYPE_I64, MOETRACE_TYPE_F16, 1},
	{MOETRACE_TYPE_I16, MOETRACE_TYPE_NONE, 0},
	{MOETRACE_TYPE_I32, MOETRACE_TYPE_BF16, 0},
};

static void put_id(uint8_t *at, uint32_t type, uint32_t id)
{
	const int64_t id64 = id;
	const int16_t id16 = (int16_t)id;

	/* Little-endian: the low half of a wide id is the narrow one. */
	if (type == MOETRACE_TYPE_I16)
		memcpy(at, &id16, 2);
	else
		memcpy(at, &id64, type == MOETRACE_TYPE_I64 ? 8 : 4);
}

static void put_weight(uint8_t *at, uint32_t type, double weight)
{
	const float value = (float)weight;
	const uint16_t half =
		half_from_double(type == MOETRACE_TYPE_BF16 ? &half_bf16 : &half_fp16, weight);

	if (type == MOETRACE_TYPE_F32)
		memcpy(at, &value, 4);
	else if (type)
		memcpy(at, &half, 2);
}

START_TEST(test_store)
{
	static const size_t type_bytes[] = {
		[MOETRACE_TYPE_NONE] = 0, [MOETRACE_TYPE_I16] = 2, [MOETRACE_TYPE_I32] = 4,
		[MOETRACE_TYPE_I64] = 8,  [MOETRACE_TYPE_F32] = 4, [MOETRACE_TYPE_F16] = 2,
		[MOETRACE_TYPE_BF16] = 2};
	struct gpu gpu = gpu_start("store.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	const size_t id_bytes = type_bytes[kinds[_i].id_type];
	const size_t weight_bytes = type_bytes[kinds[_i].weight_type];
	uint64_t ids[N_LAYERS], weights[N_LAYERS];
	struct moetrace_cuda_layers layers;
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, N_ROWS, 0);
	uint8_t *memory = calloc(N_PASSES * N_LAYERS * N_ROWS * TOP_K, 16);
	uint8_t *at = memory;
	sqlite3 *db;

	REQUIRE(memory, "out of memory");
	MOETRACE_INIT(&layers);
	layers.n_rows = N_ROWS;
	layers.id_type = kinds[_i].id_type;
	layers.weight_type = kinds[_i].weight_type;
	for (uint32_t pass = 0; pass < N_PASSES; pass++) {
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
			ids[layer] = (uint64_t)(uintptr_t)at;
			weights[layer] = (uint64_t)(uintptr_t)at + N_ROWS * TOP_K * 8;
			for (uint32_t i = 0; i < N_ROWS * TOP_K; i++) {
				const uint32_t row = i / TOP_K, rank = i % TOP_K;

				put_id(at + i * id_bytes, layers.id_type,
				       toy_expert(&gpu.toy, layer, row + pass, rank));
				put_weight(at + N_ROWS * TOP_K * 8 + i * weight_bytes,
					   layers.weight_type,
					   (double)toy_weight(layer, row, rank));
			}
			at += (size_t)N_ROWS * TOP_K * 16;
		}
		for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
			layers.first_layer = kinds[_i].is_one_launch ? 0 : layer;
			layers.n_layers = kinds[_i].is_one_launch ? N_LAYERS : 1;
			layers.ids = &ids[layer];
			layers.weights = kinds[_i].weight_type ? &weights[layer] : NULL;
			if (layer == 0 || !kinds[_i].is_one_launch)
				ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers),
						 MOETRACE_OK);
		}
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 N_PASSES);
	expect_ids(db, &gpu.toy, N_ROWS);
	db_close(db);
	free(memory);
}
END_TEST

START_TEST(test_store_refuses)
{
	struct gpu gpu = gpu_start("invalid.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	const uint64_t addresses[N_LAYERS] = {4096, 4096, 4096};
	const uint64_t nothing[N_LAYERS] = {0};
	struct moetrace_cuda_layers good, layers;

	MOETRACE_INIT(&good);
	good.n_layers = N_LAYERS;
	good.n_rows = 4;
	good.id_type = MOETRACE_TYPE_I32;
	good.ids = addresses;
#define REFUSED(member, value, status)                                                          \
	do {                                                                                    \
		layers = good;                                                                  \
		layers.member = (value);                                                        \
		ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), (status)); \
	} while (0)
	REFUSED(size, 3, MOETRACE_E_INVALID);
	REFUSED(first_layer, 1, MOETRACE_E_INVALID);
	REFUSED(first_layer, UINT32_MAX, MOETRACE_E_INVALID);
	REFUSED(n_layers, 0, MOETRACE_E_INVALID);
	REFUSED(n_layers, UINT32_MAX, MOETRACE_E_INVALID);
	REFUSED(ids, NULL, MOETRACE_E_INVALID);
	REFUSED(ids, nothing, MOETRACE_E_INVALID);
	REFUSED(id_type, MOETRACE_TYPE_F32, MOETRACE_E_INVALID);
	REFUSED(weight_type, MOETRACE_TYPE_F32, MOETRACE_E_INVALID);
	REFUSED(reserved, 1, MOETRACE_E_INVALID);
	REFUSED(ids_row_bytes, TOP_K * 4 - 4, MOETRACE_E_INVALID);
	REFUSED(ids_row_bytes, TOP_K * 4 + 1, MOETRACE_E_INVALID);
	REFUSED(ids_row_bytes, UINT64_MAX, MOETRACE_E_INVALID);
	REFUSED(ids_row_bytes, UINT64_C(1) << 32, MOETRACE_E_INVALID);
	REFUSED(n_rows, MOETRACE_CUDA_MAX_ROWS + 1, MOETRACE_E_LIMIT);
	REFUSED(n_rows, 1000000, MOETRACE_E_LIMIT);
	REFUSED(n_rows, 0, MOETRACE_OK);
	good.weight_type = MOETRACE_TYPE_F16;
	good.weights = addresses;
	REFUSED(weights_row_bytes, TOP_K * 2 - 2, MOETRACE_E_INVALID);
	REFUSED(weights_row_bytes, UINT64_MAX - 1, MOETRACE_E_INVALID);
	REFUSED(n_rows, 0, MOETRACE_OK);
#undef REFUSED
	ck_assert_int_eq(moetrace_cuda_store(NULL, NULL, &good), MOETRACE_E_INVALID);
	toy_close(&gpu.toy);
}
END_TEST

/* A device that reads where no number can lie is lost for the program, too. */
START_TEST(test_store_refuses_odd_addresses)
{
	struct gpu gpu = gpu_start("odd.db", N_LAYERS, N_EXPERTS, TOP_K, 0);
	const uint64_t even[N_LAYERS] = {4096, 4096, 4096};
	const uint64_t odd[N_LAYERS] = {4096, 4096, 4098};
	struct moetrace_cuda_layers layers;

	MOETRACE_INIT(&layers);
	layers.n_layers = N_LAYERS;
	layers.n_rows = 4;
	layers.id_type = MOETRACE_TYPE_I32;
	layers.ids = odd;
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), MOETRACE_E_INVALID);
	layers.ids = even;
	layers.weight_type = MOETRACE_TYPE_F32;
	layers.weights = odd;
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), MOETRACE_E_INVALID);
	/* Two bytes each: so they may lie. No pass is open, so that nothing is read. */
	layers.id_type = MOETRACE_TYPE_I16;
	layers.ids = odd;
	layers.weight_type = MOETRACE_TYPE_BF16;
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), MOETRACE_OK);
	toy_close(&gpu.toy);
}
END_TEST

/*
 * Layers of 2 and of 4 entries a row: in one launch all rows lie equally far apart, so that a distance
 * that would follow from k is refused, for ids and for weights.
 */
START_TEST(test_store_unequal_layers)
{
	enum { WIDTH = 4 };
	static int32_t ids[N_ROWS * WIDTH];
	static float weights[N_ROWS * WIDTH];
	const uint64_t id_addresses[] = {(uint64_t)(uintptr_t)ids, (uint64_t)(uintptr_t)ids};
	const uint64_t weight_addresses[] = {(uint64_t)(uintptr_t)weights,
					     (uint64_t)(uintptr_t)weights};
	const struct fake_api *fake = gpu_load();
	struct toy toy = toy_start("unequal.db", NULL, 1, 16, WIDTH);
	struct moetrace_layer_info layer_infos[2];
	struct moetrace_model_info model_info;
	struct moetrace_cuda_lane_info lane_info;
	struct moetrace_cuda_layers layers;
	struct moetrace_slice slice = {0};
	struct moetrace_pass_info info;
	struct moetrace_cuda_lane *lane;
	struct moetrace_cuda *cuda;
	sqlite3 *db;

	for (uint32_t i = 0; i < 2; i++) {
		MOETRACE_INIT(&layer_infos[i]);
		layer_infos[i].layer = i;
		layer_infos[i].n_experts = 16;
		layer_infos[i].top_k = 2 + 2 * i;
	}
	MOETRACE_INIT(&model_info);
	model_info.name = "unequal";
	model_info.layers = layer_infos;
	model_info.n_moe_layers = 2;
	MOETRACE_INIT(&lane_info);
	lane_info.stream = fake->stream_new();
	ck_assert_int_eq(moetrace_model_add(toy.session, &model_info, &lane_info.model), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, NULL, &cuda), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_lane_add(cuda, &lane_info, &lane), MOETRACE_OK);
	for (uint32_t i = 0; i < N_ROWS * WIDTH; i++) {
		ids[i] = (int32_t)(i % WIDTH);
		weights[i] = (float)(i / WIDTH);
	}
	MOETRACE_INIT(&layers);
	layers.n_layers = 2;
	layers.n_rows = N_ROWS;
	layers.id_type = MOETRACE_TYPE_I32;
	layers.ids = id_addresses;
	layers.weight_type = MOETRACE_TYPE_F32;
	layers.weights = weight_addresses;
	layers.weights_row_bytes = sizeof(*weights) * WIDTH;
	MOETRACE_INIT(&info);
	info.model = lane_info.model;
	info.phase = MOETRACE_PHASE_PREFILL;
	info.n_rows = N_ROWS;
	info.slices = &slice;
	info.n_slices = 1;
	slice.request = toy_request(&toy, "r");
	slice.n_rows = N_ROWS;
	ck_assert_int_eq(moetrace_cuda_pass_begin(lane, &info), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_store(lane, lane_info.stream, &layers), MOETRACE_E_INVALID);
	layers.ids_row_bytes = sizeof(*ids) * WIDTH;
	layers.weights_row_bytes = 0;
	ck_assert_int_eq(moetrace_cuda_store(lane, lane_info.stream, &layers), MOETRACE_E_INVALID);
	layers.weights_row_bytes = sizeof(*weights) * WIDTH;
	ck_assert_int_eq(moetrace_cuda_store(lane, lane_info.stream, &layers), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_pass_end(lane), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	/* Each row's weights are its number. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert WHERE weight = row"),
			 N_ROWS * (2 + 4));
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda buffers");
	TCase *tc = tcase_create("buffers");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_adopt, 0, (int)(sizeof(orders) / sizeof(orders[0])));
	tcase_add_loop_test(tc, test_adopt_reads_no_more, 0, 2);
	tcase_add_test(tc, test_adopt_after_long);
	tcase_add_test(tc, test_adopt_refuses);
	tcase_add_loop_test(tc, test_store, 0, (int)(sizeof(kinds) / sizeof(kinds[0])));
	tcase_add_test(tc, test_store_refuses);
	tcase_add_test(tc, test_store_refuses_odd_addresses);
	tcase_add_test(tc, test_store_unequal_layers);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
