/* SPDX-License-Identifier: MIT */
/*
 * The calls of <moetrace/timing.h>. All but the naming of things belongs to the hot path: it does
 * not allocate, lock, log, make a system call or wait.
 */
#include "libtrace/hot.h"

#include "libtrace/clock.h"
#include "libtrace/ranges.h"
#include "libtrace/strings.h"

uint64_t moetrace_clock_ns(void)
{
	return mt_monotonic_ns();
}

/* A number for a name; what is wrong with it in words. */
static int add_name(struct moetrace_session *session, const char *name, uint32_t role,
		    uint32_t flags, uint32_t *ret_name)
{
	void *tool = NULL;
	int status;

	if (ret_name)
		*ret_name = 0;
	if (!session || !ret_name || !name || !*name)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (role == MT_NO_ROLE && session->tool.ops)
		tool = session->tool.ops->name(name);
	status = mt_strings_add(&session->strings, name, role, flags, tool, ret_name);
	if (status)
		return mt_session_error(session, status, "%.100s: %s", name,
					status == MOETRACE_E_LIMIT ? "too many names" :
								     "out of memory");
	return MOETRACE_OK;
}

int moetrace_kernel_name_add(struct moetrace_session *session, const char *name, uint32_t role,
			     uint32_t flags, uint32_t *ret_name)
{
	int is_known = mt_role_name(role) && flags <= MOETRACE_KERNEL_MOVES_DATA;

	return add_name(is_known ? session : NULL, name, role, flags, ret_name);
}

static int is_possible(const struct moetrace_pass *pass, const struct moetrace_kernel_time *time,
		       uint32_t n_names)
{
	struct moetrace_session *session = pass->session;

	return time->name >= 1 && time->name <= n_names &&
	       mt_strings_at(&session->strings, time->name)->role != MT_NO_ROLE &&
	       (time->layer_index < pass->model->n_layers ||
		time->layer_index == MOETRACE_NO_LAYER) &&
	       time->start_ns >= session->start_monotonic_ns && time->end_ns >= time->start_ns &&
	       time->end_ns <= INT64_MAX;
}

void moetrace_pass_kernels(struct moetrace_pass *pass, const struct moetrace_kernel_time *times,
			   uint32_t n_times)
{
	struct mt_reservation reservation;
	struct mt_record_kernels *to;
	struct mt_ring *ring;
	uint64_t n_bytes = sizeof(*to) + (uint64_t)n_times * sizeof(struct moetrace_kernel_time);
	uint32_t n_names;
	uint64_t now_ns;

	if (!pass || !n_times || pass->mode == MOETRACE_MODE_STAT)
		return;
	n_names = mt_strings_count(&pass->session->strings);
	for (uint32_t i = 0; times && i < n_times; i++)
		if (!is_possible(pass, &times[i], n_names))
			times = NULL;
	if (!times)
		return mt_misuse(pass->session, MT_MISUSE_KERNELS);
	now_ns = mt_pass_now(pass);
	ring = mt_stream_of(pass);
	reservation = mt_stream_reserve(pass, ring, MT_RECORD_KERNELS, n_bytes);
	to = (struct mt_record_kernels *)reservation.record;
	if (!to)
		return mt_count_losses(pass->session, mt_recording_of(pass),
				       MT_LOSS_KERNEL_RING_FULL, n_times, n_bytes, now_ns);
	to->record.time_ns = now_ns;
	to->n_times = n_times;
	to->reserved = 0;
	for (uint32_t i = 0; i < n_times; i++) {
		to->times[i] = times[i];
		to->times[i].start_ns = mt_session_ns(pass->session, times[i].start_ns);
		to->times[i].end_ns = mt_session_ns(pass->session, times[i].end_ns);
	}
	mt_ring_commit(ring, reservation);
}

/* ---- ranges ---- */

int moetrace_range_name_add(struct moetrace_session *session, const char *name, uint32_t *ret_name)
{
	int status = add_name(session, name, MT_NO_ROLE, 0, ret_name);

	if (!status)
		status = mt_ranges_make(session);
	if (status && ret_name)
		*ret_name = 0;
	return status;
}

static int is_range_name(struct moetrace_session *session, uint32_t name)
{
	return name >= 1 && name <= mt_strings_count(&session->strings) &&
	       mt_strings_at(&session->strings, name)->role == MT_NO_ROLE;
}

void moetrace_range_push(struct moetrace_session *session, uint32_t name,
			 struct moetrace_range *ret_range)
{
	struct mt_tool_range range = { 0, 0 };

	if (!ret_range)
		return;
	ret_range->name = 0;
	ret_range->has_tool = 0;
	if (!session || !atomic_load_explicit(&session->recording_id, memory_order_relaxed))
		return;
	if (!is_range_name(session, name))
		return mt_misuse(session, MT_MISUSE_RANGE_NAME);
	ret_range->name = name;
	ret_range->start_ns = mt_session_ns(session, mt_monotonic_ns());
	mt_tool_begin(&session->tool, mt_strings_at(&session->strings, name)->tool, 0, &range);
	ret_range->tool = range.number;
	ret_range->has_tool = range.is_open;
}

/* Whatever becomes of the recording: the tool has one of its own. */
static void end_for_tool(struct moetrace_session *session, struct moetrace_range *range)
{
	struct mt_tool_range tool = { range->tool, range->has_tool };

	mt_tool_end(&session->tool, &tool);
	range->has_tool = 0;
}

void moetrace_range_pop(struct moetrace_session *session, struct moetrace_range *range)
{
	struct mt_reservation reservation;
	struct mt_record_range *to;
	struct mt_ring *ring;
	uint32_t recording_id;
	uint64_t now_ns;

	if (!session || !range || !range->name)
		return;
	now_ns = mt_session_ns(session, mt_monotonic_ns());
	if (!is_range_name(session, range->name) || range->start_ns > now_ns) {
		range->name = 0;
		return mt_misuse(session, MT_MISUSE_RANGE_NAME);
	}
	end_for_tool(session, range);
	recording_id = atomic_load_explicit(&session->recording_id, memory_order_relaxed);
	if (!recording_id)
		return;
	/* The name was added, and with it the ring made. */
	ring = atomic_load_explicit(&session->ranges, memory_order_acquire);
	reservation = mt_ring_reserve(ring, MT_RECORD_RANGE, sizeof(*to));
	to = (struct mt_record_range *)reservation.record;
	if (!to) {
		range->name = 0;
		return mt_count_loss(session, recording_id, MT_LOSS_RANGE_RING_FULL, sizeof(*to),
				     now_ns);
	}
	to->record.time_ns = now_ns;
	to->start_ns = range->start_ns;
	to->thread = mt_thread_number();
	to->name = range->name;
	to->reserved = 0;
	range->name = 0;
	mt_ring_commit(ring, reservation);
}
