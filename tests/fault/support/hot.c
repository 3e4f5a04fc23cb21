/* SPDX-License-Identifier: MIT */
/*
 * The situations of hot.h. The ids of every row are the bytes of eight distinct experts in
 * whatever type they are read as: little-endian, with zero upper bytes.
 */
#include "tests/fault/support/hot.h"

#include <check.h>
#include <stdlib.h>

#include "tests/control/support/line_peer.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

static void add_model(struct hot *hot)
{
	struct moetrace_layer_info layers[HOT_N_LAYERS];
	struct moetrace_model_info info;
	uint32_t i;

	for (i = 0; i < HOT_N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i;
		layers[i].n_experts = HOT_N_EXPERTS;
		layers[i].top_k = HOT_TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "hot";
	info.layers = layers;
	info.n_moe_layers = HOT_N_LAYERS;
	ck_assert_int_eq(hot->api->model_add(hot->session, &info, &hot->model), MOETRACE_OK);
}

static void open_session(struct hot *hot)
{
	struct moetrace_recording_opts recording;
	struct moetrace_session_opts opts;
	uint32_t i;
	int status;

	MOETRACE_INIT(&opts);
	opts.commit_interval_ms = 10;
	opts.n_rings = hot->scenario == HOT_NO_RING ? 2 : 4;
	opts.ring_bytes = hot->scenario == HOT_RING_FULL ? 65536 : 0;
	status = hot->api->session_open(hot->path, &opts, &hot->session);
	ck_assert_msg(status == MOETRACE_OK, "open: %d: %s", status, hot->api->open_errmsg());
	add_model(hot);
	ck_assert_int_eq(hot->api->kernel_name_add(hot->session, "experts", MOETRACE_ROLE_EXPERTS, 0,
						   &hot->kernel_name),
			 MOETRACE_OK);
	ck_assert_int_eq(hot->api->range_name_add(hot->session, "step", &hot->range_name),
			 MOETRACE_OK);
	hot_kinds_recording(hot, &recording);
	if (hot->scenario != HOT_IDLE)
		ck_assert_int_eq(hot->api->start(hot->session, &recording), MOETRACE_OK);
	for (i = 0; i < HOT_N_REQUESTS; i++)
		ck_assert_int_eq(
			hot->api->request_begin(hot->session, NULL, &hot->slices[i].request),
			MOETRACE_OK);
}

struct hot *hot_prepare(const struct api *api, enum hot_scenario scenario)
{
	struct hot *hot = calloc(1, sizeof(*hot));
	size_t i, n = (size_t)HOT_MAX_ROWS * HOT_TOP_K;

	ck_assert_ptr_nonnull(hot);
	hot->api = api;
	hot->scenario = scenario;
	hot->path = suite_path("hot.db");
	hot->ids = malloc(n * sizeof(*hot->ids));
	hot->weights = malloc(n * sizeof(*hot->weights));
	ck_assert(hot->ids && hot->weights);
	for (i = 0; i < n; i++) {
		hot->ids[i] = (int64_t)(i % HOT_TOP_K);
		hot->weights[i] = 0.125f;
	}
	for (i = 0; i < HOT_N_REQUESTS; i++) {
		hot->slices[i].n_rows = 1;
		hot->slices[i].positions = &hot->positions[i];
		hot->positions[i] = (uint32_t)i;
		hot->row_map[i] = (uint32_t)i;
	}
	if (scenario == HOT_MEASURED)
		line_peer_folder();
	if (scenario != HOT_NULL)
		open_session(hot);
	if (scenario > HOT_NULL)
		hot_kinds_prepare(hot);
	return hot;
}

static struct moetrace_pass_info pass_info(const struct hot *hot, uint32_t n_rows)
{
	struct moetrace_pass_info info;

	MOETRACE_INIT(&info);
	info.model = hot->model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = n_rows;
	info.slices = n_rows == HOT_N_REQUESTS ? hot->slices : NULL;
	info.n_slices = n_rows == HOT_N_REQUESTS ? HOT_N_REQUESTS : 0;
	return info;
}

static struct moetrace_selection selection_of(const struct hot *hot, uint32_t layer,
					      uint32_t n_rows)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = n_rows;
	selection.id_type = MOETRACE_TYPE_I64;
	selection.ids = hot->ids;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = hot->weights;
	return selection;
}

