/* SPDX-License-Identifier: MIT */
/*
 * A server in small: workers serve batches of requests at the same time, each with a forward pass
 * of its own in flight, as data-parallel replicas or two-batch overlap have. A worker admits
 * requests, computes the prompts of the new ones and a token of each older one in the same
 * pass, and ends those that are done. Requests carry attributes. The router draws lots.
 *
 *   make threaded_server && ./threaded_server server.db 4 200
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/moetrace.h>

enum { N_LAYERS = 4, N_EXPERTS = 32, TOP_K = 4 };
enum {
	MAX_WORKERS = 64,
	BATCH = 8,
	MAX_PROMPT = 24,
	MAX_ANSWER = 12,
	MAX_ROWS = BATCH * MAX_PROMPT
};

static const char *const domains[] = {"prose", "code", "dialogue"};

struct server {
	struct moetrace_session *session; /* NULL: nothing is recorded, and all calls accept it */
	uint32_t model;
	uint32_t n_requests;
	atomic_uint n_admitted;
	atomic_uint n_finished;
};

struct running {
	uint64_t request;
	uint32_t n_prompt;
	uint32_t n_computed; /* positions that went through the model */
	uint32_t n_answer;
};

struct worker {
	pthread_t thread;
	struct server *server;
	uint32_t random;
	struct running batch[BATCH];
	uint32_t n_running;
	int32_t ids[MAX_ROWS][TOP_K];
	float weights[MAX_ROWS][TOP_K];
};

static uint32_t draw(struct worker *worker, uint32_t n)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 17;
	worker->random ^= worker->random << 5;
	return worker->random % n;
}

static void admit(struct worker *worker)
{
	struct server *server = worker->server;
	struct running *running = &worker->batch[worker->n_running];
	const uint32_t number = atomic_fetch_add(&server->n_admitted, 1);
	struct moetrace_request_info info;
	char id[32];

	if (number >= server->n_requests)
		return;
	running->n_prompt = 1 + draw(worker, MAX_PROMPT);
	running->n_answer = 1 + draw(worker, MAX_ANSWER);
	running->n_computed = 0;
	snprintf(id, sizeof(id), "request-%u", (unsigned)number);
	MOETRACE_INIT(&info);
	info.external_id = id;
	info.prompt_positions = running->n_prompt;
	/* On failure the handle is MOETRACE_NO_REQUEST: its rows are then rows of no request. */
	if (moetrace_request_begin(server->session, &info, &running->request) == MOETRACE_OK) {
		moetrace_request_attribute_set(server->session, running->request, "domain",
					       domains[number % 3]);
		moetrace_request_attribute_set(server->session, running->request, "user_class",
					       number % 10 ? "batch" : "interactive");
	}
	worker->n_running++;
}

/* Stands for the model: what each layer's router chose, handed over as the layer is computed. */
static void compute(struct worker *worker, struct moetrace_pass *pass, uint32_t n_rows)
{
	struct moetrace_selection selection;
	uint32_t layer, row, rank, first;

	for (layer = 0; layer < N_LAYERS; layer++) {
		for (row = 0; row < n_rows; row++) {
			first = draw(worker, N_EXPERTS);
			for (rank = 0; rank < TOP_K; rank++) {
				worker->ids[row][rank] = (int32_t)((first + rank * 7) % N_EXPERTS);
				worker->weights[row][rank] = 1.0f / (float)(1u << (rank + 1));
			}
		}
		MOETRACE_INIT(&selection);
		selection.layer_index = layer;
		selection.n_rows = n_rows;
		selection.id_type = MOETRACE_TYPE_I32;
		selection.ids = worker->ids;
		selection.weight_type = MOETRACE_TYPE_F32;
		selection.weights = worker->weights;
		selection.order = MOETRACE_ORDER_SELECTION;
		moetrace_select_experts(pass, &selection);
	}
}

/* One pass over the batch: whole prompts of new requests, one token of the others. */
static void run_pass(struct worker *worker)
{
	struct moetrace_slice slices[BATCH];
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	uint32_t i, n_decode = 0;

	MOETRACE_INIT(&info);
	memset(slices, 0, sizeof(slices));
	for (i = 0; i < worker->n_running; i++) {
		const struct running *running = &worker->batch[i];

		slices[i].request = running->request;
		slices[i].first_position = running->n_computed;
		slices[i].n_rows = running->n_computed ? 1 : running->n_prompt;
		slices[i].phase =
			running->n_computed ? MOETRACE_PHASE_DECODE : MOETRACE_PHASE_PREFILL;
		n_decode += running->n_computed != 0;
		info.n_rows += slices[i].n_rows;
	}
	info.model = worker->server->model;
	info.phase = n_decode == worker->n_running ? MOETRACE_PHASE_DECODE
		     : n_decode			   ? MOETRACE_PHASE_MIXED
						   : MOETRACE_PHASE_PREFILL;
	info.slices = slices;
	info.n_slices = worker->n_running;
	pass = moetrace_pass_begin(worker->server->session, &info);
	compute(worker, pass, info.n_rows);
	moetrace_pass_end(pass);
	for (i = 0; i < worker->n_running; i++)
		worker->batch[i].n_computed += slices[i].n_rows;
}

