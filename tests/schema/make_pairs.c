/* SPDX-License-Identifier: MIT */
/*
 * make_pairs OUTPUT.db [SIDE [SEED]]: a synthetic trace for comparisons. Two traces of sides 0 and 1
 * hold the same requests, served in another order and other batches, and most choices are the same.
 * Some requests are of one side alone, some have no id but tokens, some differ in a token, were
 * retracted, reused positions of another one, or never ended; some rows are rejected, mapped,
 * missing or in an unknown order. Table `expected` is what the rows mean.
 *
 * What a request's position chose in a layer follows from these and, where SIDE 1 differs, from the
 * side; never from the order of the passes.
 */
#include "trace_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_REQUESTS = 40, N_LAYERS = 3, MAX_POSITIONS = 60, MAX_K = 5, MAX_ROWS = 64 };

static int side, seed;

/* A number that follows from its arguments. */
static unsigned mix(int a, int b, int c, int d)
{
	const int numbers[] = {seed, a, b, c, d};
	uint64_t x = 88172645463325252u;

	for (int i = 0; i < 5; i++) {
		x = (x ^ (uint64_t)(numbers[i] + 1)) * 0x9e3779b97f4a7c15u;
		x ^= x >> 29;
	}
	return (unsigned)(x >> 20);
}

static const struct tw_layer layers[N_LAYERS] = {
	{1, 1, 1, 16, 0, 0, 4, TW_FP16, false, false},
	{2, 1, 2, 300, 2, 1, 5, TW_BF16, false, true},
	{3, 1, 4, 8, 0, 0, 2, TW_NONE, true, false},
};

/* ---- requests ---- */

struct request {
	int number;	  /* the same on both sides; its key is another */
	int key, n_positions, n_reused, source; /* source: a number */
	int n_attempts, attempt, position;
	bool is_here;
};

static struct request requests[N_REQUESTS];

static void requests_plan(void)
{
	for (int i = 0; i < N_REQUESTS; i++) {
		struct request *r = &requests[i];

		r->number = i;
		/* B serves them backwards. */
		r->key = side ? N_REQUESTS - i : i + 1;
		r->is_here = i % 13 != (side ? 5 : 7);
		r->n_positions = 5 + (int)(mix(i, 1, 0, 0) % (MAX_POSITIONS - 5));
		r->n_attempts = i % 5 == 2 ? 2 + i % 2 : 1;
		/* Those before it in the order of the side are done by then, or it is missing. */
		if (i % 6 == 3 && (side == 0 || i % 4 == 1)) {
			r->source = side ? i + 1 : i - 1;
			r->n_reused = 1 + i % 4;
		}
	}
}

/* Ends, ids and tokens by number. */
static void request_write(struct tw *tw, const struct request *r)
{
	const bool has_id = r->number % 4 != 1, ends = r->number % 7 != 6;
	const bool has_tokens = r->number % 4 <= 1;
	/* Ids 0 to 6 are those of two requests. */
	char *sql = sqlite3_mprintf(
		"INSERT INTO request VALUES (%d, 1, %d, iif(%d, 'r%d', NULL), 4, iif(%d, %d, NULL),"
		" %d, 0, 0, 0, NULL, NULL, '%s', NULL)",
		r->key, r->key, has_id, r->number % 33, ends, r->n_positions, r->n_attempts,
		ends ? "complete" : "unfinished");

	tw_exec(tw, sql);
	sqlite3_free(sql);
	for (int p = 0; has_tokens && p < r->n_positions; p++) {
		int token = (int)(mix(r->number, p, 7, 0) % 1000);

		if (side && p == 6 + r->number % 9 && r->number % 8 <= 1)
			token = 1000;
		sql = sqlite3_mprintf("INSERT INTO request_token VALUES (%d, %d, %d)", r->key, p, token);
		tw_exec(tw, sql);
		sqlite3_free(sql);
	}
}

static const struct request *by_number(int number)
{
	return number >= 0 && number < N_REQUESTS && requests[number].is_here ? &requests[number]
									       : NULL;
}

