/* SPDX-License-Identifier: MIT */
/*
 * The parts of a transformer's layer on a GPU against their definitions: embedding, norm, linear
 * operation, heads with their cache, attention and sampling in fp32, for all types, sizes about a
 * warp and a tile, and padding rows, of which nothing may be stored.
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
#include "kernels/gemm/linear_cuda.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rmsnorm/rmsnorm_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/kernels/cuda/support/values.h"

static struct random state = {20261130};

/* ---- embedding, norm, linear operation ---- */

static void check_embed(enum mtk_dtype dtype)
{
	enum { N_VOCAB = 7, N_HIDDEN = 300, N_ROWS = 5 };
	const int32_t tokens[N_ROWS] = {6, 0, -1, 7, 3};
	struct weights w = weights_random(&state, dtype, N_VOCAB * N_HIDDEN);
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
	gpu_must(mtk_embed_cuda(&embed, gpu_stream(), &error), &error, "embedding");
	values_near(want, embed.hidden, N_ROWS * N_HIDDEN, 0.0, "embedding");
	gpu_free_all();
	weights_free(&w);
}

static void check_norm(uint32_t n, bool adds, bool gathers)
{
	enum { N_ROWS = 9, N_FROM = 12 };
	const uint32_t rows[N_ROWS] = {11, 0, 5, 5, 1, 2, 3, 10, 4};
	const size_t n_all = (size_t)N_FROM * n;
	float *hidden = values_random(&state, n_all), *first = values_random(&state, n_all);
	float *second = values_random(&state, n_all), *weight = values_random(&state, n);
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
	gpu_must(mtk_rmsnorm_cuda(&norm, gpu_stream(), &error), &error, "norm");
	values_near(want, norm.normed, (size_t)N_ROWS * n, 4e-6, "norm");
	/* The residual stream holds the sums of the rows that were normed, where rows are not given. */
	values_near(gathers ? hidden : sums, norm.hidden, (size_t)N_ROWS * n, 0.0,
		    "residual stream");
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
	struct weights w = weights_random(&state, dtype, (size_t)n_out * n_in);
	float *x = values_random(&state, (size_t)n_rows * n_in),
	      *bias = values_random(&state, n_out);
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
	gpu_must(mtk_linear_cuda(&linear, gpu_stream(), &error), &error, "linear operation");
	values_near(want, linear.y, (size_t)n_rows * n_out, 2e-6, "linear operation");
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
	struct weights w = weights_random(&state, MTK_DTYPE_F16, N_OUT * N_IN);
	float *x = values_random(&state, N_ROWS * N_IN);
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
	gpu_must(mtk_linear_cuda(&linear, gpu_stream(), &error), &error, "linear operation");
	gpu_read(all, linear.y, sizeof(all));
	linear.n_rows = 1;
	for (size_t r = 0; r < N_ROWS; r++) {
		linear.x = rows + r * N_IN;
		gpu_must(mtk_linear_cuda(&linear, gpu_stream(), &error), &error,
			 "linear operation");
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
	struct weights w = weights_random(&state, dtype, N_OUT * N_IN);
	const size_t n_packed = mtk_matrix_bytes(dtype, N_OUT, N_IN);
	struct mtk_matrix matrix = {dtype, N_OUT, N_IN, gpu_host(n_packed)};
	void *packed, *rows, *got = gpu_host(w.n_bytes);
	struct mtk_error error;

	memset(matrix.data, 0, n_packed);
	mtk_matrix_pack(&matrix, 0, N_OUT, dtype, w.data);
	packed = gpu_copy_of(matrix.data, n_packed);
	rows = gpu_memory(w.n_bytes);
	gpu_must(mtk_cuda_unpack(dtype, N_OUT, N_IN, packed, rows, gpu_stream(), &error), &error,
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
	float *qkv = values_random(&state, n_qkv), *norms = values_random(&state, 2 * dim);
	float *turns = gpu_host((size_t)N_CONTEXT * dim * sizeof(float));
	float *sines = turns + (size_t)N_CONTEXT * (dim / 2);
	float *keys = values_random(&state, n_cache), *values = values_random(&state, n_cache);
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
	gpu_must(mtk_heads_cuda(&heads, gpu_stream(), &error), &error, "heads");
	values_near(qkv, heads.qkv, n_qkv, 4e-6, "queries");
	values_near(keys, heads.keys, n_cache, 4e-6, "keys");
	values_near(values, heads.values, n_cache, 0.0, "values");
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
	gpu_must(mtk_attention_cuda(attention, gpu_stream(), &error), &error, "attention");
	values_near(want, attention->out, n_out, 1e-5, "attention, split");
	gpu_read(first, attention->out, n_bytes);
	gpu_must(mtk_attention_cuda(attention, gpu_stream(), &error), &error, "attention");
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
	float *queries = values_random(&state, n_out);
	float *keys = values_random(&state, n_cache), *values = values_random(&state, n_cache);
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
	gpu_must(mtk_attention_cuda(&attention, gpu_stream(), &error), &error, "attention");
	values_near(want, attention.out, n_out, 1e-5, "attention");
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
	gpu_must(mtk_sample_greedy_cuda(gpu_copy_of(logits, sizeof(logits)), N_ROWS, N_VOCAB, got,
					gpu_stream(), &error),
		 &error, "sampling");
	gpu_read(ids, got, sizeof(ids));
	for (size_t r = 0; r < N_ROWS; r++)
		gpu_check(ids[r] == mtk_sample_greedy(logits + r * N_VOCAB, N_VOCAB),
			  "row %zu: sampled %d, not %d", r, ids[r],
			  mtk_sample_greedy(logits + r * N_VOCAB, N_VOCAB));
	gpu_free_all();
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
	puts("layers: all equal within tolerance");
	return 0;
}
