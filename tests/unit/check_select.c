/* SPDX-License-Identifier: MIT */
/*
 * moetrace_select_experts(): what each form of a selection leaves in the file. The expected
 * bytes are written out or computed by other means than the recorder's.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/one_layer.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* ---- ids ---- */

static const int8_t ids_i8[] = {0, 127, -1, 5, -128, 126};
static const uint8_t ids_u8[] = {0, 127, 255, 5, 255, 126};
static const int16_t ids_i16[] = {0, 127, -1, 5, INT16_MIN, 126};
static const uint16_t ids_u16[] = {0, 127, UINT16_MAX, 5, UINT16_MAX, 126};
static const int32_t ids_i32[] = {0, 127, -1, 5, INT32_MIN, 126};
static const uint32_t ids_u32[] = {0, 127, UINT32_MAX, 5, UINT32_MAX, 126};
static const int64_t ids_i64[] = {0, 127, -1, 5, INT64_MIN, 126};
static const uint64_t ids_u64[] = {0, 127, UINT64_MAX, 5, UINT64_MAX, 126};

static const struct {
	uint32_t type;
	const void *ids;
} id_tables[] = {
	{MOETRACE_TYPE_I8, ids_i8},   {MOETRACE_TYPE_U8, ids_u8},   {MOETRACE_TYPE_I16, ids_i16},
	{MOETRACE_TYPE_U16, ids_u16}, {MOETRACE_TYPE_I32, ids_i32}, {MOETRACE_TYPE_U32, ids_u32},
	{MOETRACE_TYPE_I64, ids_i64}, {MOETRACE_TYPE_U64, ids_u64},
};

/* Two rows of three; entries that stand for no expert are left out, the others move up. */
START_TEST(test_ids_of_every_type)
{
	struct moetrace_selection selection =
		one_layer_selection(id_tables[_i].type, id_tables[_i].ids);
	sqlite3 *db = one_layer_record(128, 3, 2, &selection);

	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "007F00057E00");
	ck_assert_str_eq(one_layer_stored(db, "n_valid"), "0202");
	ck_assert_str_eq(one_layer_stored(db, "topk_weights"), "none");
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 4);
	ck_assert_int_eq(db_int(db, "SELECT max_load FROM pass_layer"), 1);
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	db_close(db);
}
END_TEST

/* The same values with 300 experts take two bytes each; then 255 is an expert, also as u8. */
START_TEST(test_ids_of_every_type_in_two_bytes)
{
	struct moetrace_selection selection =
		one_layer_selection(id_tables[_i].type, id_tables[_i].ids);
	const bool is_u8 = id_tables[_i].type == MOETRACE_TYPE_U8;
	sqlite3 *db = one_layer_record(300, 3, 2, &selection);

	ck_assert_str_eq(one_layer_stored(db, "topk_ids"),
			 is_u8 ? "00007F00FF000500FF007E00" : "00007F00000005007E000000");
	if (is_u8)
		ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load"), 6);
	else
		ck_assert_str_eq(one_layer_stored(db, "n_valid"), "0202");
	db_close(db);
}
END_TEST

static const struct {
	uint32_t n_experts;
	const char *hex; /* of ids 0, 127, 128 and the largest */
} widths[] = {
	{129, "007F8000"},	   {255, "007F80FE"},	      {256, "007F80FF"},
	{257, "00007F0080000001"}, {512, "00007F008000FF01"}, {65536, "00007F008000FFFF"},
};

/* Ids from 128 to 255 are not negative; the second byte comes with the 257th expert. */
START_TEST(test_largest_ids)
{
	const uint32_t n_experts = widths[_i].n_experts;
	const uint32_t last = n_experts == 129 ? 0 : n_experts - 1;
	const uint32_t ids[] = {0, 127, 128, last};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_U32, ids);
	sqlite3 *db;

	if (n_experts == 129)
		selection.k = 3;
	db = one_layer_record(n_experts, 4, 1, &selection);
	if (n_experts == 129)
		ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "007F80");
	else
		ck_assert_str_eq(one_layer_stored(db, "topk_ids"), widths[_i].hex);
	ck_assert_str_eq(one_layer_stored(db, "n_valid"), "none");
	db_close(db);
}
END_TEST

/* The largest u8 means no expert, unless it is one. */
START_TEST(test_u8_255)
{
	static const uint8_t ids[] = {3, 255, 254};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_U8, ids);
	sqlite3 *db = one_layer_record(256, 3, 1, &selection);

	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "03FFFE");
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 3);
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 0);
	db_close(db);
	selection = one_layer_selection(MOETRACE_TYPE_U8, ids);
	db = one_layer_record(255, 3, 1, &selection);
	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "03FE00");
	ck_assert_str_eq(one_layer_stored(db, "n_valid"), "02");
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 0);
	db_close(db);
}
END_TEST

