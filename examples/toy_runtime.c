/* SPDX-License-Identifier: MIT */
/*
 * The least that a runtime does to be recorded: one model with two layers of experts, one
 * request with a prompt of four tokens and three decode steps. Its router draws lots.
 *
 *   make && ./toy_runtime toy.db && sqlite3 toy.db 'select * from request_summary'
 */
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/moetrace.h>

enum { N_LAYERS = 2, N_EXPERTS = 16, TOP_K = 4, MAX_ROWS = 8 };

/* Stands for a forward pass: hands over the router's choice in each layer with experts. */
static void forward(struct moetrace_pass *pass, uint32_t n_rows)
{
	int32_t ids[MAX_ROWS][TOP_K];
	float weights[MAX_ROWS][TOP_K];
	struct moetrace_selection selection;
	uint32_t layer, row, rank;

	for (layer = 0; layer < N_LAYERS; layer++) {
		for (row = 0; row < n_rows; row++) {
			const int32_t first = rand() % N_EXPERTS;

			for (rank = 0; rank < TOP_K; rank++) {
				ids[row][rank] = (first + (int32_t)rank) % N_EXPERTS;
				weights[row][rank] = 1.0f / TOP_K;
			}
		}
		MOETRACE_INIT(&selection);
		selection.layer_index = layer;
		selection.n_rows = n_rows;
		selection.id_type = MOETRACE_TYPE_I32;
		selection.ids = ids;
		selection.weight_type = MOETRACE_TYPE_F32;
		selection.weights = weights;
		moetrace_select_experts(pass, &selection);
	}
}

/* A pass that computes @n_rows positions of one request. */
static void run_pass(struct moetrace_session *session, uint32_t model, uint32_t phase,
		     uint64_t request, uint32_t first_position, uint32_t n_rows)
{
	struct moetrace_slice slice = {request, NULL, first_position, n_rows, 0, 0};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = model;
	info.phase = phase;
	info.n_rows = n_rows;
	info.slices = &slice;
	info.n_slices = 1;
	pass = moetrace_pass_begin(session, &info); /* NULL: not recorded, and nobody minds */
	forward(pass, n_rows);
	moetrace_pass_end(pass);
}

static int add_model(struct moetrace_session *session, uint32_t *ret_model)
{
	struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;
	uint32_t i;

	for (i = 0; i < N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = 1 + i; /* layer 0 of this model is dense */
		layers[i].n_experts = N_EXPERTS;
		layers[i].top_k = TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "toy";
	info.layers = layers;
	info.n_moe_layers = N_LAYERS;
	return moetrace_model_add(session, &info, ret_model);
}

int main(int argc, char **argv)
{
	struct moetrace_session *session;
	uint64_t request;
	uint32_t model, step;

	if (argc != 2) {
		fprintf(stderr, "usage: toy_runtime FILE\n");
		return 2;
	}
	if (moetrace_session_open(argv[1], NULL, &session) != MOETRACE_OK) {
		fprintf(stderr, "toy_runtime: %s\n", moetrace_open_errmsg());
		return 1;
	}
	if (add_model(session, &model) != MOETRACE_OK ||
	    moetrace_start(session, NULL) != MOETRACE_OK ||
	    moetrace_request_begin(session, NULL, &request) != MOETRACE_OK) {
		fprintf(stderr, "toy_runtime: nothing will be recorded\n");
		model = 0;
		request = MOETRACE_NO_REQUEST;
	}
	run_pass(session, model, MOETRACE_PHASE_PREFILL, request, 0, 4);
	for (step = 0; step < 3; step++)
		run_pass(session, model, MOETRACE_PHASE_DECODE, request, 4 + step, 1);
	moetrace_request_end(session, request, MOETRACE_REQUEST_FINISHED, 7);
	return moetrace_session_close(session) == MOETRACE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
