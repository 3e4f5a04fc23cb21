/* SPDX-License-Identifier: MIT */
/*
 * Recordings, as the writer sees them: start, end, and the commit with everything that a
 * reader must find in step with it: losses and misuse (writer_losses.c), counters, clock.
 *
 * Invariant: stats, gap and diagnostic describe exactly the rows of the same commit.
 */
#include "libtrace/writer_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libtrace/clock.h"

#define LOAD_INTERVAL_NS MT_NS_PER_S
#define CLOCK_INTERVAL_NS MT_NS_PER_S
#define CLOSE_PATIENCE_NS (2 * MT_NS_PER_S)
/* What ending a recording may still add to file and journal, beside expert load. */
#define RESERVE_BYTES (UINT64_C(192) << 10)
#define LOAD_ROW_BYTES 40u

uint64_t mt_writer_reserve_bytes(const struct mt_writer *writer)
{
	return RESERVE_BYTES + 2 * LOAD_ROW_BYTES * writer->load.n_cells;
}

static int write_clock(struct mt_writer *writer)
{
	struct mt_clock_snapshot snapshot = mt_clock_snapshot();

	writer->last_clock_ns = mt_writer_now_ns(writer);
	return mt_store_clock(writer->store,
			      (int64_t)mt_session_ns(writer->session, snapshot.monotonic_ns),
			      (int64_t)snapshot.monotonic_ns, (int64_t)snapshot.realtime_ns,
			      (int64_t)snapshot.uncertainty_ns);
}

/* The passes of the recording go up to this one; 0: it has none. */
static int64_t own_pass_id(const struct mt_writer *writer, int64_t pass_id)
{
	return pass_id > writer->passes_before ? pass_id : 0;
}

static int write_load(struct mt_writer *writer)
{
	writer->last_load_ns = mt_writer_now_ns(writer);
	writer->is_load_due = 0;
	return mt_load_flush(&writer->load, writer->assembly.last_pass_id);
}

static uint64_t cpu_ns(const struct mt_writer *writer)
{
	return mt_clock_ns(CLOCK_THREAD_CPUTIME_ID) - writer->start_cpu_ns;
}

static int write_stats(struct mt_writer *writer, const struct mt_store_stats *stats)
{
	const struct mt_assembly_counts *counts = &writer->assembly.counts;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{ "recorded_passes", counts->passes },
		{ "recorded_rows", counts->rows },
		{ "recorded_layers", counts->layers },
		{ "recorded_assignments", counts->assignments },
		{ "recorded_kernels", counts->kernels },
		{ "recorded_ranges", writer->n_ranges },
		{ "recorded_collectives", counts->collectives },
		{ "untied_kernels", writer->n_untied },
		{ "dropped_passes", writer->losses.passes },
		{ "dropped_layers", writer->losses.layers },
		{ "dropped_dispatches", writer->losses.dispatches },
		{ "dropped_kernels", writer->losses.kernels },
		{ "dropped_ranges", writer->losses.ranges },
		{ "dropped_collectives", writer->losses.collectives },
		{ "dropped_bytes", writer->losses.bytes },
		{ "invalid_ids", counts->invalid_ids },
		{ "misuse", writer->losses.misuse },
		{ "duplicate_layers", writer->misuse_seen[MT_MISUSE_DUPLICATE] },
		{ "unwritten_layers", counts->unwritten_layers },
		{ "sampled_passes", counts->sampled_passes },
		{ "disabled_passes", counts->disabled_passes },
		{ "load_passes", writer->load.n_passes },
		{ "load_assignments", writer->load.n_assignments },
		{ "last_pass_id", (uint64_t)own_pass_id(writer, writer->load.last_pass_id) },
		{ "writer_cpu_ns", cpu_ns(writer) },
		{ "commits", stats->n_commits + 1 - writer->first_commit },
		{ "longest_commit_ns", stats->longest_commit_ns },
		{ "ring_peak_bytes", writer->ring_peak_bytes },
	};
	int status = MOETRACE_OK;

	for (size_t i = 0; !status && i < sizeof(rows) / sizeof(rows[0]); i++)
		status = mt_store_stat(writer->store, writer->recording_id, rows[i].name,
				       (int64_t)rows[i].value);
	return status;
}

