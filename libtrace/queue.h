/* SPDX-License-Identifier: MIT */
/*
 * The side channel: everything that is not on the hot path reaches the writer as messages in
 * one order, without loss. Messages that end something carry the ring positions of the moment
 * they were posted, so that the writer first takes all records that came before them.
 */
#ifndef MT_QUEUE_H
#define MT_QUEUE_H

#include <pthread.h>
#include <stdint.h>

#include "libtrace/ring.h"

struct mt_experts_ask;

enum mt_message_type {
	MT_MESSAGE_MODEL,         /* model */
	MT_MESSAGE_DIAGNOSTIC,    /* text (what happened and what to do), text2 (who says so) */
	MT_MESSAGE_SOURCE,        /* text (name), text2 (its state) */
	MT_MESSAGE_DEVICE,        /* text (name), text2 (uuid), number (processors): a GPU */
	MT_MESSAGE_CLOCK,         /* of that GPU: source (session clock), number (its timer),
	                             request (uncertainty), all in ns */
	MT_MESSAGE_RULE,          /* number (handle), text (name) */
	MT_MESSAGE_EXPERT_MAP,    /* map */
	MT_MESSAGE_REQUEST,       /* request, text (external id or NULL), number (prompt positions) */
	MT_MESSAGE_ATTRIBUTE,     /* request, text (key), text2 (value or NULL) */
	MT_MESSAGE_TOKENS,        /* request, number (first position), tokens, n_tokens */
	/* From here on: they are done after the records that came before them. */
	MT_MESSAGE_REQUEST_END,   /* request, number (positions), state */
	MT_MESSAGE_RETRACT,       /* request */
	MT_MESSAGE_PAUSE,         /* request */
	MT_MESSAGE_RESUME,        /* request */
	MT_MESSAGE_REUSE,         /* request, number (first position), n_tokens (positions), source
	                             and state (its attempt), or data (u64 KV slots) */
	MT_MESSAGE_ACCEPT,        /* number (of the pass), state (slice), data (u8), n_tokens (rows) */
	/* From here on: somebody waits for them. */
	MT_MESSAGE_START,         /* recording_id, text (routing source or NULL), text2 (sampling or
	                             NULL), state (mode), number (every nth request), request (bytes
	                             of flight mode; 0: written at once), source (and ns; 0: all) */
	MT_MESSAGE_STOP,          /* text (reason) */
	MT_MESSAGE_ROTATE,        /* text (path or NULL), recording_id (the next; 0: idle),
	                             number (since when its passes begin) */
	MT_MESSAGE_DUMP,          /* of flight mode: text (reason), recording_id (the next; 0: idle),
	                             number (since when its passes begin) */
	MT_MESSAGE_FLUSH,
	MT_MESSAGE_EXPERTS,       /* request, ask */
	MT_MESSAGE_CLOSE,
};

struct mt_expert_map;

struct mt_message {
	struct mt_message *next;
	enum mt_message_type type;
	uint64_t time_ns; /* session clock, when it was posted */
	uint64_t n_lost_passes; /* of the session, when it was posted */
	uint64_t request;
	uint64_t number;
	uint32_t recording_id;
	uint32_t state;
	uint32_t model;
	uint32_t n_tokens;
	char *text;
	char *text2;
	uint32_t *tokens;
	uint64_t source;
	void *data;
	struct mt_expert_map *map;
	struct mt_experts_ask *ask; /* of the caller, who waits */
	uint64_t ticket;                 /* posting order; mt_queue_wait() takes it */
	int *ret_status;                 /* of a message that is waited for, or NULL */
	uint64_t heads[MT_MAX_STREAMS];  /* ring positions when it was posted; while it is kept back
	                                    for GPUs, those of their rings */
};

/* Lock order: none; the lock is the innermost one. */
struct mt_queue {
	pthread_mutex_t lock;       /* protects all members */
	pthread_cond_t posted;      /* the writer waits for messages */
	pthread_cond_t done;        /* callers wait for their ticket */
	struct mt_message *first;
	struct mt_message **last;
	uint64_t n_posted;
	int urgent;                 /* a message that somebody waits for is in the list */
	uint64_t n_done;
	int done_status;            /* of the last FLUSH, STOP or CLOSE */
};

int mt_queue_open(struct mt_queue *queue);
void mt_queue_close(struct mt_queue *queue);

/* A message with copies of the strings; NULL: out of memory. */
struct mt_message *mt_message_new(enum mt_message_type type, const char *text, const char *text2);
void mt_message_free(struct mt_message *message);

/* Takes ownership. Returns the ticket. */
uint64_t mt_queue_post(struct mt_queue *queue, struct mt_ring_pool *pool,
		       struct mt_message *message);

/* Wait until the writer has done the message; returns its status. */
int mt_queue_wait(struct mt_queue *queue, uint64_t ticket);

/* Writer: take all messages (a list through next), without waiting. */
struct mt_message *mt_queue_take(struct mt_queue *queue);

/* Writer: sleep until a message is there that somebody waits for, or @timeout_ns passed. */
void mt_queue_sleep(struct mt_queue *queue, uint64_t timeout_ns);

/* Writer: is there a message, or one that somebody waits for? */
int mt_queue_has_messages(struct mt_queue *queue);
int mt_queue_is_urgent(struct mt_queue *queue);

/* Writer: the message with this ticket, and all before it, are done. */
void mt_queue_done(struct mt_queue *queue, uint64_t ticket, int status);

#endif
