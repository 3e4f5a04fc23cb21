/* SPDX-License-Identifier: MIT */
/*
 * The store's own parts, shared by its source files.
 */
#ifndef MT_STORE_INTERNAL_H
#define MT_STORE_INTERNAL_H

#include <sqlite3.h>
#include <stdint.h>
#include <sys/types.h>

#include "libtrace/store/stmt.h"
#include "libtrace/store/store.h"

/* A run is written when it holds this much. */
#define MT_RUN_BYTES 65536u
#define MT_MAX_RUNS 8u

/* A run of top-k rows that still grows. Free: topk_id is 0. */
struct mt_run {
	int64_t topk_id;
	uint32_t n_rows;
	uint32_t k;
	uint8_t id_bytes;
	uint8_t weight_format;
	uint8_t has_row_map;
	uint8_t has_valid;
	uint8_t has_margins;
	uint8_t has_flags;
	uint32_t base_k;  /* 0: no base_ids */
	uint32_t rule_id; /* 0: none */
	uint32_t n_candidates;     /* 0: none */
	uint8_t physical_id_bytes; /* 0: no physical_ids */
	uint8_t score_format;
	uint64_t capacity_rows;
	uint8_t *ids;
	uint16_t *weights;
	uint32_t *row_map;
	uint8_t *n_valid;
	float *margins;
	uint8_t *row_flags;
	uint8_t *base_ids;
	uint8_t *physical_ids;
	uint8_t *candidate_ids;
	uint16_t *candidate_scores;
};

struct mt_store {
	sqlite3 *db;
	char *path;
	dev_t device; /* of the file that was created */
	ino_t inode;
	sqlite3_stmt *stmts[MT_N_STMT];
	int status;     /* first failure */
	int in_transaction;
	int is_network;
	int is_gone;    /* the file has lost its name: nothing is written any more */
	int64_t last_topk_id;
	struct mt_run runs[MT_MAX_RUNS];
	struct mt_store_stats stats;
	char error[MT_STORE_ERROR_BYTES];
};

/* Remember SQLite's complaint about @what; returns MOETRACE_E_IO. */
int mt_store_fail(struct mt_store *store, const char *what);

/* Run a statement whose parameters are bound, and make it ready for the next time. */
int mt_store_step(struct mt_store *store, enum mt_stmt stmt);

sqlite3_stmt *mt_store_stmt(struct mt_store *store, enum mt_stmt stmt);
void mt_store_bind_int(sqlite3_stmt *stmt, int index, int64_t value); /* MT_NULL: NULL */
/* NULL: NULL. SQL and JSON want UTF-8: what is none becomes U+FFFD. */
void mt_store_bind_text(sqlite3_stmt *stmt, int index, const char *text);

/*
 * store_file.c: create the file; its descriptor, or a negative status and @ret_error, of
 * MT_STORE_ERROR_BYTES. Remove it again, if it has its name still.
 */
int mt_store_file_create(const char *path, char *ret_error);
void mt_store_file_take_back(const char *path, int fd);
/* Does it lie where shared memory of a WAL does not work? */
int mt_store_file_is_network(const char *path);
/* Has the path still the file that was created; has it another one, or none? */
int mt_store_file_is_own(const struct mt_store *store);
int mt_store_file_is_gone(const struct mt_store *store);
/* While it is open: the file and what lies beside it; a journal that is empty. */
void mt_store_file_remove(const struct mt_store *store);
void mt_store_file_remove_empty_journal(const struct mt_store *store);
uint64_t mt_store_file_journal_bytes(const struct mt_store *store); /* 0: there is none */

int mt_store_close_runs(struct mt_store *store);
void mt_store_free_runs(struct mt_store *store);

#endif
