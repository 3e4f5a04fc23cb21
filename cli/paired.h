/* SPDX-License-Identifier: MIT */
/*
 * The paired change between steps that were not recorded and steps that were. A pair is two
 * neighbouring blocks of time, one of each kind; a batch size's change is the median over pairs of
 * the change between the blocks' medians, with the interval of order statistics. That assumes
 * nothing of how step times are distributed, and holds for 95 % or more.
 */
#ifndef MT_CLI_PAIRED_H
#define MT_CLI_PAIRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A forward pass: from its begin to the next one's. */
struct mt_step {
	uint64_t time_ns;     /* when it began */
	uint64_t duration_ns; /* set by mt_steps_prepare() */
	uint32_t pair;
	uint32_t model;
	uint32_t phase;
	uint32_t n_rows;
	bool is_on;	 /* recorded */
	bool is_counted; /* false: the block was settling, or the next begin is not known */
};

struct mt_blocks {
	uint64_t start_ns;
	uint64_t block_ns;
	uint32_t n_pairs;
};

/* The median of fewer values has no interval of 95 %: 2 / 2^5 is above 5 %. */
#define MT_INTERVAL_MIN_VALUES 6

struct mt_interval {
	double median;
	bool has_bounds; /* false: too few values for 95 % */
	double low, high;
};

struct mt_change {
	uint64_t n_steps;
	size_t n_pairs;
	double off, on; /* medians over pairs */
	struct mt_interval percent;
};

/*
 * Put steps in order of time, and find their durations and blocks. In the first quarter of a block
 * the writer still works for the one before: steps that begin there do not count.
 */
void mt_steps_prepare(struct mt_step *steps, size_t n_steps, const struct mt_blocks *blocks);

/* Put prepared steps of one model, phase and number of rows together; how many there are at @at. */
void mt_steps_group(struct mt_step *steps, size_t n_steps);
size_t mt_steps_group_size(const struct mt_step *steps, size_t n_steps, size_t at);

/**
 * The change of a group's step time, in ns; or of the rows a second of all steps, in any order.
 *
 * Returns 0, or -1: out of memory. *ret_change has n_pairs 0 where nothing can be compared.
 */
int mt_step_change(const struct mt_step *group, size_t n_steps, uint32_t n_pairs,
		   struct mt_change *ret_change);
int mt_rate_change(const struct mt_step *steps, size_t n_steps, uint32_t n_pairs,
		   struct mt_change *ret_change);

/* Median of @values and its interval of 95 %; sorts them. */
void mt_median_interval(double *values, size_t n_values, struct mt_interval *ret_interval);

#endif
