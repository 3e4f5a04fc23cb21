/* SPDX-License-Identifier: MIT */
/*
 * Calls of the hot path that are refused. Every refusal is one misuse, leaves a diagnostic and
 * nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static const struct moetrace_slice one_row = {.n_rows = 1};
static const struct moetrace_slice mixed_row = {.n_rows = 1, .phase = MOETRACE_PHASE_MIXED};
static const struct moetrace_slice strange_row = {.n_rows = 1, .phase = 77};
static const struct moetrace_slice last_row = {
	.request = 1, .n_rows = 2, .first_position = UINT32_MAX};
static const struct moetrace_slice decode_row = {
	.request = 1, .n_rows = 1, .phase = MOETRACE_PHASE_DECODE};
static const struct moetrace_slice verify_row = {
	.request = 1, .n_rows = 1, .phase = MOETRACE_PHASE_VERIFY};
static const struct moetrace_slice idle_row = {.n_rows = 1, .phase = MOETRACE_PHASE_IDLE};
static const struct moetrace_slice wrapping_rows[] = {{.n_rows = UINT32_MAX}, {.n_rows = 2}};

struct wrong_pass {
	const char *what;
	uint32_t model_offset;
	uint32_t phase;
	uint32_t n_rows;
	const struct moetrace_slice *slices;
	uint32_t n_slices;
};

static const struct wrong_pass wrong_passes[] = {
	{"a model that was not added", 1, MOETRACE_PHASE_DUMMY, 1, &one_row, 1},
	{"a model far away", 1u << 20, MOETRACE_PHASE_DUMMY, 1, &one_row, 1},
	{"the model 0", UINT32_MAX, MOETRACE_PHASE_DUMMY, 1, &one_row, 1},
	{"no phase", 0, 0, 1, &one_row, 1},
	{"a phase that is none", 0, MOETRACE_PHASE_DUMMY + 1, 1, &one_row, 1},
	{"fewer rows in slices", 0, MOETRACE_PHASE_DUMMY, 2, &one_row, 1},
	{"more rows in slices", 0, MOETRACE_PHASE_DUMMY, 0, &one_row, 1},
	{"slices that are NULL", 0, MOETRACE_PHASE_DUMMY, 1, NULL, 1},
	{"a mixed slice", 0, MOETRACE_PHASE_PREFILL, 1, &mixed_row, 1},
	{"a slice that inherits mixed", 0, MOETRACE_PHASE_MIXED, 1, &one_row, 1},
	{"a slice's phase that is none", 0, MOETRACE_PHASE_DUMMY, 1, &strange_row, 1},
	{"a decode slice of a prefill pass", 0, MOETRACE_PHASE_PREFILL, 1, &decode_row, 1},
	{"a verify slice of a decode pass", 0, MOETRACE_PHASE_DECODE, 1, &verify_row, 1},
	{"a decode slice of a dummy pass", 0, MOETRACE_PHASE_DUMMY, 1, &decode_row, 1},
	{"an idle pass with rows", 0, MOETRACE_PHASE_IDLE, 1, NULL, 0},
	{"an idle slice with rows", 0, MOETRACE_PHASE_MIXED, 1, &idle_row, 1},
	{"positions past the last one", 0, MOETRACE_PHASE_PREFILL, 2, &last_row, 1},
	{"rows whose sum wraps", 0, MOETRACE_PHASE_DUMMY, 1, wrapping_rows, 2},
};

START_TEST(test_misuse_of_begin)
{
	const struct wrong_pass *wrong = &wrong_passes[_i];
	struct toy toy = toy_start("begin.db", NULL, 1, 64, 2);
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = wrong->model_offset == UINT32_MAX ? 0 : toy.model + wrong->model_offset;
	info.phase = wrong->phase;
	info.n_rows = wrong->n_rows;
	info.slices = wrong->slices;
	info.n_slices = wrong->n_slices;
	ck_assert_msg(!moetrace_pass_begin(toy.session, &info), "%s was accepted", wrong->what);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).misuse, 1);
	db = toy_close_and_open(&toy);
	ck_assert_msg(db_stat(db, 1, "misuse") == 1, "%s is not counted once", wrong->what);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'pass' AND"
				    " n_times = 1 AND length(message) > 10"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 0);
	db_close(db);
}
END_TEST

START_TEST(test_misuse_of_begin_without_info)
{
	struct toy toy = toy_start("null.db", NULL, 1, 64, 2);
	struct moetrace_pass_info info;
	sqlite3 *db;

	memset(&info, 0, sizeof(info)); /* not MOETRACE_INIT() */
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_IDLE;
	ck_assert_ptr_null(moetrace_pass_begin(toy.session, NULL));
	ck_assert_ptr_null(moetrace_pass_begin(toy.session, &info));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 2);
	db_close(db);
}
END_TEST

static const int32_t right_ids[] = {1, 2, 3, 4};
static const float right_weights[] = {1, 2, 3, 4};
static const uint32_t falling_map[] = {1, 0}, equal_map[] = {1, 1}, far_map[] = {0, 2};

