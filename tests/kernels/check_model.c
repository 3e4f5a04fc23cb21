/* SPDX-License-Identifier: MIT */
/*
 * What the engine refuses: impossible hyper-parameters, tensors that are missing, of another
 * shape, type or size, batches that break their rules; each with its status and a message that
 * names the place. And the bookkeeping of the KV cache.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "tests/kernels/support/tinymoe.h"
#include "tests/support/run_suite.h"

/* A model of the smallest odd dimensions, whose tensors are made up as they are asked for. */
static const struct mtk_model_config small = {
	.n_vocab = 19,
	.n_hidden = 21,
	.n_layers = 2,
	.n_heads = 6,
	.n_kv_heads = 3,
	.head_dim = 6,
	.n_intermediate = 5,
	.n_experts = 7,
	.top_k = 3,
	.n_context = 40,
	.norm_topk_prob = true,
	.tie_word_embeddings = false,
	.rms_norm_eps = 1e-6f,
	.rope_theta = 10000.0f,
};

struct fake_tensor {
	const char *suffix;
	uint32_t n_dims;
	uint64_t dims[3];
	enum mtk_dtype dtype;
};

static const struct fake_tensor fake_tensors[] = {
	{"model.embed_tokens.weight", 2, {19, 21}, MTK_DTYPE_F32},
	{"model.norm.weight", 1, {21}, MTK_DTYPE_F32},
	{"lm_head.weight", 2, {19, 21}, MTK_DTYPE_BF16},
	{"input_layernorm.weight", 1, {21}, MTK_DTYPE_F32},
	{"post_attention_layernorm.weight", 1, {21}, MTK_DTYPE_F32},
	{"self_attn.q_norm.weight", 1, {6}, MTK_DTYPE_F16},
	{"self_attn.k_norm.weight", 1, {6}, MTK_DTYPE_F16},
	{"self_attn.q_proj.weight", 2, {36, 21}, MTK_DTYPE_F16},
	{"self_attn.k_proj.weight", 2, {18, 21}, MTK_DTYPE_BF16},
	{"self_attn.v_proj.weight", 2, {18, 21}, MTK_DTYPE_F32},
	{"self_attn.o_proj.weight", 2, {21, 36}, MTK_DTYPE_BF16},
	{"mlp.gate.weight", 2, {7, 21}, MTK_DTYPE_F32},
	{"mlp.experts.gate_up_proj", 3, {7, 10, 21}, MTK_DTYPE_F16},
	{"mlp.experts.down_proj", 3, {7, 21, 5}, MTK_DTYPE_BF16},
};

#define N_FAKE_TENSORS (sizeof(fake_tensors) / sizeof(fake_tensors[0]))

/* The source, and what to spoil in the tensor whose name is spoiled_name. */
struct fake_source {
	const char *spoiled_name;
	void (*spoil)(struct mtk_tensor *tensor);	/* NULL: the tensor is missing */
	const char *extra_name;				/* a tensor beyond those of the list */
	uint32_t n_layers;				/* that it has; 0: 2 */
	uint16_t data[2 * 7 * 10 * 21];			/* enough for each of them */
};

static bool ends_with(const char *name, const char *suffix)
{
	size_t n = strlen(name), n_suffix = strlen(suffix);

	return n >= n_suffix && !strcmp(name + n - n_suffix, suffix);
}

/* Whether the name is of a layer that the source does not have. */
static bool is_beyond(const struct fake_source *source, const char *name)
{
	uint32_t n_layers = source->n_layers ? source->n_layers : 2, layer;

	return sscanf(name, "model.layers.%u.", &layer) == 1 && layer >= n_layers;
}

static int find_fake(void *ctx, const char *name, struct mtk_tensor *ret_tensor)
{
	struct fake_source *source = ctx;
	bool spoiled = source->spoiled_name && !strcmp(name, source->spoiled_name);

	if (is_beyond(source, name))
		return MOETRACE_E_NOT_FOUND;
	if (source->extra_name && !strcmp(name, source->extra_name))
		return MOETRACE_OK;
	if (spoiled && !source->spoil)
		return MOETRACE_E_NOT_FOUND;
	for (size_t i = 0; i < N_FAKE_TENSORS; i++) {
		const struct fake_tensor *fake = &fake_tensors[i];
		struct mtk_tensor tensor = {.dtype = fake->dtype, .n_dims = fake->n_dims,
					    .data = source->data};

		if (!ends_with(name, fake->suffix))
			continue;
		tensor.n_bytes = mtk_dtype_bytes(fake->dtype);
		for (uint32_t d = 0; d < fake->n_dims; d++) {
			tensor.dims[d] = fake->dims[d];
			tensor.n_bytes *= fake->dims[d];
		}
		if (spoiled)
			source->spoil(&tensor);
		*ret_tensor = tensor;
		return MOETRACE_OK;
	}
	return MOETRACE_E_NOT_FOUND;
}

