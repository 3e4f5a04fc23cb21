/* SPDX-License-Identifier: MIT */
/*
 * Rotation: the next file, in the middle of things. Passes that began before the switch belong
 * to the old recording and file, all others to the new ones, and none is lost between the two:
 * the writer leaves the records of later passes in their rings until all earlier ones have been
 * taken. The new file is made before the old one is closed; if it cannot be made, recording
 * goes on in the old file.
 */
#include "libtrace/writer_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtrace/clock.h"
#include "libtrace/options.h"

#define MAX_PARTS 1000000u
/* Readers of the old file may keep its journal alive; the next one must not wait for them. */
#define FOLD_PATIENCE_NS (100 * MT_NS_PER_MS)
/* A next file that could not be made is tried again after this. */
#define RETRY_NS (10 * MT_NS_PER_S)

/* "trace.db" and 3: "trace.3.db". */
static char *part_path(const char *base, uint32_t part)
{
	const char *slash = strrchr(base, '/');
	const char *name = slash ? slash + 1 : base;
	const char *dot = strrchr(name, '.');
	char *path;

	if (!dot || dot == name)
		dot = name + strlen(name);
	if (asprintf(&path, "%.*s.%lu%s", (int)(dot - base), base, (unsigned long)part, dot) < 0)
		return NULL;
	return path;
}

/* The next file: where @wanted says, or under the next number that is free. */
static int open_next(struct mt_writer *writer, const char *wanted, char **ret_path,
		     struct mt_store **ret_store)
{
	char error[MT_STORE_ERROR_BYTES] = "out of memory";
	int status = MOETRACE_E_EXISTS;

	for (uint32_t part = writer->n_parts + 1; status == MOETRACE_E_EXISTS && part < MAX_PARTS;
	     part++) {
		*ret_path = wanted ? strdup(wanted) : part_path(writer->session->base_path, part);
		status = *ret_path ? mt_store_open(*ret_path, ret_store, error) : MOETRACE_E_NOMEM;
		if (!status)
			return MOETRACE_OK;
		free(*ret_path);
		if (wanted)
			break;
	}
	return mt_session_error(writer->session, status, "rotate: %s", error);
}

static void close_old(struct mt_writer *writer, struct mt_store *old)
{
	int is_folded;

	(void)mt_store_close(old, (int64_t)mt_writer_now_ns(writer), FOLD_PATIENCE_NS, &is_folded);
}

static void set_path(struct mt_writer *writer, char *path)
{
	struct moetrace_session *session = writer->session;
	char *old = session->path;

	pthread_mutex_lock(&session->text);
	session->path = path;
	pthread_mutex_unlock(&session->text);
	mt_past_add(&writer->past, old);
}

/* Go on in the new file. The old one has been written to its end. */
static int move_to(struct mt_writer *writer, struct mt_store *next, char *path, int is_asked)
{
	struct mt_store_stats stats;

	mt_store_stats_get(writer->store, &stats);
	writer->parts_bytes = is_asked ? 0 : writer->parts_bytes + stats.database_bytes;
	mt_store_swap(writer->store, next);
	close_old(writer, next);
	set_path(writer, path);
	writer->n_parts++;
	writer->load.n_rows = 0;
	writer->file_recording_id = 0;
	memset(writer->file_ids, 0, sizeof(writer->file_ids));
	if (is_asked && writer->session->settings.has_default_limit)
		writer->limit_bytes = mt_default_file_limit_bytes(path);
	return mt_writer_define_all(writer);
}

/* Passes that the old file lacks, since it has failed or lost its name; now said in the new one. */
static int say_failure(struct mt_writer *writer, uint64_t n_lost, const char *error)
{
	char text[MT_STORE_ERROR_BYTES + 96];

	snprintf(text, sizeof(text), "the file before this one lacks %llu passes at its end: %s",
		 (unsigned long long)n_lost, error);
	return mt_store_diagnostic(writer->store, ++writer->last_diagnostic_id,
				   (int64_t)mt_writer_now_ns(writer), "warning", "store", text, 1);
}