static struct moetrace_pass *begin(struct hot *hot, const struct moetrace_pass_info *info)
{
	struct moetrace_pass *pass = hot->api->pass_begin(hot->session, info);
	uint32_t i;

	if (!pass) {
		hot->n_null++;
		return NULL;
	}
	hot->n_begun++;
	hot->number = hot->api->pass_number(pass);
	for (i = 0; i < HOT_N_REQUESTS; i++)
		hot->positions[i]++;
	return pass;
}

static void whole_pass(struct hot *hot, uint32_t n_rows)
{
	const struct moetrace_pass_info info = pass_info(hot, n_rows);
	struct moetrace_pass *pass = begin(hot, &info);
	struct moetrace_range range;
	uint32_t layer;

	hot->api->range_push(hot->session, hot->range_name, &range);

	for (layer = 0; layer < HOT_N_LAYERS; layer++) {
		const struct moetrace_selection selection = selection_of(hot, layer, n_rows);
		struct moetrace_kernel_time time = {
			.start_ns = hot->api->clock_ns(),
			.name = hot->kernel_name,
			.layer_index = layer,
		};

		hot->api->select_experts(pass, &selection);
		time.end_ns = hot->api->clock_ns();
		hot->api->pass_kernels(pass, &time, 1);
	}
	hot->api->range_pop(hot->session, &range);
	hot->api->pass_end(pass);
}

struct moetrace_pass *hot_begin(struct hot *hot)
{
	const struct moetrace_pass_info info = pass_info(hot, HOT_N_REQUESTS);

	return begin(hot, &info);
}

void hot_whole_pass(struct hot *hot)
{
	whole_pass(hot, HOT_N_REQUESTS);
}

struct moetrace_selection hot_selection(const struct hot *hot, uint32_t layer)
{
	return selection_of(hot, layer, HOT_N_REQUESTS);
}

/* Types whose layers are 0 to 3 of two passes; then the other forms in a third. */
static void forms(struct hot *hot)
{
	static const uint32_t weight_types[] = {MOETRACE_TYPE_NONE, MOETRACE_TYPE_F32,
						MOETRACE_TYPE_F16, MOETRACE_TYPE_BF16};
	struct moetrace_pass_info info = pass_info(hot, HOT_N_REQUESTS);
	struct moetrace_selection selection;
	struct moetrace_pass *pass = NULL;
	uint32_t type;

	for (type = MOETRACE_TYPE_I8; type <= MOETRACE_TYPE_U64; type++) {
		const uint32_t layer = (type - MOETRACE_TYPE_I8) % HOT_N_LAYERS;

		if (layer == 0)
			pass = begin(hot, &info);
		selection = selection_of(hot, layer, HOT_N_REQUESTS);
		selection.id_type = type;
		selection.ids_row_bytes = HOT_TOP_K * sizeof(*hot->ids);
		selection.weight_type = weight_types[layer];
		selection.weights = layer == 0 ? NULL : hot->weights;
		hot->api->select_experts(pass, &selection);
		if (layer == HOT_N_LAYERS - 1)
			hot->api->pass_end(pass);
	}
	info.padding_rows = 7;
	pass = begin(hot, &info);
	selection = selection_of(hot, 0, HOT_N_REQUESTS + 7);
	hot->api->select_experts(pass, &selection);
	selection = selection_of(hot, 1, HOT_N_REQUESTS / 2);
	selection.row_map = hot->row_map;
	hot->api->select_experts(pass, &selection);
	selection = selection_of(hot, 2, HOT_N_REQUESTS);
	selection.k = 3;
	selection.weights_row_bytes = 64;
	hot->api->select_experts(pass, &selection);
	selection = selection_of(hot, 3, HOT_N_REQUESTS);
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = hot->weights; /* bits of 0.125f: ids that no layer has */
	hot->api->select_experts(pass, &selection);
	hot->api->pass_end(pass);
}

