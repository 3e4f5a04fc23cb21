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

_Static_assert(MOETRACE_CUDA_MAX_DEVICES <= MT_MAX_STREAMS, "a message has a position for each");

/* How long stop waits for calls of the hot path to return. */
#define PATIENCE_NS (100 * MT_NS_PER_MS)

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
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		if (delivered_up_to(set->devices[i]) < message->heads[i])
			return 0;
	return 1;
}

/* Under the lock; @is_over: they wait for nothing any more. */
static void post_due(struct mt_cuda_set *set, int is_over)
{
	while (set->first && (is_over || is_due(set, set->first))) {
		struct mt_message *message = set->first;

		set->first = message->next;
		if (!set->first)
			set->last = &set->first;
		message->next = NULL;
		mt_session_post_stamped(set->session, message);
		atomic_fetch_sub(&set->n_messages, 1);
	}
}

int mt_cuda_post_messages(struct moetrace_cuda *cuda, uint64_t position)
{
	struct mt_cuda_set *set = cuda->set;
	int may_go_on;

	if (!atomic_load_explicit(&set->n_messages, memory_order_acquire))
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
	atomic_fetch_add_explicit(&set->n_messages, 1, memory_order_release);
	pthread_mutex_unlock(&set->messages);
	return 1;
}

/* Of the first @n_begun passes of a device, those that are still on their way. */
static uint64_t count_left(struct moetrace_cuda *cuda, uint64_t n_begun)
{
	uint64_t n_done = atomic_load(&cuda->n_settled) + atomic_load(&cuda->n_given_up);

	return n_done < n_begun ? n_begun - n_done : 0;
}

void mt_cuda_rest(void)
{
	const struct timespec pause = { 0, 100 * 1000 };

	nanosleep(&pause, NULL);
}

/*
 * Whoever is in a call on a lane may have seen the recording that is over, whoever comes later
 * does not.
 */
static void wait_for_callers(struct moetrace_cuda *cuda, uint64_t until_ns)
{
	for (uint32_t i = 0; i < atomic_load(&cuda->n_lanes); i++)
		while (atomic_fetch_or(&cuda->lanes[i].is_busy, 0) && mt_monotonic_ns() < until_ns)
			mt_cuda_rest();
}

uint64_t mt_cuda_wait(struct moetrace_session *session, uint64_t timeout_ns)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	uint64_t until_ns = mt_monotonic_ns() + timeout_ns;
	uint64_t n_begun[MOETRACE_CUDA_MAX_DEVICES];
	uint32_t n_devices = set ? atomic_load(&set->n_devices) : 0;
	uint64_t n_left = 0;

	/* A pass whose begin has looked for a recording, but has not counted itself, is one of them. */
	for (uint32_t i = 0; i < n_devices; i++) {
		wait_for_callers(set->devices[i], until_ns);
		n_begun[i] = atomic_load(&set->devices[i]->n_begun);
	}
	while (n_devices) {
		n_left = 0;
		for (uint32_t i = 0; i < n_devices; i++)
			n_left += count_left(set->devices[i], n_begun[i]);
		if ((!n_left && !atomic_load(&set->n_messages)) || mt_monotonic_ns() >= until_ns)
			break;
		mt_cuda_rest();
	}
	return n_left;
}

static uint64_t abandon(struct moetrace_cuda *cuda)
{
	uint64_t now_ns = mt_session_ns(cuda->session, mt_monotonic_ns());
	uint64_t n_open = 0;
	uint64_t n;

	/* The calls are short; one that is stuck in the driver is not waited for again. */
	wait_for_callers(cuda, mt_monotonic_ns() + PATIENCE_NS);
	pthread_mutex_lock(&cuda->deliver);
	n = mt_cuda_in_flight(cuda);
	for (uint32_t i = 0; n && i < atomic_load(&cuda->n_lanes); i++) {
		if (!cuda->lanes[i].pass)
			continue;
		/* Some of its groups came: it is stored with the others dropped. */
		mt_cuda_deliver_end(&cuda->lanes[i], now_ns);
		n_open++;
	}
	if (n) {
		mt_cuda_lose(cuda, n - n_open);
		cuda->abandoned = mt_ring_head(&cuda->ring);
		atomic_fetch_add(&cuda->n_settled, n_open);
		atomic_fetch_add(&cuda->n_given_up, n - n_open);
	}
	pthread_mutex_unlock(&cuda->deliver);
	return n;
}

uint64_t mt_cuda_abandon(struct moetrace_session *session)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	uint64_t n = 0;

	if (!set)
		return 0;
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		n += abandon(set->devices[i]);
	pthread_mutex_lock(&set->messages);
	post_due(set, 1);
	pthread_mutex_unlock(&set->messages);
	return n;
}

void mt_cuda_close(struct moetrace_session *session)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	int is_forked = atomic_load(&session->forked) != 0;

	if (!set)
		return;
	if (!is_forked) {
		(void)mt_cuda_wait(session, session->opts.stop_timeout_ms * MT_NS_PER_MS);
		(void)mt_cuda_abandon(session);
	}
	for (uint32_t i = 0; i < atomic_load(&set->n_devices) && !is_forked; i++)
		mt_cuda_drain_stop(set->devices[i]);
	/* No thread looks at another's device any more. */
	atomic_store(&session->cuda, NULL);
	for (uint32_t i = 0; i < atomic_load(&set->n_devices); i++)
		mt_cuda_release(set->devices[i], is_forked);
	free(set);
}
