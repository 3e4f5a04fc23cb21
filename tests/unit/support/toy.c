/* SPDX-License-Identifier: MIT */
/*
 * The small runtime of toy.h. Ranks of a row are neighbouring experts, so that they are
 * distinct as long as a row has no more entries than the layer has experts.
 */
#include "tests/unit/support/toy.h"

#include <check.h>
#include <stdlib.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

struct moetrace_session_opts toy_opts(void)
{
	struct moetrace_session_opts opts;

	MOETRACE_INIT(&opts);
	opts.engine_name = "toy";
	opts.commit_interval_ms = 20;
	/* Opening clears all rings, and a sanitizer its own memory of them: in a small case that is
	   most of its time. */
	opts.ring_bytes = UINT64_C(4) << 20;
	/* A thread in the middle of a pass may be without a processor for seconds. */
	opts.stop_timeout_ms = 60000;
	return opts;
}

uint32_t toy_model_add(struct moetrace_session *session, const char *name, uint32_t first_layer,
		       uint32_t n_layers, uint32_t n_experts, uint32_t top_k)
{
	struct moetrace_layer_info *layers = calloc(n_layers + 1u, sizeof(*layers));
	struct moetrace_model_info info;
	uint32_t i, model;

	ck_assert_ptr_nonnull(layers);
	for (i = 0; i < n_layers; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = first_layer + i;
		layers[i].n_experts = n_experts;
		layers[i].top_k = top_k;
	}
	MOETRACE_INIT(&info);
	info.name = name;
	info.layers = layers;
	info.n_moe_layers = n_layers;
	ck_assert_int_eq(moetrace_model_add(session, &info, &model), MOETRACE_OK);
	free(layers);
	return model;
}

struct toy toy_open(const char *name, const struct moetrace_session_opts *opts, uint32_t n_layers,
		    uint32_t n_experts, uint32_t top_k)
{
	const struct moetrace_session_opts defaults = toy_opts();
	struct toy toy = {.path = suite_path(name),
			  .n_layers = n_layers,
			  .n_experts = n_experts,
			  .top_k = top_k};
	int status = moetrace_session_open(toy.path, opts ? opts : &defaults, &toy.session);

	ck_assert_uint_le(top_k, TOY_MAX_K);
	REQUIRE(status == MOETRACE_OK, "open: %d: %s", status, moetrace_open_errmsg());
	toy.model = toy_model_add(toy.session, "toy", 0, n_layers, n_experts, top_k);
	return toy;
}

struct toy toy_start(const char *name, const struct moetrace_session_opts *opts, uint32_t n_layers,
		     uint32_t n_experts, uint32_t top_k)
{
	struct toy toy = toy_open(name, opts, n_layers, n_experts, top_k);

	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	return toy;
}

uint64_t toy_request(const struct toy *toy, const char *external_id)
{
	struct moetrace_request_info info;
	uint64_t request = MOETRACE_NO_REQUEST;

	MOETRACE_INIT(&info);
	info.external_id = external_id;
	ck_assert_int_eq(moetrace_request_begin(toy->session, &info, &request), MOETRACE_OK);
	ck_assert_uint_ne(request, MOETRACE_NO_REQUEST);
	return request;
}

void toy_request_end(const struct toy *toy, uint64_t request, uint64_t n_positions)
{
	ck_assert_int_eq(
		moetrace_request_end(toy->session, request, MOETRACE_REQUEST_FINISHED, n_positions),
		MOETRACE_OK);
}

uint32_t toy_expert(const struct toy *toy, uint32_t layer, uint32_t row, uint32_t rank)
{
	return (row * 7u + layer * 3u + rank) % toy->n_experts;
}

float toy_weight(uint32_t layer, uint32_t row, uint32_t rank)
{
	return 1.0f / (float)(1u + rank + row % 5u + layer);
}

struct moetrace_pass *toy_begin(const struct toy *toy, uint32_t phase,
				const struct moetrace_slice *slices, uint32_t n_slices)
{
	struct moetrace_pass_info info;
	uint32_t i;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = phase;
	info.slices = slices;
	info.n_slices = n_slices;
	for (i = 0; i < n_slices; i++)
		info.n_rows += slices[i].n_rows;
	return moetrace_pass_begin(toy->session, &info);
}

void toy_select(const struct toy *toy, struct moetrace_pass *pass, uint32_t layer, uint32_t n_rows)
{
	const size_t n = (size_t)n_rows * toy->top_k;
	int32_t *ids = malloc((n + 1) * sizeof(*ids));
	float *weights = malloc((n + 1) * sizeof(*weights));
	struct moetrace_selection selection;
	size_t i;

	if (!ids || !weights)
		abort();
	for (i = 0; i < n; i++) {
		const uint32_t row = (uint32_t)(i / toy->top_k);
		const uint32_t rank = (uint32_t)(i % toy->top_k);

		ids[i] = (int32_t)toy_expert(toy, layer, row, rank);
		weights[i] = toy_weight(layer, row, rank);
	}
	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = n_rows;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	selection.order = MOETRACE_ORDER_SELECTION;
	moetrace_select_experts(pass, &selection);
	free(ids);
	free(weights);
}

void toy_select_ids(struct moetrace_pass *pass, uint32_t layer, uint32_t n_rows, uint32_t k,
		    const int32_t *ids)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = n_rows;
	selection.k = k;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	moetrace_select_experts(pass, &selection);
}

void toy_finish(const struct toy *toy, struct moetrace_pass *pass, uint32_t n_rows)
{
	uint32_t layer;

	for (layer = 0; layer < toy->n_layers; layer++)
		toy_select(toy, pass, layer, n_rows);
	moetrace_pass_end(pass);
}

bool toy_pass(const struct toy *toy, uint32_t phase, uint64_t request, uint32_t first_position,
	      uint32_t n_rows)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first_position, .n_rows = n_rows};
	struct moetrace_pass *pass = toy_begin(toy, phase, &slice, 1);

	toy_finish(toy, pass, n_rows);
	return pass != NULL;
}

void toy_keep_pace(const struct toy *toy, uint64_t n, uint64_t n_behind)
{
	WAIT_UNTIL(toy_status(toy).recorded_passes + n_behind >= n);
}

void toy_close(struct toy *toy)
{
	ck_assert_int_eq(moetrace_session_close(toy->session), MOETRACE_OK);
	toy->session = NULL;
}

sqlite3 *toy_close_and_open(struct toy *toy)
{
	sqlite3 *db;

	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	return db;
}

struct moetrace_session_status toy_status(const struct toy *toy)
{
	struct moetrace_session_status status;

	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_status(toy->session, &status), MOETRACE_OK);
	return status;
}
