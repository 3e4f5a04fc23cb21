/* SPDX-License-Identifier: MIT */
/*
 * Ids, flags and packed ids are equal; weights within 1e-6, relative to those above 1. Kernels that
 * record leave the same bits in their outputs as those that do not, and in the ring what these say.
 * Where margins are asked for, they change no bit of the weights, and are within 1e-6, infinity
 * where the definition's are, and 0 of rows that tie alone.
 */
#include "tests/kernels/cuda/support/route_batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/cuda/device.h"
#include "kernels/route/route_cuda.h"
#include "libtrace/cuda/layout.h"
#include "tests/kernels/cuda/support/gpu.h"

struct route_rows route_rows;

static uint32_t max_rows = UINT32_MAX;

void route_batch_limit(uint32_t n_rows)
{
	max_rows = n_rows;
}

static size_t n_entries(const struct route_batch *batch)
{
	return (size_t)batch->n_rows * mtk_route_width(&batch->config);
}

size_t route_batch_biases(const struct route_batch *batch)
{
	const uint32_t n = mtk_route_columns(&batch->config);

	if (batch->config.bias == MTK_ROUTE_BIAS_NONE)
		return 0;
	return batch->config.bias_per_token ? (size_t)batch->n_rows * n : n;
}

static void define(struct route_batch *batch)
{
	void *scratch = gpu_host(sizeof(float) *
				 mtk_route_scratch_floats(mtk_route_columns(&batch->config)));
	const struct mtk_route_batch plain = {batch->n_rows, batch->n_valid, batch->logits,
					      batch->bias, batch->token_ids};

	batch->want = (struct mtk_route_result){
		.ids = gpu_host(n_entries(batch) * sizeof(int32_t)),
		.weights = gpu_host(n_entries(batch) * sizeof(float)),
		.packed = gpu_host(n_entries(batch) * sizeof(uint32_t)),
		.flags = gpu_host(batch->n_rows),
		.margins = gpu_host(batch->n_rows * sizeof(float)),
	};
	mtk_route_plain(&batch->config, &plain, 0, batch->n_rows, scratch, &batch->want);
	free(scratch);
}

void route_batch_release(struct route_batch *batch)
{
	free(batch->logits);
	free(batch->bias);
	free(batch->token_ids);
	free(batch->want.ids);
	free(batch->want.weights);
	free(batch->want.packed);
	free(batch->want.flags);
	free(batch->want.margins);
	gpu_free_all();
}

static void explain(const struct route_batch *batch, uint32_t row, const int32_t *ids)
{
	const struct mtk_route_config *c = &batch->config;
	const uint32_t n = mtk_route_columns(c), width = mtk_route_width(c);

	fprintf(stderr,
		"row %u of %u, %u columns top-%u, %s, bias %s%s, groups %s %u/%u, by %d, "
		"renormalise %s, flags %u\n",
		row, batch->n_rows, n, c->top_k, mtk_route_scoring_name(c->scoring),
		mtk_route_bias_name(c->bias), c->bias_per_token ? " per token" : "",
		mtk_route_groups_name(c->groups), c->n_keep_groups, c->n_groups, c->choose_by,
		mtk_route_renormalise_name(c->renormalise), batch->want.flags[row]);
	for (uint32_t j = 0; j < width; j++) {
		int32_t want = batch->want.ids[(size_t)row * width + j];

		fprintf(stderr, "  %2u: wanted %5d (logit %.9g) got %5d (logit %.9g)\n", j, want,
			want >= 0 && (uint32_t)want < n
				? (double)batch->logits[(size_t)row * n + (uint32_t)want]
				: 0.0,
			ids[j],
			ids[j] >= 0 && (uint32_t)ids[j] < n
				? (double)batch->logits[(size_t)row * n + (uint32_t)ids[j]]
				: 0.0);
	}
}

