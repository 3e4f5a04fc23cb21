/* SPDX-License-Identifier: MIT */
/*
 * The hot path. Nothing here allocates, locks, logs, makes a system call or waits; what does
 * not fit is counted. A pass lives in the ring that it claimed, so it needs no thread-local
 * memory and any thread may hand over its layers: the first that does has the ring's main
 * stream to itself, others share the side stream. Handing over a layer executes no locked
 * instruction on the main stream.
 *
 * Recording is latched: the ring is claimed first, then the recording is read; stop clears
 * the recording first and then looks for claimed rings. So every pass is either seen by stop
 * or sees that recording is off.
 */
#include "libtrace/hot.h"

#include <string.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/host_ties.h"
#include "libtrace/late.h"
#include "libtrace/overhead.h"

void mt_misuse(struct moetrace_session *session, enum mt_misuse misuse)
{
	atomic_fetch_add_explicit(&session->misuse[misuse], 1, memory_order_relaxed);
}

void mt_count_losses(struct moetrace_session *session, uint32_t recording_id,
		     enum mt_loss_kind kind, uint64_t n, uint64_t n_bytes, uint64_t now_ns)
{
	struct mt_loss *loss = &session->losses[recording_id % MT_N_LOSS_TURNS][kind];
	uint64_t none = 0;

	atomic_compare_exchange_strong_explicit(&loss->first_ns, &none, now_ns,
						memory_order_relaxed, memory_order_relaxed);
	atomic_store_explicit(&loss->last_ns, now_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&loss->n_bytes, n_bytes, memory_order_relaxed);
	/* Pairs with mt_losses_read_turn(): the times are in place once the count is. */
	atomic_fetch_add_explicit(&loss->n, n, memory_order_release);
}

void mt_count_loss(struct moetrace_session *session, uint32_t recording_id, enum mt_loss_kind kind,
		   uint64_t n_bytes, uint64_t now_ns)
{
	mt_count_losses(session, recording_id, kind, 1, n_bytes, now_ns);
}

static int is_slice_phase(uint32_t phase)
{
	return phase >= MOETRACE_PHASE_PREFILL && phase <= MOETRACE_PHASE_DUMMY &&
	       phase != MOETRACE_PHASE_MIXED;
}

/*
 * A slice of a request has its pass's phase, unless the pass is mixed; or it is the sampled token
 * in front of a draft. Nobody has rows where there is nothing to do.
 */
static int is_phase_of(const struct moetrace_pass_info *info, const struct moetrace_slice *slice)
{
	uint32_t phase = slice->phase ? slice->phase : info->phase;

	if (!is_slice_phase(phase) || (phase == MOETRACE_PHASE_IDLE && slice->n_rows))
		return 0;
	return !slice->request || phase == info->phase || info->phase == MOETRACE_PHASE_MIXED ||
	       (info->phase == MOETRACE_PHASE_VERIFY && phase == MOETRACE_PHASE_DECODE);
}

