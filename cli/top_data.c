/* SPDX-License-Identifier: MIT */
/*
 * A frame for programs: named tables, as other verbs print them.
 */
#include "cli/top.h"

#include <string.h>

#include <moetrace/status.h>

struct data {
	const struct mt_top *top;
	const struct mt_top_frame *frame;
	struct mt_output output;
	bool has_failed;
};

static const char *const end_names[] = {
	[MT_TOP_NONE] = "none",
	[MT_TOP_LIVE] = "live",
	[MT_TOP_ENDED] = "ended",
	[MT_TOP_NO_END] = "no_end",
};

static void table_begin(struct data *data, struct mt_table *table, const char *section,
			const char *const *columns, size_t n_columns)
{
	mt_output_section(&data->output, section, NULL);
	if (mt_table_begin(table, &data->output, columns, n_columns) != MOETRACE_OK) {
		memset(table, 0, sizeof(*table));
		data->has_failed = true;
	}
}

static void table_end(struct data *data, struct mt_table *table)
{
	if (!table->output || mt_table_end(table) != MOETRACE_OK)
		data->has_failed = true;
}

#define BEGIN(data, table, section, columns)                                           \
	table_begin(data, table, section, columns, sizeof(columns) / sizeof((columns)[0])); \
	if (!(table)->output)                                                          \
		return

static void number_add(struct mt_table *table, double value)
{
	if (value < 0)
		mt_table_null(table);
	else
		mt_table_double(table, value);
}

static void count_add(struct mt_table *table, int64_t value)
{
	if (value < 0)
		mt_table_null(table);
	else
		mt_table_int64(table, value);
}

static void text_add(struct mt_table *table, const char *text)
{
	if (*text)
		mt_table_text(table, text);
	else
		mt_table_null(table);
}

static void recording_print(struct data *data)
{
	static const char *const columns[] = {
		"recording_id", "session", "mode",    "routing_source", "state", "end_reason",
		"start_ns",	"now_ns",  "model_id", "model",		"n_models",
	};
	const struct mt_top_facts *facts = &data->top->facts;
	struct mt_table table;

	BEGIN(data, &table, "recording", columns);
	if (facts->end != MT_TOP_NONE) {
		mt_table_int64(&table, facts->recording_id);
		text_add(&table, facts->session);
		text_add(&table, facts->mode);
		text_add(&table, facts->source);
		text_add(&table, end_names[facts->end]);
		text_add(&table, facts->end_reason);
		mt_table_int64(&table, facts->start_ns);
		mt_table_int64(&table, facts->now_ns);
		mt_table_int64(&table, data->top->model_id);
		text_add(&table, facts->model);
		mt_table_int64(&table, facts->n_models);
	}
	table_end(data, &table);
}

static void throughput_print(struct data *data)
{
	static const char *const columns[] = {
		"from_ns",	"until_ns",	"is_whole",	"passes",	 "partial_passes",
		"rows",		"padding_rows", "prefill_rows", "decode_rows",	 "verify_rows",
		"other_rows",	"passes_per_s", "tokens_per_s", "prefill_per_s", "decode_per_s",
		"mean_rows",	"mean_duration_ns", "active_from_ns", "mean_active_experts",
		"max_active_experts",
	};
	const struct mt_top_frame *frame = data->frame;
	struct mt_table table;
	size_t i;

	BEGIN(data, &table, "throughput", columns);
	mt_table_int64(&table, frame->from_ns);
	mt_table_int64(&table, frame->until_ns);
	mt_table_int64(&table, frame->is_whole);
	count_add(&table, frame->n_passes);
	count_add(&table, frame->n_partial);
	count_add(&table, frame->n_rows);
	count_add(&table, frame->padding_rows);
	for (i = 0; i < MT_TOP_PHASES; i++)
		mt_table_int64(&table, (int64_t)frame->rows[i]);
	number_add(&table, frame->passes_per_s);
	number_add(&table, frame->tokens_per_s);
	number_add(&table, frame->phase_per_s[MT_TOP_PREFILL]);
	number_add(&table, frame->phase_per_s[MT_TOP_DECODE]);
	number_add(&table, frame->mean_rows);
	number_add(&table, frame->mean_ns);
	mt_table_int64(&table, frame->recent_from_ns);
	number_add(&table, frame->mean_active);
	mt_table_int64(&table, (int64_t)frame->max_active);
	table_end(data, &table);
}

static void balance_print(struct data *data)
{
	static const char *const columns[] = {"max_over_mean_p50", "max_over_mean_p95",
					      "max_over_mean_worst", "worst_layer", "jain_p50",
					      "jain_worst"};
	const struct mt_top_frame *frame = data->frame;
	struct mt_table table;

	BEGIN(data, &table, "balance", columns);
	number_add(&table, frame->ratio_p50);
	number_add(&table, frame->ratio_p95);
	number_add(&table, frame->ratio_worst);
	if (frame->ratio_worst < 0)
		mt_table_null(&table);
	else
		mt_table_int64(&table, data->top->layers[frame->worst_layer].layer);
	number_add(&table, frame->jain_p50);
	number_add(&table, frame->jain_worst);
	table_end(data, &table);
}