static void compare_row(const struct route_batch *batch, const struct mtk_route_result *got,
			uint32_t row)
{
	const uint32_t width = mtk_route_width(&batch->config);
	const size_t first = (size_t)row * width;
	const bool same =
		memcmp(got->ids + first, batch->want.ids + first, width * sizeof(int32_t)) == 0;

	if (!same || got->flags[row] != batch->want.flags[row])
		explain(batch, row, got->ids + first);
	gpu_check(same, "ids differ");
	gpu_check(got->flags[row] == batch->want.flags[row], "flags are %u", got->flags[row]);
	for (uint32_t j = 0; j < width; j++) {
		const float want = batch->want.weights[first + j];
		const float weight = got->weights[first + j];

		if (!(fabsf(weight - want) <= 1e-6f * fmaxf(1.0f, fabsf(want))))
			explain(batch, row, got->ids + first);
		gpu_check(fabsf(weight - want) <= 1e-6f * fmaxf(1.0f, fabsf(want)),
			  "weight %u is %.9g, not %.9g", j, (double)weight, (double)want);
		gpu_check(got->packed[first + j] == mtk_route_pack(got->ids[first + j], weight),
			  "packed %u is %08x", j, got->packed[first + j]);
	}
}

/* A place in a ring for the rows of one layer, and the word of a lane that says so. */
struct ring {
	struct moetrace_cuda_target target;
	uint32_t *words; /* as they came back */
	size_t n_bytes;
	uint8_t *device;
	uint64_t word;
};

#define RING_STAMP	 0x0abcdefu
#define RING_OFFSET	 512u
#define RING_LAYER_INDEX 5u

static struct ring make_ring(const struct route_batch *batch)
{
	const uint32_t width = mtk_route_width(&batch->config);
	const uint32_t code = mt_cuda_rows_code(batch->n_rows);
	struct ring ring = {.n_bytes = RING_OFFSET + MT_CUDA_HEAD_BYTES +
				       (size_t)batch->n_rows * (width + 1) * 8 + 64};

	ring.device = gpu_memory(ring.n_bytes);
	ring.words = gpu_host(ring.n_bytes);
	ring.word = mt_cuda_word(RING_STAMP, RING_OFFSET, mt_cuda_tag(code, 0));
	ring.target.base = (uint64_t)(uintptr_t)ring.device;
	ring.target.n_rows = mt_cuda_rows_of_code(code);
	ring.target.packed = mt_cuda_tag(code, 0) | width << 16;
	ring.target.indices = 65534u | RING_LAYER_INDEX << 16;
	return ring;
}

static void compare_recorded(const struct route_batch *batch, const struct ring *ring,
			     const struct mtk_route_result *got)
{
	const uint32_t width = mtk_route_width(&batch->config);
	const uint32_t *head = ring->words + RING_OFFSET / 4;
	const uint32_t *words = head + MT_CUDA_HEAD_BYTES / 4;

	gpu_check(head[0] == RING_STAMP && head[1] == RING_LAYER_INDEX && head[2] == batch->n_rows,
		  "the head is %x, %u, %u", head[0], head[1], head[2]);
	for (uint32_t row = 0; row < batch->n_rows; row++, words += 2 * (width + 1)) {
		const bool is_nan = got->flags[row] & MTK_ROUTE_FLAG_NAN;

		gpu_check((words[2 * width] & ~(MT_CUDA_FLAG_TIE | MT_CUDA_FLAG_MARGIN)) ==
				  (RING_STAMP | (is_nan ? MT_CUDA_FLAG_NAN : 0)),
			  "row %u: its mark is %x", row, words[2 * width]);
		for (uint32_t j = 0; j < width; j++) {
			const size_t at = (size_t)row * width + j;

			gpu_check(words[2 * j] == (uint32_t)got->ids[at],
				  "row %u, entry %u: recorded id %u, not %d", row, j, words[2 * j],
				  got->ids[at]);
			gpu_check(!memcmp(&words[2 * j + 1], &got->weights[at], 4),
				  "row %u, entry %u: recorded weight %x", row, j, words[2 * j + 1]);
		}
	}
	for (uint32_t i = 0; i < RING_OFFSET / 4; i++)
		gpu_check(ring->words[i] == 0xa5a5a5a5, "a word before the place was written");
	for (size_t i = (size_t)(words - ring->words); i < ring->n_bytes / 4; i++)
		gpu_check(ring->words[i] == 0xa5a5a5a5, "a word behind the place was written");
}