START_TEST(test_u16_65535)
{
	static const uint16_t ids[] = {3, 65535};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_U16, ids);
	sqlite3 *db = one_layer_record(65536, 2, 1, &selection);

	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "0300FFFF");
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 2);
	db_close(db);
}
END_TEST

/* Ids that would be right if their upper bytes were cut off are wrong ids. */
START_TEST(test_ids_out_of_range)
{
	static const int64_t ids[] = {7, 64, 256 + 7, 65536 + 7, (INT64_C(1) << 32) + 7, INT64_MAX};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I64, ids);
	sqlite3 *db = one_layer_record(64, 6, 1, &selection);

	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "070000000000");
	ck_assert_str_eq(one_layer_stored(db, "n_valid"), "01");
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 1);
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 5);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "partial");
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM pass"), "invalid");
	ck_assert_int_eq(db_int(db, "SELECT sum(prefill_tokens + decode_tokens + verify_tokens +"
				    " other_tokens) FROM expert_load_window"),
			 1);
	db_close(db);
}
END_TEST

/* Every row without an expert: stored, and touches nothing. */
START_TEST(test_rows_without_experts)
{
	static const int32_t ids[] = {-1, -1, -1, -1};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db = one_layer_record(8, 2, 2, &selection);

	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "00000000");
	ck_assert_str_eq(one_layer_stored(db, "n_valid"), "0000");
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 0);
	ck_assert_int_eq(db_int(db, "SELECT max_load FROM pass_layer"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load_window"), 0);
	db_close(db);
}
END_TEST

/* Zero experts and shared slots are loaded, but only routed experts are counted as active. */
START_TEST(test_zero_and_shared_experts)
{
	static const int32_t ids[] = {3, 4, 5, 6, 3, 2, 5, 6}; /* 4 routed, 2 zero, 1 shared */
	struct toy toy = toy_open("kinds.db", NULL, 1, 4, 4);
	struct moetrace_layer_info layer;
	struct moetrace_model_info info;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&layer);
	layer.layer = 0;
	layer.n_experts = 4;
	layer.n_zero_experts = 2;
	layer.n_shared_slots = 1;
	layer.top_k = 4;
	MOETRACE_INIT(&info);
	info.name = "kinds";
	info.layers = &layer;
	info.n_moe_layers = 1;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &toy.model), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	pass = one_layer_begin(&toy, 2);
	toy_select_ids(pass, 0, 2, 0, ids);
	moetrace_pass_end(pass);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 2);
	ck_assert_int_eq(db_int(db, "SELECT max_load FROM pass_layer"), 2);
	ck_assert_int_eq(db_int(db, "SELECT tokens FROM expert_load WHERE kind = 'shared'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load WHERE kind = 'zero'"), 3);
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load WHERE kind = 'routed'"),
			 3);
	db_close(db);
}
END_TEST

/* ---- k ---- */

static const char *hex_of(const uint16_t *ids, size_t n)
{
	static char hex[4 * 3 * MOETRACE_MAX_TOP_K + 1];
	size_t i;

	for (i = 0; i < n; i++)
		snprintf(hex + 4 * i, 5, "%02X%02X", ids[i] & 0xffu, (unsigned int)ids[i] >> 8);
	return hex;
}

static const uint32_t some_k[] = {1, 2, 8, 9, 22, 32, MOETRACE_MAX_TOP_K};

START_TEST(test_every_k)
{
	const uint32_t k = some_k[_i];
	struct toy toy = toy_open("k.db", NULL, 1, 300, 1);
	uint16_t ids[3 * 255];
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_U16, ids);
	struct moetrace_pass *pass;
	sqlite3 *db;
	uint32_t i;

	for (i = 0; i < 3 * k; i++)
		ids[i] = (uint16_t)(i % k + i / k);
	toy.model = toy_model_add(toy.session, "k", 0, 1, 300, k);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	pass = one_layer_begin(&toy, 3);
	selection.n_rows = 3;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT k FROM topk"), k);
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), k + 2);
	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), hex_of(ids, 3 * k));
	db_close(db);
}
END_TEST

/* A row with fewer entries than the layer's top_k, as a rule that prunes would leave it. */
START_TEST(test_k_below_top_k)
{
	static const int32_t ids[] = {1, 2, 3, 4, 5, 6};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db;

	selection.k = 3;
	db = one_layer_record(64, 8, 2, &selection);
	ck_assert_int_eq(db_int(db, "SELECT k FROM topk"), 3);
	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "010203040506");
	ck_assert_int_eq(db_int(db, "SELECT top_k FROM layer"), 8);
	db_close(db);
}
END_TEST

