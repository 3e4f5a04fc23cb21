/* SPDX-License-Identifier: MIT */
/*
 * route: routes a file of router logits by a model family's rule, or by one that is put together
 * from options, and prints ids and weights: the engine's routing as a tool to check a router with.
 * Files are read whole and must hold a whole number of rows.
 */
#include "cli/cmd_route.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/file_read.h"
#include "kernels/cpu.h"

/* ---- files ---- */

struct file {
	void *bytes;
	size_t n_items; /* of four bytes */
};

/* Read a file of four-byte items; NULL reads nothing. */
static int file_read(const char *path, struct file *ret_file)
{
	size_t n_bytes;
	void *bytes;
	int status;

	if (!path)
		return MT_EXIT_OK;
	status = mt_file_read(path, &bytes, &n_bytes);
	if (status != MT_EXIT_OK)
		return status;
	if (n_bytes % 4 != 0) {
		mt_error("%s: %zu bytes are not a whole number of four-byte items", path, n_bytes);
		free(bytes);
		return MT_EXIT_FAILED;
	}
	*ret_file = (struct file){bytes, n_bytes / 4};
	return MT_EXIT_OK;
}

struct inputs {
	struct file logits;
	struct file bias;
	struct file hash;
	struct file tokens;
	uint32_t n_rows;
};

static void inputs_release(struct inputs *inputs)
{
	free(inputs->logits.bytes);
	free(inputs->bias.bytes);
	free(inputs->hash.bytes);
	free(inputs->tokens.bytes);
}

/* Whether the files' sizes fit each other; the setting learns what the files hold. */
static int inputs_check(struct mt_route_options *options, struct inputs *inputs)
{
	struct mtk_route_config *config = &options->config;
	const size_t n = options->n_columns;
	const size_t n_rows = inputs->logits.n_items / n;

	if (inputs->logits.n_items % n != 0 || n_rows > UINT32_MAX) {
		mt_error("%s: %zu numbers are not rows of %zu experts: give the right --experts",
			 options->logits, inputs->logits.n_items, n);
		return MT_EXIT_FAILED;
	}
	inputs->n_rows = (uint32_t)n_rows;
	if (options->bias_file && inputs->bias.n_items != n && inputs->bias.n_items != n_rows * n) {
		mt_error("%s: %zu numbers, expected %zu, one an expert, or %zu, one a logit",
			 options->bias_file, inputs->bias.n_items, n, n_rows * n);
		return MT_EXIT_FAILED;
	}
	config->bias_per_token = options->bias_file && inputs->bias.n_items != n;
	if (!options->hash_file)
		return MT_EXIT_OK;
	if (config->top_k == 0 || inputs->hash.n_items == 0 ||
	    inputs->hash.n_items % config->top_k != 0 ||
	    inputs->hash.n_items / config->top_k > INT32_MAX) {
		mt_error("%s: %zu ids are not rows of --top-k %u", options->hash_file,
			 inputs->hash.n_items, config->top_k);
		return MT_EXIT_FAILED;
	}
	if (inputs->tokens.n_items != n_rows) {
		mt_error("%s: %zu token ids for %zu rows", options->token_file,
			 inputs->tokens.n_items, n_rows);
		return MT_EXIT_FAILED;
	}
	config->hash_table = inputs->hash.bytes;
	config->n_hash_tokens = (uint32_t)(inputs->hash.n_items / config->top_k);
	return MT_EXIT_OK;
}

/* What was read so far is kept for the caller to release. */
static int inputs_read(struct mt_route_options *options, struct inputs *inputs)
{
	char message[MTK_ROUTE_MESSAGE_BYTES];
	int status = file_read(options->logits, &inputs->logits);

	if (status == MT_EXIT_OK)
		status = file_read(options->bias_file, &inputs->bias);
	if (status == MT_EXIT_OK)
		status = file_read(options->hash_file, &inputs->hash);
	if (status == MT_EXIT_OK)
		status = file_read(options->token_file, &inputs->tokens);
	if (status == MT_EXIT_OK)
		status = inputs_check(options, inputs);
	if (status == MT_EXIT_OK && mtk_route_config_check(&options->config, message)) {
		mt_error("%s; --help lists the options", message);
		status = MT_EXIT_USAGE;
	}
	return status;
}

/* ---- routing and printing ---- */

#define ROWS_AT_ONCE 512u

/* An item of a file; NULL where none was read. */
static const void *at(const struct file *file, size_t index)
{
	return file->bytes ? (const char *)file->bytes + 4 * index : NULL;
}

struct printer {
	enum mt_route_format format;
	uint32_t width;
	struct mt_jsonw json;
	uint64_t n_flagged[4]; /* rows with each flag */
};

