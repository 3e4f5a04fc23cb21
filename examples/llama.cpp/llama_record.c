/* SPDX-License-Identifier: MIT */
/*
 * Generates with llama.cpp and records it with moetrace; or measures what the recording costs.
 *
 *   llama_record MODEL.gguf PROMPT.txt TRACE.db [N]          the prompt, then N greedy tokens
 *   llama_record --cost MODEL.gguf PROMPT.txt TRACE.db [N [GROUPS]]
 *
 * For models with one token a byte, such as tinymoe by convert.py: the prompt's bytes are its
 * tokens. --cost alternates three contexts in groups A B C C B A: without a callback, with the
 * recorder while nothing is recorded, and recording; it prints the paired change of time, on the
 * clock and of the CPU (all threads of the process, the recorder's writer included), and whether
 * all of them computed the same. On a machine that does other work only the CPU's is worth much.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moetrace_llama.h"

enum { N_VOCAB = 256, N_BATCH = 512, N_UBATCH = 128, MAX_PROMPT = 4096, MAX_GROUPS = 1000 };
enum variant { PLAIN, IDLE, RECORDING, N_VARIANTS };
enum span { TOKEN_WALL, TOKEN_CPU, PROMPT_WALL, PROMPT_CPU, N_SPANS };

static const char *const span_names[N_SPANS] = {"a token, clock", "a token, CPU",
						"the prompt, clock", "the prompt, CPU"};

struct host {
	struct llama_model *model;
	struct moetrace_session *session;
	struct moetrace_llama *recorder;
	struct llama_context *contexts[N_VARIANTS]; /* IDLE and RECORDING are one */
	struct llama_batch batch;
	uint8_t prompt[MAX_PROMPT];
	int32_t n_prompt;
	int32_t n_new;
};

/* What a generation came to. */
struct outcome {
	double s[N_SPANS];
	uint64_t logits; /* hash of all logits that were computed */
	uint64_t tokens; /* hash of the tokens */
	uint8_t last_token;
};

static double now_s(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Adds the time that a stretch takes: once before it with -1, once after it with 1. */
static void add_times(struct outcome *outcome, enum span wall, double sign)
{
	outcome->s[wall] += sign * now_s(CLOCK_MONOTONIC);
	outcome->s[wall + 1] += sign * now_s(CLOCK_PROCESS_CPUTIME_ID);
}

static uint64_t hash(uint64_t seed, const void *data, size_t n_bytes)
{
	const uint8_t *bytes = data;
	size_t i;

	for (i = 0; i < n_bytes; i++)
		seed = (seed ^ bytes[i]) * UINT64_C(0x100000001b3);
	return seed;
}

static void quiet(enum ggml_log_level level, const char *text, void *user_data)
{
	(void)level;
	(void)text;
	(void)user_data;
}

/* Adds a token of sequence 0 to the batch. */
static void push(struct llama_batch *batch, uint8_t token, int32_t position, bool wants_logits)
{
	const int32_t i = batch->n_tokens++;

	batch->token[i] = token;
	batch->pos[i] = position;
	batch->n_seq_id[i] = 1;
	batch->seq_id[i][0] = 0;
	batch->logits[i] = wants_logits;
}

/* The recorder is NULL in the plain variant: the wrapper is then llama_decode(). */
static int decode(struct host *host, enum variant variant)
{
	struct moetrace_llama *recorder = variant == PLAIN ? NULL : host->recorder;

	if (!moetrace_llama_decode(recorder, host->contexts[variant], host->batch))
		return 0;
	fprintf(stderr, "llama_record: llama_decode failed\n");
	return -1;
}

static void read_logits(struct host *host, enum variant variant, struct outcome *outcome)
{
	const float *logits =
		llama_get_logits_ith(host->contexts[variant], host->batch.n_tokens - 1);
	int i, best = 0;

	for (i = 1; logits && i < N_VOCAB; i++)
		if (logits[i] > logits[best])
			best = i;
	outcome->last_token = (uint8_t)best;
	outcome->tokens = hash(outcome->tokens, &outcome->last_token, 1);
	if (logits)
		outcome->logits = hash(outcome->logits, logits, N_VOCAB * sizeof(*logits));
}

static int generate(struct host *host, enum variant variant, struct outcome *ret_outcome)
{
	struct outcome outcome = {.logits = 1, .tokens = 1};
	int32_t position = 0, i;

	llama_kv_cache_clear(host->contexts[variant]);
	add_times(&outcome, PROMPT_WALL, -1);
	while (position < host->n_prompt) {
		host->batch.n_tokens = 0;
		while (position < host->n_prompt && host->batch.n_tokens < N_BATCH) {
			push(&host->batch, host->prompt[position], position,
			     position == host->n_prompt - 1);
			position++;
		}
		if (decode(host, variant))
			return -1;
	}
	read_logits(host, variant, &outcome);
	add_times(&outcome, PROMPT_WALL, 1);
	add_times(&outcome, TOKEN_WALL, -1);
	/* The last token is sampled and not computed. */
	for (i = 0; i + 1 < host->n_new; i++) {
		host->batch.n_tokens = 0;
		push(&host->batch, outcome.last_token, position++, true);
		if (decode(host, variant))
			return -1;
		read_logits(host, variant, &outcome);
	}
	add_times(&outcome, TOKEN_WALL, 1);
	outcome.s[TOKEN_WALL] /= host->n_new > 1 ? host->n_new - 1 : 1;
	outcome.s[TOKEN_CPU] /= host->n_new > 1 ? host->n_new - 1 : 1;
	*ret_outcome = outcome;
	return 0;
}

/* A generation as a request of its own. */
static int generate_request(struct host *host, enum variant variant, const char *id,
			    struct outcome *ret_outcome)
{
	int status, result;

	if (variant == PLAIN)
		return generate(host, variant, ret_outcome);
	status = moetrace_llama_request_begin(host->recorder, 0, id, (uint32_t)host->n_prompt);
	if (status != MOETRACE_OK)
		fprintf(stderr, "llama_record: %s\n", moetrace_status_string(status));
	result = generate(host, variant, ret_outcome);
	moetrace_llama_request_end(host->recorder, 0, MOETRACE_REQUEST_FINISHED);
	return result;
}

static int read_prompt(struct host *host, const char *path)
{
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		return -1;
	}
	host->n_prompt = (int32_t)fread(host->prompt, 1, sizeof(host->prompt), file);
	fclose(file);
	if (host->n_prompt)
		return 0;
	fprintf(stderr, "llama_record: %s: an empty prompt\n", path);
	return -1;
}

