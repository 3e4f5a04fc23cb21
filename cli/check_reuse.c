/* SPDX-License-Identifier: MIT */
/*
 * The links to positions that another attempt computed. Each position of a link has to be a
 * computed row of its source, and the links of an attempt lie apart. Links are read in the order
 * of their key, which is also that of their positions.
 */
#include "cli/check.h"

#include <stdlib.h>

static const char *const sql_violations =
	"SELECT 'request_reuse', u.request_id || ',' || u.attempt || ',' || u.first_position, "
	"CASE WHEN u.attempt >= r.n_attempts THEN 'the request has no such attempt' "
	"WHEN (u.source_request_id IS NULL) <> (u.source_attempt IS NULL) "
	"THEN 'source_request_id and source_attempt are not both there' "
	"WHEN s.recording_id <> r.recording_id THEN 'its source is of another recording' "
	"WHEN u.source_attempt >= s.n_attempts THEN 'its source has no such attempt' "
	"ELSE 'it reuses its own attempt, or a later one' END "
	"FROM request_reuse AS u JOIN request AS r ON r.request_id = u.request_id "
	"LEFT JOIN request AS s ON s.request_id = u.source_request_id "
	"WHERE u.attempt >= r.n_attempts "
	"OR (u.source_request_id IS NULL) <> (u.source_attempt IS NULL) "
	"OR s.recording_id <> r.recording_id OR u.source_attempt >= s.n_attempts "
	"OR (u.source_request_id = u.request_id AND u.source_attempt >= u.attempt)";

size_t check_link_find(const struct check *check, int64_t request_id, int64_t attempt)
{
	size_t low = 0;
	size_t high = check->n_links;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct check_link *link = &check->links[middle];

		if (link->request_id < request_id ||
		    (link->request_id == request_id && link->attempt < attempt))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The end of the positions from @next on that @span has; @next: it does not have it. */
static int64_t span_reach(const struct check *check, const struct check_span *span,
			  const struct check_link *link, int64_t next)
{
	int64_t end = span->first + span->n;

	if (span->attempt != link->source_attempt || span->first > next || end <= next ||
	    !check_model_is_target(check, span->model_id))
		return next;
	return end;
}

/* How far the source computed the link's positions; spans of a sequence are by position. */
static int64_t source_reach(const struct check *check, const struct check_link *link,
			    bool (*takes)(const struct check_span *span))
{
	size_t from = check_span_find(check, link->source_id);
	int64_t end = link->first + link->n;
	int64_t next = link->first;
	int64_t before;
	size_t i;

	/* Again for each further model that the source was computed by. */
	do {
		before = next;
		for (i = from; i < check->n_spans && check->spans[i].request_id == link->source_id &&
			       next < end;
		     i++)
			if (takes(&check->spans[i]))
				next = span_reach(check, &check->spans[i], link, next);
	} while (next < end && next > before);
	return next;
}

static bool takes_any(const struct check_span *span)
{
	(void)span;
	return true;
}

static bool takes_whole(const struct check_span *span)
{
	return span->is_whole;
}

static bool takes_maybe_whole(const struct check_span *span)
{
	return span->may_be_whole;
}

static void link_violation(struct check *check, const struct check_link *link, const char *what,
			   int64_t position)
{
	check_violation(check, CHECK_REUSE, "request_reuse %lld,%lld,%lld: %s (position %lld)",
			(long long)link->request_id, (long long)link->attempt,
			(long long)link->first, what, (long long)position);
}

static void source_check(struct check *check, struct check_link *link)
{
	int64_t end = link->first + link->n;
	int64_t reach;

	if (link->source_id < 0)
		return;
	reach = source_reach(check, link, takes_any);
	/* Passes that sampling or a disabled region left out did compute what they carried. */
	if (reach < end && !link->may_be_left_out)
		link_violation(check, link, "its source has not computed it", reach);
	link->is_whole = source_reach(check, link, takes_whole) >= end;
	link->may_be_whole = source_reach(check, link, takes_maybe_whole) >= end;
}

static int link_take(struct check *check, sqlite3_stmt *stmt)
{
	struct check_link *links;
	struct check_link link = {
		.request_id = sqlite3_column_int64(stmt, 0),
		.attempt = sqlite3_column_int64(stmt, 1),
		.first = sqlite3_column_int64(stmt, 2),
		.n = sqlite3_column_int64(stmt, 3),
		.source_id = sqlite3_column_type(stmt, 4) == SQLITE_NULL
				     ? -1
				     : sqlite3_column_int64(stmt, 4),
		.source_attempt = sqlite3_column_int64(stmt, 5),
		.may_be_left_out = sqlite3_column_int(stmt, 6) != 0,
	};
	const struct check_link *last =
		check->n_links > 0 ? &check->links[check->n_links - 1] : NULL;

	check->results[CHECK_REUSE].n_checked++;
	if (link.n < 1 || link.first < 0 || link.n > UINT32_MAX || link.first > UINT32_MAX) {
		link_violation(check, &link, "its positions are none, or out of range", link.first);
		return MT_EXIT_OK;
	}
	if (last && last->request_id == link.request_id && last->attempt == link.attempt &&
	    link.first < last->first + last->n)
		link_violation(check, &link, "an earlier link has it", link.first);
	source_check(check, &link);
	links = check_array_grow(check, check->links, check->n_links, &check->max_links,
				 sizeof(*links));
	if (!links)
		return MT_EXIT_FAILED;
	check->links = links;
	links[check->n_links++] = link;
	return MT_EXIT_OK;
}

int check_links_load(struct check *check)
{
	sqlite3_stmt *stmt;
	int status = check_sql_proof_run(check, CHECK_REUSE, NULL, sql_violations);
	int rc = SQLITE_DONE;

	if (status != MT_EXIT_OK)
		return status;
	stmt = mt_trace_prepare(check->trace,
				"SELECT request_id, attempt, first_position, n_positions, "
				"source_request_id, source_attempt, EXISTS (SELECT 1 FROM request "
				"AS r JOIN stats AS s USING (recording_id) WHERE r.request_id = "
				"u.request_id AND s.name IN ('sampled_passes', 'disabled_passes') "
				"AND s.value > 0) FROM request_reuse AS u "
				"ORDER BY request_id, attempt, first_position");
	if (!stmt)
		return MT_EXIT_FAILED;
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = link_take(check, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

bool check_links_overlap(const struct check *check, int64_t request_id)
{
	size_t from = check_span_find(check, request_id);
	size_t i = check_link_find(check, request_id, 0);
	size_t s;

	for (; i < check->n_links && check->links[i].request_id == request_id; i++) {
		const struct check_link *link = &check->links[i];

		for (s = from; s < check->n_spans && check->spans[s].request_id == request_id; s++) {
			const struct check_span *span = &check->spans[s];

			if (span->attempt == link->attempt &&
			    span->first < link->first + link->n &&
			    link->first < span->first + span->n &&
			    check_model_is_target(check, span->model_id))
				return true;
		}
	}
	return false;
}
