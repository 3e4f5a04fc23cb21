/* SPDX-License-Identifier: MIT */
/*
 * The sweep over all k0 against the definition's sets, k0 by k0, on random batches of every form;
 * and what must hold of any batch: a single row, identical rows, uniform choices.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schema/functions/oea_rules.h"
#include "schema/functions/oea_sweep.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"

#define MAX_ROWS 130
#define MAX_K	 12

static uint8_t ids[MAX_ROWS * MAX_K * 2], weights[MAX_ROWS * MAX_K * 2];
static uint8_t n_valid[MAX_ROWS], rows[MAX_ROWS];
static uint32_t bins[MT_OEA_MAX_K * MT_OEA_N_BINS], want_bins[MT_OEA_MAX_K * MT_OEA_N_BINS];
static struct mt_oea_scratch scratch;
static struct mt_oea_result got, want;

static uint32_t id_at(const struct mt_oea_batch *batch, size_t i)
{
	return batch->id_bytes == 1 ? batch->ids[i]
				    : (uint32_t)(batch->ids[2 * i] | batch->ids[2 * i + 1] << 8);
}

static size_t n_of(const struct mt_oea_batch *batch, size_t r)
{
	return batch->n_valid ? batch->n_valid[r] : batch->k;
}

static bool is_changed(const struct mt_oea_batch *batch, size_t r)
{
	return !batch->rows || !(batch->rows[r] & MT_OEA_ROW_KEPT);
}

/* ---- the definition ---- */

/* Marks the union of all rows' best k0; returns how many experts it has. */
static uint32_t unite(const struct mt_oea_batch *batch, size_t k0, uint8_t *is_in)
{
	uint32_t n = 0;

	memset(is_in, 0, 65536);
	for (size_t r = 0; r < batch->n_rows; r++)
		for (size_t j = 0; j < n_of(batch, r); j++)
			if (j < k0 || !is_changed(batch, r))
				is_in[id_at(batch, r * batch->k + j)] = 1;
	for (uint32_t e = 0; e < batch->n_experts; e++)
		n += is_in[e];
	memset(is_in + batch->n_experts, 1, 65536 - batch->n_experts);
	return n;
}

static void count_row(const struct mt_oea_batch *batch, size_t r, size_t k0, const uint8_t *is_in,
		      struct mt_oea_result *result)
{
	float total = 0.0f, lost = 0.0f;
	size_t bin;

	for (size_t j = 0; j < n_of(batch, r); j++) {
		const size_t at = r * batch->k + j;
		const bool survives = is_in[id_at(batch, at)];
		float weight = 0.0f;

		if (batch->weights)
			weight = mt_oea_weight(batch->weights + 2 * at, batch->is_bf16);
		result->survivors[k0 - 1] += survives;
		total += weight;
		lost += survives ? 0.0f : weight;
	}
	if (!(total > MT_OEA_MIN_WEIGHT && total < MT_OEA_MAX_WEIGHT) ||
	    (batch->rows && (batch->rows[r] & MT_OEA_ROW_UNRATED)))
		return;
	result->n_rated_rows += k0 == 1;
	result->lost[k0 - 1] += (double)(lost / total);
	bin = (size_t)(lost / total * MT_OEA_N_BINS);
	want_bins[(k0 - 1) * MT_OEA_N_BINS + (bin < MT_OEA_N_BINS ? bin : MT_OEA_N_BINS - 1)]++;
}

static void define(const struct mt_oea_batch *batch, struct mt_oea_result *result)
{
	static uint8_t is_in[65536];

	memset(result, 0, sizeof(*result));
	memset(want_bins, 0, sizeof(want_bins));
	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		result->active[k0 - 1] = unite(batch, k0, is_in);
		for (size_t r = 0; r < batch->n_rows; r++) {
			if (!is_changed(batch, r))
				continue;
			result->n_entries += k0 == 1 ? n_of(batch, r) : 0;
			result->n_changed_rows += k0 == 1;
			count_row(batch, r, k0, is_in, result);
		}
	}
}

/* ---- batches ---- */

static void put(uint8_t *array, size_t i, uint32_t value)
{
	array[2 * i] = (uint8_t)value;
	array[2 * i + 1] = (uint8_t)(value >> 8);
}