static int open_session(struct host *host, const char *path)
{
	struct moetrace_session_opts opts;

	MOETRACE_INIT(&opts);
	opts.engine_name = "llama.cpp";
	if (moetrace_session_open(path, &opts, &host->session) == MOETRACE_OK &&
	    moetrace_llama_open(host->session, N_BATCH, &host->recorder) == MOETRACE_OK)
		return 0;
	fprintf(stderr, "llama_record: %s\n", moetrace_open_errmsg());
	return -1;
}

static struct llama_context *new_context(struct host *host, bool is_recorded)
{
	struct llama_context_params params = llama_context_default_params();

	params.n_ctx = MAX_PROMPT + 1024;
	params.n_batch = N_BATCH;
	params.n_ubatch = N_UBATCH;
	params.n_threads = 1;
	params.n_threads_batch = 1;
	if (is_recorded) {
		params.cb_eval = moetrace_llama_callback();
		params.cb_eval_user_data = host->recorder;
	}
	return llama_init_from_model(host->model, params);
}

static int open_model(struct host *host, const char *path)
{
	host->model = llama_model_load_from_file(path, llama_model_default_params());
	if (!host->model) {
		fprintf(stderr, "llama_record: %s: llama.cpp cannot load it\n", path);
		return -1;
	}
	host->contexts[PLAIN] = new_context(host, false);
	host->contexts[RECORDING] = host->contexts[IDLE] = new_context(host, true);
	host->batch = llama_batch_init(N_BATCH, 0, 1);
	if (host->contexts[PLAIN] && host->contexts[IDLE])
		return 0;
	fprintf(stderr, "llama_record: %s: llama.cpp has no memory for its contexts\n", path);
	return -1;
}

/* The warm-up that every program does, and what the recorder learns from it. */
static int warm_up(struct host *host)
{
	enum variant variant;
	int status;

	for (variant = PLAIN; variant <= IDLE; variant++) {
		host->batch.n_tokens = 0;
		push(&host->batch, host->prompt[0], 0, true);
		if (decode(host, variant))
			return -1;
	}
	status = moetrace_llama_model_add(host->recorder, "model");
	if (status == MOETRACE_OK)
		return 0;
	fprintf(stderr, "llama_record: no layer with experts is known: %s\n",
		moetrace_status_string(status));
	return -1;
}

