/* SPDX-License-Identifier: MIT */
/*
 * The parts of a transformer's layer on a GPU against their definitions: embedding, norm, linear
 * operation, heads with their cache, attention, sampling, the expert MLP and activation in fp32,
 * for all types, sizes about a warp and a tile, and padding rows, of which nothing may be stored.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/weights.h"
#include "kernels/embed/embed_cuda.h"
#include "kernels/experts/experts_f32_cuda.h"
#include "kernels/gemm/linear_cuda.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rmsnorm/rmsnorm_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/routing/support/settings.h"

static struct random state = {20261130};

static float *random_floats(size_t n)
{
	float *values = gpu_host(n * sizeof(*values));

	for (size_t i = 0; i < n; i++)
		values[i] = random_unit(&state);
	return values;
}

/* Weights of a type, and the same widened. bf16 is the upper half of a float. */
struct weights {
	void *data;
	float *wide;
	size_t n_bytes;
};

static struct weights random_weights(enum mtk_dtype dtype, size_t n)
{
	struct weights w = {.n_bytes = n * mtk_dtype_bytes(dtype)};
	uint16_t *halves;

	w.data = gpu_host(w.n_bytes);
	w.wide = gpu_host(n * sizeof(float));
	halves = w.data;
	for (size_t i = 0; i < n; i++) {
		const float value = random_unit(&state);
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		if (dtype == MTK_DTYPE_F32)
			memcpy((char *)w.data + 4 * i, &value, sizeof(value));
		else if (dtype == MTK_DTYPE_BF16)
			halves[i] = (uint16_t)(bits >> 16);
		else /* a sign, an exponent near that of 1, and any fraction */
			halves[i] = (uint16_t)((bits >> 16 & 0x8000) | 0x3400 | (bits & 0x3ff));
	}
	mtk_widen(dtype, w.data, n, w.wide);
	return w;
}

static void weights_free(struct weights *w)
{
	free(w->data);
	free(w->wide);
}

/* Every element within a tolerance that is relative to the largest value. */
static void near(const float *want, const void *device, size_t n, double tolerance,
		 const char *what)
{
	float *got = gpu_host(n * sizeof(*got));
	double largest = 1e-30;

	gpu_read(got, device, n * sizeof(*got));
	for (size_t i = 0; i < n; i++)
		largest = fmax(largest, fabs((double)want[i]));
	for (size_t i = 0; i < n; i++)
		gpu_check(fabs((double)got[i] - (double)want[i]) <= tolerance * largest,
			  "%s: element %zu is %.9g, not %.9g", what, i, (double)got[i],
			  (double)want[i]);
	free(got);
}

static void must(int status, const struct mtk_error *error, const char *what)
{
	gpu_must(status, error, what);
}

/* ---- embedding, norm, linear operation ---- */

static void check_embed(enum mtk_dtype dtype)
{
	enum { N_VOCAB = 7, N_HIDDEN = 300, N_ROWS = 5 };
	const int32_t tokens[N_ROWS] = {6, 0, -1, 7, 3};
	struct weights w = random_weights(dtype, N_VOCAB * N_HIDDEN);
	struct mtk_embed_cuda embed = {dtype, N_ROWS, N_VOCAB, N_HIDDEN, NULL, NULL, NULL};
	float want[N_ROWS * N_HIDDEN] = {0};
	struct mtk_error error;

	for (int r = 0; r < N_ROWS; r++)
		if (tokens[r] >= 0 && tokens[r] < N_VOCAB)
			memcpy(want + r * N_HIDDEN, w.wide + tokens[r] * N_HIDDEN,
			       N_HIDDEN * sizeof(*want));
	embed.weights = gpu_copy_of(w.data, w.n_bytes);
	embed.token_ids = gpu_copy_of(tokens, sizeof(tokens));
	embed.hidden = gpu_memory(sizeof(want));
	must(mtk_embed_cuda(&embed, gpu_stream(), &error), &error, "embedding");
	near(want, embed.hidden, N_ROWS * N_HIDDEN, 0.0, "embedding");
	gpu_free_all();
	weights_free(&w);
}