enum wrong_selection {
	LAYER_INDEX,
	LAYER_INDEX_FAR,
	FEW_ROWS,
	MANY_ROWS,
	PADDING_THAT_IS_NOT_THERE,
	K_ABOVE_TOP_K,
	K_HUGE,
	ID_TYPE_NONE,
	ID_TYPE_FLOAT,
	ID_TYPE_UNKNOWN,
	IDS_NULL,
	WEIGHT_TYPE_INTEGER,
	WEIGHT_TYPE_UNKNOWN,
	WEIGHTS_NULL,
	ORDER_UNKNOWN,
	MAP_FALLS,
	MAP_REPEATS,
	MAP_LEAVES_THE_PASS,
	MAP_WITH_TOO_MANY_ROWS,
	SIZE_ZERO,
	BASE_K_ABOVE_TOP_K,
	SELECTION_NULL,
	N_WRONG_SELECTIONS,
};

static void make_wrong(struct moetrace_selection *selection, enum wrong_selection wrong,
		       uint32_t rule)
{
	switch (wrong) {
	case LAYER_INDEX:
		selection->layer_index = 1;
		break;
	case LAYER_INDEX_FAR:
		selection->layer_index = UINT32_MAX;
		break;
	case FEW_ROWS:
		selection->n_rows = 1;
		break;
	case MANY_ROWS:
		selection->n_rows = 3;
		break;
	case PADDING_THAT_IS_NOT_THERE:
		selection->n_rows = 10;
		break;
	case K_ABOVE_TOP_K:
		selection->k = 3;
		break;
	case K_HUGE:
		selection->k = UINT32_MAX;
		break;
	case ID_TYPE_NONE:
		selection->id_type = MOETRACE_TYPE_NONE;
		break;
	case ID_TYPE_FLOAT:
		selection->id_type = MOETRACE_TYPE_BF16;
		break;
	case ID_TYPE_UNKNOWN:
		selection->id_type = 12;
		break;
	case IDS_NULL:
		selection->ids = NULL;
		break;
	case WEIGHT_TYPE_INTEGER:
		selection->weight_type = MOETRACE_TYPE_U16;
		break;
	case WEIGHT_TYPE_UNKNOWN:
		selection->weight_type = 12;
		break;
	case WEIGHTS_NULL:
		selection->weights = NULL;
		break;
	case ORDER_UNKNOWN:
		selection->order = 3;
		break;
	case MAP_FALLS:
		selection->row_map = falling_map;
		break;
	case MAP_REPEATS:
		selection->row_map = equal_map;
		break;
	case MAP_LEAVES_THE_PASS:
		selection->row_map = far_map;
		break;
	case MAP_WITH_TOO_MANY_ROWS:
		selection->row_map = far_map;
		selection->n_rows = 3;
		break;
	case SIZE_ZERO:
		selection->size = 0;
		break;
	case BASE_K_ABOVE_TOP_K:
		selection->rule = rule;
		selection->base_ids = right_ids;
		selection->base_k = 3;
		break;
	default:
		break;
	}
}

/* The wrong call leaves the layer free for the right one. */
START_TEST(test_misuse_of_select)
{
	struct toy toy = toy_start("select.db", NULL, 1, 64, 2);
	const struct moetrace_slice slice = {.n_rows = 2};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	struct moetrace_selection selection;
	uint32_t rule;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_rule_add(toy.session, "rule", &rule), MOETRACE_OK);
	MOETRACE_INIT(&selection);
	selection.n_rows = 2;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = right_ids;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = right_weights;
	make_wrong(&selection, _i, rule);
	moetrace_select_experts(pass, _i == SELECTION_NULL ? NULL : &selection);
	toy_select_ids(pass, 0, 2, 0, right_ids);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_msg(db_stat(db, 1, "misuse") == 1, "wrong selection %d is not counted", _i);
	ck_assert_int_eq(db_stat(db, 1, "duplicate_layers"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT hex(topk_ids) FROM topk"), "01020304");
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'pass'"), 1);
	db_close(db);
}
END_TEST

/* A thousand equal mistakes are one diagnostic that says a thousand times. */
START_TEST(test_misuse_is_told_once)
{
	struct toy toy = toy_start("often.db", NULL, 1, 64, 2);
	sqlite3 *db;
	uint32_t i;

	for (i = 0; i < 1000; i++)
		ck_assert_ptr_null(moetrace_pass_begin(toy.session, NULL));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1000);
	ck_assert_int_eq(db_int(db, "SELECT n_times FROM diagnostic WHERE source = 'pass'"), 1000);
	db_close(db);
}
END_TEST

/* With a session that did not open, or that is idle, the hot path does nothing. */
START_TEST(test_null_handles)
{
	struct toy toy = toy_open("idle.db", NULL, 1, 64, 2);
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	ck_assert_ptr_null(moetrace_pass_begin(NULL, &info));
	ck_assert_ptr_null(moetrace_pass_begin(NULL, NULL));
	ck_assert_ptr_null(toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1));
	moetrace_select_experts(NULL, NULL);
	toy_select_ids(NULL, 0, 2, 0, right_ids);
	moetrace_pass_end(NULL);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 0);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("misuse");
	TCase *misuse = tcase_create("misuse");

	tcase_add_loop_test(misuse, test_misuse_of_begin, 0,
			    sizeof(wrong_passes) / sizeof(wrong_passes[0]));
	tcase_add_test(misuse, test_misuse_of_begin_without_info);
	tcase_add_loop_test(misuse, test_misuse_of_select, 0, N_WRONG_SELECTIONS);
	tcase_add_test(misuse, test_misuse_is_told_once);
	tcase_add_test(misuse, test_null_handles);
	suite_add_tcase(suite, misuse);
	return suite_run(suite);
}