static void draw_row(struct rng *rng, const struct mt_oea_batch *batch, size_t r, uint32_t n_ids)
{
	for (size_t j = 0; j < batch->k; j++) {
		const size_t at = r * batch->k + j;
		uint32_t id;
		size_t i;

		do {
			id = rng_below(rng, n_ids);
			for (i = 0; i < j && id_at(batch, r * batch->k + i) != id; i++)
				;
		} while (i < j);
		if (batch->id_bytes == 1)
			ids[at] = (uint8_t)id;
		else
			put(ids, at, id);
		/* Halves from 2^-6 down to denormal ones; bf16 of the same bits is tiny, too. */
		put(weights, at, rng_chance(rng, 5) ? rng_below(rng, 64) : rng_below(rng, 0x2400));
	}
}

static struct mt_oea_batch draw_batch(struct rng *rng, size_t k, size_t n_rows, bool is_common)
{
	const size_t id_bytes = is_common || rng_chance(rng, 60) ? 1 : 2;
	struct mt_oea_batch batch = {
		.ids = ids,
		.weights = is_common || rng_chance(rng, 80) ? weights : NULL,
		.n_valid = is_common || rng_chance(rng, 60) ? NULL : n_valid,
		.rows = is_common || rng_chance(rng, 60) ? NULL : rows,
		.n_rows = n_rows,
		.k = k,
		.id_bytes = id_bytes,
		.n_experts = 16 + rng_below(rng, id_bytes == 1 ? 240 : 500),
		.is_bf16 = !is_common && rng_chance(rng, 40),
	};
	/* Sometimes there are ids behind those that hold weights. */
	const uint32_t n_ids = batch.n_experts + (batch.n_experts < 200 && !is_common ? 3 : 0);

	for (size_t r = 0; r < n_rows; r++) {
		draw_row(rng, &batch, r, n_ids);
		n_valid[r] = (uint8_t)rng_below(rng, (uint32_t)k + 1);
		rows[r] = (uint8_t)rng_below(rng, 4);
	}
	return batch;
}

static void expect_same(const struct mt_oea_batch *batch)
{
	memset(bins, 0, sizeof(bins));
	mt_oea_sweep(batch, &scratch, bins, &got);
	define(batch, &want);
	ck_assert_uint_eq(got.n_entries, want.n_entries);
	ck_assert_uint_eq(got.n_changed_rows, want.n_changed_rows);
	ck_assert_uint_eq(got.n_rated_rows, want.n_rated_rows);
	for (size_t j = 0; j < batch->k; j++) {
		uint64_t n_below = 0, n_want_below = 0;

		ck_assert_uint_eq(got.active[j], want.active[j]);
		ck_assert_uint_eq(got.survivors[j], want.survivors[j]);
		ck_assert_double_le(fabs(got.lost[j] - want.lost[j]),
				    1e-5 * (1 + (double)batch->n_rows));
		/* A row whose loss lies on a border may be one bin off. */
		for (size_t i = 0; j + 1 < batch->k && i < MT_OEA_N_BINS; i++) {
			const uint64_t n_here = want_bins[j * MT_OEA_N_BINS + i];
			const uint64_t n_next = i + 1 < MT_OEA_N_BINS
							? want_bins[j * MT_OEA_N_BINS + i + 1]
							: 0;

			n_below += bins[j * MT_OEA_N_BINS + i];
			ck_assert_uint_le(n_below, n_want_below + n_here + n_next);
			n_want_below += n_here;
			ck_assert_uint_le(n_want_below - n_here, n_below);
		}
	}
}

/* ---- tests ---- */

START_TEST(test_sweep_random)
{
	static const size_t sizes[] = {1, 2, 5, 16, 30, 31, 32, 62, 63, MAX_ROWS};
	struct rng rng = {.state = (uint64_t)_i + 1};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const bool is_common = _i % 2 == 0;
		const size_t k = is_common ? 8 : 1 + rng_below(&rng, MAX_K);
		const struct mt_oea_batch batch = draw_batch(&rng, k, sizes[i], is_common);

		expect_same(&batch);
	}
}
END_TEST

/* Weights that are no numbers, infinite, zero or negative: such rows are not rated, in any form. */
START_TEST(test_sweep_bad_weights)
{
	static const uint16_t bad[] = {0x7e00, 0x7c00, 0xfe01, 0xfc00};
	struct rng rng = {.state = 7};
	struct mt_oea_batch batch = draw_batch(&rng, 8, 40, true);

	memset(weights, 0, 16);
	for (size_t i = 0; i < 4; i++)
		put(weights, 8 * (i + 1) + i, bad[i]);
	expect_same(&batch);
	ck_assert_uint_eq(got.n_rated_rows, 35);
}
END_TEST

