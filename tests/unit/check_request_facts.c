/* SPDX-License-Identifier: MIT */
/*
 * What callers say of requests: ids, attributes and tokens, of many requests at once, and of none.
 */
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

START_TEST(test_attributes)
{
	struct toy toy = toy_open("attributes.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	struct moetrace_session *session = toy.session;
	char text[16] = "will change";
	sqlite3 *db;

	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "idle", text),
			 MOETRACE_OK);
	memset(text, 'x', sizeof(text) - 1);
	ck_assert_int_eq(moetrace_start(session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "twice", "1"),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "twice", "it's"),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "alone", NULL),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "", "no key"),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, NULL, "no key"),
			 MOETRACE_E_INVALID);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(key || '=' || coalesce(value, 'NULL'), ';')"
				 " FROM (SELECT key, value FROM request_attribute ORDER BY key)"),
			 "alone=NULL;idle=will change;twice=it's");
	db_close(db);
}
END_TEST

START_TEST(test_tokens)
{
	static const uint32_t tokens[] = {10, 11, 12, UINT32_MAX}, again[] = {99};
	struct toy toy = toy_start("tokens.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert_int_eq(moetrace_request_tokens(toy.session, request, 0, tokens, 4), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_tokens(toy.session, request, 1, again, 1), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_tokens(toy.session, request, 4, NULL, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_tokens(toy.session, request, 4, NULL, 1),
			 MOETRACE_E_INVALID);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(position || ':' || token_id) FROM"
				     " (SELECT * FROM request_token ORDER BY position)"),
			 "0:10,1:99,2:12,3:4294967295");
	db_close(db);
}
END_TEST

/* What happens to a request that is not open is misuse, and told. */
START_TEST(test_misuse_of_requests)
{
	static const uint32_t token = 1;
	struct toy toy = toy_start("misuse.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	toy_request_end(&toy, request, 0);
	moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 0);
	moetrace_request_attribute_set(toy.session, request, "key", "late");
	moetrace_request_tokens(toy.session, request, 0, &token, 1);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 3);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'request'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request_attribute"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request_token"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 1);
	db_close(db);
}
END_TEST

/* The external id is the caller's text, any text, and not necessarily unique. */
START_TEST(test_external_ids)
{
	struct toy toy = toy_start("ids.db", NULL, 1, 64, 2);
	char long_id[5000];
	sqlite3 *db;

	memset(long_id, 'x', sizeof(long_id) - 1);
	long_id[sizeof(long_id) - 1] = 0;
	toy_request(&toy, "it's; DROP TABLE request; --");
	toy_request(&toy, "same");
	toy_request(&toy, "same");
	toy_request(&toy, "");
	toy_request(&toy, "r\xc3\xbc"
			  "ckw\xc3\xa4rts");
	toy_request(&toy, long_id);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 6);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE external_id = 'same'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT max(length(external_id)) FROM request"),
			 (int64_t)sizeof(long_id) - 1);
	ck_assert_int_eq(
		db_int(db, "SELECT count(*) FROM request WHERE external_id LIKE 'it''s; DROP%%'"),
		1);
	db_close(db);
}
END_TEST

/* Ten thousand requests, all open at once, end in another order than they began. */
START_TEST(test_many_open_requests)
{
	enum { N = 10000 };
	static uint64_t requests[N];
	struct toy toy = toy_start("many.db", NULL, 1, 64, 2);
	sqlite3 *db;
	uint32_t i;

	for (i = 0; i < N; i++)
		requests[i] = toy_request(&toy, NULL);
	for (i = 0; i < N; i++)
		toy_request_end(&toy, requests[i * 7919u % N], i % 2);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 N / 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE reasons = 'missing'"),
			 N / 2);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT handle) FROM request"), N);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("request facts");
	TCase *facts = tcase_create("facts");

	tcase_add_test(facts, test_attributes);
	tcase_add_test(facts, test_tokens);
	tcase_add_test(facts, test_misuse_of_requests);
	tcase_add_test(facts, test_external_ids);
	tcase_add_test(facts, test_many_open_requests);
	suite_add_tcase(suite, facts);
	return suite_run(suite);
}
