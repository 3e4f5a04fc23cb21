/* SPDX-License-Identifier: MIT */
/*
 * Opening a trace for reading. Nothing is ever written to the file. The order of the checks makes
 * the most helpful message win: is it there, is it a file, is it SQLite, is it a trace, is its
 * schema known. The file's own descriptor is closed before SQLite opens it, because closing a
 * descriptor drops the process's locks on the file.
 */
#include "cli/cli.h"
#include "cli/out_file.h"
#include "cli/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/functions/mt_sql.h"

/* Of the header of an SQLite file: the part that is looked at, and where a WAL file says so. */
#define HEADER_BYTES	     20
#define HEADER_WRITE_VERSION 18

/* Where SQLite keeps the locks of readers: the bytes of its file format, documented there. */
#define SHARED_FIRST (0x40000000 + 2)
#define SHARED_SIZE  510

/* How SQLite opens a file that is whole as it lies there, and one that others may have open. */
#define PARAMETERS_IMMUTABLE "immutable=1&" MT_READ_AHEAD_PARAMETER
#define PARAMETERS_SHARED    "mode=ro&" MT_READ_AHEAD_PARAMETER

static int path_check(const char *path, struct mt_trace *trace)
{
	struct stat info;

	if (stat(path, &info) != 0) {
		if (errno == ENOENT || errno == ENOTDIR) {
			mt_error("%s: no such file; give the path of a trace", path);
			return MT_EXIT_NOT_FOUND;
		}
		mt_error("%s: %s; check the path and its permissions", path, strerror(errno));
		return MT_EXIT_FAILED;
	}
	if (!S_ISREG(info.st_mode)) {
		mt_error("%s: is %s, not a regular file; give the path of a trace", path,
			 S_ISDIR(info.st_mode) ? "a directory" : "a special file");
		return MT_EXIT_FAILED;
	}
	trace->file_bytes = info.st_size;
	return MT_EXIT_OK;
}

