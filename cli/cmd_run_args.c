/* SPDX-License-Identifier: MIT */
/*
 * The options of `moetrace run`, one by one; what they say together is cmd_run_complete.c's. Bounds
 * here are those of the types and of plain sense; whether a size fits the machine is found out when
 * memory is asked for.
 */
#include "cli/cmd_run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/engine/expert_pool.h"
#include "kernels/threads.h"

#define DEFAULT_BATCH	16
#define DEFAULT_CONTEXT 1024

#define MAX_BATCH	(1u << 16)
#define MAX_CHUNK	(1u << 20)
#define MAX_CONTEXT	(1u << 24)
#define MAX_LAYERS	(1u << 12)
#define MAX_TEMPERATURE 100.0

#define MAX_REPEAT (1u << 20)

#define DIGITS "0123456789"

enum {
	OPT_MODEL = MT_OPT_OWN,
	OPT_SHAPE,
	OPT_LAYERS,
	OPT_SHARED_SLOTS,
	OPT_EXPERT_POOL,
	OPT_ROUTING,
	OPT_WORKLOAD,
	OPT_BATCH,
	OPT_CHUNK,
	OPT_CONTEXT,
	OPT_LOCKSTEP,
	OPT_KV_POSITIONS,
	OPT_PREFIX_REUSE,
	OPT_ABORT_AFTER,
	OPT_STOP_BYTE,
	OPT_TEMPERATURE,
	OPT_THREADS,
	OPT_SEED,
	OPT_NO_RECORD,
	OPT_RECORD_TOKENS,
	OPT_KERNELS,
	OPT_MARGINS,
	OPT_COLLECT,
	OPT_TEXT_OUTPUT,
	OPT_RULE,
	OPT_COMPARE,
	OPT_PAIRS,
	OPT_OEA,
	OPT_IDLE,
	OPT_REPEAT,
	OPT_SOCKET_DIR,
	OPT_MODE,
	OPT_SAMPLE_PASSES,
	OPT_SAMPLE_REQUESTS,
	OPT_FLIGHT_SECONDS,
	OPT_FLIGHT_BYTES,
	OPT_DEVICE,
	OPT_PRECISION,
	OPT_NO_GRAPH,
};

