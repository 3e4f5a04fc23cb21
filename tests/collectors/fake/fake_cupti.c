/* SPDX-License-Identifier: MIT */
/*
 * A CUPTI for tests. Records that the test puts are delivered by a flush, from a thread of its own,
 * in buffers that it asks for; kinds that are not enabled are not delivered. FAKE_CUPTI in the
 * environment names what is wrong with it: busy, busy_long and old_busy (another subscriber), no_clock
 * (stamps of another clock), drops (7 records a look), drops_unknown, refuses (the kind), hang (in a
 * flush), start_hangs, old (a version that crashes when a request for a buffer is declined),
 * no_callbacks, no_start (an error that says nothing, as without a driver), no_limit and no_register
 * (those calls), fails (every flush), keeps (it asks for all buffers that there are, and never gives
 * one back).
 */
#include "tests/collectors/fake/fake_cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectors/cupti/api.h"

/* The library's names are for everybody. */
#pragma GCC visibility push(default)

int cuptiGetVersion(uint32_t *ret_version);
int cuptiGetResultString(int result, const char **ret_text);
int cuptiSubscribe(void **ret_subscriber, mtc_cupti_callback_fn *callback, void *context);
int cuptiSubscribe_v2(void **ret_subscriber, mtc_cupti_callback_fn *callback, void *context,
		      struct mtc_cupti_subscriber *subscriber);
int cuptiUnsubscribe(void *subscriber);
int cuptiActivityRegisterCallbacks(mtc_cupti_requested_fn *requested,
				   mtc_cupti_completed_fn *completed);
int cuptiActivityEnable(uint32_t kind);
int cuptiActivityDisable(uint32_t kind);
int cuptiActivityFlushAll(uint32_t flags);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, void **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *ret_n);
int cuptiActivitySetAttribute(uint32_t attribute, size_t *value_bytes, void *value);
int cuptiGetTimestamp(uint64_t *ret_ns);
int cuptiEnableCallback(uint32_t is_on, void *subscriber, int domain, uint32_t id);
int cuptiGetGraphNodeId(void *node, uint64_t *ret_id);
const struct fake_cupti_api *fake_cupti(void);

enum { MAX_RECORDS = 20000, KERNEL_BYTES = 216, GRAPH_BYTES = 56, N_CALLBACKS = 1024,
       N_KEPT = 100 };