static void check_norm(uint32_t n, bool adds, bool gathers)
{
	enum { N_ROWS = 9, N_FROM = 12 };
	const uint32_t rows[N_ROWS] = {11, 0, 5, 5, 1, 2, 3, 10, 4};
	const size_t n_all = (size_t)N_FROM * n;
	float *hidden = random_floats(n_all), *first = random_floats(n_all);
	float *second = random_floats(n_all), *weight = random_floats(n);
	float *sums = gpu_host(n_all * sizeof(*sums));
	float *want = gpu_host((size_t)N_ROWS * n * sizeof(*want));
	struct mtk_rmsnorm_cuda norm = {
		.n_rows = N_ROWS, .n = n, .epsilon = 1e-6f, .dtype = MTK_DTYPE_F32};
	struct mtk_error error;

	for (size_t i = 0; i < n_all; i++)
		sums[i] = adds ? hidden[i] + first[i] + second[i] : hidden[i];
	for (size_t r = 0; r < N_ROWS; r++)
		mtk_rmsnorm_plain(sums + (gathers ? rows[r] : r) * n, weight, n, 1e-6f,
				  want + r * n);
	norm.hidden = gpu_copy_of(hidden, n_all * sizeof(*hidden));
	norm.first_add = adds ? gpu_copy_of(first, n_all * sizeof(*first)) : NULL;
	norm.second_add = adds ? gpu_copy_of(second, n_all * sizeof(*second)) : NULL;
	norm.rows = gathers ? gpu_copy_of(rows, sizeof(rows)) : NULL;
	norm.weight = gpu_copy_of(weight, n * sizeof(*weight));
	norm.normed = gpu_memory((size_t)N_ROWS * n * sizeof(float));
	must(mtk_rmsnorm_cuda(&norm, gpu_stream(), &error), &error, "norm");
	near(want, norm.normed, (size_t)N_ROWS * n, 4e-6, "norm");
	/* The residual stream holds the sums of the rows that were normed, where rows are not given. */
	near(gathers ? hidden : sums, norm.hidden, (size_t)N_ROWS * n, 0.0, "residual stream");
	gpu_free_all();
	free(hidden);
	free(first);
	free(second);
	free(weight);
	free(sums);
	free(want);
}

static void check_linear(enum mtk_dtype dtype, uint32_t n_rows, uint32_t n_in, uint32_t n_out,
			 bool has_bias)
{
	struct weights w = random_weights(dtype, (size_t)n_out * n_in);
	float *x = random_floats((size_t)n_rows * n_in), *bias = random_floats(n_out);
	float *want = gpu_host((size_t)n_rows * n_out * sizeof(*want));
	struct mtk_linear_cuda linear = {.dtype = dtype,
					 .n_rows = n_rows,
					 .n_in = n_in,
					 .n_out = n_out,
					 .x_stride = n_in};
	struct mtk_error error;

	for (size_t r = 0; r < n_rows; r++)
		for (size_t o = 0; o < n_out; o++) {
			double sum = has_bias ? (double)bias[o] : 0.0;

			for (size_t i = 0; i < n_in; i++)
				sum += (double)x[r * n_in + i] * (double)w.wide[o * n_in + i];
			want[r * n_out + o] = (float)sum;
		}
	linear.x = gpu_copy_of(x, (size_t)n_rows * n_in * sizeof(*x));
	linear.w = gpu_copy_of(w.data, w.n_bytes);
	linear.bias = has_bias ? gpu_copy_of(bias, n_out * sizeof(*bias)) : NULL;
	linear.y = gpu_memory((size_t)n_rows * n_out * sizeof(float));
	must(mtk_linear_cuda(&linear, gpu_stream(), &error), &error, "linear operation");
	near(want, linear.y, (size_t)n_rows * n_out, 2e-6, "linear operation");
	gpu_free_all();
	weights_free(&w);
	free(x);
	free(bias);
	free(want);
}