static void layers_print(struct data *data)
{
	static const char *const columns[] = {"layer",	       "n_experts", "tokens",
					      "max_over_mean", "jain",	    "hottest_expert",
					      "dead_experts"};
	struct mt_table table;

	BEGIN(data, &table, "layers", columns);
	for (size_t i = 0; i < data->frame->n_layers; i++) {
		const struct mt_top_balance *balance = &data->frame->layers[i];

		mt_table_int64(&table, data->top->layers[i].layer);
		mt_table_int64(&table, data->top->layers[i].n_experts);
		mt_table_int64(&table, (int64_t)balance->tokens);
		number_add(&table, balance->max_over_mean);
		number_add(&table, balance->jain);
		if (balance->tokens)
			mt_table_int64(&table, balance->hottest);
		else
			mt_table_null(&table);
		mt_table_int64(&table, balance->n_dead);
	}
	table_end(data, &table);
}

static void load_print(struct data *data)
{
	static const char *const columns[] = {"layer", "expert", "tokens"};
	struct mt_table table;

	BEGIN(data, &table, "load", columns);
	for (size_t i = 0; i < data->frame->n_layers; i++) {
		const struct mt_top_layer *layer = &data->top->layers[i];

		for (uint32_t j = 0; j < layer->n_experts; j++) {
			mt_table_int64(&table, layer->layer);
			mt_table_int64(&table, j);
			mt_table_int64(&table,
				       (int64_t)data->frame->tokens[layer->first_cell + j]);
		}
	}
	table_end(data, &table);
}

static void power_print(struct data *data)
{
	static const char *const columns[] = {"device_id", "name",    "domain",
					      "last_w",	   "mean_w",  "limit_w",
					      "temperature_c", "held_down_by_bits"};
	double watts[MT_TOP_BUCKETS];
	struct mt_table table;

	BEGIN(data, &table, "power", columns);
	for (size_t i = 0; i < data->top->n_meters; i++) {
		const struct mt_top_meter *meter = &data->top->meters[i];

		mt_table_int64(&table, meter->device_id);
		text_add(&table, meter->name);
		text_add(&table, meter->domain);
		number_add(&table, meter->last_w);
		number_add(&table, mt_top_meter_mean(data->top, meter, data->frame, watts));
		number_add(&table, meter->limit_w);
		number_add(&table, meter->temperature_c);
		mt_table_int64(&table, (int64_t)meter->held_down_by);
	}
	table_end(data, &table);
}

static void operations_print(struct data *data)
{
	static const char *const columns[] = {"role", "n", "total_ns"};
	struct mt_table table;

	BEGIN(data, &table, "kernels", columns);
	for (size_t i = 0; i < MT_TOP_ROLES; i++) {
		if (!data->frame->n_operations[i])
			continue;
		mt_table_text(&table, mt_top_roles[i]);
		mt_table_int64(&table, (int64_t)data->frame->n_operations[i]);
		mt_table_int64(&table, (int64_t)data->frame->operations_ns[i]);
	}
	table_end(data, &table);
}

static void losses_print(struct data *data)
{
	static const char *const columns[] = {"name", "value"};
	const struct mt_top_facts *facts = &data->top->facts;
	struct mt_table table;
	size_t i;

	BEGIN(data, &table, "losses", columns);
	for (i = 0; i < facts->n_losses; i++) {
		mt_table_text(&table, facts->losses[i].name);
		mt_table_int64(&table, facts->losses[i].value);
	}
	table_end(data, &table);
}

static void sources_print(struct data *data)
{
	static const char *const columns[] = {"name", "state", "n_dropped", "reason"};
	const struct mt_top_facts *facts = &data->top->facts;
	struct mt_table table;
	size_t i;

	BEGIN(data, &table, "collectors", columns);
	for (i = 0; i < facts->n_sources; i++) {
		text_add(&table, facts->sources[i].name);
		text_add(&table, facts->sources[i].state);
		if (facts->sources[i].n_dropped < 0)
			mt_table_null(&table);
		else
			mt_table_int64(&table, facts->sources[i].n_dropped);
		text_add(&table, facts->sources[i].reason);
	}
	table_end(data, &table);
}

int mt_top_data_print(const struct mt_top *top, const struct mt_top_frame *frame,
		      enum mt_format format)
{
	static void (*const sections[])(struct data *data) = {
		recording_print, throughput_print, balance_print, layers_print, load_print,
		power_print,	 operations_print, losses_print,  sources_print,
	};
	struct data data = {.top = top, .frame = frame};
	size_t i;

	mt_output_begin(&data.output, stdout, format);
	mt_output_sections(&data.output);
	for (i = 0; i < sizeof(sections) / sizeof(sections[0]) && !data.has_failed; i++)
		sections[i](&data);
	if (data.has_failed) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	mt_output_end(&data.output);
	return MT_EXIT_OK;
}
