/* SPDX-License-Identifier: MIT */
/*
 * Reading a Qwen3-MoE configuration: the example's own, and a table of single changes to a sound
 * one, each with the status and the words that it must lead to.
 */
#include <stdio.h>
#include <string.h>

#include <check.h>

#include <moetrace/status.h>

#include "kernels/engine/qwen3moe_config.h"
#include "tests/engine/support/model_file.h"
#include "tests/support/run_suite.h"

/* The configuration in pieces, one setting each, so that a test can replace one. */
static const char *const settings[] = {
	"'vocab_size': 256",
	"'hidden_size': 64",
	"'num_hidden_layers': 2",
	"'num_attention_heads': 4",
	"'num_key_value_heads': 2",
	"'head_dim': 16",
	"'moe_intermediate_size': 32",
	"'num_experts': 8",
	"'num_experts_per_tok': 2",
	"'norm_topk_prob': true",
	"'rms_norm_eps': 1e-06",
	"'rope_theta': 10000.0",
	"'tie_word_embeddings': false",
};

#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* A header whose config has @change in place of the setting with the same key, or beside all. */
static void header_make(const char *change, char *text, size_t n_bytes)
{
	size_t key_bytes = change ? strcspn(change, ":") : 0, at, i;
	bool replaced = false;
	char *quote;

	at = (size_t)snprintf(
		text, n_bytes,
		"{\"__metadata__\":{\"architecture\":\"Qwen3MoeForCausalLM\",\"config\":\"{");
	for (i = 0; i < N_SETTINGS; i++) {
		bool is_it = change && strncmp(settings[i], change, key_bytes + 1) == 0;

		replaced = replaced || is_it;
		if (is_it && change[key_bytes + 1] == '\0')
			continue;
		at += (size_t)snprintf(text + at, n_bytes - at, "%s%s",
				       text[at - 1] == '{' ? "" : ",",
				       is_it ? change : settings[i]);
	}
	if (change && !replaced)
		at += (size_t)snprintf(text + at, n_bytes - at, ",%s", change);
	snprintf(text + at, n_bytes - at, "}\"}}");
	/* The config is JSON within JSON: its quotes are escaped. */
	for (quote = strchr(text, '\''); quote; quote = strchr(quote, '\'')) {
		memmove(quote + 2, quote + 1, strlen(quote + 1) + 1);
		quote[0] = '\\';
		quote[1] = '"';
	}
}

static int config_read(const char *header, uint32_t n_context, struct mtk_model_config *ret_config,
		       struct mtk_error *error)
{
	struct model_file file = model_file_make(header, 0);
	struct mtk_safetensors *read;
	int status;

	ck_assert_int_eq(mtk_safetensors_parse("m", file.bytes, file.n_bytes, &read, error),
			 MOETRACE_OK);
	status = mtk_qwen3moe_config_read(read, n_context, ret_config, error);
	mtk_safetensors_close(read);
	model_file_release(&file);
	return status;
}

START_TEST(test_read_sound)
{
	struct mtk_error error = {.text = ""};
	struct mtk_model_config config;
	char header[4096];

	header_make(NULL, header, sizeof(header));
	ck_assert_msg(config_read(header, 77, &config, &error) == MOETRACE_OK, "%s", error.text);
	ck_assert_uint_eq(config.n_vocab, 256);
	ck_assert_uint_eq(config.n_hidden, 64);
	ck_assert_uint_eq(config.n_layers, 2);
	ck_assert_uint_eq(config.n_heads, 4);
	ck_assert_uint_eq(config.n_kv_heads, 2);
	ck_assert_uint_eq(config.head_dim, 16);
	ck_assert_uint_eq(config.n_intermediate, 32);
	ck_assert_uint_eq(config.n_experts, 8);
	ck_assert_uint_eq(config.top_k, 2);
	ck_assert_uint_eq(config.n_context, 77);
	ck_assert(config.norm_topk_prob);
	ck_assert(!config.tie_word_embeddings);
	ck_assert(config.rms_norm_eps == 1e-6f);
	ck_assert(config.rope_theta == 10000.0f);
}
END_TEST

