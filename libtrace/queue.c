/* SPDX-License-Identifier: MIT */
/*
 * A list under a lock that is held for a few instructions. Invariants: tickets ascend along
 * the list; n_done never passes the ticket of a message that is still to be done.
 */
#include "libtrace/queue.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/clock.h"
#include "libtrace/expert_map.h"

int mt_queue_open(struct mt_queue *queue)
{
	pthread_condattr_t monotonic;

	memset(queue, 0, sizeof(*queue));
	queue->last = &queue->first;
	if (pthread_mutex_init(&queue->lock, NULL))
		return MOETRACE_E_NOMEM;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&queue->posted, &monotonic);
	pthread_cond_init(&queue->done, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return MOETRACE_OK;
}

void mt_queue_close(struct mt_queue *queue)
{
	struct mt_message *message = queue->first;

	while (message) {
		struct mt_message *next = message->next;

		mt_message_free(message);
		message = next;
	}
	pthread_cond_destroy(&queue->done);
	pthread_cond_destroy(&queue->posted);
	pthread_mutex_destroy(&queue->lock);
}

struct mt_message *mt_message_new(enum mt_message_type type, const char *text, const char *text2)
{
	struct mt_message *message = calloc(1, sizeof(*message));

	if (!message)
		return NULL;
	message->type = type;
	message->text = text ? strdup(text) : NULL;
	message->text2 = text2 ? strdup(text2) : NULL;
	if ((text && !message->text) || (text2 && !message->text2)) {
		mt_message_free(message);
		return NULL;
	}
	return message;
}

void mt_message_free(struct mt_message *message)
{
	free(message->text);
	free(message->text2);
	free(message->tokens);
	free(message->data);
	mt_expert_map_free(message->map);
	free(message);
}

uint64_t mt_queue_post(struct mt_queue *queue, struct mt_ring_pool *pool,
		       struct mt_message *message)
{
	uint64_t ticket;

	pthread_mutex_lock(&queue->lock);
	/* Under the lock: messages that records of these positions rely on are in the list. */
	mt_ring_heads(pool, message->heads);
	message->next = NULL;
	message->ticket = ticket = ++queue->n_posted;
	*queue->last = message;
	queue->last = &message->next;
	/* The writer looks in often enough for the others; these are waited for. */
	if (message->type >= MT_MESSAGE_START) {
		queue->urgent = 1;
		pthread_cond_signal(&queue->posted);
	}
	pthread_mutex_unlock(&queue->lock);
	return ticket;
}

int mt_queue_wait(struct mt_queue *queue, uint64_t ticket)
{
	int status;

	pthread_mutex_lock(&queue->lock);
	while (queue->n_done < ticket)
		pthread_cond_wait(&queue->done, &queue->lock);
	status = queue->done_status;
	pthread_mutex_unlock(&queue->lock);
	return status;
}

struct mt_message *mt_queue_take(struct mt_queue *queue)
{
	struct mt_message *first;

	pthread_mutex_lock(&queue->lock);
	first = queue->first;
	queue->first = NULL;
	queue->last = &queue->first;
	queue->urgent = 0;
	pthread_mutex_unlock(&queue->lock);
	return first;
}

void mt_queue_sleep(struct mt_queue *queue, uint64_t timeout_ns)
{
	uint64_t until_ns = mt_monotonic_ns() + timeout_ns;
	struct timespec until = { (time_t)(until_ns / MT_NS_PER_S), (long)(until_ns % MT_NS_PER_S) };
	int timed_out = 0;

	pthread_mutex_lock(&queue->lock);
	while (!queue->urgent && !timed_out)
		timed_out = pthread_cond_timedwait(&queue->posted, &queue->lock, &until);
	pthread_mutex_unlock(&queue->lock);
}

int mt_queue_has_messages(struct mt_queue *queue)
{
	int has;

	pthread_mutex_lock(&queue->lock);
	has = queue->first != NULL;
	pthread_mutex_unlock(&queue->lock);
	return has;
}

int mt_queue_is_urgent(struct mt_queue *queue)
{
	int urgent;

	pthread_mutex_lock(&queue->lock);
	urgent = queue->urgent;
	pthread_mutex_unlock(&queue->lock);
	return urgent;
}

void mt_queue_done(struct mt_queue *queue, uint64_t ticket, int status)
{
	pthread_mutex_lock(&queue->lock);
	queue->n_done = ticket;
	queue->done_status = status;
	pthread_cond_broadcast(&queue->done);
	pthread_mutex_unlock(&queue->lock);
}
