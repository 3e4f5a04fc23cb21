/* SPDX-License-Identifier: MIT */
/*
 * The hot path in recordings that do not keep everything, with what travels unnarrowed or is told
 * beside the ids, and while others call the recorder or measure it.
 */
#include "tests/fault/support/hot.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/control/support/line_peer.h"
#include "tests/unit/support/suite.h"

enum { N_PASSES = 60, N_CANDIDATES = 4, MEASURED_NS = 150000000, STEP_NS = 500000 };
#define MAX_MEASURED_NS UINT64_C(30000000000)

void hot_kinds_recording(const struct hot *hot, struct moetrace_recording_opts *ret_opts)
{
	MOETRACE_INIT(ret_opts);
	switch (hot->scenario) {
	case HOT_PER_PASS:
		ret_opts->mode = MOETRACE_MODE_PER_PASS;
		break;
	case HOT_STAT:
		ret_opts->mode = MOETRACE_MODE_STAT;
		break;
	case HOT_SAMPLED:
		ret_opts->sample_every_n_passes = 3;
		ret_opts->sample_every_n_requests = 2;
		break;
	case HOT_FLIGHT:
		ret_opts->flight_bytes = 1 << 20;
		break;
	default:
		break;
	}
}

static void set_map(struct hot *hot)
{
	int32_t slots[HOT_N_LAYERS * HOT_N_EXPERTS];
	struct moetrace_expert_map map;
	int32_t i;

	for (i = 0; i < HOT_N_LAYERS * HOT_N_EXPERTS; i++)
		slots[i] = (HOT_N_EXPERTS - 1) - i % HOT_N_EXPERTS;
	MOETRACE_INIT(&map);
	map.n_slots = HOT_N_EXPERTS;
	map.slot_experts = slots;
	ck_assert_int_eq(hot->api->expert_map_set(hot->session, hot->model, &map, NULL),
			 MOETRACE_OK);
}

/* What a scheduler says while its passes run; each takes the recorder's lock, in its own thread. */
static void *beside_main(void *argument)
{
	static const uint8_t accepted[1] = {1};
	struct hot *hot = argument;
	struct moetrace_reuse reuse;
	uint32_t i = 0;

	MOETRACE_INIT(&reuse);
	reuse.first_position = 1u << 30;
	reuse.n_positions = 4;
	while (!hot->is_over) {
		reuse.first_position += 8;
		reuse.source_request = hot->slices[i % 8].request;
		hot->api->request_reuse(hot->session, hot->slices[8 + i % 8].request, &reuse);
		hot->api->request_retract(hot->session, hot->slices[16 + i % 8].request);
		hot->api->pass_accept(hot->session, hot->number, 0, accepted, 1);
		suite_sleep_ms(1);
		i++;
	}
	return NULL;
}

void hot_kinds_prepare(struct hot *hot)
{
	if (hot->scenario == HOT_WIDE)
		set_map(hot);
	if (hot->scenario == HOT_BESIDE)
		ck_assert_int_eq(pthread_create(&hot->beside, NULL, beside_main, hot), 0);
	if (hot->scenario != HOT_MEASURED)
		return;
	hot->peer = line_peer_connect(getenv("MOETRACE_SOCKET_DIR"));
	ck_assert_ptr_nonnull(
		strstr(line_peer_say(hot->peer, "overhead pairs=1000 block_ms=20"), "start_ns "));
}

static void wide_pass(struct hot *hot)
{
	struct moetrace_pass *pass = hot_begin(hot);
	struct moetrace_selection selection = hot_selection(hot, 0);
	struct moetrace_expert_counts counts;
	struct moetrace_dispatch_info dispatch;

	selection.order = MOETRACE_ORDER_UNORDERED;
	hot->api->select_experts(pass, &selection);
	selection.layer_index = 1;
	selection.id_space = MOETRACE_ID_PHYSICAL;
	hot->api->select_experts(pass, &selection);
	selection = hot_selection(hot, 2);
	selection.order = MOETRACE_ORDER_SELECTION;
	selection.n_candidates = N_CANDIDATES;
	selection.candidate_ids = hot->ids;
	selection.candidate_scores = hot->weights;
	selection.candidate_score_type = MOETRACE_TYPE_F32;
	hot->api->select_experts(pass, &selection);
	MOETRACE_INIT(&counts);
	counts.layer_index = 3;
	counts.count_type = MOETRACE_TYPE_I64;
	counts.counts = hot->ids;
	counts.n_counts = HOT_N_EXPERTS;
	hot->api->expert_load(pass, &counts);
	MOETRACE_INIT(&dispatch);
	dispatch.layer_index = 3;
	dispatch.count_type = MOETRACE_TYPE_I64;
	dispatch.n_ranks = 8;
	dispatch.rank_tokens = hot->ids;
	hot->api->dispatch(pass, &dispatch);
	hot->api->pass_end(pass);
}

static void region_passes(struct hot *hot)
{
	hot->api->region_disable(hot->session);
	hot_whole_pass(hot);
	hot->api->region_disable(hot->session);
	hot->api->region_enable(hot->session);
	hot_whole_pass(hot);
	hot->api->region_enable(hot->session);
	hot_whole_pass(hot);
}

void hot_kinds_go(struct hot *hot)
{
	const uint64_t start_ns = hot->api->clock_ns();
	uint64_t next_ns = start_ns;
	uint32_t i;

	for (i = 0; hot->scenario != HOT_MEASURED && i < N_PASSES; i++) {
		if (hot->scenario == HOT_WIDE)
			wide_pass(hot);
		else if (hot->scenario == HOT_REGION)
			region_passes(hot);
		else
			hot_whole_pass(hot);
	}
	/*
	 * Blocks alternate by the clock, which is also what can be waited for here: until there were
	 * some of both kinds, where the machine stands still for as long as many of them.
	 */
	while (hot->scenario == HOT_MEASURED && next_ns < start_ns + MAX_MEASURED_NS &&
	       (next_ns < start_ns + MEASURED_NS || !hot->n_begun || !hot->n_null)) {
		hot_whole_pass(hot);
		next_ns = hot->api->clock_ns() + STEP_NS;
		while (hot->api->clock_ns() < next_ns)
			continue;
	}
}

void hot_kinds_finish(struct hot *hot)
{
	hot->is_over = true;
	if (hot->scenario == HOT_BESIDE)
		ck_assert_int_eq(pthread_join(hot->beside, NULL), 0);
	if (hot->scenario == HOT_MEASURED)
		close(hot->peer);
}

void hot_kinds_check(struct hot *hot, const struct moetrace_session_status *status)
{
	uint32_t n_left_out = 0;

	if (hot->scenario == HOT_SAMPLED)
		n_left_out = N_PASSES - N_PASSES / 3;
	if (hot->scenario == HOT_REGION)
		n_left_out = 2 * N_PASSES;
	if (hot->scenario == HOT_MEASURED) {
		ck_assert_uint_gt(hot->n_begun, 0);
		ck_assert_uint_gt(hot->n_null, status->dropped_passes);
		return;
	}
	ck_assert_uint_eq(hot->n_null, n_left_out);
	ck_assert_uint_eq(status->dropped_passes + status->dropped_layers, 0);
	if (hot->scenario == HOT_BESIDE)
		return;
	ck_assert_uint_eq(status->misuse, 0);
	if (hot->scenario != HOT_FLIGHT)
		ck_assert_uint_eq(status->recorded_passes, hot->n_begun);
}
