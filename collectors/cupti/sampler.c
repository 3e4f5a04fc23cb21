/* SPDX-License-Identifier: MIT */
/*
 * The thread that switches kernel records. It sleeps for a fraction of the time that the passes
 * before the next one should take, so it looks a few times at each.
 *
 * A graph goes on writing the ends of its nodes to where its last recorded launch has them, in each
 * launch that is not recorded, until CUPTI has read them. So records stay on until the pass behind the
 * one that is kept has launched what it launches, too. A graph that is running when they
 * are switched off has such ends, too: so they stay on until the GPUs are through with both,
 * since the host may end a pass as soon as it is launched. A host that is passes ahead of the GPU has as
 * many recorded then, so all that end meanwhile are kept, and the next look comes so many times later:
 * what is recorded stays in proportion to what was asked for.
 *
 * Records that are on cost the program time, whether it says what its passes are or not. So where none
 * comes they are off again after a while, until one has begun.
 */
#include "collectors/cupti/sampler.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "collectors/cupti/launches.h"

#define NS_PER_S UINT64_C(1000000000)
#define LEAST_SLEEP_NS UINT64_C(50000)
#define MOST_SLEEP_NS  UINT64_C(10000000)
#define PATIENT_LOOKS  8u
/* Where no further pass ends nothing is launched either, as a rule; and a GPU may hang. */
#define MOST_BEHIND_NS UINT64_C(10000000000)
/* Records stay on for so long without a pass, and twice as long each time that it was in vain. */
#define FIRST_WAIT_NS UINT64_C(10000000000)
#define MOST_WAIT_NS  UINT64_C(640000000000)

struct mtc_cupti_sampler {
	const struct mtc_cupti *api;
	struct mtc_cupti_mode mode;
	const struct mt_collector_out *out;
	uint64_t start_ns;
	uint64_t pass_ns; /* about what a pass takes; 0: not known yet */
	uint64_t wait_ns; /* how long records wait for a pass */
	pthread_t thread;
	pthread_mutex_t lock; /* protects is_stopping */
	pthread_cond_t stopping;
	int is_stopping;
	_Atomic int result;
};

static uint64_t now_ns(const struct mtc_cupti_sampler *sampler)
{
	return sampler->out->now_ns(sampler->out->context);
}

/* Returns 0 when it is to stop. */
static int rest(struct mtc_cupti_sampler *sampler, uint64_t sleep_ns)
{
	struct timespec until;
	int is_stopping;

	clock_gettime(CLOCK_MONOTONIC, &until);
	sleep_ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(sleep_ns / NS_PER_S);
	until.tv_nsec = (long)(sleep_ns % NS_PER_S);
	pthread_mutex_lock(&sampler->lock);
	while (!sampler->is_stopping &&
	       pthread_cond_timedwait(&sampler->stopping, &sampler->lock, &until) != ETIMEDOUT)
		continue;
	is_stopping = sampler->is_stopping;
	pthread_mutex_unlock(&sampler->lock);
	return !is_stopping;
}

static struct mt_pass_counts count(const struct mtc_cupti_sampler *sampler)
{
	struct mt_pass_counts counts;

	sampler->out->count_passes(sampler->out->context, &counts);
	return counts;
}

/* A part of the time until @n_passes more have begun; longer where none began for @n_looks. */
static uint64_t sleep_for(const struct mtc_cupti_sampler *sampler, uint64_t n_passes,
			  uint32_t n_looks)
{
	uint64_t sleep_ns = n_passes * sampler->pass_ns / 4;

	if (sleep_ns < LEAST_SLEEP_NS)
		sleep_ns = LEAST_SLEEP_NS;
	if (n_looks > PATIENT_LOOKS)
		sleep_ns <<= n_looks < PATIENT_LOOKS + 8 ? n_looks - PATIENT_LOOKS : 8;
	return sleep_ns > MOST_SLEEP_NS ? MOST_SLEEP_NS : sleep_ns;
}

