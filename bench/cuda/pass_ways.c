/* SPDX-License-Identifier: MIT */
/* Ways to begin and end a pass, and their comparison; see pass_ways.h. */
#include "bench/cuda/pass_ways.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/cuda/pass_kernels.h"

enum { N_PAIRS = 16, MAX_STEPS = 256 };

/* Student's factor for 15 degrees of freedom, 95 %. */
#define STUDENT 2.131

const struct way pass_ways[] = {
	{"nothing", "", "", true},
	{"is it captured?", "c", "", true},
	{"word by the stream, before", "w", "", true},
	{"word by a kernel, before", "k", "", true},
	{"word by two memsets, before", "m", "", false},
	{"word by a batch of one, before", "b", "", false},
	{"word by a copy from the host, before", "p", "", false},
	{"word by the stream, after", "", "w", false},
	{"word after, side stream waits", "", "wv", false},
	{"event after", "", "e", false},
	{"event after, side stream waits", "", "eE", false},
	{"event, wait, copy, done word", "", "eEhd", true},
	{"word, wait, copy, done word", "", "wvhd", true},
	{"copy and done word in one kernel behind an event", "", "eEX", false},
	{"copy, word and done word in one kernel", "", "x", true},
	{"copy within the device, then word ... done word", "", "gwvhd", true},
	{"copy within the device and word in one kernel ...", "", "yvhd", true},
	{"all as the recorder does it", "cw", "cwvhd", true},
	{"the same without asking", "w", "wvhd", false},
	{"word, and one kernel at the end", "cw", "cx", true},
};
const size_t pass_n_ways = sizeof(pass_ways) / sizeof(pass_ways[0]);

double pass_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

void pass_must(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "bench_pass: %s: error %d\n", what, result);
	exit(1);
}

static void *symbol_of(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, name) : NULL;

	pass_must(symbol ? 0 : -1, name);
	return symbol;
}

#define FIND(place, name)                                 \
	do {                                              \
		void *symbol = symbol_of(name);           \
		memcpy(&(place), &symbol, sizeof(place)); \
	} while (0)

struct ways ways_open(const struct moetrace_cuda *cuda, void *stream, size_t n_bytes)
{
	const struct mt_cu *cu = cuda->cu;
	struct ways ways = {.cu = cu, .stream = stream, .write_kernel = cuda->write_kernel};
	void *pinned;

	pass_must(ways.write_kernel ? 0 : -1, "the driver refused the recorder's kernels");
	ways.n_bytes = (n_bytes + 15) / 16 * 16;
	pass_must(cu->stream_create(&ways.side, MT_CU_STREAM_NON_BLOCKING), "a stream");
	pass_must(cu->event_create(&ways.event, MT_CU_EVENT_DISABLE_TIMING), "an event");
	pass_must(cu->mem_alloc(&ways.word, 64), "memory");
	pass_must(cu->mem_alloc(&ways.data, ways.n_bytes), "memory");
	pass_must(cu->mem_alloc(&ways.copy, ways.n_bytes), "memory");
	pass_must(cu->memset_async(ways.word, 0, 64, stream), "clearing");
	pass_must(cu->memset_async(ways.data, 0, ways.n_bytes, stream), "clearing");
	pass_must(cu->host_alloc(&pinned, 256, MT_CU_MEMHOSTALLOC_PORTABLE), "pinned memory");
	ways.pinned = pinned;
	pass_must(cu->host_alloc(&ways.host_data, ways.n_bytes, MT_CU_MEMHOSTALLOC_PORTABLE),
		  "pinned memory");
	pass_must(cu->stream_wait(stream), "waiting");
	FIND(ways.memset_32, "cuMemsetD32Async");
	FIND(ways.copy_up, "cuMemcpyHtoDAsync_v2");
	FIND(ways.batch, "cuStreamBatchMemOp_v2");
	return ways;
}

/* ---- steps ---- */

/* CUstreamBatchMemOpParams: the write of a 64-bit value, in the driver's layout. */
struct batch_write {
	unsigned int operation;
	uint64_t address;
	uint64_t value;
	unsigned int flags;
	uint64_t alias;
	uint64_t rest;
};
_Static_assert(sizeof(struct batch_write) == 48, "the driver's union is of six words");
#define BATCH_WRITE_64 5u

