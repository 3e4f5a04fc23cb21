/* SPDX-License-Identifier: MIT */
/*
 * Selections in no particular order: the recorder restores the order of the selection, as an
 * ordered twin of the same choice has it, wherever weights, bias or scores tell it; rows in which
 * scores tie are put in order by lower id and counted. The choice itself is made here, in the
 * plainest way, from random scores.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

#define N_ROWS	      40
#define MAX_EXPERTS   520
#define MAX_K	      22
#define N_CANDIDATES  30
#define UNKNOWN_ORDER 2

/* A layer and how its choice is shown. */
struct form {
	const char *name;
	uint32_t n_experts;
	uint32_t n_shared_slots;
	uint32_t top_k; /* shared slots included */
	uint32_t kind;
	uint32_t scoring;
	uint32_t correction_bias;
	bool tells_bias;
	uint32_t weight_kind;
	double scale;
	uint32_t weight_type;
	bool has_candidates;
	uint32_t n_levels; /* of scores, so that some tie; 0: any */
	bool is_restored;
};

static const struct form forms[] = {
	{"by weight", 64, 0, 8, 0, 0, MOETRACE_NO, false, MOETRACE_WEIGHT_RENORMALIZED, 0,
	 MOETRACE_TYPE_F32, false, 0, true},
	{"by weight of 22 of 512", 512, 0, 22, 0, 0, MOETRACE_NO, false, MOETRACE_WEIGHT_UNKNOWN, 0,
	 MOETRACE_TYPE_F32, false, 0, true},
	{"of 255", 255, 0, 4, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32, false, 0, true},
	{"of 256", 256, 0, 4, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32, false, 0, true},
	{"of 257", 257, 0, 4, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32, false, 0, true},
	{"by weight with ties", 64, 0, 8, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32, false,
	 20, true},
	{"with a shared slot", 64, 1, 9, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32, false, 0,
	 true},
	{"by raw weight and bias", 64, 0, 8, 0, 0, MOETRACE_YES, true, MOETRACE_WEIGHT_RAW, 0,
	 MOETRACE_TYPE_F32, false, 0, true},
	{"by scaled weight and bias", 64, 0, 8, 0, 0, MOETRACE_YES, true, MOETRACE_WEIGHT_SCALED, 2.5,
	 MOETRACE_TYPE_F32, false, 0, true},
	{"by scores and bias", 64, 0, 8, 0, 0, MOETRACE_YES, true, MOETRACE_WEIGHT_RENORMALIZED, 0,
	 MOETRACE_TYPE_F32, true, 0, true},
	{"by scores without weights", 64, 0, 8, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_NONE,
	 true, 0, true},
	{"by scores of 300", 300, 0, 6, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32, true, 0,
	 true},
	{"renormalized with bias", 64, 0, 8, 0, 0, MOETRACE_YES, true, MOETRACE_WEIGHT_RENORMALIZED,
	 0, MOETRACE_TYPE_F32, false, 0, false},
	{"scaled and renormalized with bias", 64, 0, 8, 0, 0, MOETRACE_YES, true,
	 MOETRACE_WEIGHT_RENORMALIZED | MOETRACE_WEIGHT_SCALED, 2.5, MOETRACE_TYPE_F32, false, 0,
	 false},
	{"bias not told", 64, 0, 8, 0, 0, MOETRACE_YES, false, MOETRACE_WEIGHT_RAW, 0,
	 MOETRACE_TYPE_F32, true, 0, false},
	{"bias unknown", 64, 0, 8, 0, 0, MOETRACE_UNKNOWN, false, MOETRACE_WEIGHT_RAW, 0,
	 MOETRACE_TYPE_F32, false, 0, false},
	{"no weights", 64, 0, 8, 0, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_NONE, false, 0, false},
	{"hash", 64, 0, 8, MOETRACE_LAYER_HASH, 0, MOETRACE_NO, false, 0, 0, MOETRACE_TYPE_F32,
	 false, 0, false},
	{"sparsemixer", 64, 0, 8, 0, MOETRACE_SCORING_SPARSEMIXER, MOETRACE_NO, false, 0, 0,
	 MOETRACE_TYPE_F32, false, 0, false},
};

struct row {
	float scores[MAX_EXPERTS];
	float keys[MAX_EXPERTS];
	int32_t best[MAX_EXPERTS]; /* routed experts by descending key, then lower id */
};

struct choice {
	const struct form *form;
	float bias[MAX_EXPERTS];
	struct row rows[N_ROWS];
	int64_t n_tied;
};

static const struct row *sorted_row;