/* ---- strides, maps, padding ---- */

START_TEST(test_strides)
{
	static const int32_t ids[] = {1, 2, -7, -7, 3, 4, -7, -7, 5, 6};
	static const float weights[] = {1.0f, 2.0f, 9.0f, 0.5f, 1.0f, 9.0f, 2.0f, 1.0f};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db;

	selection.ids_row_bytes = 16;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	selection.weights_row_bytes = 12;
	db = one_layer_record(8, 2, 3, &selection);
	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "010203040506");
	ck_assert_str_eq(one_layer_stored(db, "topk_weights"), "003C00400038003C0040003C");
	db_close(db);
}
END_TEST

START_TEST(test_row_map)
{
	static const int32_t ids[] = {1, 2, 3, 4};
	static const uint32_t row_map[] = {1, 3};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db;

	selection.n_rows = 2;
	selection.row_map = row_map;
	db = one_layer_record(8, 2, 5, &selection);
	ck_assert_str_eq(one_layer_stored(db, "row_map"), "0100000003000000");
	ck_assert_int_eq(db_int(db, "SELECT n_rows FROM pass_layer"), 2);
	ck_assert_int_eq(db_int(db, "SELECT n_rows FROM pass"), 5);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(row) FROM token_topk"), "1,3");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	db_close(db);
}
END_TEST

/* Rows that fill the batch up are counted apart, whether the layer shows them or not. */
START_TEST(test_padding)
{
	static const int32_t ids[] = {1, 2, 1, 2, 1, 2, 2, 7, 7, 6};
	struct toy toy = toy_start("padding.db", NULL, 2, 8, 2);
	const struct moetrace_slice slice = {.n_rows = 2};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 2;
	info.padding_rows = 3;
	info.slices = &slice;
	info.n_slices = 1;
	pass = moetrace_pass_begin(toy.session, &info);
	ck_assert_ptr_nonnull(pass);
	toy_select_ids(pass, 0, 5, 0, ids);
	toy_select_ids(pass, 1, 2, 0, ids);
	moetrace_pass_end(pass);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT padding_rows FROM pass"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE n_rows = 2 AND"
				    " active_experts = 2 AND max_load = 2"),
			 2);
	ck_assert_int_eq(db_int(db, "SELECT padding_active_experts FROM pass_layer JOIN layer"
				    " USING (layer_id) WHERE layer = 0"),
			 2);
	ck_assert_str_eq(db_text(db, "SELECT padding_active_experts FROM pass_layer JOIN layer"
				     " USING (layer_id) WHERE layer = 1"),
			 "(null)");
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(padding_tokens) FROM (SELECT padding_tokens"
				 " FROM expert_load WHERE layer = 0 ORDER BY expert)"),
			 "0,1,2,0,0,0,1,2");
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load WHERE layer = 0"), 4);
	ck_assert_int_eq(db_int(db, "SELECT sum(padding_tokens) FROM expert_load WHERE layer = 1"),
			 0);
	db_close(db);
}
END_TEST

/* Ids of padding rows that are none are left out, in every mode and form, and not complained of. */
START_TEST(test_padding_of_no_expert)
{
	static const uint32_t modes[] = {MOETRACE_MODE_PER_TOKEN, MOETRACE_MODE_PER_PASS,
					 MOETRACE_MODE_STAT};
	static const int32_t ids[] = {1, 2, 99999, 7, -1, 6, INT32_MAX, 300};
	static const float weights[] = {1, 2, 3, 4, 5, 6, 7, 8};
	const uint32_t n_experts = _i & 1 ? 8 : 257;
	struct toy toy = toy_open("none.db", NULL, 1, n_experts, 2);
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	struct moetrace_recording_opts opts;
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&opts);
	opts.mode = modes[_i / 4];
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 1;
	info.padding_rows = 3;
	pass = moetrace_pass_begin(toy.session, &info);
	selection.n_rows = 4;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	selection.order = _i & 2 ? MOETRACE_ORDER_UNORDERED : MOETRACE_ORDER_SELECTION;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(expert || ':' || tokens || ':' ||"
				     " padding_tokens) FROM (SELECT * FROM expert_load"
				     " WHERE tokens OR padding_tokens ORDER BY expert)"),
			 "1:1:0,2:1:0,6:0:1,7:0:1");
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 0);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

START_TEST(test_order_is_stored)
{
	static const int32_t ids[] = {1, 2};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db;

	selection.order = MOETRACE_ORDER_SELECTION;
	db = one_layer_record(8, 2, 1, &selection);
	ck_assert_int_eq(db_int(db, "SELECT selection_order FROM pass_layer"), 0);
	db_close(db);
	selection.order = MOETRACE_ORDER_UNKNOWN;
	db = one_layer_record(8, 2, 1, &selection);
	ck_assert_int_eq(db_int(db, "SELECT selection_order FROM pass_layer"), 2);
	db_close(db);
}
END_TEST

