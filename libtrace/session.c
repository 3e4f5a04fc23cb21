/* SPDX-License-Identifier: MIT */
/*
 * Sessions: opening and closing, start and stop, status. Everything here runs in the caller's
 * thread and hands the work that touches the file to the writer.
 */
#include "libtrace/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/collect.h"
#include "libtrace/control/server.h"
#include "libtrace/cuda/wait.h"
#include "libtrace/options.h"
#include "libtrace/ranges.h"
#include "libtrace/sampling.h"
#include "libtrace/store/store.h"
#include "libtrace/writer.h"

/* A failed open has no session to hold its text. */
static _Thread_local char open_errmsg[MT_STORE_ERROR_BYTES];

const char *moetrace_open_errmsg(void)
{
	return open_errmsg;
}

int mt_session_error(struct moetrace_session *session, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	pthread_mutex_lock(&session->text);
	vsnprintf(session->errmsg, sizeof(session->errmsg), format, arguments);
	pthread_mutex_unlock(&session->text);
	va_end(arguments);
	return status;
}

void moetrace_errmsg(struct moetrace_session *session, char *buffer, size_t buffer_bytes)
{
	if (!buffer || !buffer_bytes)
		return;
	buffer[0] = '\0';
	if (!session || atomic_load(&session->forked))
		return;
	pthread_mutex_lock(&session->text);
	snprintf(buffer, buffer_bytes, "%s", session->errmsg);
	pthread_mutex_unlock(&session->text);
}

int mt_open_error(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(open_errmsg, sizeof(open_errmsg), format, arguments);
	va_end(arguments);
	return status;
}

static struct moetrace_session *new_session(void)
{
	struct moetrace_session *session = NULL;

	if (posix_memalign((void **)&session, MT_LINE_BYTES, sizeof(*session)))
		return NULL;
	memset(session, 0, sizeof(*session));
	if (mt_queue_open(&session->queue)) {
		free(session);
		return NULL;
	}
	pthread_mutex_init(&session->control, NULL);
	pthread_mutex_init(&session->text, NULL);
	mt_strings_open(&session->strings);
	session->start_monotonic_ns = mt_monotonic_ns();
	session->narrow_plain = mt_narrow_plain_choose();
	/* The first pass of a ring has its number plus one. */
	for (uint32_t i = 0; i < MT_N_RINGS; i++)
		session->passes[i].number = i + 1 - (uint64_t)MT_MAX_RINGS;
	return session;
}

static void free_session(struct moetrace_session *session)
{
	for (uint32_t i = 0; i < atomic_load(&session->n_models); i++)
		mt_model_free(session->models[i]);
	mt_strings_close(&session->strings);
	mt_ranges_free(session);
	mt_ring_pool_close(&session->pool);
	mt_options_free(session);
	/* A forked child's copies may be in any state; they are memory, no more. */
	if (!atomic_load(&session->forked)) {
		mt_queue_close(&session->queue);
		pthread_mutex_destroy(&session->text);
		pthread_mutex_destroy(&session->strings.lock);
		pthread_mutex_destroy(&session->control);
	}
	free(session);
}

/* Tell whoever reads the file. */
static void say(struct moetrace_session *session, const char *text)
{
	struct mt_message *message = mt_message_new(MT_MESSAGE_DIAGNOSTIC, text, "session");

	if (message)
		mt_session_post(session, message);
}

/* A session without a socket is recorded like any other; its file says why there is none. */
static void open_server(struct moetrace_session *session)
{
	char error[MT_STORE_ERROR_BYTES + 64];

	if (session->opts.socket_dir && strcmp(session->opts.socket_dir, "none") == 0)
		return;
	memcpy(error, "no control socket: ", sizeof("no control socket: "));
	if (mt_server_start(session, error + strlen(error), MT_STORE_ERROR_BYTES, &session->server))
		say(session, error);
}

/* The writer runs already, and looks for them. */
static int open_collectors(struct moetrace_session *session)
{
	struct mt_collect *collect;
	int status = mt_collect_open(session, session->opts.collectors, &collect);

	atomic_store(&session->collect, collect);
	return status;
}

int moetrace_session_open(const char *path, const struct moetrace_session_opts *opts,
			  struct moetrace_session **ret_session)
{
	struct moetrace_session *session;
	char error[MT_STORE_ERROR_BYTES];
	int status;