/* The same once more by the kernels that record, with a word that lets them and one that does not.
 */
static void check_recording(const struct route_batch *batch,
			    struct mtk_route_cuda_batch device_batch,
			    const struct mtk_route_result *device,
			    const struct mtk_route_result *want)
{
	const size_t n = n_entries(batch);
	struct ring ring = make_ring(batch);
	int32_t *ids = gpu_host(n * sizeof(*ids));
	float *weights = gpu_host(n * sizeof(*weights));

	for (int is_on = 0; is_on < 2; is_on++) {
		const uint64_t word = is_on ? ring.word : mt_cuda_closed(ring.word);
		struct mtk_error error;

		ring.target.word = (uint64_t)(uintptr_t)gpu_copy_of(&word, sizeof(word));
		device_batch.target = &ring.target;
		gpu_must(
			mtk_route_cuda(&batch->config, &device_batch, device, gpu_stream(), &error),
			&error, "recording");
		gpu_read(ids, device->ids, n * sizeof(*ids));
		gpu_read(weights, device->weights, n * sizeof(*weights));
		gpu_check(!memcmp(ids, want->ids, n * sizeof(*ids)) &&
				  !memcmp(weights, want->weights, n * sizeof(*weights)),
			  "to record changes what is chosen");
		gpu_read(ring.words, ring.device, ring.n_bytes);
		for (size_t i = 0; !is_on && i < ring.n_bytes / 4; i++)
			gpu_check(ring.words[i] == 0xa5a5a5a5, "something was stored while idle");
	}
	compare_recorded(batch, &ring, want);
	route_rows.n_recorded += batch->n_rows;
	free(ring.words);
	free(ids);
	free(weights);
}

/* The largest number that choosing values are sums of, 1 or more. */
static double magnitude(const float *numbers, size_t n)
{
	double largest = 1.0;

	for (size_t i = 0; i < n; i++)
		if (isfinite(numbers[i]))
			largest = fmax(largest, fabs((double)numbers[i]));
	return largest;
}

static void compare_margins(const struct route_batch *batch, const float *margins)
{
	const size_t n = (size_t)batch->n_rows * mtk_route_columns(&batch->config);
	const double error = 1e-13 * (magnitude(batch->logits, n) +
				      magnitude(batch->bias, route_batch_biases(batch)));

	for (uint32_t row = 0; row < batch->n_rows; row++) {
		const double want = (double)batch->want.margins[row], got = (double)margins[row];
		const bool is_infinite = isinf(want) || isinf(got);
		const bool may_be_0 = batch->want.flags[row] & MTK_ROUTE_FLAG_TIE;

		gpu_check(is_infinite ? got == want : fabs(got - want) <= 1e-6 * want + error,
			  "row %u: the margin is %.9g, not %.9g", row, got, want);
		gpu_check(got > 0.0 || may_be_0, "row %u: the margin is %.9g without a tie", row,
			  got);
	}
}

