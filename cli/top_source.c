/* SPDX-License-Identifier: MIT */
/*
 * The file that is looked at, and what becomes of it: it may be deleted, moved, replaced by another
 * one, or left behind by a session that goes on elsewhere. It is open only during a look.
 */
#include "cli/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/live.h"

#define ASK_NS	  1000000000
#define NOTICE_NS 10000000000
/* The file is closed for so many times as long as it was open. */
#define REST	  9

/* The path of the file that session @target records into; to be freed. */
static int session_ask(const char *target, const char *dir, char **ret_path)
{
	const struct mt_live_choice choice = {dir, &target, 1, false};
	struct mt_live_set set;
	int status = mt_live_find(&choice, &set);

	if (status != MT_EXIT_OK)
		return status;
	*ret_path = strdup(mt_live_value(&set.sessions[0].status, "file"));
	mt_live_close(&set);
	if (*ret_path)
		return MT_EXIT_OK;
	mt_error("out of memory");
	return MT_EXIT_FAILED;
}

int mt_top_source_find(struct mt_top_source *source, const char *target, const char *dir)
{
	struct stat info;

	*source = (struct mt_top_source){.target = target, .dir = dir};
	source->is_session = stat(target, &info) != 0 || !S_ISREG(info.st_mode);
	if (source->is_session)
		return session_ask(target, dir, &source->path);
	source->path = strdup(target);
	if (source->path)
		return MT_EXIT_OK;
	mt_error("out of memory");
	return MT_EXIT_FAILED;
}

void mt_top_source_free(struct mt_top_source *source)
{
	free(source->path);
	source->path = NULL;
}

/* What happened once is said for a while. */
static void notice_set(struct mt_top_source *source, const char *what, const char *happened)
{
	snprintf(source->notice, sizeof(source->notice), "%s%s", what, happened);
	source->notice_until_ns = mt_top_clock_ns() + NOTICE_NS;
}

/* A session whose file ended or vanished may record into another one by now. */
static void session_follow(struct mt_top_source *source, struct mt_top *top)
{
	const int64_t now_ns = mt_top_clock_ns();
	const bool is_over = source->is_gone || top->facts.end == MT_TOP_ENDED ||
			     top->facts.end == MT_TOP_NO_END;
	char *path, reason[256];

	if (!source->is_session || !is_over || now_ns < source->ask_again_ns)
		return;
	source->ask_again_ns = now_ns + ASK_NS;
	mt_error_capture(reason, sizeof(reason));
	path = NULL;
	source->is_silent = session_ask(source->target, source->dir, &path) != MT_EXIT_OK;
	if (path && *path && strcmp(path, source->path) != 0) {
		notice_set(source, "the session goes on in ", path);
		free(source->path);
		source->path = path;
		path = NULL;
		source->has_seen = false;
		mt_top_reset(top);
	}
	mt_error_capture(NULL, 0);
	free(path);
}

/* Whether the path names another file than before. */
static void identity_look(struct mt_top_source *source, struct mt_top *top)
{
	struct stat info;

	if (stat(source->path, &info) != 0)
		return;
	if (source->has_seen && (info.st_dev != source->device || info.st_ino != source->inode)) {
		notice_set(source, source->path, " was replaced by another file, which is shown now");
		mt_top_reset(top);
	}
	source->has_seen = true;
	source->device = info.st_dev;
	source->inode = info.st_ino;
}

static int file_look(struct mt_top_source *source, struct mt_top *top)
{
	struct mt_trace trace;
	int status = mt_trace_open(source->path, &trace);

	if (status != MT_EXIT_OK)
		return status;
	source->is_held = trace.is_held;
	status = mt_trace_recording_check(&trace, top->recording_wanted);
	if (status == MT_EXIT_OK)
		status = mt_top_look(top, &trace);
	mt_trace_close(&trace);
	return status;
}

/* What a look said; an error is said as long as it lasts. */
static void outcome_take(struct mt_top_source *source, int status, const char *error)
{
	if ((status == MT_EXIT_OK && source->had_error) ||
	    mt_top_clock_ns() > source->notice_until_ns)
		source->notice[0] = '\0';
	source->is_held = source->is_held && status == MT_EXIT_OK;
	source->is_gone = access(source->path, F_OK) != 0;
	/* It may have gone while it was looked at. */
	source->had_error = status != MT_EXIT_OK || source->is_gone;
	if (source->is_gone)
		notice_set(source, source->path,
			   " was deleted or moved; what is shown is as it was last");
	else if (error[0])
		notice_set(source, error, "");
}

int mt_top_source_look(struct mt_top_source *source, struct mt_top *top, bool keeps)
{
	char error[sizeof(source->notice)] = "";
	int64_t begin_ns;
	int status;

	if (!keeps)
		return file_look(source, top);
	session_follow(source, top);
	identity_look(source, top);
	mt_error_capture(error, sizeof(error));
	begin_ns = mt_top_clock_ns();
	status = file_look(source, top);
	source->rest_ns = REST * (mt_top_clock_ns() - begin_ns);
	mt_error_capture(NULL, 0);
	outcome_take(source, status, error);
	return status;
}
