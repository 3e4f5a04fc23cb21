/* SPDX-License-Identifier: MIT */
/*
 * The toy of flight mode. Passes are told apart by the runtime's number, which is in their row.
 */
#include "tests/control/support/flight.h"

#include <check.h>

#include "tests/unit/support/db.h"

struct moetrace_recording_opts flight_opts(uint64_t n_bytes, uint32_t n_s, uint32_t mode)
{
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.flight_bytes = n_bytes;
	opts.flight_seconds = n_s;
	opts.mode = mode;
	return opts;
}

struct toy flight_start(const char *name, const struct moetrace_session_opts *session_opts,
			const struct moetrace_recording_opts *opts)
{
	struct toy toy = toy_open(name, session_opts, FLIGHT_LAYERS, FLIGHT_EXPERTS, FLIGHT_K);

	ck_assert_int_eq(moetrace_start(toy.session, opts), MOETRACE_OK);
	return toy;
}

uint32_t flight_dump(const struct toy *toy)
{
	struct moetrace_dump_result result;
	sqlite3 *db;

	MOETRACE_INIT(&result);
	ck_assert_int_eq(moetrace_dump(toy->session, &result), MOETRACE_OK);
	ck_assert_str_eq(result.path, toy->path);
	db = db_open(toy->path);
	ck_assert_int_eq(db_int(db,
				"SELECT coalesce(max(pass_id), 0) FROM pass WHERE "
				"recording_id = %u",
				result.recording_id),
			 (int64_t)result.last_pass_id);
	db_close(db);
	return result.recording_id;
}

void flight_pass(const struct toy *toy, uint64_t number, uint64_t request, uint32_t first_position,
		 uint32_t n_rows)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first_position, .n_rows = n_rows};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = first_position ? MOETRACE_PHASE_DECODE : MOETRACE_PHASE_PREFILL;
	info.runtime_pass = &number;
	info.slices = &slice;
	info.n_slices = 1;
	info.n_rows = n_rows;
	pass = moetrace_pass_begin(toy->session, &info);
	ck_assert_ptr_nonnull(pass);
	for (uint32_t layer = 0; layer < FLIGHT_LAYERS; layer++) {
		int32_t ids[64 * FLIGHT_K];

		for (uint32_t i = 0; i < n_rows * FLIGHT_K; i++)
			ids[i] = (int32_t)((number * 5 + layer + i / FLIGHT_K + i % FLIGHT_K) %
					   FLIGHT_EXPERTS);
		toy_select_ids(pass, layer, n_rows, FLIGHT_K, ids);
	}
	moetrace_pass_end(pass);
}

void flight_check_bounds(sqlite3 *db, int64_t recording_id, int64_t n_passes)
{
	int64_t n_kept =
		db_int(db, "SELECT count(*) FROM pass WHERE recording_id = %lld", recording_id);

	ck_assert_int_eq(n_kept + db_stat(db, recording_id, "flight_let_go_passes"), n_passes);
	ck_assert_int_eq(db_stat(db, recording_id, "dropped_passes"), 0);
	ck_assert_int_eq(db_int(db,
				"SELECT start_ns = (SELECT min(begin_ns) FROM pass WHERE "
				"recording_id = %lld) AND end_ns >= start_ns FROM recording WHERE "
				"recording_id = %lld",
				recording_id, recording_id),
			 1);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording WHERE recording_id = %lld",
				 recording_id),
			 "dump");
}
