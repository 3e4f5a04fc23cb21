/* SPDX-License-Identifier: MIT */
/*
 * dump SESSION -o FILE, dump --all -o FOLDER: one recording of a live session, or of each, as a
 * trace of its own. The session commits and says what its last pass is; the copy is taken in one
 * read transaction in which that pass is still the last one, so that it equals the recording cut
 * there. The session goes on.
 */
#include "cli/cmd_dump.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/live.h"
#include "cli/out_file.h"
#include "cli/snapshot.h"

/* A session that commits often may commit between its answer and the copy. */
#define MAX_TRIES 50

static int commit_ask(const struct mt_live *live, struct mt_live_answer *ret_answer)
{
	char label[300];

	if (mt_live_call(live, "dump", ret_answer) < 0)
		return MT_EXIT_FAILED;
	if (ret_answer->is_ok)
		return MT_EXIT_OK;
	mt_error("%s: %s", mt_live_label(live, label, sizeof(label)), ret_answer->error);
	mt_live_answer_free(ret_answer);
	return MT_EXIT_FAILED;
}

/* The recording that is still open in the source ends at the commit. */
static int end_set(struct mt_snapshot *snapshot, const struct mt_live_answer *answer)
{
	char *sql = sqlite3_mprintf(
		"UPDATE recording SET end_reason = 'dump', end_ns = max(%lld, start_ns, "
		"(SELECT coalesce(max(coalesce(end_ns, begin_ns)), 0) FROM pass)) "
		"WHERE end_ns IS NULL",
		atoll(mt_live_value(answer, "commit_ns")));
	int status = sql ? mt_snapshot_exec(snapshot, sql) : MT_EXIT_FAILED;

	sqlite3_free(sql);
	return status;
}

/* Another recording than the current one does not change any more. */
static int copy_once(const struct mt_live *live, const struct mt_dump_live *dump,
		     struct mt_snapshot *snapshot, bool *ret_is_later)
{
	struct mt_live_answer answer;
	int64_t recording_id, last_pass_id = -1;
	int status = commit_ask(live, &answer);

	*ret_is_later = false;
	if (status != MT_EXIT_OK)
		return status;
	recording_id = atoll(mt_live_value(&answer, "recording_id"));
	if (dump->recording_id && (int64_t)dump->recording_id != recording_id)
		recording_id = (int64_t)dump->recording_id;
	else
		last_pass_id = atoll(mt_live_value(&answer, "last_pass_id"));
	status = mt_snapshot_copy(snapshot, mt_live_value(&answer, "file"), recording_id,
				  last_pass_id, ret_is_later);
	if (status == MT_EXIT_OK)
		status = end_set(snapshot, &answer);
	mt_live_answer_free(&answer);
	return status;
}

static int recording_check(struct mt_snapshot *snapshot, const struct mt_dump_live *dump)
{
	struct mt_trace trace = {.db = snapshot->db, .path = snapshot->path};
	int64_t n;
	int status = mt_trace_int(&trace, "SELECT count(*) FROM recording", &n);

	if (status == MT_EXIT_OK && n == 0) {
		mt_error("the session has no recording %llu in the file that it records into",
			 (unsigned long long)dump->recording_id);
		return MT_EXIT_NOT_FOUND;
	}
	return status;
}

static int session_dump(const struct mt_live *live, const struct mt_dump_live *dump,
			const char *output)
{
	struct mt_snapshot snapshot;
	char label[300];
	const char *file = mt_live_value(&live->status, "file");
	bool is_later = true;
	int status, i;

	if (*file)
		mt_out_file_input(file);
	status = mt_snapshot_begin(output, dump->overwrites, &snapshot);
	if (status != MT_EXIT_OK)
		return status;
	for (i = 0; i < MAX_TRIES && is_later; i++)
		status = copy_once(live, dump, &snapshot, &is_later);
	if (is_later)
		mt_error("%s: the session commits faster than it can be read; try again, or with a "
			 "longer commit_interval_ms",
			 mt_live_label(live, label, sizeof(label)));
	if (status == MT_EXIT_OK)
		status = recording_check(&snapshot, dump);
	if (status == MT_EXIT_OK)
		status = mt_snapshot_finish(&snapshot);
	if (status == MT_EXIT_OK)
		printf("%s\n", output);
	mt_snapshot_discard(&snapshot);
	return status;
}

/* As much of the session's name as may be in a file's; the rest is '_'. */
static void clean_name(const struct mt_live *live, char *buffer, size_t buffer_bytes)
{
	static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	const char *name = mt_live_value(&live->status, "name");
	size_t n = strlen(name) < buffer_bytes ? strlen(name) : buffer_bytes - 1;

	for (size_t i = 0; i < n; i++)
		buffer[i] = strchr(fine, name[i]) ? name[i] : '_';
	buffer[n] = '\0';
}

/* The session's name and that of its socket, which is its alone; free with sqlite3_free(). */
static char *path_of(const struct mt_live *live, const char *folder)
{
	char label[65];
	const char *slash = strrchr(live->socket, '/');
	const char *name = slash ? slash + 1 : live->socket;
	size_t n = strlen(name);

	if (n > 5 && strcmp(name + n - 5, ".sock") == 0)
		n -= 5;
	clean_name(live, label, sizeof(label));
	return sqlite3_mprintf("%s/%s.%.*s.db", folder, label, (int)n, name);
}

/* What fails with one session is said, and the others are copied all the same. */
static int each_dump(const struct mt_live_set *set, const struct mt_dump_live *dump)
{
	int status = MT_EXIT_OK;

	for (size_t i = 0; i < set->n_sessions; i++) {
		char *path = path_of(&set->sessions[i], dump->output);
		int result = MT_EXIT_FAILED;

		if (path)
			result = session_dump(&set->sessions[i], dump, path);
		else
			mt_error("out of memory");
		sqlite3_free(path);
		status = status == MT_EXIT_OK ? result : status;
	}
	return status;
}

static bool is_folder(const char *path)
{
	struct stat info;

	return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int mt_dump_live(const struct mt_dump_live *dump)
{
	const struct mt_live_choice choice = {dump->dir, &dump->session, dump->session != NULL,
					      dump->session == NULL};
	struct mt_live_set set;
	int status;

	if (!dump->session && !is_folder(dump->output)) {
		mt_error("%s is no folder, and with --all -o names the folder that gets a file a "
			 "session; make it first",
			 dump->output);
		return MT_EXIT_USAGE;
	}
	status = mt_live_find(&choice, &set);
	if (status != MT_EXIT_OK)
		return status;
	status = dump->session ? session_dump(&set.sessions[0], dump, dump->output) :
				 each_dump(&set, dump);
	mt_live_close(&set);
	return status;
}