static void misuse(struct hot *hot)
{
	struct moetrace_pass_info info = pass_info(hot, HOT_N_REQUESTS);
	struct moetrace_selection selection = selection_of(hot, 0, HOT_N_REQUESTS);
	struct moetrace_pass *pass;
	uint32_t i;

	begin(hot, NULL);
	info.model = 1000;
	begin(hot, &info);
	info = pass_info(hot, HOT_N_REQUESTS);
	info.n_rows++;
	begin(hot, &info);
	info.n_rows--;
	pass = begin(hot, &info);
	hot->api->select_experts(pass, NULL);
	selection.layer_index = 99;
	hot->api->select_experts(pass, &selection);
	selection.layer_index = 0;
	selection.n_rows++;
	hot->api->select_experts(pass, &selection);
	selection.n_rows--;
	for (i = 0; i < 3; i++)
		hot->api->select_experts(pass, &selection);
	hot->api->pass_end(pass);
}

static void no_ring(struct hot *hot)
{
	const struct moetrace_pass_info info = pass_info(hot, HOT_N_REQUESTS);
	struct moetrace_pass *passes[6];
	uint32_t i;

	for (i = 0; i < 6; i++)
		passes[i] = begin(hot, &info);
	for (i = 0; i < 6; i++) {
		const struct moetrace_selection selection = selection_of(hot, 0, HOT_N_REQUESTS);

		hot->api->select_experts(passes[i], &selection);
		hot->api->pass_end(passes[i]);
	}
}

void hot_go(struct hot *hot)
{
	uint32_t i;

	switch (hot->scenario) {
	case HOT_FORMS:
		forms(hot);
		break;
	case HOT_LARGE:
		whole_pass(hot, HOT_MAX_ROWS);
		break;
	case HOT_MISUSE:
		misuse(hot);
		break;
	case HOT_NO_RING:
		no_ring(hot);
		break;
	case HOT_RING_FULL:
		for (i = 0; i < 3; i++)
			whole_pass(hot, 20000);
		break;
	case HOT_DECODE:
	case HOT_IDLE:
	case HOT_NULL:
		for (i = 0; i < 200; i++)
			whole_pass(hot, HOT_N_REQUESTS);
		break;
	default:
		hot_kinds_go(hot);
	}
}

static void check_status(struct hot *hot)
{
	struct moetrace_session_status status;

	MOETRACE_INIT(&status);
	ck_assert_int_eq(hot->api->flush(hot->session), MOETRACE_OK);
	ck_assert_int_eq(hot->api->status(hot->session, &status), MOETRACE_OK);
	switch (hot->scenario) {
	case HOT_MISUSE:
		ck_assert_uint_ge(status.misuse, 6);
		ck_assert_uint_eq(hot->n_begun, 1);
		break;
	case HOT_NO_RING:
		ck_assert_uint_eq(hot->n_begun, 2);
		ck_assert_uint_eq(status.dropped_passes, 4);
		break;
	case HOT_RING_FULL:
		ck_assert_uint_gt(status.dropped_passes + status.dropped_layers, 0);
		ck_assert_uint_gt(status.dropped_bytes, 0);
		break;
	case HOT_IDLE:
		ck_assert_uint_eq(hot->n_begun, 0);
		break;
	default:
		if (hot->scenario > HOT_NULL) {
			hot_kinds_check(hot, &status);
			return;
		}
		ck_assert_uint_eq(hot->n_null, 0);
		ck_assert_uint_eq(status.misuse, 0);
		ck_assert_uint_eq(status.dropped_passes + status.dropped_layers, 0);
	}
	ck_assert_uint_eq(status.recorded_passes, hot->n_begun);
}

void hot_finish(struct hot *hot)
{
	if (hot->scenario == HOT_NULL) {
		ck_assert_uint_eq(hot->n_begun, 0);
	} else {
		if (hot->scenario > HOT_NULL)
			hot_kinds_finish(hot);
		check_status(hot);
		ck_assert_int_eq(hot->api->session_close(hot->session), MOETRACE_OK);
		agree_check_file(hot->path);
	}
	free(hot->ids);
	free(hot->weights);
	free(hot);
}
