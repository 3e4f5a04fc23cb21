/* SPDX-License-Identifier: MIT */
/*
 * The scheduler by itself: the passes of small workloads row by row, and the rules of its header
 * over many random workloads and limits, with invented tokens in place of a model.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include <moetrace/status.h>

#include "kernels/engine/scheduler.h"
#include "tests/support/run_suite.h"

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

/* A workload of prompts of 'a' to 'z' with the given lengths. */
static struct mtk_workload *workload_make(const uint32_t (*lengths)[2], size_t n)
{
	char *text = malloc(n * 400), *at = text;
	struct mtk_workload *workload;
	struct mtk_error error;
	size_t i, j;

	ck_assert_ptr_nonnull(text);
	for (i = 0; i < n; i++) {
		at += sprintf(at, "{\"max_new_tokens\":%u,\"prompt\":\"", lengths[i][1]);
		for (j = 0; j < lengths[i][0]; j++)
			*at++ = (char)('a' + (i + j) % 26);
		at += sprintf(at, "\"}\n");
	}
	ck_assert_int_eq(mtk_workload_parse("w", text, (size_t)(at - text), &workload, &error),
			 MOETRACE_OK);
	free(text);
	return workload;
}

static void admit_all(struct mtk_scheduler *scheduler)
{
	uint32_t index;

	while (mtk_scheduler_can_admit(scheduler)) {
		ck_assert_int_eq(mtk_scheduler_admit(scheduler, &index), MOETRACE_OK);
		mtk_scheduler_sequence(scheduler, index)->slot = 100 + index;
	}
}

/* "D2@5 P0@0+3*": a decode slice of sequence 2 at position 5, three prompt rows that sample. */
static void pass_expect(struct mtk_scheduler *scheduler, const char *expected)
{
	const struct mtk_schedule_pass *pass;
	static const unsigned char tokens[16] = "ABCDEFGHIJKLMNO";
	char text[256] = "", *at = text;
	uint32_t i;

	admit_all(scheduler);
	pass = mtk_scheduler_pass_form(scheduler);
	for (i = 0; i < pass->n_slices; i++) {
		const struct mtk_slice *slice = &pass->slices[i];

		at += sprintf(at, "%s%c%u@%u+%u%s", i ? " " : "", slice->is_decode ? 'D' : 'P',
			      slice->sequence, slice->first_position, slice->n_rows,
			      slice->samples ? "*" : "");
	}
	ck_assert_str_eq(text, expected);
	mtk_scheduler_pass_complete(scheduler, tokens);
}

START_TEST(test_passes_are_mixed_and_chunked)
{
	static const uint32_t lengths[][2] = {{3, 3}, {6, 1}, {2, 2}};
	struct mtk_schedule_limits limits = {
		.n_batch = 2, .n_chunk = 4, .n_context = 16, .stop_byte = -1};
	struct mtk_workload *workload = workload_make(lengths, 3);
	struct mtk_scheduler *scheduler;

	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	pass_expect(scheduler, "P0@0+3* P1@0+1");
	pass_expect(scheduler, "D0@3+1* P1@1+4");
	/* Request 0 has its three tokens, request 1 its only one; both leave, the third comes. */
	pass_expect(scheduler, "D0@4+1* P1@5+1*");
	pass_expect(scheduler, "P2@0+2*");
	pass_expect(scheduler, "D2@2+1*");
	ck_assert_uint_eq(mtk_scheduler_n_active(scheduler), 0);
	ck_assert(!mtk_scheduler_can_admit(scheduler));
	ck_assert_uint_eq(mtk_scheduler_pass_form(scheduler)->n_rows, 0);
	ck_assert_mem_eq(mtk_scheduler_sequence(scheduler, 0)->text, "AAA", 3);
	ck_assert_mem_eq(mtk_scheduler_sequence(scheduler, 1)->text, "B", 1);
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 0)->n_computed, 5);
	mtk_scheduler_destroy(scheduler);
	mtk_workload_destroy(workload);
}
END_TEST