static int create(const struct mtk_model_config *config, struct fake_source *fake, char *message,
		  struct mtk_model **ret_model)
{
	const struct mtk_tensor_source source = {fake, find_fake};

	return mtk_model_create(config, &source, message, ret_model);
}

static void spoil_dim(struct mtk_tensor *tensor)
{
	tensor->dims[0]++;
}

static void spoil_n_dims(struct mtk_tensor *tensor)
{
	tensor->dims[tensor->n_dims++] = 1;
}

static void spoil_n_dims_beyond_limit(struct mtk_tensor *tensor)
{
	tensor->n_dims = 4000000000u;
}

static void spoil_dtype(struct mtk_tensor *tensor)
{
	tensor->dtype = (enum mtk_dtype)9;
}

static void spoil_size(struct mtk_tensor *tensor)
{
	tensor->n_bytes--;
}

static void spoil_huge_dim(struct mtk_tensor *tensor)
{
	tensor->dims[0] = UINT64_MAX;
}

START_TEST(test_sound_model)
{
	static struct fake_source fake;
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";

	ck_assert_int_eq(create(&small, &fake, message, &model), MOETRACE_OK);
	ck_assert_str_eq(message, "");
	ck_assert_uint_eq(mtk_model_borrow_config(model)->n_experts, 7);
	/* 10 gate and up outputs take one panel of 16, 21 outputs of down take two. */
	ck_assert_uint_eq(mtk_model_expert_weight_bytes(model),
			  16u * 21 * 2 + 2u * 16 * 5 * 2);
	ck_assert_uint_gt(mtk_model_weight_bytes(model),
			  2 * 7 * mtk_model_expert_weight_bytes(model));
	mtk_model_destroy(model);
	mtk_model_destroy(NULL);
}
END_TEST

static const struct {
	const char *name;
	void (*spoil)(struct mtk_tensor *tensor);
	int status;
	const char *says;
} spoiled[] = {
	{"model.embed_tokens.weight", NULL, MOETRACE_E_NOT_FOUND, "missing"},
	{"lm_head.weight", NULL, MOETRACE_E_NOT_FOUND, "missing"},
	{"model.layers.1.mlp.gate.weight", NULL, MOETRACE_E_NOT_FOUND, "missing"},
	{"model.layers.0.mlp.gate.weight", spoil_dim, MOETRACE_E_FORMAT,
	 "shape [8][21], expected [7][21]"},
	{"model.layers.1.self_attn.k_proj.weight", spoil_dim, MOETRACE_E_FORMAT,
	 "shape [19][21], expected [18][21]"},
	{"model.norm.weight", spoil_n_dims, MOETRACE_E_FORMAT, "shape [21][1], expected [21]"},
	{"model.norm.weight", spoil_n_dims_beyond_limit, MOETRACE_E_FORMAT,
	 "4000000000 dimensions, expected 1"},
	{"model.layers.0.mlp.experts.down_proj", spoil_dtype, MOETRACE_E_FORMAT,
	 "F32, F16 or BF16"},
	{"model.layers.1.mlp.experts.gate_up_proj", spoil_size, MOETRACE_E_FORMAT,
	 "2939 bytes, expected 2940"},
	{"model.layers.1.mlp.experts.gate_up_proj", spoil_huge_dim, MOETRACE_E_FORMAT,
	 "[18446744073709551615]"},
	{"model.layers.0.self_attn.q_norm.weight", spoil_dim, MOETRACE_E_FORMAT, "shape [7]"},
	{"model.layers.1.mlp.experts.down_proj", spoil_n_dims, MOETRACE_E_FORMAT, "[7][21][5][1]"},
};

START_TEST(test_spoiled_tensor)
{
	static struct fake_source fake;
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";

	fake.spoiled_name = spoiled[_i].name;
	fake.spoil = spoiled[_i].spoil;
	ck_assert_int_eq(create(&small, &fake, message, &model), spoiled[_i].status);
	ck_assert_ptr_null(model);
	ck_assert_msg(strstr(message, spoiled[_i].name) != NULL, "no name in: %s", message);
	ck_assert_msg(strstr(message, spoiled[_i].says) != NULL, "not what was wrong: %s", message);
	ck_assert_ptr_null(strchr(message, '\n'));
}
END_TEST

