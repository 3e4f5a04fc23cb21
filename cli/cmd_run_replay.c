/* SPDX-License-Identifier: MIT */
/*
 * `run --routing replay:FILE`: the experts of a recording, brought into the order of the workload.
 * A request replays the recorded one of its external id; where the recording has none of the
 * workload's ids, requests are taken in the order in which they began. Only positions that were
 * computed in every layer count, and of two computations the later one.
 */
#include "cli/cmd_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An id that was not recorded. */
#define MISSING UINT16_MAX

struct replay {
	const struct mt_run_options *options;
	const struct mtk_route_config *route;
	uint32_t n_layers;
	const struct mtk_workload *workload;
	struct mt_trace trace;
	int64_t recording_id;
	int64_t model_id;
	struct mtk_replay *result;
};

static const char *path_of(const struct replay *replay)
{
	return replay->options->replay_path;
}

/* The recording is the last one, the model its first that is no draft. */
static int recording_choose(struct replay *replay)
{
	int exit_code = mt_trace_int(&replay->trace, "SELECT max(recording_id) FROM recording",
				     &replay->recording_id);

	if (exit_code == MT_EXIT_OK)
		exit_code = mt_trace_int(&replay->trace,
					 "SELECT min(model_id) FROM model WHERE kind = 'target'",
					 &replay->model_id);
	if (exit_code != MT_EXIT_OK)
		return exit_code;
	if (replay->recording_id > 0 && replay->model_id > 0)
		return MT_EXIT_OK;
	mt_error("%s holds no recording of a model, so there is nothing to replay",
		 path_of(replay));
	return MT_EXIT_FAILED;
}

static int layer_check(const struct replay *replay, uint32_t index, sqlite3_stmt *stmt)
{
	const struct {
		const char *name;
		int64_t recorded;
		uint32_t wanted;
	} fields[] = {
		{"n_experts", sqlite3_column_int64(stmt, 0), replay->route->n_experts},
		{"n_zero_experts", sqlite3_column_int64(stmt, 1), replay->route->n_zero_experts},
		{"top_k", sqlite3_column_int64(stmt, 2), replay->route->top_k},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].recorded == fields[i].wanted)
			continue;
		mt_error("%s: %s of its layer %u is %" PRId64 ", that of this run %u; replay a "
			 "recording of the same model",
			 path_of(replay), fields[i].name, index, fields[i].recorded,
			 fields[i].wanted);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

static int layers_check(const struct replay *replay)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		&replay->trace, "SELECT n_experts, n_zero_experts, top_k - n_shared_slots "
				"FROM layer WHERE model_id = ?1 ORDER BY moe_ordinal");
	int exit_code = MT_EXIT_OK;
	uint32_t n = 0;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, replay->model_id);
	while (n < replay->n_layers && exit_code == MT_EXIT_OK && sqlite3_step(stmt) == SQLITE_ROW)
		exit_code = layer_check(replay, n++, stmt);
	if (sqlite3_finalize(stmt) != SQLITE_OK)
		return mt_trace_error(&replay->trace);
	if (exit_code == MT_EXIT_OK && n < replay->n_layers) {
		mt_error("%s: n_layers is %u, this run has %u layers with experts; lower --layers, "
			 "or replay a recording of as many",
			 path_of(replay), n, replay->n_layers);
		return MT_EXIT_FAILED;
	}
	return exit_code;
}

/* Bind the recording and @id, and read one request_id; 0: there is none. */
static int64_t request_find(const struct replay *replay, sqlite3_stmt *stmt, const char *id,
			    uint32_t index)
{
	int64_t request_id = 0;

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, replay->recording_id);
	if (id)
		sqlite3_bind_text(stmt, 2, id, -1, SQLITE_STATIC);
	else
		sqlite3_bind_int64(stmt, 2, index);
	if (sqlite3_step(stmt) == SQLITE_ROW)
		request_id = sqlite3_column_int64(stmt, 0);
	return request_id;
}

/* The recorded request of each of the workload's; [n_requests], to be freed. */
static int requests_match(const struct replay *replay, int64_t *request_ids)
{
	const struct mtk_workload *workload = replay->workload;
	sqlite3_stmt *by_id = mt_trace_prepare(
		&replay->trace, "SELECT request_id FROM request WHERE recording_id = ?1 "
				"AND external_id = ?2 ORDER BY request_id LIMIT 1");
	sqlite3_stmt *by_place = mt_trace_prepare(
		&replay->trace, "SELECT request_id FROM request WHERE recording_id = ?1 "
				"ORDER BY request_id LIMIT 1 OFFSET ?2");
	int exit_code = by_id && by_place ? MT_EXIT_OK : MT_EXIT_FAILED;
	size_t n_found = 0;

	for (size_t i = 0; exit_code == MT_EXIT_OK && i < workload->n_requests; i++) {
		request_ids[i] = request_find(replay, by_id, workload->requests[i].id, 0);
		n_found += request_ids[i] != 0;
	}
	for (size_t i = 0; exit_code == MT_EXIT_OK && n_found == 0 && i < workload->n_requests; i++)
		request_ids[i] = request_find(replay, by_place, NULL, (uint32_t)i);
	for (size_t i = 0; exit_code == MT_EXIT_OK && i < workload->n_requests; i++) {
		if (request_ids[i] != 0)
			continue;
		mt_error("%s has no request %.100s; replay a recording of this workload",
			 path_of(replay), workload->requests[i].id);
		exit_code = MT_EXIT_FAILED;
	}
	sqlite3_finalize(by_id);
	sqlite3_finalize(by_place);
	return exit_code;
}