/* The next request that has to give its positions back, or UINT32_MAX. */
static uint32_t retract(struct mtk_scheduler *scheduler)
{
	uint32_t index;

	return mtk_scheduler_retract(scheduler, &index) ? index : UINT32_MAX;
}

START_TEST(test_retract_the_youngest)
{
	static const uint32_t lengths[][2] = {{3, 5}, {4, 2}, {2, 3}, {1, 1}};
	struct mtk_schedule_limits limits = {
		.n_batch = 3, .n_chunk = 3, .n_context = 16, .stop_byte = -1, .n_kv_positions = 10};
	struct mtk_workload *workload = workload_make(lengths, 4);
	struct mtk_scheduler *scheduler;

	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	pass_expect(scheduler, "P0@0+3*");
	/* Of ten positions the first takes four, the second four, the third two. */
	ck_assert_uint_eq(retract(scheduler), UINT32_MAX);
	pass_expect(scheduler, "D0@3+1* P1@0+3");
	/* The first needs five: the third goes, although nothing of it was computed. */
	ck_assert_uint_eq(retract(scheduler), 2);
	ck_assert_uint_eq(retract(scheduler), UINT32_MAX);
	pass_expect(scheduler, "D0@4+1* P1@3+1*");
	/* Six and five do not fit: the second waits, before the third and with its token. */
	ck_assert_uint_eq(retract(scheduler), 1);
	ck_assert_uint_eq(retract(scheduler), UINT32_MAX);
	pass_expect(scheduler, "D0@5+1*");
	ck_assert_uint_eq(retract(scheduler), UINT32_MAX);
	pass_expect(scheduler, "D0@6+1*");
	ck_assert_int_eq(mtk_scheduler_sequence(scheduler, 0)->finish, MTK_FINISH_LENGTH);
	/* Its prompt and its token are five positions to compute again. */
	pass_expect(scheduler, "P1@0+3");
	pass_expect(scheduler, "P1@3+2* P2@0+1");
	pass_expect(scheduler, "P2@1+1* P3@0+1*");
	ck_assert_mem_eq(mtk_scheduler_sequence(scheduler, 1)->text, "BA", 2);
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 1)->n_retracts, 1);
	mtk_scheduler_destroy(scheduler);
	mtk_workload_destroy(workload);
}
END_TEST

/* The token that aborts is the one that no other rule ends the request with. */
START_TEST(test_abort)
{
	static const uint32_t lengths[][2] = {{2, 1}, {2, 2}, {2, 3}, {2, 3}};
	struct mtk_schedule_limits limits = {
		.n_batch = 4, .n_chunk = 16, .n_context = 16, .stop_byte = 'C', .n_abort = 2};
	static const enum mtk_finish finish[] = {MTK_FINISH_LENGTH, MTK_FINISH_LENGTH,
						 MTK_FINISH_STOP, MTK_FINISH_ABORT};
	struct mtk_workload *workload = workload_make(lengths, 4);
	struct mtk_scheduler *scheduler;
	uint32_t i;

	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	pass_expect(scheduler, "P0@0+2* P1@0+2* P2@0+2* P3@0+2*");
	pass_expect(scheduler, "D1@2+1* D3@2+1*");
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(mtk_scheduler_sequence(scheduler, i)->finish, finish[i]);
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 3)->n_generated, 2);
	ck_assert_uint_eq(mtk_scheduler_n_active(scheduler), 0);
	mtk_scheduler_destroy(scheduler);
	mtk_workload_destroy(workload);
}
END_TEST

