/* SPDX-License-Identifier: MIT */
/*
 * A request's experts, put together from passes: of memory (recent.h) or of the file
 * (store/reader.h), which both come as struct mt_experts_pass.
 */
#ifndef MT_EXPERTS_H
#define MT_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include <moetrace/moetrace.h>

/* Positions [first, first + n) that are rows of a request's attempt. */
struct mt_experts_part {
	int64_t request_id;
	uint32_t attempt;
	int is_reused;
	uint64_t first;
	uint64_t n;
};

/* A slice of a pass, and its layers' rows. */
struct mt_experts_slice {
	int64_t request_id;
	uint32_t attempt;
	uint32_t phase; /* enum moetrace_phase */
	uint64_t first_position;
	const void *positions;     /* u32 [n_rows], maybe not aligned, or NULL */
	const uint8_t *accepted;   /* of a verify slice, or NULL: not told */
	uint32_t row_offset;
	uint32_t n_rows;
};

struct mt_experts_rows {
	uint32_t layer; /* index among the model's MoE layers */
	uint32_t state; /* enum mt_layer_state */
	uint32_t n_rows;
	uint32_t k;
	uint32_t id_bytes;
	const uint8_t *ids;
	const uint8_t *n_valid;  /* or NULL */
	const void *row_map;     /* u32 [n_rows], maybe not aligned, ascending, or NULL */
};

/* What is being put together: [n_positions][n_layers] of the model's MoE layers. */
struct mt_experts {
	uint64_t first_position;
	uint64_t n_positions;
	uint32_t n_layers;
	uint32_t k;
	uint16_t *ids;    /* [n_positions][n_layers][k] */
	uint8_t *n_valid; /* [n_positions][n_layers] */
	uint8_t *states;
	/* [n_positions]: the best row so far, its place and the slice that it is of */
	uint8_t *ranks;
	uint32_t *rows;
	uint32_t *slices;
	uint32_t n_slices;
	uint64_t n_taken; /* rows with ids, of the slice */
};

/* Entries of an answer: positions past a request's end cost memory, too. */
#define MT_EXPERTS_MAX_IDS (UINT64_C(1) << 30)

/* Returns MOETRACE_OK, MOETRACE_E_NOMEM or MOETRACE_E_LIMIT; nothing is known of any position. */
int mt_experts_open(struct mt_experts *experts, uint64_t first_position, uint64_t n_positions,
		    uint32_t n_layers, uint32_t k);
void mt_experts_close(struct mt_experts *experts);

/* A slice, as far as the part asks for it; then each of its pass's layers. */
void mt_experts_slice_begin(struct mt_experts *experts, const struct mt_experts_part *part,
			    const struct mt_experts_slice *slice);
int mt_experts_rows_add(struct mt_experts *experts, const struct mt_experts_part *part,
			const struct mt_experts_slice *slice, const struct mt_experts_rows *rows);
/* No more layers. Rows of a sampled pass that are in no layer at all were left out. */
void mt_experts_slice_end(struct mt_experts *experts, int is_sampled);
struct mt_model;
/* The most entries that a layer of the model selects. */
uint32_t mt_model_top_k(const struct mt_model *model);

/* What the caller asks the writer, and its answer. */
struct mt_experts_ask {
	uint32_t model;        /* handle */
	uint32_t attempt;      /* MOETRACE_ATTEMPT_LAST */
	uint64_t first_position;
	uint64_t n_positions;  /* 0: all */
	int status;
	int is_done;           /* experts holds the answer */
	struct mt_experts experts;
	int64_t request_id;    /* else where it is in the file; 0: the writer has forgotten it */
	char *path;            /* of the file */
	struct mt_past *past;  /* the files before it */
};

#endif