/* The same row gives the same bits alone and among others. */
static void check_linear_batches(void)
{
	enum { N_ROWS = 21, N_IN = 128, N_OUT = 70 };
	struct weights w = random_weights(MTK_DTYPE_F16, N_OUT * N_IN);
	float *x = random_floats(N_ROWS * N_IN);
	float all[N_ROWS * N_OUT], one[N_OUT];
	struct mtk_linear_cuda linear = {.dtype = MTK_DTYPE_F16,
					 .n_rows = N_ROWS,
					 .n_in = N_IN,
					 .n_out = N_OUT,
					 .x_stride = N_IN};
	struct mtk_error error;
	const float *rows = gpu_copy_of(x, N_ROWS * N_IN * sizeof(*x));

	linear.x = rows;
	linear.w = gpu_copy_of(w.data, w.n_bytes);
	linear.y = gpu_memory(sizeof(all));
	must(mtk_linear_cuda(&linear, gpu_stream(), &error), &error, "linear operation");
	gpu_read(all, linear.y, sizeof(all));
	linear.n_rows = 1;
	for (size_t r = 0; r < N_ROWS; r++) {
		linear.x = rows + r * N_IN;
		must(mtk_linear_cuda(&linear, gpu_stream(), &error), &error, "linear operation");
		gpu_read(one, linear.y, sizeof(one));
		gpu_check(memcmp(one, all + r * N_OUT, sizeof(one)) == 0,
			  "row %zu differs alone and in a batch", r);
	}
	gpu_free_all();
	weights_free(&w);
	free(x);
}

static void check_unpack(enum mtk_dtype dtype)
{
	enum { N_OUT = 37, N_IN = 50 };
	struct weights w = random_weights(dtype, N_OUT * N_IN);
	const size_t n_packed = mtk_matrix_bytes(dtype, N_OUT, N_IN);
	struct mtk_matrix matrix = {dtype, N_OUT, N_IN, gpu_host(n_packed)};
	void *packed, *rows, *got = gpu_host(w.n_bytes);
	struct mtk_error error;

	memset(matrix.data, 0, n_packed);
	mtk_matrix_pack(&matrix, 0, N_OUT, dtype, w.data);
	packed = gpu_copy_of(matrix.data, n_packed);
	rows = gpu_memory(w.n_bytes);
	must(mtk_cuda_unpack(dtype, N_OUT, N_IN, packed, rows, gpu_stream(), &error), &error,
	     "unpacking");
	gpu_read(got, rows, w.n_bytes);
	gpu_check(memcmp(got, w.data, w.n_bytes) == 0, "unpacked weights differ");
	gpu_free_all();
	free(got);
	free(matrix.data);
	weights_free(&w);
}

/* ---- heads and attention ---- */

struct sizes {
	uint32_t n_heads;
	uint32_t n_kv_heads;
	uint32_t head_dim;
};

enum { N_SLOTS = 3, N_CONTEXT = 1100, N_ATTEND = 7, N_VALID = 6 };

static const int32_t positions[N_ATTEND] = {0, 1099, 127, 128, 31, 256, 17};
static const uint32_t slots[N_ATTEND] = {2, 0, 1, 0, 0, 1, 1};

static size_t cache_floats(const struct sizes *s)
{
	return (size_t)N_SLOTS * s->n_kv_heads * N_CONTEXT * s->head_dim;
}

static float *cache_at(float *cache, const struct sizes *s, uint32_t slot, uint32_t head,
		       uint32_t position)
{
	return cache + (((size_t)slot * s->n_kv_heads + head) * N_CONTEXT + position) * s->head_dim;
}