/* One row of each, prompts too; who ends early leaves a hole until the batch is done. */
START_TEST(test_lockstep)
{
	static const uint32_t lengths[][2] = {{3, 1}, {1, 2}, {2, 1}};
	struct mtk_schedule_limits limits = {
		.n_batch = 2, .n_chunk = 4, .n_context = 16, .stop_byte = -1, .is_lockstep = true};
	struct mtk_workload *workload = workload_make(lengths, 3);
	struct mtk_scheduler *scheduler;

	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	pass_expect(scheduler, "D0@0+1 D1@0+1*");
	pass_expect(scheduler, "D0@1+1 D1@1+1*");
	pass_expect(scheduler, "D0@2+1*");
	pass_expect(scheduler, "D2@0+1");
	pass_expect(scheduler, "D2@1+1*");
	ck_assert_uint_eq(mtk_scheduler_n_active(scheduler), 0);
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 0)->n_computed, 3);
	mtk_scheduler_destroy(scheduler);
	mtk_workload_destroy(workload);
}
END_TEST

START_TEST(test_stop_byte_and_context)
{
	static const uint32_t lengths[][2] = {{2, 9}, {4, 9}, {5, 1}};
	struct mtk_schedule_limits limits = {
		.n_batch = 3, .n_chunk = 16, .n_context = 5, .stop_byte = 'A'};
	struct mtk_workload *workload = workload_make(lengths, 3);
	struct mtk_scheduler *scheduler;

	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	/* Tokens are A, B, C in slice order: the first request stops, the last has its one. */
	pass_expect(scheduler, "P0@0+2* P1@0+4* P2@0+5*");
	ck_assert_int_eq(mtk_scheduler_sequence(scheduler, 0)->finish, MTK_FINISH_STOP);
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 0)->n_generated, 1);
	ck_assert_int_eq(mtk_scheduler_sequence(scheduler, 2)->finish, MTK_FINISH_LENGTH);
	/* Five positions hold the prompt of four and one token; one more is sampled from them. */
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 1)->n_limit, 2);
	limits.stop_byte = -1;
	mtk_scheduler_destroy(scheduler);
	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	pass_expect(scheduler, "P0@0+2* P1@0+4* P2@0+5*");
	pass_expect(scheduler, "D0@2+1* D1@4+1*");
	ck_assert_int_eq(mtk_scheduler_sequence(scheduler, 1)->finish, MTK_FINISH_LENGTH);
	ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, 1)->n_computed, 5);
	mtk_scheduler_destroy(scheduler);
	mtk_workload_destroy(workload);
}
END_TEST

START_TEST(test_create_refuses)
{
	static const uint32_t lengths[][2] = {{3, 3}, {6, 1}};
	static const struct {
		struct mtk_schedule_limits limits;
		int status;
		const char *words;
	} cases[] = {
		{{0, 1, 9, -1, 0, 0, false}, MOETRACE_E_INVALID, "at least 1"},
		{{1, 0, 9, -1, 0, 0, false}, MOETRACE_E_INVALID, "at least 1"},
		{{1, 1, 0, -1, 0, 0, false}, MOETRACE_E_INVALID, "at least 1"},
		{{UINT32_MAX, 2, 9, -1, 0, 0, false}, MOETRACE_E_INVALID, "2^31"},
		{{1, 1, 1u << 31, -1, 0, 0, false}, MOETRACE_E_INVALID, "2^31"},
		{{1, 1, 9, -1, 5, 0, false},
		 MOETRACE_E_LIMIT,
		 "w: line 2: the request alone may need 6 positions, the KV cache has 5; raise "
		 "--kv-positions"},
		{{1, 1, 9, -1, 4, 0, false}, MOETRACE_E_LIMIT, "w: line 1: the request alone may need 5"},
		{{1, 1, 9, -1, 4, 2, false}, MOETRACE_E_LIMIT, "w: line 2: the request alone may need 6"},
		{{1, 1, 5, -1, 0, 0, false},
		 MOETRACE_E_LIMIT,
		 "w: line 2: the prompt has 6 tokens, the context 5"},
	};
	struct mtk_workload *workload = workload_make(lengths, 2);
	struct mtk_scheduler *scheduler;
	struct mtk_error error;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(
			mtk_scheduler_create(workload, &cases[i].limits, &scheduler, &error),
			cases[i].status);
		ck_assert_msg(strstr(error.text, cases[i].words) != NULL, "%s", error.text);
	}
	mtk_workload_destroy(workload);
}
END_TEST

