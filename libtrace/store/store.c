/* SPDX-License-Identifier: MIT */
/*
 * Opening, committing and closing the trace file.
 *
 * Invariants: the connection is used by one thread; a transaction is open exactly when
 * in_transaction is set; after the first failure (status) nothing more is written, so that
 * what was committed stays as it was.
 *
 * WAL with synchronous=NORMAL: a killed process loses nothing committed, and readers see the
 * last commit while recording goes on. Checkpoints are made here, never by SQLite on its own,
 * so that a long one does not fall into the middle of a batch.
 */
#include "libtrace/store/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/utf8.h"
#include "libtrace/clock.h"
#include "libtrace/store/schema_sql.h"

#define PAGE_BYTES 4096
#define CHECKPOINT_BYTES (UINT64_C(16) << 20)
/* Pages that are kept from one commit to the next. */
#define KEPT_CACHE_BYTES (4 << 20)
/*
 * From one look whether readers have gone to the next counts so much at most: no reader can go while
 * the machine stands still.
 */
#define FOLD_LOOK_MOST_NS (100 * MT_NS_PER_MS)
/* What making a file waits for readers of it. */
#define MAKE_PATIENCE_MS 2000

static const char *const stmt_sql[MT_N_STMT] = {
#define MT_STMT_SQL(name, sql) [MT_STMT_##name] = sql,
	MT_STMT_MAP(MT_STMT_SQL)
#undef MT_STMT_SQL
};

int mt_store_fail(struct mt_store *store, const char *what)
{
	if (store->status)
		return store->status;
	store->status = MOETRACE_E_IO;
	snprintf(store->error, sizeof(store->error), "%s: %s: %s", store->path, what,
		 store->db ? sqlite3_errmsg(store->db) : strerror(errno));
	if (store->in_transaction)
		sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
	store->in_transaction = 0;
	return store->status;
}

sqlite3_stmt *mt_store_stmt(struct mt_store *store, enum mt_stmt stmt)
{
	return store->stmts[stmt];
}

int mt_store_step(struct mt_store *store, enum mt_stmt stmt)
{
	int result;

	if (!store->status) {
		result = sqlite3_step(store->stmts[stmt]);
		if (result != SQLITE_DONE && result != SQLITE_ROW)
			mt_store_fail(store, stmt_sql[stmt]);
	}
	sqlite3_reset(store->stmts[stmt]);
	sqlite3_clear_bindings(store->stmts[stmt]);
	store->stats.pending_bytes += 48;
	return store->status;
}

void mt_store_bind_int(sqlite3_stmt *stmt, int index, int64_t value)
{
	if (value != MT_NULL)
		sqlite3_bind_int64(stmt, index, value);
}

void mt_store_bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
	char *repaired;

	if (!text)
		return;
	if (mt_utf8_is_valid(text, strlen(text))) {
		sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);
		return;
	}
	repaired = mt_utf8_repair(text);
	if (repaired)
		sqlite3_bind_text(stmt, index, repaired, -1, free);
	else
		sqlite3_bind_text(stmt, index, "\xef\xbf\xbd", -1, SQLITE_STATIC);
}

const char *mt_store_path(const struct mt_store *store)
{
	return sqlite3_db_filename(store->db, "main");
}

const char *mt_store_error(const struct mt_store *store)
{
	return store->error;
}

int mt_store_is_network(const struct mt_store *store)
{
	return store->is_network;
}

void mt_store_stats_get(const struct mt_store *store, struct mt_store_stats *ret_stats)
{
	*ret_stats = store->stats;
}

uint64_t mt_store_memory_bytes(const struct mt_store *store)
{
	static const int kinds[] = { SQLITE_DBSTATUS_CACHE_USED, SQLITE_DBSTATUS_SCHEMA_USED,
				     SQLITE_DBSTATUS_STMT_USED };
	uint64_t n_bytes = 0;
	int now, peak;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (sqlite3_db_status(store->db, kinds[i], &now, &peak, 0) == SQLITE_OK)
			n_bytes += (uint64_t)now;
	return n_bytes;
}

