/* SPDX-License-Identifier: MIT */
/*
 * A runtime that was built with the headers of the first version (tests/contract/first) and
 * runs with the library of today. Each struct that it passes ends where its memory ends: a
 * library that reads a member which this program does not have is ended by a signal. Prints
 * what the session's status says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <moetrace/moetrace.h>

enum { N_LAYERS = 2, N_EXPERTS = 16, TOP_K = 2, N_ROWS = 3, N_PASSES = 2 };

/* A copy of @size bytes with nothing after them; it lives as long as the program. */
static void *at_the_end(const void *given, size_t size)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || size > page || mprotect(memory + page, page, PROT_NONE)) {
		perror("first_caller");
		exit(99);
	}
	return memcpy(memory + page - size, given, size);
}

static void check(int status, const char *what)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "first_caller: %s: %s; %s\n", what, moetrace_status_string(status),
		moetrace_open_errmsg());
	exit(1);
}

static struct moetrace_session *open_session(const char *path)
{
	struct moetrace_session_opts opts;
	struct moetrace_session *session;

	MOETRACE_INIT(&opts);
	opts.engine_name = "first";
	opts.ring_bytes = 1 << 20;
	opts.tp.rank = 1;
	opts.tp.n_ranks = 2;
	check(moetrace_session_open(path, at_the_end(&opts, sizeof(opts)), &session), "open");
	return session;
}

static uint32_t add_model(struct moetrace_session *session)
{
	struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;
	uint32_t model, i;

	for (i = 0; i < N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = 3 + i;
		layers[i].n_experts = N_EXPERTS;
		layers[i].top_k = TOP_K;
		layers[i].impl_reason = "old";
	}
	MOETRACE_INIT(&info);
	info.name = "first";
	info.layers = at_the_end(layers, sizeof(layers));
	info.n_moe_layers = N_LAYERS;
	check(moetrace_model_add(session, at_the_end(&info, sizeof(info)), &model), "model");
	return model;
}

/* Both ways into the recorder: the plain form, and one with strides. */
static void select_layer(struct moetrace_pass *pass, uint32_t layer_index)
{
	static const int32_t ids[N_ROWS][TOP_K + 1] = {{1, 2, 0}, {3, 4, 0}, {5, 6, 0}};
	static const int32_t plain_ids[N_ROWS][TOP_K] = {{1, 2}, {3, 4}, {5, 6}};
	static const float weights[N_ROWS][TOP_K] = {{.75f, .25f}, {.5f, .5f}, {.75f, .25f}};
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer_index;
	selection.n_rows = N_ROWS;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = layer_index ? &ids[0][0] : &plain_ids[0][0];
	selection.ids_row_bytes = layer_index ? sizeof(ids[0]) : 0;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	selection.order = MOETRACE_ORDER_SELECTION;
	moetrace_select_experts(pass, at_the_end(&selection, sizeof(selection)));
}

static void run_pass(struct moetrace_session *session, uint32_t model, uint64_t request,
		     uint64_t number)
{
	struct moetrace_slice slice = {request, NULL, (uint32_t)number * N_ROWS, N_ROWS, 0, 0};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	uint32_t i;

	MOETRACE_INIT(&info);
	info.model = model;
	info.phase = MOETRACE_PHASE_PREFILL;
	info.n_rows = N_ROWS;
	info.slices = at_the_end(&slice, sizeof(slice));
	info.n_slices = 1;
	info.runtime_pass = &number;
	pass = moetrace_pass_begin(session, at_the_end(&info, sizeof(info)));
	for (i = 0; i < N_LAYERS; i++)
		select_layer(pass, i);
	moetrace_pass_end(pass);
}

static void print_status(struct moetrace_session *session)
{
	struct moetrace_session_status status, *at_end;

	MOETRACE_INIT(&status);
	at_end = at_the_end(&status, sizeof(status));
	check(moetrace_flush(session), "flush");
	check(moetrace_status(session, at_end), "status");
	printf("%u %u %d %d\n", (unsigned)at_end->recording_id, (unsigned)at_end->is_recording,
	       (int)at_end->recorded_rows, (int)at_end->misuse);
}

int main(int argc, char **argv)
{
	struct moetrace_recording_opts recording;
	struct moetrace_request_info info;
	struct moetrace_session *session;
	uint64_t request, number;
	uint32_t model, rule;

	if (argc != 2)
		return 2;
	session = open_session(argv[1]);
	model = add_model(session);
	check(moetrace_rule_add(session, "oea:k0=1", &rule), "rule");
	MOETRACE_INIT(&recording);
	recording.routing_source = "model";
	check(moetrace_start(session, at_the_end(&recording, sizeof(recording))), "start");
	MOETRACE_INIT(&info);
	info.external_id = "r-1";
	info.prompt_positions = N_PASSES * N_ROWS;
	check(moetrace_request_begin(session, at_the_end(&info, sizeof(info)), &request),
	      "request");
	for (number = 0; number < N_PASSES; number++)
		run_pass(session, model, request, number);
	check(moetrace_request_end(session, request, MOETRACE_REQUEST_FINISHED, N_PASSES * N_ROWS),
	      "end");
	print_status(session);
	check(moetrace_stop(session, NULL), "stop");
	check(moetrace_session_close(session), "close");
	return 0;
}
