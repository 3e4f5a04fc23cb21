/* SPDX-License-Identifier: MIT */
/*
 * The VFS that reads ahead gives what the plain one gives: in every order, from a file that another
 * connection changes between two reads, and from one that was cut short. And it asks for fewer
 * reads.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "cli/read_ahead.h"
#include "tests/unit/support/suite.h"

enum { N_ROWS = 300, ROW_BYTES = 20000 };

/* ---- the reads are counted ---- */

static unsigned n_reads;

static ssize_t counted_pread(int fd, void *to, size_t n, off_t at)
{
	n_reads++;
	return pread(fd, to, n, at);
}

static void reads_count(void)
{
	static const char *const names[] = {"pread", "pread64"};
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

	for (int i = 0; i < 2; i++)
		if (vfs->xGetSystemCall(vfs, names[i]))
			ck_assert_int_eq(vfs->xSetSystemCall(vfs, names[i],
							     (sqlite3_syscall_ptr)counted_pread),
					 SQLITE_OK);
}

/* ---- files ---- */

static void execute(sqlite3 *db, const char *sql)
{
	const int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
}

/* Every row is a blob of its own digit, which @salt moves. */
static void fill(sqlite3 *db, int salt)
{
	sqlite3_stmt *stmt;

	ck_assert_int_eq(sqlite3_prepare_v2(db, "REPLACE INTO t VALUES (?1, ?2)", -1, &stmt, NULL),
			 SQLITE_OK);
	execute(db, "BEGIN");
	for (int row = 1; row <= N_ROWS; row++) {
		static unsigned char bytes[ROW_BYTES];

		for (int i = 0; i < ROW_BYTES; i++)
			bytes[i] = (unsigned char)(row * 7 + salt + i / 100);
		sqlite3_bind_int(stmt, 1, row);
		sqlite3_bind_blob(stmt, 2, bytes, ROW_BYTES, SQLITE_STATIC);
		REQUIRE(sqlite3_step(stmt) == SQLITE_DONE, "%s", sqlite3_errmsg(db));
		sqlite3_reset(stmt);
	}
	execute(db, "COMMIT");
	sqlite3_finalize(stmt);
}

static sqlite3 *writer_open(const char *path, const char *journal)
{
	sqlite3 *db;

	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	execute(db, "PRAGMA page_size = 4096; PRAGMA synchronous = OFF");
	execute(db, journal);
	execute(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, bytes BLOB)");
	fill(db, 0);
	return db;
}

static sqlite3 *reader_open(const char *path, const char *parameters)
{
	char *uri = sqlite3_mprintf("file:%s?%s", path, parameters);
	sqlite3 *db;

	ck_assert_int_eq(mt_read_ahead_register(), SQLITE_OK);
	ck_assert_int_eq(sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL),
			 SQLITE_OK);
	sqlite3_free(uri);
	/* What SQLite keeps itself is not to help. */
	execute(db, "PRAGMA cache_size = 10");
	return db;
}

/* A number that all bytes and their order have a part in; *ret_rc is the last step's code. */
static uint64_t sum(sqlite3 *db, const char *sql, int *ret_rc)
{
	sqlite3_stmt *stmt;
	uint64_t all = 0;

	ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	while ((*ret_rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const unsigned char *bytes = sqlite3_column_blob(stmt, 0);

		for (int i = 0; i < sqlite3_column_bytes(stmt, 0); i++)
			all = all * 1099511628211u + bytes[i];
	}
	sqlite3_finalize(stmt);
	return all;
}

static const char forward[] = "SELECT bytes FROM t ORDER BY id";

static uint64_t sum_whole(sqlite3 *db)
{
	int rc;
	const uint64_t all = sum(db, forward, &rc);

	ck_assert_msg(rc == SQLITE_DONE, "%s", sqlite3_errmsg(db));
	return all;
}

/* ---- the cases ---- */

static const char *const parameters[] = {"mode=ro&" MT_READ_AHEAD_PARAMETER,
					 "immutable=1&" MT_READ_AHEAD_PARAMETER};

START_TEST(test_read_orders)
{
	static const char *const orders[] = {
		forward,
		"SELECT bytes FROM t ORDER BY id DESC",
		"SELECT bytes FROM t ORDER BY id * 7919 % 307",
		"SELECT a.bytes FROM t AS a CROSS JOIN t AS b ON b.id = 301 - a.id"
		" AND b.bytes IS NOT NULL ORDER BY a.id",
		/* Sorted in a file of SQLite's own. */
		"SELECT bytes || x'' FROM t ORDER BY bytes",
	};
	const char *path = suite_path("orders.db");
	sqlite3 *plain, *ahead;
	int rc;

	sqlite3_close(writer_open(path, "PRAGMA journal_mode = DELETE"));
	plain = reader_open(path, "mode=ro");
	ahead = reader_open(path, parameters[_i]);
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		const uint64_t expected = sum(plain, orders[i], &rc);

		ck_assert_int_eq(rc, SQLITE_DONE);
		ck_assert_uint_eq(sum(ahead, orders[i], &rc), expected);
		ck_assert_int_eq(rc, SQLITE_DONE);
	}
	sqlite3_close(plain);
	sqlite3_close(ahead);
}
END_TEST

