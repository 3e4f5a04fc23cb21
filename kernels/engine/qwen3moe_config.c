/* SPDX-License-Identifier: MIT */
/*
 * Reading the configuration by three tables: keys that fill a field, keys that must have the one
 * value that the engine computes, and the bounds of both. Keys count at the top level of the object
 * only; what is nested belongs to settings that are refused or skipped as a whole.
 */
#include "kernels/engine/qwen3moe_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/json.h"

#define ARCHITECTURE	 "Qwen3MoeForCausalLM"
#define CONFIG_MAX_BYTES (1u << 20)
#define CONFIG_MAX_DEPTH 16

enum field_type {
	FIELD_U32,
	FIELD_BOOLEAN,
	FIELD_FLOAT,
};

struct field {
	const char *key;
	enum field_type type;
	size_t offset;
	int64_t max; /* FIELD_U32; the least value is 1 */
	bool optional;
};

#define CONFIG(member) offsetof(struct mtk_model_config, member)

static const struct field fields[] = {
	{"vocab_size", FIELD_U32, CONFIG(n_vocab), 1 << 20, false},
	{"hidden_size", FIELD_U32, CONFIG(n_hidden), 1 << 16, false},
	{"num_hidden_layers", FIELD_U32, CONFIG(n_layers), 1024, false},
	{"num_attention_heads", FIELD_U32, CONFIG(n_heads), 1024, false},
	{"num_key_value_heads", FIELD_U32, CONFIG(n_kv_heads), 1024, false},
	{"head_dim", FIELD_U32, CONFIG(head_dim), 1024, false},
	{"moe_intermediate_size", FIELD_U32, CONFIG(n_intermediate), 1 << 16, false},
	{"num_experts", FIELD_U32, CONFIG(n_experts), 4096, false},
	{"num_experts_per_tok", FIELD_U32, CONFIG(top_k), 4096, false},
	{"norm_topk_prob", FIELD_BOOLEAN, CONFIG(norm_topk_prob), 0, false},
	{"tie_word_embeddings", FIELD_BOOLEAN, CONFIG(tie_word_embeddings), 0, false},
	{"rms_norm_eps", FIELD_FLOAT, CONFIG(rms_norm_eps), 0, false},
	{"rope_theta", FIELD_FLOAT, CONFIG(rope_theta), 0, false},
	/* Read to be compared with the context asked for. */
	{"max_position_embeddings", FIELD_U32, CONFIG(n_context), INT32_MAX, true},
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

/* Settings that would change the computation, with the one value that leaves it as it is. */
static const struct {
	const char *key;
	enum mt_json_kind kind; /* null is neutral for every key */
	const char *text;	/* string, or number as written */
} neutral[] = {
	{"attention_bias", MT_JSON_BOOLEAN, NULL},
	{"use_sliding_window", MT_JSON_BOOLEAN, NULL},
	{"hidden_act", MT_JSON_STRING, "silu"},
	{"decoder_sparse_step", MT_JSON_NUMBER, "1"},
	{"mlp_only_layers", MT_JSON_ARRAY_BEGIN, NULL},
	{"rope_scaling", MT_JSON_NULL, NULL},
	{"quantization_config", MT_JSON_NULL, NULL},
};

#define N_NEUTRAL (sizeof(neutral) / sizeof(neutral[0]))

struct reader {
	struct mtk_model_config config;
	const struct field *field; /* the key last seen fills it, or NULL */
	size_t neutral;		   /* the key last seen is in that table, or N_NEUTRAL */
	uint32_t seen;		   /* bit i: fields[i] */
};

_Static_assert(N_FIELDS <= 32, "one bit a field");

static int refuse(struct mt_json_error *error, int status, const char *key, const char *what)
{
	snprintf(error->text, sizeof(error->text), "%s %s", key, what);
	return status;
}

static int key_read(struct reader *reader, const struct mt_json_event *event)
{
	size_t i;

	reader->field = NULL;
	for (i = 0; i < N_FIELDS; i++) {
		if (mt_json_text_is(event, fields[i].key))
			reader->field = &fields[i];
	}
	for (i = 0; i < N_NEUTRAL; i++) {
		if (mt_json_text_is(event, neutral[i].key))
			break;
	}
	reader->neutral = i;
	return MOETRACE_OK;
}

static int u32_read(const struct field *field, const struct mt_json_event *event, void *target,
		    struct mt_json_error *error)
{
	uint32_t value;

	if (event->kind != MT_JSON_NUMBER || !event->is_int64) {
		snprintf(error->text, sizeof(error->text), "%s is not an integer", field->key);
		return MOETRACE_E_FORMAT;
	}
	if (event->int64 < 1 || event->int64 > field->max) {
		snprintf(error->text, sizeof(error->text), "%s is %lld, not between 1 and %lld",
			 field->key, (long long)event->int64, (long long)field->max);
		return MOETRACE_E_FORMAT;
	}
	value = (uint32_t)event->int64;
	memcpy(target, &value, sizeof(value));
	return MOETRACE_OK;
}

static int float_read(const struct field *field, const struct mt_json_event *event, void *target,
		      struct mt_json_error *error)
{
	double value;
	float narrow;
	int status = mt_json_double(event, &value);

	if (status == MOETRACE_E_NOMEM)
		return refuse(error, status, field->key, "does not fit into memory");
	if (status < 0)
		return refuse(error, status, field->key, "is not a finite number");
	narrow = (float)value;
	memcpy(target, &narrow, sizeof(narrow));
	return MOETRACE_OK;
}

static int field_read(struct reader *reader, const struct mt_json_event *event,
		      struct mt_json_error *error)
{
	const struct field *field = reader->field;
	void *target = (char *)&reader->config + field->offset;

	if (field->optional && event->kind == MT_JSON_NULL)
		return MOETRACE_OK;
	reader->seen |= 1u << (field - fields);
	if (field->type == FIELD_U32)
		return u32_read(field, event, target, error);
	if (field->type == FIELD_FLOAT)
		return float_read(field, event, target, error);
	if (event->kind != MT_JSON_BOOLEAN)
		return refuse(error, MOETRACE_E_FORMAT, field->key, "is not true or false");
	memcpy(target, &event->boolean, sizeof(event->boolean));
	return MOETRACE_OK;
}

static bool value_is_neutral(size_t i, const struct mt_json_event *event)
{
	if (event->kind == MT_JSON_NULL || event->kind == MT_JSON_ARRAY_END)
		return true;
	if (event->kind != neutral[i].kind || (event->kind == MT_JSON_BOOLEAN && event->boolean))
		return false;
	return !neutral[i].text || mt_json_text_is(event, neutral[i].text);
}

static int value_read(struct reader *reader, const struct mt_json_event *event,
		      struct mt_json_error *error)
{
	if (reader->field)
		return field_read(reader, event, error);
	if (reader->neutral < N_NEUTRAL && !value_is_neutral(reader->neutral, event))
		return refuse(error, MOETRACE_E_UNSUPPORTED, neutral[reader->neutral].key,
			      "has a value that this engine does not compute; give another model");
	return MOETRACE_OK;
}

static int receive(void *context, const struct mt_json_event *event, struct mt_json_error *error)
{
	struct reader *reader = context;

	if (event->depth == 0) {
		if (event->kind == MT_JSON_OBJECT_BEGIN || event->kind == MT_JSON_OBJECT_END)
			return MOETRACE_OK;
		return refuse(error, MOETRACE_E_FORMAT, "it", "is not a JSON object");
	}
	if (event->depth == 1 && event->kind == MT_JSON_KEY)
		return key_read(reader, event);
	if (event->depth == 1)
		return value_read(reader, event, error);
	/* An empty list is neutral where a list is; what stands in one is not. */
	if (reader->neutral < N_NEUTRAL)
		return refuse(error, MOETRACE_E_UNSUPPORTED, neutral[reader->neutral].key,
			      "has a value that this engine does not compute; give another model");
	return MOETRACE_OK;
}

static int fields_complete(const char *name, const struct reader *reader, struct mtk_error *error)
{
	size_t i;

	for (i = 0; i < N_FIELDS; i++) {
		if (!(reader->seen >> i & 1) && !fields[i].optional)
			return mtk_error_set(error, MOETRACE_E_FORMAT,
					     "%s: __metadata__ config: %s is missing; add it", name,
					     fields[i].key);
	}
	return MOETRACE_OK;
}

static int config_finish(const char *name, struct reader *reader, uint32_t n_context,
			 struct mtk_error *error)
{
	char message[MTK_MESSAGE_BYTES];
	uint32_t max_context = reader->config.n_context;
	int status = fields_complete(name, reader, error);

	if (status < 0)
		return status;
	if (max_context != 0 && n_context > max_context)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "%s: a context of %u positions, the model was made for %u "
				     "(max_position_embeddings); lower --context",
				     name, n_context, max_context);
	reader->config.n_context = n_context;
	status = mtk_model_config_check(&reader->config, message);
	if (status < 0)
		return mtk_error_set(error, status, "%s: __metadata__ config: %s; correct it", name,
				     message);
	return MOETRACE_OK;
}

