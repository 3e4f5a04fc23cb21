/* SPDX-License-Identifier: MIT */
/*
 * Physical ids and the maps that explain them: converted where they come alone, stored beside the
 * logical ones, under the map that was in force when the pass began; and counters in place of ids,
 * and what dispatch moved.
 */
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

#define N_EXPERTS 6
#define N_SLOTS	  8
#define TOP_K	  2
#define N_ROWS	  4

/* Expert 0 lies twice, slot 7 is empty; then the same experts the other way round. */
static const int32_t first_slots[N_SLOTS] = {0, 1, 2, 3, 4, 5, 0, -1};
static const int32_t second_slots[N_SLOTS] = {-5, 0, 5, 4, 3, 2, 1, 0};

static uint32_t set_map(const struct toy *toy, const int32_t *slots, uint32_t n_slots)
{
	struct moetrace_expert_map map;
	uint32_t epoch;

	MOETRACE_INIT(&map);
	map.n_slots = n_slots;
	map.n_ranks = 2;
	map.slot_experts = slots;
	ck_assert_int_eq(moetrace_expert_map_set(toy->session, toy->model, &map, &epoch),
			 MOETRACE_OK);
	return epoch;
}

static struct moetrace_pass *begin(const struct toy *toy)
{
	const struct moetrace_slice slice = {.n_rows = N_ROWS};

	return toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);
}

static struct moetrace_selection selection_of(const int32_t *ids, uint32_t id_space)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.n_rows = N_ROWS;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	selection.order = MOETRACE_ORDER_SELECTION;
	selection.id_space = id_space;
	return selection;
}

static const int32_t physical[N_ROWS * TOP_K] = {0, 1, 6, 2, 3, 4, 5, 6};
static const int32_t by_first[N_ROWS * TOP_K] = {0, 1, 0, 2, 3, 4, 5, 0};

static const char *stored(sqlite3 *db, int64_t pass_id, const char *column)
{
	return db_text(db,
		       "SELECT iif(%s IS NULL, 'none', hex(substr(%s, 1 + topk_row * k, pl.n_rows * k))) FROM"
		       " pass_layer AS pl JOIN topk USING (topk_id) WHERE pass_id = %lld",
		       column, column, (long long)pass_id);
}

/* A pass keeps the map that it began under, however many are set while it runs. */
START_TEST(test_R6_physical_ids_become_logical_under_their_epoch)
{
	struct toy toy = toy_start("epochs.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_selection selection = selection_of(physical, MOETRACE_ID_PHYSICAL);
	struct moetrace_pass *first, *second;
	sqlite3 *db;

	ck_assert_uint_eq(set_map(&toy, first_slots, N_SLOTS), 1);
	first = begin(&toy);
	ck_assert_uint_eq(set_map(&toy, second_slots, N_SLOTS), 2);
	second = begin(&toy);
	moetrace_select_experts(first, &selection);
	moetrace_pass_end(first);
	selection.ids = (const int32_t[N_ROWS * TOP_K]){1, 2, 3, 4, 5, 6, 7, 2};
	moetrace_select_experts(second, &selection);
	moetrace_pass_end(second);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(stored(db, 1, "topk_ids"), "0001000203040500");
	ck_assert_str_eq(stored(db, 1, "physical_ids"), "0001060203040506");
	ck_assert_str_eq(stored(db, 2, "topk_ids"), "0005040302010005");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(map_epoch) FROM pass_layer"), "1,2");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(hex(slot_experts), ' ') FROM expert_map"),
			 "00000000010000000200000003000000040000000500000000000000FFFFFFFF "
			 "FFFFFFFF00000000050000000400000003000000020000000100000000000000");
	ck_assert_int_eq(db_int(db, "SELECT max_load FROM pass_layer WHERE pass_id = 1"), 3);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