static void check_heads(const struct sizes *s)
{
	const uint32_t dim = s->head_dim, n = s->n_heads + 2 * s->n_kv_heads;
	const size_t n_qkv = (size_t)N_ATTEND * n * dim, n_cache = cache_floats(s);
	float *qkv = random_floats(n_qkv), *norms = random_floats(2 * dim);
	float *turns = gpu_host((size_t)N_CONTEXT * dim * sizeof(float));
	float *sines = turns + (size_t)N_CONTEXT * (dim / 2);
	float *keys = random_floats(n_cache), *values = random_floats(n_cache);
	const uint32_t n_valid = N_VALID;
	struct mtk_heads_cuda heads = {
		.n_rows = N_ATTEND,
		.n_heads = s->n_heads,
		.n_kv_heads = s->n_kv_heads,
		.head_dim = dim,
		.n_context = N_CONTEXT,
		.epsilon = 1e-6f,
		.kv_dtype = MTK_DTYPE_F32,
	};
	struct mtk_error error;

	mtk_rope_table_fill(10000.0f, dim, N_CONTEXT, turns, sines);
	heads.n_valid_rows = gpu_copy_of(&n_valid, sizeof(n_valid));
	heads.query_norm = gpu_copy_of(norms, dim * sizeof(float));
	heads.key_norm = gpu_copy_of(norms + dim, dim * sizeof(float));
	heads.cosines = gpu_copy_of(turns, (size_t)N_CONTEXT * (dim / 2) * sizeof(float));
	heads.sines = gpu_copy_of(sines, (size_t)N_CONTEXT * (dim / 2) * sizeof(float));
	heads.positions = gpu_copy_of(positions, sizeof(positions));
	heads.slots = gpu_copy_of(slots, sizeof(slots));
	heads.qkv = gpu_copy_of(qkv, n_qkv * sizeof(float));
	heads.keys = gpu_copy_of(keys, n_cache * sizeof(float));
	heads.values = gpu_copy_of(values, n_cache * sizeof(float));
	for (uint32_t r = 0; r < N_VALID; r++) {
		const size_t turn = (size_t)positions[r] * (dim / 2);
		float *head = qkv + (size_t)r * n * dim;

		for (uint32_t h = 0; h < s->n_heads + s->n_kv_heads; h++) {
			float *at = head + (size_t)h * dim;
			float copy[MTK_ATTENTION_CUDA_MAX_HEAD_DIM];
			const bool is_key = h >= s->n_heads;

			mtk_rmsnorm_plain(at, norms + (is_key ? dim : 0), dim, 1e-6f, copy);
			mtk_rope_plain(turns + turn, sines + turn, dim, copy);
			memcpy(is_key ? cache_at(keys, s, slots[r], h - s->n_heads,
						 (uint32_t)positions[r])
				      : at,
			       copy, dim * sizeof(float));
		}
		for (uint32_t h = 0; h < s->n_kv_heads; h++)
			memcpy(cache_at(values, s, slots[r], h, (uint32_t)positions[r]),
			       head + (size_t)(s->n_heads + s->n_kv_heads + h) * dim,
			       dim * sizeof(float));
	}
	must(mtk_heads_cuda(&heads, gpu_stream(), &error), &error, "heads");
	near(qkv, heads.qkv, n_qkv, 4e-6, "queries");
	near(keys, heads.keys, n_cache, 4e-6, "keys");
	near(values, heads.values, n_cache, 0.0, "values");
	gpu_free_all();
	free(qkv);
	free(norms);
	free(turns);
	free(keys);
	free(values);
}

static void attend_row(const struct sizes *s, const float *queries, float *keys, float *values,
		       uint32_t row, float *ret_out)
{
	const uint32_t dim = s->head_dim, n_group = s->n_heads / s->n_kv_heads;
	const uint32_t n = (uint32_t)positions[row] + 1;

	for (uint32_t h = 0; h < s->n_heads; h++) {
		const float *query = queries + ((size_t)row * s->n_heads + h) * dim;
		float *out = ret_out + ((size_t)row * s->n_heads + h) * dim;
		double scores[N_CONTEXT], max = -INFINITY, sum = 0.0;

		for (uint32_t t = 0; t < n; t++) {
			const float *key = cache_at(keys, s, slots[row], h / n_group, t);

			scores[t] = 0.0;
			for (uint32_t d = 0; d < dim; d++)
				scores[t] += (double)query[d] * (double)key[d];
			scores[t] /= sqrt(dim);
			max = fmax(max, scores[t]);
		}
		for (uint32_t t = 0; t < n; t++) {
			scores[t] = exp(scores[t] - max);
			sum += scores[t];
		}
		for (uint32_t d = 0; d < dim; d++) {
			double value = 0.0;

			for (uint32_t t = 0; t < n; t++)
				value += scores[t] *
					 (double)cache_at(values, s, slots[row], h / n_group, t)[d];
			out[d] = (float)(value / sum);
		}
	}
}