START_TEST(test_read_fewer)
{
	const char *path = suite_path("fewer.db");
	sqlite3 *plain, *ahead;
	unsigned n_plain;

	reads_count();
	sqlite3_close(writer_open(path, "PRAGMA journal_mode = DELETE"));
	plain = reader_open(path, "mode=ro");
	ahead = reader_open(path, parameters[_i]);
	n_reads = 0;
	sum_whole(plain);
	n_plain = n_reads;
	n_reads = 0;
	sum_whole(ahead);
	ck_assert_uint_ge(n_plain, N_ROWS * ROW_BYTES / 4096);
	ck_assert_uint_lt(n_reads, n_plain / 4);
	sqlite3_close(plain);
	sqlite3_close(ahead);
}
END_TEST

/* The same connection reads what another one has written over in the meantime, with and without
 * WAL. */
START_TEST(test_read_changed)
{
	static const char *const journals[] = {"PRAGMA journal_mode = DELETE",
					       "PRAGMA journal_mode = WAL"};
	const char *path = suite_path("changed.db");
	sqlite3 *writer = writer_open(path, journals[_i]);
	sqlite3 *plain, *ahead;
	uint64_t before;

	if (_i == 1)
		execute(writer, "PRAGMA wal_checkpoint(TRUNCATE)");
	ahead = reader_open(path, parameters[0]);
	plain = reader_open(path, "mode=ro");
	before = sum_whole(ahead);
	for (int salt = 1; salt < 4; salt++) {
		fill(writer, salt);
		if (_i == 1)
			execute(writer, "PRAGMA wal_checkpoint(TRUNCATE)");
		ck_assert_uint_eq(sum_whole(ahead), sum_whole(plain));
		ck_assert_uint_ne(sum_whole(ahead), before);
		before = sum_whole(ahead);
	}
	sqlite3_close(plain);
	sqlite3_close(ahead);
	sqlite3_close(writer);
}
END_TEST

/* A transaction of WAL's reader sees one state, whatever is copied into the file beneath it. */
START_TEST(test_read_within_transaction)
{
	const char *path = suite_path("within.db");
	sqlite3 *writer = writer_open(path, "PRAGMA journal_mode = WAL");
	sqlite3 *ahead;
	uint64_t before;

	execute(writer, "PRAGMA wal_checkpoint(TRUNCATE)");
	ahead = reader_open(path, parameters[0]);
	execute(ahead, "BEGIN");
	before = sum_whole(ahead);
	fill(writer, 5);
	execute(writer, "PRAGMA wal_checkpoint(PASSIVE)");
	ck_assert_uint_eq(sum_whole(ahead), before);
	execute(ahead, "COMMIT");
	ck_assert_uint_ne(sum_whole(ahead), before);
	sqlite3_close(ahead);
	sqlite3_close(writer);
}
END_TEST

/* The end of the file comes before that of a piece, and before that of a page. */
START_TEST(test_read_cut_file)
{
	static const long cuts[] = {4096 * 500, 4096 * 500 + 100, 4096 * 501 - 1, 4096 * 16};
	const char *path = suite_path("cut.db");
	sqlite3 *plain, *ahead;
	int rc_plain, rc_ahead;

	sqlite3_close(writer_open(path, "PRAGMA journal_mode = DELETE"));
	plain = reader_open(path, "mode=ro");
	ahead = reader_open(path, parameters[_i / 4]);
	/* SQLite looks at the length when a transaction begins. */
	execute(plain, "BEGIN; SELECT count(*) FROM sqlite_schema");
	execute(ahead, "BEGIN; SELECT count(*) FROM sqlite_schema");
	ck_assert_int_eq(truncate(path, cuts[_i % 4]), 0);
	ck_assert_uint_eq(sum(ahead, forward, &rc_ahead), sum(plain, forward, &rc_plain));
	ck_assert_int_ne(rc_plain, SQLITE_DONE);
	ck_assert_int_eq(rc_ahead, rc_plain);
	sqlite3_close(plain);
	sqlite3_close(ahead);
}
END_TEST

/* What is not opened for reading alone is any other file. */
START_TEST(test_write)
{
	const char *path = suite_path("written.db");
	char *uri = sqlite3_mprintf("file:%s?%s", path, MT_READ_AHEAD_PARAMETER);
	sqlite3 *db, *plain;

	ck_assert_int_eq(mt_read_ahead_register(), SQLITE_OK);
	ck_assert_int_eq(
		sqlite3_open_v2(uri, &db,
				SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL),
		SQLITE_OK);
	execute(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, bytes BLOB)");
	fill(db, 0);
	plain = reader_open(path, "mode=ro");
	ck_assert_uint_eq(sum_whole(db), sum_whole(plain));
	sqlite3_close(plain);
	sqlite3_close(db);
	sqlite3_free(uri);
	uri = sqlite3_mprintf("file:%s-none?%s", path, parameters[0]);
	ck_assert_int_eq(sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL),
			 SQLITE_CANTOPEN);
	sqlite3_close(db);
	sqlite3_free(uri);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("read_ahead");
	TCase *tcase = tcase_create("read_ahead");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, test_read_orders, 0, 2);
	tcase_add_loop_test(tcase, test_read_fewer, 0, 2);
	tcase_add_loop_test(tcase, test_read_changed, 0, 2);
	tcase_add_test(tcase, test_read_within_transaction);
	tcase_add_loop_test(tcase, test_read_cut_file, 0, 8);
	tcase_add_test(tcase, test_write);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
