/* SPDX-License-Identifier: MIT */
/*
 * What the passes of an attempt computed, and the verdict. Only target models count, each for
 * itself. Invariant: computed sets only hold positions of passes in which every layer was
 * stored, so that a full set is a complete request.
 */
#include "libtrace/ledger.h"

#include <stdlib.h>
#include <string.h>

/* ---- attempts ---- */

struct mt_attempt *mt_attempt_find(struct mt_request *request, uint32_t attempt)
{
	uint32_t first = request->n_attempts ? request->attempts[0].attempt : 0;

	return attempt >= first && attempt - first < request->n_attempts ?
		       &request->attempts[attempt - first] :
		       NULL;
}

int mt_attempt_open(struct mt_request *request, uint64_t n_lost_passes)
{
	struct mt_attempt *attempts;

	attempts = realloc(request->attempts, (request->n_attempts + 1ul) * sizeof(*attempts));
	if (!attempts)
		return MOETRACE_E_NOMEM;
	request->attempts = attempts;
	attempts[request->n_attempts++] = (struct mt_attempt){
		.attempt = request->attempt,
		.begin_ns = request->attempt_begin_ns,
		.n_lost_passes = n_lost_passes,
	};
	return MOETRACE_OK;
}

void mt_attempts_free_models(struct mt_request *request)
{
	for (uint32_t i = 0; i < request->n_attempts; i++) {
		struct mt_attempt *attempt = &request->attempts[i];

		while (attempt->models) {
			struct mt_ledger_model *model = attempt->models;

			attempt->models = model->next;
			mt_coverage_free(&model->computed);
			mt_coverage_free(&model->seen);
			mt_coverage_free(&model->given_up);
			free(model);
		}
	}
}

void mt_attempts_free(struct mt_request *request)
{
	mt_attempts_free_models(request);
	for (uint32_t i = 0; i < request->n_attempts; i++)
		free(request->attempts[i].links);
	free(request->attempts);
	request->attempts = NULL;
	request->n_attempts = 0;
}

int mt_attempt_overlaps(const struct mt_attempt *attempt, uint64_t begin, uint64_t end)
{
	for (const struct mt_ledger_model *model = attempt->models; model; model = model->next) {
		uint64_t run_end;

		if (mt_coverage_run(&model->seen, begin, end, &run_end) || run_end < end)
			return 1;
	}
	return 0;
}

int mt_attempt_run(const struct mt_attempt *attempt, uint64_t begin, uint64_t end,
		   uint64_t *ret_end, uint32_t *ret_flaws)
{
	uint64_t run_end;
	uint64_t gap_end = end;

	for (const struct mt_ledger_model *model = attempt->models; model; model = model->next) {
		if (mt_coverage_run(&model->seen, begin, end, &run_end)) {
			*ret_flaws = mt_coverage_run(&model->computed, begin, run_end, ret_end) ?
					     0 :
					     attempt->reasons;
			return 1;
		}
		if (run_end < gap_end)
			gap_end = run_end;
	}
	*ret_end = gap_end;
	return 0;
}

/* ---- slices ---- */

struct mt_ledger_model *mt_attempt_model(struct mt_attempt *attempt, uint32_t model_id)
{
	struct mt_ledger_model *model = attempt->models;

	while (model && model->model_id != model_id)
		model = model->next;
	if (model)
		return model;
	model = calloc(1, sizeof(*model));
	if (!model)
		return NULL;
	model->model_id = model_id;
	model->next = attempt->models;
	attempt->models = model;
	return model;
}

static int links_overlap(const struct mt_attempt *attempt, uint64_t begin, uint64_t end)
{
	size_t i = mt_reuse_find(attempt, begin);

	return i < attempt->n_links && attempt->links[i].begin < end;
}

/* A run of consecutive positions that a target model computed. */
static int add_run(struct mt_ledger *ledger, struct mt_request *request,
		   struct mt_attempt *attempt, const struct mt_ledger_slice *slice,
		   uint64_t begin, uint64_t end)
{
	struct mt_ledger_model *model = mt_attempt_model(attempt, slice->model_id);
	int is_repeated = links_overlap(attempt, begin, end);
	int result;

	if (!model || mt_coverage_add(&model->seen, begin, end) < 0)
		return MOETRACE_E_NOMEM;
	if (end > attempt->seen_end)
		attempt->seen_end = end;
	if (!slice->pass_reasons) {
		result = mt_coverage_add(&model->computed, begin, end);
		if (result < 0)
			return MOETRACE_E_NOMEM;
		is_repeated |= result;
	}
	if (is_repeated) {
		request->reasons |= MT_REASON_REPEATED;
		ledger->n_repeated++;
	}
	return MOETRACE_OK;
}

static uint64_t position_of(const struct mt_ledger_slice *slice, uint32_t row)
{
	return slice->positions ? slice->positions[row] : (uint64_t)slice->first_position + row;
}

