/* SPDX-License-Identifier: MIT */
/*
 * The memory of flight mode: a ring of entries, the oldest of which make room. Invariants:
 * tail <= head <= tail + n_bytes; all three are multiples of a cache line, so that a record lies
 * in here as it lay in its ring; an entry never wraps (PAD fills the end).
 */
#include "libtrace/flight.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libtrace/queue.h"

static uint64_t whole_lines(uint64_t n_bytes)
{
	return (n_bytes + MT_LINE_BYTES - 1) & ~(uint64_t)(MT_LINE_BYTES - 1);
}

int mt_flight_log_open(struct mt_flight_log *log, uint64_t n_bytes)
{
	void *memory;

	n_bytes = whole_lines(n_bytes);
	log->head = log->tail = 0;
	if (log->data && log->n_bytes == n_bytes)
		return MOETRACE_OK;
	mt_flight_log_close(log);
	memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return MOETRACE_E_NOMEM;
	memset(memory, 0, n_bytes);
	log->data = memory;
	log->n_bytes = n_bytes;
	return MOETRACE_OK;
}

void mt_flight_log_close(struct mt_flight_log *log)
{
	if (log->data)
		munmap(log->data, log->n_bytes);
	memset(log, 0, sizeof(*log));
}

static struct mt_record *entry_at(struct mt_flight_log *log, uint64_t position)
{
	return (struct mt_record *)(void *)(log->data + position % log->n_bytes);
}

struct mt_record *mt_flight_log_add(struct mt_flight_log *log, uint64_t n_bytes)
{
	uint64_t to_end_bytes = log->n_bytes - log->head % log->n_bytes;
	struct mt_record *entry;
	uint64_t pad_bytes;

	if (n_bytes > log->n_bytes)
		return NULL;
	n_bytes = whole_lines(n_bytes);
	pad_bytes = n_bytes > to_end_bytes ? to_end_bytes : 0;
	if (log->head - log->tail + pad_bytes + n_bytes > log->n_bytes)
		return NULL;
	if (pad_bytes) {
		entry = entry_at(log, log->head);
		entry->n_bytes = pad_bytes;
		entry->type = MT_RECORD_PAD;
		log->head += pad_bytes;
	}
	entry = entry_at(log, log->head);
	log->head += n_bytes;
	entry->n_bytes = n_bytes;
	return entry;
}

struct mt_record *mt_flight_log_next(struct mt_flight_log *log, uint64_t *position)
{
	while (*position < log->head) {
		struct mt_record *entry = entry_at(log, *position);

		*position += entry->n_bytes;
		if (entry->type != MT_RECORD_PAD)
			return entry;
	}
	return NULL;
}

struct mt_record *mt_flight_log_peek(struct mt_flight_log *log)
{
	while (log->tail < log->head) {
		struct mt_record *entry = entry_at(log, log->tail);

		if (entry->type != MT_RECORD_PAD)
			return entry;
		log->tail += entry->n_bytes;
	}
	/* An empty log begins anew, so that an entry as large as the memory fits. */
	log->head = log->tail = 0;
	return NULL;
}

void mt_flight_log_take(struct mt_flight_log *log, const struct mt_record *entry)
{
	log->tail += entry->n_bytes;
}

/* ---- messages ---- */

/* Followed by text, text2, tokens and data, each from a multiple of 8 bytes on. */
struct packed_message {
	struct mt_record record; /* its time is that of the message */
	uint64_t n_lost_passes;
	uint64_t request;
	uint64_t number;
	uint64_t source;
	uint32_t message_type;
	uint32_t state;
	uint32_t n_tokens;
	uint32_t reserved;
	uint64_t part_bytes[4]; /* 0: there is none */
};

enum { TEXT, TEXT2, TOKENS, DATA, N_PARTS };

static uint64_t padded(uint64_t n_bytes)
{
	return (n_bytes + 7) & ~UINT64_C(7);
}

static void measure(const struct mt_message *message, uint64_t *ret_bytes)
{
	ret_bytes[TEXT] = message->text ? strlen(message->text) + 1 : 0;
	ret_bytes[TEXT2] = message->text2 ? strlen(message->text2) + 1 : 0;
	ret_bytes[TOKENS] = message->tokens ? message->n_tokens * UINT64_C(4) : 0;
	/* KV slots of a reuse, or an acceptance. */
	ret_bytes[DATA] = message->data ? message->n_tokens *
						  (message->type == MT_MESSAGE_REUSE ? UINT64_C(8) :
										       UINT64_C(1)) :
					  0;
}

uint64_t mt_flight_message_bytes(const struct mt_message *message)
{
	uint64_t n_bytes = sizeof(struct packed_message);
	uint64_t parts[N_PARTS];

	measure(message, parts);
	for (int i = 0; i < N_PARTS; i++)
		n_bytes += padded(parts[i]);
	return n_bytes;
}

void mt_flight_message_pack(struct mt_record *entry, const struct mt_message *message)
{
	struct packed_message *to = (struct packed_message *)entry;
	const void *const from[N_PARTS] = { message->text, message->text2, message->tokens,
					    message->data };
	uint8_t *at = (uint8_t *)(to + 1);

	entry->type = MT_FLIGHT_MESSAGE;
	entry->time_ns = message->time_ns;
	to->n_lost_passes = message->n_lost_passes;
	to->request = message->request;
	to->number = message->number;
	to->source = message->source;
	to->message_type = message->type;
	to->state = message->state;
	to->n_tokens = message->n_tokens;
	measure(message, to->part_bytes);
	for (int i = 0; i < N_PARTS; i++) {
		if (to->part_bytes[i])
			memcpy(at, from[i], to->part_bytes[i]);
		at += padded(to->part_bytes[i]);
	}
}

struct mt_message *mt_flight_message_unpack(const struct mt_record *entry)
{
	const struct packed_message *from = (const struct packed_message *)entry;
	struct mt_message *message = calloc(1, sizeof(*message));
	void *parts[N_PARTS] = { NULL, NULL, NULL, NULL };
	const uint8_t *at = (const uint8_t *)(from + 1);
	int is_whole = message != NULL;

	for (int i = 0; is_whole && i < N_PARTS; i++) {
		parts[i] = from->part_bytes[i] ? malloc(from->part_bytes[i]) : NULL;
		is_whole = parts[i] || !from->part_bytes[i];
		if (parts[i])
			memcpy(parts[i], at, from->part_bytes[i]);
		at += padded(from->part_bytes[i]);
	}
	if (!is_whole) {
		for (int i = 0; i < N_PARTS; i++)
			free(parts[i]);
		free(message);
		return NULL;
	}
	message->type = from->message_type;
	message->time_ns = entry->time_ns;
	message->n_lost_passes = from->n_lost_passes;
	message->request = from->request;
	message->number = from->number;
	message->source = from->source;
	message->state = from->state;
	message->n_tokens = from->n_tokens;
	message->text = parts[TEXT];
	message->text2 = parts[TEXT2];
	message->tokens = parts[TOKENS];
	message->data = parts[DATA];
	return message;
}
