/* SPDX-License-Identifier: MIT */
/*
 * make_trace SCENARIO OUTPUT.db [N]: a synthetic trace for the tests of the schema.
 *
 *   mixed    two recordings and models, every kind of slice, row maps, rows with fewer than
 *            k entries, one- and two-byte ids, retracts, layers of which nothing is stored
 *   halves   every bit pattern of fp16 and of bf16 as a weight
 *   slices   slices of 1, 253, 257 and 65 793 rows, with and without a row map
 *   domains  64 requests of five domains whose experts differ; for the cookbook
 *   bulk     N decode passes of 64 requests over 58 layers of 256 experts, top-8, with weights
 *   ids      the same without weights
 *
 * The same arguments give the same trace: the random numbers are a fixed sequence.
 */
#include "trace_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 88172645463325252u;

static uint32_t random_u32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16);
}

static int below(int n)
{
	return (int)(random_u32() % (uint32_t)n);
}

/* Distinct ids; low ones are more frequent, so that the load is uneven. */
static void draw_ids(uint16_t *ids, int k, int n)
{
	for (int r = 0; r < k; r++) {
		int id;
		bool seen;

		do {
			int a = below(n), b = below(n);

			id = a < b ? a : b;
			seen = false;
			for (int s = 0; s < r; s++)
				seen |= ids[s] == id;
		} while (seen);
		ids[r] = (uint16_t)id;
	}
}

enum { MAX_ROWS = 70000, MAX_K = 8 };

static uint16_t ids[MAX_ROWS * MAX_K];
static uint16_t bits[MAX_ROWS * MAX_K];
static uint8_t n_valid[MAX_ROWS];
static uint32_t row_map[MAX_ROWS];

static void draw_rows(const struct tw_layer *layer, int n_rows, int n_padding,
		      struct tw_rows *ret_rows)
{
	int n_slots = layer->n_experts + layer->n_zero_experts + layer->n_shared_slots;

	for (int i = 0; i < n_rows + n_padding; i++) {
		draw_ids(ids + i * layer->top_k, layer->top_k, n_slots);
		n_valid[i] = (uint8_t)below(layer->top_k + 1);
	}
	for (int i = 0; i < n_rows * layer->top_k; i++)
		bits[i] = (uint16_t)random_u32();
	*ret_rows = (struct tw_rows){
		.n_rows = n_rows,
		.ids = ids,
		.bits = layer->weights == TW_NONE ? NULL : bits,
		.n_valid = layer->has_n_valid ? n_valid : NULL,
		.n_padding = n_padding,
	};
}

static const struct tw_layer mixed_layers[] = {
	{1, 1, 1, 64, 0, 0, 4, TW_FP16, false, false},
	{2, 1, 2, 300, 0, 0, 8, TW_BF16, false, true},
	{3, 1, 5, 16, 2, 1, 3, TW_NONE, true, false},
	{4, 1, 6, 256, 0, 4, 6, TW_BF16, true, true},
	{5, 2, 0, 8, 0, 0, 2, TW_FP16, false, false},
};

enum { N_MIXED_LAYERS = sizeof(mixed_layers) / sizeof(mixed_layers[0]), N_MIXED_REQUESTS = 12 };

static const char mixed_definitions[] =
	"INSERT INTO meta VALUES ('format', 'moetrace'), ('session_name', 'synthetic');"
	"INSERT INTO process (process_id, pid) VALUES (1, 4711);"
	"INSERT INTO model VALUES (1, 'target', 'target', NULL, 7, NULL), (2, 'draft', 'draft', "
	"NULL, 1, NULL);"
	"INSERT INTO recording VALUES (1, 1, 0, 400000000, 'stopped', 'per_token', 'model', NULL),"
	" (2, 1, 500000000, NULL, NULL, 'per_token', 'model', NULL);"
	"INSERT INTO gap VALUES (1, 1, 'layer', 10, 20, 3, NULL, 'ring_full');"
	"INSERT INTO stats VALUES (1, 'dropped_passes', 0), (1, 'dropped_layers', 3),"
	" (1, 'dropped_bytes', 999), (1, 'invalid_ids', 0), (1, 'misuse', 0), (1, 'last_pass_id', "
	"100000);";