START_TEST(test_read_tinymoe)
{
	struct mtk_safetensors *file;
	struct mtk_model_config config;

	ck_assert_int_eq(mtk_safetensors_open(model_file_tinymoe_path(), &file, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_qwen3moe_config_read(file, 1024, &config, NULL), MOETRACE_OK);
	ck_assert_uint_eq(config.n_experts, 64);
	ck_assert_uint_eq(config.top_k, 8);
	ck_assert_uint_eq(config.n_layers, 6);
	ck_assert(config.tie_word_embeddings);
	mtk_safetensors_close(file);
}
END_TEST

#define OK	    MOETRACE_OK
#define FORMAT	    MOETRACE_E_FORMAT
#define INVALID	    MOETRACE_E_INVALID
#define UNSUPPORTED MOETRACE_E_UNSUPPORTED

static const struct {
	const char *change; /* "'key':" alone leaves the setting out */
	int status;
	const char *words;
} changes[] = {
	{"'num_experts':", FORMAT, "config: num_experts is missing"},
	{"'rope_theta':", FORMAT, "rope_theta is missing"},
	{"'norm_topk_prob':", FORMAT, "norm_topk_prob is missing"},
	{"'num_experts': 0", FORMAT, "num_experts is 0, not between 1 and 4096"},
	{"'num_experts': -8", FORMAT, "num_experts is -8"},
	{"'num_experts': 8.0", FORMAT, "num_experts is not an integer"},
	{"'num_experts': '8'", FORMAT, "num_experts is not an integer"},
	{"'num_experts': [8]", FORMAT, "num_experts is not an integer"},
	{"'num_experts': null", FORMAT, "num_experts is not an integer"},
	{"'num_experts': 4294967304", FORMAT, "num_experts is 4294967304"},
	{"'num_experts': 18446744073709551624", FORMAT, "num_experts is not an integer"},
	{"'hidden_size': 65537", FORMAT, "hidden_size is 65537, not between 1 and 65536"},
	{"'num_hidden_layers': 1000000", FORMAT, "num_hidden_layers is 1000000"},
	{"'vocab_size': 0", FORMAT, "vocab_size is 0"},
	{"'num_experts_per_tok': 9", INVALID, "m: "},
	{"'num_key_value_heads': 3", INVALID, "m: "},
	{"'head_dim': 15", INVALID, "m: "},
	{"'rms_norm_eps': 0", INVALID, "m: "},
	{"'rms_norm_eps': '1e-6'", FORMAT, "rms_norm_eps is not a finite number"},
	{"'rms_norm_eps': 1e999", FORMAT, "rms_norm_eps is not a finite number"},
	{"'rope_theta': -1", INVALID, "m: "},
	{"'norm_topk_prob': 1", FORMAT, "norm_topk_prob is not true or false"},
	{"'tie_word_embeddings': null", FORMAT, "tie_word_embeddings is not true or false"},
	{"'num_experts': 8, 'num_experts': 8", FORMAT, "comes twice"},
	{"'attention_bias': false", OK, ""},
	{"'attention_bias': null", OK, ""},
	{"'attention_bias': true", UNSUPPORTED, "attention_bias has a value"},
	{"'use_sliding_window': true", UNSUPPORTED, "use_sliding_window"},
	{"'rope_scaling': null", OK, ""},
	{"'rope_scaling': {'type': 'yarn'}", UNSUPPORTED, "rope_scaling"},
	{"'mlp_only_layers': []", OK, ""},
	{"'mlp_only_layers': [0]", UNSUPPORTED, "mlp_only_layers"},
	{"'mlp_only_layers': [[]]", UNSUPPORTED, "mlp_only_layers"},
	{"'decoder_sparse_step': 1", OK, ""},
	{"'decoder_sparse_step': 2", UNSUPPORTED, "decoder_sparse_step"},
	{"'hidden_act': 'silu'", OK, ""},
	{"'hidden_act': 'gelu'", UNSUPPORTED, "hidden_act"},
	{"'quantization_config': {'quant_method': 'fp8'}", UNSUPPORTED, "quantization_config"},
	{"'max_position_embeddings': 64", OK, ""},
	{"'max_position_embeddings': null", OK, ""},
	{"'max_position_embeddings': 63", INVALID, "a context of 64 positions"},
	/* What does not touch the computation is skipped, however it is nested. */
	{"'dtype': 'bfloat16', 'id2label': {'num_experts': 0, 'x': [1, {'rope_scaling': 2}]}", OK,
	 ""},
};

START_TEST(test_read_changed)
{
	struct mtk_error error = {.text = ""};
	struct mtk_model_config config;
	char header[4096];

	header_make(changes[_i].change, header, sizeof(header));
	ck_assert_msg(config_read(header, 64, &config, &error) == changes[_i].status, "%s: %s",
		      changes[_i].change, error.text);
	ck_assert_msg(strstr(error.text, changes[_i].words) != NULL, "%s: %s", changes[_i].change,
		      error.text);
}
END_TEST

static const struct {
	const char *header;
	int status;
	const char *words;
} headers[] = {
	{"{}", UNSUPPORTED, "m: not a Qwen3-MoE model: __metadata__ has no architecture"},
	{"{\"__metadata__\":{\"architecture\":\"LlamaForCausalLM\",\"config\":\"{}\"}}",
	 UNSUPPORTED, "m: not a Qwen3-MoE model: the architecture is LlamaForCausalLM"},
	{"{\"__metadata__\":{\"architecture\":\"Qwen3MoeForCausalLM\"}}", FORMAT, "has no config"},
	{"{\"__metadata__\":{\"architecture\":\"Qwen3MoeForCausalLM\",\"config\":\"\"}}", FORMAT,
	 "m: __metadata__ config: "},
	{"{\"__metadata__\":{\"architecture\":\"Qwen3MoeForCausalLM\",\"config\":\"[1]\"}}", FORMAT,
	 "it is not a JSON object"},
	{"{\"__metadata__\":{\"architecture\":\"Qwen3MoeForCausalLM\",\"config\":\"{\"}}", FORMAT,
	 "m: __metadata__ config: "},
};

START_TEST(test_read_refuses)
{
	struct mtk_error error = {.text = ""};
	struct mtk_model_config config;

	ck_assert_int_eq(config_read(headers[_i].header, 64, &config, &error), headers[_i].status);
	ck_assert_msg(strstr(error.text, headers[_i].words) != NULL, "%s", error.text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("qwen3moe_config");
	TCase *tcase = tcase_create("read");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_read_sound);
	tcase_add_test(tcase, test_read_tinymoe);
	tcase_add_loop_test(tcase, test_read_changed, 0, sizeof(changes) / sizeof(changes[0]));
	tcase_add_loop_test(tcase, test_read_refuses, 0, sizeof(headers) / sizeof(headers[0]));
	return run_suite(suite);
}