/* The facts of rows in the ring are those that the launch wrote beside. */
static void compare_facts(const struct route_batch *batch, const struct ring *ring,
			  const uint8_t *flags, const float *margins)
{
	const uint32_t width = mtk_route_width(&batch->config);
	const uint32_t *words = ring->words + (RING_OFFSET + MT_CUDA_HEAD_BYTES) / 4;

	for (uint32_t row = 0; row < batch->n_rows; row++, words += 2 * (width + 1)) {
		const bool is_tie = flags[row] & MTK_ROUTE_FLAG_TIE;

		gpu_check((words[2 * width] & (MT_CUDA_FLAG_TIE | MT_CUDA_FLAG_MARGIN)) ==
				  (MT_CUDA_FLAG_MARGIN | (is_tie ? MT_CUDA_FLAG_TIE : 0)),
			  "row %u: its mark with a margin is %x", row, words[2 * width]);
		gpu_check(!memcmp(&words[2 * width + 1], &margins[row], 4),
			  "row %u: recorded margin %x", row, words[2 * width + 1]);
	}
}

/* The same by the definition's kernel, which tells margins, and into a ring where it can. */
static void check_margins(const struct route_batch *batch, struct mtk_route_cuda_batch device_batch,
			  struct mtk_route_result device, struct mtk_route_result got)
{
	const size_t n = n_entries(batch);
	float *weights = gpu_host(n * sizeof(*weights));
	struct mtk_error error;
	struct ring ring = {0};
	const bool has_ring = mtk_route_cuda_records_margins(&batch->config);

	device.margins = gpu_memory(batch->n_rows * sizeof(float));
	got.margins = gpu_host(batch->n_rows * sizeof(float));
	if (has_ring) {
		ring = make_ring(batch);
		ring.target.word = (uint64_t)(uintptr_t)gpu_copy_of(&ring.word, sizeof(ring.word));
		device_batch.target = &ring.target;
		device_batch.with_margins = true;
	}
	gpu_must(mtk_route_cuda(&batch->config, &device_batch, &device, gpu_stream(), &error),
		 &error, "routing with margins");
	memcpy(weights, got.weights, n * sizeof(*weights));
	gpu_read(got.ids, device.ids, n * sizeof(int32_t));
	gpu_read(got.weights, device.weights, n * sizeof(float));
	gpu_check(!memcmp(weights, got.weights, n * sizeof(*weights)),
		  "weights are others with margins");
	gpu_read(got.packed, device.packed, n * sizeof(uint32_t));
	gpu_read(got.flags, device.flags, batch->n_rows);
	gpu_read(got.margins, device.margins, batch->n_rows * sizeof(float));
	for (uint32_t row = 0; row < batch->n_rows; row++)
		compare_row(batch, &got, row);
	compare_margins(batch, got.margins);
	if (has_ring) {
		gpu_read(ring.words, ring.device, ring.n_bytes);
		compare_recorded(batch, &ring, &got);
		compare_facts(batch, &ring, got.flags, got.margins);
		route_rows.n_told += batch->n_rows;
		free(ring.words);
	}
	free(got.margins);
	free(weights);
}

static const float *copy_logits(const struct route_batch *batch)
{
	const size_t n = (size_t)batch->n_rows * mtk_route_columns(&batch->config);
	struct mtk_error error;
	float *askew, *device;

	if (!batch->is_askew)
		return gpu_copy_of(batch->logits, n * sizeof(float));
	askew = gpu_host((n + 1) * sizeof(float));
	askew[0] = 0.0f;
	memcpy(askew + 1, batch->logits, n * sizeof(float));
	device = gpu_copy_of(askew, (n + 1) * sizeof(float));
	gpu_must(mtk_cuda_stream_wait(gpu_stream(), &error), &error, "upload");
	free(askew);
	return device + 1;
}