START_TEST(test_untimed)
{
	static const int32_t ids[] = {1, 2};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db;

	selection.untimed = 1;
	db = one_layer_record(8, 2, 1, &selection);
	ck_assert_str_eq(db_text(db, "SELECT selected_ns FROM pass_layer"), "(null)");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM layer_time"), 0);
	db_close(db);
}
END_TEST

/* The arrays may lie in memory that nobody can write to, and at the end of a mapping. */
START_TEST(test_arrays_are_only_read)
{
	const size_t page = 4096, n_ids = 64 * 8 * sizeof(int32_t);
	unsigned char *memory =
		mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct moetrace_selection selection;
	int32_t *ids;
	sqlite3 *db;
	size_t i;

	ck_assert(memory != MAP_FAILED);
	ids = (int32_t *)(void *)(memory + 2 * page - n_ids);
	for (i = 0; i < 64 * 8; i++)
		ids[i] = (int32_t)(i % 64);
	ck_assert_int_eq(mprotect(memory, 2 * page, PROT_READ), 0);
	ck_assert_int_eq(mprotect(memory + 2 * page, page, PROT_NONE), 0);
	selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = ids;
	db = one_layer_record(64, 8, 64, &selection);
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 64);
	db_close(db);
}
END_TEST

/* ---- threads ---- */

enum { N_THREAD_LAYERS = 32, N_SELECT_THREADS = 4 };

struct select_thread {
	const struct toy *toy;
	struct moetrace_pass *pass;
	uint32_t first;
};

static void *select_main(void *argument)
{
	struct select_thread *thread = argument;
	uint32_t layer;

	for (layer = thread->first; layer < N_THREAD_LAYERS; layer += N_SELECT_THREADS)
		toy_select(thread->toy, thread->pass, layer, 5);
	return NULL;
}

/* Layers of one pass from several threads at once. */
START_TEST(test_layers_from_several_threads)
{
	struct toy toy = toy_start("threads.db", NULL, N_THREAD_LAYERS, 64, 4);
	struct select_thread threads[N_SELECT_THREADS];
	pthread_t ids[N_SELECT_THREADS];
	sqlite3 *db;
	uint32_t i, round;

	for (round = 0; round < 50; round++) {
		struct moetrace_pass *pass = one_layer_begin(&toy, 5);

		for (i = 0; i < N_SELECT_THREADS; i++) {
			threads[i] = (struct select_thread){&toy, pass, i};
			ck_assert_int_eq(pthread_create(&ids[i], NULL, select_main, &threads[i]),
					 0);
		}
		for (i = 0; i < N_SELECT_THREADS; i++)
			ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
		moetrace_pass_end(pass);
	}
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 50);
	ck_assert_int_eq(db_stat(db, 1, "recorded_layers"), 50 * N_THREAD_LAYERS);
	ck_assert_int_eq(db_stat(db, 1, "recorded_assignments"), 50 * N_THREAD_LAYERS * 5 * 4);
	db_close(db);
}
END_TEST

static Suite *select_suite(void)
{
	Suite *suite = suite_create("select");
	TCase *ids = tcase_create("ids");
	TCase *forms = tcase_create("forms");

	tcase_add_loop_test(ids, test_ids_of_every_type, 0, 8);
	tcase_add_loop_test(ids, test_ids_of_every_type_in_two_bytes, 0, 8);
	tcase_add_loop_test(ids, test_largest_ids, 0, 6);
	tcase_add_test(ids, test_u8_255);
	tcase_add_test(ids, test_u16_65535);
	tcase_add_test(ids, test_ids_out_of_range);
	tcase_add_test(ids, test_rows_without_experts);
	tcase_add_test(ids, test_zero_and_shared_experts);
	tcase_add_loop_test(ids, test_every_k, 0, 7);
	tcase_add_test(ids, test_k_below_top_k);
	tcase_add_test(forms, test_strides);
	tcase_add_test(forms, test_row_map);
	tcase_add_test(forms, test_padding);
	tcase_add_loop_test(forms, test_padding_of_no_expert, 0, 12);
	tcase_add_test(forms, test_order_is_stored);
	tcase_add_test(forms, test_untimed);
	tcase_add_test(forms, test_arrays_are_only_read);
	tcase_add_test(forms, test_layers_from_several_threads);
	suite_add_tcase(suite, ids);
	suite_add_tcase(suite, forms);
	return suite;
}

int main(void)
{
	return suite_run(select_suite());
}