static int exec(struct mt_store *store, const char *sql)
{
	if (!store->status && sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK)
		mt_store_fail(store, sql);
	return store->status;
}

static int exec_schema_file(struct mt_store *store, const struct mt_schema_file *file)
{
	if (sqlite3_exec(store->db, file->sql, NULL, NULL, NULL) != SQLITE_OK)
		mt_store_fail(store, file->name);
	return store->status;
}

/* Is the file that was created still the path's, and the one that SQLite has open? */
static int is_open_file_own(struct mt_store *store)
{
	int has_moved = 1;

	return sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved) ==
		       SQLITE_OK &&
	       !has_moved && mt_store_file_is_own(store);
}

/* Also after a failure, of which it may be the cause. */
static int check_file(struct mt_store *store)
{
	if (store->status ? mt_store_file_is_own(store) : is_open_file_own(store))
		return store->status;
	mt_store_fail(store, "check the new file");
	snprintf(store->error, sizeof(store->error),
		 "%s: the file was moved or replaced while it was being made; nothing was written, "
		 "choose another name", store->path);
	return store->status;
}

static int check_is_there(struct mt_store *store)
{
	if (store->status || !mt_store_file_is_gone(store))
		return store->status;
	mt_store_fail(store, "look after the file");
	store->is_gone = 1;
	snprintf(store->error, sizeof(store->error),
		 "%s: the file was removed, moved or replaced while it was recorded into; rotate "
		 "into another file to record again", store->path);
	return store->status;
}

static int make_schema(struct mt_store *store)
{
	/* Who looks at a file as soon as it is there has it locked for a moment. */
	sqlite3_busy_timeout(store->db, MAKE_PATIENCE_MS);
	if (store->is_network)
		exec(store, "PRAGMA locking_mode = EXCLUSIVE");
	exec(store, "PRAGMA page_size = 4096");
	exec(store, "PRAGMA synchronous = NORMAL");
	exec(store, "PRAGMA wal_autocheckpoint = 0");
	exec(store, "PRAGMA cache_size = -65536");
	exec(store, "PRAGMA temp_store = MEMORY");
	/* Some builds overwrite what they free; a trace only grows. */
	exec(store, "PRAGMA secure_delete = OFF");
	exec(store, "BEGIN IMMEDIATE");
	store->in_transaction = !store->status;
	/* From this lock on it is ours. */
	check_file(store);
	for (size_t i = 0; !store->status && i < mt_n_schema_files; i++)
		exec_schema_file(store, &mt_schema_files[i]);
	exec(store, "COMMIT");
	store->in_transaction = 0;
	/* Only now: a process killed before leaves an empty file, never half a schema. */
	exec(store, "PRAGMA journal_mode = WAL");
	sqlite3_busy_timeout(store->db, 0);
	return store->status;
}

static int prepare(struct mt_store *store)
{
	for (int i = 0; !store->status && i < MT_N_STMT; i++)
		if (sqlite3_prepare_v3(store->db, stmt_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
				       &store->stmts[i], NULL) != SQLITE_OK)
			mt_store_fail(store, stmt_sql[i]);
	return store->status;
}

static void free_store(struct mt_store *store)
{
	for (int i = 0; i < MT_N_STMT; i++)
		sqlite3_finalize(store->stmts[i]);
	sqlite3_close(store->db);
	mt_store_free_runs(store);
	free(store->path);
	free(store);
}

void mt_store_discard(struct mt_store *store)
{
	mt_store_file_remove(store);
	free_store(store);
}

/* SQLite takes 'file:...' and ':memory:' for more than names; './' in front makes them names. */
static char *literal_path(const char *path)
{
	size_t n_bytes = strlen(path) + 3;
	char *literal = malloc(n_bytes);

	if (literal)
		snprintf(literal, n_bytes, "%s%s", path[0] == '/' ? "" : "./", path);
	return literal;
}

/* A store for the file that was created just now; NULL: out of memory, or the disk fails. */
static struct mt_store *new_store(const char *path, int fd)
{
	struct mt_store *store = calloc(1, sizeof(*store));
	struct stat info;

