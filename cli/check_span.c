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
	int64_t n_needed; /* positions that have to be there */
	int64_t last_attempt;
	bool is_ended;
	bool had_losses; /* its recording */
	const char *verdict; /* valid until the next step of the statement */
	const char *reasons;
};

bool check_model_is_target(const struct check *check, int64_t model_id)
{
	size_t i;

	for (i = 0; i < check->n_models; i++)
		if (check->models[i].model_id == model_id)
			return check->models[i].is_target;
	return false;
}

size_t check_span_find(const struct check *check, int64_t request_id)
{
	size_t low = 0;
	size_t high = check->n_spans;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (check->spans[middle].request_id < request_id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * The length of the prefix of the last attempt that the spans from @at on (of one model; others
 * end them) and the attempt's links have in every layer.
 */
static int64_t prefix_length(const struct check *check, const struct request *request, size_t at,
			     int64_t model_id, bool is_sure)
{
	size_t l = check_link_find(check, request->request_id, request->last_attempt);
	int64_t next = 0;
	int64_t before;

	do {
		before = next;
		for (; at < check->n_spans && check->spans[at].request_id == request->request_id &&
		       check->spans[at].model_id == model_id && check->spans[at].first <= next;
		     at++) {
			const struct check_span *span = &check->spans[at];

			if (span->attempt == request->last_attempt &&
			    (is_sure ? span->is_whole : span->may_be_whole) &&
			    span->first + span->n > next)
				next = span->first + span->n;
		}
		for (; l < check->n_links && check->links[l].request_id == request->request_id &&
		       check->links[l].attempt == request->last_attempt &&
		       check->links[l].first <= next;
		     l++) {
			const struct check_link *link = &check->links[l];

			if ((is_sure ? link->is_whole : link->may_be_whole) &&
			    link->first + link->n > next)
				next = link->first + link->n;
		}
	} while (next > before);
	return next;
}

/* Whether each target model that computed the request has all of it; its spans begin at @at. */
static bool is_covered(const struct check *check, const struct request *request, size_t at,
		       bool is_sure)
{
	bool is_seen = false;

	while (at < check->n_spans && check->spans[at].request_id == request->request_id) {
		int64_t model_id = check->spans[at].model_id;
		size_t last = at;
		size_t end = at;

		/* Spans of a model are by attempt: those of the last one are at its end. */
		for (; end < check->n_spans &&
		       check->spans[end].request_id == request->request_id &&
		       check->spans[end].model_id == model_id;
		     end++)
			if (check->spans[end].attempt < request->last_attempt)
				last = end + 1;
		at = end;
		if (!check_model_is_target(check, model_id))
			continue;
		is_seen = true;
		if (prefix_length(check, request, last, model_id, is_sure) < request->n_needed)
			return false;
	}
	return is_seen || prefix_length(check, request, check->n_spans, 0, is_sure) >=
				  request->n_needed;
}

static const char *const request_reasons[] = {"lost",	 "began_before", "unwritten", "unresolved",
					      "missing", "invalid",	 "repeated",  "reuse_unknown",
					      "disabled", "sampled",	 "counted",   NULL};

/* What the spans of one request say. */
struct coverage {
	bool is_covered;  /* every position is surely computed in every layer */
	bool may_be;	  /* the same, if no row with fewer entries lost ids that no expert has */
	bool is_repeated; /* a target model surely computed a position twice in an attempt */
	bool overlaps;	  /* rows in passes of any verdict did */
	bool is_overlaid; /* an attempt reused what it computed */
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
		bool is_sure = span->is_whole && check_model_is_target(check, span->model_id);

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
	coverage.is_overlaid = check_links_overlap(check, request->request_id);
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
	if (coverage->is_overlaid && request->is_ended &&
	    !check_has_reason(request->reasons, "repeated"))
		check_violation(check, CHECK_REUSE,
				"request %lld: computed a position that it reused, and its reasons "
				"do not say repeated",
				(long long)request->request_id);
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
	if (is_repeated && !coverage->overlaps && !coverage->is_overlaid)
		return "says repeated, but no position is computed twice";
	if (request->is_ended && is_complete && !coverage->may_be)
		return "is complete, but positions are not computed in every layer";
	/* Where passes were lost, nobody may know how long the request was. */
	if (request->is_ended && !is_complete && coverage->is_covered && !is_repeated &&
	    !(request->had_losses && check_has_reason(request->reasons, "lost")))
		return "is partial, but every position is computed in every layer";
	return NULL;
}

static void request_read(sqlite3_stmt *stmt, struct request *ret_request)
{
	bool has_end = sqlite3_column_type(stmt, 3) != SQLITE_NULL;

	ret_request->request_id = sqlite3_column_int64(stmt, 0);
	ret_request->n_needed = sqlite3_column_int64(stmt, 7);
	ret_request->had_losses = sqlite3_column_int(stmt, 8) != 0;
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

int check_spans_sort(struct check *check)
{
	if (check->n_spans > 0)
		qsort(check->spans, check->n_spans, sizeof(*check->spans), span_compare);
	return MT_EXIT_OK;
}

int check_spans_compare(struct check *check)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	size_t at = 0;
	int rc;

	stmt = mt_trace_prepare(check->trace,
				"SELECT request_id, n_positions, n_attempts, end_ns, "
				"verdict, reasons, end_state, max(coalesce(n_positions, 0), "
				"iif(end_state = 'finished', coalesce(prompt_positions, 0), 0)), "
				"EXISTS (SELECT 1 FROM stats AS s WHERE s.recording_id = "
				"r.recording_id AND s.name = 'dropped_passes' AND s.value > 0) "
				"FROM request AS r ORDER BY request_id");
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