static void add_mixed_requests(struct tw *tw)
{
	for (int i = 1; i <= N_MIXED_REQUESTS; i++) {
		char *sql = sqlite3_mprintf(
			"INSERT INTO request VALUES (%d, %d, %d, 'r%d', 5, %s, 2, 0, 0, %d, %s, "
			"%s, '%s', %s);"
			"INSERT INTO request_attribute VALUES (%d, 'domain', '%s');",
			i, i <= 8 ? 1 : 2, i, i, i % 3 ? "40" : "NULL", i * 1000,
			i % 3 ? "900000000" : "NULL", i % 3 ? "'finished'" : "NULL",
			i % 3 == 0   ? "unfinished"
			: i % 3 == 1 ? "complete"
				     : "partial",
			i % 3 == 2 ? "'lost'" : "NULL", i, i % 2 ? "c" : "prose");

		tw_exec(tw, sql);
		sqlite3_free(sql);
	}
}

static void draw_slice(struct tw_pass *pass, struct tw_slice *slice, uint32_t *positions,
		       uint8_t *accepted)
{
	static const char *const phases[] = {"prefill", "decode", "decode", "verify", "draft"};

	*slice = (struct tw_slice){.phase = phases[below(5)], .n_rows = 1 + below(7)};
	if (below(6) == 0)
		return;
	slice->request_id =
		(pass->recording_id == 1 ? 1 : 9) + below(pass->recording_id == 1 ? 8 : 4);
	slice->attempt = below(2);
	slice->first_position = below(1000);
	for (int i = 0; i < slice->n_rows; i++) {
		positions[i] = random_u32();
		accepted[i] = (uint8_t)below(2);
	}
	if (below(3) == 0) {
		slice->positions = positions;
		slice->first_position = (int)(positions[0] & 0x7fffffffu);
	}
	if (strcmp(slice->phase, "verify") == 0 && below(3) != 0)
		slice->accepted = accepted;
}

/* A random subset of the pass's rows, in random order. */
static int draw_row_map(int n_rows)
{
	int n = 0;

	for (int i = 0; i < n_rows; i++) {
		if (below(4) != 0) {
			int at = below(n + 1);

			row_map[n++] = row_map[at];
			row_map[at] = (uint32_t)i;
		}
	}
	return n;
}

static void add_mixed_layer(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer)
{
	struct tw_rows rows;
	int n_rows = pass->n_rows;

	if (below(12) == 0) {
		tw_add_absent(tw, pass, layer, 1 + below(2));
		return;
	}
	if (layer->mapped)
		n_rows = draw_row_map(n_rows);
	else if (below(8) == 0)
		n_rows = below(n_rows + 1);
	draw_rows(layer, n_rows, layer->mapped ? 0 : pass->padding_rows, &rows);
	if (layer->mapped)
		rows.row = row_map;
	tw_add_rows(tw, pass, layer, &rows);
}

static void make_mixed(struct tw *tw, int n)
{
	static uint32_t positions[TW_MAX_SLICES][8];
	static uint8_t accepted[TW_MAX_SLICES][8];
	static struct tw_pass pass;

	(void)n;
	tw_exec(tw, mixed_definitions);
	add_mixed_requests(tw);
	for (int i = 0; i < N_MIXED_LAYERS; i++)
		tw_add_layer(tw, &mixed_layers[i]);
	for (int p = 1; p <= 240; p++) {
		memset(&pass, 0, sizeof(pass));
		pass.pass_id = p;
		pass.recording_id = p <= 150 ? 1 : 2;
		pass.model_id = p % 4 == 0 ? 2 : 1;
		pass.begin_ns = p * 3000000;
		pass.end_ns = pass.begin_ns + 2500000;
		pass.padding_rows = below(3) == 0 ? below(4) : 0;
		pass.n_slices = below(10) == 0 ? 0 : 1 + below(9);
		for (int s = 0; s < pass.n_slices; s++) {
			draw_slice(&pass, &pass.slices[s], positions[s], accepted[s]);
			pass.n_rows += pass.slices[s].n_rows;
		}
		tw_add_pass(tw, &pass);
		for (int i = 0; i < N_MIXED_LAYERS; i++)
			if (mixed_layers[i].model_id == pass.model_id)
				add_mixed_layer(tw, &pass, &mixed_layers[i]);
	}
}