/* Check a pass's description; returns 0 if it is consistent. */
static int check_info(struct moetrace_session *session, const struct moetrace_pass_info *info,
		      uint64_t *ret_n_positions)
{
	uint64_t n_rows = 0;
	uint64_t n_positions = 0;

	if (info->model == 0 || info->model > atomic_load_explicit(&session->n_models,
								    memory_order_acquire))
		return mt_misuse(session, MT_MISUSE_MODEL), -1;
	if (info->phase < MOETRACE_PHASE_PREFILL || info->phase > MOETRACE_PHASE_DUMMY)
		return mt_misuse(session, MT_MISUSE_PHASE), -1;
	if ((uint64_t)info->n_rows + info->padding_rows > MOETRACE_MAX_ROWS)
		return mt_misuse(session, MT_MISUSE_RANGE), -1;
	if (info->n_slices && !info->slices)
		return mt_misuse(session, MT_MISUSE_SLICES), -1;
	if (info->n_rows && (info->phase == MOETRACE_PHASE_IDLE ||
			     (!info->n_slices && info->phase == MOETRACE_PHASE_MIXED)))
		return mt_misuse(session, MT_MISUSE_PHASE), -1;
	for (uint32_t i = 0; i < info->n_slices; i++) {
		const struct moetrace_slice *slice = &info->slices[i];

		if (!is_phase_of(info, slice))
			return mt_misuse(session, MT_MISUSE_PHASE), -1;
		if (slice->request && !slice->positions && slice->n_rows &&
		    slice->first_position > UINT32_MAX - (slice->n_rows - 1))
			return mt_misuse(session, MT_MISUSE_RANGE), -1;
		n_rows += slice->n_rows;
		n_positions += slice->positions ? slice->n_rows : 0;
	}
	if (info->n_slices && n_rows != info->n_rows)
		return mt_misuse(session, MT_MISUSE_SLICES), -1;
	*ret_n_positions = n_positions;
	return 0;
}

/* Bytes of a KV slot; 0: none are told, -1: they cannot be read. */
static int slot_bytes(struct moetrace_session *session, const struct moetrace_pass_info *info)
{
	uint32_t type_bytes = mt_type_is_integer(info->kv_slot_type) ?
				      mt_type_bytes(info->kv_slot_type) :
				      0;

	if (type_bytes < 4 || ((uintptr_t)info->kv_slots & (type_bytes - 1)))
		return mt_misuse(session, MT_MISUSE_SLOTS), -1;
	return (int)type_bytes;
}

int mt_pass_check(struct moetrace_session *session, const struct moetrace_pass_info *info,
		  struct mt_pass_start *ret_start)
{
	int kv_bytes = 0;

	if (check_info(session, info, &ret_start->n_positions))
		return -1;
	if (info->kv_slots)
		kv_bytes = slot_bytes(session, info);
	ret_start->slot_bytes = (uint32_t)kv_bytes;
	return kv_bytes < 0 ? -1 : 0;
}

static void write_slices(struct mt_record_begin *begin, const struct moetrace_pass_info *info)
{
	uint64_t slots_bytes = mt_slots_bytes(info->n_rows, begin->slot_bytes);
	struct mt_record_slice *to =
		(struct mt_record_slice *)(void *)((uint8_t *)(begin + 1) + slots_bytes);
	uint32_t *positions = (uint32_t *)(to + info->n_slices);

	if (begin->slot_bytes)
		memcpy(begin + 1, info->kv_slots, (size_t)info->n_rows * begin->slot_bytes);
	for (uint32_t i = 0; i < info->n_slices; i++, to++) {
		const struct moetrace_slice *from = &info->slices[i];

		to->request = from->request;
		to->first_position = from->first_position;
		to->n_rows = from->n_rows;
		to->phase = from->phase ? from->phase : info->phase;
		to->has_positions = from->positions != NULL;
		if (from->positions) {
			memcpy(positions, from->positions, (size_t)from->n_rows * 4);
			positions += from->n_rows;
		}
	}
}

static uint64_t begin_bytes(const struct moetrace_pass_info *info, const struct mt_pass_start *start)
{
	return sizeof(struct mt_record_begin) +
	       (uint64_t)info->n_slices * sizeof(struct mt_record_slice) + start->n_positions * 4 +
	       mt_slots_bytes(info->n_rows, start->slot_bytes);
}

/*
 * Before the pass's last record is complete: who finds the ring in our hands after it knows that it has
 * all of the pass. 0 tells stop that whoever claims the ring next has not latched its recording yet.
 */
static void unlatch(struct moetrace_pass *pass)
{
	atomic_store_explicit(&pass->recording_id, 0, memory_order_relaxed);
}