static int compare_ids(const void *a_pointer, const void *b_pointer)
{
	const int32_t a = *(const int32_t *)a_pointer, b = *(const int32_t *)b_pointer;
	const float key_a = sorted_row->keys[a], key_b = sorted_row->keys[b];

	if (key_a != key_b)
		return key_a > key_b ? -1 : 1;
	return (a > b) - (a < b);
}

static float random_score(struct rng *rng, uint32_t n_levels)
{
	if (n_levels)
		return (float)(1 + rng_below(rng, n_levels)) / (float)n_levels;
	return (float)(1 + (rng_next(rng) >> 42)) * 0x1p-22f;
}

static void choose(struct rng *rng, const struct form *form, struct choice *choice)
{
	const uint32_t k = form->top_k - form->n_shared_slots;
	uint32_t i, id;

	memset(choice, 0, sizeof(*choice));
	choice->form = form;
	for (id = 0; id < form->n_experts; id++)
		choice->bias[id] = form->correction_bias == MOETRACE_YES
					   ? random_score(rng, 0) - 0.5f
					   : 0;
	for (i = 0; i < N_ROWS; i++) {
		struct row *row = &choice->rows[i];
		bool tied = false;

		for (id = 0; id < form->n_experts; id++) {
			row->scores[id] = random_score(rng, form->n_levels);
			row->keys[id] = row->scores[id] + choice->bias[id];
			row->best[id] = (int32_t)id;
		}
		sorted_row = row;
		qsort(row->best, form->n_experts, sizeof(*row->best), compare_ids);
		for (id = 1; id < k; id++)
			tied |= row->keys[row->best[id - 1]] == row->keys[row->best[id]];
		choice->n_tied += tied;
	}
}

/* The weight of an expert of a row, on the scale of the form. */
static float weight_of(const struct choice *choice, uint32_t row, int32_t id)
{
	const struct form *form = choice->form;
	float weight, sum = 0;
	uint32_t i;

	if ((uint32_t)id >= form->n_experts)
		return 1.0f; /* a shared slot */
	weight = choice->rows[row].scores[id];
	if (form->weight_kind & MOETRACE_WEIGHT_RENORMALIZED) {
		for (i = 0; i < form->top_k - form->n_shared_slots; i++)
			sum += choice->rows[row].scores[choice->rows[row].best[i]];
		weight /= sum;
	}
	return form->weight_kind & MOETRACE_WEIGHT_SCALED ? weight * (float)form->scale : weight;
}

static void shuffle(struct rng *rng, int32_t *ids, uint32_t n)
{
	uint32_t i;

	for (i = n; i > 1; i--) {
		const uint32_t j = rng_below(rng, i);
		const int32_t kept = ids[i - 1];

		ids[i - 1] = ids[j];
		ids[j] = kept;
	}
}

struct shown {
	int32_t ids[N_ROWS][MAX_K];
	float weights[N_ROWS][MAX_K];
	int32_t candidate_ids[N_ROWS][N_CANDIDATES];
	float candidate_scores[N_ROWS][N_CANDIDATES];
};

/* The rows as they are, or with their entries (and candidates) in any order. */
static void show(struct rng *rng, const struct choice *choice, bool is_shuffled, struct shown *shown)
{
	const struct form *form = choice->form;
	uint32_t row, i;

	for (row = 0; row < N_ROWS; row++) {
		int32_t *ids = shown->ids[row];

		for (i = 0; i < form->top_k; i++)
			ids[i] = i < form->top_k - form->n_shared_slots
					 ? choice->rows[row].best[i]
					 : (int32_t)(form->n_experts + i -
						     (form->top_k - form->n_shared_slots));
		for (i = 0; i < N_CANDIDATES; i++)
			shown->candidate_ids[row][i] = choice->rows[row].best[i];
		if (is_shuffled) {
			shuffle(rng, ids, form->top_k);
			shuffle(rng, shown->candidate_ids[row], N_CANDIDATES);
		}
		for (i = 0; i < form->top_k; i++)
			shown->weights[row][i] = weight_of(choice, row, ids[i]);
		for (i = 0; i < N_CANDIDATES; i++)
			shown->candidate_scores[row][i] =
				choice->rows[row].scores[shown->candidate_ids[row][i]];
	}
}

static uint32_t add_model(struct moetrace_session *session, const struct choice *choice)
{
	const struct form *form = choice->form;
	struct moetrace_layer_info layer;
	struct moetrace_model_info info;
	uint32_t model;

	MOETRACE_INIT(&layer);
	layer.layer = 3; /* dense layers first */
	layer.kind = form->kind;
	layer.n_experts = form->n_experts;
	layer.n_shared_slots = form->n_shared_slots;
	layer.top_k = form->top_k;
	layer.scoring = form->scoring;
	layer.correction_bias = form->correction_bias;
	layer.weight_kind = form->weight_kind;
	layer.routed_scaling_factor = form->scale;
	layer.bias_values = form->tells_bias ? choice->bias : NULL;
	MOETRACE_INIT(&info);
	info.name = form->name;
	info.layers = &layer;
	info.n_moe_layers = 1;
	ck_assert_int_eq(moetrace_model_add(session, &info, &model), MOETRACE_OK);
	return model;
}