static const char one_request[] =
	"INSERT INTO process (process_id, pid) VALUES (1, 4711);"
	"INSERT INTO model VALUES (1, 'target', 'target', NULL, 2, NULL);"
	"INSERT INTO recording VALUES (1, 1, 0, 900000000, 'closed', 'per_token', 'model', NULL);"
	"INSERT INTO request VALUES (1, 1, 1, NULL, 5, 8192, 1, 0, 0, 0, 900000000, "
	"'finished', 'complete', NULL);";

static void make_halves(struct tw *tw, int n)
{
	static const struct tw_layer layers[] = {
		{1, 1, 0, 256, 0, 0, 8, TW_FP16, false, false},
		{2, 1, 1, 257, 0, 0, 8, TW_BF16, false, false},
	};
	static struct tw_pass pass = {
		.pass_id = 1,
		.recording_id = 1,
		.model_id = 1,
		.end_ns = 1000000,
		.n_rows = 8192,
		.n_slices = 1,
		.slices = {{.request_id = 1, .n_rows = 8192, .phase = "prefill"}},
	};
	struct tw_rows rows;

	(void)n;
	tw_exec(tw, one_request);
	tw_add_pass(tw, &pass);
	for (int i = 0; i < 2; i++) {
		tw_add_layer(tw, &layers[i]);
		draw_rows(&layers[i], pass.n_rows, 0, &rows);
		for (int b = 0; b < 65536; b++)
			bits[b] = (uint16_t)b;
		tw_add_rows(tw, &pass, &layers[i], &rows);
	}
}

static void make_slices(struct tw *tw, int n)
{
	static const struct tw_layer layers[] = {
		{1, 1, 0, 256, 0, 0, 1, TW_FP16, false, false},
		{2, 1, 1, 4, 0, 0, 1, TW_NONE, true, false},
	};
	static const int sizes[] = {253, 257, 1, 65536 + 257};
	static struct tw_pass pass;
	struct tw_rows rows;

	(void)n;
	tw_exec(tw, one_request);
	for (int i = 0; i < 2; i++)
		tw_add_layer(tw, &layers[i]);
	for (int p = 0; p < (int)(sizeof(sizes) / sizeof(sizes[0])); p++) {
		pass = (struct tw_pass){
			.pass_id = p + 1,
			.recording_id = 1,
			.model_id = 1,
			.begin_ns = p * 1000000,
			.end_ns = p * 1000000 + 1,
			.n_rows = 3 + sizes[p],
			.n_slices = 2,
			.slices = {{.n_rows = 3, .phase = "prefill"},
				   {.request_id = 1,
				    .first_position = 7,
				    .n_rows = sizes[p],
				    .phase = "prefill"}},
		};
		tw_add_pass(tw, &pass);
		for (int i = 0; i < 2; i++) {
			draw_rows(&layers[i], pass.n_rows, 0, &rows);
			for (int r = 0; layers[i].mapped && r < pass.n_rows; r++)
				row_map[r] = (uint32_t)(pass.n_rows - 1 - r);
			if (layers[i].mapped)
				rows.row = row_map;
			tw_add_rows(tw, &pass, &layers[i], &rows);
		}
	}
}

enum { N_DOMAINS = 5, N_DOMAIN_REQUESTS = 64, PROMPT = 32, DECODE = 48, BATCH = 16 };

static const char *const domains[N_DOMAINS] = {"prose", "c", "perl", "py", "js"};

/* Each domain has its own sixth of the experts, drawn three times as often. */
static void draw_domain_rows(const struct tw_layer *layer, const struct tw_pass *pass,
			     struct tw_rows *ret_rows)
{
	int row = 0;

	draw_rows(layer, pass->n_rows, 0, ret_rows);
	for (int s = 0; s < pass->n_slices; s++) {
		int domain = pass->slices[s].request_id % N_DOMAINS;

		for (int i = 0; i < pass->slices[s].n_rows; i++, row++) {
			uint16_t *first = ids + row * layer->top_k;
			uint16_t id = (uint16_t)(domain * layer->n_experts / 6 +
						 below(layer->n_experts / 6));
			bool seen = false;

			for (int r = 0; r < layer->top_k; r++) {
				bits[row * layer->top_k + r] = (uint16_t)(0x3800 - r * 0x200);
				seen |= first[r] == id;
			}
			if (!seen && below(3) != 0)
				first[0] = id;
		}
	}
}

