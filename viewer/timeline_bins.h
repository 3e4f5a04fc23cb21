/* SPDX-License-Identifier: MIT */
/*
 * What a lane of a timeline comes to in steps of time: bins of 2^shift ns at multiples of that, of
 * the bars that begin in them, or of the points. Bins lie in chunks, and only chunks in which something lies
 * are there. Whoever adds decides when a lane becomes coarser; two bins become one without a loss, so that
 * a bin always is exactly what its bars are, in whatever order they came.
 */
#ifndef MT_VIEWER_TIMELINE_BINS_H
#define MT_VIEWER_TIMELINE_BINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MT_CHUNK_BINS 256

struct mt_bin {
	/* The longest bar; of equal ones the earliest. Of a counter: the first point alone. */
	int64_t start_ns, end_ns;
	double total_ns; /* of all bars */
	uint32_t n;	 /* 0: an empty bin */
	uint32_t id, name, node; /* of the longest, as in struct mt_item */
	float low, high;	 /* of a counter */
	uint16_t layer;		 /* of the longest */
	uint8_t kind;
};

struct mt_chunk {
	int64_t number;	  /* of its first bin over MT_CHUNK_BINS */
	int64_t reach_ns; /* to where its bars reach */
	struct mt_bin bins[MT_CHUNK_BINS];
};

struct mt_bins {
	unsigned shift;
	struct mt_chunk **chunks; /* [n_chunks], ascending */
	size_t n_chunks, size, hint;
};

/* Add what @bin holds, at its start. Returns whether there was memory. */
bool mt_bins_add(struct mt_bins *bins, const struct mt_bin *bin);

/* Put bins together in twos. */
void mt_bins_coarsen(struct mt_bins *bins);

/* @into becomes what both are. */
void mt_bin_merge(struct mt_bin *into, const struct mt_bin *bin);

void mt_bins_free(struct mt_bins *bins);

/* A walk over what is between two times, in steps of 2^shift ns that are no finer than the bins. */
struct mt_bins_walk {
	const struct mt_bins *bins;
	unsigned shift;
	int64_t until; /* number of the step at which it ends */
	size_t chunk, bin;
};

/* From the step in which @from_ns lies, to the one before that of @until_ns, or with it if that does not
 * begin there. */
void mt_bins_walk(struct mt_bins_walk *walk, const struct mt_bins *bins, unsigned shift,
		  int64_t from_ns, int64_t until_ns);

/* The next step that is not empty. Returns false at the end. */
bool mt_bins_next(struct mt_bins_walk *walk, struct mt_bin *ret_bin, int64_t *ret_step);

/* Bins that begin before the step of @from_ns and whose longest bar reaches beyond @from_ns, latest first;
 * at most @max. Returns how many. */
size_t mt_bins_reaching(const struct mt_bins *bins, unsigned shift, int64_t from_ns, size_t max,
			const struct mt_bin **ret_bins);

#endif