START_TEST(test_R6_physical_ids_beside_logical_ones)
{
	struct toy toy = toy_start("beside.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_selection selection = selection_of(by_first, MOETRACE_ID_LOGICAL);
	struct moetrace_pass *pass;
	sqlite3 *db;

	set_map(&toy, first_slots, N_SLOTS);
	selection.physical_ids = physical;
	pass = begin(&toy);
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	/* Slots that hold other experts are not stored: the map contradicts them. */
	selection.physical_ids = (const int32_t[N_ROWS * TOP_K]){0, 1, 6, 2, 3, 4, 5, 5};
	pass = begin(&toy);
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(stored(db, 1, "topk_ids"), "0001000203040500");
	ck_assert_str_eq(stored(db, 1, "physical_ids"), "0001060203040506");
	ck_assert_str_eq(stored(db, 2, "topk_ids"), "0001000203040500");
	ck_assert_str_eq(stored(db, 2, "physical_ids"), "none");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	db_close(db);
}
END_TEST

/* Without a map physical ids say nothing: the layer is unwritten, not wrong. */
START_TEST(test_R6_physical_ids_without_a_map)
{
	struct toy toy = toy_start("no-map.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_selection selection = selection_of(physical, MOETRACE_ID_PHYSICAL);
	struct moetrace_pass *pass = begin(&toy);
	sqlite3 *db;

	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT state FROM pass_layer"), 1);
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM pass"), "unwritten");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	db_close(db);
}
END_TEST

/* An empty slot, and one that there is not, are ids that no expert has. */
START_TEST(test_R6_empty_and_missing_slots_are_invalid)
{
	static const int32_t ids[N_ROWS * TOP_K] = {0, 7, 1, 8, 2, -1, 3, 4};
	struct toy toy = toy_start("empty-slots.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_selection selection = selection_of(ids, MOETRACE_ID_PHYSICAL);
	struct moetrace_pass *pass;
	sqlite3 *db;

	set_map(&toy, first_slots, N_SLOTS);
	pass = begin(&toy);
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(stored(db, 1, "topk_ids"), "0000010002000304");
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 2);
	ck_assert_str_eq(db_text(db, "SELECT hex(n_valid) FROM topk"), "01010102");
	db_close(db);
}
END_TEST

START_TEST(test_maps_that_are_refused)
{
	struct toy toy = toy_open("refused.db", NULL, 1, N_EXPERTS, TOP_K);
	int32_t slots[N_SLOTS] = {0, 1, 2, 3, 4, 5, 6, 0};
	struct moetrace_expert_map map;
	uint32_t epoch = 9;

	MOETRACE_INIT(&map);
	ck_assert_int_eq(moetrace_expert_map_set(NULL, 1, &map, &epoch), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 1, NULL, &epoch), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 1, &map, &epoch), MOETRACE_E_INVALID);
	map.n_slots = N_SLOTS;
	map.slot_experts = slots;
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 2, &map, &epoch), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 1, &map, &epoch), MOETRACE_E_INVALID);
	slots[6] = 0;
	map.n_ranks = 3;
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 1, &map, &epoch), MOETRACE_E_INVALID);
	map.n_slots = MOETRACE_MAX_SLOTS + 1;
	map.n_ranks = 0;
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 1, &map, &epoch), MOETRACE_E_LIMIT);
	ck_assert_uint_eq(epoch, 0);
	map.n_slots = N_SLOTS;
	ck_assert_int_eq(moetrace_expert_map_set(toy.session, 1, &map, NULL), MOETRACE_OK);
	toy_close(&toy);
}
END_TEST

/* ---- counters ---- */

static struct moetrace_expert_counts counts_of(const void *counts, uint32_t n, uint32_t type)
{
	struct moetrace_expert_counts info;

	MOETRACE_INIT(&info);
	info.counts = counts;
	info.n_counts = n;
	info.count_type = type;
	return info;
}

