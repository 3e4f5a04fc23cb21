/* SPDX-License-Identifier: MIT */
/*
 * Rotation in the modes without rows, with physical ids: the next file has the expert map again, and
 * what is counted before and after the boundary stays apart.
 */
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_LAYERS = 2, N_EXPERTS = 64, TOP_K = 4, N_RANKS = 4 };

/* Slot s holds the expert N_EXPERTS - 1 - s. */
static void map_set(const struct toy *toy)
{
	static int32_t experts[N_LAYERS * N_EXPERTS];
	struct moetrace_expert_map map;
	uint32_t epoch, i;

	for (i = 0; i < N_LAYERS * N_EXPERTS; i++)
		experts[i] = (int32_t)(N_EXPERTS - 1 - i % N_EXPERTS);
	MOETRACE_INIT(&map);
	map.n_slots = N_EXPERTS;
	map.n_ranks = N_RANKS;
	map.slot_experts = experts;
	ck_assert_int_eq(moetrace_expert_map_set(toy->session, toy->model, &map, &epoch),
			 MOETRACE_OK);
	ck_assert_uint_eq(epoch, 1);
}

/* Each row goes to slots 0 to 3, so to experts 63 to 60. */
static void pass_run(const struct toy *toy, uint32_t n_rows)
{
	const struct moetrace_slice slice = {.n_rows = n_rows};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	uint16_t slots[8 * TOP_K];
	uint32_t layer, i;

	ck_assert_ptr_nonnull(pass);
	for (i = 0; i < n_rows * TOP_K; i++)
		slots[i] = (uint16_t)(i % TOP_K);
	for (layer = 0; layer < N_LAYERS; layer++) {
		struct moetrace_selection selection;

		MOETRACE_INIT(&selection);
		selection.layer_index = layer;
		selection.n_rows = n_rows;
		selection.id_type = MOETRACE_TYPE_U16;
		selection.ids = slots;
		selection.id_space = MOETRACE_ID_PHYSICAL;
		moetrace_select_experts(pass, &selection);
	}
	moetrace_pass_end(pass);
}

static void check_file(const char *path, const char *load, bool has_counts)
{
	sqlite3 *db = db_open(path);

	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(epoch || ':' || n_slots || ':' || n_ranks, "
				     "' ') FROM expert_map"),
			 "1:64:4 1:64:4");
	for (int layer = 0; layer < N_LAYERS; layer++)
		ck_assert_str_eq(db_text(db,
					 "SELECT group_concat(expert || ':' || tokens, ' ') FROM "
					 "(SELECT expert, tokens FROM expert_load WHERE layer = %d "
					 "AND tokens > 0 ORDER BY expert)",
					 layer),
				 load);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) > 0 FROM layer_load"), has_counts);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity = 'error'"), 0);
	db_close(db);
}

static const uint32_t modes[] = {MOETRACE_MODE_PER_PASS, MOETRACE_MODE_STAT};

START_TEST(test_map_in_next_file)
{
	struct toy toy = toy_open("first.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	const char *next = suite_path("next.db");
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.mode = modes[_i];
	map_set(&toy);
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	pass_run(&toy, 3);
	ck_assert_int_eq(moetrace_rotate(toy.session, next), MOETRACE_OK);
	pass_run(&toy, 5);
	pass_run(&toy, 2);
	toy_close(&toy);
	check_file(toy.path, "60:3 61:3 62:3 63:3", modes[_i] == MOETRACE_MODE_PER_PASS);
	check_file(next, "60:7 61:7 62:7 63:7", modes[_i] == MOETRACE_MODE_PER_PASS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rotate_modes");
	TCase *rotate = tcase_create("modes");

	tcase_add_loop_test(rotate, test_map_in_next_file, 0, 2);
	suite_add_tcase(suite, rotate);
	return suite_run(suite);
}