	if (!store)
		return NULL;
	store->path = literal_path(path);
	if (!store->path || fstat(fd, &info)) {
		free(store->path);
		free(store);
		return NULL;
	}
	store->device = info.st_dev;
	store->inode = info.st_ino;
	store->is_network = mt_store_file_is_network(path);
	return store;
}

static int give_up(struct mt_store *store, char *ret_error)
{
	int status = store->status;

	snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s", store->error);
	mt_store_discard(store);
	return status;
}

int mt_store_open(const char *path, struct mt_store **ret_store, char *ret_error)
{
	struct mt_store *store;
	int fd, status;

	fd = mt_store_file_create(path, ret_error);
	if (fd < 0)
		return fd;
	store = new_store(path, fd);
	if (!store) {
		mt_store_file_take_back(path, fd);
		close(fd);
		snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s: out of memory", path);
		return MOETRACE_E_NOMEM;
	}
	if (sqlite3_open_v2(store->path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
			    NULL))
		mt_store_fail(store, "open");
	if (check_file(store)) {
		status = give_up(store, ret_error);
		close(fd);
		return status;
	}
	/*
	 * No sooner, so that the file's number stays its own; and before SQLite locks it, since
	 * closing any descriptor of a file gives up the process's locks.
	 */
	close(fd);
	if (make_schema(store) || prepare(store))
		return give_up(store, ret_error);
	*ret_store = store;
	return MOETRACE_OK;
}

int mt_store_begin(struct mt_store *store)
{
	int result;

	if (store->status || store->in_transaction)
		return store->status;
	result = sqlite3_step(store->stmts[MT_STMT_BEGIN]);
	sqlite3_reset(store->stmts[MT_STMT_BEGIN]);
	if (result == SQLITE_BUSY)
		return MOETRACE_E_STATE;
	if (result != SQLITE_DONE)
		return mt_store_fail(store, "begin a transaction");
	store->in_transaction = 1;
	return MOETRACE_OK;
}

int mt_store_in_transaction(const struct mt_store *store)
{
	return store->in_transaction;
}

int mt_store_has_failed(const struct mt_store *store)
{
	return store->status != MOETRACE_OK;
}

int mt_store_refuse(struct mt_store *store, const char *reason)
{
	return mt_store_fail(store, reason);
}

