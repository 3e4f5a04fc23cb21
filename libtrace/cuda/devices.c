/* SPDX-License-Identifier: MIT */
/*
 * The devices of a session, each with a ring and a thread of its own, and the order between what
 * they deliver and what is said otherwise: a message that is kept back remembers how far each ring
 * was when it was posted. It goes on when all of them were delivered up to there, and no thread
 * delivers what lies behind such a place while the message waits for another device.
 *
 * That nobody waits for ever: of the first message in the list each device has delivered what was
 * before it or may deliver it, since the places of later messages lie behind.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"

/* How long the thread of a pass that is refused may take to count that. */
#define REFUSAL_PATIENCE_NS (5 * MT_NS_PER_S)

_Static_assert(MOETRACE_CUDA_MAX_DEVICES <= MT_MAX_STREAMS, "a message has a position for each");

struct mt_cuda_set *mt_cuda_set_of(struct moetrace_session *session)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);

	if (set)
		return set;
	set = calloc(1, sizeof(*set));
	if (!set)
		return NULL;
	set->session = session;
	set->last = &set->first;
	pthread_mutex_init(&set->messages, NULL);
	atomic_store(&session->cuda, set);
	return set;
}

static uint64_t delivered_up_to(const struct moetrace_cuda *cuda)
{
	/* Pairs with the drain thread: what it handed over is in the recorder's rings. */
	return atomic_load_explicit(&cuda->ring.tail, memory_order_acquire);
}

static int is_due(struct mt_cuda_set *set, const struct mt_message *message)
{
	/* Records of a device without an open pass were given up, and are waited for no more. */
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		if (delivered_up_to(set->devices[i]) < message->heads[i] &&
		    mt_cuda_in_flight(set->devices[i]))
			return 0;
	return 1;
}

/* Under the lock; the first @n_over of all messages wait for nothing any more. */
static void post_due(struct mt_cuda_set *set, uint64_t n_over)
{
	while (set->first &&
	       (atomic_load(&set->n_let_go) < n_over || is_due(set, set->first))) {
		struct mt_message *message = set->first;

		set->first = message->next;
		if (!set->first)
			set->last = &set->first;
		message->next = NULL;
		mt_session_post_stamped(set->session, message);
		/* Last: whoever waits for it finds the message in the queue. */
		atomic_fetch_add(&set->n_let_go, 1);
	}
}

int mt_cuda_post_messages(struct moetrace_cuda *cuda, uint64_t position)
{
	struct mt_cuda_set *set = cuda->set;
	int may_go_on;

	/* Pairs with mt_cuda_defer(): a record behind a message is seen after the message. */
	if (atomic_load(&set->n_kept) == atomic_load(&set->n_let_go))
		return 1;
	pthread_mutex_lock(&set->messages);
	post_due(set, 0);
	may_go_on = !set->first || set->first->heads[cuda->index] > position;
	pthread_mutex_unlock(&set->messages);
	return may_go_on;
}

static uint64_t in_flight(struct mt_cuda_set *set)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		n += mt_cuda_in_flight(set->devices[i]);
	return n;
}

int mt_cuda_defer(struct moetrace_session *session, struct mt_message *message)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);

	/* What begins something is never too early. */
	if (!set || message->type < MT_MESSAGE_REQUEST_END)
		return 0;
	pthread_mutex_lock(&set->messages);
	if (!set->first && !in_flight(set)) {
		pthread_mutex_unlock(&set->messages);
		return 0;
	}
	memset(message->heads, 0, sizeof(message->heads));
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		message->heads[i] = mt_ring_head(&set->devices[i]->ring);
	message->next = NULL;
	*set->last = message;
	set->last = &message->next;
	atomic_fetch_add(&set->n_kept, 1);
	pthread_mutex_unlock(&set->messages);
	return 1;
}

void mt_cuda_rest(void)
{
	const struct timespec pause = { 0, 100 * 1000 };

	nanosleep(&pause, NULL);
}

void mt_cuda_mark(struct moetrace_session *session, struct mt_cuda_mark *ret_mark)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	uint32_t n_devices = set ? atomic_load(&set->n_devices) : 0;

	memset(ret_mark, 0, sizeof(*ret_mark));
	for (uint32_t i = 0; i < n_devices; i++)
		ret_mark->heads[i] = mt_ring_head(&set->devices[i]->ring);
	if (set)
		ret_mark->n_kept = atomic_load(&set->n_kept);
}

/* Open passes of a recording, and of those before it that may have some. */
static uint64_t count_open(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < MT_CUDA_N_LIVE && i < recording_id; i++)
		n += mt_cuda_n_open(atomic_load(mt_cuda_open_of(cuda, recording_id - i)));
	return n;
}