void route_batch_check(struct route_batch *batch, bool by_graph)
{
	const struct mtk_route_cuda_batch device_batch = {
		.n_rows = batch->n_rows,
		.n_valid_rows = batch->n_valid < batch->n_rows
					? gpu_copy_of(&batch->n_valid, sizeof(batch->n_valid))
					: NULL,
		.logits = copy_logits(batch),
		.bias = route_batch_biases(batch)
				? gpu_copy_of(batch->bias,
					      route_batch_biases(batch) * sizeof(float))
				: NULL,
		.token_ids = gpu_copy_of(batch->token_ids, batch->n_rows * sizeof(int32_t)),
		.hash_table = gpu_copy_of(batch->config.hash_table,
					  (size_t)batch->config.n_hash_tokens *
						  batch->config.top_k * sizeof(int32_t)),
	};
	const struct mtk_route_result device = {
		.ids = gpu_memory(n_entries(batch) * sizeof(int32_t)),
		.weights = gpu_memory(n_entries(batch) * sizeof(float)),
		.packed = gpu_memory(n_entries(batch) * sizeof(uint32_t)),
		.flags = gpu_memory(batch->n_rows),
	};
	struct mtk_route_result got = {
		.ids = gpu_host(n_entries(batch) * sizeof(int32_t)),
		.weights = gpu_host(n_entries(batch) * sizeof(float)),
		.packed = gpu_host(n_entries(batch) * sizeof(uint32_t)),
		.flags = gpu_host(batch->n_rows),
	};
	struct mtk_error error;
	void *graph = NULL;
	const char *reason;

	define(batch);
	gpu_must(mtk_cuda_stream_wait(gpu_stream(), &error), &error, "uploads");
	if (by_graph)
		gpu_must(mtk_cuda_graph_begin(gpu_stream(), &error), &error, "capture");
	gpu_must(mtk_route_cuda(&batch->config, &device_batch, &device, gpu_stream(), &error),
		 &error, "routing");
	if (by_graph) {
		gpu_must(mtk_cuda_graph_end(gpu_stream(), &error, &graph), &error, "graph");
		gpu_must(mtk_cuda_graph_launch(graph, gpu_stream(), &error), &error, "replay");
	}
	gpu_read(got.ids, device.ids, n_entries(batch) * sizeof(int32_t));
	gpu_read(got.weights, device.weights, n_entries(batch) * sizeof(float));
	gpu_read(got.packed, device.packed, n_entries(batch) * sizeof(uint32_t));
	gpu_read(got.flags, device.flags, batch->n_rows);
	for (uint32_t row = 0; row < batch->n_rows; row++)
		compare_row(batch, &got, row);
	route_rows.n_checked += batch->n_rows;
	if (batch->n_rows > 0 && mtk_route_cuda_records(&batch->config))
		check_recording(batch, device_batch, &device, &got);
	if (batch->n_rows > 0)
		check_margins(batch, device_batch, device, got);
	if (mtk_route_cuda_lane_columns(&batch->config, &reason) > 0)
		route_rows.n_fast += batch->n_rows;
	mtk_cuda_graph_destroy(graph);
	free(got.ids);
	free(got.weights);
	free(got.packed);
	free(got.flags);
}

struct route_batch route_batch_make(struct random *random, const struct mtk_route_config *config,
				    uint32_t n_rows, bool is_hard)
{
	const uint32_t n = mtk_route_columns(config);
	struct route_batch batch = {.config = *config};

	n_rows = n_rows < max_rows ? n_rows : max_rows;
	batch.n_rows = batch.n_valid = n_rows;
	batch.logits = gpu_host((size_t)n_rows * n * sizeof(float));
	for (uint32_t row = 0; row < n_rows; row++)
		for (uint32_t e = 0; is_hard ? e == 0 : e < n; e++) {
			float *at = batch.logits + (size_t)row * n + e;

			if (is_hard)
				random_logits(random, config, at);
			else
				*at = 2.0f * (random_unit(random) + random_unit(random));
		}
	batch.bias = gpu_host((route_batch_biases(&batch) + 1) * sizeof(float));
	if (is_hard)
		random_biases(random, (uint32_t)route_batch_biases(&batch), batch.bias);
	for (size_t i = 0; !is_hard && i < route_batch_biases(&batch); i++)
		batch.bias[i] = 0.1f * random_unit(random);
	return batch;
}