static void write_begin(struct moetrace_pass *pass, struct mt_reservation reservation,
			const struct moetrace_pass_info *info, const struct mt_pass_start *start)
{
	struct mt_record_begin *begin = (struct mt_record_begin *)reservation.record;

	begin->record.time_ns = start->begin_ns;
	begin->runtime_pass = info->runtime_pass ? *info->runtime_pass : 0;
	begin->has_runtime_pass = info->runtime_pass != NULL;
	begin->number = start->number ? start->number : pass->number;
	begin->parent = info->parent;
	begin->microbatch = info->microbatch ? *info->microbatch : 0;
	begin->has_microbatch = info->microbatch != NULL;
	begin->slot_bytes = (uint8_t)start->slot_bytes;
	begin->slots_are_signed = info->kv_slot_type == MOETRACE_TYPE_I32 ||
				  info->kv_slot_type == MOETRACE_TYPE_I64;
	begin->recording_id = mt_recording_of(pass);
	begin->model = info->model;
	begin->phase = info->phase;
	begin->n_rows = info->n_rows;
	begin->padding_rows = info->padding_rows;
	begin->n_slices = info->n_slices;
	begin->n_positions = (uint32_t)start->n_positions;
	begin->map_epoch = pass->map_epoch;
	begin->skip = start->skip;
	begin->gpu = start->gpu;
	write_slices(begin, info);
	if (start->skip)
		unlatch(pass);
	mt_ring_commit(pass->ring, reservation);
}

static void reset_pass(struct moetrace_pass *pass, const struct moetrace_pass_info *info,
		       const struct mt_pass_start *start)
{
	struct moetrace_session *session = pass->session;

	pass->model = session->models[info->model - 1];
	pass->number += MT_MAX_RINGS;
	atomic_store_explicit(&pass->last_id, mt_recording_of(pass), memory_order_relaxed);
	pass->n_rows = info->n_rows;
	pass->padding_rows = info->padding_rows;
	pass->mode = atomic_load_explicit(&session->mode, memory_order_relaxed);
	pass->weight_format = atomic_load_explicit(&session->weight_format, memory_order_relaxed);
	pass->map_epoch = start->map_epoch;
	pass->is_special = pass->weight_format != MOETRACE_WEIGHT_FORMAT_FP16;
	pass->time_ns = 0;
	pass->begin_ns = start->begin_ns;
	pass->tool.is_open = 0;
	atomic_store_explicit(&pass->owner, 0, memory_order_relaxed);
	atomic_store_explicit(&pass->n_dropped, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < (pass->model->n_layers + 63) / 64; i++)
		atomic_store_explicit(&pass->dropped[i], 0, memory_order_relaxed);
}

static void release(struct moetrace_session *session, struct moetrace_pass *pass)
{
	unlatch(pass);
	mt_ring_release(&session->pool, pass->ring);
}

/*
 * Is the pass to be left out? A model's passes are counted apart from those of others, since
 * target and draft take turns, and a common count could always meet the same one.
 */
__attribute__((noinline)) static enum mt_skip
skip_of(struct moetrace_session *session, const struct moetrace_pass_info *info)
{
	uint32_t phases = atomic_load_explicit(&session->sample_phases, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&session->sample_every_n_passes, memory_order_relaxed);

	if (atomic_load_explicit(&session->n_disabled, memory_order_relaxed) > 0)
		return MT_SKIP_DISABLED;
	if (phases && !(phases >> info->phase & 1))
		return MT_SKIP_SAMPLED;
	if (n > 1 && atomic_fetch_add_explicit(&session->n_sampled[info->model - 1], 1,
					       memory_order_relaxed) % n)
		return MT_SKIP_SAMPLED;
	return MT_SKIP_NONE;
}

