/* SPDX-License-Identifier: MIT */
/*
 * Verify slices whose acceptance is not known yet, by the number of their pass. A request has
 * at most MT_LEDGER_MAX_WAITING of them; the oldest is given up first and stays unresolved:
 * what it would cost to keep all of a runtime that never reports would have no bound.
 */
#include "libtrace/ledger.h"

#include <stdlib.h>
#include <string.h>

static struct mt_waiting **bucket(struct mt_ledger *ledger, uint64_t number)
{
	return &ledger->waiting[(number ^ number >> 10) & (MT_LEDGER_WAITING_BUCKETS - 1)];
}

/* Take out of its bucket and free; the caller took it out of its request's list. */
static void drop(struct mt_ledger *ledger, struct mt_waiting *waiting)
{
	struct mt_waiting **at = bucket(ledger, waiting->number);

	while (*at != waiting)
		at = &(*at)->next_number;
	*at = waiting->next_number;
	free(waiting->positions);
	free(waiting);
}

void mt_ledger_forget_waiting(struct mt_ledger *ledger, struct mt_request *request)
{
	while (request->waiting) {
		struct mt_waiting *waiting = request->waiting;

		request->waiting = waiting->next;
		drop(ledger, waiting);
	}
	request->n_waiting = 0;
}

static void unlink_waiting(struct mt_ledger *ledger, struct mt_waiting *waiting)
{
	struct mt_request *request = waiting->request;
	struct mt_waiting **at = &request->waiting;

	while (*at != waiting)
		at = &(*at)->next;
	*at = waiting->next;
	request->n_waiting--;
	drop(ledger, waiting);
}

int mt_waiting_positions(const struct mt_waiting *waiting, struct mt_coverage *coverage)
{
	for (uint32_t i = 0; i < waiting->n_rows; i++) {
		uint64_t position = waiting->positions ? waiting->positions[i] :
							 (uint64_t)waiting->first_position + i;

		if (mt_coverage_add(coverage, position, position + 1) < 0)
			return MOETRACE_E_NOMEM;
	}
	return MOETRACE_OK;
}

/* Its rows stay unresolved; of them the attempt knows the positions. */
static int give_up_oldest(struct mt_ledger *ledger, struct mt_request *request)
{
	struct mt_waiting *oldest = request->waiting;
	struct mt_ledger_model *model;
	struct mt_attempt *attempt;
	int status = MOETRACE_OK;

	while (oldest->next)
		oldest = oldest->next;
	attempt = mt_attempt_find(request, oldest->attempt);
	if (attempt && oldest->is_target) {
		model = mt_attempt_model(attempt, oldest->model_id);
		status = model ? mt_waiting_positions(oldest, &model->given_up) :
				 MOETRACE_E_NOMEM;
	}
	unlink_waiting(ledger, oldest);
	return status;
}

int mt_ledger_wait(struct mt_ledger *ledger, struct mt_request *request,
		   const struct mt_ledger_slice *slice)
{
	struct mt_waiting *waiting = calloc(1, sizeof(*waiting));

	if (!waiting)
		return MOETRACE_E_NOMEM;
	if (slice->positions) {
		waiting->positions = malloc(slice->n_rows * sizeof(*waiting->positions));
		if (!waiting->positions) {
			free(waiting);
			return MOETRACE_E_NOMEM;
		}
		memcpy(waiting->positions, slice->positions,
		       slice->n_rows * sizeof(*waiting->positions));
	}
	if (request->n_waiting == MT_LEDGER_MAX_WAITING && give_up_oldest(ledger, request)) {
		free(waiting->positions);
		free(waiting);
		return MOETRACE_E_NOMEM;
	}
	waiting->request = request;
	waiting->number = slice->number;
	waiting->pass_id = slice->pass_id;
	waiting->slice = slice->slice;
	waiting->attempt = slice->attempt;
	waiting->model_id = slice->model_id;
	waiting->is_target = slice->is_target;
	waiting->pass_reasons = slice->pass_reasons;
	waiting->first_position = slice->first_position;
	waiting->n_rows = slice->n_rows;
	waiting->next = request->waiting;
	request->waiting = waiting;
	request->n_waiting++;
	waiting->next_number = *bucket(ledger, waiting->number);
	*bucket(ledger, waiting->number) = waiting;
	return MOETRACE_OK;
}

int mt_ledger_accept(struct mt_ledger *ledger, uint64_t number, uint32_t slice,
		     const uint8_t *accepted, uint32_t n_rows, int64_t *ret_pass_id)
{
	struct mt_waiting *waiting = *bucket(ledger, number);
	struct mt_ledger_slice rows;
	int status;

	while (waiting && (waiting->number != number || waiting->slice != slice))
		waiting = waiting->next_number;
	if (!waiting || waiting->n_rows != n_rows)
		return MOETRACE_E_NOT_FOUND;
	rows = (struct mt_ledger_slice){
		.attempt = waiting->attempt,
		.model_id = waiting->model_id,
		.is_target = waiting->is_target,
		.phase = MOETRACE_PHASE_VERIFY,
		.first_position = waiting->first_position,
		.n_rows = n_rows,
		.positions = waiting->positions,
		.accepted = accepted,
		.pass_reasons = waiting->pass_reasons,
	};
	*ret_pass_id = waiting->pass_id;
	status = mt_store_slice_accepted(ledger->store, waiting->pass_id, slice, accepted, n_rows);
	if (!status)
		status = mt_ledger_slice(ledger, waiting->request, &rows);
	unlink_waiting(ledger, waiting);
	return status;
}
