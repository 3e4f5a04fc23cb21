/* SPDX-License-Identifier: MIT */
/*
 * Files of a session, from the caller's side: the next one, a snapshot of the current one, and
 * what it is called.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/options.h"
#include "libtrace/session.h"

void mt_session_path(struct moetrace_session *session, char *ret_path, size_t path_bytes)
{
	pthread_mutex_lock(&session->text);
	snprintf(ret_path, path_bytes, "%s", session->path ? session->path : "");
	pthread_mutex_unlock(&session->text);
}

uint32_t mt_session_switch(struct moetrace_session *session, uint32_t *ret_old)
{
	uint32_t old, next;

	do {
		old = atomic_load(&session->recording_id);
		next = old ? mt_session_next_recording(session, old) : 0;
	} while (old && !next);
	*ret_old = old;
	return next;
}

static int rotate_locked(struct moetrace_session *session, const char *path)
{
	struct mt_message *message = mt_message_new(MT_MESSAGE_ROTATE, path, NULL);
	uint32_t n_in_flight = 0;
	uint32_t old;
	int status;

	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	message->number = mt_session_ns(session, mt_monotonic_ns());
	message->recording_id = mt_session_switch(session, &old);
	if (old)
		n_in_flight = mt_session_wait_for_passes(session, old);
	status = mt_session_post_and_wait(session, message);
	if (!status && n_in_flight)
		return mt_session_error(session, MOETRACE_E_TIMEOUT,
					"rotate: %u passes were still running and are cut off",
					n_in_flight);
	return status;
}

int moetrace_rotate(struct moetrace_session *session, const char *path)
{
	char *absolute = NULL;
	int status;

	if (!session)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (session->settings.is_disabled)
		return MOETRACE_OK;
	if (path && *path) {
		absolute = mt_absolute_path(path);
		if (!absolute)
			return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	}
	if (path && (!absolute || strlen(absolute) >= MT_PATH_BYTES)) {
		free(absolute);
		return mt_session_error(session, MOETRACE_E_INVALID,
					"rotate: the path is empty or too long");
	}
	pthread_mutex_lock(&session->control);
	status = rotate_locked(session, absolute);
	pthread_mutex_unlock(&session->control);
	free(absolute);
	return status;
}

void mt_session_watermark(struct moetrace_session *session, uint32_t flight_id,
			  struct moetrace_dump_result *ret_result)
{
	const struct mt_published *published = &session->published;

	pthread_mutex_lock(&session->text);
	ret_result->recording_id = flight_id ? flight_id : published->recording_id;
	/* After a dump of flight mode the next recording has begun. */
	ret_result->last_pass_id = ret_result->recording_id == published->recording_id ?
					   published->last_pass_id :
					   published->earlier_pass_id;
	ret_result->commit_ns = published->commit_ns;
	/* Not the session's: the writer may have moved on, and not committed anything there yet. */
	snprintf(ret_result->path, sizeof(ret_result->path), "%s", published->path);
	pthread_mutex_unlock(&session->text);
}

int moetrace_dump(struct moetrace_session *session, struct moetrace_dump_result *ret_result)
{
	struct moetrace_dump_result result = { .size = sizeof(result) };
	uint32_t flight_id = 0;
	int status;

	if (!session || !ret_result ||
	    !mt_abi_knows(ret_result->size, MT_BYTES_UP_TO(struct moetrace_dump_result, path)))
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (session->settings.is_disabled)
		return MOETRACE_E_NOT_FOUND;
	/* No rotation in between. */
	pthread_mutex_lock(&session->control);
	if (atomic_load(&session->is_flight) && atomic_load(&session->recording_id))
		status = mt_session_flight_dump(session, "dump", &flight_id);
	else
		status = moetrace_flush(session);
	mt_session_watermark(session, flight_id, &result);
	pthread_mutex_unlock(&session->control);
	if (!status && !result.recording_id)
		return mt_session_error(session, MOETRACE_E_NOT_FOUND,
					"dump: nothing was recorded yet");
	if (!status)
		mt_abi_narrow(ret_result, ret_result->size, &result, sizeof(result));
	return status;
}