void mt_pass_latch(struct moetrace_session *session, const struct moetrace_pass_info *info,
		   struct mt_pass_start *start)
{
	start->map_epoch = atomic_load_explicit(&session->map_epochs[info->model - 1],
						memory_order_acquire);
	start->skip = MT_SKIP_NONE;
	if (atomic_load_explicit(&session->overhead, memory_order_relaxed) &&
	    mt_overhead_pass(session, info, start->begin_ns))
		start->skip = MT_SKIP_DISABLED;
	else if (atomic_load_explicit(&session->has_sampling, memory_order_relaxed) ||
		 atomic_load_explicit(&session->n_disabled, memory_order_relaxed))
		start->skip = skip_of(session, info);
}

/* What the program launches in it is to be tied to it, if somebody asks. */
static void tie_begin(const struct moetrace_pass *pass, const struct moetrace_pass_info *info)
{
	struct mt_ties *ties = pass->session->ties;

	if (ties && mt_ties_are_used(ties))
		mt_host_tie_begin(ties, mt_ring_index(&pass->session->pool, pass->ring),
				  mt_thread_number(), info->model, pass->number, info->parent);
}

static void tie_end(const struct moetrace_pass *pass)
{
	struct mt_ties *ties = pass->session->ties;

	if (ties)
		mt_host_tie_end(ties, mt_ring_index(&pass->session->pool, pass->ring));
}

static void tie_left_out(const struct moetrace_session *session)
{
	if (session->ties && mt_ties_are_used(session->ties))
		mt_host_ties_left_out(session->ties);
}

/* The pass of a ring that was claimed just now. */
static struct moetrace_pass *pass_of(struct moetrace_session *session, struct mt_ring *ring)
{
	struct moetrace_pass *pass = &session->passes[mt_ring_index(&session->pool, ring)];

	pass->session = session;
	pass->ring = ring;
	return pass;
}

struct moetrace_pass *moetrace_pass_begin(struct moetrace_session *session,
					  const struct moetrace_pass_info *info)
{
	struct mt_reservation reservation;
	struct moetrace_pass_info room;
	struct mt_pass_start start;
	struct moetrace_pass *pass;
	struct mt_ring *ring;
	uint32_t recording_id;
	uint64_t n_bytes;

	if (!session || !(recording_id = atomic_load_explicit(&session->recording_id,
							      memory_order_relaxed)))
		return NULL;
	if (!info || !mt_abi_knows(info->size, MT_FIRST_PASS_INFO))
		return mt_misuse(session, MT_MISUSE_SIZE), NULL;
	info = MT_ABI_WIDEN(info, &room);
	if (mt_pass_check(session, info, &start))
		return NULL;
	n_bytes = begin_bytes(info, &start);
	start.number = 0;
	start.gpu = 0;
	start.begin_ns = mt_session_ns(session, mt_monotonic_ns());
	ring = mt_ring_claim(&session->pool);
	if (!ring) {
		mt_count_loss(session, recording_id, MT_LOSS_PASS_NO_RING, n_bytes, start.begin_ns);
		tie_left_out(session);
		return NULL;
	}
	pass = pass_of(session, ring);
	atomic_store(&pass->recording_id, atomic_load(&session->recording_id));
	if (!atomic_load_explicit(&pass->recording_id, memory_order_relaxed))
		goto err_release;
	mt_pass_latch(session, info, &start);
	reservation = mt_ring_reserve_alone(ring, MT_RECORD_BEGIN, n_bytes, MT_END_BYTES);
	if (!reservation.record) {
		recording_id = mt_recording_of(pass);
		if (mt_pass_refuse(pass))
			mt_count_loss(session, recording_id, MT_LOSS_PASS_RING_FULL, n_bytes,
				      start.begin_ns);
		goto err_release;
	}
	reset_pass(pass, info, &start);
	write_begin(pass, reservation, info, &start);
	if (start.skip)
		goto err_release;
	mt_tool_begin(&session->tool, session->tool.phases[info->phase % MT_N_TOOL_PHASES],
		      info->runtime_pass ? *info->runtime_pass : pass->number, &pass->tool);
	tie_begin(pass, info);
	return pass;

err_release:
	tie_left_out(session);
	release(session, pass);
	return NULL;
}