/* As large as those of a later version. */
union record {
	struct mtc_cupti_kernel kernel;
	struct mtc_cupti_graph graph;
	struct mtc_cupti_overhead overhead;
	uint8_t bytes[KERNEL_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static union record records[MAX_RECORDS];
static size_t n_records;
static uint64_t enabled; /* a bit a kind */
static int is_held;
static uint32_t n_held;
static uint32_t n_at_off; /* records that no flush had delivered when kernels were switched off */
static size_t n_lost; /* requests that were declined */
static int is_slow;
static uint32_t n_stalled;
static pthread_cond_t stalled = PTHREAD_COND_INITIALIZER;
static uint32_t n_flushes;
static uint32_t n_enabled[64];
static mtc_cupti_callback_fn *on_call;
static uint8_t has_callback[4][N_CALLBACKS]; /* by domain and id */
static mtc_cupti_requested_fn *on_requested;
static mtc_cupti_completed_fn *on_completed;

static int is_wrong(const char *what)
{
	const char *list = getenv("FAKE_CUPTI");

	return list && strcmp(list, what) == 0;
}

static size_t record_bytes(const union record *record)
{
	switch (record->kernel.kind) {
	case MTC_CUPTI_GRAPH_TRACE:
		return GRAPH_BYTES;
	case MTC_CUPTI_OVERHEAD:
		return sizeof(record->overhead);
	default:
		return KERNEL_BYTES;
	}
}

static void fill_kernel(struct mtc_cupti_kernel *kernel, const struct fake_cupti_record *from)
{
	kernel->start_ns = from->start_ns;
	kernel->end_ns = from->end_ns;
	kernel->name = from->name;
	kernel->stream = from->stream ? from->stream : 7;
	kernel->correlation = from->correlation;
	kernel->registers = 32;
	kernel->graph = from->graph;
	kernel->graph_node = from->node;
	for (int i = 0; i < 3; i++)
		kernel->grid[i] = kernel->block[i] = i + 1;
}

static void put(const struct fake_cupti_record *from)
{
	union record *record;

	pthread_mutex_lock(&lock);
	if (!(enabled >> from->kind & 1) || n_records == MAX_RECORDS) {
		pthread_mutex_unlock(&lock);
		return;
	}
	record = &records[n_records++];
	memset(record, 0, sizeof(*record));
	if (from->kind == MTC_CUPTI_CONCURRENT_KERNEL)
		fill_kernel(&record->kernel, from);
	else if (from->kind == MTC_CUPTI_OVERHEAD)
		record->overhead = (struct mtc_cupti_overhead){
			0, from->overhead, 0, { 0 }, from->start_ns, from->end_ns,
			from->correlation, 0, malloc(16) };
	else
		record->graph = (struct mtc_cupti_graph){ 0, from->correlation, from->start_ns,
							  from->end_ns, 0, 5, 1,
							  from->stream ? from->stream : 7 };
	record->kernel.kind = from->kind;
	pthread_mutex_unlock(&lock);
}

/* ---- calls of the program ---- */

static mtc_cupti_callback_fn *called_for(int domain, uint32_t id)
{
	mtc_cupti_callback_fn *found;

	pthread_mutex_lock(&lock);
	found = has_callback[domain][id] ? on_call : NULL;
	pthread_mutex_unlock(&lock);
	return found;
}

static void launch_any(int is_graph, void *executable, void *stream, uint32_t correlation)
{
	const struct mtc_cupti_launch_graph of_graph = { executable, stream };
	const struct mtc_cupti_launch_kernel of_kernel = { .stream = stream };
	const uint32_t id = is_graph ? MTC_CUPTI_LAUNCH_GRAPH : MTC_CUPTI_LAUNCH_KERNEL;
	mtc_cupti_callback_fn *call = called_for(MTC_CUPTI_DOMAIN_DRIVER, id);
	struct mtc_cupti_call what = { .correlation = correlation };

	what.parameters = is_graph ? (const void *)&of_graph : &of_kernel;
	for (what.is_exit = 0; call && what.is_exit < 2; what.is_exit++)
		call(NULL, MTC_CUPTI_DOMAIN_DRIVER, id, &what);
}

static void launch(int is_graph, void *stream, uint32_t correlation)
{
	launch_any(is_graph, NULL, stream, correlation);
}

static void launch_graph(void *executable, void *stream, uint32_t correlation)
{
	launch_any(1, executable, stream, correlation);
}

static void node(uint64_t made, uint64_t original)
{
	const uint32_t id = original ? MTC_CUPTI_NODE_CLONED : MTC_CUPTI_NODE_CREATED;
	mtc_cupti_callback_fn *call = called_for(MTC_CUPTI_DOMAIN_RESOURCE, id);
	const struct mtc_cupti_node what = { .node = (void *)(uintptr_t)made,
					     .original_node = (void *)(uintptr_t)original };
	const struct mtc_cupti_resource resource = { .description = &what };

	if (call)
		call(NULL, MTC_CUPTI_DOMAIN_RESOURCE, id, &resource);
}

static uint32_t times_enabled(uint32_t kind)
{
	uint32_t n;

	pthread_mutex_lock(&lock);
	n = n_enabled[kind % 64];
	pthread_mutex_unlock(&lock);
	return n;
}

static int is_enabled(uint32_t kind)
{
	int is_on;

	pthread_mutex_lock(&lock);
	is_on = enabled >> kind & 1;
	pthread_mutex_unlock(&lock);
	return is_on;
}

static uint32_t times_flushed(void)
{
	uint32_t n;

	pthread_mutex_lock(&lock);
	n = n_flushes;
	pthread_mutex_unlock(&lock);
	return n;
}

static uint32_t n_waiting(void)
{
	uint32_t n;

	pthread_mutex_lock(&lock);
	n = (uint32_t)n_records;
	pthread_mutex_unlock(&lock);
	return n;
}

static uint32_t n_left(void)
{
	uint32_t n;

	pthread_mutex_lock(&lock);
	n = n_at_off;
	pthread_mutex_unlock(&lock);
	return n;
}

static void stall(int is_on)
{
	pthread_mutex_lock(&lock);
	is_slow = is_on;
	n_stalled = 0;
	pthread_cond_broadcast(&stalled);
	pthread_mutex_unlock(&lock);
}

static void wait_for_stalled(void)
{
	pthread_mutex_lock(&lock);
	while (!n_stalled)
		pthread_cond_wait(&stalled, &lock);
	pthread_mutex_unlock(&lock);
}

static void hold(int is_on)
{
	pthread_mutex_lock(&lock);
	is_held = is_on;
	pthread_mutex_unlock(&lock);
}

static void hold_some(uint32_t n)
{
	pthread_mutex_lock(&lock);
	n_held = n;
	pthread_mutex_unlock(&lock);
}

const struct fake_cupti_api *fake_cupti(void)
{
	static const struct fake_cupti_api api = { put,		  launch,     launch_graph,  node,
						   times_enabled, is_enabled, times_flushed, n_waiting,
						   n_left, hold, hold_some, stall, wait_for_stalled };

	return &api;
}

int cuptiEnableCallback(uint32_t is_on, void *subscriber, int domain, uint32_t id)
{
	(void)subscriber;
	if (is_wrong("no_callbacks") || domain > 3 || id >= N_CALLBACKS)
		return 1;
	pthread_mutex_lock(&lock);
	has_callback[domain][id] = is_on != 0;
	pthread_mutex_unlock(&lock);
	return MTC_CUPTI_OK;
}

int cuptiGetGraphNodeId(void *made, uint64_t *ret_id)
{
	*ret_id = (uint64_t)(uintptr_t)made;
	return MTC_CUPTI_OK;
}

/* One buffer after the other, each as full as it gets. */
static void *deliver(void *argument)
{
	size_t at = 0;

	(void)argument;
	for (int i = 0; i < N_KEPT && is_wrong("keeps"); i++) {
		uint8_t *buffer = NULL;
		size_t n_bytes = 0, n_max = 0;

		on_requested(&buffer, &n_bytes, &n_max);
		n_lost += !buffer;
	}
	while (at < n_records && !is_wrong("keeps")) {
		uint8_t *buffer = NULL;
		size_t n_bytes = 0, n_max = 0, used = 0;

		on_requested(&buffer, &n_bytes, &n_max);
		if (!buffer && is_wrong("old"))
			abort();
		/* Declined: what there is, is lost. */
		if (!buffer)
			break;
		/* One record a buffer runs out of buffers soon. */
		while (at < n_records && used + record_bytes(&records[at]) <= n_bytes &&
		       !(used && is_wrong("old"))) {
			memcpy(buffer + used, &records[at], record_bytes(&records[at]));
			used += record_bytes(&records[at]);
			at++;
		}
		on_completed(NULL, 0, buffer, n_bytes, used);
	}
	n_records = 0;
	return NULL;
}

int cuptiActivityFlushAll(uint32_t flags)
{
	const struct timespec for_ever = { 1000000, 0 };
	pthread_t thread;

	(void)flags;
	if (is_wrong("fails"))
		return 999;
	while (is_wrong("hang"))
		nanosleep(&for_ever, NULL);
	pthread_mutex_lock(&lock);
	n_stalled += (uint32_t)is_slow;
	pthread_cond_broadcast(&stalled);
	while (is_slow)
		pthread_cond_wait(&stalled, &lock);
	n_flushes++;
	if (n_held)
		n_held--;
	else if (n_records && !is_held && pthread_create(&thread, NULL, deliver, NULL) == 0)
		pthread_join(thread, NULL);
	pthread_mutex_unlock(&lock);
	return MTC_CUPTI_OK;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, void **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + record_bytes(*record) : buffer;

	if (next >= buffer + valid_bytes)
		return MTC_CUPTI_MAX_LIMIT_REACHED;
	if (*record && is_wrong("unreadable"))
		return 1;
	*record = next;
	return MTC_CUPTI_OK;
}

int cuptiGetVersion(uint32_t *ret_version)
{
	*ret_version = is_wrong("old") ? 26 : 130001;
	return MTC_CUPTI_OK;
}

int cuptiGetResultString(int result, const char **ret_text)
{
	(void)result;
	*ret_text = "CUPTI_ERROR_OF_A_TEST";
	return MTC_CUPTI_OK;
}

int cuptiSubscribe(void **ret_subscriber, mtc_cupti_callback_fn *callback, void *context)
{
	const struct timespec for_ever = { 1000000, 0 };

	(void)context;
	*ret_subscriber = records;
	while (is_wrong("start_hangs"))
		nanosleep(&for_ever, NULL);
	if (is_wrong("busy") || is_wrong("busy_long"))
		return MTC_CUPTI_MULTIPLE_SUBSCRIBERS;
	if (is_wrong("old_busy"))
		return MTC_CUPTI_MAX_LIMIT_REACHED;
	if (is_wrong("no_start"))
		return 999;
	pthread_mutex_lock(&lock);
	on_call = callback;
	pthread_mutex_unlock(&lock);
	return MTC_CUPTI_OK;
}

/* It tells who has it; where its name is as long as the room, without an end. */
int cuptiSubscribe_v2(void **ret_subscriber, mtc_cupti_callback_fn *callback, void *context,
		      struct mtc_cupti_subscriber *subscriber)
{
	int result = cuptiSubscribe(ret_subscriber, callback, context);

	if (subscriber->struct_bytes != sizeof(*subscriber))
		return 1;
	if (result == MTC_CUPTI_MULTIPLE_SUBSCRIBERS && is_wrong("busy"))
		strncpy(subscriber->ret_other, "a tool of the test's", subscriber->other_bytes);
	else if (result == MTC_CUPTI_MULTIPLE_SUBSCRIBERS)
		memset(subscriber->ret_other, 'x', subscriber->other_bytes);
	return result;
}

int cuptiUnsubscribe(void *subscriber)
{
	(void)subscriber;
	pthread_mutex_lock(&lock);
	on_call = NULL;
	memset(has_callback, 0, sizeof(has_callback));
	pthread_mutex_unlock(&lock);
	return MTC_CUPTI_OK;
}

int cuptiActivityRegisterCallbacks(mtc_cupti_requested_fn *requested,
				   mtc_cupti_completed_fn *completed)
{
	on_requested = requested;
	on_completed = completed;
	return is_wrong("no_register") ? 999 : MTC_CUPTI_OK;
}

static int set_enabled(uint32_t kind, int is_on)
{
	if (is_wrong("refuses") || kind >= 64)
		return 15;
	pthread_mutex_lock(&lock);
	enabled = is_on ? enabled | UINT64_C(1) << kind : enabled & ~(UINT64_C(1) << kind);
	n_enabled[kind] += is_on != 0;
	if (kind == MTC_CUPTI_CONCURRENT_KERNEL && !is_on)
		n_at_off = (uint32_t)n_records;
	pthread_mutex_unlock(&lock);
	return MTC_CUPTI_OK;
}

int cuptiActivityEnable(uint32_t kind)
{
	return set_enabled(kind, 1);
}

int cuptiActivityDisable(uint32_t kind)
{
	return set_enabled(kind, 0);
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *ret_n)
{
	(void)context;
	(void)stream;
	pthread_mutex_lock(&lock);
	*ret_n = is_wrong("drops") ? 7 : n_lost;
	n_lost = 0;
	pthread_mutex_unlock(&lock);
	return is_wrong("drops_unknown") ? 1 : MTC_CUPTI_OK;
}

int cuptiActivitySetAttribute(uint32_t attribute, size_t *value_bytes, void *value)
{
	(void)attribute;
	(void)value_bytes;
	(void)value;
	return is_wrong("no_limit") ? 999 : MTC_CUPTI_OK;
}

int cuptiGetTimestamp(uint64_t *ret_ns)
{
	struct timespec now;

	clock_gettime(is_wrong("no_clock") ? CLOCK_MONOTONIC : CLOCK_REALTIME, &now);
	*ret_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return MTC_CUPTI_OK;
}
