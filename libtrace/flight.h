/* SPDX-License-Identifier: MIT */
/*
 * Flight mode: the records and messages of the last while, in memory that is made and touched at
 * start. Nothing of them reaches the file before a dump, which writes them as a recording of its
 * own. What makes room goes in the order in which it came: passes are let go, messages are told
 * to the ledger, which then knows who is open where the kept part begins.
 * Used by the writer thread alone.
 */
#ifndef MT_FLIGHT_H
#define MT_FLIGHT_H

#include <stdint.h>

#include "libtrace/assembly.h"
#include "libtrace/record.h"
#include "libtrace/ring.h"
#include "libtrace/session.h"

/* Entries are records as they lay in the ring (reserved: which one), or of one of these types. */
enum {
	MT_FLIGHT_MESSAGE = 64,
	MT_FLIGHT_LOSS = 65,
};

/* A ring of bytes; entries are whole lines and never wrap. */
struct mt_flight_log {
	uint8_t *data;
	uint64_t n_bytes;
	uint64_t head;
	uint64_t tail;
};

/* Losses of one kind between two looks. */
struct mt_lost {
	uint64_t n;
	uint64_t n_bytes;
	uint64_t first_ns;
	uint64_t last_ns;
};

#define MT_FLIGHT_REASON_BYTES 256u

struct mt_flight {
	struct mt_flight_log log;
	uint32_t recording_id;  /* that is kept in memory; 0: none is */
	int is_writing;         /* a dump goes on: records are those of a recording like others */
	uint64_t keep_ns;       /* passes that began longer ago are let go; 0: only to make room */
	uint64_t start_ns;      /* of the recording, if nothing is kept */
	uint64_t n_passes;      /* kept */
	uint64_t n_let_go;      /* passes */
	uint64_t n_lost_passes; /* of the session, where the kept part begins */
	uint64_t let_go_numbers[MT_N_NUMBERS]; /* of the last passes that were let go */
	char reason[MT_FLIGHT_REASON_BYTES];   /* of the trigger that is being carried out */
};

/* Make and touch the memory, or keep what is there; MOETRACE_E_NOMEM. */
int mt_flight_log_open(struct mt_flight_log *log, uint64_t n_bytes);
void mt_flight_log_close(struct mt_flight_log *log);

/* Room for an entry behind all others; NULL: there is none until some are taken. */
struct mt_record *mt_flight_log_add(struct mt_flight_log *log, uint64_t n_bytes);
/* The oldest entry, or NULL; and take it out. */
struct mt_record *mt_flight_log_peek(struct mt_flight_log *log);
void mt_flight_log_take(struct mt_flight_log *log, const struct mt_record *entry);
/* The entry at a position from tail to head, which is moved past it; NULL at head. */
struct mt_record *mt_flight_log_next(struct mt_flight_log *log, uint64_t *position);

/* A message as an entry: its size, itself, and a copy of what was packed (NULL: no memory). */
uint64_t mt_flight_message_bytes(const struct mt_message *message);
void mt_flight_message_pack(struct mt_record *entry, const struct mt_message *message);
struct mt_message *mt_flight_message_unpack(const struct mt_record *entry);

struct mt_flight_loss {
	struct mt_record record;
	struct mt_lost lost;
	uint32_t kind; /* enum mt_loss_kind */
};

#endif