static int write_by_batch(struct ways *ways)
{
	struct batch_write write = {.operation = BATCH_WRITE_64};

	write.address = ways->word;
	write.value = ++ways->value;
	return ways->batch(ways->stream, 1, &write, 0);
}

static int write_by_kernel(struct ways *ways)
{
	uint64_t value = ++ways->value;
	void *parameters[] = {&ways->word, &value};

	return ways->cu->launch(ways->write_kernel, 1, 1, 1, 1, 1, 1, 0, ways->stream, parameters,
				NULL);
}

static int write_by_memsets(struct ways *ways)
{
	const uint64_t value = ++ways->value;
	const int result = ways->memset_32(ways->word, (uint32_t)value, 1, ways->stream);

	return result ? result
		      : ways->memset_32(ways->word + 4, (uint32_t)(value >> 32), 1, ways->stream);
}

static int write_by_copy(struct ways *ways)
{
	*(volatile uint64_t *)ways->pinned = ++ways->value;
	return ways->copy_up(ways->word, ways->pinned, 8, ways->stream);
}

static int ship(struct ways *ways, char step)
{
	struct pass_ship ship = {.from = ways->data, .n_bytes = ways->n_bytes};
	struct mtk_error error;

	ship.to = step == 'y' ? ways->copy : (uintptr_t)ways->host_data;
	if (step != 'X') {
		ship.word = ways->word;
		ship.word_value = ++ways->value;
	}
	if (step != 'y') {
		ship.done = (uintptr_t)(ways->pinned + 8);
		ship.done_value = ways->value;
	}
	return pass_launch_ship(&ship, step == 'X' ? ways->side : ways->stream, &error);
}

static int do_step(struct ways *ways, char step)
{
	const struct mt_cu *cu = ways->cu;
	int state;

	switch (step) {
	case 'c':
		return cu->stream_is_capturing(ways->stream, &state);
	case 'w':
		return cu->write_value(ways->stream, ways->word, ++ways->value, 0);
	case 'k':
		return write_by_kernel(ways);
	case 'm':
		return write_by_memsets(ways);
	case 'b':
		return write_by_batch(ways);
	case 'p':
		return write_by_copy(ways);
	case 's':
		*(volatile uint64_t *)ways->pinned = ++ways->value;
		return 0;
	case 'e':
		return cu->event_record(ways->event, ways->stream);
	case 'E':
		return cu->stream_wait_event(ways->side, ways->event, 0);
	case 'v':
		return cu->wait_value(ways->side, ways->word, ways->value, MT_CU_WAIT_GEQ);
	case 'h':
		return cu->copy_to_host(ways->host_data, ways->data, ways->n_bytes, ways->side);
	case 'd':
		return cu->write_value(ways->side, (uintptr_t)(ways->pinned + 8), ways->value, 0);
	case 'g':
		return cu->copy_on_device(ways->copy, ways->data, ways->n_bytes, ways->stream);
	case 'B':
		return moetrace_cuda_pass_begin(ways->lane, &ways->info);
	case 'Z':
		return moetrace_cuda_pass_end(ways->lane);
	default:
		return ship(ways, step);
	}
}

bool pass_is_possible(struct ways *ways, const struct way *way)
{
	const char *const parts[] = {way->before, way->after};
	int result = 0;

	for (int i = 0; i < 2; i++)
		for (const char *step = parts[i]; *step && !result; step++) {
			result = do_step(ways, *step);
			if (result)
				printf("%-49s | refused: step %c, error %d\n", way->name, *step, result);
		}
	pass_must(ways->cu->stream_wait(ways->stream), "waiting");
	return !result;
}

static double do_steps(struct ways *ways, const char *steps)
{
	const double begin_us = pass_now_us();

	for (; *steps; steps++) {
		const int result = do_step(ways, *steps);

		if (result) {
			fprintf(stderr, "bench_pass: step %c: error %d\n", *steps, result);
			exit(1);
		}
	}
	return pass_now_us() - begin_us;
}

/* ---- blocks ---- */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

static void wait_for(const struct ways *ways)
{
	pass_must(ways->cu->stream_wait(ways->stream), "waiting");
}

struct block_times pass_block(const struct pass_load *load, const struct way *way, uint32_t n)
{
	struct ways *ways = load->ways;
	double before_us[MAX_STEPS], after_us[MAX_STEPS];
	struct block_times times;
	double begin_us;

