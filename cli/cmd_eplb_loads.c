/* SPDX-License-Identifier: MIT */
/*
 * The file of `moetrace eplb --loads`: one JSON array a layer, in it a number an expert. All
 * layers have as many.
 */
#include "cli/cmd_eplb.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "common/json.h"
#include "schema/functions/placement.h"

enum { MAX_FILE_BYTES = 256 << 20 };

struct reader {
	struct mt_loads loads;
	size_t n_loads, size;
	uint32_t n_in_layer;
};

static int fail(struct mt_json_error *error, const char *text)
{
	snprintf(error->text, sizeof(error->text), "%s", text);
	return MOETRACE_E_FORMAT;
}

static int number_add(struct reader *reader, const struct mt_json_event *event,
		      struct mt_json_error *error)
{
	double value;

	if (mt_json_double(event, &value) != MOETRACE_OK || !(value >= 0) ||
	    !isfinite((float)value))
		return fail(error, "a load must be a number of at least 0");
	if (reader->n_loads == reader->size) {
		size_t size = reader->size ? reader->size * 2 : 1024;
		float *loads = realloc(reader->loads.loads, size * sizeof(*loads));

		if (!loads)
			return MOETRACE_E_NOMEM;
		reader->loads.loads = loads;
		reader->size = size;
	}
	if (reader->n_in_layer == MT_PLACEMENT_MAX)
		return fail(error, "more experts in a layer than can be placed");
	reader->loads.loads[reader->n_loads++] = (float)value;
	reader->n_in_layer++;
	return MOETRACE_OK;
}

static int layer_end(struct reader *reader, struct mt_json_error *error)
{
	if (reader->n_in_layer == 0)
		return fail(error, "a layer has no experts");
	if (reader->loads.n_layers > 0 && reader->n_in_layer != reader->loads.n_experts)
		return fail(error, "a layer has another number of experts than the first");
	reader->loads.n_experts = reader->n_in_layer;
	reader->loads.n_layers++;
	reader->n_in_layer = 0;
	return MOETRACE_OK;
}

static int receive(void *context, const struct mt_json_event *event, struct mt_json_error *error)
{
	struct reader *reader = context;

	if (event->kind == MT_JSON_ARRAY_BEGIN && event->depth <= 1)
		return MOETRACE_OK;
	if (event->kind == MT_JSON_ARRAY_END && event->depth == 0)
		return MOETRACE_OK;
	if (event->kind == MT_JSON_ARRAY_END && event->depth == 1)
		return layer_end(reader, error);
	if (event->kind == MT_JSON_NUMBER && event->depth == 2)
		return number_add(reader, event, error);
	return fail(error, "expected an array of layers, each an array of numbers");
}

/* The whole file as text; NULL after an error line, with the code in *ret_status. */
static char *text_read(const char *path, size_t *ret_n_bytes, int *ret_status)
{
	FILE *file = fopen(path, "rb");
	char *text = NULL;
	size_t n_bytes = 0;
	FILE *memory;
	int c;

	*ret_status = errno == ENOENT ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
	if (!file) {
		mt_error("%s: %s", path, strerror(errno));
		return NULL;
	}
	memory = open_memstream(&text, &n_bytes);
	while (memory && (c = getc(file)) != EOF && n_bytes <= MAX_FILE_BYTES)
		putc(c, memory);
	if (ferror(file) || !memory || fclose(memory) != 0) {
		mt_error("%s: %s", path, strerror(errno));
		*ret_status = MT_EXIT_FAILED;
		free(text);
		text = NULL;
	}
	fclose(file);
	*ret_n_bytes = n_bytes;
	return text;
}

int mt_loads_read(const char *path, struct mt_loads *ret_loads)
{
	const struct mt_json_limits limits = {.max_bytes = MAX_FILE_BYTES, .max_depth = 2};
	struct mt_json_error error;
	struct reader reader = {0};
	size_t n_bytes;
	int status;
	char *text = text_read(path, &n_bytes, &status);

	if (!text)
		return status;
	status = mt_json_parse(text, n_bytes, &limits, receive, &reader, &error);
	free(text);
	if (status == MOETRACE_OK && reader.loads.n_layers > 0) {
		*ret_loads = reader.loads;
		return MT_EXIT_OK;
	}
	if (status == MOETRACE_OK)
		mt_error("%s: there is no layer in it", path);
	else if (status == MOETRACE_E_FORMAT)
		mt_error("%s:%u:%u: %s", path, error.line, error.column, error.text);
	else
		mt_error("%s: %s", path, moetrace_status_string(status));
	free(reader.loads.loads);
	return MT_EXIT_FAILED;
}