/* Bits of one element at the end of a tensor, in each type and place where tensors are read. */
static const struct {
	const char *name;
	enum mtk_dtype dtype;
	uint32_t bits;
	const char *says; /* NULL: the model is taken */
} elements[] = {
	{"lm_head.weight", MTK_DTYPE_BF16, 0x7f80, "element 398 is infinite"},
	{"lm_head.weight", MTK_DTYPE_BF16, 0xff80, "element 398 is infinite"},
	{"lm_head.weight", MTK_DTYPE_BF16, 0x7fc0, "element 398 is NaN"},
	{"lm_head.weight", MTK_DTYPE_BF16, 0xff81, "element 398 is NaN"},
	{"lm_head.weight", MTK_DTYPE_BF16, 0x7f7f, NULL},
	{"model.layers.1.self_attn.q_norm.weight", MTK_DTYPE_F16, 0x7c00, "element 5 is infinite"},
	{"model.layers.1.self_attn.q_norm.weight", MTK_DTYPE_F16, 0xfc01, "element 5 is NaN"},
	{"model.layers.1.self_attn.q_norm.weight", MTK_DTYPE_F16, 0xfbff, NULL},
	{"model.layers.0.mlp.experts.gate_up_proj", MTK_DTYPE_F16, 0x7e00, "element 1469 is NaN"},
	{"model.layers.0.mlp.experts.down_proj", MTK_DTYPE_BF16, 0x7fff, "element 734 is NaN"},
	{"model.norm.weight", MTK_DTYPE_F32, 0x7f800000, "element 20 is infinite"},
	{"model.norm.weight", MTK_DTYPE_F32, 0xff800001, "element 20 is NaN"},
	{"model.norm.weight", MTK_DTYPE_F32, 0x7f7fffff, NULL},
	{"model.layers.1.mlp.gate.weight", MTK_DTYPE_F32, 0x7fc00000, "element 146 is NaN"},
	{"model.layers.0.self_attn.v_proj.weight", MTK_DTYPE_F32, 0xffc00000,
	 "element 377 is NaN"},
};

static uint32_t spoiling_bits;
static unsigned char spoilt_data[8192];

/* The last element, at an odd address. */
static void spoil_last_element(struct mtk_tensor *tensor)
{
	size_t element_bytes = mtk_dtype_bytes(tensor->dtype);

	ck_assert_uint_lt(tensor->n_bytes, sizeof(spoilt_data));
	memset(spoilt_data, 0, sizeof(spoilt_data));
	for (size_t i = 0; i < element_bytes; i++)
		spoilt_data[1 + tensor->n_bytes - element_bytes + i] =
			(unsigned char)(spoiling_bits >> 8 * i);
	tensor->data = spoilt_data + 1;
}

START_TEST(test_weights_are_finite)
{
	static struct fake_source fake;
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";
	int status;

	fake.spoiled_name = elements[_i].name;
	fake.spoil = spoil_last_element;
	spoiling_bits = elements[_i].bits;
	status = create(&small, &fake, message, &model);
	ck_assert_int_eq(status, elements[_i].says ? MOETRACE_E_FORMAT : MOETRACE_OK);
	if (elements[_i].says) {
		ck_assert_msg(strstr(message, elements[_i].name) != NULL, "%s", message);
		ck_assert_msg(strstr(message, elements[_i].says) != NULL, "%s", message);
	}
	mtk_model_destroy(model);
}
END_TEST

/* The tests of bits above say which type they are about. */
START_TEST(test_elements_have_their_types)
{
	static struct fake_source fake;
	struct mtk_tensor tensor;

	ck_assert_int_eq(find_fake(&fake, elements[_i].name, &tensor), MOETRACE_OK);
	ck_assert_int_eq(tensor.dtype, elements[_i].dtype);
}
END_TEST

START_TEST(test_unused_layers)
{
	static struct fake_source fake = {.n_layers = 4};
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";

	ck_assert_int_eq(create(&small, &fake, message, &model), MOETRACE_E_FORMAT);
	ck_assert_ptr_null(model);
	ck_assert_ptr_nonnull(strstr(message, "model.layers.2.input_layernorm.weight: not used, "
					      "num_hidden_layers is 2"));
}
END_TEST

