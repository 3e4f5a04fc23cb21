/* SPDX-License-Identifier: MIT */
/*
 * A small runtime for tests: one model whose layers are alike, int32 ids and fp32 weights
 * that follow from row, layer and rank, so that every test knows what must be stored.
 */
#ifndef TEST_TOY_H
#define TEST_TOY_H

#include <stdbool.h>
#include <stdint.h>

#include <moetrace/moetrace.h>
#include <sqlite3.h>

#define TOY_MAX_K 32

struct toy {
	struct moetrace_session *session;
	const char *path;
	uint32_t model;
	uint32_t n_layers;
	uint32_t n_experts;
	uint32_t top_k;
};

/* Options that make tests quick, commits every 20 ms, and patient with passes in flight. */
struct moetrace_session_opts toy_opts(void);

/* Open a session at suite_path(@name) and add the model. @opts NULL: toy_opts(). */
struct toy toy_open(const char *name, const struct moetrace_session_opts *opts, uint32_t n_layers,
		    uint32_t n_experts, uint32_t top_k);

/* The same, and start a recording. */
struct toy toy_start(const char *name, const struct moetrace_session_opts *opts, uint32_t n_layers,
		     uint32_t n_experts, uint32_t top_k);

/* Add a model of layers that are alike; numbers of layers begin at @first_layer. */
uint32_t toy_model_add(struct moetrace_session *session, const char *name, uint32_t first_layer,
		       uint32_t n_layers, uint32_t n_experts, uint32_t top_k);

uint64_t toy_request(const struct toy *toy, const char *external_id);

/* It is finished. */
void toy_request_end(const struct toy *toy, uint64_t request, uint64_t n_positions);

/* The expert and the weight of a place. */
uint32_t toy_expert(const struct toy *toy, uint32_t layer, uint32_t row, uint32_t rank);
float toy_weight(uint32_t layer, uint32_t row, uint32_t rank);

/* Begin a pass of these slices, whose rows are added up. */
struct moetrace_pass *toy_begin(const struct toy *toy, uint32_t phase,
				const struct moetrace_slice *slices, uint32_t n_slices);

/* Hand over one layer of a pass. */
void toy_select(const struct toy *toy, struct moetrace_pass *pass, uint32_t layer, uint32_t n_rows);

/* Hand over given ids, without weights. */
void toy_select_ids(struct moetrace_pass *pass, uint32_t layer, uint32_t n_rows, uint32_t k,
		    const int32_t *ids);

/* Hand over all layers and end the pass. */
void toy_finish(const struct toy *toy, struct moetrace_pass *pass, uint32_t n_rows);

/* A whole pass of one slice; false when it was not recorded. */
bool toy_pass(const struct toy *toy, uint32_t phase, uint64_t request, uint32_t first_position,
	      uint32_t n_rows);

/*
 * Wait until the writer has taken all but @n_behind of the @n passes that the recording has had: for
 * those who lose nothing, on a machine where the writer may have to wait for a processor.
 */
void toy_keep_pace(const struct toy *toy, uint64_t n, uint64_t n_behind);

/* Close the session; the status must be MOETRACE_OK. */
void toy_close(struct toy *toy);

/* The same, and open the file, which agrees with itself; end with db_close(). */
sqlite3 *toy_close_and_open(struct toy *toy);

struct moetrace_session_status toy_status(const struct toy *toy);

#endif
