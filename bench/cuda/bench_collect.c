/* SPDX-License-Identifier: MIT */
/*
 * A decode load on a GPU while CUPTI is asked in a mode, for as long as one likes: what a step takes,
 * waited for as serving does and back to back, what memory host and GPU have left, how long stop
 * takes. One mode a process, since a process that CUPTI has joined is another one: run them in turn.
 *
 * bench_collect MODE SECONDS FILE.db [SHAPE [ROWS]]: MODE is off, recording without CUPTI, or a mode
 * of the collector cupti. The file is left behind. Without arguments a few modes in turn, there and
 * back.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/cuda/engine_rig.h"

enum { POSITION = 511, MAX_STEPS = 1 << 20, N_BLOCKS = 8, N_REPLAYS = 25 };

#define INTERVAL_US 10e6

static float steps_us[MAX_STEPS];

static int by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static double median_us(float *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return n ? (double)values[n / 2] : 0.0;
}

static double resident_mb(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long n_pages = 0;

	if (file) {
		if (fscanf(file, "%*s %ld", &n_pages) != 1)
			n_pages = 0;
		fclose(file);
	}
	return (double)n_pages * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

/* What the GPU has left; the driver is in the process already. */
static double free_mb(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, "cuMemGetInfo_v2") : NULL;
	int (*get)(size_t *, size_t *) = NULL;
	size_t n_free = 0, n_all = 0;

	memcpy(&get, &symbol, sizeof(get));
	if (!get || get(&n_free, &n_all))
		return 0.0;
	return (double)n_free / 1e6;
}

struct load {
	struct rig *rig;
	struct lane *lane;
	uint32_t n_rows;
	uint32_t n_steps;
};

/* Decode for some time, with a line now and then. */
static void run(struct load *load, double seconds)
{
	const double begin_us = rig_now_us();
	double mark_us = begin_us, now_us = begin_us;
	uint32_t n_marked = load->n_steps;

	while (now_us - begin_us < seconds * 1e6) {
		const double before_us = now_us;

		rig_decode(load->rig, load->lane, load->n_rows, POSITION, NULL);
		now_us = rig_now_us();
		if (load->n_steps < MAX_STEPS)
			steps_us[load->n_steps] = (float)(now_us - before_us);
		load->n_steps++;
		if (now_us - mark_us < INTERVAL_US && now_us - begin_us < seconds * 1e6)
			continue;
		printf("%6.1f s: %7u steps, %.1f us each, %.1f MB resident, GPU has %.1f MB left\n",
		       (now_us - begin_us) / 1e6, load->n_steps,
		       (now_us - mark_us) / (load->n_steps - n_marked), resident_mb(), free_mb());
		fflush(stdout);
		mark_us = now_us;
		n_marked = load->n_steps;
	}
}

static double back_to_back_us(struct load *load)
{
	float blocks_us[N_BLOCKS];

	for (int i = 0; i < N_BLOCKS; i++) {
		const double begin_us = rig_now_us();

		rig_replay(load->rig, load->lane, load->n_rows, N_REPLAYS);
		load->n_steps += N_REPLAYS;
		blocks_us[i] = (float)((rig_now_us() - begin_us) / N_REPLAYS);
	}
	return median_us(blocks_us, N_BLOCKS);
}

static void measure(const char *mode, double seconds, const char *path, struct rig *rig,
		    uint32_t n_rows)
{
	struct lane lane = rig_lane(rig, n_rows, POSITION + 1, n_rows, NULL, MTK_CUDA_RECORD_FUSED);
	struct load load = {.rig = rig, .lane = &lane, .n_rows = n_rows};
	double begin_us, waited_us, stop_us;

	/* Captures the graph. */
	for (int i = 0; i < 20; i++)
		rig_decode(rig, &lane, n_rows, POSITION, NULL);
	rig_record(&lane, true);
	run(&load, seconds);
	waited_us = median_us(steps_us, load.n_steps < MAX_STEPS ? load.n_steps : MAX_STEPS);
	printf("mode %s: %u rows, waited for %.1f us, back to back %.1f us in the median\n", mode,
	       n_rows, waited_us, back_to_back_us(&load));
	begin_us = rig_now_us();
	rig_record(&lane, false);
	stop_us = rig_now_us() - begin_us;
	rig_must(moetrace_session_close(lane.session), NULL, "close");
	lane.session = NULL;
	printf("mode %s: %u steps recorded, stop took %.1f ms, %.1f MB resident, GPU has %.1f MB left\n",
	       mode, load.n_steps, stop_us / 1e3, resident_mb(), free_mb());
	if (rename(lane.path, path))
		perror(path);
	rig_lane_close(&lane);
}

/* Each mode in a process of its own; returns how the worst one ended. */
static int run_all(void)
{
	static const char *const modes[] = {"off",    "graph", "kernel:every=50",
					    "kernel:every=50", "graph", "off"};
	const char *folder = getenv("TMPDIR");
	char path[256];
	int worst = 0;

	snprintf(path, sizeof(path), "%s/bench_collect-%ld.db", folder && *folder ? folder : "/tmp",
		 (long)getpid());
	for (size_t i = 0; worst == 0 && i < sizeof(modes) / sizeof(modes[0]); i++) {
		const pid_t child = fork();
		int status = 0;

		if (child == 0) {
			execl("/proc/self/exe", "bench_collect", modes[i], "5", path, (char *)NULL);
			_exit(1);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			return 1;
		worst = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		unlink(path);
	}
	return worst;
}

int main(int argc, char **argv)
{
	const char *shape = argc > 4 ? argv[4] : "qwen3-30b-a3b";
	const uint32_t n_rows = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 16;
	char list[128];
	struct rig rig;

	if (argc == 1)
		return run_all();
	if (argc < 4 || !n_rows || n_rows > 64) {
		fprintf(stderr, "usage: bench_collect MODE SECONDS FILE.db [SHAPE [ROWS]]\n");
		return 2;
	}
	snprintf(list, sizeof(list), "cupti=%s", argv[1]);
	if (setenv("MOETRACE_COLLECTORS", strcmp(argv[1], "off") == 0 ? "none" : list, 1))
		return 1;
	rig = rig_open(shape, 0, POSITION + 1, false);
	measure(argv[1], strtod(argv[2], NULL), argv[3], &rig, n_rows);
	rig_close(&rig);
	return 0;
}