static void add_domain_requests(struct tw *tw)
{
	for (int i = 1; i <= N_DOMAIN_REQUESTS; i++) {
		char *sql = sqlite3_mprintf(
			"INSERT INTO request VALUES (%d, 1, %d, '%d', %d, %d, 1, 0, 0, 0, 900000000,"
			" 'finished', 'complete', NULL);"
			"INSERT INTO request_attribute VALUES (%d, 'domain', '%s');",
			i, i, i - 1, PROMPT, PROMPT + DECODE, i, domains[i % N_DOMAINS]);

		tw_exec(tw, sql);
		sqlite3_free(sql);
	}
}

/* Groups of BATCH requests: their prompts in one pass, then DECODE passes of one row each. */
/* Times, ranges and power for the recipes, derived from the passes. */
static void add_timing(struct tw *tw)
{
	tw_exec(tw,
		"INSERT INTO device VALUES (1, 1, 'host', NULL, NULL, 2, NULL),"
		" (2, 1, 'cuda', 'GPU', 'GPU-1', NULL, 700000);"
		"INSERT INTO string VALUES (1, 'attention', 'attention', 0),"
		" (2, 'experts', 'experts', 0), (3, 'send', 'dispatch', 1), (4, 'step', NULL, NULL);"
		"INSERT INTO launch_shape VALUES (1, 132, 1, 1, 128, 1, 1, 64, 0, 4096);"
		"INSERT INTO kernel SELECT NULL, p.recording_id, 2, 7, s.string_id,"
		" p.begin_ns + 100000 * l.moe_ordinal + 20000 * s.string_id,"
		" p.begin_ns + 100000 * l.moe_ordinal + 20000 * s.string_id"
		" + CASE s.string_id WHEN 2 THEN 1000 * pl.active_experts ELSE 15000 END,"
		" p.pass_id, l.layer_id, 1, 0, 1, p.pass_id FROM pass_layer AS pl"
		" JOIN pass AS p USING (pass_id) JOIN layer AS l USING (layer_id)"
		" JOIN string AS s ON s.string_id < 4 WHERE pl.state = 0;"
		"INSERT INTO range SELECT NULL, recording_id, 4, 1, begin_ns, end_ns FROM pass;"
		"INSERT INTO power_sample SELECT NULL, 1, 2, 'gpu', 'poll', 100000000 * value,"
		" 300000 + 1000 * (value % 5), 299000, 30000 * value, 700000, 4 * (value % 2), 1980,"
		" 2619, 45, 20000 FROM byte WHERE value < 31;"
		"INSERT INTO host_sample VALUES (1, 1, 0, 1, 1, 1, 4096);"
		"INSERT INTO clock_snapshot VALUES (1, 1, 0, 5000, 1700000000000000000, 10);");
}