static int add_rows(struct mt_ledger *ledger, struct mt_request *request,
		    struct mt_attempt *attempt, const struct mt_ledger_slice *slice)
{
	uint64_t begin = 0;
	uint64_t end = 0;
	int status = MOETRACE_OK;

	if (!slice->positions && !slice->accepted)
		return add_run(ledger, request, attempt, slice, slice->first_position,
			       (uint64_t)slice->first_position + slice->n_rows);
	for (uint32_t i = 0; !status && i < slice->n_rows; i++) {
		uint64_t position = position_of(slice, i);

		if (slice->accepted && !slice->accepted[i])
			continue;
		if (end == position && begin < end) {
			end++;
			continue;
		}
		if (begin < end)
			status = add_run(ledger, request, attempt, slice, begin, end);
		begin = position;
		end = position + 1;
	}
	return !status && begin < end ? add_run(ledger, request, attempt, slice, begin, end) :
					status;
}

/* What is unended of a pass is lost to its requests. */
static uint32_t reasons_of_pass(uint32_t reasons)
{
	return reasons & MT_REASON_UNENDED ?
		       (reasons & ~(uint32_t)MT_REASON_UNENDED) | MT_REASON_LOST :
		       reasons;
}

int mt_ledger_slice(struct mt_ledger *ledger, struct mt_request *request,
		    const struct mt_ledger_slice *slice)
{
	struct mt_attempt *attempt = mt_attempt_find(request, slice->attempt);

	if (!attempt || slice->n_rows == 0)
		return MOETRACE_OK;
	if (!attempt->first_pass_id)
		attempt->first_pass_id = slice->pass_id;
	if (slice->phase == MOETRACE_PHASE_VERIFY && !slice->accepted)
		return mt_ledger_wait(ledger, request, slice);
	if (!slice->is_target || slice->phase == MOETRACE_PHASE_DRAFT)
		return MOETRACE_OK;
	attempt->reasons |= reasons_of_pass(slice->pass_reasons);
	return add_rows(ledger, request, attempt, slice);
}

/* ---- the verdict ---- */

/*
 * Positions that the attempt has of a model (NULL: that computed none of it): in every layer,
 * or at all, with what is reused.
 */
static int gather(const struct mt_attempt *attempt, const struct mt_ledger_model *model,
		  int is_whole, struct mt_coverage *ret_coverage)
{
	int status = MOETRACE_OK;

	memset(ret_coverage, 0, sizeof(*ret_coverage));
	if (model)
		status = mt_coverage_merge(ret_coverage, is_whole ? &model->computed : &model->seen);
	for (size_t i = 0; !status && i < attempt->n_links; i++) {
		const struct mt_link *link = &attempt->links[i];

		if (is_whole && (link->source_request_id == MT_NULL || link->flaws))
			continue;
		if (mt_coverage_add(ret_coverage, link->begin, link->end) < 0)
			status = MOETRACE_E_NOMEM;
	}
	return status;
}

/* Does the slice of a model (NULL: of any) still wait? */
static int is_waiting(const struct mt_waiting *waiting, const struct mt_attempt *attempt,
		      const struct mt_ledger_model *model)
{
	return waiting->is_target && waiting->attempt == attempt->attempt &&
	       (!model || waiting->model_id == model->model_id);
}

/* What the judgement of a request is about. */
struct judged {
	const struct mt_ledger *ledger;
	const struct mt_request *request;
	const struct mt_attempt *attempt; /* the last */
	uint64_t n_positions;             /* that have to be there */
};

/* Why positions are in no pass at all. */
static uint32_t hole_reasons(const struct judged *judged, const struct mt_coverage *seen)
{
	uint64_t begin = 0;
	uint32_t reasons = 0;

	if (judged->attempt->begin_ns < judged->ledger->recording_start_ns &&
	    !mt_coverage_has(seen, 0, 1)) {
		reasons = MT_REASON_BEGAN_BEFORE;
		begin = seen->n_intervals ? seen->intervals[0].begin : judged->n_positions;
	}
	if (begin < judged->n_positions && !mt_coverage_has(seen, begin, judged->n_positions))
		reasons |= judged->request->end_lost_passes != judged->attempt->n_lost_passes ?
				   MT_REASON_LOST :
				   MT_REASON_MISSING;
	return reasons;
}

/*
 * Does the request rely on one of these positions, which lie in none of its other passes? Once
 * any pass has computed a position, what verify rows did of it is of no account.
 */
static int relies_on(const struct judged *judged, const struct mt_coverage *seen,
		     const struct mt_coverage *unresolved)
{
	for (size_t i = 0; i < unresolved->n_intervals; i++) {
		uint64_t begin = unresolved->intervals[i].begin;
		uint64_t end = unresolved->intervals[i].end;

		if (!mt_coverage_has(seen, begin, end < judged->n_positions ? end :
									      judged->n_positions))
			return 1;
	}
	return 0;
}