static const struct argp_option argp_options[] = {
	{"model", OPT_MODEL, "FILE.safetensors", 0, "The model, a Qwen3-MoE over bytes", 1},
	{"shape", OPT_SHAPE, "NAME", 0,
	 "Instead of a file: the true sizes and routing of a model that moetrace models lists, "
	 "with "
	 "synthetic weights",
	 1},
	{"workload", OPT_WORKLOAD, "FILE.jsonl", 0,
	 "The requests: a JSON object a line with prompt, max_new_tokens and optionally id; other "
	 "keys become attributes",
	 1},
	{"output", 'o', "FILE.db", 0, "Record into this new file [MOETRACE_OUTPUT]", 1},
	{"text-output", OPT_TEXT_OUTPUT, "FILE.jsonl", 0,
	 "Write a JSON object a request: id, prompt, text, finish_reason", 1},
	{"force", 'f', NULL, 0, "Replace output files that exist", 1},
	{"layers", OPT_LAYERS, "N", 0, "Of a shape: its first N layers with experts [all]", 2},
	{"expert-pool", OPT_EXPERT_POOL, "BYTES", 0,
	 "Of a shape: let the weights of all its layers alias a pool of so many bytes, where the "
	 "true ones do not fit; speed means nothing then and is not printed",
	 2},
	{"shared-slots", OPT_SHARED_SLOTS, NULL, 0,
	 "Of a shape: its shared experts are slots behind the chosen experts", 2},
	{"routing", OPT_ROUTING, "HOW", 0,
	 "Who chooses the experts: model, uniform, round-robin, zipf:S (likely as 1 / place^S) or "
	 "replay:FILE (those of a recording, by request id and position, or by the order of the "
	 "requests) [model]; the weights stay the router's scores",
	 2},
	{"no-record", OPT_NO_RECORD, NULL, 0, "Serve without recording; -o is not needed", 3},
	{"record-tokens", OPT_RECORD_TOKENS, NULL, 0,
	 "Store the tokens, too: the recording then reveals the text", 3},
	{"kernels", OPT_KERNELS, NULL, 0,
	 "Time the operations of each pass and layer: 'moetrace kernels' shows them", 3},
	{"margins", OPT_MARGINS, NULL, 0,
	 "Store by how much each row's last expert beat the best one left out, and flags of ties "
	 "and NaN; routing takes longer",
	 3},
	{"collect", OPT_COLLECT, "LIST", 0,
	 "Sources of power and the like to read while it runs, such as host,rapl,nvml, or none; "
	 "cupti=graph, cupti=eager, cupti=kernel, cupti=kernel:every=50, cupti=kernel:per_s=2 or "
	 "cupti=kernel:window=START+SECONDS for kernels of a GPU [MOETRACE_COLLECTORS, else none]", 3},
	{"idle", OPT_IDLE, NULL, 0, "Begin without recording; 'moetrace start' begins one", 3},
	{"flight-seconds", OPT_FLIGHT_SECONDS, "N", 0,
	 "Keep the last N seconds in memory, in 256 MiB unless --flight-bytes says otherwise; "
	 "'moetrace dump' writes them, and what is not dumped is let go at the end",
	 3},
	{"flight-bytes", OPT_FLIGHT_BYTES, "N", 0,
	 "Keep the last records in N bytes of memory, 1048576 or more", 3},
	{"repeat", OPT_REPEAT, "N", 0,
	 "Serve the workload N times over [1]; from the second time on ids end in .2, .3, ...", 3},
	{"mode", OPT_MODE, "MODE", 0,
	 "What to keep: per_token (the experts of every row), per_pass (counts by pass and layer) or "
	 "stat (counts by window of time) [per_token]",
	 2},
	{"sample-passes", OPT_SAMPLE_PASSES, "N", 0, "Record every Nth pass [1]", 2},
	{"sample-requests", OPT_SAMPLE_REQUESTS, "N", 0,
	 "Keep the rows of every Nth request alone [1]; counts are of all rows", 2},
	{"socket-dir", OPT_SOCKET_DIR, "FOLDER", 0,
	 "Where the control socket is made; none: no socket [MOETRACE_SOCKET_DIR, else "
	 "$XDG_RUNTIME_DIR/moetrace or /tmp/moetrace-UID]",
	 3},
	{"batch", OPT_BATCH, "N", 0, "Requests at a time [16]", 4},
	{"chunk", OPT_CHUNK, "N", 0, "Prompt rows a pass at most [128]", 4},
	{"lockstep", OPT_LOCKSTEP, NULL, 0,
	 "Let the requests of a batch advance together, one position a pass, prompts too: every row "
	 "is a decode row, as in moetrace eval",
	 4},
	{"context", OPT_CONTEXT, "N", 0,
	 "Positions a request may take [1024]; one that reaches them ends with finish_reason "
	 "length",
	 4},
	{"kv-positions", OPT_KV_POSITIONS, "N", 0,
	 "Positions that the KV cache holds for all requests together [what --batch requests of "
	 "--context need]; when they run out, the youngest request is retracted and computed again "
	 "later, as its next attempt",
	 4},
	{"prefix-reuse", OPT_PREFIX_REUSE, NULL, 0,
	 "Do not compute the positions of a prefix whose keys and values are still in the cache: "
	 "those of another request, running or ended, or of the request itself before it was "
	 "retracted",
	 4},
	{"threads", OPT_THREADS, "N", 0, "Threads of the engine [the CPUs online]", 4},
	{"device", OPT_DEVICE, "WHERE", 0, MT_DEVICE_HELP, 4},
	{"precision", OPT_PRECISION, "HOW", 0, MT_PRECISION_HELP, 4},
	{"no-graph", OPT_NO_GRAPH, NULL, 0, MT_NO_GRAPH_HELP, 4},
	{"stop-byte", OPT_STOP_BYTE, "N", 0,
	 "A request ends after generating this byte, 0 to 255 [none]; it is the last of the text",
	 5},
	{"abort-after", OPT_ABORT_AFTER, "N", 0,
	 "Abort each request that has generated N tokens and is not done, with finish_reason abort",
	 5},
	{"temperature", OPT_TEMPERATURE, "X", 0, "Sample at this temperature [0: greedy]", 5},
	{"seed", OPT_SEED, "N", 0,
	 "Seed of the sampling, of a shape's weights and of --routing [0]", 5},
	{"rule", OPT_RULE, "NAME:ARGS", 0, MT_RULE_HELP, 6},
	{"compare", OPT_COMPARE, "RULE", 0,
	 "Serve the workload plainly and under this rule in turns, in one process, record each time "
	 "as a recording of its own, and print the paired change of time, active experts, energy and "
	 "text, with intervals of 95 %; may be given several times",
	 6},
	{"pairs", OPT_PAIRS, "N", 0, "With --compare: times of each kind [8]", 6},
	{"oea", OPT_OEA, "ARGS", 0, MT_RULE_OEA_HELP, 6},
	{0},
};