	open_errmsg[0] = '\0';
	if (ret_session)
		*ret_session = NULL;
	if (!ret_session)
		return mt_open_error(MOETRACE_E_INVALID, "nowhere to put the session");
	session = new_session();
	if (!session)
		return mt_open_error(MOETRACE_E_NOMEM, "out of memory");
	if (mt_is_disabled()) {
		session->settings.is_disabled = 1;
		*ret_session = session;
		return MOETRACE_OK;
	}
	status = mt_options_resolve(session, path, opts);
	if (status)
		goto err_session;
	status = mt_ring_pool_open(&session->pool, session->opts.n_rings,
				   session->opts.ring_bytes);
	if (status) {
		mt_open_error(status, "%s: out of memory: %u rings of %llu bytes", session->path,
			      session->opts.n_rings, (unsigned long long)session->opts.ring_bytes);
		goto err_session;
	}
	status = mt_writer_start(session, error);
	if (status) {
		mt_open_error(status, "%s", error);
		goto err_session;
	}
	mt_range_tool_open(&session->tool);
	if (open_collectors(session))
		say(session, "no collectors: no thread could be made for them");
	open_server(session);
	mt_fork_enlist(session);
	if (session->settings.start == 1 && mt_session_start(session, NULL))
		say(session, "MOETRACE_START: the recording could not be started");
	*ret_session = session;
	return MOETRACE_OK;

err_session:
	free_session(session);
	return status;
}

/* Passes have all of the time that an end may take, and sources what these leave of it. */
static uint64_t end_until_ns(const struct moetrace_session *session)
{
	return mt_monotonic_ns() + session->opts.stop_timeout_ms * MT_NS_PER_MS;
}

static int end_threads(struct moetrace_session *session)
{
	const uint64_t until_ns = end_until_ns(session);
	int is_recording;
	int status;

	/* First, so that nobody starts anything any more. */
	if (!atomic_load(&session->forked))
		mt_server_stop(session->server);
	if (!atomic_load(&session->forked))
		mt_cuda_end(session);
	is_recording = atomic_exchange(&session->recording_id, 0) != 0;
	mt_fork_delist(session);
	/* Only now, since fork() looks at the servers of listed sessions. */
	mt_server_free(session->server);
	if (atomic_load(&session->forked)) {
		mt_cuda_close(session);
		mt_collect_free(session->collect);
		return MOETRACE_OK;
	}
	mt_range_tool_close(&session->tool);
	/* What is still on its way, and then who does not come back, is the writer's to tell. */
	if (is_recording)
		mt_collect_stop(session->collect, until_ns);
	mt_collect_end(session->collect);
	status = mt_writer_stop(session);
	mt_cuda_close(session);
	mt_collect_close(session->collect);
	return status;
}

int moetrace_session_close(struct moetrace_session *session)
{
	int status = MOETRACE_OK;

	if (!session)
		return MOETRACE_OK;
	if (!session->settings.is_disabled)
		status = end_threads(session);
	free_session(session);
	return status;
}

/* What was so when the caller spoke, however late the writer hears of it. */
static void stamp(struct moetrace_session *session, struct mt_message *message)
{
	struct mt_loss_counts losses;

	mt_losses_read(session, &losses);
	message->n_lost_passes = mt_lost_passes(&losses);
	message->time_ns = mt_session_ns(session, mt_monotonic_ns());
}

void mt_session_post_stamped(struct moetrace_session *session, struct mt_message *message)
{
	struct mt_loss_counts losses;

	/* Passes that were lost while it waited may have been its request's. */
	mt_losses_read(session, &losses);
	message->n_lost_passes = mt_lost_passes(&losses);
	mt_queue_post(&session->queue, &session->pool, message);
}

int mt_session_post(struct moetrace_session *session, struct mt_message *message)
{
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	if (session->settings.is_disabled) {
		mt_message_free(message);
		return MOETRACE_OK;
	}
	message->time_ns = mt_session_ns(session, mt_monotonic_ns());
	/* Losses are looked at last: what is no longer in flight then has come or is one of them. */
	if (!mt_cuda_defer(session, message))
		mt_session_post_stamped(session, message);
	return MOETRACE_OK;
}