/* Wait until so many passes have begun. */
static int wait_for_pass(struct mtc_cupti_sampler *sampler, uint64_t n_wanted)
{
	uint64_t begin_ns = now_ns(sampler);
	uint64_t n_first = count(sampler).n_begun;
	uint64_t n_passes = n_first, n_before;
	uint32_t n_looks = 0;

	while (n_passes < n_wanted) {
		n_before = n_passes;
		if (!rest(sampler, sleep_for(sampler, n_wanted - n_passes, n_looks)))
			return 0;
		n_passes = count(sampler).n_begun;
		n_looks = n_passes == n_before ? n_looks + 1 : 0;
		if (n_passes > n_first)
			sampler->pass_ns = (now_ns(sampler) - begin_ns) / (n_passes - n_first);
	}
	return 1;
}

static int wait_until(struct mtc_cupti_sampler *sampler, uint64_t until_ns)
{
	uint64_t time_ns = now_ns(sampler);

	return time_ns >= until_ns || rest(sampler, until_ns - time_ns);
}

/* Returns 0 when it is to stop, or CUPTI failed. */
static int switch_on(struct mtc_cupti_sampler *sampler)
{
	int result = sampler->api->enable(MTC_CUPTI_CONCURRENT_KERNEL);

	if (result != MTC_CUPTI_OK) {
		atomic_store(&sampler->result, result);
		return 0;
	}
	mtc_cupti_launches_record(1);
	sampler->out->set_on(sampler->out->context, 1);
	return 1;
}

/* Until a pass that ends from now on has done so; returns 0 when it is to stop. */
static int wait_behind(struct mtc_cupti_sampler *sampler)
{
	const uint64_t until_ns = now_ns(sampler) + MOST_BEHIND_NS;
	const uint64_t n_ended = count(sampler).n_ended;
	uint32_t n_looks = 0;

	while (count(sampler).n_ended == n_ended && now_ns(sampler) < until_ns)
		if (!rest(sampler, sleep_for(sampler, 1, n_looks++)))
			return 0;
	return 1;
}

/*
 * Until the GPUs have come to the end of all that has begun by now. Who ends a recording has waited for
 * its passes before the sampler is stopped.
 */
static void wait_for_gpus(struct mtc_cupti_sampler *sampler)
{
	const uint64_t until_ns = now_ns(sampler) + MOST_BEHIND_NS;
	const struct mt_collector_out *out = sampler->out;
	struct mt_gpu_passes passes;
	uint32_t n_looks = 0;

	out->gpu_passes(out->context, &passes);
	while (!out->gpu_passes_are_through(out->context, &passes) && now_ns(sampler) < until_ns)
		if (!rest(sampler, sleep_for(sampler, 1, n_looks++)))
			return;
}

/* Behind so many whole passes that were on. Returns how many were on since. */
static uint64_t switch_off(struct mtc_cupti_sampler *sampler, uint64_t n_before)
{
	uint64_t n_kept;
	int result;

	/* First: a pass that ends from now on was not seen as a whole. */
	sampler->out->set_on(sampler->out->context, 0);
	n_kept = count(sampler).n_whole - n_before;
	if (n_kept && wait_behind(sampler))
		wait_for_gpus(sampler);
	/* What has ended is read: then no later launch can write its ends. */
	result = sampler->api->flush(0);
	if (result != MTC_CUPTI_OK)
		atomic_store(&sampler->result, result);
	mtc_cupti_launches_record(0);
	result = sampler->api->disable(MTC_CUPTI_CONCURRENT_KERNEL);
	if (result != MTC_CUPTI_OK)
		atomic_store(&sampler->result, result);
	return n_kept;
}

/*
 * On until a pass has gone through, or none came for long. Returns 0 when it is to stop, or CUPTI failed;
 * else how many passes are kept is known.
 */
static int sample_pass(struct mtc_cupti_sampler *sampler, uint64_t *ret_n_kept)
{
	const uint64_t n_before = count(sampler).n_whole;
	const uint64_t until_ns = now_ns(sampler) + sampler->wait_ns;
	uint32_t n_looks = 0;
	int goes_on, has_come;

	if (!switch_on(sampler))
		return 0;
	do {
		goes_on = rest(sampler, sleep_for(sampler, 1, n_looks++));
		has_come = count(sampler).n_whole != n_before;
	} while (goes_on && !has_come && now_ns(sampler) < until_ns);
	if (has_come)
		wait_for_gpus(sampler);
	else if (sampler->wait_ns < MOST_WAIT_NS)
		sampler->wait_ns *= 2;
	*ret_n_kept = switch_off(sampler, n_before);
	return goes_on;
}