/* Forget what was for a store that has failed; passes that are lost and were not counted yet. */
static uint64_t leave_failed(struct mt_writer *writer, char *ret_error)
{
	uint64_t n_lost = 0;

	snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s", mt_store_error(writer->store));
	if (!writer->status)
		n_lost = mt_writer_count_unstored(writer) + writer->losses.passes -
			 writer->committed_losses;
	(void)mt_ledger_stop(&writer->ledger);
	writer->recording_id = 0;
	writer->assembly.recording_id = 0;
	return n_lost + mt_flight_abandon(writer);
}

/* The recording goes on as @recording_id, as it was started. */
static int start_again(struct mt_writer *writer, uint32_t recording_id, uint64_t time_ns)
{
	struct mt_message none = { .type = MT_MESSAGE_START };
	struct mt_message *start = writer->start ? writer->start : &none;

	start->recording_id = recording_id;
	start->time_ns = time_ns;
	return mt_writer_start_recording(writer, start);
}

/*
 * End the recording, if there is one, and go on in the file @next, if it could be made. @next_id
 * 0: nothing is recorded afterwards; else passes since @switch_ns belong to it.
 */
static int rotate(struct mt_writer *writer, uint32_t next_id, uint64_t switch_ns,
		  struct mt_store *next, char *path, int is_asked)
{
	uint64_t n_lost = writer->discarded_passes;
	char error[MT_STORE_ERROR_BYTES] = "";
	int status = MOETRACE_OK;

	if (writer->flight.recording_id) {
		status = mt_flight_write(writer, "rotated", switch_ns);
		/* The file limit has ended the recording. */
		if (status && !mt_store_has_failed(writer->store))
			next_id = 0;
	} else if (writer->recording_id) {
		status = mt_writer_end_recording(writer, "rotated", mt_writer_now_ns(writer));
	}
	if (next) {
		if (mt_store_has_failed(writer->store))
			n_lost += leave_failed(writer, error);
		/* A failed store ends here, and with it the failure. */
		if (writer->has_last_words)
			(void)mt_store_last_words(writer->store, &writer->last_gap,
						  (int64_t)writer->losses.passes);
		writer->has_last_words = 0;
		mt_assembly_drop(&writer->assembly);
		mt_load_drop(&writer->load);
		status = move_to(writer, next, path, is_asked);
		if (!status && *error)
			status = say_failure(writer, n_lost, error);
		writer->status = MOETRACE_OK;
		writer->is_full = 0;
		atomic_store(&writer->session->failed, 0);
	}
	if (!status && next_id)
		status = start_again(writer, next_id, switch_ns);
	if (!status && next)
		status = mt_writer_commit(writer);
	return status;
}

int mt_writer_rotate(struct mt_writer *writer, const struct mt_message *message)
{
	uint32_t next_id = message->recording_id;
	struct mt_store *next = NULL;
	char *path = NULL;
	int open_status, status;

	/* The recording may have ended by itself after the caller looked. */
	if (next_id != atomic_load(&writer->session->recording_id))
		next_id = 0;
	open_status = open_next(writer, message->text, &path, &next);
	status = rotate(writer, next_id, message->number, next, path, 1);
	return status ? status : open_status;
}

/* Write what flight mode kept, and keep what follows as recording @next_id. */
static int dump(struct mt_writer *writer, uint32_t next_id, uint64_t switch_ns, const char *reason)
{
	int status = mt_flight_write(writer, reason, switch_ns);

	if (!status && next_id)
		status = mt_store_begin(writer->store);
	if (!status && next_id)
		status = start_again(writer, next_id, switch_ns);
	return status;
}

int mt_writer_flight_dump(struct mt_writer *writer, const struct mt_message *message)
{
	uint32_t next_id = message->recording_id;

	if (!writer->flight.recording_id)
		return mt_session_error(writer->session, MOETRACE_E_STATE,
					"dump: the recording has ended by itself");
	if (next_id != atomic_load(&writer->session->recording_id))
		next_id = 0;
	return dump(writer, next_id, message->number, message->text);
}