/* A batch of one row loads k0 experts and only loses; identical rows are the same as one. */
START_TEST(test_sweep_alike)
{
	struct rng rng = {.state = 3};
	struct mt_oea_batch batch = draw_batch(&rng, 8, 1, true);

	for (size_t r = 1; r < 33; r++) {
		memcpy(ids + 8 * r, ids, 8);
		memcpy(weights + 16 * r, weights, 16);
	}
	for (batch.n_rows = 1; batch.n_rows <= 33; batch.n_rows += 32) {
		expect_same(&batch);
		for (size_t k0 = 1; k0 <= 8; k0++) {
			ck_assert_uint_eq(got.active[k0 - 1], k0);
			ck_assert_uint_eq(got.survivors[k0 - 1], k0 * batch.n_rows);
		}
	}
}
END_TEST

/* 128 experts, top-8, 16 rows: n * (1 - (1 - k0 / n)^rows), within 4 standard errors. */
START_TEST(test_sweep_uniform)
{
	const double expected[][2] = {{8, 82.4}, {3, 40.4}, {5, 60.3}};
	const int n_batches = 4000;
	double sums[8] = {0};
	struct rng rng = {.state = 11};
	struct mt_oea_batch batch = draw_batch(&rng, 8, 16, true);

	batch.n_experts = 128;
	for (int i = 0; i < n_batches; i++) {
		for (size_t r = 0; r < 16; r++)
			draw_row(&rng, &batch, r, 128);
		mt_oea_sweep(&batch, &scratch, bins, &got);
		for (size_t j = 0; j < 8; j++)
			sums[j] += got.active[j];
	}
	/* The deviation of a batch's count is below 3.7, and the figures are rounded to 0.05. */
	for (size_t i = 0; i < 3; i++)
		ck_assert_double_le(fabs(sums[(size_t)expected[i][0] - 1] / n_batches -
					 expected[i][1]),
				    0.05 + 4 * 3.7 / sqrt(n_batches));
}
END_TEST

START_TEST(test_look)
{
	struct rng rng = {.state = (uint64_t)_i + 20};
	struct mt_oea_batch batch = draw_batch(&rng, _i % 2 ? 8 : 1 + rng_below(&rng, MAX_K), 50,
					       _i % 2);
	struct mt_oea_look look;
	size_t n_looked = 0, n_equal = 0, n_unordered = 0;

	batch.weights = weights;
	for (size_t r = 0; r < batch.n_rows; r++) {
		const size_t n = n_of(&batch, r), kind = rng_below(&rng, 4);
		unsigned before = 0x3000, half[MAX_K];
		bool equal = true, unordered = false;

		for (size_t j = 0; j < batch.k; j++) {
			half[j] = kind == 0 ? 0x3000 : before - rng_below(&rng, 40);
			if (kind == 2 && rng_chance(&rng, 30))
				half[j] = rng_below(&rng, 0x10000);
			before = half[j] & 0x7fff ? half[j] & 0x7fff : 41;
			put(weights, r * batch.k + j, half[j]);
			equal &= j >= n || half[j] == half[0];
			unordered |= j > 0 && j < n && half[j] > half[j - 1];
		}
		n_looked += n >= 2;
		n_equal += n >= 2 && equal;
		n_unordered += unordered;
	}
	mt_oea_look(&batch, &look);
	ck_assert_uint_eq(look.n_looked, n_looked);
	ck_assert_uint_eq(look.n_equal, n_equal);
	ck_assert_uint_eq(look.n_unordered, n_unordered);
}
END_TEST

/* ---- the general form, as it is written down ---- */

/* Algorithm 2 of the paper for one row: marks in_set; returns how many these are. */
static size_t form_row(const struct mt_oea_batch *batch, const struct mt_oea_form *form, size_t r,
		       size_t k0, size_t limit, const uint8_t *is_in, bool *in_set)
{
	const size_t kmax = form->kmax ? form->kmax : batch->k, base = k0 < limit ? k0 : limit;
	size_t n = 0;

	memset(in_set, 0, MAX_K * sizeof(*in_set));
	for (size_t j = 0; j < n_of(batch, r) && j < base; j++) {
		in_set[j] = true;
		n++;
	}
	for (size_t j = base; j < n_of(batch, r) && j < form->maxp; j++) {
		if (n >= kmax)
			break;
		if (!is_in[id_at(batch, r * batch->k + j)])
			continue;
		in_set[j] = true;
		n++;
	}
	return n;
}

