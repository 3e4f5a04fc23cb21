/* SPDX-License-Identifier: MIT */
/*
 * Streams and events of the fake driver. A stream is a thread that does one piece of work after the
 * other: in between it can be held or delayed.
 */
#include "tests/cuda/fake/fake_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct stream *default_stream;

static bool must_wait(const struct work *work)
{
	if (work->kind == KIND_WAIT_VALUE)
		return (int64_t)(__atomic_load_n((uint64_t *)(uintptr_t)work->to,
						 __ATOMIC_ACQUIRE) -
				 work->value) < 0;
	return work->kind == KIND_WAIT_EVENT && work->event->n_reached < work->value;
}

static void do_copy_2d(const struct mt_cu_copy_2d *copy)
{
	for (size_t i = 0; i < copy->height; i++)
		memcpy((uint8_t *)(uintptr_t)copy->to.device + i * copy->to.pitch,
		       (uint8_t *)(uintptr_t)copy->from.device + i * copy->from.pitch,
		       copy->width_bytes);
}

static void do_work(struct work *work)
{
	void *to = (void *)(uintptr_t)work->to;

	switch (work->kind) {
	case KIND_CALL:
		work->run(work->argument);
		break;
	case KIND_COPY:
		memcpy(to, (void *)(uintptr_t)work->from, work->n_bytes);
		break;
	case KIND_COPY_2D:
		do_copy_2d(&work->copy);
		break;
	case KIND_SET:
		memset(to, (int)work->value, work->n_bytes);
		break;
	case KIND_WRITE:
		__atomic_store_n((uint64_t *)to, work->value, __ATOMIC_RELEASE);
		break;
	default:
		break;
	}
}

static void *stream_main(void *argument)
{
	struct stream *stream = argument;

	pthread_mutex_lock(&fake_lock);
	while (!stream->is_closing || stream->first) {
		struct work *work = stream->first;
		struct timespec pause = {0, (long)fake_delay_us * 1000};
		bool is_void;

		if (!work || fake_is_held || stream->is_held || must_wait(work)) {
			pthread_cond_wait(&fake_changed, &fake_lock);
			continue;
		}
		stream->first = work->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->is_working = true;
		is_void = fake_is_destroyed;
		pthread_mutex_unlock(&fake_lock);
		if (pause.tv_nsec)
			nanosleep(&pause, NULL);
		if (!is_void)
			do_work(work);
		pthread_mutex_lock(&fake_lock);
		stream->is_working = false;
		if (work->kind == KIND_RECORD && work->event->n_reached < work->value)
			work->event->n_reached = work->value;
		free(work);
		pthread_cond_broadcast(&fake_changed);
	}
	pthread_mutex_unlock(&fake_lock);
	return NULL;
}

struct stream *fake_stream_create(void)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		abort();
	stream->last = &stream->first;
	if (pthread_create(&stream->thread, NULL, stream_main, stream))
		abort();
	return stream;
}

struct stream *fake_stream_of(void *handle)
{
	if (handle)
		return handle;
	pthread_mutex_lock(&fake_lock);
	if (!default_stream)
		default_stream = fake_stream_create();
	pthread_mutex_unlock(&fake_lock);
	return default_stream;
}

struct work *fake_work_new(enum kind kind, uint32_t size)
{
	struct work *work = calloc(1, sizeof(*work) + size + 16);

	if (!work)
		abort();
	work->kind = kind;
	return work;
}

int fake_push(void *handle, struct work *work)
{
	struct stream *stream = fake_stream_of(handle);

	pthread_mutex_lock(&fake_lock);
	*stream->last = work;
	stream->last = &work->next;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

void fake_wait_for(struct stream *stream)
{
	pthread_mutex_lock(&fake_lock);
	while (stream->first || stream->is_working)
		pthread_cond_wait(&fake_changed, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

/* ---- the driver's functions ---- */

API int cuStreamCreate(void **stream, unsigned int flags);
API int cuStreamCreate(void **stream, unsigned int flags)
{
	(void)flags;
	CALLED("cuStreamCreate");
	*stream = fake_stream_create();
	return 0;
}

API int cuStreamDestroy_v2(void *handle);
API int cuStreamDestroy_v2(void *handle)
{
	struct stream *stream = handle;

	CALLED("cuStreamDestroy");
	pthread_mutex_lock(&fake_lock);
	stream->is_closing = true;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
	pthread_join(stream->thread, NULL);
	free(stream);
	return 0;
}

API int cuStreamSynchronize(void *stream);
API int cuStreamSynchronize(void *stream)
{
	CALLED("cuStreamSynchronize");
	fake_wait_for(fake_stream_of(stream));
	return 0;
}

API int cuStreamQuery(void *stream);
API int cuStreamQuery(void *stream)
{
	(void)stream;
	CALLED("cuStreamQuery");
	return fake_is_forbidden() ? 900 : MT_CU_NOT_READY;
}

API int cuStreamIsCapturing(void *stream, int *state);
API int cuStreamIsCapturing(void *stream, int *state)
{
	CALLED("cuStreamIsCapturing");
	*state = fake_stream_of(stream)->is_capturing;
	return 0;
}

API int cuEventCreate(void **event, unsigned int flags);
API int cuEventCreate(void **event, unsigned int flags)
{
	(void)flags;
	CALLED("cuEventCreate");
	*event = fake_memory_new(sizeof(struct event), true);
	if (*event)
		memset(*event, 0, sizeof(struct event));
	return *event ? 0 : 2;
}

API int cuEventDestroy_v2(void *event);
API int cuEventDestroy_v2(void *event)
{
	CALLED("cuEventDestroy");
	fake_memory_free(event);
	return 0;
}

API int cuEventRecord(void *event, void *stream);
API int cuEventRecord(void *event, void *stream)
{
	struct work *work;

	CALLED("cuEventRecord");
	work = fake_work_new(KIND_RECORD, 0);
	work->event = event;
	pthread_mutex_lock(&fake_lock);
	work->value = ++work->event->n_recorded;
	pthread_mutex_unlock(&fake_lock);
	return fake_push(stream, work);
}

API int cuStreamWaitEvent(void *stream, void *event, unsigned int flags);
API int cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	struct work *work;

	(void)flags;
	CALLED("cuStreamWaitEvent");
	work = fake_work_new(KIND_WAIT_EVENT, 0);
	work->event = event;
	pthread_mutex_lock(&fake_lock);
	work->value = work->event->n_recorded;
	pthread_mutex_unlock(&fake_lock);
	return fake_push(stream, work);
}

static int write_64(void *stream, uint64_t address, uint64_t value)
{
	struct work *work = fake_work_new(KIND_WRITE, 0);

	work->to = address;
	work->value = value;
	return fake_push(stream, work);
}

API int cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags);
API int cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags)
{
	(void)flags;
	CALLED("cuStreamWriteValue64");
	return write_64(stream, address, value);
}

API int cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags);
API int cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags)
{
	struct work *work;

	CALLED("cuStreamWaitValue64");
	if (flags != MT_CU_WAIT_GEQ)
		return 801;
	work = fake_work_new(KIND_WAIT_VALUE, 0);
	work->to = address;
	work->value = value;
	return fake_push(stream, work);
}
