/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks share: a model, passes of 64 rows times 8 experts with int32 ids and fp32
 * weights as a router leaves them, clocks, and medians.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include <moetrace/moetrace.h>

enum { LOAD_TOP_K = 8, LOAD_MAX_ROWS = 8192, LOAD_N_SOURCES = 4 };

struct load {
	struct moetrace_session *session;
	char path[512];
	uint32_t model;
	uint32_t n_layers;
	uint32_t n_experts;
	uint32_t n_rows;
	uint32_t n_slices; /* 1, or n_rows */
	uint32_t position; /* the next pass's */
	struct moetrace_slice *slices;
	/* Routers' outputs, used in turn: warm, as what was just computed is. */
	int32_t *ids[LOAD_N_SOURCES];
	float *weights[LOAD_N_SOURCES];
};

/* Ends the program with a message when something fails. */
void load_die(const char *what, const char *why);

uint64_t load_now_ns(void);
uint64_t load_thread_cpu_ns(void);
void load_sleep_until_ns(uint64_t due_ns);

/* Open a session in @folder and start a recording; @opts NULL: defaults. */
void load_open(struct load *load, const char *folder, const struct moetrace_session_opts *opts,
	       uint32_t n_layers, uint32_t n_experts, uint32_t n_rows, uint32_t n_slices);

/* Begin a pass whose slices go on where the last one ended. */
struct moetrace_pass *load_begin(struct load *load);

/* The selection of a layer; everything in it stays as it is but for the layer and the arrays. */
struct moetrace_selection load_selection(const struct load *load, uint32_t layer);

/* A whole pass; false when it was not recorded. */
bool load_pass(struct load *load);

struct moetrace_session_status load_status(const struct load *load);

/* Close the session; the file is removed unless @keep. */
void load_close(struct load *load, bool keep);

/* Of @n numbers, which are sorted by this. */
double load_quantile(double *values, uint32_t n, double q);

#endif