/* Rates are taken over times of a second at least, so that they do not jump with each commit. */
static void measure_rates(struct mt_writer *writer, struct mt_published *published)
{
	struct mt_rate *last = &writer->rate;
	uint64_t now = mt_writer_now_ns(writer);
	uint64_t file_bytes = published->file_bytes;

	published->rate_ns = writer->session->published.rate_ns;
	published->rate_passes = writer->session->published.rate_passes;
	published->rate_rows = writer->session->published.rate_rows;
	published->rate_bytes = writer->session->published.rate_bytes;
	if (last->recording_id == writer->recording_id && now - last->since_ns < MT_NS_PER_S)
		return;
	published->rate_ns = last->recording_id == writer->recording_id ? now - last->since_ns : 0;
	published->rate_passes = published->recorded_passes - last->passes;
	published->rate_rows = published->recorded_rows - last->rows;
	/* The journal shrinks when it is written from its start again. */
	published->rate_bytes = file_bytes > last->bytes ? file_bytes - last->bytes : 0;
	*last = (struct mt_rate){ writer->recording_id, now, published->recorded_passes,
				  published->recorded_rows, file_bytes };
}

void mt_writer_publish(struct mt_writer *writer)
{
	const struct mt_assembly_counts *counts = &writer->committed;
	struct moetrace_session *session = writer->session;
	struct mt_store_stats stats;
	struct mt_published published;

	mt_store_stats_get(writer->store, &stats);
	published = (struct mt_published){
		.recorded_passes = counts->passes,
		.recorded_rows = counts->rows,
		.recorded_assignments = counts->assignments,
		.discarded_passes = writer->discarded_passes,
		.at_start = writer->losses_at_start,
		.misuse = writer->losses.misuse,
		.file_bytes = stats.database_bytes + stats.journal_bytes,
		.file_limit_bytes = writer->limit_bytes,
		.ring_peak_bytes = writer->ring_peak_bytes,
		.writer_cpu_ns = cpu_ns(writer),
		.flight_bytes = writer->flight.log.n_bytes,
		.flight_fill_bytes = writer->flight.log.head - writer->flight.log.tail,
		.flight_passes = writer->flight.recording_id ? writer->flight.n_passes : 0,
		.store_memory_bytes = mt_store_memory_bytes(writer->store),
		.start_ns = writer->start_ns,
		.recording_id = writer->file_recording_id,
		.last_pass_id = (uint64_t)own_pass_id(writer, writer->assembly.last_pass_id),
		.earlier_pass_id = (uint64_t)writer->earlier_pass_id,
		.commit_ns = writer->committed_ns,
	};
	/* The writer alone changes it. */
	snprintf(published.path, sizeof(published.path), "%s", writer->session->path);
	measure_rates(writer, &published);
	pthread_mutex_lock(&session->text);
	session->published = published;
	pthread_mutex_unlock(&session->text);
}

