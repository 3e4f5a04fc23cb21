/* SPDX-License-Identifier: MIT */
/*
 * A runtime whose step times are known: passes of 4 rows take 2 ms and passes of 16 rows 4 ms, in
 * turns, and each takes 2 ms more when it is recorded. Each step has its length from its own begin, so
 * that being late in one does not make the next one shorter. It serves FILE until it is told to
 * end, or twenty minutes, and writes a line a step into STEPS: its rows, whether it was recorded, and
 * the nanoseconds to the next one's begin, which on a busy machine are more.
 */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include <moetrace/moetrace.h>

#define MS 1000000L

static volatile sig_atomic_t is_over;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static void add_ns(struct timespec *time, long n_ns)
{
	time->tv_nsec += n_ns;
	while (time->tv_nsec >= 1000 * MS) {
		time->tv_nsec -= 1000 * MS;
		time->tv_sec++;
	}
}

static int serve(struct moetrace_session *session, uint32_t model, FILE *steps)
{
	struct timespec begin, next;
	uint32_t i;

	for (i = 0; i < 300000 && !is_over; i++) {
		struct moetrace_pass_info info;
		struct moetrace_pass *pass;
		int is_recorded;

		MOETRACE_INIT(&info);
		info.model = model;
		info.phase = MOETRACE_PHASE_DECODE;
		info.n_rows = i % 2 ? 16 : 4;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		next = begin;
		pass = moetrace_pass_begin(session, &info);
		is_recorded = pass != NULL;
		add_ns(&next, (i % 2 ? 4 : 2) * MS + (is_recorded ? 2 : 0) * MS);
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) && !is_over)
			continue;
		moetrace_pass_end(pass);
		clock_gettime(CLOCK_MONOTONIC, &next);
		fprintf(steps, "%u %d %ld\n", info.n_rows, is_recorded,
			(next.tv_sec - begin.tv_sec) * 1000 * MS + next.tv_nsec - begin.tv_nsec);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = end};
	struct moetrace_layer_info layer;
	struct moetrace_model_info model;
	struct moetrace_session *session;
	uint32_t handle;
	FILE *steps;

	MOETRACE_INIT(&layer);
	layer.n_experts = 8;
	layer.top_k = 2;
	MOETRACE_INIT(&model);
	model.name = "steady";
	model.n_layers = 1;
	model.layers = &layer;
	if (argc != 3 || sigaction(SIGTERM, &action, NULL) || !(steps = fopen(argv[2], "w")) ||
	    setvbuf(steps, NULL, _IOLBF, BUFSIZ) ||
	    moetrace_session_open(argv[1], NULL, &session) != MOETRACE_OK) {
		fprintf(stderr, "steady_runtime FILE STEPS: %s\n", moetrace_open_errmsg());
		return 1;
	}
	if (moetrace_model_add(session, &model, &handle) != MOETRACE_OK ||
	    moetrace_start(session, NULL) != MOETRACE_OK || serve(session, handle, steps))
		return 1;
	return moetrace_session_close(session) == MOETRACE_OK && fclose(steps) == 0 ? 0 : 1;
}
