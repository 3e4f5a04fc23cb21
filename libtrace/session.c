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
#include <sys/statvfs.h>
#include <time.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/definitions.h"
#include "libtrace/store/store.h"
#include "libtrace/writer.h"

#define DEFAULT_RINGS 4u
#define DEFAULT_RING_BYTES (UINT64_C(32) << 20)
#define DEFAULT_COMMIT_INTERVAL_MS 200u
#define DEFAULT_STOP_TIMEOUT_MS 2000u
#define DEFAULT_WINDOW_NS (10 * MT_NS_PER_S)
#define MAX_DEFAULT_FILE_BYTES (UINT64_C(10) << 30)
#define MIN_FILE_BYTES (UINT64_C(1) << 20)
#define MIN_RING_BYTES (UINT64_C(64) << 10)
#define MAX_RING_BYTES (UINT64_C(4) << 30)

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

static int open_error(int status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int open_error(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(open_errmsg, sizeof(open_errmsg), format, arguments);
	va_end(arguments);
	return status;
}

/* Half of what is free where the file will be, at most 10 GiB. */
static uint64_t default_file_limit_bytes(const char *path)
{
	char folder[4096];
	struct statvfs fs;
	uint64_t half_bytes;
	char *slash;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	if (statvfs(slash ? folder : ".", &fs))
		return MAX_DEFAULT_FILE_BYTES;
	half_bytes = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
	return half_bytes < MAX_DEFAULT_FILE_BYTES ? half_bytes : MAX_DEFAULT_FILE_BYTES;
}

static int check_options(const struct moetrace_session_opts *opts)
{
	if (opts->weight_format > MOETRACE_WEIGHT_FORMAT_NONE)
		return open_error(MOETRACE_E_INVALID, "options: weight_format %u is none",
				  opts->weight_format);
	if (opts->n_rings > MT_MAX_RINGS)
		return open_error(MOETRACE_E_INVALID, "options: n_rings %u is above %u",
				  opts->n_rings, MT_MAX_RINGS);
	if (opts->ring_bytes &&
	    (opts->ring_bytes < MIN_RING_BYTES || opts->ring_bytes > MAX_RING_BYTES ||
	     (opts->ring_bytes & (opts->ring_bytes - 1))))
		return open_error(MOETRACE_E_INVALID,
				  "options: ring_bytes %llu is no power of two from 64 KiB to 4 GiB",
				  (unsigned long long)opts->ring_bytes);
	if (opts->file_limit_bytes && opts->file_limit_bytes < MIN_FILE_BYTES)
		return open_error(MOETRACE_E_INVALID,
				  "options: file_limit_bytes %llu is below 1 MiB",
				  (unsigned long long)opts->file_limit_bytes);
	if (opts->commit_interval_ms &&
	    (opts->commit_interval_ms < 10 || opts->commit_interval_ms > 10000))
		return open_error(MOETRACE_E_INVALID,
				  "options: commit_interval_ms %u is not from 10 to 10000",
				  opts->commit_interval_ms);
	if (opts->window_ns && (opts->window_ns < MT_NS_PER_MS || opts->window_ns > INT64_MAX / 4))
		return open_error(MOETRACE_E_INVALID, "options: window_ns %llu is below 1 ms or "
				  "absurdly long", (unsigned long long)opts->window_ns);
	return MOETRACE_OK;
}

static void set_default_u32(uint32_t *option, uint32_t value)
{
	*option = *option ? *option : value;
}

static void set_default_u64(uint64_t *option, uint64_t value)
{
	*option = *option ? *option : value;
}

static int copy_string(const char **string)
{
	*string = *string ? strdup(*string) : NULL;
	return *string ? 0 : -1;
}

static void free_strings(struct moetrace_session *session)
{
	free((char *)session->opts.session_name);
	free((char *)session->opts.engine_name);
	free((char *)session->opts.engine_version);
	free(session->path);
}

/* The options in force, with own strings; nothing is copied twice when it fails. */
static int resolve_options(struct moetrace_session *session, const char *path,
			   const struct moetrace_session_opts *opts)
{
	char name[256];
	int has_engine_name, has_engine_version;

	if (opts)
		session->opts = *opts;
	session->opts.size = sizeof(session->opts);
	set_default_u32(&session->opts.n_rings, DEFAULT_RINGS);
	set_default_u64(&session->opts.ring_bytes, DEFAULT_RING_BYTES);
	set_default_u32(&session->opts.commit_interval_ms, DEFAULT_COMMIT_INTERVAL_MS);
	set_default_u32(&session->opts.stop_timeout_ms, DEFAULT_STOP_TIMEOUT_MS);
	set_default_u64(&session->opts.file_limit_bytes, default_file_limit_bytes(path));
	set_default_u64(&session->opts.window_ns, DEFAULT_WINDOW_NS);
	if (!session->opts.session_name) {
		mt_program_name(name, sizeof(name));
		session->opts.session_name = name;
	}
	has_engine_name = session->opts.engine_name != NULL;
	has_engine_version = session->opts.engine_version != NULL;
	session->path = strdup(path);
	copy_string(&session->opts.session_name);
	copy_string(&session->opts.engine_name);
	copy_string(&session->opts.engine_version);
	if (!session->path || !session->opts.session_name ||
	    has_engine_name != (session->opts.engine_name != NULL) ||
	    has_engine_version != (session->opts.engine_version != NULL))
		return open_error(MOETRACE_E_NOMEM, "%s: out of memory", path);
	return MOETRACE_OK;
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
	session->start_monotonic_ns = mt_monotonic_ns();
	session->narrow_plain = mt_narrow_plain_choose();
	return session;
}

static void free_session(struct moetrace_session *session)
{
	for (uint32_t i = 0; i < atomic_load(&session->n_models); i++)
		mt_model_free(session->models[i]);
	mt_ring_pool_close(&session->pool);
	free_strings(session);
	/* A forked child's copies may be in any state; they are memory, no more. */
	if (!atomic_load(&session->forked)) {
		mt_queue_close(&session->queue);
		pthread_mutex_destroy(&session->text);
		pthread_mutex_destroy(&session->control);
	}
	free(session);
}

int moetrace_session_open(const char *path, const struct moetrace_session_opts *opts,
			  struct moetrace_session **ret_session)
{
	struct moetrace_session_opts room;
	struct moetrace_session *session;
	char error[MT_STORE_ERROR_BYTES];
	int status;

	open_errmsg[0] = '\0';
	if (ret_session)
		*ret_session = NULL;
	if (!path || !*path || !ret_session)
		return open_error(MOETRACE_E_INVALID, "no path, or nowhere to put the session");
	if (opts && !mt_abi_knows(opts->size, MT_FIRST_SESSION_OPTS))
		return open_error(MOETRACE_E_INVALID,
				  "options: size is not set; use MOETRACE_INIT()");
	if (opts)
		opts = MT_ABI_WIDEN(opts, &room);
	if (opts && check_options(opts))
		return MOETRACE_E_INVALID;
	session = new_session();
	if (!session)
		return open_error(MOETRACE_E_NOMEM, "%s: out of memory", path);
	status = resolve_options(session, path, opts);
	if (status)
		goto err_session;
	if (session->opts.file_limit_bytes < MIN_FILE_BYTES) {
		status = open_error(MOETRACE_E_IO, "%s: less than 2 MiB are free there", path);
		goto err_session;
	}
	status = mt_ring_pool_open(&session->pool, session->opts.n_rings,
				   session->opts.ring_bytes);
	if (status) {
		open_error(status, "%s: out of memory: %u rings of %llu bytes", path,
			   session->opts.n_rings, (unsigned long long)session->opts.ring_bytes);
		goto err_session;
	}
	status = mt_writer_start(session, error);
	if (status) {
		open_error(status, "%s", error);
		goto err_session;
	}
	mt_fork_enlist(session);
	*ret_session = session;
	return MOETRACE_OK;

err_session:
	free_session(session);
	return status;
}

int moetrace_session_close(struct moetrace_session *session)
{
	int status = MOETRACE_OK;

	if (!session)
		return MOETRACE_OK;
	atomic_store(&session->recording_id, 0);
	mt_fork_delist(session);
	if (!atomic_load(&session->forked))
		status = mt_writer_stop(session);
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

int mt_session_post(struct moetrace_session *session, struct mt_message *message)
{
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	stamp(session, message);
	mt_queue_post(&session->queue, &session->pool, message);
	return MOETRACE_OK;
}

/* Post a message and wait until the writer has done it; the writer's status. */
static int post_and_wait(struct moetrace_session *session, struct mt_message *message)
{
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	stamp(session, message);
	return mt_queue_wait(&session->queue,
			     mt_queue_post(&session->queue, &session->pool, message)) ?
		       MOETRACE_E_IO :
		       MOETRACE_OK;
}

static int start_locked(struct moetrace_session *session,
			const struct moetrace_recording_opts *opts)
{
	struct mt_message *message;
	int status;

	if (atomic_load(&session->recording_id))
		return mt_session_error(session, MOETRACE_E_STATE,
					"start: already recording; stop first, nothing was lost");
	if (atomic_load(&session->failed))
		return MOETRACE_E_IO;
	message = mt_message_new(MT_MESSAGE_START, opts ? opts->routing_source : NULL, NULL);
	if (message)
		message->recording_id = session->last_recording_id + 1;
	status = post_and_wait(session, message);
	if (status)
		return status;
	session->last_recording_id++;
	/* The writer knows the recording before the first pass sees it. */
	atomic_store(&session->recording_id, session->last_recording_id);
	return MOETRACE_OK;
}

int moetrace_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts)
{
	struct moetrace_recording_opts room;
	int status;

	if (!session || (opts && !mt_abi_knows(opts->size, MT_FIRST_RECORDING_OPTS)))
		return MOETRACE_E_INVALID;
	if (opts)
		opts = MT_ABI_WIDEN(opts, &room);
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	pthread_mutex_lock(&session->control);
	status = start_locked(session, opts);
	pthread_mutex_unlock(&session->control);
	return status;
}

/*
 * Passes of a recording that have not ended, with those that have claimed a ring and are just
 * about to look whether there is a recording. Passes that an earlier stop cut off do not count.
 */
static uint32_t count_in_flight(struct moetrace_session *session, uint32_t recording_id)
{
	uint64_t free_rings = atomic_load(&session->pool.free);
	uint32_t n = 0;

	for (uint32_t i = 0; i < session->pool.n_rings; i++) {
		uint32_t latched = atomic_load(&session->passes[i].recording_id);

		n += !(free_rings >> i & 1) && (latched == recording_id || latched == 0);
	}
	return n;
}

static uint32_t wait_for_passes(struct moetrace_session *session, uint32_t recording_id)
{
	const struct timespec pause = { 0, 200 * 1000 };
	uint64_t until_ns = mt_monotonic_ns() + session->opts.stop_timeout_ms * MT_NS_PER_MS;
	uint32_t n_in_flight;

	while ((n_in_flight = count_in_flight(session, recording_id)) &&
	       mt_monotonic_ns() < until_ns)
		nanosleep(&pause, NULL);
	return n_in_flight;
}

static int stop_locked(struct moetrace_session *session, const char *reason)
{
	uint32_t recording_id = atomic_exchange(&session->recording_id, 0);
	uint32_t n_in_flight;
	int status;

	if (!recording_id) {
		if (!atomic_load(&session->failed))
			mt_session_error(session, MOETRACE_E_STATE, "stop: not recording");
		return MOETRACE_E_STATE;
	}
	n_in_flight = wait_for_passes(session, recording_id);
	status = post_and_wait(session,
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
	pthread_mutex_lock(&session->control);
	status = stop_locked(session, reason);
	pthread_mutex_unlock(&session->control);
	return status;
}

int moetrace_flush(struct moetrace_session *session)
{
	if (!session)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	return post_and_wait(session, mt_message_new(MT_MESSAGE_FLUSH, NULL, NULL));
}

static void fill_status(struct moetrace_session *session, const struct mt_published *published,
			struct moetrace_session_status *ret_status)
{
	const struct mt_loss_counts *before = &published->at_start;
	struct mt_loss_counts now;

	mt_losses_read(session, &now);
	ret_status->is_recording = atomic_load(&session->recording_id) != 0;
	ret_status->recorded_passes = published->recorded_passes;
	ret_status->recorded_rows = published->recorded_rows;
	ret_status->recorded_assignments = published->recorded_assignments;
	ret_status->dropped_passes =
		mt_lost_passes(&now) - mt_lost_passes(before) + published->discarded_passes;
	ret_status->dropped_layers =
		now.n[MT_LOSS_LAYER_RING_FULL] - before->n[MT_LOSS_LAYER_RING_FULL];
	ret_status->dropped_bytes = 0;
	for (int i = 0; i < MT_N_LOSS; i++)
		ret_status->dropped_bytes += now.n_bytes[i] - before->n_bytes[i];
	ret_status->misuse = published->misuse;
	ret_status->file_bytes = published->file_bytes;
	ret_status->file_limit_bytes = session->opts.file_limit_bytes;
	ret_status->ring_bytes = session->opts.ring_bytes * session->pool.n_rings;
	ret_status->ring_peak_bytes = published->ring_peak_bytes;
	ret_status->writer_cpu_ns = published->writer_cpu_ns;
}

int moetrace_status(struct moetrace_session *session, struct moetrace_session_status *ret_status)
{
	struct moetrace_session_status known;
	struct mt_published published;

	if (!session || !ret_status || !mt_abi_knows(ret_status->size, MT_FIRST_STATUS))
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	pthread_mutex_lock(&session->text);
	published = session->published;
	pthread_mutex_unlock(&session->text);
	MOETRACE_INIT(&known);
	pthread_mutex_lock(&session->control);
	known.recording_id = session->last_recording_id;
	pthread_mutex_unlock(&session->control);
	fill_status(session, &published, &known);
	mt_abi_narrow(ret_status, ret_status->size, &known, sizeof(known));
	return MOETRACE_OK;
}
