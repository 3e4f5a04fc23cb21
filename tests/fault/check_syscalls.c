/* SPDX-License-Identifier: MIT */
/*
 * The hot path makes no system call. A thread that has never called the recorder installs a
 * filter that traps every system call of this thread, runs the hot path and then sleeps for
 * ever in the one call that the filter lets through: it cannot end in the usual way any more.
 * What is trapped is named with its address.
 *
 * Reading the clock is no system call where the kernel offers its clock to programs; where it
 * does not, the test cannot run.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/fault/support/hot.h"
#include "tests/unit/support/suite.h"

static const struct api *api;

struct trap {
	void (*run)(void *argument);
	void *argument;
	atomic_int error; /* errno of the set-up, 0: the filter was in force */
	atomic_bool is_done;
	atomic_bool has_ended;
	atomic_long n_syscall; /* number of the call that was trapped; -1: none */
	void *_Atomic address;
};

/* The trap of the thread that runs; one at a time. */
static struct trap *current;

/*
 * The flag keeps it from being a function that never returns: before calling one of those,
 * AddressSanitizer makes a system call.
 */
static atomic_bool is_over;

static void sleep_for_ever(void)
{
	sigset_t all;

	sigfillset(&all);
	while (!is_over)
		syscall(SYS_rt_sigsuspend, &all, _NSIG / 8);
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	current->address = info->si_call_addr;
	current->n_syscall = info->si_syscall;
	current->has_ended = true;
	sleep_for_ever();
}

static int install_filter(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigsuspend, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]),
					   .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ? errno : 0;
}

static void *trap_main(void *argument)
{
	struct trap *trap = argument;

	trap->error = install_filter();
	if (!trap->error) {
		trap->run(trap->argument);
		trap->is_done = true;
	}
	trap->has_ended = true;
	if (!trap->error)
		sleep_for_ever();
	return NULL;
}

static void run_trapped(struct trap *trap, void (*run)(void *argument), void *argument)
{
	const struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	pthread_t id;

	trap->run = run;
	trap->argument = argument;
	trap->error = 0;
	trap->is_done = false;
	trap->has_ended = false;
	trap->n_syscall = -1;
	current = trap;
	/* Not ck_assert_*(): also called outside of a test case. */
	REQUIRE(sigaction(SIGSYS, &action, NULL) == 0, "sigaction: %s", strerror(errno));
	REQUIRE(pthread_create(&id, NULL, trap_main, trap) == 0, "no thread");
	REQUIRE(pthread_detach(id) == 0, "the thread is not detached");
	WAIT_UNTIL(trap->has_ended);
}

static void run_hot(void *argument)
{
	hot_go(argument);
}

START_TEST(test_no_system_call)
{
	struct hot *hot = hot_prepare(api, _i);
	static struct trap trap;
	Dl_info where = {0};

	run_trapped(&trap, run_hot, hot);
	ck_assert_int_eq(trap.error, 0);
	if (trap.n_syscall != -1)
		dladdr(trap.address, &where);
	ck_assert_msg(trap.is_done && trap.n_syscall == -1,
		      "scenario %d made system call %ld at %p (%s in %s)", _i, (long)trap.n_syscall,
		      (void *)trap.address, where.dli_sname ? where.dli_sname : "?",
		      where.dli_fname ? where.dli_fname : "?");
	hot_finish(hot);
}
END_TEST

/* The trap itself: what is known to enter the kernel is caught, also inside the library. */
static void call_getppid(void *argument)
{
	(void)argument;
	getppid();
}

static void call_flush(void *argument)
{
	struct hot *hot = argument;

	hot->api->flush(hot->session);
}

START_TEST(test_trap_catches)
{
	/* Never closed: the library may be left locked by the thread that is stopped within. */
	static struct hot *hot;
	static struct trap trap;

	hot = hot_prepare(api, HOT_DECODE);
	run_trapped(&trap, call_getppid, NULL);
	ck_assert_int_eq(trap.n_syscall, SYS_getppid);
	ck_assert(!trap.is_done);
	/* Stopped within the allocator of AddressSanitizer, it would stop everybody. */
	if (suite_has_sanitizer("address"))
		return;
	run_trapped(&trap, call_flush, hot);
	ck_assert_int_ne(trap.n_syscall, -1);
	ck_assert(!trap.is_done);
}
END_TEST

static void read_clock(void *argument)
{
	struct timespec now;

	(void)argument;
	clock_gettime(CLOCK_MONOTONIC, &now);
}

static const char *reason_to_skip(void)
{
	static struct trap trap;

	if (suite_has_sanitizer("thread"))
		return "ThreadSanitizer makes system calls of its own";
	run_trapped(&trap, read_clock, NULL);
	if (trap.error)
		return "the kernel refuses the filter";
	return trap.is_done ? NULL : "reading the clock is a system call here";
}

int main(void)
{
	Suite *suite = suite_create("syscalls");
	TCase *tcase = tcase_create("hot path");
	const char *reason = reason_to_skip();

	if (reason) {
		fprintf(stderr, "skipped: %s\n", reason);
		return SUITE_SKIPPED;
	}
	api = api_get();
	if (!api)
		return SUITE_SKIPPED;
	tcase_add_test(tcase, test_trap_catches);
	tcase_add_loop_test(tcase, test_no_system_call, 0, HOT_N_SCENARIOS);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