static uint64_t count_left(struct mt_cuda_set *set, uint32_t recording_id,
			   const struct mt_cuda_mark *mark)
{
	uint64_t n = 0;

	for (uint32_t i = 0; set && i < atomic_load(&set->n_devices); i++) {
		struct moetrace_cuda *cuda = set->devices[i];

		if (recording_id)
			n += count_open(cuda, recording_id);
		else if (delivered_up_to(cuda) < mark->heads[i])
			n += mt_cuda_in_flight(cuda);
	}
	return n;
}

int mt_cuda_is_through(struct moetrace_session *session, uint32_t recording_id,
		       const struct mt_cuda_mark *mark)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);

	return !count_left(set, recording_id, mark) &&
	       (!set || atomic_load(&set->n_let_go) >= mark->n_kept);
}

uint64_t mt_cuda_wait(struct moetrace_session *session, uint32_t recording_id,
		      const struct mt_cuda_mark *mark, uint64_t timeout_ns)
{
	uint64_t until_ns = mt_monotonic_ns() + timeout_ns;

	while (!mt_cuda_is_through(session, recording_id, mark) && mt_monotonic_ns() < until_ns)
		mt_cuda_rest();
	return count_left(atomic_load(&session->cuda), recording_id, mark);
}

/* Passes of one recording whose groups came in part: they are stored with the others dropped. */
static uint64_t end_partial(struct moetrace_cuda *cuda, uint32_t recording_id, uint64_t now_ns)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < atomic_load(&cuda->n_lanes); i++) {
		struct moetrace_pass *pass = cuda->lanes[i].pass;

		if (!pass || atomic_load(&pass->recording_id) != recording_id)
			continue;
		mt_cuda_deliver_end(&cuda->lanes[i], now_ns);
		n++;
	}
	return n;
}

/* Under the lock deliver: the passes of one recording that are left are open no more. */
static uint64_t abandon_one(struct moetrace_cuda *cuda, uint32_t recording_id, uint64_t now_ns)
{
	uint64_t n = atomic_fetch_and(mt_cuda_open_of(cuda, recording_id), ~MT_CUDA_OPEN_MASK) &
		     MT_CUDA_OPEN_MASK;
	uint64_t n_ended = end_partial(cuda, recording_id, now_ns);

	if (n > n_ended)
		mt_cuda_lose(cuda, recording_id, n - n_ended);
	return n;
}

/* Whoever is refused now counts that at once, if it is not stopped at that very moment. */
static void wait_for_refusals(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	uint64_t until_ns = mt_monotonic_ns() + REFUSAL_PATIENCE_NS;

	while (count_open(cuda, recording_id) && mt_monotonic_ns() < until_ns)
		mt_cuda_rest();
}

static uint64_t abandon(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	uint64_t now_ns = mt_session_ns(cuda->session, mt_monotonic_ns());
	uint64_t n = 0;

	if (!count_open(cuda, recording_id))
		return 0;
	/* The writer may be here, for whom the drain thread may be waiting. */
	atomic_fetch_add(&cuda->n_hurried, 1);
	pthread_mutex_lock(&cuda->deliver);
	atomic_fetch_sub(&cuda->n_hurried, 1);
	for (uint32_t i = 0; i < MT_CUDA_N_LIVE && i < recording_id; i++)
		n += abandon_one(cuda, recording_id - i, now_ns);
	if (recording_id > cuda->abandoned_id)
		cuda->abandoned_id = recording_id;
	pthread_mutex_unlock(&cuda->deliver);
	wait_for_refusals(cuda, recording_id);
	return n;
}

uint64_t mt_cuda_abandon(struct moetrace_session *session, uint32_t recording_id,
			 const struct mt_cuda_mark *mark)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	uint64_t n = 0;

	if (!set || mt_cuda_is_through(session, recording_id, mark))
		return 0;
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		n += abandon(set->devices[i], recording_id);
	pthread_mutex_lock(&set->messages);
	/* What was said later waits for passes of the next recording, if there are any. */
	post_due(set, in_flight(set) ? mark->n_kept : UINT64_MAX);
	pthread_mutex_unlock(&set->messages);
	return n;
}

void mt_cuda_end(struct moetrace_session *session)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	uint32_t last_id = atomic_load(&session->last_recording_id);
	struct mt_cuda_mark mark;

	if (!set)
		return;
	mt_cuda_mark(session, &mark);
	(void)mt_cuda_wait(session, last_id, &mark, session->opts.stop_timeout_ms * MT_NS_PER_MS);
	(void)mt_cuda_abandon(session, last_id, &mark);
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		mt_cuda_drain_stop(set->devices[i]);
}

void mt_cuda_close(struct moetrace_session *session)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	int is_forked = atomic_load(&session->forked) != 0;

	if (!set)
		return;
	atomic_store(&session->cuda, NULL);
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		mt_cuda_release(set->devices[i], is_forked);
	free(set);
}
