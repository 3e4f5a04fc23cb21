/* SPDX-License-Identifier: MIT */
/*
 * Flight mode, from the caller's side: its options, the dump and the trigger. A trigger is a word
 * of three states: whoever makes it BUSY writes the reason and makes it SET, the writer takes the
 * reason and makes it FREE; so nobody waits, and of triggers at once the first is the reason.
 */
#include <stdio.h>
#include <string.h>

#include "libtrace/clock.h"
#include "libtrace/session.h"

enum mt_trigger { TRIGGER_FREE, TRIGGER_BUSY, TRIGGER_SET };

#define DEFAULT_BYTES (UINT64_C(256) << 20)
#define MIN_BYTES (UINT64_C(1) << 20)
#define MAX_BYTES (UINT64_C(1) << 40)

int mt_session_flight_opts(struct moetrace_session *session,
			   const struct moetrace_recording_opts *opts, struct mt_message *message)
{
	uint64_t n_bytes = opts->flight_bytes;

	if (!n_bytes && opts->flight_seconds)
		n_bytes = DEFAULT_BYTES;
	if (n_bytes && (n_bytes < MIN_BYTES || n_bytes > MAX_BYTES))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"start: flight_bytes %llu is not from 1 MiB to 1 TiB",
					(unsigned long long)n_bytes);
	message->request = n_bytes;
	message->source = opts->flight_seconds * MT_NS_PER_S;
	return MOETRACE_OK;
}

int mt_session_has_trigger(struct moetrace_session *session)
{
	return atomic_load(&session->trigger) == TRIGGER_SET;
}

int mt_session_take_trigger(struct moetrace_session *session, char *ret_reason)
{
	/* Pairs with the release below: the reason is whole. */
	if (atomic_load_explicit(&session->trigger, memory_order_acquire) != TRIGGER_SET)
		return 0;
	memcpy(ret_reason, session->trigger_reason, sizeof(session->trigger_reason));
	atomic_store_explicit(&session->trigger, TRIGGER_FREE, memory_order_release);
	return 1;
}

/* As much of a text as fits, without a character cut in two. */
static void copy_text(char *to, size_t to_bytes, const char *from)
{
	size_t n = strnlen(from, to_bytes);

	if (n == to_bytes)
		for (n = to_bytes - 1; n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80; n--)
			continue;
	memcpy(to, from, n);
	to[n] = '\0';
}

int moetrace_flight_trigger(struct moetrace_session *session, const char *reason)
{
	uint32_t trigger = TRIGGER_FREE;

	if (!session)
		return MOETRACE_E_INVALID;
	if (session->settings.is_disabled)
		return MOETRACE_OK;
	if (atomic_load(&session->forked) || !atomic_load(&session->is_flight) ||
	    !atomic_load(&session->recording_id))
		return MOETRACE_E_STATE;
	if (!atomic_compare_exchange_strong(&session->trigger, &trigger, TRIGGER_BUSY))
		return MOETRACE_OK;
	copy_text(session->trigger_reason, sizeof(session->trigger_reason),
		  reason && *reason ? reason : "trigger");
	/* Pairs with the acquire above. */
	atomic_store_explicit(&session->trigger, TRIGGER_SET, memory_order_release);
	return MOETRACE_OK;
}

int mt_session_flight_dump(struct moetrace_session *session, const char *reason,
			   uint32_t *ret_recording_id)
{
	struct mt_message *message = mt_message_new(MT_MESSAGE_DUMP, reason, NULL);
	uint32_t old;
	int status;

	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	message->number = mt_session_ns(session, mt_monotonic_ns());
	message->recording_id = mt_session_switch(session, &old);
	/* A pass that hangs may be why somebody asks: it is cut off, which the file says. */
	if (old)
		(void)mt_session_wait_for_passes(session, old);
	status = mt_session_post_and_wait(session, message);
	if (!status)
		*ret_recording_id = old;
	return status;
}