static void record(const struct toy *toy, const struct form *form, const struct shown *shown,
		   uint32_t order)
{
	const struct moetrace_slice slice = {.n_rows = N_ROWS};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.n_rows = N_ROWS;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = shown->ids;
	selection.ids_row_bytes = sizeof(shown->ids[0]);
	selection.weight_type = form->weight_type;
	selection.weights = form->weight_type ? shown->weights : NULL;
	selection.weights_row_bytes = sizeof(shown->weights[0]);
	selection.order = order;
	if (form->has_candidates) {
		selection.n_candidates = N_CANDIDATES;
		selection.candidate_ids = shown->candidate_ids;
		selection.candidate_scores = shown->candidate_scores;
		selection.candidate_score_type = MOETRACE_TYPE_F32;
	}
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
}

static const char *rows_of(sqlite3 *db, int64_t pass_id, const char *column)
{
	return db_text(db,
		       "SELECT hex(substr(%s, 1 + topk_row * k * %s, n * k * %s)) FROM (SELECT *,"
		       " pl.n_rows AS n FROM pass_layer AS pl JOIN topk USING (topk_id) WHERE"
		       " pass_id = %lld)",
		       column, strcmp(column, "topk_ids") == 0 ? "id_bytes" : "2",
		       strcmp(column, "topk_ids") == 0 ? "id_bytes" : "2", (long long)pass_id);
}

/* The bytes of an fp32 as they lie in a file. */
static const char *le_hex(float value)
{
	static char text[9];
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	snprintf(text, sizeof(text), "%02X%02X%02X%02X", bits & 255, bits >> 8 & 255,
		 bits >> 16 & 255, bits >> 24);
	return text;
}

/* Pass 1 is the ordered twin, pass 2 is in any order. */
START_TEST(test_unordered_is_restored_to_its_twin)
{
	const struct form *form = &forms[_i];
	struct choice *choice = malloc(sizeof(*choice));
	struct shown *shown = calloc(1, sizeof(*shown));
	struct rng rng = {.state = 100u + (uint64_t)_i};
	struct toy toy = toy_open("order.db", NULL, 1, 4, 1);
	const char *columns[] = {"topk_ids", "topk_weights"};
	sqlite3 *db;
	uint32_t i;

	choose(&rng, form, choice);
	toy.model = add_model(toy.session, choice);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	show(&rng, choice, false, shown);
	record(&toy, form, shown, MOETRACE_ORDER_SELECTION);
	show(&rng, choice, true, shown);
	record(&toy, form, shown, MOETRACE_ORDER_UNORDERED);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	ck_assert_int_eq(db_int(db, "SELECT selection_order FROM pass_layer WHERE pass_id = 2"),
			 form->is_restored ? 1 : UNKNOWN_ORDER);
	ck_assert_int_eq(db_int(db, "SELECT ifnull(tied_rows, -1) FROM pass_layer WHERE pass_id = 2"),
			 form->is_restored ? choice->n_tied : -1);
	if (form->n_levels)
		ck_assert_int_gt(choice->n_tied, 0);
	for (i = 0; i < (form->weight_type ? 2u : 1u); i++) {
		char *twin = strdup(rows_of(db, 1, columns[i]));

		if (form->is_restored)
			ck_assert_str_eq(rows_of(db, 2, columns[i]), twin);
		else
			ck_assert_str_ne(rows_of(db, 2, columns[i]), twin);
		free(twin);
	}
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT max_load, active_experts FROM"
				    " pass_layer GROUP BY 1, 2)"),
			 1);
	if (form->has_candidates)
		ck_assert_int_eq(db_int(db, "SELECT min(n_candidates) FROM topk"), N_CANDIDATES);
	if (form->tells_bias)
		for (i = 0; i < form->n_experts; i++)
			ck_assert_str_eq(db_text(db, "SELECT hex(substr(bias_values, %u, 4)) FROM"
						     " layer ORDER BY layer_id DESC LIMIT 1",
						 4 * i + 1),
					 le_hex(choice->bias[i]));
	else
		ck_assert_int_eq(db_int(db, "SELECT count(bias_values) FROM layer"), 0);
	db_close(db);
	free(choice);
	free(shown);
}
END_TEST