/* Post a message and wait until the writer has done it; the writer's status. */
int mt_session_post_and_wait(struct moetrace_session *session, struct mt_message *message)
{
	int status = MOETRACE_OK;

	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	if (session->settings.is_disabled) {
		mt_message_free(message);
		return MOETRACE_OK;
	}
	stamp(session, message);
	message->ret_status = &status;
	mt_queue_wait(&session->queue, mt_queue_post(&session->queue, &session->pool, message));
	return status;
}

static int start_locked(struct moetrace_session *session,
			const struct moetrace_recording_opts *opts)
{
	char sampling[MT_SAMPLING_BYTES];
	char reason[sizeof(session->trigger_reason)];
	struct mt_message *message;
	int is_flight;
	uint32_t recording_id;
	int status = mt_sampling_check(session, opts);

	if (status)
		return status;
	if (atomic_load(&session->recording_id))
		return mt_session_error(session, MOETRACE_E_STATE,
					"start: already recording; stop first, nothing was lost");
	message = mt_message_new(MT_MESSAGE_START, opts->routing_source,
				 mt_sampling_text(opts, sampling));
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	message->recording_id = atomic_load(&session->last_recording_id) + 1;
	message->state = opts->mode;
	message->number = opts->sample_every_n_requests;
	status = mt_session_flight_opts(session, opts, message);
	if (status) {
		mt_message_free(message);
		return status;
	}
	is_flight = message->request != 0;
	status = mt_session_post_and_wait(session, message);
	if (status)
		return status;
	recording_id = atomic_fetch_add(&session->last_recording_id, 1) + 1;
	mt_sampling_set(session, opts);
	/* A trigger of an earlier recording is none of this one. */
	(void)mt_session_take_trigger(session, reason);
	atomic_store(&session->is_flight, is_flight);
	mt_tool_end(&session->tool, &session->tool.recording);
	mt_tool_begin(&session->tool, session->tool.recording_name, recording_id,
		      &session->tool.recording);
	/* The writer knows the recording before the first pass sees it. */
	atomic_store(&session->recording_id, recording_id);
	return MOETRACE_OK;
}

int mt_session_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts)
{
	struct moetrace_recording_opts own = { .size = sizeof(own) };
	int status;

	if (opts)
		own = *opts;
	if (session->settings.mode >= 0)
		own.mode = (uint32_t)session->settings.mode;
	/* What the operator keeps has no rows of requests to choose from. */
	if (session->settings.mode > 0)
		own.sample_every_n_requests = 0;
	pthread_mutex_lock(&session->control);
	status = start_locked(session, &own);
	pthread_mutex_unlock(&session->control);
	return status;
}

/* What the program said of a recording holds for those that an operator starts, too. */
static void remember_opts(struct moetrace_session *session,
			  const struct moetrace_recording_opts *opts)
{
	struct mt_recording_opts *last = &session->last_opts;

	memset(last, 0, sizeof(*last));
	if (opts)
		last->opts = *opts;
	last->has_source = last->opts.routing_source != NULL;
	snprintf(last->source, sizeof(last->source), "%s",
		 last->has_source ? last->opts.routing_source : "");
}

void mt_session_last_opts(struct moetrace_session *session, struct mt_recording_opts *ret_opts)
{
	pthread_mutex_lock(&session->control);
	*ret_opts = session->last_opts;
	pthread_mutex_unlock(&session->control);
	ret_opts->opts.size = sizeof(ret_opts->opts);
	ret_opts->opts.routing_source = ret_opts->has_source ? ret_opts->source : NULL;
}

/* MOETRACE_START has decided in place of the program's first start. */
static int note_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts)
{
	int is_decided;

	pthread_mutex_lock(&session->control);
	remember_opts(session, opts);
	is_decided = !session->n_program_starts++ && session->settings.start >= 0;
	pthread_mutex_unlock(&session->control);
	return is_decided;
}

int moetrace_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts)
{
	struct moetrace_recording_opts room;

	if (!session || (opts && !mt_abi_knows(opts->size, MT_FIRST_RECORDING_OPTS)))
		return MOETRACE_E_INVALID;
	if (opts)
		opts = MT_ABI_WIDEN(opts, &room);
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (session->settings.is_disabled || note_start(session, opts))
		return MOETRACE_OK;
	return mt_session_start(session, opts);
}

/*
 * Passes of a recording that have not ended, with those that have claimed a ring and are just
 * about to look whether there is a recording. Passes that an earlier stop cut off do not count.
 */
