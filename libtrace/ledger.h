/* SPDX-License-Identifier: MIT */
/*
 * The request ledger: what the writer knows of the requests that are open, and the verdicts.
 * Used by the writer thread alone.
 */
#ifndef MT_LEDGER_H
#define MT_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "libtrace/coverage.h"
#include "libtrace/queue.h"
#include "libtrace/store/store.h"

/* Why a request is partial; bits in the order in which they are named. */
enum mt_reason {
	MT_REASON_LOST = 1,
	MT_REASON_BEGAN_BEFORE = 2,
	MT_REASON_UNWRITTEN = 4,
	MT_REASON_UNRESOLVED = 8,
	MT_REASON_MISSING = 16,
	MT_REASON_INVALID = 32,
	MT_REASON_UNENDED = 64, /* of passes only */
	MT_REASON_REPEATED = 128,
};

#define MT_REASONS_BYTES 112
/* The names, comma-separated, into @ret_text; NULL if there are none. */
const char *mt_reasons_text(uint32_t reasons, char *ret_text);

struct mt_ledger_attribute {
	struct mt_ledger_attribute *next;
	char *key;
	char *value;
};

/* What a target model computed of a request in this recording. */
struct mt_ledger_model {
	struct mt_ledger_model *next;
	uint32_t model_id;
	struct mt_coverage computed;
	struct mt_coverage seen; /* with positions of partial passes and of verify slices */
};

struct mt_request {
	struct mt_request *next; /* in its bucket */
	uint64_t handle;
	char *external_id;
	int64_t prompt_positions; /* MT_NULL: unknown */
	uint64_t begin_ns;
	struct mt_ledger_attribute *attributes;

	/* In this recording. */
	int64_t request_id; /* 0: no row */
	struct mt_ledger_model *models;
	uint32_t reasons;
	uint64_t lowest_seen;
	uint64_t seen_end; /* one past the highest position of rows that count */
	uint64_t n_lost_passes; /* of the session, when it began or the recording started */
};

struct mt_ledger {
	struct mt_store *store;
	struct mt_request **buckets;
	size_t n_buckets; /* power of two */
	size_t n_requests;
	int64_t last_request_id;
	int64_t recording_id; /* 0: idle */
	uint64_t recording_start_ns;
};

int mt_ledger_open(struct mt_ledger *ledger, struct mt_store *store);
void mt_ledger_close(struct mt_ledger *ledger);

/* Each returns MOETRACE_OK, MOETRACE_E_NOT_FOUND (no such open request) or the store's status. */
int mt_ledger_begin(struct mt_ledger *ledger, struct mt_message *message);
int mt_ledger_attribute(struct mt_ledger *ledger, struct mt_message *message);
int mt_ledger_tokens(struct mt_ledger *ledger, const struct mt_message *message);
int mt_ledger_end(struct mt_ledger *ledger, const struct mt_message *message);

/* A recording starts: every open request gets a row. It ends: the rows stay unfinished. */
int mt_ledger_start(struct mt_ledger *ledger, int64_t recording_id, uint64_t start_ns,
		    uint64_t n_lost_passes);
void mt_ledger_stop(struct mt_ledger *ledger);

struct mt_request *mt_ledger_find(struct mt_ledger *ledger, uint64_t handle);

/* Rows of a slice, as the ledger sees them. */
struct mt_ledger_slice {
	uint32_t model_id;
	int is_target;
	uint32_t phase;
	uint32_t first_position;
	uint32_t n_rows;
	const uint32_t *positions; /* or NULL */
	uint32_t pass_reasons;     /* why its pass is partial; 0: it is complete */
};
/* Returns the number of positions that were computed before (misuse), or a negative status. */
int mt_ledger_slice(struct mt_request *request, const struct mt_ledger_slice *slice);

#endif