/* Rows spread over blocks; a second time, which finds the scratch memory as the first left it. */
static void check_attention_split(struct mtk_attention_cuda *attention, const float *want,
				  size_t n_out)
{
	const size_t n_bytes = n_out * sizeof(float);
	const size_t n_scratch = mtk_attention_cuda_scratch_bytes();
	float *whole = gpu_host(n_bytes), *first = gpu_host(n_bytes), *second = gpu_host(n_bytes);
	void *zeros = gpu_host(n_scratch);
	struct mtk_error error;

	memset(zeros, 0, n_scratch);
	gpu_read(whole, attention->out, n_bytes);
	attention->scratch = gpu_copy_of(zeros, n_scratch);
	must(mtk_attention_cuda(attention, gpu_stream(), &error), &error, "attention");
	near(want, attention->out, n_out, 1e-5, "attention, split");
	gpu_read(first, attention->out, n_bytes);
	must(mtk_attention_cuda(attention, gpu_stream(), &error), &error, "attention");
	gpu_read(second, attention->out, n_bytes);
	gpu_check(memcmp(first, second, n_bytes) == 0, "attention, split: another result");
	/* The sums' order is another one, so that this shows that blocks were at work; with many
	   heads a smaller GPU is full without. */
	gpu_check(attention->n_kv_heads > 4 || memcmp(whole, first, n_bytes) != 0,
		  "attention was not split");
	free(whole);
	free(first);
	free(second);
	free(zeros);
}

static void check_attention(const struct sizes *s)
{
	const size_t n_out = (size_t)N_ATTEND * s->n_heads * s->head_dim, n_cache = cache_floats(s);
	float *queries = random_floats(n_out);
	float *keys = random_floats(n_cache), *values = random_floats(n_cache);
	float *want = gpu_host(n_out * sizeof(*want));
	const uint32_t n_valid = N_VALID;
	struct mtk_attention_cuda attention = {
		.n_rows = N_ATTEND,
		.n_heads = s->n_heads,
		.n_kv_heads = s->n_kv_heads,
		.head_dim = s->head_dim,
		.n_context = N_CONTEXT,
		.scale = 1.0f / sqrtf((float)s->head_dim),
		.query_stride = (size_t)s->n_heads * s->head_dim,
		.dtype = MTK_DTYPE_F32,
	};
	struct mtk_error error;

	memset(want, 0, n_out * sizeof(*want));
	for (uint32_t row = 0; row < N_VALID; row++)
		attend_row(s, queries, keys, values, row, want);
	attention.n_valid_rows = gpu_copy_of(&n_valid, sizeof(n_valid));
	attention.positions = gpu_copy_of(positions, sizeof(positions));
	attention.slots = gpu_copy_of(slots, sizeof(slots));
	attention.queries = gpu_copy_of(queries, n_out * sizeof(float));
	attention.keys = gpu_copy_of(keys, n_cache * sizeof(float));
	attention.values = gpu_copy_of(values, n_cache * sizeof(float));
	attention.out = gpu_memory(n_out * sizeof(float));
	must(mtk_attention_cuda(&attention, gpu_stream(), &error), &error, "attention");
	near(want, attention.out, n_out, 1e-5, "attention");
	check_attention_split(&attention, want, n_out);
	gpu_free_all();
	free(queries);
	free(keys);
	free(values);
	free(want);
}

/* ---- sampling ---- */

static void check_sampling(void)
{
	enum { N_ROWS = 40, N_VOCAB = 261 };
	float logits[N_ROWS * N_VOCAB];
	int32_t *got, ids[N_ROWS];
	struct mtk_error error;

	for (size_t i = 0; i < N_ROWS * N_VOCAB; i++)
		logits[i] = floorf(8.0f * random_unit(&state)); /* many ties */
	for (size_t v = 0; v < N_VOCAB; v++) {
		logits[v] = NAN;
		logits[N_VOCAB + v] = -INFINITY;
		logits[2 * N_VOCAB + v] = v < 100 ? NAN : -INFINITY;
	}
	logits[3 * N_VOCAB] = NAN;
	got = gpu_memory(sizeof(ids));
	must(mtk_sample_greedy_cuda(gpu_copy_of(logits, sizeof(logits)), N_ROWS, N_VOCAB, got,
				    gpu_stream(), &error),
	     &error, "sampling");
	gpu_read(ids, got, sizeof(ids));
	for (size_t r = 0; r < N_ROWS; r++)
		gpu_check(ids[r] == mtk_sample_greedy(logits + r * N_VOCAB, N_VOCAB),
			  "row %zu: sampled %d, not %d", r, ids[r],
			  mtk_sample_greedy(logits + r * N_VOCAB, N_VOCAB));
	gpu_free_all();
}

/* ---- experts ---- */