/* Where one row cannot be put in order, the layer's order is unknown and its rows are as passed. */
START_TEST(test_a_row_without_a_key_leaves_all_rows)
{
	struct choice *choice = malloc(sizeof(*choice));
	struct shown *shown = calloc(1, sizeof(*shown));
	struct rng rng = {.state = 7};
	struct toy toy = toy_open("nan.db", NULL, 1, 4, 1);
	sqlite3 *db;
	uint32_t i;

	choose(&rng, &forms[0], choice);
	toy.model = add_model(toy.session, choice);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	show(&rng, choice, true, shown);
	memset(&shown->weights[5][2], 0xff, sizeof(float)); /* not a number */
	record(&toy, &forms[0], shown, MOETRACE_ORDER_UNORDERED);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT selection_order FROM pass_layer"), UNKNOWN_ORDER);
	for (i = 0; i < forms[0].top_k; i++)
		ck_assert_int_eq(db_int(db, "SELECT value FROM byte WHERE byte = (SELECT"
					    " substr(topk_ids, %u, 1) FROM topk)",
					5 * forms[0].top_k + i + 1),
				 shown->ids[5][i]);
	db_close(db);
	free(choice);
	free(shown);
}
END_TEST

/* Candidates that lack a selected expert tell nothing; the weights do. */
START_TEST(test_candidates_without_a_selected_expert)
{
	struct form form = forms[0];
	struct choice *choice = malloc(sizeof(*choice));
	struct shown *shown = calloc(1, sizeof(*shown));
	struct rng rng = {.state = 8};
	struct toy toy = toy_open("others.db", NULL, 1, 4, 1);
	sqlite3 *db;

	form.has_candidates = true;
	choose(&rng, &form, choice);
	toy.model = add_model(toy.session, choice);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	show(&rng, choice, true, shown);
	shown->candidate_ids[3][0] = choice->rows[3].best[N_CANDIDATES];
	record(&toy, &form, shown, MOETRACE_ORDER_UNORDERED);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT selection_order FROM pass_layer"), 1);
	db_close(db);
	free(choice);
	free(shown);
}
END_TEST

/* A candidate that is no expert takes them all from the layer, and is misuse. */
START_TEST(test_candidate_that_is_no_expert)
{
	struct form form = forms[0];
	struct choice *choice = malloc(sizeof(*choice));
	struct shown *shown = calloc(1, sizeof(*shown));
	struct rng rng = {.state = 9};
	struct toy toy = toy_open("none.db", NULL, 1, 4, 1);
	sqlite3 *db;

	form.has_candidates = true;
	choose(&rng, &form, choice);
	toy.model = add_model(toy.session, choice);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	show(&rng, choice, true, shown);
	shown->candidate_ids[3][0] = 64;
	record(&toy, &form, shown, MOETRACE_ORDER_SELECTION);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE candidate_ids IS NULL"), 1);
	ck_assert_int_eq(db_int(db, "SELECT state FROM pass_layer"), 0);
	db_close(db);
	free(choice);
	free(shown);
}
END_TEST

/* Without weights there are no scores, and so no candidates; who does more than tell the order by
   them hears of it. */
START_TEST(test_candidates_without_weights)
{
	struct form form = forms[0];
	struct choice *choice = malloc(sizeof(*choice));
	struct shown *shown = calloc(1, sizeof(*shown));
	struct rng rng = {.state = 10};
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;

	opts.weight_format = MOETRACE_WEIGHT_FORMAT_NONE;
	toy = toy_open("bare.db", &opts, 1, 4, 1);
	form.has_candidates = true;
	choose(&rng, &form, choice);
	toy.model = add_model(toy.session, choice);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	show(&rng, choice, _i, shown);
	record(&toy, &form, shown, _i ? MOETRACE_ORDER_UNORDERED : MOETRACE_ORDER_SELECTION);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), !_i);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE"
				    " '%%no weights%%' AND n_times = 1"),
			 !_i);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE candidate_ids IS NULL"), 1);
	db_close(db);
	free(choice);
	free(shown);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("order");
	TCase *order = tcase_create("order");

	tcase_set_timeout(order, 60);
	tcase_add_loop_test(order, test_unordered_is_restored_to_its_twin, 0,
			    sizeof(forms) / sizeof(forms[0]));
	tcase_add_test(order, test_a_row_without_a_key_leaves_all_rows);
	tcase_add_test(order, test_candidates_without_a_selected_expert);
	tcase_add_test(order, test_candidate_that_is_no_expert);
	tcase_add_loop_test(order, test_candidates_without_weights, 0, 2);
	suite_add_tcase(suite, order);
	return suite_run(suite);
}