/* After moetrace_pass_end() of the last pass that named them. */
static void end_finished(struct worker *worker)
{
	uint32_t i = 0;

	while (i < worker->n_running) {
		const struct running *running = &worker->batch[i];

		/* The last token of the answer is sampled and not computed. */
		if (running->n_computed + 1 < running->n_prompt + running->n_answer) {
			i++;
			continue;
		}
		moetrace_request_end(worker->server->session, running->request,
				     MOETRACE_REQUEST_FINISHED, running->n_computed);
		atomic_fetch_add(&worker->server->n_finished, 1);
		worker->batch[i] = worker->batch[--worker->n_running];
	}
}

static void *serve(void *argument)
{
	struct worker *worker = argument;

	for (;;) {
		if (worker->n_running < BATCH)
			admit(worker);
		if (!worker->n_running)
			return NULL;
		run_pass(worker);
		end_finished(worker);
	}
}

static struct moetrace_session *start_recording(const char *path, uint32_t n_workers,
						uint32_t *ret_model)
{
	struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_session_opts opts;
	struct moetrace_session *session;
	struct moetrace_model_info info;
	uint32_t i;

	MOETRACE_INIT(&opts);
	opts.engine_name = "threaded_server";
	opts.n_rings = n_workers; /* passes in flight at once */
	opts.ring_bytes = 1 << 20;
	if (moetrace_session_open(path, &opts, &session) != MOETRACE_OK) {
		fprintf(stderr, "threaded_server: %s; serving without a trace\n",
			moetrace_open_errmsg());
		return NULL;
	}
	for (i = 0; i < N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i;
		layers[i].n_experts = N_EXPERTS;
		layers[i].top_k = TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "lots";
	info.layers = layers;
	info.n_moe_layers = N_LAYERS;
	if (moetrace_model_add(session, &info, ret_model) != MOETRACE_OK ||
	    moetrace_start(session, NULL) != MOETRACE_OK)
		fprintf(stderr, "threaded_server: nothing will be recorded\n");
	return session;
}

static int stop_recording(struct moetrace_session *session)
{
	struct moetrace_session_status status;
	int result;

	if (!session)
		return EXIT_FAILURE;
	moetrace_stop(session, NULL);
	MOETRACE_INIT(&status);
	if (moetrace_status(session, &status) == MOETRACE_OK)
		printf("%llu passes and %llu rows recorded, %llu passes dropped\n",
		       (unsigned long long)status.recorded_passes,
		       (unsigned long long)status.recorded_rows,
		       (unsigned long long)status.dropped_passes);
	result = moetrace_session_close(session);
	return result == MOETRACE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_WORKERS];
	const long n_workers = argc > 2 ? strtol(argv[2], NULL, 10) : 4;
	const long n_requests = argc > 3 ? strtol(argv[3], NULL, 10) : 200;
	struct server server = {.n_requests = (uint32_t)n_requests};
	long i, n_started = 0;

	if (argc < 2 || argc > 4 || n_workers < 1 || n_workers > MAX_WORKERS || n_requests < 1 ||
	    n_requests > 1000000) {
		fprintf(stderr,
			"usage: threaded_server FILE [WORKERS [REQUESTS]], 1 to %d workers\n",
			MAX_WORKERS);
		return 2;
	}
	server.session = start_recording(argv[1], (uint32_t)n_workers, &server.model);
	for (i = 0; i < n_workers; i++) {
		workers[i].server = &server;
		workers[i].random = 0x9e3779b9u + (uint32_t)i;
		if (pthread_create(&workers[i].thread, NULL, serve, &workers[i]))
			break;
		n_started++;
	}
	for (i = 0; i < n_started; i++)
		pthread_join(workers[i].thread, NULL);
	printf("%u of %ld requests answered by %ld workers\n", atomic_load(&server.n_finished),
	       n_requests, n_started);
	return stop_recording(server.session);
}