/* Counts in place of ids: the same windows, active experts and maximum load as the ids give. */
START_TEST(test_counts_stand_for_ids)
{
	static const uint16_t counts[N_EXPERTS] = {3, 1, 1, 1, 1, 1};
	struct toy toy = toy_start("counts.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_selection selection = selection_of(by_first, MOETRACE_ID_LOGICAL);
	struct moetrace_expert_counts info = counts_of(counts, N_EXPERTS, MOETRACE_TYPE_U16);
	struct moetrace_pass *pass = begin(&toy);
	sqlite3 *db;

	moetrace_select_experts(pass, &selection);
	moetrace_expert_load(pass, &info); /* the layer is done already */
	moetrace_pass_end(pass);
	pass = begin(&toy);
	moetrace_expert_load(pass, &info);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "duplicate_layers"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT active_experts, max_load FROM"
				    " pass_layer GROUP BY 1, 2)"),
			 1);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(state) FROM pass_layer"), "0,3");
	ck_assert_str_eq(db_text(db, "SELECT count_bytes || ':' || hex(counts) FROM layer_load"),
			 "1:030101010101");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(tokens) FROM expert_load"),
			 "6,2,2,2,2,2");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(ifnull(reasons, '')) FROM pass"),
			 ",counted");
	db_close(db);
}
END_TEST

/* Replicas of an expert are added up. */
START_TEST(test_counts_of_slots)
{
	static const int64_t counts[N_SLOTS] = {300, 1, 0, 0, 0, 0, 70000, 0};
	struct toy toy = toy_start("slots.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_expert_counts info = counts_of(counts, N_SLOTS, MOETRACE_TYPE_I64);
	struct moetrace_pass *pass;
	sqlite3 *db;

	set_map(&toy, first_slots, N_SLOTS);
	info.id_space = MOETRACE_ID_PHYSICAL;
	pass = begin(&toy);
	moetrace_expert_load(pass, &info);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT count_bytes || ':' || active_experts || ':' || max_load"
				     " FROM layer_load JOIN pass_layer USING (pass_id, layer_id)"),
			 "4:2:70300");
	db_close(db);
}
END_TEST

START_TEST(test_counts_that_are_refused)
{
	static const int32_t counts[N_EXPERTS + 1] = {3, -1, 1, 1, 1, 1, 1};
	struct toy toy = toy_start("bad-counts.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_expert_counts info = counts_of(counts, N_EXPERTS, MOETRACE_TYPE_I32);
	struct moetrace_pass *pass = begin(&toy);
	sqlite3 *db;

	moetrace_expert_load(NULL, &info);
	moetrace_expert_load(pass, NULL);
	moetrace_expert_load(pass, &info); /* one is negative */
	info.n_counts = N_EXPERTS + 1;
	moetrace_expert_load(pass, &info);
	info.n_counts = N_EXPERTS;
	info.layer_index = 1;
	moetrace_expert_load(pass, &info);
	info.layer_index = 0;
	info.count_type = MOETRACE_TYPE_F32;
	moetrace_expert_load(pass, &info);
	info.count_type = MOETRACE_TYPE_I32;
	info.id_space = MOETRACE_ID_PHYSICAL;
	moetrace_expert_load(pass, &info); /* there is no map */
	info.id_space = MOETRACE_ID_LOGICAL;
	info.counts = NULL;
	moetrace_expert_load(pass, &info);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 7);
	ck_assert_int_eq(db_int(db, "SELECT state FROM pass_layer"), 1);
	db_close(db);
}
END_TEST

/* ---- dispatch ---- */

static struct moetrace_dispatch_info normal_dispatch(void)
{
	static const int32_t rank_tokens[4] = {3, 0, 1, 2};
	static const int32_t rdma_tokens[2] = {3, 3};
	static const int32_t received[3] = {128, 0, 256};
	struct moetrace_dispatch_info info;

	MOETRACE_INIT(&info);
	info.count_type = MOETRACE_TYPE_I32;
	info.n_ranks = 4;
	info.rank_tokens = rank_tokens;
	info.token_bytes = 14336;
	info.n_rdma_ranks = 2;
	info.rdma_rank_tokens = rdma_tokens;
	info.n_local_experts = 3;
	info.first_local_slot = 3;
	info.received_tokens = received;
	info.received_alignment = 128;
	return info;
}