/* The token that the invented model gives a sequence: a function of its place alone. */
static unsigned char token_of(uint32_t sequence, uint32_t position)
{
	return (unsigned char)((sequence * 31 + position * 7) % 11 + 'A');
}

/* Check one pass against the rules and what was computed before; fill the tokens it samples. */
static void pass_check(struct mtk_scheduler *scheduler, const struct mtk_schedule_limits *limits,
		       const struct mtk_schedule_pass *pass, unsigned char *tokens)
{
	uint32_t row = 0, n_prefill_rows = 0, n_samples = 0, i, j;

	ck_assert_uint_le(pass->n_slices, limits->n_batch);
	ck_assert_uint_gt(pass->n_rows, 0);
	for (i = 0; i < pass->n_slices; i++) {
		const struct mtk_slice *slice = &pass->slices[i];
		const struct mtk_sequence *sequence =
			mtk_scheduler_sequence(scheduler, slice->sequence);

		for (j = 0; j < i; j++)
			ck_assert_uint_ne(pass->slices[j].sequence, slice->sequence);
		ck_assert_uint_eq(slice->first_position, sequence->n_computed);
		ck_assert_uint_gt(slice->n_rows, 0);
		if (slice->is_decode) {
			ck_assert_uint_eq(slice->n_rows, 1);
			ck_assert_uint_lt(row, pass->n_decode_rows);
			ck_assert_uint_eq(sequence->n_computed,
					  sequence->n_prompt + sequence->n_generated - 1);
		} else {
			ck_assert_uint_ge(row, pass->n_decode_rows);
			ck_assert_uint_le(slice->first_position + slice->n_rows,
					  sequence->n_prompt + sequence->n_generated);
			n_prefill_rows += slice->n_rows;
		}
		ck_assert_int_eq(slice->samples,
				 slice->first_position + slice->n_rows ==
					 sequence->n_prompt + sequence->n_generated);
		for (j = 0; j < slice->n_rows; j++, row++) {
			uint32_t position = slice->first_position + j;

			ck_assert_int_eq(pass->positions[row], (int)position);
			ck_assert_uint_lt(position, limits->n_context);
			ck_assert_uint_eq(pass->slots[row], 100 + slice->sequence);
			ck_assert_int_eq(pass->token_ids[row],
					 position < sequence->n_prompt
						 ? sequence->request->prompt[position]
						 : token_of(slice->sequence, position - 1));
			ck_assert_int_eq(pass->want_logits[row] != 0,
					 slice->samples && j == slice->n_rows - 1);
		}
		if (slice->samples)
			tokens[n_samples++] = token_of(slice->sequence,
						       slice->first_position + slice->n_rows - 1);
	}
	ck_assert_uint_eq(row, pass->n_rows);
	ck_assert_uint_eq(n_samples, pass->n_samples);
	ck_assert_uint_le(n_prefill_rows, limits->n_chunk);
}

static void sequence_check(const struct mtk_sequence *sequence, uint32_t index,
			   const struct mtk_schedule_limits *limits)
{
	uint64_t room = limits->n_context - sequence->n_prompt + 1;
	uint64_t limit = sequence->request->max_new_tokens;
	uint32_t i;

	if (limit > room)
		limit = room;
	ck_assert_uint_eq(sequence->n_computed, sequence->n_prompt + sequence->n_generated - 1);
	for (i = 0; i < sequence->n_generated; i++) {
		ck_assert_uint_eq(sequence->text[i], token_of(index, sequence->n_prompt + i - 1));
		if (i + 1 < sequence->n_generated)
			ck_assert_int_ne(sequence->text[i], limits->stop_byte);
	}
	if (sequence->finish == MTK_FINISH_ABORT) {
		ck_assert_uint_eq(sequence->n_generated, limits->n_abort);
		ck_assert_uint_lt(sequence->n_generated, limit);
	} else if (sequence->finish == MTK_FINISH_STOP) {
		ck_assert_int_eq(sequence->text[sequence->n_generated - 1], limits->stop_byte);
	} else {
		ck_assert_int_eq(sequence->finish, MTK_FINISH_LENGTH);
		ck_assert_uint_eq(sequence->n_generated, limit);
	}
}

