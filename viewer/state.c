/* SPDX-License-Identifier: MIT */
/*
 * The state of a trace that may be growing. One that was changed in place is another one, and
 * counts as replaced.
 */
#include "viewer/state.h"

#include <string.h>

#define STATE_LIMIT_MS 5000

struct seen {
	const char *state;
	int64_t last_pass_id, recording_id, n_recordings;
	char end_reason[64]; /* "": none */
	bool is_open;
};

static const char sql_state[] =
	"SELECT coalesce((SELECT max(pass_id) FROM pass), 0), recording_id, (SELECT count(*) FROM "
	"recording), end_ns IS NULL, end_reason FROM recording ORDER BY recording_id DESC LIMIT 1";

static bool seen_read(struct mt_source *source, struct seen *seen)
{
	struct mt_source_run *run = mt_source_take_spare(source, STATE_LIMIT_MS);
	sqlite3_stmt *stmt = NULL;
	int rc = SQLITE_ERROR;

	if (!run)
		return false;
	if (sqlite3_prepare_v2(run->db, sql_state, -1, &stmt, NULL) == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		const unsigned char *reason = sqlite3_column_text(stmt, 4);

		seen->last_pass_id = sqlite3_column_int64(stmt, 0);
		seen->recording_id = sqlite3_column_int64(stmt, 1);
		seen->n_recordings = sqlite3_column_int64(stmt, 2);
		seen->is_open = sqlite3_column_int(stmt, 3);
		snprintf(seen->end_reason, sizeof(seen->end_reason), "%s",
			 reason ? (const char *)reason : "");
	}
	sqlite3_finalize(stmt);
	mt_source_return(run);
	return rc == SQLITE_ROW || rc == SQLITE_DONE;
}

static const char *state_of(const struct mt_source *source, const struct seen *seen)
{
	const bool may_start = seen->n_recordings == 0 || strcmp(seen->end_reason, "stopped") == 0;

	if (!source->is_live)
		return "still";
	if (!mt_source_has_writer(source))
		return seen->is_open ? "killed" : "ended";
	if (seen->is_open)
		return "recording";
	return may_start ? "idle" : "ended";
}

static void state_write(const struct seen *seen, const char *version, struct mt_view_reply *reply)
{
	struct mt_jsonw *json = &reply->json;

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "state");
	mt_jsonw_string(json, seen->state);
	mt_jsonw_key(json, "version");
	mt_jsonw_string(json, version);
	mt_jsonw_key(json, "last_pass_id");
	mt_jsonw_int64(json, seen->last_pass_id);
	mt_jsonw_key(json, "recording_id");
	mt_jsonw_int64(json, seen->recording_id);
	mt_jsonw_key(json, "n_recordings");
	mt_jsonw_int64(json, seen->n_recordings);
	mt_jsonw_key(json, "end_reason");
	if (seen->end_reason[0])
		mt_jsonw_string(json, seen->end_reason);
	else
		mt_jsonw_null(json);
	mt_jsonw_object_end(json);
}

/* NULL: it depends on what is in it. */
static const char *state_of_file(enum mt_source_change change)
{
	if (change == MT_SOURCE_SAME)
		return NULL;
	return change == MT_SOURCE_DELETED ? "deleted" : "replaced";
}

void mt_state_answer(struct mt_source *source, struct mt_view_reply *reply)
{
	char version[MT_STATE_VERSION_BYTES];
	struct seen seen = {.state = state_of_file(mt_source_look(source, version))};

	if (!seen.state) {
		if (!seen_read(source, &seen)) {
			mt_view_reply_fail(reply, MT_REPLY_BUSY, "%s: cannot be read now",
					   source->name);
			mt_view_reply_end(reply);
			return;
		}
		seen.state = state_of(source, &seen);
	} else {
		version[0] = '\0';
	}
	state_write(&seen, version, reply);
	mt_view_reply_end(reply);
}