/* Everything that goes with a commit of a running recording. */
static int write_facts(struct mt_writer *writer)
{
	struct mt_store_stats stats;
	uint64_t now = mt_writer_now_ns(writer);
	/* First, since one that comes late is a loss. */
	int status = mt_writer_write_ranges(writer);
	int is_due;

	if (!status)
		status = mt_writer_collect_late(writer);
	if (!status)
		status = mt_writer_collect_losses(writer, 0);
	if (!status)
		status = mt_writer_collect_misuse(writer);
	if (!status)
		status = mt_writer_write_readings(writer);
	if (!status)
		status = mt_writer_write_collectors(writer);
	if (!status && writer->recording_id &&
	    (writer->is_load_due || now - writer->last_load_ns >= LOAD_INTERVAL_NS))
		status = write_load(writer);
	is_due = now - writer->last_clock_ns >= CLOCK_INTERVAL_NS || writer->end_ns != UINT64_MAX;
	if (!status && writer->recording_id && is_due)
		status = mt_writer_write_versions(writer);
	if (!status && writer->recording_id && now - writer->last_clock_ns >= CLOCK_INTERVAL_NS)
		status = write_clock(writer);
	mt_store_stats_get(writer->store, &stats);
	if (!status && writer->recording_id)
		status = write_stats(writer, &stats);
	if (!status)
		status = mt_writer_define_strings(writer);
	return status;
}

int mt_writer_commit(struct mt_writer *writer)
{
	int status = mt_store_begin(writer->store);

	writer->last_commit_ns = mt_writer_now_ns(writer);
	/* Another program writes: the next cycle tries again. */
	if (status == MOETRACE_E_STATE)
		return MOETRACE_OK;
	if (!status)
		status = write_facts(writer);
	if (!status)
		status = mt_store_commit(writer->store);
	if (!status) {
		writer->committed = writer->assembly.counts;
		writer->committed_losses = writer->losses.passes;
		writer->committed_ns = writer->last_commit_ns;
	}
	if (!status)
		status = mt_store_checkpoint(writer->store, 0);
	writer->n_commits++;
	mt_writer_publish(writer);
	return status;
}

/* What a rotation starts again; without memory it is a start of which nothing was said. */
static void remember_start(struct mt_writer *writer, const struct mt_message *message)
{
	struct mt_message *start;

	if (message == writer->start)
		return;
	start = mt_message_new(message->type, message->text, message->text2);
	if (writer->start)
		mt_message_free(writer->start);
	writer->start = start;
	if (!start)
		return;
	start->number = message->number;
	start->state = message->state;
	start->request = message->request;
	start->source = message->source;
}

void mt_writer_begin_counting(struct mt_writer *writer, const struct mt_message *message)
{
	struct mt_store_stats stats;

	mt_store_stats_get(writer->store, &stats);
	writer->recording_id = message->recording_id;
	writer->assembly.recording_id = message->recording_id;
	mt_assembly_end_numbers(&writer->assembly);
	memset(&writer->assembly.counts, 0, sizeof(writer->assembly.counts));
	memset(&writer->committed, 0, sizeof(writer->committed));
	writer->committed_losses = 0;
	writer->committed_ns = message->time_ns;
	memset(&writer->losses, 0, sizeof(writer->losses));
	mt_writer_losses_seen(writer, &writer->losses_at_start);
	writer->discarded_passes = 0;
	memset(writer->n_readings, 0, sizeof(writer->n_readings));
	memset(writer->last_reading_ns, 0, sizeof(writer->last_reading_ns));
	memset(writer->n_invalid, 0, sizeof(writer->n_invalid));
	writer->n_ranges = 0;
	writer->n_untied = 0;
	/* Without memory for it kernels are stored without their passes. */
	if (writer->session->collect && !writer->tied.passes)
		(void)mt_tied_open(&writer->tied);
	memset(writer->gaps, 0, sizeof(writer->gaps));
	writer->has_lost = 0;
	writer->first_commit = stats.n_commits;
	writer->earlier_pass_id = own_pass_id(writer, writer->assembly.last_pass_id);
	writer->passes_before = writer->assembly.last_pass_id;
	writer->ring_peak_bytes = 0;
	writer->start_ns = message->time_ns;
	writer->end_ns = UINT64_MAX;
	writer->start_cpu_ns = mt_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	writer->last_load_ns = message->time_ns;
	mt_load_start(&writer->load, message->recording_id, message->time_ns,
		      writer->session->opts.window_ns);
	writer->assembly.mode = message->state;
	writer->assembly.sample_every_n_requests = (uint32_t)message->number;
}