enum { N_EXPERTS = 3, N_HIDDEN = 40, N_UNITS = 19, TOP_K = 2, N_PAIRS = 10, N_BLOCKS = 3 };

static double activation(const struct mtk_activation_cuda *a, double gate, double up)
{
	if (a->squared_relu)
		return up > 0.0 ? up * up : 0.0;
	gate = fmin(gate, (double)a->clamp.limit);
	up = fmax(fmin(up, (double)a->clamp.limit), -(double)a->clamp.limit);
	return gate / (1.0 + exp(-(double)a->clamp.alpha * gate)) * (up + (double)a->clamp.offset);
}

/* One pair, from its row to its output. */
static void expert_pair(const struct mtk_experts_f32_cuda *e, const float *gate_up,
			const float *down, const float *biases, const float *x, float weight,
			uint32_t expert, float *ret_out)
{
	const uint32_t n_up = e->activation.squared_relu ? 0 : N_UNITS, n = n_up + N_UNITS;
	const double in = e->weighting == MTK_WEIGHT_ON_INPUT ? (double)weight : 1.0;
	const double after = e->weighting == MTK_WEIGHT_ON_OUTPUT ? (double)weight : 1.0;
	double middle[N_UNITS];

	for (uint32_t u = 0; u < N_UNITS; u++) {
		double sums[2] = {biases[expert * n + u], biases[expert * n + n_up + u]};

		for (uint32_t i = 0; i < N_HIDDEN; i++) {
			sums[0] += in * (double)x[i] *
				   (double)gate_up[((size_t)expert * n + u) * N_HIDDEN + i];
			sums[1] += in * (double)x[i] *
				   (double)gate_up[((size_t)expert * n + n_up + u) * N_HIDDEN + i];
		}
		middle[u] = activation(&e->activation, sums[0], sums[1]);
	}
	for (uint32_t o = 0; o < N_HIDDEN; o++) {
		double sum = biases[N_EXPERTS * 2 * N_UNITS + expert * N_HIDDEN + o];

		for (uint32_t u = 0; u < N_UNITS; u++)
			sum += middle[u] *
			       (double)down[((size_t)expert * N_HIDDEN + o) * N_UNITS + u];
		ret_out[o] = (float)(after * sum);
	}
}

static void check_experts(enum mtk_dtype dtype, bool squared_relu, bool is_clamped,
			  enum mtk_expert_weighting weighting)
{
	/* Expert 2 has a full block, expert 0 two pairs; the last block has none. */
	static const int64_t pairs[N_BLOCKS * 8] = {1, 4, 10, 10, 10, 10, 10, 10, 0,  2,  3,  5,
						    6, 7, 8,  9,  10, 10, 10, 10, 10, 10, 10, 10};
	static const int32_t experts_of[N_BLOCKS] = {0, 2, -1};
	const size_t n_gate_up = (size_t)N_EXPERTS * (squared_relu ? 1 : 2) * N_UNITS * N_HIDDEN;
	struct weights gate_up = random_weights(dtype, n_gate_up);
	struct weights down = random_weights(dtype, N_EXPERTS * N_HIDDEN * N_UNITS);
	float *x = random_floats(N_PAIRS / TOP_K * N_HIDDEN), *weights = random_floats(N_PAIRS);
	float *biases = random_floats(N_EXPERTS * (2 * N_UNITS + N_HIDDEN));
	float want[N_BLOCKS * 8 * N_HIDDEN], *device_biases;
	struct mtk_experts_f32_cuda e = {
		.dtype = dtype,
		.n_hidden = N_HIDDEN,
		.n_intermediate = N_UNITS,
		.top_k = TOP_K,
		.activation = {squared_relu, {INFINITY, 1.0f, 0.0f}},
		.weighting = weighting,
		.n_pairs = N_PAIRS,
		.n_blocks = N_BLOCKS,
	};
	struct mtk_error error;

