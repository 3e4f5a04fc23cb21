/* SPDX-License-Identifier: MIT */
/*
 * What needs order: spans of computed positions by request, which show positions that were
 * computed twice and give every request its verdict; ranges of runs, which show rows that two
 * layers claim. Both are sorted once and walked once.
 */
#include "cli/check.h"

#include <stdlib.h>
#include <string.h>

int check_span_add(struct check *check, const struct check_span *span)
{
	struct check_span *spans = check_array_grow(check, check->spans, check->n_spans,
						    &check->max_spans, sizeof(*spans));

	if (!spans)
		return MT_EXIT_FAILED;
	check->spans = spans;
	spans[check->n_spans++] = *span;
	return MT_EXIT_OK;
}

static int compare_int64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int span_compare(const void *a_pointer, const void *b_pointer)
{
	const struct check_span *a = a_pointer;
	const struct check_span *b = b_pointer;
	int order = compare_int64(a->request_id, b->request_id);

	if (order == 0)
		order = compare_int64(a->model_id, b->model_id);
	if (order == 0)
		order = compare_int64(a->attempt, b->attempt);
	return order != 0 ? order : compare_int64(a->first, b->first);
}

static bool is_same_sequence(const struct check_span *a, const struct check_span *b)
{
	return a->request_id == b->request_id && a->model_id == b->model_id &&
	       a->attempt == b->attempt;
}

/* ---- verdicts of requests ---- */

struct request {
	int64_t request_id;
	int64_t n_positions; /* -1: not ended */
	int64_t last_attempt;
	bool is_ended;
	const char *verdict; /* valid until the next step of the statement */
	const char *reasons;
};

static bool model_is_target(const struct check *check, int64_t model_id)
{
	size_t i;

	for (i = 0; i < check->n_models; i++)
		if (check->models[i].model_id == model_id)
			return check->models[i].is_target;
	return false;
}

/* The spans [*at, end) of one sequence: moves *at to the end, returns the length of the prefix. */
static int64_t prefix_take(const struct check *check, size_t *at, bool is_sure)
{
	const struct check_span *first = &check->spans[*at];
	int64_t next = 0;

	for (; *at < check->n_spans && is_same_sequence(first, &check->spans[*at]); (*at)++) {
		const struct check_span *span = &check->spans[*at];

		if ((is_sure ? span->is_whole : span->may_be_whole) && span->first <= next &&
		    span->first + span->n > next)
			next = span->first + span->n;
	}
	return next;
}

/* Whether each target model that computed the request has all of it; its spans begin at @i. */
static bool is_covered(const struct check *check, const struct request *request, size_t i,
		       bool is_sure)
{
	size_t *at = &i;
	bool is_seen = false;
	bool is_full = true;

	while (*at < check->n_spans && check->spans[*at].request_id == request->request_id) {
		const struct check_span *span = &check->spans[*at];
		int64_t prefix = prefix_take(check, at, is_sure);

		if (!model_is_target(check, span->model_id))
			continue;
		is_seen = true;
		if (span->attempt == request->last_attempt && prefix < request->n_positions)
			is_full = false;
		if (span->attempt < request->last_attempt &&
		    (*at == check->n_spans || check->spans[*at].request_id != request->request_id ||
		     check->spans[*at].model_id != span->model_id))
			is_full = request->n_positions == 0;
	}
	return is_seen ? is_full : request->n_positions == 0;
}

static const char *const request_reasons[] = {"lost",	 "began_before", "unwritten", "unresolved",
					      "missing", "invalid",	 "repeated",  NULL};

/* What the spans of one request say. */
struct coverage {
	bool is_covered;  /* every position is surely computed in every layer */
	bool may_be;	  /* the same, if no row with fewer entries lost ids that no expert has */
	bool is_repeated; /* a target model surely computed a position twice in an attempt */
	bool overlaps;	  /* rows in passes of any verdict did */
	const struct check_span *again; /* the later one of the two; of is_repeated, if it is set */
	const struct check_span *before;
};

/* Find positions that were computed twice in one attempt; the request's spans are [from, to). */
static void repetition_find(const struct check *check, size_t from, size_t to,
			    struct coverage *coverage)
{
	const struct check_span *all = NULL;   /* of its sequence, the one that reaches furthest */
	const struct check_span *whole = NULL; /* the same of those that are surely whole */
	size_t i;

	for (i = from; i < to; i++) {
		const struct check_span *span = &check->spans[i];
		bool is_sure = span->is_whole && model_is_target(check, span->model_id);

		if (all && !is_same_sequence(all, span))
			all = whole = NULL;
		if (all && span->first < all->first + all->n)
			coverage->overlaps = true;
		if (is_sure && !coverage->is_repeated && whole &&
		    span->first < whole->first + whole->n) {
			coverage->is_repeated = true;
			coverage->before = whole;
			coverage->again = span;
		}
		if (!all || span->first + span->n > all->first + all->n)
			all = span;
		if (is_sure && (!whole || span->first + span->n > whole->first + whole->n))
			whole = span;
	}
}

static void coverage_read(struct check *check, const struct request *request, size_t *at,
			  struct coverage *ret_coverage)
{
	struct coverage coverage = {0};
	size_t to;