int mt_writer_start_recording(struct mt_writer *writer, const struct mt_message *message)
{
	struct mt_loss_counts seen;
	int status = MOETRACE_OK;

	/* A rotation starts what goes on; what was lost before a start is of the recordings before. */
	if (message != writer->start)
		status = mt_writer_collect_late(writer);
	if (status)
		return status;
	remember_start(writer, message);
	writer->newest_id = message->recording_id;
	writer->file_recording_id = message->recording_id;
	mt_writer_begin_counting(writer, message);
	mt_collect_reset(writer->session->collect);
	status = mt_store_recording(writer->store, message->recording_id,
				    (int64_t)message->time_ns, message->state, message->text2,
				    message->text);
	if (!status)
		status = write_clock(writer);
	/* In mode STAT requests have no rows: the ledger stays idle. */
	mt_writer_losses_seen(writer, &seen);
	if (!status && !message->request && message->state != MOETRACE_MODE_STAT)
		status = mt_ledger_start(&writer->ledger, message->recording_id, message->time_ns,
					 mt_lost_passes(&seen));
	/* What was lost since the last look is kept with the rest, as soon as anything is. */
	writer->flight.is_writing = message->request != 0;
	/* At once, so that a process killed from now on leaves a recording without an end. */
	if (!status)
		status = mt_writer_commit(writer);
	if (!status)
		mt_writer_note_file_id(writer, message->recording_id);
	if (!status && message->request)
		mt_flight_start(writer, message);
	if (!status)
		mt_collect_start(writer->session->collect);
	return status;
}

/* Whoever set a trigger was told that what is kept will be written: it is, if the end comes first. */
static int end_flight(struct mt_writer *writer, const char *reason, uint64_t end_ns)
{
	int status;

	if (!mt_session_take_trigger(writer->session, writer->flight.reason))
		return mt_flight_end(writer, reason, end_ns);
	status = mt_flight_write(writer, writer->flight.reason, end_ns);
	/* The file limit may have ended the recording, and that is said already. */
	return mt_store_has_failed(writer->store) || status == MOETRACE_E_NOMEM ? status :
										  MOETRACE_OK;
}

int mt_writer_end_recording(struct mt_writer *writer, const char *reason, uint64_t end_ns)
{
	uint64_t n_unended = writer->assembly.counts.unended;
	uint32_t recording_id = writer->recording_id;
	int status;

	if (writer->flight.recording_id && !writer->flight.is_writing)
		return end_flight(writer, reason, end_ns);
	if (!writer->recording_id)
		return MOETRACE_OK;
	mt_collect_stop(writer->session->collect, 0);
	mt_collect_settle(writer->session->collect);
	/* A stop may have been said while a rotation was on its way. */
	if (end_ns < writer->start_ns)
		end_ns = writer->start_ns;
	writer->end_ns = end_ns;
	status = mt_assembly_cut(&writer->assembly);
	n_unended = writer->assembly.counts.unended - n_unended + mt_writer_count_untold(writer);
	if (!status)
		status = mt_writer_write_cut_gap(writer, end_ns, n_unended, "stop_timeout");
	if (!status)
		status = write_load(writer);
	if (!status)
		status = write_facts(writer);
	if (!status)
		status = write_clock(writer);
	if (!status)
		status = mt_store_recording_end(writer->store, writer->recording_id,
						(int64_t)end_ns, reason);
	if (!status)
		status = mt_ledger_stop(&writer->ledger);
	writer->recording_id = 0;
	writer->assembly.recording_id = 0;
	writer->ended.recording_id = recording_id;
	writer->ended.start_ns = writer->start_ns;
	writer->ended.end_ns = end_ns;
	if (!status)
		status = mt_writer_commit(writer);
	/* Not ended: whoever is told counts what is lost. */
	if (status)
		writer->recording_id = recording_id;
	return status ? status : mt_store_checkpoint(writer->store, 1);
}