/* Does nothing of a later recording lie in the ring? Its holder is told for sure. */
static int fits(struct moetrace_session *session, uint32_t index, uint32_t recording_id)
{
	return atomic_load_explicit(&session->passes[index].last_id, memory_order_relaxed) <=
		       recording_id ||
	       !mt_ring_waiting_bytes(&session->pool.rings[index]);
}

/*
 * A ring for a pass of this recording. If the next one is on already, what waits in a ring may be of
 * that, and stays there until the writer has ended this one: the pass must not come behind it.
 */
static struct mt_ring *claim_late(struct moetrace_session *session, uint32_t recording_id)
{
	struct mt_ring_pool *pool = &session->pool;
	int is_current = atomic_load(&session->recording_id) <= recording_id &&
			 atomic_load(&session->last_recording_id) <= recording_id;
	/* Else rings that the next one's passes claim are left to them. */
	struct mt_ring *ring = is_current ? mt_ring_claim(pool) : NULL;

	if (ring && fits(session, mt_ring_index(pool, ring), recording_id))
		return ring;
	if (ring)
		mt_ring_release(pool, ring);
	for (uint32_t i = 0; i < pool->late; i++) {
		if (!fits(session, i, recording_id) || !mt_ring_claim_one(pool, i))
			continue;
		if (fits(session, i, recording_id))
			return &pool->rings[i];
		mt_ring_release(pool, &pool->rings[i]);
	}
	ring = is_current ? NULL : mt_ring_claim_late(pool);
	if (!ring || fits(session, mt_ring_index(pool, ring), recording_id))
		return ring;
	mt_ring_release(pool, ring);
	return NULL;
}

int mt_pass_begin_late(struct moetrace_session *session, const struct moetrace_pass_info *info,
		       const struct mt_pass_start *start, struct moetrace_pass **ret_pass)
{
	struct mt_ring *ring = claim_late(session, start->recording_id);
	struct mt_reservation reservation;
	struct moetrace_pass *pass;

	if (!ring)
		return MOETRACE_E_LIMIT;
	pass = pass_of(session, ring);
	atomic_store(&pass->recording_id, start->recording_id);
	reservation = mt_ring_reserve_alone(ring, MT_RECORD_BEGIN, begin_bytes(info, start),
					    MT_END_BYTES);
	if (reservation.record) {
		reset_pass(pass, info, start);
		write_begin(pass, reservation, info, start);
	}
	*ret_pass = reservation.record && !start->skip ? pass : NULL;
	if (!*ret_pass)
		release(session, pass);
	return reservation.record ? MOETRACE_OK : MOETRACE_E_LIMIT;
}

uint64_t moetrace_pass_number(const struct moetrace_pass *pass)
{
	return pass ? pass->number : 0;
}

void moetrace_pass_end(struct moetrace_pass *pass)
{
	struct mt_reservation reservation;
	struct mt_record_end *end;

	if (!pass)
		return;
	tie_end(pass);
	/* Cannot fail: MT_END_BYTES were kept free and only this call takes them. */
	reservation = mt_ring_reserve_alone(pass->ring, MT_RECORD_END, sizeof(*end), 0);
	end = (struct mt_record_end *)reservation.record;
	end->record.time_ns = mt_pass_now(pass);
	end->side_position = mt_ring_head(mt_ring_side(&pass->session->pool, pass->ring));
	end->n_dropped = atomic_load_explicit(&pass->n_dropped, memory_order_relaxed);
	for (uint32_t i = 0; i < (pass->model->n_layers + 63) / 64; i++)
		end->dropped_layers[i] = atomic_load_explicit(&pass->dropped[i],
							      memory_order_relaxed);
	unlatch(pass);
	mt_ring_commit(pass->ring, reservation);
	mt_tool_end(&pass->session->tool, &pass->tool);
	mt_ring_release(&pass->session->pool, pass->ring);
}
