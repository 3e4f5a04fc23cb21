/* SPDX-License-Identifier: MIT */
/*
 * Rules: what a rule chose is stored beside what the router had chosen before it. The expected
 * bytes are written out by hand.
 */
#include <stdlib.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* Two rows of top-2 whose second entry the rule takes away or exchanges. */
static const int32_t base_ids[] = { 5, 9, 7, 200 };
static const int32_t rule_ids[] = { 5, -1, 7, 9 };

static struct moetrace_pass *begin_rows(const struct toy *toy, uint32_t n_rows)
{
	const struct moetrace_slice slice = { .n_rows = n_rows };
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);

	ck_assert_ptr_nonnull(pass);
	return pass;
}

static struct moetrace_selection ruled(uint32_t rule)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.n_rows = 2;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = rule_ids;
	selection.base_ids = base_ids;
	selection.rule = rule;
	return selection;
}

static sqlite3 *finish(struct toy *toy, struct moetrace_pass *pass,
		       const struct moetrace_selection *selection)
{
	sqlite3 *db;

	moetrace_select_experts(pass, selection);
	moetrace_pass_end(pass);
	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	return db;
}

START_TEST(test_rule_add)
{
	struct toy toy = toy_start("rule.db", NULL, 1, 256, 2);
	uint32_t first = 7, second = 7, none = 7;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_rule_add(toy.session, "oea:k0=1", &first), MOETRACE_OK);
	ck_assert_int_eq(moetrace_rule_add(toy.session, "budget:4", &second), MOETRACE_OK);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_ne(first, second);
	ck_assert_int_eq(moetrace_rule_add(toy.session, "", &none), MOETRACE_E_INVALID);
	ck_assert_uint_eq(none, 0);
	ck_assert_int_eq(moetrace_rule_add(toy.session, NULL, &none), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_rule_add(NULL, "x", &none), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_rule_add(toy.session, "x", NULL), MOETRACE_E_INVALID);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name) FROM (SELECT name FROM rule"
				 " ORDER BY rule_id)"), "oea:k0=1,budget:4");
	ck_assert_int_eq(db_int(db, "SELECT rule_id FROM rule WHERE name = 'budget:4'"), second);
	db_close(db);
}
END_TEST

START_TEST(test_base_ids)
{
	struct toy toy = toy_start("base.db", NULL, 1, 256, 2);
	struct moetrace_pass *pass = begin_rows(&toy, 2);
	struct moetrace_selection selection;
	uint32_t rule;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_rule_add(toy.session, "oea:k0=1", &rule), MOETRACE_OK);
	selection = ruled(rule);
	db = finish(&toy, pass, &selection);
	ck_assert_str_eq(db_text(db, "SELECT hex(topk_ids) FROM topk"), "05000709");
	ck_assert_str_eq(db_text(db, "SELECT hex(n_valid) FROM topk"), "0102");
	ck_assert_str_eq(db_text(db, "SELECT hex(base_ids) FROM topk"), "050907C8");
	ck_assert_int_eq(db_int(db, "SELECT base_k FROM topk"), 2);
	ck_assert_str_eq(db_text(db, "SELECT name FROM topk JOIN rule USING (rule_id)"), "oea:k0=1");
	/* Load and active experts are those of what ran. */
	ck_assert_int_eq(db_int(db, "SELECT active_experts FROM pass_layer"), 3);
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load"), 3);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* Two bytes an id, rows apart, a rule that gives more experts than the router's top-k. */
START_TEST(test_wide_and_strided)
{
	static const int32_t wide[] = { 1, 2, 299, 3, 4, 5 };
	static const int32_t base[] = { 1, 2, -7, 299, 4, -7 };
	struct toy toy = toy_start("wide.db", NULL, 1, 300, 2);
	struct moetrace_pass *pass = begin_rows(&toy, 2);
	struct moetrace_selection selection;
	uint32_t rule;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_rule_add(toy.session, "expand:margin=1,kmax=3", &rule),
			 MOETRACE_OK);
	selection = ruled(rule);
	selection.ids = wide;
	selection.k = 3;
	selection.base_ids = base;
	selection.base_ids_row_bytes = 3 * sizeof(int32_t);
	db = finish(&toy, pass, &selection);
	ck_assert_str_eq(db_text(db, "SELECT hex(topk_ids) FROM topk"), "010002002B01030004000500");
	ck_assert_str_eq(db_text(db, "SELECT hex(base_ids) FROM topk"), "010002002B010400");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* Padding rows have no base; rows of different rules do not share a run. */
START_TEST(test_padding_and_runs)
{
	static const int32_t padded[] = { 5, -1, 7, 9, -1, -1 };
	struct toy toy = toy_start("runs.db", NULL, 1, 64, 2);
	const struct moetrace_slice slice = { .n_rows = 2 };
	struct moetrace_selection selection;
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	uint32_t rules[2];
	static const int32_t base[] = { 5, 9, 7, 20 };
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 2;
	info.padding_rows = 1;
	info.slices = &slice;
	info.n_slices = 1;
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(moetrace_rule_add(toy.session, "oea:k0=1", &rules[i]), MOETRACE_OK);
		pass = moetrace_pass_begin(toy.session, &info);
		selection = ruled(rules[i]);
		selection.n_rows = 3;
		selection.ids = padded;
		selection.base_ids = base;
		moetrace_select_experts(pass, &selection);
		moetrace_pass_end(pass);
	}
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT topk_id) FROM pass_layer"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE hex(base_ids) = '05090714'"), 2);
	db_close(db);
}
END_TEST

struct wrong_base {
	uint32_t rule_offset;
	int32_t last_base;
};
/* A rule that was not added; base ids without a rule; a base row that is not whole. */
static const struct wrong_base wrong_bases[] = { { 1, 200 }, { UINT32_MAX, 200 }, { 0, -1 }, { 0, 256 } };

START_TEST(test_wrong_base)
{
	const struct wrong_base *wrong = &wrong_bases[_i];
	const int32_t base[] = { 5, 9, 7, wrong->last_base };
	struct toy toy = toy_start("wrong.db", NULL, 1, 256, 2);
	struct moetrace_pass *pass = begin_rows(&toy, 2);
	struct moetrace_selection selection;
	uint32_t rule;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_rule_add(toy.session, "oea:k0=1", &rule), MOETRACE_OK);
	selection = ruled(rule + wrong->rule_offset);
	selection.base_ids = base;
	db = finish(&toy, pass, &selection);
	/* The rows themselves are stored; what the router had chosen is unknown. */
	ck_assert_str_eq(db_text(db, "SELECT hex(topk_ids) FROM topk"), "05000709");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE base_ids IS NULL AND"
				" base_k IS NULL"), 1);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rule");
	TCase *rules = tcase_create("rules");

	tcase_add_test(rules, test_rule_add);
	tcase_add_test(rules, test_base_ids);
	tcase_add_test(rules, test_wide_and_strided);
	tcase_add_test(rules, test_padding_and_runs);
	tcase_add_loop_test(rules, test_wrong_base, 0,
			    (int)(sizeof(wrong_bases) / sizeof(wrong_bases[0])));
	suite_add_tcase(suite, rules);
	return suite_run(suite);
}