/* Both forms of DeepEP's counters, and a second call for the same layer. */
START_TEST(test_dispatch_of_both_forms)
{
	static const uint32_t packed[3] = {2, 0, 5};
	struct toy toy = toy_start("dispatch.db", NULL, 2, N_EXPERTS, TOP_K);
	struct moetrace_dispatch_info info = normal_dispatch();
	struct moetrace_pass *pass = begin(&toy);
	sqlite3 *db;

	moetrace_dispatch(pass, &info);
	moetrace_dispatch(pass, &info);
	MOETRACE_INIT(&info);
	info.layer_index = 1;
	info.count_type = MOETRACE_TYPE_U32;
	info.n_local_experts = 3;
	info.received_tokens = packed;
	moetrace_dispatch(pass, &info);
	toy_finish(&toy, pass, N_ROWS);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT n_ranks || ':' || hex(rank_tokens) || ':' ||"
				     " hex(substr(rank_bytes, 1, 8)) || ':' || n_local_experts ||"
				     " ':' || first_local_slot || ':' || hex(received_tokens) || ':'"
				     " || received_alignment || ':' || hex(rdma_rank_tokens) FROM"
				     " dispatch JOIN layer USING (layer_id) WHERE moe_ordinal = 0"),
			 "4:03000000000000000100000002000000:00A8000000000000:3:3:"
			 "800000000000000000010000:128:0300000003000000");
	ck_assert_str_eq(db_text(db, "SELECT ifnull(n_ranks, '') || hex(received_tokens) || ':' ||"
				     " received_alignment FROM dispatch JOIN layer USING (layer_id)"
				     " WHERE moe_ordinal = 1"),
			 "020000000000000005000000:1");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_dispatch_that_is_refused)
{
	static const int32_t negative[4] = {0, 0, -1, 0};
	struct toy toy = toy_start("bad-dispatch.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_dispatch_info info = normal_dispatch();
	struct moetrace_pass *pass = begin(&toy);
	sqlite3 *db;

	moetrace_dispatch(NULL, &info);
	moetrace_dispatch(pass, NULL);
	info.rank_tokens = negative;
	moetrace_dispatch(pass, &info);
	info = normal_dispatch();
	info.token_bytes = UINT64_MAX;
	moetrace_dispatch(pass, &info);
	info = normal_dispatch();
	info.n_ranks = MOETRACE_MAX_RANKS + 1;
	moetrace_dispatch(pass, &info);
	info = normal_dispatch();
	info.layer_index = 1;
	moetrace_dispatch(pass, &info);
	info = normal_dispatch();
	info.count_type = MOETRACE_TYPE_F16;
	moetrace_dispatch(pass, &info);
	toy_finish(&toy, pass, N_ROWS);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 6);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM dispatch"), 0);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("physical");
	TCase *maps = tcase_create("maps");
	TCase *counters = tcase_create("counters");

	tcase_add_test(maps, test_R6_physical_ids_become_logical_under_their_epoch);
	tcase_add_test(maps, test_R6_physical_ids_beside_logical_ones);
	tcase_add_test(maps, test_R6_physical_ids_without_a_map);
	tcase_add_test(maps, test_R6_empty_and_missing_slots_are_invalid);
	tcase_add_test(maps, test_maps_that_are_refused);
	tcase_add_test(counters, test_counts_stand_for_ids);
	tcase_add_test(counters, test_counts_of_slots);
	tcase_add_test(counters, test_counts_that_are_refused);
	tcase_add_test(counters, test_dispatch_of_both_forms);
	tcase_add_test(counters, test_dispatch_that_is_refused);
	suite_add_tcase(suite, maps);
	suite_add_tcase(suite, counters);
	return suite_run(suite);
}