static error_t u32_parse(struct mt_run_options *options, const char *name, const char *text,
			 uint32_t max, uint32_t *ret_value)
{
	uint64_t value;
	error_t error = mt_args_uint(&options->args, name, text, 1, max, &value);

	if (error == 0)
		*ret_value = (uint32_t)value;
	return error;
}

static error_t stop_byte_parse(struct mt_run_options *options, const char *text)
{
	uint64_t value;
	error_t error = mt_args_uint(&options->args, "--stop-byte", text, 0, 255, &value);

	if (error == 0)
		options->stop_byte = (int32_t)value;
	return error;
}

/* Digits, and behind a point more digits. */
static bool is_plain_decimal(const char *text)
{
	size_t n_digits = strspn(text, DIGITS);

	if (n_digits > 0 && text[n_digits] == '.') {
		text += n_digits + 1;
		n_digits = strspn(text, DIGITS);
	}
	return n_digits > 0 && text[n_digits] == '\0';
}

static error_t temperature_parse(struct mt_run_options *options, const char *text)
{
	double value = is_plain_decimal(text) ? strtod(text, NULL) : -1.0;

	if (value < 0.0 || value > MAX_TEMPERATURE)
		return mt_args_error(
			&options->args,
			"--temperature '%s': give a decimal number from 0 to %g, such as 0.7", text,
			MAX_TEMPERATURE);
	options->temperature = value;
	return 0;
}

static error_t zipf_parse(struct mt_run_options *options, const char *text, const char *number)
{
	double value = is_plain_decimal(number) ? strtod(number, NULL) : -1.0;

	if (value < 0.0 || value > MTK_CHOICE_MAX_EXPONENT)
		return mt_args_error(&options->args,
				     "--routing '%s': S is a decimal number from 0 to %g, such as "
				     "zipf:1.2",
				     text, MTK_CHOICE_MAX_EXPONENT);
	options->routing = MTK_CHOICE_ZIPF;
	options->zipf_exponent = value;
	return 0;
}

static error_t routing_parse(struct mt_run_options *options, const char *text)
{
	static const struct {
		const char *name;
		enum mtk_choice_kind kind;
	} plain[] = {
		{"model", MTK_CHOICE_MODEL},
		{"uniform", MTK_CHOICE_UNIFORM},
		{"round-robin", MTK_CHOICE_ROUND_ROBIN},
	};

	options->routing_text = text;
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (strcmp(text, plain[i].name) == 0) {
			options->routing = plain[i].kind;
			return 0;
		}
	if (strncmp(text, "zipf:", 5) == 0)
		return zipf_parse(options, text, text + 5);
	if (strncmp(text, "replay:", 7) == 0 && text[7] != '\0') {
		options->routing = MTK_CHOICE_REPLAY;
		options->replay_path = text + 7;
		return 0;
	}
	return mt_args_error(
		&options->args,
		"--routing '%s': give model, uniform, round-robin, zipf:S or replay:FILE", text);
}