static int wait_for_next_pass(struct mtc_cupti_sampler *sampler)
{
	return wait_for_pass(sampler, count(sampler).n_begun + 1);
}

static void sample_all(struct mtc_cupti_sampler *sampler)
{
	const uint64_t n_before = count(sampler).n_whole;

	if (!switch_on(sampler))
		return;
	while (rest(sampler, NS_PER_S))
		continue;
	(void)switch_off(sampler, n_before);
}

static void sample_every(struct mtc_cupti_sampler *sampler)
{
	uint64_t n_passes = count(sampler).n_begun;
	uint64_t n_kept;
	int goes_on;

	if (sampler->mode.n == 1) {
		sample_all(sampler);
		return;
	}
	while (sample_pass(sampler, &n_kept)) {
		n_passes += n_kept * sampler->mode.n;
		goes_on = n_kept ? wait_for_pass(sampler, n_passes) : wait_for_next_pass(sampler);
		if (!goes_on)
			return;
		if (!n_kept)
			n_passes = count(sampler).n_begun;
	}
}

static void sample_by_time(struct mtc_cupti_sampler *sampler)
{
	uint64_t due_ns = sampler->start_ns;
	uint64_t n_kept;

	while (sample_pass(sampler, &n_kept)) {
		const uint64_t time_ns = now_ns(sampler);

		/* What was missed is not made up for. */
		due_ns += n_kept * NS_PER_S / sampler->mode.n;
		due_ns = due_ns > time_ns ? due_ns : time_ns;
		if (!wait_until(sampler, due_ns) || (!n_kept && !wait_for_next_pass(sampler)))
			return;
	}
}

static void sample_window(struct mtc_cupti_sampler *sampler)
{
	uint64_t begin_ns = sampler->start_ns + sampler->mode.start_ns;
	uint64_t n_before;

	if (!wait_until(sampler, begin_ns))
		return;
	n_before = count(sampler).n_whole;
	if (!switch_on(sampler))
		return;
	(void)wait_until(sampler, begin_ns + sampler->mode.length_ns);
	(void)switch_off(sampler, n_before);
}

static void *run(void *argument)
{
	struct mtc_cupti_sampler *sampler = argument;

	if (sampler->mode.sampling == MTC_CUPTI_EVERY)
		sample_every(sampler);
	else if (sampler->mode.sampling == MTC_CUPTI_PER_S)
		sample_by_time(sampler);
	else
		sample_window(sampler);
	return NULL;
}

static int start_thread(struct mtc_cupti_sampler *sampler)
{
	sigset_t all, before;
	int result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(&sampler->thread, NULL, run, sampler);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!result)
		(void)pthread_setname_np(sampler->thread, "moetrace-sample");
	return result;
}

struct mtc_cupti_sampler *mtc_cupti_sampler_start(const struct mtc_cupti *api,
						  const struct mtc_cupti_mode *mode,
						  const struct mt_collector_out *out)
{
	struct mtc_cupti_sampler *sampler = calloc(1, sizeof(*sampler));
	pthread_condattr_t attributes;

	if (!sampler)
		return NULL;
	sampler->api = api;
	sampler->mode = *mode;
	sampler->out = out;
	sampler->start_ns = now_ns(sampler);
	sampler->wait_ns = FIRST_WAIT_NS;
	pthread_mutex_init(&sampler->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&sampler->stopping, &attributes);
	pthread_condattr_destroy(&attributes);
	if (start_thread(sampler)) {
		pthread_cond_destroy(&sampler->stopping);
		pthread_mutex_destroy(&sampler->lock);
		free(sampler);
		return NULL;
	}
	return sampler;
}

int mtc_cupti_sampler_result(struct mtc_cupti_sampler *sampler)
{
	return atomic_load(&sampler->result);
}

int mtc_cupti_sampler_stop(struct mtc_cupti_sampler *sampler)
{
	int result;

	pthread_mutex_lock(&sampler->lock);
	sampler->is_stopping = 1;
	pthread_cond_signal(&sampler->stopping);
	pthread_mutex_unlock(&sampler->lock);
	pthread_join(sampler->thread, NULL);
	result = atomic_load(&sampler->result);
	pthread_cond_destroy(&sampler->stopping);
	pthread_mutex_destroy(&sampler->lock);
	free(sampler);
	return result;
}
