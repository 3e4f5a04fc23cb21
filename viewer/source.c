/* SPDX-License-Identifier: MIT */
/*
 * Connections to a trace. Each is opened read-only, with schema and functions of the file
 * mistrusted, and refuses everything but reading: other files, pragmas that set something,
 * extensions, writing. Large intermediate results stay in memory, which is limited for the
 * process, so that no query can fill a disk.
 */
#include "viewer/source.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "schema/functions/mt_sql.h"
#include "viewer/progress.h"
#include "viewer/redact.h"
#include "viewer/timeline.h"
#include "viewer/view.h"

/* Steps of SQLite's machine between two looks at the clock: some 10 microseconds. */
#define STEPS_A_LOOK 2000

int64_t mt_source_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- whether it is the file that was opened ---- */

/* The file is never opened here but by SQLite: closing another descriptor would drop its locks. */
static void version_make(const struct mt_source *source, const struct stat *file, char *version)
{
	struct stat wal = {.st_size = 0};
	char *path = NULL;

	if (asprintf(&path, "%s-wal", source->path) >= 0) {
		if (stat(path, &wal) != 0)
			memset(&wal, 0, sizeof(wal));
		free(path);
	}
	snprintf(version, MT_STATE_VERSION_BYTES, "%jx.%jx.%lx.%jx.%jx.%lx",
		 (intmax_t)file->st_size, (intmax_t)file->st_mtim.tv_sec, file->st_mtim.tv_nsec,
		 (intmax_t)wal.st_size, (intmax_t)wal.st_mtim.tv_sec, wal.st_mtim.tv_nsec);
}

bool mt_source_has_writer(const struct mt_source *source)
{
	return source->writer_pid > 0 &&
	       (kill((pid_t)source->writer_pid, 0) == 0 || errno == EPERM);
}

/* A writer that is not known may be there. */
static bool may_grow(const struct mt_source *source)
{
	return source->is_live && (source->writer_pid <= 0 || mt_source_has_writer(source));
}

enum mt_source_change mt_source_look(struct mt_source *source, char ret_version[MT_STATE_VERSION_BYTES])
{
	const bool grows = may_grow(source);
	struct stat file;
	bool is_same;

	ret_version[0] = '\0';
	if (stat(source->path, &file) != 0)
		return MT_SOURCE_DELETED;
	if (file.st_dev != source->device || file.st_ino != source->inode)
		return MT_SOURCE_REPLACED;
	version_make(source, &file, ret_version);
	if (grows)
		return MT_SOURCE_SAME;
	pthread_mutex_lock(&source->lock);
	if (!source->version[0])
		memcpy(source->version, ret_version, MT_STATE_VERSION_BYTES);
	is_same = strcmp(source->version, ret_version) == 0;
	pthread_mutex_unlock(&source->lock);
	return is_same ? MT_SOURCE_SAME : MT_SOURCE_CHANGED;
}

const char *mt_source_change_text(enum mt_source_change change)
{
	switch (change) {
	case MT_SOURCE_DELETED:
		return "was deleted, or has another name now; end the viewer and open it again";
	case MT_SOURCE_REPLACED:
		return "was replaced by another file; end the viewer and open it again";
	case MT_SOURCE_CHANGED:
		return "was changed since it was opened; end the viewer and open it again";
	default:
		return NULL;
	}
}

/* Whether a connection that was just opened is to the file that was opened first. */
static bool is_of_source(struct mt_source *source, sqlite3 *db)
{
	char version[MT_STATE_VERSION_BYTES];
	int has_moved = 1;

	return mt_source_look(source, version) == MT_SOURCE_SAME &&
	       sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved) == SQLITE_OK &&
	       !has_moved;
}

/* ---- what SQL may do ---- */

static bool is_one_of(const char *word, const char *const *words)
{
	for (; word && *words; words++)
		if (sqlite3_stricmp(word, *words) == 0)
			return true;
	return false;
}

/* Those that describe tables; they set nothing, whatever argument they get. */
static const char *const pragmas[] = {
	"table_info", "table_xinfo", "table_list",    "index_list",   "index_info",
	"index_xinfo", "collation_list", "function_list", "compile_options", NULL,
};

