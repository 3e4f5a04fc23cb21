/* SPDX-License-Identifier: MIT */
/*
 * Threads that call the recorder; see caller.h.
 */
#include "tests/cuda/support/caller.h"

#include <check.h>

#include "tests/unit/support/suite.h"

void caller_start(struct caller *caller, struct moetrace_session *session, void *(*run)(void *))
{
	caller->session = session;
	ck_assert_int_eq(pthread_create(&caller->thread, NULL, run, caller), 0);
}

int caller_status(struct caller *caller)
{
	ck_assert_int_eq(pthread_join(caller->thread, NULL), 0);
	return caller->status;
}

void *caller_flush(void *argument)
{
	struct caller *caller = argument;

	caller->status = moetrace_flush(caller->session);
	return NULL;
}

void *caller_rotate(void *argument)
{
	struct caller *caller = argument;

	caller->status = moetrace_rotate(caller->session, NULL);
	return NULL;
}

void *caller_stop(void *argument)
{
	struct caller *caller = argument;

	caller->status = moetrace_stop(caller->session, NULL);
	return NULL;
}

static void *switch_on_and_off(void *argument)
{
	struct switcher *switcher = argument;

	while (!atomic_load(&switcher->is_over)) {
		suite_sleep_ms(switcher->on_ms);
		switcher->status = moetrace_stop(switcher->session, NULL);
		atomic_store(&switcher->has_stopped, 1);
		if (switcher->status)
			break;
		suite_sleep_ms(switcher->off_ms);
		WAIT_UNTIL(atomic_load(&switcher->was_idle) || atomic_load(&switcher->is_over));
		switcher->status = moetrace_start(switcher->session, NULL);
		if (switcher->status)
			break;
		atomic_fetch_add(&switcher->n_starts, 1);
	}
	return NULL;
}

void switcher_start(struct switcher *switcher)
{
	ck_assert_int_eq(pthread_create(&switcher->thread, NULL, switch_on_and_off, switcher), 0);
}

int switcher_end(struct switcher *switcher)
{
	atomic_store(&switcher->is_over, 1);
	ck_assert_int_eq(pthread_join(switcher->thread, NULL), 0);
	return switcher->status;
}