	n = n < MAX_STEPS ? n : MAX_STEPS;
	begin_us = pass_now_us();
	for (uint32_t i = 0; i < n; i++) {
		before_us[i] = do_steps(ways, way->before);
		load->launch(load->context);
		if (load->order == PASS_WAITED)
			wait_for(ways);
		after_us[i] = do_steps(ways, way->after);
		if (load->order == PASS_ENDED_EARLY)
			wait_for(ways);
	}
	if (load->order == PASS_BACK_TO_BACK)
		wait_for(ways);
	times.us = (pass_now_us() - begin_us) / n;
	wait_for(ways);
	pass_must(ways->cu->stream_wait(ways->side), "waiting");
	times.before_us = median(before_us, n);
	times.after_us = median(after_us, n);
	return times;
}

/* What was recorded is handed over between blocks, not within the next one. */
static struct block_times block(const struct pass_load *load, const struct way *way, uint32_t n)
{
	struct moetrace_cuda_lane *lane = *way->before == 'B' ? load->ways->lane : NULL;
	struct block_times times;

	if (lane && load->is_held)
		pthread_mutex_lock(&lane->cuda->deliver);
	times = pass_block(load, way, n);
	if (lane && load->is_held)
		pthread_mutex_unlock(&lane->cuda->deliver);
	if (lane)
		pass_must(moetrace_flush(lane->cuda->session), "flush");
	return times;
}

static double gap_of(const struct pass_load *load)
{
	return load->gap_us ? load->gap_us(load->context) : (double)NAN;
}

struct change pass_compare(const struct pass_load *base, const struct pass_load *other,
			   const struct way *way, uint32_t n)
{
	const struct way *nothing = &pass_ways[0];
	double changes[N_PAIRS], before_us[N_PAIRS], after_us[N_PAIRS], squares = 0.0;
	struct change change = {0};

	(void)block(base, nothing, n);
	(void)block(other, way, n);
	for (int i = 0; i < N_PAIRS; i++) {
		struct block_times a1, b1, b2, a2;

		/* Pauses between blocks are none between graphs. */
		(void)gap_of(base);
		a1 = block(base, nothing, n);
		change.gap_us -= gap_of(base) / N_PAIRS;
		b1 = block(other, way, n);
		change.gap_us += gap_of(other) / N_PAIRS;
		b2 = block(other, way, n);
		a2 = block(base, nothing, n);
		changes[i] = (b1.us + b2.us - a1.us - a2.us) / 2.0;
		before_us[i] = b1.before_us;
		after_us[i] = b1.after_us;
		change.us += changes[i] / N_PAIRS;
		change.base_us += (a1.us + a2.us) / 2.0 / N_PAIRS;
	}
	for (int i = 0; i < N_PAIRS; i++)
		squares += (changes[i] - change.us) * (changes[i] - change.us);
	change.half_width_us = STUDENT * sqrt(squares / (N_PAIRS - 1) / N_PAIRS);
	change.before_us = median(before_us, N_PAIRS);
	change.after_us = median(after_us, N_PAIRS);
	return change;
}

/* ---- the table ---- */

void pass_header(const char *what)
{
	printf("\n%s: us a pass; host: what stands before and after the graph takes; then how much longer "
	       "a pass takes than with nothing, with its interval of 95 %%\n",
	       what);
	printf("%-49s | %-39s  pause | %-39s | %s\n", "way", "back to back: host, longer",
	       "waited for: host, longer", "waited for, but ended before that");
}

static void print_change(const struct change *change)
{
	printf(" | %6.2f %6.2f %+8.2f [%+7.2f, %+7.2f]", change->before_us, change->after_us,
	       change->us, change->us - change->half_width_us, change->us + change->half_width_us);
}

void pass_print(const char *name, const struct change *changes)
{
	printf("%-49s", name);
	for (int i = 0; i < PASS_N_ORDERS; i++) {
		print_change(&changes[i]);
		if (i == PASS_BACK_TO_BACK && isnan(changes[i].gap_us))
			printf("      -");
		else if (i == PASS_BACK_TO_BACK)
			printf(" %+6.2f", changes[i].gap_us);
	}
	printf("  of %.1f\n", changes[PASS_WAITED].base_us);
	fflush(stdout);
}