static int record(struct host *host)
{
	struct moetrace_llama_counts counts;
	struct outcome outcome;

	if (moetrace_start(host->session, NULL) != MOETRACE_OK)
		fprintf(stderr, "llama_record: nothing will be recorded\n");
	if (generate_request(host, RECORDING, "prompt", &outcome))
		return -1;
	moetrace_stop(host->session, NULL);
	moetrace_llama_counts(host->recorder, &counts);
	printf("%d + %d positions, %llu passes, %llu layers not placed, tokens %016llx, "
	       "%.3f ms a token\n",
	       host->n_prompt, host->n_new > 1 ? host->n_new - 1 : 0,
	       (unsigned long long)counts.n_graphs, (unsigned long long)counts.n_unplaced_layers,
	       (unsigned long long)outcome.tokens, outcome.s[TOKEN_WALL] * 1e3);
	return 0;
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of n values, and its 95 % interval by order statistics. */
static void print_change(const char *span, const char *variant, double *changes, int n)
{
	const int spread = (int)ceil(0.98 * sqrt(n));
	const int low = n / 2 - spread, high = (n - 1) / 2 + spread;

	qsort(changes, (size_t)n, sizeof(*changes), compare_doubles);
	printf("  %-18s %-14s %+6.2f %%  [%+.2f, %+.2f]\n", span, variant,
	       50 * (changes[(n - 1) / 2] + changes[n / 2]), 100 * changes[low < 0 ? 0 : low],
	       100 * changes[high >= n ? n - 1 : high]);
}

struct costs {
	double change[N_SPANS][N_VARIANTS][MAX_GROUPS];
	double plain_s[MAX_GROUPS]; /* a token on the CPU */
	bool same_tokens, same_logits;
};

/* A B C C B A: what drifts within a group falls on all three alike. */
static int run_group(struct host *host, int group, struct costs *costs, struct outcome *first)
{
	static const enum variant order[2 * N_VARIANTS] = {PLAIN,     IDLE, RECORDING,
							   RECORDING, IDLE, PLAIN};
	double s[N_SPANS][N_VARIANTS] = {{0}};
	struct outcome outcome;
	int i, span;

	for (i = 0; i < 2 * N_VARIANTS; i++) {
		if (order[i] == RECORDING && moetrace_start(host->session, NULL) != MOETRACE_OK)
			return fprintf(stderr, "llama_record: start failed\n"), -1;
		if (generate_request(host, order[i], "cost", &outcome))
			return -1;
		if (order[i] == RECORDING)
			moetrace_stop(host->session, NULL);
		for (span = 0; span < N_SPANS; span++)
			s[span][order[i]] += outcome.s[span] / 2;
		if (!group && !i)
			*first = outcome;
		costs->same_tokens &= outcome.tokens == first->tokens;
		costs->same_logits &= outcome.logits == first->logits;
	}
	costs->plain_s[group] = s[TOKEN_CPU][PLAIN];
	for (span = 0; span < N_SPANS; span++)
		for (i = IDLE; i < N_VARIANTS; i++)
			costs->change[span][i][group] = s[span][i] / s[span][PLAIN] - 1;
	return 0;
}

static int measure(struct host *host, int n_groups)
{
	static struct costs costs;
	struct outcome first = {.logits = 0};
	int group, span;

	costs.same_tokens = costs.same_logits = true;
	for (group = 0; group < n_groups; group++)
		if (run_group(host, group, &costs, &first))
			return -1;
	qsort(costs.plain_s, (size_t)n_groups, sizeof(double), compare_doubles);
	printf("%d groups, %d + %d tokens; without a callback %.3f ms of CPU a token (median)\n",
	       n_groups, host->n_prompt, host->n_new, costs.plain_s[n_groups / 2] * 1e3);
	printf("change of time, median and its 95 %% interval over the groups\n");
	for (span = 0; span < N_SPANS; span++) {
		print_change(span_names[span], "not recording", costs.change[span][IDLE], n_groups);
		print_change(span_names[span], "recording", costs.change[span][RECORDING],
			     n_groups);
	}
	printf("tokens %s, logits %s in all variants\n", costs.same_tokens ? "equal" : "DIFFER",
	       costs.same_logits ? "bit-identical" : "differ");
	return costs.same_tokens ? 0 : -1;
}

int main(int argc, char **argv)
{
	const bool is_cost = argc > 1 && !strcmp(argv[1], "--cost");
	static struct host host;
	int result = EXIT_FAILURE, n_groups;

	argc -= is_cost;
	argv += is_cost;
	if (argc < 4 || argc > 5 + is_cost) {
		fprintf(stderr,
			"usage: llama_record [--cost] MODEL.gguf PROMPT.txt TRACE.db [N%s]\n",
			is_cost ? " [GROUPS]" : "");
		return 2;
	}
	host.n_new = argc > 4 ? atoi(argv[4]) : 32;
	n_groups = argc > 5 ? atoi(argv[5]) : 10;
	if (host.n_new < 1 || host.n_new > 1000 || n_groups < 1 || n_groups > MAX_GROUPS) {
		fprintf(stderr, "llama_record: from 1 to 1000 tokens, from 1 to %d groups\n",
			MAX_GROUPS);
		return 2;
	}
	llama_log_set(quiet, NULL);
	llama_backend_init();
	if (!read_prompt(&host, argv[2]) && !open_session(&host, argv[3]) &&
	    !open_model(&host, argv[1]) && !warm_up(&host) &&
	    !(is_cost ? measure(&host, n_groups) : record(&host)))
		result = EXIT_SUCCESS;
	if (host.contexts[PLAIN])
		llama_free(host.contexts[PLAIN]);
	if (host.contexts[IDLE])
		llama_free(host.contexts[IDLE]);
	if (host.batch.token)
		llama_batch_free(host.batch);
	if (host.model)
		llama_free_model(host.model);
	llama_backend_free();
	moetrace_llama_close(host.recorder);
	if (moetrace_session_close(host.session) != MOETRACE_OK)
		result = EXIT_FAILURE;
	return result;
}