static int is_due(const struct mt_writer *writer)
{
	const struct moetrace_session_opts *opts = &writer->session->opts;
	struct mt_store_stats stats;

	/* What is kept in memory lets the file be as it is. */
	if (writer->flight.recording_id)
		return 0;
	if (opts->rotate_ns && mt_writer_now_ns(writer) - writer->start_ns >= opts->rotate_ns)
		return 1;
	mt_store_stats_get(writer->store, &stats);
	return opts->rotate_bytes &&
	       stats.database_bytes + stats.journal_bytes >= opts->rotate_bytes;
}

void mt_writer_rotation_begin(struct mt_writer *writer)
{
	struct mt_rotation *rotation = &writer->rotation;
	uint64_t now = mt_monotonic_ns();
	uint32_t current_id = mt_writer_current_id(writer);
	int is_dump;

	if (!current_id || rotation->next_id)
		return;
	is_dump = writer->flight.recording_id && mt_session_has_trigger(writer->session);
	if (!is_dump && (now < rotation->retry_ns || !is_due(writer)))
		return;
	if (!is_dump && open_next(writer, NULL, &rotation->path, &rotation->store)) {
		rotation->store = NULL;
		rotation->retry_ns = now + RETRY_NS;
		return;
	}
	rotation->switch_ns = mt_writer_now_ns(writer);
	rotation->until_ns = now + writer->session->opts.stop_timeout_ms * MT_NS_PER_MS;
	rotation->next_id = mt_session_next_recording(writer->session, current_id);
	mt_cuda_mark(writer->session, &rotation->mark);
	/* Somebody stops the recording at this moment: a trigger is carried out then. */
	if (!rotation->next_id)
		mt_writer_rotation_cancel(writer);
	else if (is_dump)
		(void)mt_session_take_trigger(writer->session, writer->flight.reason);
}

int mt_writer_rotation_is_ready(struct mt_writer *writer)
{
	struct moetrace_session *session = writer->session;
	uint32_t current_id = mt_writer_current_id(writer);

	/* Those on a GPU first: they hold a ring before they are through. */
	return writer->rotation.next_id &&
	       ((mt_cuda_is_through(session, current_id, &writer->rotation.mark) &&
		 !mt_session_in_flight(session, current_id)) ||
		mt_monotonic_ns() > writer->rotation.until_ns);
}

int mt_writer_rotation_end(struct mt_writer *writer)
{
	const struct timespec pause = { 0, 200 * 1000 };
	struct mt_rotation *rotation = &writer->rotation;
	uint32_t next_id = rotation->next_id;
	uint64_t heads[MT_MAX_STREAMS];
	struct mt_store *next;

	while (!mt_writer_rotation_is_ready(writer))
		nanosleep(&pause, NULL);
	(void)mt_cuda_abandon(writer->session, mt_writer_current_id(writer), &rotation->mark);
	mt_ring_heads(&writer->session->pool, heads);
	mt_writer_drain(writer, heads, 1);
	/* A full file has ended the recording, and the rotation with it. */
	if (writer->status || !rotation->next_id)
		return writer->status;
	rotation->next_id = 0;
	if (writer->flight.recording_id) {
		int status = dump(writer, next_id, rotation->switch_ns, writer->flight.reason);

		/* The file limit has ended the recording, and that is said already. */
		return mt_store_has_failed(writer->store) || status == MOETRACE_E_NOMEM ?
			       status :
			       MOETRACE_OK;
	}
	next = rotation->store;
	rotation->store = NULL;
	return rotate(writer, next_id, rotation->switch_ns, next, rotation->path, 0);
}

void mt_writer_rotation_cancel(struct mt_writer *writer)
{
	struct mt_rotation *rotation = &writer->rotation;

	rotation->next_id = 0;
	if (!rotation->store)
		return;
	mt_store_discard(rotation->store);
	free(rotation->path);
	rotation->store = NULL;
	rotation->path = NULL;
}