START_TEST(test_unknown_part)
{
	static struct fake_source fake;
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";

	fake.extra_name = "model.layers.1.self_attn.k_proj.bias";
	ck_assert_int_eq(create(&small, &fake, message, &model), MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(message, fake.extra_name));
}
END_TEST

START_TEST(test_unknown_level)
{
	static struct fake_source fake;
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";

	ck_assert_int_eq(setenv("MOETRACE_CPU", "sse9", 1), 0);
	ck_assert_int_eq(create(&small, &fake, message, &model), MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(message, "MOETRACE_CPU"));
}
END_TEST

static const struct {
	size_t offset;
	uint32_t value;
	const char *says;
} bad_fields[] = {
#define FIELD(field, value, says) {offsetof(struct mtk_model_config, field), value, says}
	FIELD(n_vocab, 0, "vocab_size is 0"),
	FIELD(n_hidden, 0, "hidden_size is 0"),
	FIELD(n_hidden, UINT32_MAX, "hidden_size is 4294967295"),
	FIELD(n_layers, 0, "num_hidden_layers is 0"),
	FIELD(n_layers, 1u << 31, "num_hidden_layers is 2147483648"),
	FIELD(n_heads, 0, "num_attention_heads is 0"),
	FIELD(n_heads, 7, "num_attention_heads is 7, expected a multiple of num_key_value_heads"),
	FIELD(n_kv_heads, 0, "num_key_value_heads is 0"),
	FIELD(head_dim, 0, "head_dim is 0"),
	FIELD(head_dim, 7, "head_dim is 7, expected an even number"),
	FIELD(n_intermediate, 0, "moe_intermediate_size is 0"),
	FIELD(n_experts, 0, "num_experts is 0"),
	FIELD(n_experts, 2, "num_experts_per_tok is 3, expected at most num_experts, which is 2"),
	FIELD(n_experts, 65537, "num_experts is 65537"),
	FIELD(top_k, 0, "num_experts_per_tok is 0"),
	FIELD(n_context, 0, "context is 0"),
#undef FIELD
};

START_TEST(test_bad_config)
{
	static struct fake_source fake;
	struct mtk_model_config config = small;
	struct mtk_model *model = NULL;
	char message[MTK_MESSAGE_BYTES] = "";

	memcpy((char *)&config + bad_fields[_i].offset, &bad_fields[_i].value, sizeof(uint32_t));
	ck_assert_int_eq(create(&config, &fake, message, &model), MOETRACE_E_INVALID);
	ck_assert_msg(strstr(message, bad_fields[_i].says) != NULL, "%s", message);
}
END_TEST

START_TEST(test_bad_reals)
{
	const float values[] = {0.0f, -1.0f, NAN, INFINITY};
	char message[MTK_MESSAGE_BYTES] = "";

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct mtk_model_config config = small;

		config.rms_norm_eps = values[i];
		ck_assert_int_eq(mtk_model_config_check(&config, message), MOETRACE_E_INVALID);
		ck_assert_ptr_nonnull(strstr(message, "rms_norm_eps"));
		config = small;
		config.rope_theta = values[i];
		ck_assert_int_eq(mtk_model_config_check(&config, message), MOETRACE_E_INVALID);
		ck_assert_ptr_nonnull(strstr(message, "rope_theta"));
	}
	ck_assert_int_eq(mtk_model_config_check(&small, message), MOETRACE_OK);
}
END_TEST

/* Two rows of one slot, of which a test spoils one thing. */
struct two_rows {
	int32_t token_ids[2];
	int32_t positions[2];
	uint32_t slots[2];
	uint8_t want_logits[2];
};

static int forward(struct tinymoe *tiny, const struct two_rows *rows, uint32_t n_rows,
		   float *logits)
{
	const struct mtk_batch batch = {.n_rows = n_rows,
					.token_ids = rows->token_ids,
					.positions = rows->positions,
					.slots = rows->slots,
					.want_logits = rows->want_logits};

	return mtk_model_forward(tiny->model, tiny->workspace, tiny->kv, tiny->threads, &batch,
				 NULL, logits);
}

/* The made-up model, which needs no file. */
static struct tinymoe small_open(uint32_t n_slots, uint32_t n_rows_max)
{
	static struct fake_source fake;
	struct tinymoe tiny = {.config = small};
	char message[MTK_MESSAGE_BYTES] = "";