	if (is_clamped)
		e.activation.clamp = (struct mtk_swiglu_clamp){0.5f, 1.7f, 1.0f};
	/* What is not written keeps its pattern. */
	memset(want, 0xa5, sizeof(want));
	for (int slot = 0; slot < N_BLOCKS * 8; slot++)
		if (pairs[slot] < N_PAIRS)
			expert_pair(&e, gate_up.wide, down.wide, biases,
				    x + pairs[slot] / TOP_K * N_HIDDEN, weights[pairs[slot]],
				    (uint32_t)experts_of[slot / 8], want + slot * N_HIDDEN);
	e.gate_up = gpu_copy_of(gate_up.data, gate_up.n_bytes);
	e.down = gpu_copy_of(down.data, down.n_bytes);
	device_biases = gpu_copy_of(biases, N_EXPERTS * (2 * N_UNITS + N_HIDDEN) * sizeof(float));
	e.gate_up_bias = device_biases;
	e.down_bias = device_biases + N_EXPERTS * 2 * N_UNITS;
	e.sorted_pairs = gpu_copy_of(pairs, sizeof(pairs));
	e.expert_ids = gpu_copy_of(experts_of, sizeof(experts_of));
	e.x = gpu_copy_of(x, N_PAIRS / TOP_K * N_HIDDEN * sizeof(float));
	e.weights = gpu_copy_of(weights, N_PAIRS * sizeof(float));
	e.middle = gpu_memory(N_BLOCKS * 8 * N_UNITS * sizeof(float));
	e.out = gpu_memory(sizeof(want));
	must(mtk_experts_f32_cuda(&e, gpu_stream(), &error), &error, "experts");
	near(want, e.out, N_BLOCKS * 8 * N_HIDDEN, 3e-6, "experts");
	gpu_free_all();
	weights_free(&gate_up);
	weights_free(&down);
	free(x);
	free(weights);
	free(biases);
}

static void check_activation(bool squared_relu)
{
	enum { N_ROWS = 5, N = 131 };
	const size_t n_in = squared_relu ? N : 2 * N;
	float *x = random_floats(N_ROWS * n_in), *gates = random_floats(N_ROWS);
	float want[N_ROWS * N];
	struct mtk_activate_cuda activate = {
		.activation = {squared_relu, {INFINITY, 1.0f, 0.0f}},
		.n_rows = N_ROWS,
		.n = N,
		.dtype = MTK_DTYPE_F32,
	};
	struct mtk_error error;

	for (size_t r = 0; r < N_ROWS; r++)
		for (size_t i = 0; i < N; i++)
			want[r * N + i] = (float)(activation(&activate.activation,
							     (double)x[r * n_in + i],
							     (double)x[r * n_in + n_in - N + i]) /
						  (1.0 + exp(-(double)gates[r])));
	activate.gate_up = gpu_copy_of(x, N_ROWS * n_in * sizeof(float));
	activate.row_gates = gpu_copy_of(gates, N_ROWS * sizeof(float));
	activate.out = gpu_memory(sizeof(want));
	must(mtk_activate_cuda(&activate, gpu_stream(), &error), &error, "activation");
	near(want, activate.out, N_ROWS * N, 1e-6, "activation");
	gpu_free_all();
	free(x);
	free(gates);
}

int main(void)
{
	static const struct sizes sizes[] = {{4, 2, 32},  {12, 1, 128}, {3, 3, 6},
					     {8, 4, 256}, {2, 1, 80},	{8, 8, 64}};
	static const uint32_t widths[] = {1, 31, 128, 2048};

	gpu_open_or_skip();
	for (int dtype = MTK_DTYPE_F32; dtype <= MTK_DTYPE_BF16; dtype++) {
		check_embed((enum mtk_dtype)dtype);
		check_unpack((enum mtk_dtype)dtype);
		check_linear((enum mtk_dtype)dtype, 1, 128, 256, false);
		check_linear((enum mtk_dtype)dtype, 17, 129, 37, true);
		for (int weighting = 0; weighting <= MTK_WEIGHT_ON_INPUT; weighting++) {
			const enum mtk_expert_weighting on = (enum mtk_expert_weighting)weighting;

			check_experts((enum mtk_dtype)dtype, false, false, on);
			check_experts((enum mtk_dtype)dtype, false, true, on);
			check_experts((enum mtk_dtype)dtype, true, false, on);
		}
	}
	check_linear_batches();
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		check_norm(widths[i], false, false);
		check_norm(widths[i], true, false);
		check_norm(widths[i], true, true);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_heads(&sizes[i]);
		check_attention(&sizes[i]);
	}
	check_sampling();
	check_activation(false);
	check_activation(true);
	puts("layers: all equal within tolerance");
	return 0;
}