/* Reasons of verify rows that nobody reported; their positions are added to @unresolved. */
static int judge_waiting(const struct judged *judged, const struct mt_ledger_model *model,
			 const struct mt_coverage *seen, struct mt_coverage *unresolved,
			 uint32_t *reasons)
{
	struct mt_coverage rows = { NULL, 0, 0 };
	int status = model ? mt_coverage_merge(unresolved, &model->given_up) : MOETRACE_OK;

	if (relies_on(judged, seen, unresolved))
		*reasons |= MT_REASON_UNRESOLVED;
	for (const struct mt_waiting *waiting = judged->request->waiting; !status && waiting;
	     waiting = waiting->next) {
		if (!is_waiting(waiting, judged->attempt, model))
			continue;
		status = mt_waiting_positions(waiting, &rows);
		if (!status && relies_on(judged, seen, &rows))
			*reasons |= MT_REASON_UNRESOLVED | reasons_of_pass(waiting->pass_reasons);
		if (!status)
			status = mt_coverage_merge(unresolved, &rows);
		rows.n_intervals = 0;
	}
	mt_coverage_free(&rows);
	return status;
}

/* Why the last attempt is not complete for a model; 0: it is. */
static int judge_model(const struct judged *judged, const struct mt_ledger_model *model,
		       uint32_t *reasons)
{
	struct mt_coverage whole;
	struct mt_coverage seen = { NULL, 0, 0 };
	struct mt_coverage unresolved = { NULL, 0, 0 };
	int status = gather(judged->attempt, model, 1, &whole);

	if (status || judged->n_positions == 0 ||
	    mt_coverage_has(&whole, 0, judged->n_positions))
		goto done;
	status = gather(judged->attempt, model, 0, &seen);
	if (!status)
		status = judge_waiting(judged, model, &seen, &unresolved, reasons);
	if (!status)
		status = mt_coverage_merge(&seen, &unresolved);
	if (status)
		goto done;
	*reasons |= hole_reasons(judged, &seen) | judged->attempt->reasons;
	for (size_t i = 0; i < judged->attempt->n_links; i++) {
		const struct mt_link *link = &judged->attempt->links[i];

		*reasons |= link->source_request_id == MT_NULL ? MT_REASON_REUSE_UNKNOWN :
								 link->flaws;
	}
done:
	mt_coverage_free(&whole);
	mt_coverage_free(&seen);
	mt_coverage_free(&unresolved);
	return status;
}

/* Is it the last attempt that this model saw? A model is judged once. */
static int is_last_of(const struct mt_request *request, uint32_t attempt, uint32_t model_id)
{
	for (uint32_t i = attempt + 1; i < request->n_attempts; i++)
		for (const struct mt_ledger_model *model = request->attempts[i].models; model;
		     model = model->next)
			if (model->model_id == model_id)
				return 0;
	return 1;
}

int mt_attempt_judge(struct mt_ledger *ledger, struct mt_request *request,
		     uint32_t *ret_reasons, uint64_t *ret_positions)
{
	uint32_t last = request->n_attempts - 1;
	struct judged judged = {
		.ledger = ledger,
		.request = request,
		.attempt = &request->attempts[last],
		.n_positions = request->end_positions,
	};
	uint32_t reasons = request->reasons;
	uint64_t prompt = request->end_state == MOETRACE_REQUEST_FINISHED &&
					  request->prompt_positions != MT_NULL ?
				  (uint64_t)request->prompt_positions :
				  0;
	int has_model = 0;
	int status = MOETRACE_OK;

	if (request->end_positions == MOETRACE_POSITIONS_UNKNOWN) {
		const struct mt_attempt *attempt = judged.attempt;

		judged.n_positions = attempt->seen_end;
		if (attempt->n_links && attempt->links[attempt->n_links - 1].end > attempt->seen_end)
			judged.n_positions = attempt->links[attempt->n_links - 1].end;
		if (judged.n_positions < prompt)
			judged.n_positions = prompt;
		if (request->end_lost_passes != attempt->n_lost_passes)
			reasons |= MT_REASON_LOST;
	}
	*ret_positions = judged.n_positions;
	/* A finished request has computed its prompt, whatever its caller says. */
	if (judged.n_positions < prompt)
		judged.n_positions = prompt;
	for (uint32_t i = 0; i <= last; i++) {
		const struct mt_ledger_model *model = request->attempts[i].models;

		for (; !status && model; model = model->next) {
			struct mt_ledger_model none = { .model_id = model->model_id };

			if (!is_last_of(request, i, model->model_id))
				continue;
			has_model = 1;
			status = judge_model(&judged, i == last ? model : &none, &reasons);
		}
	}
	if (!status && !has_model)
		status = judge_model(&judged, NULL, &reasons);
	*ret_reasons = reasons;
	return status;
}