/* Those that set something where they have an argument. */
static const char *const plain_pragmas[] = {
	"application_id", "user_version", "data_version", "page_count", "page_size", "encoding", NULL,
};

static const char *const schema_tables[] = {"sqlite_master", "sqlite_schema", NULL};

static const char *const refused_functions[] = {"load_extension", "fts3_tokenizer", NULL};

static int authorize(void *context, int action, const char *first, const char *second,
		     const char *database, const char *trigger)
{
	const struct mt_source_run *run = context;

	switch (action) {
	case SQLITE_SELECT:
	case SQLITE_RECURSIVE:
		return SQLITE_OK;
	case SQLITE_READ:
		return run->redacted ? mt_redacted_read(run->redacted, &(struct mt_column_read){
					       .database = database, .table = first,
					       .column = second, .view = trigger},
					       run->is_of_user)
				     : SQLITE_OK;
	case SQLITE_FUNCTION:
		return is_one_of(second, refused_functions) ? SQLITE_DENY : SQLITE_OK;
	case SQLITE_PRAGMA:
		return is_one_of(first, pragmas) || (!second && is_one_of(first, plain_pragmas))
			       ? SQLITE_OK
			       : SQLITE_DENY;
	case SQLITE_INSERT:
	case SQLITE_UPDATE:
		/* Asked for when a table-valued function declares its columns. The file cannot be
		   written, and SQLite refuses the same of a statement. */
		return is_one_of(first, schema_tables) ? SQLITE_OK : SQLITE_DENY;
	default:
		return SQLITE_DENY;
	}
}

/* ---- how long it may take ---- */

static bool is_peer_gone(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static int look(void *context)
{
	struct mt_source_run *run = context;

	mt_progress_look(run);
	if (atomic_load_explicit(run->source->stops, memory_order_relaxed))
		run->state = MT_RUN_STOPPED;
	else if (mt_source_now_ns() > run->deadline_ns)
		run->state = MT_RUN_TIMED_OUT;
	else if (run->peer_fd >= 0 && is_peer_gone(run->peer_fd))
		run->state = MT_RUN_PEER_GONE;
	return run->state != MT_RUN_GOES_ON;
}

/* ---- connections ---- */

static const struct {
	int limit, value;
} limits[] = {
	{SQLITE_LIMIT_LENGTH, 64 << 20},   {SQLITE_LIMIT_SQL_LENGTH, 1 << 20},
	{SQLITE_LIMIT_EXPR_DEPTH, 200},	   {SQLITE_LIMIT_COMPOUND_SELECT, 100},
	{SQLITE_LIMIT_ATTACHED, 0},	   {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000},
	{SQLITE_LIMIT_TRIGGER_DEPTH, 0},   {SQLITE_LIMIT_WORKER_THREADS, 0},
	{SQLITE_LIMIT_VDBE_OP, 1000000},   {SQLITE_LIMIT_FUNCTION_ARG, 100},
};

static int db_restrict(sqlite3 *db)
{
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0, NULL);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		sqlite3_limit(db, limits[i].limit, limits[i].value);
	return sqlite3_exec(db, "PRAGMA temp_store=2; PRAGMA mmap_size=0; "
				"PRAGMA cell_size_check=1", NULL, NULL, NULL);
}

static void run_close(struct mt_source_run *run)
{
	sqlite3_close(run->db);
	mt_redacted_free(run->redacted);
	free(run);
}

static int redacted_read(struct mt_source_run *run)
{
	run->redacted = mt_redacted_new(run->db);
	return run->redacted ? SQLITE_OK : SQLITE_ERROR;
}