uint32_t mt_session_in_flight(struct moetrace_session *session, uint32_t recording_id)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < session->pool.n_rings; i++) {
		/* Asked first: who claims it later sees that the recording is off. */
		int is_held = mt_ring_is_held(&session->pool, i);
		uint32_t latched = atomic_load(&session->passes[i].recording_id);

		n += is_held && (latched == recording_id || latched == 0);
	}
	return n;
}

uint32_t mt_session_wait_for_passes(struct moetrace_session *session, uint32_t recording_id)
{
	const struct timespec pause = { 0, 200 * 1000 };
	uint64_t until_ns = mt_monotonic_ns() + session->opts.stop_timeout_ms * MT_NS_PER_MS;
	struct mt_cuda_mark mark;
	uint32_t n_abandoned, n_left;

	/* Those on a GPU come through the rings, too. */
	mt_cuda_mark(session, &mark);
	(void)mt_cuda_wait(session, recording_id, &mark,
			   session->opts.stop_timeout_ms * MT_NS_PER_MS);
	while ((n_left = mt_session_in_flight(session, recording_id)) &&
	       mt_monotonic_ns() < until_ns)
		nanosleep(&pause, NULL);
	/* Before the others are counted: a pass that came in part holds a ring until then. */
	n_abandoned = (uint32_t)mt_cuda_abandon(session, recording_id, &mark);
	/* Asked again only then: who claims a ring for the next recording is none of those. */
	return n_abandoned + (n_left ? mt_session_in_flight(session, recording_id) : 0);
}

/* The writer and a caller may come here at once. */
static uint32_t raise_last(struct moetrace_session *session, uint32_t recording_id)
{
	uint32_t last = atomic_load(&session->last_recording_id);

	while (last < recording_id &&
	       !atomic_compare_exchange_weak(&session->last_recording_id, &last, recording_id))
		continue;
	return last > recording_id ? last : recording_id;
}

uint32_t mt_session_end_now(struct moetrace_session *session)
{
	return raise_last(session, atomic_exchange(&session->recording_id, 0));
}

uint32_t mt_session_next_recording(struct moetrace_session *session, uint32_t recording_id)
{
	uint32_t last = atomic_load(&session->last_recording_id);
	uint32_t next = (last > recording_id ? last : recording_id) + 1;

	if (!atomic_compare_exchange_strong(&session->recording_id, &recording_id, next))
		return 0;
	(void)raise_last(session, next);
	return next;
}

static int stop_locked(struct moetrace_session *session, const char *reason)
{
	uint32_t recording_id = atomic_exchange(&session->recording_id, 0);
	uint64_t until_ns = end_until_ns(session);
	uint32_t n_in_flight;
	int status;

	if (!recording_id) {
		if (!atomic_load(&session->failed))
			mt_session_error(session, MOETRACE_E_STATE, "stop: not recording");
		return MOETRACE_E_STATE;
	}
	n_in_flight = mt_session_wait_for_passes(session, recording_id);
	mt_tool_end(&session->tool, &session->tool.recording);
	mt_collect_stop(session->collect, until_ns);
	status = mt_session_post_and_wait(session,
			       mt_message_new(MT_MESSAGE_STOP, reason ? reason : "stopped", NULL));
	if (status)
		return status;
	if (n_in_flight)
		return mt_session_error(session, MOETRACE_E_TIMEOUT,
					"stop: %u passes were still running and are cut off",
					n_in_flight);
	return MOETRACE_OK;
}

int moetrace_stop(struct moetrace_session *session, const char *reason)
{
	int status;

	if (!session)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (session->settings.is_disabled)
		return MOETRACE_OK;
	pthread_mutex_lock(&session->control);
	status = stop_locked(session, reason);
	pthread_mutex_unlock(&session->control);
	return status;
}

int moetrace_flush(struct moetrace_session *session)
{
	struct mt_cuda_mark mark;
	uint64_t n_in_flight;
	int status;

	if (!session)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	mt_cuda_mark(session, &mark);
	n_in_flight = mt_cuda_wait(session, 0, &mark, session->opts.stop_timeout_ms * MT_NS_PER_MS);
	status = mt_session_post_and_wait(session, mt_message_new(MT_MESSAGE_FLUSH, NULL, NULL));
	return !status && n_in_flight ? MOETRACE_E_TIMEOUT : status;
}
