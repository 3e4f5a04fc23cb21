/* SPDX-License-Identifier: MIT */
/*
 * Requests that begin and end in one thread while another one begins passes that name them. What
 * came before an end is settled by ring positions, whatever the clocks of the two threads said;
 * so messages are posted here with the times that such threads may have read.
 */
#include "libtrace/clock.h"
#include "libtrace/session.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static void post(const struct toy *toy, enum mt_message_type type, uint64_t request,
		 uint64_t time_ns)
{
	struct mt_message *message = mt_message_new(type, NULL, NULL);

	ck_assert_ptr_nonnull(message);
	message->request = request;
	message->time_ns = time_ns;
	message->state = MOETRACE_REQUEST_FINISHED;
	message->number = type == MT_MESSAGE_REQUEST_END ? 4 : 0;
	mt_queue_post(&toy->session->queue, &toy->session->pool, message);
}

static uint64_t now_ns(const struct toy *toy)
{
	return mt_session_ns(toy->session, mt_monotonic_ns());
}

/* The clock is read, the pass begins, and only then is the end said: it is the request's. */
START_TEST(test_pass_before_an_end)
{
	struct toy toy = toy_start("before.db", NULL, 2, 64, 4);
	uint64_t request = toy_request(&toy, "a");
	uint64_t end_ns = now_ns(&toy);
	sqlite3 *db;

	suite_sleep_ms(1);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	post(&toy, MT_MESSAGE_REQUEST_END, request, end_ns);
	/* This one comes after it, and has rows of no request. */
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 4, 1));
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id = 1"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request AS s JOIN pass AS p "
				    "USING (pass_id) JOIN request AS r USING (request_id) "
				    "WHERE r.end_ns < p.begin_ns OR r.begin_ns > p.begin_ns"),
			 0);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	db_close(db);
}
END_TEST

/* A handle that was guessed: rows of no request. */
START_TEST(test_pass_before_a_begin)
{
	struct toy toy = toy_start("guessed.db", NULL, 2, 64, 4);
	sqlite3 *db;

	post(&toy, MT_MESSAGE_REQUEST, 1, now_ns(&toy) + 3600 * MT_NS_PER_S);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, 1, 0, 4));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id IS NULL"),
			 1);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("request_order");
	TCase *order = tcase_create("order");

	tcase_add_test(order, test_pass_before_an_end);
	tcase_add_test(order, test_pass_before_a_begin);
	suite_add_tcase(suite, order);
	return suite_run(suite);
}