static void reuse_write(struct tw *tw, struct request *r)
{
	const struct request *source = r->n_reused > 0 ? by_number(r->source) : NULL;
	char *sql;

	if (!source) {
		r->n_reused = 0;
		return;
	}
	if (r->n_reused > source->n_positions)
		r->n_reused = source->n_positions;
	sql = sqlite3_mprintf("INSERT INTO request_reuse VALUES (%d, %d, 0, %d, %d, %d)", r->key,
			      r->n_attempts - 1, r->n_reused, source->key, source->n_attempts - 1);
	tw_exec(tw, sql);
	sqlite3_free(sql);
}

/* ---- rows ---- */

static uint16_t ids[MAX_ROWS * MAX_K], bits[MAX_ROWS * MAX_K];
static uint8_t n_valid[MAX_ROWS];
static uint32_t row_map[MAX_ROWS];

/* Another first expert than any of the row's. */
static void other_draw(uint16_t *id, int k, int n_choices)
{
	const int first = id[0];
	bool is_seen = true;

	for (int step = 1; is_seen; step++) {
		id[0] = (uint16_t)((first + step) % n_choices);
		is_seen = false;
		for (int r = 1; r < k; r++)
			is_seen |= id[r] == id[0];
	}
}

/* Distinct ids, the shared slot behind them; B differs in one of ten, or in the order of some. */
static void choice_draw(const struct tw_layer *layer, int number, int attempt, int position, int row)
{
	const int n_choices = layer->n_experts + layer->n_zero_experts;
	const int k = layer->top_k - layer->n_shared_slots;
	const unsigned luck = mix(number, position, layer->layer_id, 100 + side + 10 * attempt) % 40;
	uint16_t *id = ids + row * layer->top_k;

	for (int r = 0; r < k; r++) {
		int draw = 0;
		bool is_seen;

		do {
			id[r] = (uint16_t)(mix(number, position, layer->layer_id, 1000 * r + draw++) %
					   (unsigned)n_choices);
			is_seen = false;
			for (int s = 0; s < r; s++)
				is_seen |= id[s] == id[r];
		} while (is_seen);
		bits[row * layer->top_k + r] = (uint16_t)(0x3800 - r * 0x40);
	}
	if (layer->n_shared_slots)
		id[k] = (uint16_t)n_choices;
	bits[row * layer->top_k + k - (k == layer->top_k)] = 0x3000;
	n_valid[row] = (uint8_t)(layer->has_n_valid ? 1 + mix(number, position, 5, 0) % (unsigned)k
						    : (unsigned)layer->top_k);
	if (luck < 4 && (side || attempt))
		other_draw(id, k, n_choices);
	if (luck == 10) {
		const uint16_t first = id[0];

		id[0] = id[1];
		id[1] = first;
	}
	if (luck == 11)
		bits[row * layer->top_k] = (uint16_t)(0x3800 + 16 * side);
}

static void layer_write(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer)
{
	struct tw_rows rows = {.n_rows = pass->n_rows,
			       .ids = ids,
			       .bits = layer->weights == TW_NONE ? NULL : bits,
			       .n_valid = layer->has_n_valid ? n_valid : NULL};
	int row = 0;

	if (mix(pass->pass_id, side, layer->layer_id, 3) % 12 == 0) {
		tw_add_absent(tw, pass, layer, 1);
		return;
	}
	for (int s = 0; s < pass->n_slices; s++) {
		const struct tw_slice *slice = &pass->slices[s];

		for (int i = 0; i < slice->n_rows; i++, row++) {
			const int number = side ? N_REQUESTS - slice->request_id
						: slice->request_id - 1;
			const int position = slice->positions ? (int)slice->positions[i]
							      : slice->first_position + i;
			/* Backwards where rows are mapped. */
			const int at = layer->mapped ? pass->n_rows - 1 - row : row;
			const bool is_last = slice->attempt == requests[number].n_attempts - 1;

			choice_draw(layer, number, is_last ? 0 : 1 + slice->attempt, position, at);
			row_map[at] = (uint32_t)row;
		}
	}
	if (layer->mapped)
		rows.row = row_map;
	tw_add_rows(tw, pass, layer, &rows);
}

/* ---- passes ---- */

