/* SPDX-License-Identifier: MIT */
/* What tests say of the toy runtime's requests, and what its file says of them. */
#include "tests/unit/support/said.h"

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

const char *toy_verdict(sqlite3 *db, const char *external_id)
{
	return db_text(db,
		       "SELECT verdict || coalesce(' ' || reasons, '') FROM request WHERE"
		       " external_id = %Q",
		       external_id);
}

void toy_end_as(const struct toy *toy, uint64_t request, enum moetrace_request_end_state state,
		uint64_t n_positions)
{
	ck_assert_int_eq(moetrace_request_end(toy->session, request, state, n_positions),
			 MOETRACE_OK);
}

void toy_end(const struct toy *toy, uint64_t request, uint64_t n_positions)
{
	toy_end_as(toy, request, MOETRACE_REQUEST_FINISHED, n_positions);
}

void toy_reuse(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n, uint64_t source,
	       uint32_t attempt)
{
	struct moetrace_reuse info;

	MOETRACE_INIT(&info);
	info.first_position = first;
	info.n_positions = n;
	info.source_request = source;
	info.source_attempt = attempt;
	ck_assert_int_eq(moetrace_request_reuse(toy->session, request, &info), MOETRACE_OK);
}

const char *toy_links(sqlite3 *db)
{
	return db_text(
		db, "SELECT coalesce(group_concat(l, ', '), 'none') FROM (SELECT r.handle"
		    " || ' ' || u.attempt || ' ' || u.first_position || '+' || u.n_positions || ' '"
		    " || coalesce(s.handle || ' ' || source_attempt, '?') AS l FROM"
		    " request_reuse AS u JOIN request AS r USING (request_id) LEFT JOIN request"
		    " AS s ON s.request_id = u.source_request_id ORDER BY r.handle, u.attempt,"
		    " u.first_position)");
}

sqlite3 *toy_prove_and_open(struct toy *toy, int64_t n_misuse)
{
	sqlite3 *db = toy_close_and_open(toy);

	agree_prove(toy->path);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), n_misuse);
	return db;
}