/* Recordings up to this one are off, and what is still on a GPU will not be stored. */
void mt_writer_abandon_gpus(struct mt_writer *writer, uint32_t last_id)
{
	struct moetrace_session *session = writer->session;
	struct mt_cuda_mark mark;

	mt_cuda_mark(session, &mark);
	(void)mt_cuda_abandon(session, last_id, &mark);
}

void mt_writer_end_full(struct mt_writer *writer)
{
	struct moetrace_session *session = writer->session;
	uint64_t n_lost, end_ns;
	int status;

	/* One that was switched to does not begin any more: what it lost is of this one. */
	writer->newest_id = mt_session_end_now(session);
	/* After it: what sees the recording running has begun before its end. */
	end_ns = mt_writer_now_ns(writer);
	mt_writer_rotation_cancel(writer);
	atomic_store(&session->failed, MOETRACE_E_IO);
	mt_session_error(session, MOETRACE_E_IO,
			 "%s: the file limit of %llu bytes is reached; the recording has ended; "
			 "rotate into another file",
			 session->path, (unsigned long long)writer->limit_bytes);
	mt_writer_abandon_gpus(writer, writer->newest_id);
	status = mt_assembly_cut(&writer->assembly);
	n_lost = mt_writer_discard_rings(writer) + mt_flight_abandon(writer);
	writer->losses.passes += n_lost;
	writer->discarded_passes += n_lost;
	if (!status)
		status = mt_writer_write_cut_gap(writer, end_ns, n_lost, "file_limit");
	if (!status)
		status = mt_writer_end_recording(writer, "file_limit", end_ns);
	writer->is_full = 0;
	if (status)
		writer->status = status;
}

int mt_writer_revive(struct mt_writer *writer)
{
	struct moetrace_session *session = writer->session;
	int status = MOETRACE_OK;

	if (!writer->status && !atomic_load(&session->failed))
		return MOETRACE_OK;
	if (!writer->status && mt_writer_is_over_limit(writer))
		return mt_session_error(session, MOETRACE_E_IO,
					"%s: the file limit of %llu bytes is reached; rotate into "
					"another file first",
					session->path, (unsigned long long)writer->limit_bytes);
	if (writer->status == MOETRACE_E_NOMEM)
		return MOETRACE_E_NOMEM;
	if (writer->status && writer->has_last_words)
		return mt_session_error(session, MOETRACE_E_IO, "%s", mt_store_error(writer->store));
	if (writer->status)
		status = mt_store_revive(writer->store);
	if (status)
		return mt_session_error(session, status, "%s", mt_store_error(writer->store));
	mt_assembly_drop(&writer->assembly);
	mt_load_drop(&writer->load);
	writer->status = MOETRACE_OK;
	writer->is_full = 0;
	atomic_store(&session->failed, 0);
	status = mt_store_begin(writer->store);
	return status ? status : mt_writer_define_missing(writer);
}

int mt_writer_close_store(struct mt_writer *writer)
{
	int is_folded;
	int status = MOETRACE_OK;

	if (!writer->status && mt_writer_current_id(writer))
		status = mt_writer_end_recording(writer, "closed", mt_writer_now_ns(writer));
	if (!writer->status && !status && mt_store_begin(writer->store) == MOETRACE_OK)
		status = mt_writer_write_hung(writer);
	if (!writer->status && !status && mt_store_begin(writer->store) == MOETRACE_OK)
		status = mt_writer_commit(writer);
	if (writer->has_last_words)
		(void)mt_store_last_words(writer->store, &writer->last_gap,
					  (int64_t)writer->losses.passes);
	if (mt_store_close(writer->store, (int64_t)mt_writer_now_ns(writer), CLOSE_PATIENCE_NS,
			   &is_folded) &&
	    !status)
		status = MOETRACE_E_IO;
	return status;
}