/* Retract what has to be; those that stay are all older, and their positions fit. */
static void retract_all(struct mtk_scheduler *scheduler, const struct mtk_schedule_limits *limits,
			uint32_t n_sequences)
{
	uint32_t index, last = n_sequences;

	for (; (index = retract(scheduler)) != UINT32_MAX; last = index) {
		ck_assert_uint_ne(limits->n_kv_positions, 0);
		ck_assert_uint_lt(index, last);
		ck_assert_uint_gt(mtk_scheduler_n_active(scheduler), 0);
		ck_assert_uint_eq(mtk_scheduler_sequence(scheduler, index)->n_computed, 0);
	}
}

/* The positions that the cache holds after a pass. */
static void positions_check(struct mtk_scheduler *scheduler,
			    const struct mtk_schedule_limits *limits, uint32_t n_sequences)
{
	uint32_t n_positions = 0, i;

	for (i = 0; limits->n_kv_positions > 0 && i < n_sequences; i++) {
		const struct mtk_sequence *sequence = mtk_scheduler_sequence(scheduler, i);

		if (sequence->finish == MTK_FINISH_NONE)
			n_positions += sequence->n_computed;
	}
	ck_assert_uint_le(n_positions, limits->n_kv_positions);
}

static void random_workload_serve(uint64_t seed)
{
	struct mtk_schedule_limits limits = {0};
	struct mtk_workload *workload;
	struct mtk_scheduler *scheduler;
	unsigned char tokens[64];
	uint32_t lengths[40][2], n_sequences, i;

	random_state = seed;
	n_sequences = 1 + random_below(40);
	for (i = 0; i < n_sequences; i++) {
		lengths[i][0] = 1 + random_below(40);
		lengths[i][1] = 1 + random_below(20);
	}
	limits.n_batch = 1 + random_below(12);
	limits.n_chunk = 1 + random_below(50);
	limits.n_context = 40 + random_below(30);
	limits.stop_byte = random_below(2) ? 'F' : -1;
	/* No request needs more than its 40 and 20. */
	limits.n_kv_positions = random_below(2) ? 59 + random_below(100) : 0;
	limits.n_abort = random_below(2) ? 1 + random_below(20) : 0;
	workload = workload_make((const uint32_t(*)[2])lengths, n_sequences);
	ck_assert_int_eq(mtk_scheduler_create(workload, &limits, &scheduler, NULL), MOETRACE_OK);
	for (;;) {
		const struct mtk_schedule_pass *pass;

		retract_all(scheduler, &limits, n_sequences);
		admit_all(scheduler);
		if (mtk_scheduler_n_active(scheduler) == 0)
			break;
		pass = mtk_scheduler_pass_form(scheduler);
		pass_check(scheduler, &limits, pass, tokens);
		mtk_scheduler_pass_complete(scheduler, tokens);
		positions_check(scheduler, &limits, n_sequences);
	}
	for (i = 0; i < n_sequences; i++)
		sequence_check(mtk_scheduler_sequence(scheduler, i), i, &limits);
	mtk_scheduler_destroy(scheduler);
	mtk_workload_destroy(workload);
}

#define SEEDS_A_CASE 12

START_TEST(test_random_workloads)
{
	uint64_t i;

	for (i = 0; i < SEEDS_A_CASE; i++)
		random_workload_serve((uint64_t)_i * SEEDS_A_CASE + i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("scheduler");
	TCase *tcase = tcase_create("passes");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_passes_are_mixed_and_chunked);
	tcase_add_test(tcase, test_stop_byte_and_context);
	tcase_add_test(tcase, test_retract_the_youngest);
	tcase_add_test(tcase, test_abort);
	tcase_add_test(tcase, test_lockstep);
	tcase_add_test(tcase, test_create_refuses);
	tcase_add_loop_test(tcase, test_random_workloads, 0, 8);
	return run_suite(suite);
}
