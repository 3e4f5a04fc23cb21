/* SPDX-License-Identifier: MIT */
/*
 * Ways to begin and end a pass, made of single operations, and what they cost: each is compared with
 * nothing at all around the same load, in pairs of blocks A B B A, in several orders of launching and
 * waiting. Every failure ends the program.
 */
#ifndef MTK_BENCH_PASS_WAYS_H
#define MTK_BENCH_PASS_WAYS_H

#include <stdbool.h>

#include "libtrace/cuda/capture.h"

/*
 * Steps are letters:
 *
 *   c  the driver is asked whether the stream is captured
 *   w  the stream writes the word       k  a kernel does      m  two memsets do
 *   b  a batch of one operation does    p  a copy of 8 bytes from pinned memory does
 *   s  the host stores a pinned word, and calls nobody
 *   e  an event is recorded             E  the side stream waits for it
 *   v  the side stream waits for the word
 *   h  the side stream copies to the host                d  it writes the done word
 *   g  the stream copies within the device
 *   x  a kernel in the stream copies to the host and writes the word and the done word
 *   X  the same on the side stream, without the word
 *   y  a kernel in the stream copies within the device and writes the word
 *   B  moetrace_cuda_pass_begin()       Z  moetrace_cuda_pass_end()
 */
struct way {
	const char *name;
	const char *before; /* the graph */
	const char *after;
	bool is_tried_on_models;
};

extern const struct way pass_ways[]; /* the first is nothing at all */
extern const size_t pass_n_ways;

struct ways {
	const struct mt_cu *cu;
	void *stream;
	void *side;
	void *event;
	void *write_kernel;
	uint64_t word; /* of device memory, as data and copy */
	uint64_t value;
	uint64_t data;
	uint64_t copy;
	size_t n_bytes;
	uint64_t *pinned; /* the word, then the done word; as host_data */
	void *host_data;
	int (*memset_32)(uint64_t address, unsigned int value, size_t n, void *stream);
	int (*copy_up)(uint64_t to, const void *from, size_t n_bytes, void *stream);
	int (*batch)(void *stream, unsigned int n, void *operations, unsigned int flags);
	struct moetrace_cuda_lane *lane; /* of B and Z, which are steps with a lane only */
	struct moetrace_pass_info info;
};

/* On a device that is attached and a stream of it; a pass has so many bytes. */
struct ways ways_open(const struct moetrace_cuda *cuda, void *stream, size_t n_bytes);

enum pass_order {
	PASS_BACK_TO_BACK,
	PASS_WAITED,	 /* for its graph, then it is ended, as serving does */
	PASS_ENDED_EARLY, /* before its graph is waited for */
	PASS_N_ORDERS,
};

/* What runs between before and after. */
struct pass_load {
	void (*launch)(void *context); /* NULL: nothing */
	enum pass_order order;
	double (*gap_us)(void *context); /* mean time from one graph to the next since it was last
					    called; NULL: not known */
	void *context;
	struct ways *ways;
	bool is_held; /* the recorder's thread stands still meanwhile */
};

/* What a block of a way took on the host, and in all. */
struct block_times {
	double before_us;
	double after_us;
	double us;
};

struct block_times pass_block(const struct pass_load *load, const struct way *way, uint32_t n);

struct change {
	double base_us;
	double us;
	double half_width_us; /* of the interval of 95 % */
	double before_us;
	double after_us;
	double gap_us; /* of the other over that of the base; NAN: not known */
};

struct change pass_compare(const struct pass_load *base, const struct pass_load *other,
			   const struct way *way, uint32_t n);

/* Whether the driver does the way's steps; else it is said. */
bool pass_is_possible(struct ways *ways, const struct way *way);

void pass_header(const char *what);
/* A line of the table. */
void pass_print(const char *name, const struct change *changes); /* [PASS_N_ORDERS] */

double pass_now_us(void);
void pass_must(int result, const char *what);

#endif