bool mt_run_mode_find(const char *text, uint32_t *ret_mode)
{
	static const char *const modes[] = {
		[MOETRACE_MODE_PER_TOKEN] = "per_token",
		[MOETRACE_MODE_PER_PASS] = "per_pass",
		[MOETRACE_MODE_STAT] = "stat",
	};

	for (uint32_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(text, modes[i]) == 0) {
			*ret_mode = i;
			return true;
		}
	return false;
}

static error_t mode_parse(struct mt_run_options *options, const char *text)
{
	options->has_mode = mt_run_mode_find(text, &options->mode);
	if (options->has_mode)
		return 0;
	return mt_args_error(&options->args, "--mode '%s' is not known: give per_token, per_pass or stat",
			     text);
}

static error_t own_parse(int key, char *text, struct mt_run_options *options)
{
	switch (key) {
	case OPT_LAYERS:
		return u32_parse(options, "--layers", text, MAX_LAYERS, &options->n_layers);
	case OPT_EXPERT_POOL:
		return mt_args_uint(&options->args, "--expert-pool", text,
				    MTK_EXPERT_POOL_MIN_BYTES, SIZE_MAX / 2,
				    &options->expert_pool_bytes);
	case OPT_SHARED_SLOTS:
		options->has_shared_slots = true;
		return 0;
	case OPT_ROUTING:
		return routing_parse(options, text);
	case OPT_BATCH:
		return u32_parse(options, "--batch", text, MAX_BATCH, &options->n_batch);
	case OPT_CHUNK:
		return u32_parse(options, "--chunk", text, MAX_CHUNK, &options->n_chunk);
	case OPT_CONTEXT:
		return u32_parse(options, "--context", text, MAX_CONTEXT, &options->n_context);
	case OPT_KV_POSITIONS:
		return u32_parse(options, "--kv-positions", text, UINT32_MAX,
				 &options->n_kv_positions);
	case OPT_ABORT_AFTER:
		return u32_parse(options, "--abort-after", text, UINT32_MAX, &options->n_abort);
	case OPT_THREADS:
		options->device.has_threads = true;
		return u32_parse(options, "--threads", text, MTK_MAX_THREADS, &options->n_threads);
	case OPT_STOP_BYTE:
		return stop_byte_parse(options, text);
	case OPT_TEMPERATURE:
		return temperature_parse(options, text);
	case OPT_REPEAT:
		return u32_parse(options, "--repeat", text, MAX_REPEAT, &options->n_repeat);
	case OPT_FLIGHT_SECONDS:
		return u32_parse(options, "--flight-seconds", text, UINT32_MAX,
				 &options->flight_seconds);
	case OPT_FLIGHT_BYTES:
		return mt_args_uint(&options->args, "--flight-bytes", text, 1 << 20,
				    UINT64_C(1) << 40, &options->flight_bytes);
	case OPT_SEED:
		options->has_seed = true;
		return mt_args_uint(&options->args, "--seed", text, 0, UINT64_MAX, &options->seed);
	case OPT_DEVICE:
		return mt_device_parse(&options->args, text, &options->device);
	case OPT_PRECISION:
		return mt_precision_parse(&options->args, text, &options->device);
	case OPT_NO_GRAPH:
		options->device.without_graphs = true;
		return 0;
	case OPT_RULE:
		return mt_rule_parse(&options->args, text, &options->rule);
	case OPT_COMPARE:
		if (options->n_compare == MT_RUN_MAX_RULES)
			return mt_args_error(&options->args, "--compare: at most %d rules",
					     MT_RUN_MAX_RULES);
		return mt_rule_parse(&options->args, text,
				     &options->compare[options->n_compare++]);
	case OPT_PAIRS:
		return u32_parse(options, "--pairs", text, 1u << 12, &options->n_pairs);
	case OPT_OEA:
		return mt_rule_parse_oea(&options->args, text, &options->rule);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t option_parse(int key, char *text, struct argp_state *state)
{
	struct mt_run_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_MODEL:
		return mt_args_path(&options->args, "--model", text, &options->model);
	case OPT_SHAPE:
		if (*text == '\0')
			return mt_args_error(&options->args,
					     "--shape is empty: 'moetrace models' lists the names");
		options->shape = text;
		return 0;
	case OPT_WORKLOAD:
		return mt_args_path(&options->args, "--workload", text, &options->workload);
	case OPT_TEXT_OUTPUT:
		return mt_args_path(&options->args, "--text-output", text, &options->text_output);
	case OPT_NO_RECORD:
		options->no_record = true;
		return 0;
	case OPT_PREFIX_REUSE:
		options->reuses_prefixes = true;
		return 0;
	case OPT_IDLE:
		options->is_idle = true;
		return 0;
	case OPT_LOCKSTEP:
		options->is_lockstep = true;
		return 0;
	case OPT_MODE:
		return mode_parse(options, text);
	case OPT_SAMPLE_PASSES:
		return u32_parse(options, "--sample-passes", text, UINT32_MAX,
				 &options->sample_every_n_passes);
	case OPT_SAMPLE_REQUESTS:
		return u32_parse(options, "--sample-requests", text, UINT32_MAX,
				 &options->sample_every_n_requests);
	case OPT_SOCKET_DIR:
		return mt_args_path(&options->args, "--socket-dir", text, &options->socket_dir);
	case OPT_RECORD_TOKENS:
		options->records_tokens = true;
		return 0;
	case OPT_COLLECT:
		options->collectors = text;
		return 0;
	case OPT_KERNELS:
		options->records_kernels = true;
		return 0;
	case OPT_MARGINS:
		options->records_margins = true;
		return 0;
	case 'o':
		return mt_args_path(&options->args, "-o", text, &options->output);
	case 'f':
		options->overwrites = true;
		return 0;
	case ARGP_KEY_END:
		return mt_run_options_complete(options);
	default:
		return own_parse(key, text, options);
	}
}

static const char doc[] =
	"Serve a workload on the built-in engine and record every token's experts\v"
	"A token is a byte. Requests are batched continuously: as soon as one ends, the next "
	"begins. "
	"What a request generates depends on the model, its prompt, the seed and its place in the "
	"workload, not on --batch, --chunk, --kv-positions, --prefix-reuse, --threads or recording. "
	"Under a rule it depends on the requests beside it, and so on every option that changes "
	"which these are: with --kv-positions a retract alone may change the text, since other "
	"rows share the passes then, and positions computed again were decode rows, which the "
	"rule is for, and are prefill rows now. 'moetrace help eval' explains the rule oea. A first SIGINT (Ctrl-C), "
	"SIGTERM or SIGHUP ends the run at the next pass and closes the recording properly, but "
	"writes no text output; a second one ends it at once (one process that sends the same "
	"twice within 2 seconds, as timeout(1) does, sends one).\n\n"
	"Of a shape the part with experts is exact: the router with its biases, groups and hash "
	"tables, the experts with their latent, activation and biases, the shared experts. The "
	"attention is a plain grouped-query attention of the model's sizes, dense layers are left "
	"out, and the vocabulary is the 256 bytes. The memory that it will take is compared with "
	"what is available before any of it is taken.";

static uint32_t threads_default(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (n < 1)
		return 1;
	return n > MTK_MAX_THREADS ? MTK_MAX_THREADS : (uint32_t)n;
}

int mt_run_options_parse(int argc, char **argv, struct mt_run_options *ret_options)
{
	static const struct argp_child children[] = {{&mt_args_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {argp_options, option_parse, NULL, doc,
					 children,     NULL,	     NULL};
	struct mt_run_options options = {
		.args.no_file = true,
		.n_batch = DEFAULT_BATCH,
		.n_context = DEFAULT_CONTEXT,
		.n_threads = threads_default(),
		.n_repeat = 1,
		.stop_byte = -1,
		.routing_text = "model",
	};
	int exit_code = mt_args_parse(&argp, argc, argv, &options.args, &options);

	if (exit_code == MT_EXIT_OK)
		*ret_options = options;
	return exit_code;
}
