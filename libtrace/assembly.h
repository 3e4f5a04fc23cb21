/* SPDX-License-Identifier: MIT */
/*
 * Assembly: from the records of a ring to rows of the file. A pass is open from its BEGIN to
 * its END; its top-k rows go to the store as they come, its own rows when it closes.
 * Used by the writer thread alone.
 */
#ifndef MT_ASSEMBLY_H
#define MT_ASSEMBLY_H

#include <stdint.h>

#include <moetrace/cuda.h>

#include "libtrace/expert_map.h"
#include "libtrace/ledger.h"
#include "libtrace/load.h"
#include "libtrace/recent.h"
#include "libtrace/record.h"
#include "libtrace/session.h"
#include "libtrace/settle.h"
#include "libtrace/store/store.h"
#include "libtrace/tied.h"

struct mt_assembly_layer {
	struct mt_layer_row row; /* state UNWRITTEN until it comes */
	uint32_t classes;        /* a bit an enum mt_load_class with counts */
	int has_dispatch;
};

/* Counters of the current recording. */
struct mt_assembly_counts {
	uint64_t passes;
	uint64_t rows;
	uint64_t layers;
	uint64_t assignments; /* stored, or counted where rows are not kept */
	uint64_t kernels;
	uint64_t collectives;
	uint64_t invalid_ids;
	uint64_t unended;
	uint64_t unwritten_layers;
	uint64_t sampled_passes;  /* left out */
	uint64_t disabled_passes; /* left out */
};

/* The acceptance of a verify slice that came before its pass ended. */
struct mt_early_accept {
	struct mt_early_accept *next;
	uint32_t slice;
	uint8_t *accepted; /* [n_rows of the slice] */
};

/* Whose rows a slice has: latched when its pass begins. */
struct mt_slice_owner {
	struct mt_request *request; /* NULL: rows of no request; held until the pass closes */
	uint32_t attempt;
};

/* A part whose parent has not closed yet. */
struct mt_orphan {
	uint64_t parent; /* its number */
	int64_t pass_id;
};

#define MT_MAX_ORPHANS 4096u

/* Numbers of passes grow by themselves in each ring, and on the GPU. */
#define MT_N_NUMBERS (MT_MAX_RINGS + 1)

static inline uint32_t mt_number_index(uint64_t number)
{
	return number >> 63 ? MT_MAX_RINGS : (uint32_t)((number - 1) % MT_MAX_RINGS);
}

/* The pass that a ring is in the middle of, or had last. */
struct mt_open_pass {
	int is_open;
	int64_t pass_id; /* once it is closed; 0: it was not */
	int64_t parent_pass_id; /* of a parent that closed before it; 0: none did */
	struct mt_record_begin begin;
	const struct mt_model *model;
	struct mt_record_slice *slices;
	struct mt_slice_owner *owners; /* [n_slices] */
	struct mt_early_accept *accepts;
	struct mt_recent_pass *recent; /* NULL: not kept in memory */
	uint32_t *positions;
	uint8_t *row_classes; /* [n_rows] enum mt_load_class; unused if all are one_class */
	int one_class;        /* enum mt_load_class; -1: rows differ */
	uint8_t *invalid_rows; /* [n_rows] 1: ids were left out that no expert has */
	int is_sampled;       /* not all rows are kept */
	uint8_t *is_kept;     /* [n_rows] of requests that are sampled; unused if all are */
	uint8_t *dispatches;  /* records, one after the other */
	uint64_t dispatch_bytes;
	struct moetrace_kernel_time *kernels;
	uint64_t n_kernels;
	uint64_t kernels_capacity;
	struct moetrace_collective *collectives;
	uint64_t n_collectives;
	uint64_t collectives_capacity;
	struct mt_assembly_counts so_far; /* of its layers; added up when it closes */
	struct mt_assembly_layer *layers; /* [n_layers of the model] */
	uint32_t *counts;     /* [MT_N_LOAD][n_cells of the model], zero between passes */
	uint64_t slices_capacity, owners_capacity, positions_capacity, rows_capacity, invalid_capacity,
		layers_capacity, counts_capacity, kept_capacity, dispatch_capacity;
};

/* Its model's place among the session's. */
static inline uint32_t mt_open_pass_model(const struct mt_open_pass *pass)
{
	return pass->begin.model - 1;
}

struct mt_assembly {
	struct moetrace_session *session;
	struct mt_store *store;
	struct mt_ledger *ledger;
	struct mt_load *load;
	uint32_t recording_id; /* passes of others are ignored; 0: all are */
	uint32_t mode;         /* enum moetrace_mode of the recording */
	uint32_t sample_every_n_requests;
	int64_t last_pass_id;
	int64_t gpu_ids[MOETRACE_CUDA_MAX_DEVICES]; /* rows of the attached devices; 0: none yet */
	struct mt_tied *tied; /* the writer's */
	struct mt_assembly_counts counts;
	struct mt_expert_maps maps;
	struct mt_settler settler;
	uint32_t *row_map;  /* scratch */
	uint64_t map_capacity;
	uint32_t *load_sum; /* [n_load_sum] scratch: counts of a layer */
	uint32_t n_load_sum;
	struct mt_open_pass passes[MT_N_RINGS];
	struct mt_recent recent;
	struct mt_orphan orphans[MT_MAX_ORPHANS];
	uint32_t n_orphans;
	struct mt_orphan closed_parents[MT_MAX_RINGS]; /* the last ones, in turn */
	uint32_t n_closed_parents;
	uint64_t newest_numbers[MT_N_NUMBERS]; /* of passes that began, or that flight mode let go */
	uint64_t ended_numbers[MT_N_NUMBERS];  /* of those, before this recording */
};

void mt_assembly_open(struct mt_assembly *assembly, struct moetrace_session *session,
		      struct mt_store *store, struct mt_ledger *ledger, struct mt_load *load);
void mt_assembly_close(struct mt_assembly *assembly);

/* One record of a ring. Returns MOETRACE_OK, MOETRACE_E_NOMEM or the store's status. */
int mt_assembly_record(struct mt_assembly *assembly, uint32_t ring, struct mt_record *record);

/*
 * Which rows of a verify slice were accepted; MOETRACE_E_NOT_FOUND: it does not wait for that.
 * What is told of a pass of an earlier recording comes too late, which is nobody's fault.
 */
int mt_assembly_accept(struct mt_assembly *assembly, struct mt_message *message);
/* There is a pass of this number; all there are now are of earlier recordings. */
void mt_assembly_note_number(struct mt_assembly *assembly, uint64_t number);
void mt_assembly_end_numbers(struct mt_assembly *assembly);
/* Forget all open passes. */
void mt_assembly_drop(struct mt_assembly *assembly);

/* Close all open passes as far as they came: their recording ends at @now_ns. */
int mt_assembly_cut(struct mt_assembly *assembly);

#endif