static uint32_t form_unite(const struct mt_oea_batch *batch, size_t k0, const uint8_t *limits,
			   uint8_t *is_in)
{
	uint32_t n = 0;

	memset(is_in, 0, 65536);
	for (size_t r = 0; r < batch->n_rows; r++)
		for (size_t j = 0; j < n_of(batch, r); j++)
			if (!is_changed(batch, r) || (j < k0 && j < limits[r]))
				is_in[id_at(batch, r * batch->k + j)] = 1;
	for (uint32_t e = 0; e < batch->n_experts; e++)
		n += is_in[e];
	memset(is_in + batch->n_experts, 1, 65536 - batch->n_experts);
	return n;
}

static void form_define(const struct mt_oea_batch *batch, const struct mt_oea_form *form,
			const uint8_t *limits, size_t k0, struct mt_oea_fill *fill)
{
	static uint8_t is_in[65536];
	const uint32_t n_union = form_unite(batch, k0, limits, is_in);
	const size_t kmax = form->kmax ? form->kmax : batch->k;
	bool in_set[MAX_K];

	want.active[k0 - 1] = n_union;
	for (size_t r = 0; r < batch->n_rows; r++) {
		float total = 0, lost = 0;
		size_t n, n_end;

		if (!is_changed(batch, r))
			continue;
		n = form_row(batch, form, r, k0, limits[r], is_in, in_set);
		want.survivors[k0 - 1] += n;
		n_end = form->maxp > batch->k && n < kmax && n < n_union
				? (kmax < n_union ? kmax : n_union)
				: n;
		fill->n_below[k0 - 1] += n_end < batch->k;
		fill->n_taken[k0 - 1] += n_end - n;
		for (size_t j = 0; batch->weights && j < n_of(batch, r); j++) {
			const float weight = mt_oea_weight(
				batch->weights + 2 * (r * batch->k + j), batch->is_bf16);

			total += weight;
			lost += in_set[j] ? 0 : weight;
		}
		if (total > MT_OEA_MIN_WEIGHT && !(batch->rows && batch->rows[r]))
			want.lost[k0 - 1] += (double)(lost / total);
	}
}

static void expect_form(const struct mt_oea_batch *batch, const struct mt_oea_form *form,
			const uint8_t *limits)
{
	static uint8_t none[MAX_ROWS];
	struct mt_oea_fill fill, want_fill = {{0}, {0}};

	memset(none, 255, sizeof(none));
	memset(&want, 0, sizeof(want));
	mt_oea_sweep_form(batch, form, limits, 0, &scratch, bins, &got, &fill);
	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		form_define(batch, form, limits ? limits : none, k0, &want_fill);
		ck_assert_uint_eq(got.active[k0 - 1], want.active[k0 - 1]);
		ck_assert_uint_eq(got.survivors[k0 - 1], want.survivors[k0 - 1]);
		ck_assert_uint_eq(fill.n_below[k0 - 1], want_fill.n_below[k0 - 1]);
		ck_assert_uint_eq(fill.n_taken[k0 - 1], want_fill.n_taken[k0 - 1]);
		ck_assert_double_le(fabs(got.lost[k0 - 1] - want.lost[k0 - 1]),
				    1e-5 * (1 + (double)batch->n_rows));
	}
}

START_TEST(test_form_random)
{
	static const uint32_t kmaxs[] = {0, 1, 5, 9}, maxps[] = {0, 1, 6, UINT32_MAX};
	struct rng rng = {.state = (uint64_t)_i + 80};
	uint8_t limits[MAX_ROWS];

	for (size_t i = 0; i < 16; i++) {
		const struct mt_oea_form form = {
			.p = 1, .kmax = kmaxs[i % 4], .maxp = maxps[i / 4]};
		const size_t k = 1 + rng_below(&rng, MAX_K);
		const struct mt_oea_batch batch =
			draw_batch(&rng, k, 1 + rng_below(&rng, 40), false);

		for (size_t r = 0; r < batch.n_rows; r++)
			limits[r] = (uint8_t)(1 + rng_below(&rng, (uint32_t)k));
		expect_form(&batch, &form, NULL);
		expect_form(&batch, &form, limits);
	}
}
END_TEST