/* Whether somebody else holds the lock that every open connection of a WAL file holds. */
static bool is_locked(int fd)
{
	struct flock lock = {.l_type = F_WRLCK,
			     .l_whence = SEEK_SET,
			     .l_start = SHARED_FIRST,
			     .l_len = SHARED_SIZE};

	return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int header_check(const char *path, struct mt_trace *trace)
{
	static const char magic[16] = "SQLite format 3";
	char header[HEADER_BYTES];
	ssize_t n;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		mt_error("%s: cannot be read: %s; check its permissions", path, strerror(errno));
		return MT_EXIT_FAILED;
	}
	n = pread(fd, header, sizeof(header), 0);
	trace->is_held = is_locked(fd);
	close(fd);
	if (n == 0) {
		mt_error("%s: is empty, not a trace; nothing was recorded into it", path);
		return MT_EXIT_FAILED;
	}
	trace->is_wal = n == sizeof(header) && header[HEADER_WRITE_VERSION] == 2;
	if (n != sizeof(header) || memcmp(header, magic, sizeof(magic)) != 0) {
		mt_error("%s: is not an SQLite file, so not a trace; give the file that "
			 "'moetrace run -o' or a session wrote",
			 path);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

/*
 * "file:PATH?PARAMETERS" with everything escaped that a URI could misread; NULL: no memory. A
 * relative path begins with "./", so that ":memory:" and the like are names of files, and in front
 * of an absolute one stands an empty host, so that "//x" names none.
 */
char *mt_trace_uri(const char *path, const char *parameters)
{
	size_t max = strlen(path) * 3 + strlen(parameters) + 16;
	char *uri = malloc(max);
	char *to = uri;

	if (!uri)
		return NULL;
	to += sprintf(to, "file:%s", path[0] == '/' ? "//" : "./");
	for (; *path; path++) {
		if (strchr("%?#", *path) || (unsigned char)*path < 0x20)
			to += sprintf(to, "%%%02x", (unsigned char)*path);
		else
			*to++ = *path;
	}
	sprintf(to, "?%s", parameters);
	return uri;
}

/* Open and read once, so that a journal that cannot be used shows here. Returns SQLite's code. */
static int connection_open(const char *path, const char *parameters, sqlite3 **ret_db)
{
	sqlite3 *db = NULL;
	char *uri = mt_trace_uri(path, parameters);
	int rc;

	if (!uri)
		return SQLITE_NOMEM;
	rc = mt_read_ahead_register();
	if (rc != SQLITE_OK) {
		free(uri);
		return rc;
	}
	rc = sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
			     NULL);
	free(uri);
	if (rc == SQLITE_OK) {
		sqlite3_busy_timeout(db, 5000);
		sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
		sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
		rc = sqlite3_exec(db, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
	}
	*ret_db = db;
	return rc;
}

static void wal_size_read(struct mt_trace *trace)
{
	struct stat info;
	char *path = malloc(strlen(trace->path) + sizeof("-wal"));

	if (!path)
		return;
	sprintf(path, "%s-wal", trace->path);
	if (stat(path, &info) == 0)
		trace->wal_bytes = info.st_size;
	free(path);
}

/* A journal in a folder that we may not write cannot be read by SQLite: read the file alone. */
static int immutable_open(struct mt_trace *trace)
{
	int rc;

	sqlite3_close(trace->db);
	trace->db = NULL;
	trace->parameters = PARAMETERS_IMMUTABLE;
	rc = connection_open(trace->path, trace->parameters, &trace->db);
	if (rc != SQLITE_OK)
		return rc;
	trace->is_immutable = true;
	if (trace->wal_bytes > 0)
		mt_warn("%s: its journal %s-wal (%lld bytes) cannot be read because the folder is "
			"not writable; rows that are only there are missing: copy both files to a "
			"writable folder",
			trace->path, trace->path, (long long)trace->wal_bytes);
	return SQLITE_OK;
}

static int trace_connect(struct mt_trace *trace)
{
	int rc;

	/*
	 * A WAL file without a journal that nobody has open is whole: opened as such, it gets no
	 * empty journal beside it, which a reader could not remove again.
	 */
	trace->parameters = trace->is_wal && !trace->is_held && !trace->wal_bytes
				    ? PARAMETERS_IMMUTABLE
				    : PARAMETERS_SHARED;
	rc = connection_open(trace->path, trace->parameters, &trace->db);
	if (rc == SQLITE_CANTOPEN || rc == SQLITE_READONLY)
		rc = immutable_open(trace);
	if (rc == SQLITE_OK)
		return MT_EXIT_OK;
	if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT)
		mt_error("%s: is damaged: %s; nothing of it can be read", trace->path,
			 sqlite3_errmsg(trace->db));
	else
		mt_error("%s: cannot be opened: %s; try again or copy the file", trace->path,
			 trace->db ? sqlite3_errmsg(trace->db) : sqlite3_errstr(rc));
	return MT_EXIT_FAILED;
}

static int identity_check(const struct mt_trace *trace)
{
	int64_t id;
	int64_t version;
	int status;

	status = mt_trace_int(trace, "PRAGMA application_id", &id);
	if (status == MT_EXIT_OK)
		status = mt_trace_int(trace, "PRAGMA user_version", &version);
	if (status != MT_EXIT_OK)
		return status;
	if (id != MT_APPLICATION_ID) {
		mt_error("%s: is an SQLite file of another program, not a trace (application_id "
			 "%lld); give the file that 'moetrace run -o' or a session wrote",
			 trace->path, (long long)id);
		return MT_EXIT_FAILED;
	}
	if (version > MT_SCHEMA_VERSION) {
		mt_error("%s: has schema %lld.%lld, newer than %d.%d, the newest that this program "
			 "knows; use a newer moetrace",
			 trace->path, (long long)version / 1000, (long long)version % 1000,
			 MT_SCHEMA_VERSION / 1000, MT_SCHEMA_VERSION % 1000);
		return MT_EXIT_SCHEMA;
	}
	return MT_EXIT_OK;
}

int mt_trace_open(const char *path, struct mt_trace *ret_trace)
{
	struct mt_trace trace = {.path = path};
	int status;

	mt_out_file_input(path);
	status = path_check(path, &trace);
	if (status == MT_EXIT_OK)
		status = header_check(path, &trace);
	if (status != MT_EXIT_OK)
		return status;
	wal_size_read(&trace);
	status = trace_connect(&trace);
	if (status == MT_EXIT_OK)
		status = identity_check(&trace);
	if (status == MT_EXIT_OK && mt_sql_register(trace.db) != SQLITE_OK)
		status = mt_trace_error(&trace);
	if (status != MT_EXIT_OK) {
		sqlite3_close(trace.db);
		return status;
	}
	*ret_trace = trace;
	return MT_EXIT_OK;
}

int mt_trace_attach(const struct mt_trace *trace, const char *path, const char *schema)
{
	struct mt_trace other;
	int status = mt_trace_open(path, &other);
	char *uri, *sql;
	int rc = SQLITE_NOMEM;

	if (status != MT_EXIT_OK)
		return status;
	uri = mt_trace_uri(path, other.parameters);
	sql = uri ? sqlite3_mprintf("ATTACH %Q AS \"%w\"", uri, schema) : NULL;
	mt_trace_close(&other);
	if (sql)
		rc = sqlite3_exec(trace->db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
	free(uri);
	if (rc == SQLITE_OK)
		return MT_EXIT_OK;
	mt_error("%s: cannot be opened beside %s: %s; try again or copy the file", path, trace->path,
		 rc == SQLITE_NOMEM ? "out of memory" : sqlite3_errmsg(trace->db));
	return MT_EXIT_FAILED;
}

void mt_trace_close(struct mt_trace *trace)
{
	sqlite3_close(trace->db);
	trace->db = NULL;
}

/* Whether the process @pid of the boot @boot_id still exists on this machine. */
static bool process_exists(const char *boot_id, pid_t pid)
{
	char text[64] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	bool is_read;

	if (!file)
		return false;
	is_read = fgets(text, sizeof(text), file) != NULL;
	fclose(file);
	text[strcspn(text, "\n")] = '\0';
	return is_read && boot_id && strcmp(text, boot_id) == 0 && pid > 0 &&
	       (kill(pid, 0) == 0 || errno == EPERM);
}

enum mt_writer mt_trace_writer(const struct mt_trace *trace, int64_t recording_id)
{
	sqlite3_stmt *stmt;
	enum mt_writer writer = MT_WRITER_GONE;

	if (!trace->is_held)
		return MT_WRITER_GONE;
	stmt = mt_trace_prepare(trace,
				"SELECT p.boot_id, p.pid FROM recording AS r "
				"JOIN process AS p USING (process_id) WHERE r.recording_id = ?1");
	if (!stmt)
		return MT_WRITER_GONE;
	sqlite3_bind_int64(stmt, 1, recording_id);
	if (sqlite3_step(stmt) == SQLITE_ROW &&
	    process_exists((const char *)sqlite3_column_text(stmt, 0),
			   (pid_t)sqlite3_column_int64(stmt, 1)))
		writer = MT_WRITER_LIVE;
	sqlite3_finalize(stmt);
	return writer;
}

int64_t mt_trace_writer_pid(const struct mt_trace *trace)
{
	sqlite3_stmt *stmt;
	int64_t pid = 0;

	if (!trace->is_held)
		return 0;
	stmt = mt_trace_prepare(trace, "SELECT boot_id, pid FROM process ORDER BY process_id");
	while (stmt && sqlite3_step(stmt) == SQLITE_ROW)
		if (process_exists((const char *)sqlite3_column_text(stmt, 0),
				   (pid_t)sqlite3_column_int64(stmt, 1)))
			pid = sqlite3_column_int64(stmt, 1);
	sqlite3_finalize(stmt);
	return pid;
}
