/* SPDX-License-Identifier: MIT */
/*
 * The signals that end `moetrace run`. The first one sets a flag; the run ends at its next pass and
 * closes its files. A second one ends the process with the signal's own effect, once the temporary
 * text file is gone; but where a process sends the same one twice it is one: timeout(1) signals the
 * command that it ran and then the whole group, to which that belongs, too. A signal that was ignored
 * when the process began stays ignored. While signals are held, none of them arrives; threads made
 * then hold them for ever, so that the main thread alone runs the handler.
 */
#include "cli/cmd_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

/* What comes from one process within this is one signal. */
#define SAME_NS INT64_C(2000000000)

static volatile sig_atomic_t number_seen;
/* When it came, and who sent it; 0: nobody, as from a terminal. The handler's own. */
static int64_t seen_ns;
static pid_t sender_seen;
static _Atomic(const char *) temporary_path;

static void numbers_fill(sigset_t *ret_set)
{
	size_t i;

	sigemptyset(ret_set);
	for (i = 0; i < N_NUMBERS; i++)
		sigaddset(ret_set, numbers[i]);
}

static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Only what POSIX calls async-signal-safe is called here. */
static void on_signal(int number, siginfo_t *info, void *context)
{
	const pid_t sender = info->si_code == SI_USER ? info->si_pid : 0;
	const char *path = atomic_load(&temporary_path);

	(void)context;
	if (number_seen == 0) {
		seen_ns = clock_ns();
		sender_seen = sender;
		number_seen = number;
		return;
	}
	if (number == number_seen && sender && sender == sender_seen &&
	    clock_ns() - seen_ns < SAME_NS)
		return;
	if (path)
		(void)unlink(path);
	(void)signal(number, SIG_DFL);
	(void)raise(number);
}

void mt_run_signals_catch(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
	struct sigaction inherited;
	size_t i;

	/* A reader of the summary that goes away must not take the files along. */
	(void)signal(SIGPIPE, SIG_IGN);
	numbers_fill(&action.sa_mask);
	for (i = 0; i < N_NUMBERS; i++) {
		if (sigaction(numbers[i], NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
			(void)sigaction(numbers[i], &action, NULL);
	}
}

bool mt_run_signals_seen(void)
{
	return number_seen != 0;
}

void mt_run_signals_hold(sigset_t *ret_before)
{
	sigset_t held;

	numbers_fill(&held);
	(void)pthread_sigmask(SIG_BLOCK, &held, ret_before);
}

void mt_run_signals_release(const sigset_t *before)
{
	(void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

void mt_run_signals_remove(const char *temporary)
{
	atomic_store(&temporary_path, temporary);
}
