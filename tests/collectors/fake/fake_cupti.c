/* SPDX-License-Identifier: MIT */
/*
 * A CUPTI for tests. Records that the test puts are delivered by a flush, from a thread of its own,
 * in buffers that it asks for; kinds that are not enabled are not delivered. FAKE_CUPTI in the
 * environment names what is wrong with it: busy and old_busy (another subscriber), no_clock (stamps of
 * another clock), drops (7 records a look), drops_unknown, refuses (the kind), hang (in a flush).
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
fake_cupti_put_fn fake_cupti_put;

enum { MAX_RECORDS = 20000, KERNEL_BYTES = 216, GRAPH_BYTES = 56 };

/* As large as those of a later version. */
union record {
	struct mtc_cupti_kernel kernel;
	struct mtc_cupti_graph graph;
	uint8_t bytes[KERNEL_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static union record records[MAX_RECORDS];
static size_t n_records;
static uint32_t enabled; /* a bit a kind */
static mtc_cupti_requested_fn *on_requested;
static mtc_cupti_completed_fn *on_completed;

static int is_wrong(const char *what)
{
	const char *list = getenv("FAKE_CUPTI");

	return list && strcmp(list, what) == 0;
}

static size_t record_bytes(const union record *record)
{
	return record->kernel.kind == MTC_CUPTI_GRAPH_TRACE ? GRAPH_BYTES : KERNEL_BYTES;
}

void fake_cupti_put(const char *name, uint64_t start_ns, uint64_t end_ns, uint32_t correlation)
{
	union record *record;

	pthread_mutex_lock(&lock);
	record = &records[n_records++ % MAX_RECORDS];
	memset(record, 0, sizeof(*record));
	if (name) {
		record->kernel.kind = MTC_CUPTI_CONCURRENT_KERNEL;
		record->kernel.start_ns = start_ns;
		record->kernel.end_ns = end_ns;
		record->kernel.name = name;
		record->kernel.stream = 7;
		record->kernel.correlation = correlation;
		record->kernel.registers = 32;
		for (int i = 0; i < 3; i++)
			record->kernel.grid[i] = record->kernel.block[i] = i + 1;
	} else {
		record->graph = (struct mtc_cupti_graph){ MTC_CUPTI_GRAPH_TRACE, correlation,
							  start_ns, end_ns, 0, 5, 1, 7 };
	}
	if (!(enabled >> (record->kernel.kind % 32) & 1))
		n_records--;
	pthread_mutex_unlock(&lock);
}

/* One buffer after the other, each as full as it gets. */
static void *deliver(void *argument)
{
	size_t at = 0;

	(void)argument;
	while (at < n_records) {
		uint8_t *buffer = NULL;
		size_t n_bytes = 0, n_max = 0, used = 0;

		on_requested(&buffer, &n_bytes, &n_max);
		/* Declined: what there is, is lost. */
		if (!buffer)
			break;
		while (at < n_records && used + record_bytes(&records[at]) <= n_bytes) {
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
	while (is_wrong("hang"))
		nanosleep(&for_ever, NULL);
	pthread_mutex_lock(&lock);
	if (n_records && pthread_create(&thread, NULL, deliver, NULL) == 0)
		pthread_join(thread, NULL);
	pthread_mutex_unlock(&lock);
	return MTC_CUPTI_OK;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, void **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + record_bytes(*record) : buffer;

	if (next >= buffer + valid_bytes)
		return MTC_CUPTI_MAX_LIMIT_REACHED;
	*record = next;
	return MTC_CUPTI_OK;
}

int cuptiGetVersion(uint32_t *ret_version)
{
	*ret_version = 130001;
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
	(void)callback;
	(void)context;
	*ret_subscriber = records;
	if (is_wrong("busy"))
		return MTC_CUPTI_MULTIPLE_SUBSCRIBERS;
	return is_wrong("old_busy") ? MTC_CUPTI_MAX_LIMIT_REACHED : MTC_CUPTI_OK;
}

int cuptiUnsubscribe(void *subscriber)
{
	(void)subscriber;
	return MTC_CUPTI_OK;
}

int cuptiActivityRegisterCallbacks(mtc_cupti_requested_fn *requested,
				   mtc_cupti_completed_fn *completed)
{
	on_requested = requested;
	on_completed = completed;
	return MTC_CUPTI_OK;
}

static int set_enabled(uint32_t kind, int is_enabled)
{
	if (is_wrong("refuses"))
		return 15;
	pthread_mutex_lock(&lock);
	enabled = is_enabled ? enabled | 1u << (kind % 32) : enabled & ~(1u << (kind % 32));
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
	*ret_n = is_wrong("drops") ? 7 : 0;
	return is_wrong("drops_unknown") ? 1 : MTC_CUPTI_OK;
}

int cuptiActivitySetAttribute(uint32_t attribute, size_t *value_bytes, void *value)
{
	(void)attribute;
	(void)value_bytes;
	(void)value;
	return MTC_CUPTI_OK;
}

int cuptiGetTimestamp(uint64_t *ret_ns)
{
	struct timespec now;

	clock_gettime(is_wrong("no_clock") ? CLOCK_MONOTONIC : CLOCK_REALTIME, &now);
	*ret_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return MTC_CUPTI_OK;
}