static struct mt_source_run *run_open(struct mt_source *source)
{
	struct mt_source_run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return NULL;
	run->source = source;
	rc = sqlite3_open_v2(source->uri, &run->db,
			     SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(run->db, 2000);
	if (rc == SQLITE_OK)
		rc = db_restrict(run->db);
	if (rc == SQLITE_OK)
		rc = mt_sql_register(run->db);
	if (rc == SQLITE_OK && source->is_redacted)
		rc = redacted_read(run);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(run->db, "PRAGMA query_only=1", NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_set_authorizer(run->db, authorize, run);
	if (rc == SQLITE_OK && is_of_source(source, run->db)) {
		sqlite3_progress_handler(run->db, STEPS_A_LOOK, look, run);
		return run;
	}
	run_close(run);
	return NULL;
}

bool mt_source_init(struct mt_source *source, const struct mt_view_file *file, bool is_redacted,
		    const atomic_bool *stops)
{
	const char *name = strrchr(file->path, '/');
	char version[MT_STATE_VERSION_BYTES];
	struct stat info;

	memset(source, 0, sizeof(*source));
	source->path = strdup(file->path);
	source->name = strdup(name ? name + 1 : file->path);
	source->uri = strdup(file->uri);
	source->is_live = file->is_live;
	source->writer_pid = file->writer_pid;
	if (stat(file->path, &info) == 0) {
		source->device = info.st_dev;
		source->inode = info.st_ino;
	}
	source->is_redacted = is_redacted;
	source->stops = stops;
	pthread_mutex_init(&source->lock, NULL);
	pthread_mutex_init(&source->timeline_lock, NULL);
	pthread_cond_init(&source->is_free, NULL);
	if (source->path && source->name && source->uri) {
		(void)mt_source_look(source, version);
		return true;
	}
	mt_source_destroy(source);
	return false;
}

void mt_source_destroy(struct mt_source *source)
{
	mt_timeline_free(source->timeline); /* its thread has a connection */
	for (size_t i = 0; i < source->n_idle; i++)
		run_close(source->idle[i]);
	pthread_cond_destroy(&source->is_free);
	pthread_mutex_destroy(&source->lock);
	pthread_mutex_destroy(&source->timeline_lock);
	free(source->path);
	free(source->name);
	free(source->uri);
}

/* Wait at most 10 s, under the lock, until fewer than @max connections are in use. */
static bool free_await(struct mt_source *source, size_t max)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	while (source->n_open - source->n_idle >= max)
		if (pthread_cond_timedwait(&source->is_free, &source->lock, &until) != 0)
			return false;
	return true;
}

static struct mt_source_run *run_take(struct mt_source *source, size_t max, uint32_t limit_ms,
				      int peer_fd)
{
	char version[MT_STATE_VERSION_BYTES];
	struct mt_source_run *run = NULL;
	bool opens = false;

	/* The answers of an idle connection would be of another file than those of a new one. */
	if (mt_source_look(source, version) != MT_SOURCE_SAME)
		return NULL;
	pthread_mutex_lock(&source->lock);
	if (free_await(source, max)) {
		opens = source->n_idle == 0;
		if (opens)
			source->n_open++;
		else
			run = source->idle[--source->n_idle];
	}
	pthread_mutex_unlock(&source->lock);
	if (opens)
		run = run_open(source);
	if (run) {
		run->deadline_ns = mt_source_now_ns() + (int64_t)limit_ms * 1000000;
		run->peer_fd = peer_fd;
		run->is_of_user = false;
		run->progress = NULL;
		run->state = MT_RUN_GOES_ON;
	} else if (opens) {
		pthread_mutex_lock(&source->lock);
		source->n_open--;
		pthread_cond_broadcast(&source->is_free);
		pthread_mutex_unlock(&source->lock);
	}
	return run;
}

struct mt_source_run *mt_source_take(struct mt_source *source, uint32_t limit_ms, int peer_fd)
{
	return run_take(source, MT_SOURCE_QUESTIONS, limit_ms, peer_fd);
}

struct mt_source_run *mt_source_take_spare(struct mt_source *source, uint32_t limit_ms)
{
	return run_take(source, MT_SOURCE_CONNECTIONS, limit_ms, -1);
}

void mt_source_return(struct mt_source_run *run)
{
	struct mt_source *source = run->source;
	const bool is_kept = !source->is_live;

	if (!is_kept)
		run_close(run);
	pthread_mutex_lock(&source->lock);
	if (is_kept)
		source->idle[source->n_idle++] = run;
	else
		source->n_open--;
	/* Who waits may use one more or not. */
	pthread_cond_broadcast(&source->is_free);
	pthread_mutex_unlock(&source->lock);
}