	ck_assert_msg(create(&small, &fake, message, &tiny.model) == MOETRACE_OK, "%s", message);
	ck_assert_int_eq(mtk_workspace_create(tiny.model, n_rows_max, &tiny.workspace), 0);
	ck_assert_int_eq(mtk_kv_cache_create(&small, n_slots, 20, &tiny.kv), 0);
	ck_assert_int_eq(mtk_threads_create(1, &tiny.threads), 0);
	return tiny;
}

START_TEST(test_bad_batch)
{
	static float logits[2][19];
	const struct two_rows good = {{1, 2}, {0, 1}, {0, 0}, {0, 1}};
	struct two_rows bad[10];
	struct tinymoe tiny = small_open(2, 2);
	uint32_t slot;

	for (size_t i = 0; i < 10; i++)
		bad[i] = good;
	bad[0].token_ids[1] = 19;
	bad[1].token_ids[0] = -1;
	bad[2].positions[0] = 1;
	bad[3].positions[1] = 0;
	bad[4].positions[1] = 2;
	bad[5].positions[0] = -1;
	bad[6].positions[1] = INT32_MAX;
	bad[7].slots[1] = 1;
	bad[8].slots[0] = 2;
	bad[9].slots[1] = UINT32_MAX;

	ck_assert_int_eq(forward(&tiny, &good, 2, logits[0]), MOETRACE_E_INVALID);
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(tiny.kv, &slot), MOETRACE_OK);
	ck_assert_uint_eq(slot, 0);
	for (size_t i = 0; i < 10; i++) {
		ck_assert_msg(forward(&tiny, &bad[i], 2, logits[0]) == MOETRACE_E_INVALID,
			      "batch %zu was taken", i);
		ck_assert_uint_eq(mtk_kv_cache_slot_length(tiny.kv, slot), 0);
	}
	ck_assert_int_eq(forward(&tiny, &good, 3, logits[0]), MOETRACE_E_INVALID);
	ck_assert_int_eq(forward(&tiny, &good, 2, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(forward(&tiny, &good, 0, NULL), MOETRACE_OK);
	ck_assert_int_eq(forward(&tiny, &good, 2, logits[0]), MOETRACE_OK);
	ck_assert_uint_eq(mtk_kv_cache_slot_length(tiny.kv, slot), 2);
	tinymoe_close(&tiny);
}
END_TEST

START_TEST(test_full_context)
{
	static struct fake_source fake;
	const int32_t token = 3;
	const uint32_t slot_0 = 0;
	struct mtk_workspace *workspace;
	struct mtk_threads *threads;
	struct mtk_kv_cache *kv;
	struct mtk_model *model;
	char message[MTK_MESSAGE_BYTES];
	uint32_t slot;

	ck_assert_int_eq(create(&small, &fake, message, &model), MOETRACE_OK);
	ck_assert_int_eq(mtk_workspace_create(model, 1, &workspace), MOETRACE_OK);
	ck_assert_int_eq(mtk_threads_create(1, &threads), MOETRACE_OK);
	ck_assert_int_eq(mtk_kv_cache_create(&small, 1, 33, &kv), MOETRACE_OK);
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(kv, &slot), MOETRACE_OK);
	for (int32_t position = 0; position < 35; position++) {
		const struct mtk_batch batch = {.n_rows = 1,
						.token_ids = &token,
						.positions = &position,
						.slots = &slot_0};
		int status = mtk_model_forward(model, workspace, kv, threads, &batch, NULL, NULL);

		ck_assert_int_eq(status, position < 33 ? MOETRACE_OK : MOETRACE_E_INVALID);
	}
	ck_assert_uint_eq(mtk_kv_cache_slot_length(kv, slot), 33);
	mtk_kv_cache_destroy(kv);
	mtk_threads_destroy(threads);
	mtk_workspace_destroy(workspace);
	mtk_model_destroy(model);
}
END_TEST

START_TEST(test_workspace_limits)
{
	static struct fake_source fake;
	struct mtk_workspace *workspace = NULL;
	struct mtk_model *model;
	char message[MTK_MESSAGE_BYTES];

	ck_assert_int_eq(create(&small, &fake, message, &model), MOETRACE_OK);
	ck_assert_int_eq(mtk_workspace_create(model, 0, &workspace), MOETRACE_E_INVALID);
	ck_assert_int_eq(mtk_workspace_create(model, UINT32_MAX, &workspace), MOETRACE_E_INVALID);
	ck_assert_ptr_null(workspace);
	ck_assert_int_eq(mtk_workspace_create(model, 17, &workspace), MOETRACE_OK);
	ck_assert_uint_ge(mtk_workspace_bytes(workspace), 17 * (3 * 21 + 72) * sizeof(float));
	mtk_workspace_destroy(workspace);
	mtk_workspace_destroy(NULL);
	mtk_model_destroy(model);
}
END_TEST