static int config_parse(const char *name, const char *text, struct reader *reader,
			struct mtk_error *error)
{
	struct mt_json_limits limits = {CONFIG_MAX_BYTES, CONFIG_MAX_DEPTH};
	struct mt_json_error json_error;
	int status = mt_json_parse(text, strlen(text), &limits, receive, reader, &json_error);

	if (status < 0)
		return mtk_error_set(error, status,
				     status == MOETRACE_E_FORMAT
					     ? "%s: __metadata__ config: %s; correct it"
					     : "%s: __metadata__ config: %s",
				     name, json_error.text);
	return MOETRACE_OK;
}

int mtk_qwen3moe_config_read(const struct mtk_safetensors *file, uint32_t n_context,
			     struct mtk_model_config *ret_config, struct mtk_error *error)
{
	const char *name = mtk_safetensors_name(file);
	const char *architecture = mtk_safetensors_metadata(file, "architecture");
	const char *config = mtk_safetensors_metadata(file, "config");
	struct reader reader = {.neutral = N_NEUTRAL};
	int status;

	if (!architecture)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "%s: not a Qwen3-MoE model: __metadata__ has no architecture; "
				     "write it and the config there",
				     name);
	if (strcmp(architecture, ARCHITECTURE) != 0)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "%s: not a Qwen3-MoE model: the architecture is %.100s; give a "
				     "model of " ARCHITECTURE,
				     name, architecture);
	if (!config)
		return mtk_error_set(error, MOETRACE_E_FORMAT, "%s: __metadata__ has no config; write the model's there", name);
	status = config_parse(name, config, &reader, error);
	if (status < 0)
		return status;
	status = config_finish(name, &reader, n_context, error);
	if (status < 0)
		return status;
	*ret_config = reader.config;
	return MOETRACE_OK;
}
