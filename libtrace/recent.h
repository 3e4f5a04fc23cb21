/* SPDX-License-Identifier: MIT */
/*
 * The passes of the last while in memory, for moetrace_request_routed_experts(): ids only, up to
 * a number of bytes. Used by the writer thread alone.
 */
#ifndef MT_RECENT_H
#define MT_RECENT_H

#include <stddef.h>
#include <stdint.h>

#include "libtrace/experts.h"

struct mt_recent_layer {
	struct mt_experts_rows rows;
	uint8_t *memory; /* of its arrays */
};

struct mt_recent_pass {
	struct mt_recent_pass *newer;
	struct mt_recent_pass *older;
	int64_t pass_id;
	uint32_t model; /* handle */
	uint32_t n_layers;
	uint32_t n_slices;
	int is_sampled; /* rows of some requests were left out */
	uint64_t n_bytes;
	struct mt_recent_layer *layers;  /* [n_layers] */
	struct mt_experts_slice *slices; /* [n_slices], with arrays of their own */
};

struct mt_recent {
	uint64_t max_bytes; /* 0: nothing is kept */
	uint64_t n_bytes;
	int64_t first_pass_id; /* all passes from this one on are here */
	struct mt_recent_pass *newest;
	struct mt_recent_pass *oldest;
};

void mt_recent_clear(struct mt_recent *recent);

/* A pass begins; NULL: it is not kept. */
struct mt_recent_pass *mt_recent_begin(const struct mt_recent *recent, uint32_t model,
				       uint32_t n_layers, uint32_t n_slices);
/* Each copies; a failure makes the pass one that is not kept. */
int mt_recent_rows(struct mt_recent_pass *pass, const struct mt_experts_rows *rows);
int mt_recent_slice(struct mt_recent_pass *pass, uint32_t i, const struct mt_experts_slice *slice);
/* It ends; NULL or failed: no pass up to this one is here any more. Takes ownership. */
void mt_recent_end(struct mt_recent *recent, struct mt_recent_pass *pass, int64_t pass_id);
void mt_recent_free(struct mt_recent_pass *pass);

/* Acceptance that came later. */
void mt_recent_accept(struct mt_recent *recent, int64_t pass_id, uint32_t slice,
		      const uint8_t *accepted);

/* Add all rows of the part that passes of the model have. */
int mt_recent_collect(const struct mt_recent *recent, uint32_t model,
		      const struct mt_experts_part *part, struct mt_experts *experts);

#endif