START_TEST(test_kv_slots)
{
	struct mtk_kv_cache *kv;
	uint32_t slots[3], slot = 77;

	ck_assert_int_eq(mtk_kv_cache_create(&small, 3, 20, &kv), MOETRACE_OK);
	ck_assert_uint_eq(mtk_kv_cache_n_slots(kv), 3);
	ck_assert_uint_eq(mtk_kv_cache_n_context(kv), 20);
	/* 2 layers x 3 slots x 3 heads x (32 positions of 6 keys + 20 of 16 values). */
	ck_assert_uint_eq(mtk_kv_cache_reserved_bytes(kv), 2u * 3 * 3 * (32 * 6 + 20 * 16) * 4);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(mtk_kv_cache_n_free_slots(kv), 3 - i);
		ck_assert_int_eq(mtk_kv_cache_slot_acquire(kv, &slots[i]), MOETRACE_OK);
		ck_assert_uint_eq(slots[i], i);
	}
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(kv, &slot), MOETRACE_E_LIMIT);
	ck_assert_uint_eq(slot, 77);
	mtk_kv_cache_slot_release(kv, slots[1]);
	mtk_kv_cache_slot_release(kv, slots[1]);
	mtk_kv_cache_slot_release(kv, 3);
	ck_assert_uint_eq(mtk_kv_cache_n_free_slots(kv), 1);
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(kv, &slot), MOETRACE_OK);
	ck_assert_uint_eq(slot, slots[1]);
	ck_assert_uint_eq(mtk_kv_cache_slot_length(kv, slot), 0);
	ck_assert_uint_eq(mtk_kv_cache_slot_length(kv, 99), 0);
	ck_assert_uint_eq(mtk_kv_cache_used_bytes(kv), 0);
	mtk_kv_cache_destroy(kv);
	mtk_kv_cache_destroy(NULL);
}
END_TEST

START_TEST(test_kv_limits)
{
	struct mtk_model_config large = small;
	struct mtk_kv_cache *kv = NULL;

	large.n_context = 1u << 24;
	large.n_layers = 1u << 12;
	large.n_heads = large.n_kv_heads = 1u << 12;
	large.head_dim = 1u << 12;
	ck_assert_int_eq(mtk_kv_cache_create(&small, 0, 20, &kv), MOETRACE_E_INVALID);
	ck_assert_int_eq(mtk_kv_cache_create(&small, 1, 0, &kv), MOETRACE_E_INVALID);
	ck_assert_int_eq(mtk_kv_cache_create(&small, 1, 41, &kv), MOETRACE_E_INVALID);
	ck_assert_int_eq(mtk_kv_cache_create(&large, UINT32_MAX, 1u << 24, &kv),
			 MOETRACE_E_INVALID);
	ck_assert_ptr_null(kv);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("model");
	TCase *model = tcase_create("model");
	TCase *batch = tcase_create("batch");
	TCase *cache = tcase_create("cache");

	tcase_add_test(model, test_sound_model);
	tcase_add_loop_test(model, test_spoiled_tensor, 0, sizeof(spoiled) / sizeof(spoiled[0]));
	tcase_add_loop_test(model, test_weights_are_finite, 0,
			    sizeof(elements) / sizeof(elements[0]));
	tcase_add_loop_test(model, test_elements_have_their_types, 0,
			    sizeof(elements) / sizeof(elements[0]));
	tcase_add_test(model, test_unused_layers);
	tcase_add_test(model, test_unknown_part);
	tcase_add_test(model, test_unknown_level);
	tcase_add_loop_test(model, test_bad_config, 0,
			    sizeof(bad_fields) / sizeof(bad_fields[0]));
	tcase_add_test(model, test_bad_reals);
	suite_add_tcase(suite, model);

	tcase_add_test(batch, test_bad_batch);
	tcase_add_test(batch, test_full_context);
	tcase_add_test(batch, test_workspace_limits);
	suite_add_tcase(suite, batch);

	tcase_add_test(cache, test_kv_slots);
	tcase_add_test(cache, test_kv_limits);
	suite_add_tcase(suite, cache);
	return suite;
}

int main(void)
{
	return run_suite(make_suite());
}
