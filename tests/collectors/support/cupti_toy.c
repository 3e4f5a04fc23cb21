/* SPDX-License-Identifier: MIT */
/*
 * A toy beside a CUPTI made for tests; see cupti_toy.h.
 */
#include "tests/collectors/support/cupti_toy.h"

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

const struct fake_cupti_api *cupti_fake;

struct toy cupti_toy_open(const char *name, const char *mode)
{
	struct moetrace_session_opts opts = toy_opts();

	cupti_fake = fakes_cupti();
	fakes_be_patient();
	fakes_set("MOETRACE_CUPTI_MODE", mode);
	opts.collectors = "cupti";
	return toy_open(name, &opts, 1, 64, 2);
}

/* With a first flush what was before is thrown away, with the second one it is the recording's. */
void cupti_toy_start(const struct toy *toy)
{
	const uint32_t n_flushes = cupti_fake->n_flushes();

	ck_assert_int_eq(moetrace_start(toy->session, NULL), MOETRACE_OK);
	WAIT_UNTIL(cupti_fake->n_flushes() >= n_flushes + 2);
}

sqlite3 *cupti_toy_finish(struct toy *toy)
{
	sqlite3 *db;

	ck_assert_int_eq(moetrace_stop(toy->session, NULL), MOETRACE_OK);
	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	return db;
}