int mt_store_last_words(struct mt_store *store, const struct mt_gap_row *gap,
			int64_t dropped_passes)
{
	int status = store->status;

	/* Nobody would read them. */
	if (store->is_gone)
		return MOETRACE_OK;
	if (sqlite3_exec(store->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return MOETRACE_E_IO;
	/* The failure is set aside, so that the statements run; it stays one, whatever they say. */
	store->status = MOETRACE_OK;
	store->in_transaction = 1;
	mt_store_recording_end(store, gap->recording_id, gap->end_ns, gap->reason);
	/* Nothing is said of a recording that never came into the file. */
	if (sqlite3_changes(store->db)) {
		if (gap->n_lost)
			mt_store_gap(store, gap);
		mt_store_stat(store, gap->recording_id, "dropped_passes", dropped_passes);
	}
	if (mt_store_step(store, MT_STMT_COMMIT) == MOETRACE_OK) {
		store->in_transaction = 0;
		store->status = status;
		return MOETRACE_OK;
	}
	store->status = status;
	return MOETRACE_E_IO;
}

int mt_store_revive(struct mt_store *store)
{
	int status = store->status;

	/* Also when it is back: the name may have been another file's in between. */
	if (store->is_gone)
		return status;
	/* Runs that were growing were of what is lost. */
	mt_store_free_runs(store);
	memset(store->runs, 0, sizeof(store->runs));
	store->stats.pending_bytes = 0;
	store->status = MOETRACE_OK;
	if (mt_store_begin(store) == MOETRACE_OK &&
	    mt_store_meta(store, "format", "moetrace") == MOETRACE_OK &&
	    mt_store_commit(store) == MOETRACE_OK)
		return MOETRACE_OK;
	if (!store->status)
		store->status = status;
	return store->status;
}

void mt_store_swap(struct mt_store *store, struct mt_store *other)
{
	struct mt_store kept = *store;

	*store = *other;
	*other = kept;
}

static uint64_t page_count(struct mt_store *store)
{
	sqlite3_stmt *stmt = NULL;
	uint64_t n_pages = 0;

	if (sqlite3_prepare_v2(store->db, "PRAGMA page_count", -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		n_pages = (uint64_t)sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return n_pages;
}

/*
 * A trace is written at its end: pages of before are not needed again, and would fill the cache up to
 * its bound in the course of a recording.
 */
static void shrink_cache(struct mt_store *store)
{
	int now = 0, peak;

	if (sqlite3_db_status(store->db, SQLITE_DBSTATUS_CACHE_USED, &now, &peak, 0) == SQLITE_OK &&
	    now > KEPT_CACHE_BYTES)
		(void)sqlite3_db_release_memory(store->db);
}

int mt_store_commit(struct mt_store *store)
{
	uint64_t begin_ns = mt_monotonic_ns();
	uint64_t length_ns;

	if (mt_store_close_runs(store) || !store->in_transaction)
		return store->status;
	if (check_is_there(store))
		return store->status;
	if (mt_store_step(store, MT_STMT_COMMIT))
		return store->status;
	store->in_transaction = 0;
	length_ns = mt_monotonic_ns() - begin_ns;
	store->stats.n_commits++;
	if (length_ns > store->stats.longest_commit_ns)
		store->stats.longest_commit_ns = length_ns;
	store->stats.database_bytes = page_count(store) * PAGE_BYTES;
	store->stats.journal_bytes = mt_store_file_journal_bytes(store);
	store->stats.pending_bytes = 0;
	shrink_cache(store);
	return MOETRACE_OK;
}

int mt_store_checkpoint(struct mt_store *store, int even_if_short)
{
	int result;

	if (store->status || store->in_transaction)
		return store->status;
	if (!even_if_short && store->stats.journal_bytes < CHECKPOINT_BYTES)
		return MOETRACE_OK;
	result = sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	if (result != SQLITE_OK && result != SQLITE_BUSY && result != SQLITE_LOCKED)
		return mt_store_fail(store, "copy the journal into the file");
	return MOETRACE_OK;
}

/* Leave WAL, which needs the file for ourselves. Returns 1 when it is done. */
static int fold(struct mt_store *store, uint64_t wait_ns)
{
	const struct timespec pause = { 0, 20 * 1000 * 1000 };
	uint64_t waited_ns = 0, before_ns = mt_monotonic_ns();

	for (;;) {
		uint64_t now_ns;
		sqlite3_stmt *stmt = NULL;
		int is_folded = 0;

		if (sqlite3_prepare_v2(store->db, "PRAGMA journal_mode = DELETE", -1, &stmt,
				       NULL) == SQLITE_OK &&
		    sqlite3_step(stmt) == SQLITE_ROW)
			is_folded = !sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 0),
						     "delete");
		sqlite3_finalize(stmt);
		if (is_folded) {
			mt_store_file_remove_empty_journal(store);
			return 1;
		}
		now_ns = mt_monotonic_ns();
		waited_ns += now_ns - before_ns < FOLD_LOOK_MOST_NS ? now_ns - before_ns :
								      FOLD_LOOK_MOST_NS;
		before_ns = now_ns;
		if (waited_ns >= wait_ns)
			return 0;
		nanosleep(&pause, NULL);
	}
}

int mt_store_close(struct mt_store *store, int64_t close_ns, uint64_t wait_ns, int *ret_folded)
{
	int status;

	mt_store_commit(store);
	/* A failed store keeps its journal: folding it could fail half-way for the same reason. */
	*ret_folded = !store->status && fold(store, wait_ns);
	if (!*ret_folded && mt_store_begin(store) == MOETRACE_OK) {
		mt_store_diagnostic(store, MT_NULL, close_ns, "warning", "store",
				    "another program kept the file open at close: its journal "
				    "(-wal) stays beside it; keep both together",
				    1);
		mt_store_commit(store);
	}
	status = store->status;
	free_store(store);
	return status;
}
