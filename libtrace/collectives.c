/* SPDX-License-Identifier: MIT */
/*
 * Collectives of a pass: the runtime's call, which belongs to the hot path, and the writer's rows of
 * table collective. They were checked on the hot path, so that the writer believes them.
 */
#include "libtrace/collectives.h"

#include <stdlib.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/hot.h"
#include "libtrace/strings.h"

/* By enum moetrace_collective_kind; as collective.kind. */
static const char *const kinds[] = { "other",	  "all_reduce", "all_gather", "reduce_scatter",
				     "all_to_all", "broadcast",	 "reduce",     "send",
				     "receive",	  "barrier",	"dispatch",   "combine" };

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- the hot path ---- */

/* Whether a name is none, or one that was added. */
static int is_name(struct moetrace_session *session, uint32_t name, uint32_t n_names)
{
	return !name || (name <= n_names &&
			 mt_strings_at(&session->strings, name)->role == MT_NO_ROLE);
}

static int is_possible(const struct moetrace_pass *pass, const struct moetrace_collective *given,
		       uint64_t now_ns)
{
	struct moetrace_session *session = pass->session;
	uint32_t n_names = mt_strings_count(&session->strings);

	return given->kind < N_KINDS && given->start_ns >= session->start_monotonic_ns &&
	       given->end_ns >= given->start_ns &&
	       mt_session_ns(session, given->end_ns) >= pass->begin_ns &&
	       mt_session_ns(session, given->end_ns) <= now_ns &&
	       (given->bytes <= INT64_MAX || given->bytes == MOETRACE_UNKNOWN_BYTES) &&
	       (given->layer_index < pass->model->n_layers ||
		given->layer_index == MOETRACE_NO_LAYER) &&
	       is_name(session, given->name, n_names) &&
	       is_name(session, given->algorithm, n_names) &&
	       is_name(session, given->protocol, n_names);
}

void moetrace_pass_collective(struct moetrace_pass *pass,
			      const struct moetrace_collective *collective)
{
	struct moetrace_collective room;
	struct mt_reservation reservation;
	struct mt_record_collective *to;
	struct mt_ring *ring;
	uint64_t now_ns;

	if (!pass)
		return;
	if (!collective || !mt_abi_knows(collective->size, MT_FIRST_COLLECTIVE))
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	if (pass->mode == MOETRACE_MODE_STAT)
		return;
	collective = MT_ABI_WIDEN(collective, &room);
	now_ns = mt_pass_now(pass);
	if (!is_possible(pass, collective, now_ns))
		return mt_misuse(pass->session, MT_MISUSE_COLLECTIVE);
	ring = mt_stream_of(pass);
	reservation = mt_stream_reserve(pass, ring, MT_RECORD_COLLECTIVE, sizeof(*to));
	to = (struct mt_record_collective *)reservation.record;
	if (!to)
		return mt_count_loss(pass->session, mt_recording_of(pass),
				     MT_LOSS_COLLECTIVE_RING_FULL, sizeof(*to), now_ns);
	to->record.time_ns = now_ns;
	to->collective = *collective;
	to->collective.start_ns = mt_session_ns(pass->session, collective->start_ns);
	to->collective.end_ns = mt_session_ns(pass->session, collective->end_ns);
	mt_ring_commit(ring, reservation);
}

/* ---- the writer ---- */

int mt_collective_record(struct mt_open_pass *pass, const struct mt_record_collective *record)
{
	uint64_t capacity = pass->collectives_capacity ? 2 * pass->collectives_capacity : 64;
	struct moetrace_collective *grown;

	if (pass->n_collectives == pass->collectives_capacity) {
		grown = realloc(pass->collectives, capacity * sizeof(*grown));
		if (!grown)
			return MOETRACE_E_NOMEM;
		pass->collectives = grown;
		pass->collectives_capacity = capacity;
	}
	pass->collectives[pass->n_collectives++] = record->collective;
	return MOETRACE_OK;
}

static int64_t told(uint32_t value)
{
	return value ? (int64_t)value : MT_NULL;
}

int mt_collectives_write(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	int status = MOETRACE_OK;

	if (assembly->mode == MOETRACE_MODE_STAT)
		return MOETRACE_OK;
	for (uint64_t i = 0; !status && i < pass->n_collectives; i++) {
		const struct moetrace_collective *from = &pass->collectives[i];
		const struct mt_collective_row row = {
			.recording_id = assembly->recording_id,
			.pass_id = pass->pass_id,
			.layer_id = from->layer_index == MOETRACE_NO_LAYER ?
					    MT_NULL :
					    (int64_t)pass->model->layers[from->layer_index].layer_id,
			.kind = kinds[from->kind],
			.start_ns = (int64_t)from->start_ns,
			.end_ns = (int64_t)from->end_ns,
			.bytes = from->bytes == MOETRACE_UNKNOWN_BYTES ? MT_NULL :
									 (int64_t)from->bytes,
			.n_ranks = told(from->n_ranks),
			.name_id = told(from->name),
			.algorithm_id = told(from->algorithm),
			.protocol_id = told(from->protocol),
			.n_channels = told(from->n_channels),
		};

		status = mt_store_collective(assembly->store, &row);
	}
	assembly->counts.collectives += pass->n_collectives;
	return status;
}
