/* SPDX-License-Identifier: MIT */
/*
 * What a session is doing: counters that the writer published at its last commit, losses as of
 * now, and rates over the last whole second or two.
 */
#include "libtrace/session.h"

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/control/server.h"

static void fill_rates(const struct mt_published *published,
		       struct moetrace_session_status *ret_status)
{
	double s = (double)published->rate_ns / MT_NS_PER_S;
	uint64_t room_bytes = ret_status->file_limit_bytes > ret_status->file_bytes ?
				      ret_status->file_limit_bytes - ret_status->file_bytes :
				      0;

	ret_status->limit_in_s = -1.0;
	if (!published->rate_ns || !ret_status->is_recording)
		return;
	ret_status->passes_per_s = (double)published->rate_passes / s;
	ret_status->rows_per_s = (double)published->rate_rows / s;
	ret_status->file_bytes_per_s = (double)published->rate_bytes / s;
	if (published->rate_bytes)
		ret_status->limit_in_s = (double)room_bytes / ret_status->file_bytes_per_s;
}

static void fill_status(struct moetrace_session *session, const struct mt_published *published,
			struct moetrace_session_status *ret_status)
{
	const struct mt_loss_counts *before = &published->at_start;
	struct mt_loss_counts now;

	mt_losses_read(session, &now);
	ret_status->is_recording = atomic_load(&session->recording_id) != 0;
	ret_status->is_failed = atomic_load(&session->failed) != 0;
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
	ret_status->file_limit_bytes = published->file_limit_bytes;
	ret_status->ring_bytes = session->opts.ring_bytes * session->opts.n_rings;
	ret_status->ring_peak_bytes = published->ring_peak_bytes;
	ret_status->writer_cpu_ns = published->writer_cpu_ns;
	ret_status->memory_bytes = atomic_load(&session->pool.memory_bytes) + published->store_memory_bytes +
				   published->flight_bytes;
	ret_status->flight_bytes = published->flight_bytes;
	ret_status->flight_fill_bytes = published->flight_fill_bytes;
	ret_status->flight_passes = published->flight_passes;
	ret_status->control_cpu_ns = mt_server_cpu_ns(session->server);
	for (uint32_t i = 0; i < session->pool.n_streams; i++)
		ret_status->ring_fill_bytes += mt_ring_waiting_bytes(&session->pool.rings[i]);
	fill_rates(published, ret_status);
	if (ret_status->is_recording)
		ret_status->recording_ns =
			mt_session_ns(session, mt_monotonic_ns()) - published->start_ns;
}

int moetrace_status(struct moetrace_session *session, struct moetrace_session_status *ret_status)
{
	struct moetrace_session_status status = { .size = sizeof(status) };
	struct mt_published published;

	if (!session || !ret_status || !mt_abi_knows(ret_status->size, MT_FIRST_STATUS))
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	pthread_mutex_lock(&session->text);
	published = session->published;
	pthread_mutex_unlock(&session->text);
	status.recording_id = atomic_load(&session->last_recording_id);
	fill_status(session, &published, &status);
	mt_abi_narrow(ret_status, ret_status->size, &status, sizeof(status));
	return MOETRACE_OK;
}