/* Without any option it is what the fast sweep finds, and all that was chosen is active before. */
START_TEST(test_form_simple)
{
	struct rng rng = {.state = (uint64_t)_i + 90};
	const struct mt_oea_batch batch = draw_batch(&rng, 8, 30, _i % 2 == 0);
	struct mt_oea_form form;
	struct mt_oea_fill fill;
	uint32_t n_active;

	ck_assert(mt_oea_form_parse("oea", &form));
	ck_assert(mt_oea_form_is_simple(&form));
	mt_oea_sweep(&batch, &scratch, bins, &want);
	n_active = scratch.n_active;
	mt_oea_sweep_form(&batch, &form, NULL, 0, &scratch, bins, &got, &fill);
	ck_assert_uint_eq(scratch.n_active, n_active);
	ck_assert_uint_eq(got.n_rated_rows, want.n_rated_rows);
	for (size_t j = 0; j < 8; j++) {
		ck_assert_uint_eq(got.active[j], want.active[j]);
		ck_assert_uint_eq(got.survivors[j], want.survivors[j]);
		ck_assert_double_le(fabs(got.lost[j] - want.lost[j]), 1e-3);
	}
}
END_TEST

START_TEST(test_form_parse)
{
	static const char *const bad[] = {
		"", "oae", "oea:", "oea:kmax", "oea:kmax=", "oea:kmax=0", "oea:kmax=9x", "oea:p=0",
		"oea:p=1.5", "oea:p=x", "oea:maxp=-1", "oea:kmax=9,", "oea:,kmax=9", "oea:groups=all",
		"oea:order=id", "pruned:kmax=9", "pruned:maxp=3", "oea:k0=3", "prunedx"};
	struct mt_oea_form form = {.kmax = 77};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!mt_oea_form_parse(bad[i], &form), "'%s' is taken", bad[i]);
	ck_assert_uint_eq(form.kmax, 77);
	ck_assert(mt_oea_form_parse("oea:p=0.25,kmax=9,maxp=32,groups=any,order=weight", &form));
	ck_assert(form.p == 0.25 && form.kmax == 9 && form.maxp == 32 && form.any_group &&
		  form.by_weight);
	ck_assert(mt_oea_form_parse("pruned:p=0.5", &form));
	ck_assert(form.p == 0.5 && form.maxp == 0 && !mt_oea_form_is_simple(&form));
}
END_TEST

/* A budget that is never reached changes nothing; one of 1 leaves every row its best expert. */
START_TEST(test_budget)
{
	static float sums[65536];
	struct rng rng = {.state = (uint64_t)_i + 60};
	const struct mt_oea_batch batch = draw_batch(&rng, 8, 24, _i % 2 == 0);
	uint32_t n_active, n_least;

	mt_oea_sweep(&batch, &scratch, bins, &want);
	n_active = want.active[7];
	n_least = want.active[0];
	for (uint32_t n = 1; n <= n_active + 3; n += 1 + n / 4) {
		const uint32_t n_want = n < n_least ? n_least : n > n_active ? n_active : n;
		bool is_clear = true;

		memset(bins, 0, sizeof(bins));
		mt_oea_budget(&batch, &scratch, n, sums, bins, &got);
		ck_assert_uint_eq(got.active[0], n_want);
		ck_assert_uint_ge(got.survivors[0], want.survivors[0]);
		ck_assert_uint_le(got.survivors[0], want.n_entries);
		if (n >= n_active) {
			ck_assert_uint_eq(got.survivors[0], want.n_entries);
			ck_assert_double_eq(got.lost[0], 0);
		}
		for (size_t e = 0; e < 65536; e++)
			is_clear &= sums[e] == 0.0f;
		ck_assert(is_clear);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("oea");
	TCase *sweep = tcase_create("sweep"), *rules = tcase_create("rules");

	tcase_add_loop_test(sweep, test_sweep_random, 0, 14);
	tcase_add_test(sweep, test_sweep_bad_weights);
	tcase_add_test(sweep, test_sweep_alike);
	tcase_add_test(sweep, test_sweep_uniform);
	tcase_add_loop_test(sweep, test_look, 0, 8);
	tcase_add_loop_test(rules, test_form_random, 0, 6);
	tcase_add_loop_test(rules, test_form_simple, 0, 4);
	tcase_add_test(rules, test_form_parse);
	tcase_add_loop_test(rules, test_budget, 0, 4);
	suite_add_tcase(suite, sweep);
	suite_add_tcase(suite, rules);
	return suite_run(suite);
}