static void row_print_json(struct printer *printer, const int32_t *ids, const float *weights)
{
	struct mt_jsonw *json = &printer->json;

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "ids");
	mt_jsonw_array_begin(json);
	for (uint32_t j = 0; j < printer->width; j++)
		mt_jsonw_int64(json, ids[j]);
	mt_jsonw_array_end(json);
	mt_jsonw_key(json, "weights");
	mt_jsonw_array_begin(json);
	for (uint32_t j = 0; j < printer->width; j++)
		mt_jsonw_double(json, weights[j]);
	mt_jsonw_array_end(json);
	mt_jsonw_object_end(json);
}

static void row_print(struct printer *printer, uint32_t row, const int32_t *ids,
		      const float *weights)
{
	char text[MT_DOUBLE_BYTES];

	switch (printer->format) {
	case MT_ROUTE_JSON:
		row_print_json(printer, ids, weights);
		break;
	case MT_ROUTE_CSV:
		for (uint32_t j = 0; j < printer->width; j++)
			printf("%u,%u,%d,%s\n", row, j, ids[j], mt_double_text(weights[j], text));
		break;
	case MT_ROUTE_BINARY:
		fwrite(ids, sizeof(*ids), printer->width, stdout);
		fwrite(weights, sizeof(*weights), printer->width, stdout);
		break;
	}
}

static void print_begin(struct printer *printer)
{
	if (printer->format == MT_ROUTE_CSV)
		puts("row,topk_rank,expert,weight");
	if (printer->format != MT_ROUTE_JSON)
		return;
	mt_jsonw_init(&printer->json, stdout);
	mt_jsonw_object_begin(&printer->json);
	mt_jsonw_key(&printer->json, "rows");
	mt_jsonw_array_begin(&printer->json);
}

static void print_end(struct printer *printer)
{
	static const char *const texts[] = {
		"NaN among the logits or biases",
		"a tie at the cut: what was left out is as good as the last that was taken",
		"fewer experts to choose than --top-k: the rest has weight 0",
		"a token id that is not in the hash table",
	};

	if (printer->format == MT_ROUTE_JSON) {
		mt_jsonw_array_end(&printer->json);
		mt_jsonw_object_end(&printer->json);
		mt_jsonw_end_line(&printer->json);
	}
	for (int i = 0; i < 4; i++)
		if (printer->n_flagged[i] != 0)
			mt_warn("%" PRIu64 " %s with %s", printer->n_flagged[i],
				printer->n_flagged[i] == 1 ? "row" : "rows", texts[i]);
}

static int route_rows(const struct mt_route_options *options, const struct inputs *inputs,
		      const struct mtk_cpu_ops *ops, void *scratch)
{
	static int32_t ids[ROWS_AT_ONCE * MTK_ROUTE_MAX_WIDTH];
	static float weights[ROWS_AT_ONCE * MTK_ROUTE_MAX_WIDTH];
	static uint8_t flags[ROWS_AT_ONCE];
	const struct mtk_route_result result = {.ids = ids, .weights = weights, .flags = flags};
	const struct mtk_route_config *config = &options->config;
	const size_t n = options->n_columns;
	struct printer printer = {.format = options->format, .width = mtk_route_width(config)};

	print_begin(&printer);
	for (uint32_t first = 0; first < inputs->n_rows; first += ROWS_AT_ONCE) {
		uint32_t left = inputs->n_rows - first;
		uint32_t n_rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
		uint64_t valid = options->n_valid_rows > first ? options->n_valid_rows - first : 0;
		const struct mtk_route_batch batch = {
			.n_rows = n_rows,
			.n_valid_rows = valid < n_rows ? (uint32_t)valid : n_rows,
			.logits = (const float *)inputs->logits.bytes + first * n,
			.bias = at(&inputs->bias, config->bias_per_token ? first * n : 0),
			.token_ids = at(&inputs->tokens, first),
		};

		ops->route(config, &batch, 0, n_rows, scratch, &result);
		for (uint32_t r = 0; r < n_rows; r++) {
			row_print(&printer, first + r, ids + r * printer.width,
				  weights + r * printer.width);
			for (int i = 0; i < 4; i++)
				printer.n_flagged[i] += flags[r] >> i & 1;
		}
	}
	print_end(&printer);
	return MT_EXIT_OK;
}

int mt_cmd_route(int argc, char **argv)
{
	struct mt_route_options options;
	const struct mtk_cpu_ops *ops;
	struct inputs inputs = {0};
	void *scratch;
	int status = mt_route_options_parse(argc, argv, &options);

	if (status != MT_EXIT_OK)
		return status;
	ops = mtk_cpu_ops_choose();
	if (!ops) {
		mt_error(
			"MOETRACE_CPU names a level that this processor lacks: give plain, avx2 or "
			"avx512");
		return MT_EXIT_USAGE;
	}
	status = inputs_read(&options, &inputs);
	if (status == MT_EXIT_OK) {
		scratch = malloc(mtk_route_scratch_floats((uint32_t)options.n_columns) *
				 sizeof(float));
		if (scratch) {
			status = route_rows(&options, &inputs, ops, scratch);
		} else {
			mt_error("out of memory");
			status = MT_EXIT_FAILED;
		}
		free(scratch);
	}
	inputs_release(&inputs);
	return status;
}