	while (*at < check->n_spans && check->spans[*at].request_id < request->request_id)
		(*at)++;
	for (to = *at; to < check->n_spans && check->spans[to].request_id == request->request_id;
	     to++)
		check->results[CHECK_COMPUTED_ONCE].n_checked += (uint64_t)check->spans[to].n;
	coverage.is_covered = is_covered(check, request, *at, true);
	coverage.may_be = is_covered(check, request, *at, false);
	repetition_find(check, *at, to, &coverage);
	*at = to;
	*ret_coverage = coverage;
}

/* An ended request says itself that positions were computed twice; an open one cannot yet. */
static void once_check(struct check *check, const struct request *request,
		       const struct coverage *coverage)
{
	if (!coverage->is_repeated || !request->is_ended ||
	    check_has_reason(request->reasons, "repeated"))
		return;
	check_violation(check, CHECK_COMPUTED_ONCE,
			"request %lld: position %lld of attempt %lld is computed by pass %lld and "
			"by pass %lld",
			(long long)request->request_id, (long long)coverage->again->first,
			(long long)coverage->again->attempt, (long long)coverage->before->pass_id,
			(long long)coverage->again->pass_id);
}

/* What is wrong with the request's verdict; NULL: nothing. */
static const char *verdict_fault(const struct request *request, const struct coverage *coverage)
{
	bool is_repeated = check_has_reason(request->reasons, "repeated");
	bool is_complete;

	if (!request->verdict)
		return "has no verdict";
	is_complete = strcmp(request->verdict, "complete") == 0;
	if (!request->is_ended != (strcmp(request->verdict, "unfinished") == 0))
		return request->is_ended ? "has ended, yet its verdict is unfinished"
					 : "has a verdict, yet it has not ended";
	if ((strcmp(request->verdict, "partial") == 0) != (request->reasons != NULL))
		return request->reasons ? "has reasons, yet is not partial"
					: "is partial without a reason";
	if (request->reasons && !check_reasons_are_known(request->reasons, request_reasons))
		return "has a reason that the schema does not name";
	if (is_repeated && !coverage->overlaps)
		return "says repeated, but no position is computed twice";
	if (request->is_ended && is_complete && !coverage->may_be)
		return "is complete, but positions are not computed in every layer";
	if (request->is_ended && !is_complete && coverage->is_covered && !is_repeated)
		return "is partial, but every position is computed in every layer";
	return NULL;
}

static void request_read(sqlite3_stmt *stmt, struct request *ret_request)
{
	bool has_end = sqlite3_column_type(stmt, 3) != SQLITE_NULL;

	ret_request->request_id = sqlite3_column_int64(stmt, 0);
	ret_request->n_positions = sqlite3_column_int64(stmt, 1);
	ret_request->last_attempt = sqlite3_column_int64(stmt, 2) - 1;
	ret_request->is_ended = has_end;
	ret_request->verdict = (const char *)sqlite3_column_text(stmt, 4);
	ret_request->reasons = (const char *)sqlite3_column_text(stmt, 5);
}

static void request_check(struct check *check, sqlite3_stmt *stmt, size_t *at)
{
	struct request request;
	struct coverage coverage;
	const char *fault;
	bool ended_whole;

	request_read(stmt, &request);
	check->results[CHECK_REQUEST_VERDICTS].n_checked++;
	coverage_read(check, &request, at, &coverage);
	once_check(check, &request, &coverage);
	fault = verdict_fault(&request, &coverage);
	ended_whole = (sqlite3_column_type(stmt, 1) == SQLITE_NULL) == !request.is_ended &&
		      (sqlite3_column_type(stmt, 6) == SQLITE_NULL) == !request.is_ended;
	if (!fault && !ended_whole)
		fault = "end_ns, end_state and n_positions are not all there, or all NULL";
	if (fault)
		check_violation(check, CHECK_REQUEST_VERDICTS, "request %lld: %s",
				(long long)request.request_id, fault);
}

int check_spans_compare(struct check *check)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	size_t at = 0;
	int rc;

	if (check->n_spans > 0)
		qsort(check->spans, check->n_spans, sizeof(*check->spans), span_compare);
	stmt = mt_trace_prepare(check->trace,
				"SELECT request_id, n_positions, n_attempts, end_ns, "
				"verdict, reasons, end_state FROM request ORDER BY request_id");
	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		request_check(check, stmt, &at);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

/* ---- rows of runs ---- */

static int range_compare(const void *a_pointer, const void *b_pointer)
{
	const struct check_range *a = a_pointer;
	const struct check_range *b = b_pointer;
	int order = compare_int64(a->topk_id, b->topk_id);

	return order != 0 ? order : compare_int64(a->first, b->first);
}

int check_ranges_compare(struct check *check)
{
	size_t i;

	check->results[CHECK_RUN_OVERLAP].n_checked = check->n_ranges;
	if (check->n_ranges > 0)
		qsort(check->ranges, check->n_ranges, sizeof(*check->ranges), range_compare);
	for (i = 1; i < check->n_ranges; i++) {
		const struct check_range *a = &check->ranges[i - 1];
		const struct check_range *b = &check->ranges[i];

		if (a->topk_id == b->topk_id && b->first < a->first + a->n)
			check_violation(check, CHECK_RUN_OVERLAP,
					"topk %lld: row %lld belongs to "
					"pass_layer %lld,%lld and to %lld,%lld",
					(long long)a->topk_id, (long long)b->first,
					(long long)a->pass_id, (long long)a->layer_id,
					(long long)b->pass_id, (long long)b->layer_id);
	}
	return MT_EXIT_OK;
}