/* The next slice of a request: of a verify pass, the first rows are accepted. */
static bool slice_draw(struct request *r, struct tw_slice *slice, uint32_t *positions,
		       uint8_t *accepted)
{
	const bool is_last = r->attempt == r->n_attempts - 1;
	const int end = is_last ? r->n_positions : r->n_positions / 2;
	const unsigned luck = mix(r->number, r->position, r->attempt, 50 + side);
	int n = 1 + (int)(luck % 5), n_accepted;

	if (r->position >= end) {
		if (is_last)
			return false;
		r->attempt++;
		r->position = r->attempt == r->n_attempts - 1 ? r->n_reused : 0;
		return slice_draw(r, slice, positions, accepted);
	}
	if (r->position + n > end)
		n = end - r->position;
	*slice = (struct tw_slice){.request_id = r->key,
				   .attempt = r->attempt,
				   .first_position = r->position,
				   .n_rows = n,
				   .phase = r->position < 4 ? "prefill" : "decode"};
	for (int i = 0; i < n; i++)
		positions[i] = (uint32_t)(r->position + i);
	if (luck / 8 % 4 == 0)
		slice->positions = positions;
	n_accepted = n;
	if (r->position >= 4 && n > 1 && luck / 32 % 2 == 0) {
		slice->phase = "verify";
		slice->accepted = accepted;
		n_accepted = 1 + (int)(luck / 64 % (unsigned)n);
		for (int i = 0; i < n; i++)
			accepted[i] = i < n_accepted;
	}
	r->position += n_accepted;
	return true;
}

static bool pass_write(struct tw *tw, int pass_id)
{
	static uint32_t positions[8][8];
	static uint8_t accepted[8][8];
	struct tw_pass pass = {.pass_id = pass_id,
			       .recording_id = 1,
			       .model_id = 1,
			       .begin_ns = pass_id * INT64_C(1000000),
			       .end_ns = pass_id * INT64_C(1000000) + 500000};

	for (int i = 0; i < N_REQUESTS && pass.n_slices < 4 + side * 2; i++) {
		struct request *r = &requests[side ? N_REQUESTS - 1 - i : i];
		const int s = pass.n_slices;

		if (r->is_here && slice_draw(r, &pass.slices[s], positions[s], accepted[s])) {
			pass.n_rows += pass.slices[s].n_rows;
			pass.n_slices++;
		}
	}
	if (pass.n_slices == 0)
		return false;
	tw_add_pass(tw, &pass);
	for (int i = 0; i < N_LAYERS; i++)
		layer_write(tw, &pass, &layers[i]);
	return true;
}

int main(int argc, char **argv)
{
	struct tw tw;

	if (argc < 2) {
		fputs("usage: make_pairs OUTPUT.db [SIDE [SEED]]\n", stderr);
		return 2;
	}
	side = argc > 2 ? atoi(argv[2]) : 0;
	seed = argc > 3 ? atoi(argv[3]) : 1;
	tw_open(&tw, argv[1], true, 700);
	tw_exec(&tw, "INSERT INTO meta VALUES ('format', 'moetrace'), ('session_name', 'pairs');"
		     "INSERT INTO process (process_id, pid) VALUES (1, 4711);"
		     "INSERT INTO model VALUES (1, 'target', 'target', NULL, 5, NULL);"
		     "INSERT INTO recording VALUES (1, 1, 0, 900000000, 'closed', 'per_token', 'model',"
		     " NULL)");
	for (int i = 0; i < N_LAYERS; i++)
		tw_add_layer(&tw, &layers[i]);
	requests_plan();
	for (int i = 0; i < N_REQUESTS; i++) {
		if (!requests[i].is_here)
			continue;
		request_write(&tw, &requests[i]);
		if (requests[i].n_reused > 0)
			reuse_write(&tw, &requests[i]);
		requests[i].position = requests[i].n_attempts == 1 ? requests[i].n_reused : 0;
	}
	for (int pass_id = 1; pass_write(&tw, pass_id); pass_id++)
		;
	tw_exec(&tw, "UPDATE pass_layer SET selection_order = 2 WHERE layer_id = 1 AND pass_id % 5 = 0");
	tw_close(&tw);
	return 0;
}