/* The positions that a request of the workload may take. */
static uint32_t positions_of(const struct replay *replay,
			     const struct mtk_workload_request *request)
{
	const uint32_t n_context = replay->options->n_context;
	uint64_t n_new = request->max_new_tokens < n_context ? request->max_new_tokens : n_context;
	uint64_t n = request->n_prompt_bytes + n_new - 1;

	return n < n_context ? (uint32_t)n : n_context;
}

/* Put an assignment in its place; what this run does not need is left out. */
static int assignment_take(const struct replay *replay, struct mtk_replay_request *request,
			   uint32_t n_wanted, sqlite3_stmt *stmt)
{
	const int64_t position = sqlite3_column_int64(stmt, 0);
	const int64_t layer = sqlite3_column_int64(stmt, 1);
	const int64_t topk_rank = sqlite3_column_int64(stmt, 2);
	const int64_t expert = sqlite3_column_int64(stmt, 3);

	if (position < 0 || position >= n_wanted || layer < 0 || layer >= replay->n_layers ||
	    topk_rank < 0 || topk_rank >= replay->route->top_k)
		return MT_EXIT_OK;
	if (expert < 0 || expert >= mtk_route_columns(replay->route)) {
		mt_error("%s: expert %" PRId64 " at position %" PRId64 " is out of range",
			 path_of(replay), expert, position);
		return MT_EXIT_FAILED;
	}
	request->ids[((size_t)position * replay->n_layers + (size_t)layer) * replay->route->top_k +
		     (size_t)topk_rank] = (uint16_t)expert;
	return MT_EXIT_OK;
}

/* Whether a position has ids in all layers, and no id twice in one. */
static bool position_is_whole(const struct replay *replay, const uint16_t *ids)
{
	const uint32_t top_k = replay->route->top_k;

	for (uint32_t layer = 0; layer < replay->n_layers; layer++, ids += top_k)
		for (uint32_t j = 0; j < top_k; j++) {
			if (ids[j] == MISSING)
				return false;
			for (uint32_t i = 0; i < j; i++)
				if (ids[i] == ids[j])
					return false;
		}
	return true;
}

static int request_read(const struct replay *replay, sqlite3_stmt *stmt, int64_t request_id,
			uint32_t n_wanted, struct mtk_replay_request *request)
{
	const size_t n_ids = (size_t)replay->n_layers * replay->route->top_k;
	int exit_code = MT_EXIT_OK;
	int rc = SQLITE_ROW;

	request->ids = malloc(n_wanted * n_ids * sizeof(*request->ids));
	if (!request->ids) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	memset(request->ids, 0xff, n_wanted * n_ids * sizeof(*request->ids));
	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, request_id);
	sqlite3_bind_int64(stmt, 2, replay->model_id);
	while (exit_code == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		exit_code = assignment_take(replay, request, n_wanted, stmt);
	if (exit_code == MT_EXIT_OK && rc != SQLITE_DONE)
		return mt_trace_error(&replay->trace);
	while (request->n_positions < n_wanted &&
	       position_is_whole(replay, request->ids + request->n_positions * n_ids))
		request->n_positions++;
	return exit_code;
}

static int requests_read(const struct replay *replay, const int64_t *request_ids)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		&replay->trace,
		"SELECT t.position, l.moe_ordinal, t.topk_rank, t.expert FROM moe_topk AS t "
		"JOIN layer AS l USING (layer_id) WHERE t.request_id = ?1 AND t.model_id = ?2 "
		"AND t.state = 'computed' ORDER BY t.attempt");
	int exit_code = stmt ? MT_EXIT_OK : MT_EXIT_FAILED;

	for (uint32_t i = 0; exit_code == MT_EXIT_OK && i < replay->result->n_requests; i++)
		exit_code = request_read(replay, stmt, request_ids[i],
					 positions_of(replay, &replay->workload->requests[i]),
					 &replay->result->requests[i]);
	sqlite3_finalize(stmt);
	return exit_code;
}

static int result_make(struct replay *replay)
{
	const size_t n_requests = replay->workload->n_requests;
	struct mtk_replay *result = calloc(1, sizeof(*result));

	replay->result = result;
	if (!result)
		return MT_EXIT_FAILED;
	result->n_layers = replay->n_layers;
	result->top_k = replay->route->top_k;
	result->n_requests = (uint32_t)n_requests;
	result->requests = calloc(n_requests, sizeof(*result->requests));
	return result->requests ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static int all_read(struct replay *replay)
{
	int64_t *request_ids = calloc(replay->workload->n_requests, sizeof(*request_ids));
	int exit_code = MT_EXIT_FAILED;

	if (!request_ids || result_make(replay) != MT_EXIT_OK) {
		mt_error("out of memory");
		goto end;
	}
	exit_code = recording_choose(replay);
	if (exit_code == MT_EXIT_OK)
		exit_code = layers_check(replay);
	if (exit_code == MT_EXIT_OK)
		exit_code = requests_match(replay, request_ids);
	if (exit_code == MT_EXIT_OK)
		exit_code = requests_read(replay, request_ids);
end:
	free(request_ids);
	return exit_code;
}

int mt_run_replay_read(const struct mt_run_options *options, const struct mtk_route_config *route,
		       uint32_t n_layers, const struct mtk_workload *workload,
		       struct mtk_replay **ret_replay)
{
	struct replay replay = {
		.options = options,
		.route = route,
		.n_layers = n_layers,
		.workload = workload,
	};
	int exit_code = mt_trace_open(options->replay_path, &replay.trace);

	if (exit_code != MT_EXIT_OK)
		return exit_code;
	exit_code = all_read(&replay);
	mt_trace_close(&replay.trace);
	if (exit_code != MT_EXIT_OK) {
		mtk_replay_destroy(replay.result);
		return exit_code;
	}
	*ret_replay = replay.result;
	return MT_EXIT_OK;
}