static void make_domains(struct tw *tw, int n)
{
	static struct tw_pass pass;
	struct tw_layer layer = {1, 1, 0, 60, 0, 0, 6, TW_FP16, false, false};
	struct tw_rows rows;
	int pass_id = 0;

	(void)n;
	tw_exec(tw,
		"INSERT INTO meta VALUES ('format', 'moetrace'), ('session_name', 'synthetic');"
		"INSERT INTO process (process_id, pid) VALUES (1, 4711);"
		"INSERT INTO model VALUES (1, 'target', 'target', NULL, 3, NULL);"
		"INSERT INTO recording VALUES (1, 1, 0, 900000000, 'closed', 'per_token', 'model', NULL);"
		"INSERT INTO stats VALUES (1, 'dropped_passes', 0), (1, 'dropped_layers', 0),"
		" (1, 'dropped_bytes', 0), (1, 'invalid_ids', 0), (1, 'misuse', 0), (1, "
		"'last_pass_id', 196);");
	add_domain_requests(tw);
	for (int l = 1; l <= 3; l++) {
		layer.layer_id = l;
		layer.layer = l - 1;
		tw_add_layer(tw, &layer);
	}
	for (int group = 0; group < N_DOMAIN_REQUESTS / BATCH; group++) {
		for (int step = 0; step <= DECODE; step++) {
			memset(&pass, 0, sizeof(pass));
			pass.pass_id = ++pass_id;
			pass.recording_id = 1;
			pass.model_id = 1;
			pass.begin_ns = pass_id * 1000000;
			pass.end_ns = pass.begin_ns + 400000 + below(400000);
			/* Requests end one by one, so that batches of several sizes occur. */
			for (int i = step > DECODE / 2 ? step - DECODE / 2 - 1 : 0; i < BATCH; i++) {
				pass.slices[pass.n_slices++] = (struct tw_slice){
					.request_id = group * BATCH + i + 1,
					.first_position = step ? PROMPT + step - 1 : 0,
					.n_rows = step ? 1 : PROMPT,
					.phase = step ? "decode" : "prefill",
				};
				pass.n_rows += step ? 1 : PROMPT;
			}
			if (!pass.n_slices)
				continue;
			tw_add_pass(tw, &pass);
			for (int l = 1; l <= 3; l++) {
				layer.layer_id = l;
				layer.layer = l - 1;
				draw_domain_rows(&layer, &pass, &rows);
				tw_add_rows(tw, &pass, &layer, &rows);
			}
		}
	}
	add_timing(tw);
}

static void make_bulk(struct tw *tw, int n_passes, enum tw_weights weights)
{
	static struct tw_pass pass;
	struct tw_layer layer = {1, 1, 0, 256, 0, 0, 8, weights, false, false};
	struct tw_rows rows;
	int n_layers = 58;

	tw_exec(tw, one_request);
	for (int i = 2; i <= 64; i++) {
		char *sql =
			sqlite3_mprintf("INSERT INTO request SELECT %d, 1, %d, NULL, 5, 8192, 1, 0,"
					" 0, 0, 900000000, 'finished', 'complete', NULL",
					i, i);

		tw_exec(tw, sql);
		sqlite3_free(sql);
	}
	for (int l = 1; l <= n_layers; l++) {
		layer.layer_id = l;
		layer.layer = l - 1;
		tw_add_layer(tw, &layer);
	}
	for (int p = 1; p <= n_passes; p++) {
		pass = (struct tw_pass){.pass_id = p,
					.recording_id = 1,
					.model_id = 1,
					.begin_ns = p * INT64_C(1000000),
					.n_rows = 64,
					.n_slices = 64};
		pass.end_ns = pass.begin_ns + 900000;
		for (int s = 0; s < 64; s++)
			pass.slices[s] = (struct tw_slice){.request_id = s + 1,
							   .first_position = p,
							   .n_rows = 1,
							   .phase = "decode"};
		tw_add_pass(tw, &pass);
		for (int l = 1; l <= n_layers; l++) {
			layer.layer_id = l;
			layer.layer = l - 1;
			draw_rows(&layer, 64, 0, &rows);
			tw_add_rows(tw, &pass, &layer, &rows);
		}
	}
}

static void make_weighted(struct tw *tw, int n)
{
	make_bulk(tw, n, TW_FP16);
}

static void make_ids(struct tw *tw, int n)
{
	make_bulk(tw, n, TW_NONE);
}

struct scenario {
	const char *name;
	void (*make)(struct tw *tw, int n);
	bool expect;
	int run_bytes; /* small runs end and begin anywhere */
};

static const struct scenario scenarios[] = {
	{"mixed", make_mixed, true, 500},      {"halves", make_halves, true, 65536},
	{"slices", make_slices, true, 65536},  {"domains", make_domains, true, 65536},
	{"bulk", make_weighted, false, 65536}, {"ids", make_ids, false, 65536},
};

int main(int argc, char **argv)
{
	int n = argc > 3 ? atoi(argv[3]) : 16;
	struct tw tw;

	for (size_t i = 0; argc > 2 && i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (strcmp(argv[1], scenarios[i].name) == 0) {
			tw_open(&tw, argv[2], scenarios[i].expect, scenarios[i].run_bytes);
			scenarios[i].make(&tw, n);
			tw_close(&tw);
			return 0;
		}
	}
	fputs("usage: make_trace mixed|halves|slices|domains|bulk|ids OUTPUT.db [N]\n", stderr);
	return 2;
}
