/* SPDX-License-Identifier: MIT */
/*
 * Attaching a device, adding lanes, and the end of it all. Nothing here is on the hot path.
 *
 * Invariant: the lanes' words are never freed. Graphs that were captured with them may be replayed
 * after the session is gone; they then find 0, and store nothing.
 */
#include <moetrace/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/collect.h"
#include "libtrace/cuda/capture.h"

#define DEFAULT_RING_BYTES (UINT64_C(64) << 20)
#define MIN_RING_BYTES (UINT64_C(1) << 20)
#define MAX_RING_BYTES (UINT64_C(1) << 30)

static void post(struct moetrace_session *session, enum mt_message_type type, const char *text,
		 const char *text2)
{
	struct mt_message *message = mt_message_new(type, text, text2);

	if (message)
		(void)mt_session_post(session, message);
}

/* The first device is source 'cuda', the others 'cuda.1' and so on. */
void mt_cuda_post_state(struct moetrace_session *session, uint32_t index, const char *state,
			int is_bad)
{
	char name[16] = "cuda";

	if (index)
		snprintf(name, sizeof(name), "cuda.%u", index);
	post(session, MT_MESSAGE_SOURCE, name, state);
	if (is_bad)
		post(session, MT_MESSAGE_DIAGNOSTIC, state, name);
}

/* Say why, and leave a record of it. */
static int refuse(struct moetrace_session *session, int status, const char *what, const char *call,
		  int result, const struct mt_cu *cu)
{
	struct mt_cuda_set *set = atomic_load(&session->cuda);
	char text[512];

	if (call)
		snprintf(text, sizeof(text), "absent: %s: %s: error %d %s", what, call, result,
			 mt_cu_name(cu, result));
	else
		snprintf(text, sizeof(text), "absent: %s", what);
	mt_cuda_post_state(session, set ? atomic_load(&set->n_devices) : 0, text, 1);
	return mt_session_error(session, status, "cuda: %s", text + strlen("absent: "));
}

static int check_options(struct moetrace_session *session, const struct moetrace_cuda_opts *opts)
{
	uint64_t n_bytes = opts->ring_bytes;

	if (!n_bytes || (n_bytes >= MIN_RING_BYTES && n_bytes <= MAX_RING_BYTES &&
			 !(n_bytes & (n_bytes - 1))))
		return MOETRACE_OK;
	return mt_session_error(session, MOETRACE_E_INVALID,
				"cuda: ring_bytes %llu is no power of two from 1 MiB to 1 GiB",
				(unsigned long long)n_bytes);
}

/* The context, and the device it is of. */
static int find_context(struct moetrace_cuda *cuda, const struct moetrace_cuda_opts *opts)
{
	struct moetrace_session *session = cuda->session;
	const struct mt_cu *cu = cuda->cu;
	int result;

	if (!opts->ordinal) {
		result = cu->ctx_get_current(&cuda->context);
		if (result || !cuda->context)
			return refuse(session, MOETRACE_E_UNSUPPORTED,
				      "no context is current in the calling thread; make one current, "
				      "or name a device's ordinal",
				      NULL, 0, cu);
		result = cu->ctx_get_device(&cuda->device);
		return result ? refuse(session, MOETRACE_E_UNSUPPORTED, "the current context",
				       "cuCtxGetDevice", result, cu) :
				MOETRACE_OK;
	}
	result = cu->device_get(&cuda->device, *opts->ordinal > INT32_MAX ? -1 :
									     (int)*opts->ordinal);
	if (result)
		return refuse(session, MOETRACE_E_UNSUPPORTED, "there is no such device",
			      "cuDeviceGet", result, cu);
	result = cu->primary_retain(&cuda->context, cuda->device);
	cuda->has_primary = !result;
	return result ? refuse(session, MOETRACE_E_UNSUPPORTED, "the device cannot be used",
			       "cuDevicePrimaryCtxRetain", result, cu) :
			MOETRACE_OK;
}

static void record_device(struct moetrace_cuda *cuda)
{
	struct mt_message *message;
	uint8_t b[16] = { 0 };
	char uuid[48] = "";
	char state[256];

	if (!cuda->cu->device_uuid(b, cuda->device))
		snprintf(uuid, sizeof(uuid),
			 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
			 b[12], b[13], b[14], b[15]);
	mt_collect_use_gpu(cuda->session->collect, uuid);
	/* As collectors name it then, too. */
	if (!uuid[0])
		snprintf(uuid, sizeof(uuid), "cuda:%d", (int)cuda->device);
	message = mt_message_new(MT_MESSAGE_DEVICE, cuda->name[0] ? cuda->name : NULL, uuid);
	if (message) {
		message->state = cuda->index;
		(void)mt_session_post(cuda->session, message);
	}
	mt_cuda_timer_post(cuda);
	snprintf(state, sizeof(state),
		 "attached: driver %u.%u, words written by %s, ring %llu bytes, timer %llu ns%s",
		 cuda->driver_version / 1000, cuda->driver_version % 1000 / 10,
		 cuda->has_write ? "the stream" : "a kernel", (unsigned long long)cuda->ring_bytes,
		 (unsigned long long)cuda->resolution_ns,
		 cuda->store_kernel ? "" :
				      "; the driver refused the recorder's kernels, so that "
				      "moetrace_cuda_store() records nothing");
	mt_cuda_post_state(cuda->session, cuda->index, state, !cuda->store_kernel);
}

static struct moetrace_cuda *new_cuda(struct moetrace_session *session, const struct mt_cu *cu)
{
	struct moetrace_cuda *cuda = NULL;

	if (posix_memalign((void **)&cuda, MT_LINE_BYTES, sizeof(*cuda)))
		return NULL;
	memset(cuda, 0, sizeof(*cuda));
	cuda->session = session;
	cuda->cu = cu;
	pthread_mutex_init(&cuda->deliver, NULL);
	return cuda;
}

/* What handles lead to when their session is closed: every call is refused, as in a child. */
static struct moetrace_session closed;
static _Atomic(struct moetrace_cuda *) left; /* a list of them */

static void free_cuda(struct moetrace_cuda *cuda)
{
	for (uint32_t i = 0; i < atomic_load(&cuda->n_lanes); i++)
		free(cuda->lanes[i].layers);
	mt_cuda_scratch_free(cuda->scratch);
	free(cuda);
}

static void name_device(struct moetrace_cuda *cuda)
{
	int version = 0;

	if (cuda->cu->device_name(cuda->name, (int)sizeof(cuda->name), cuda->device))
		cuda->name[0] = '\0';
	cuda->name[sizeof(cuda->name) - 1] = '\0';
	(void)cuda->cu->driver_version(&version);
	cuda->driver_version = (uint32_t)version;
}

static int make_memory(struct moetrace_cuda *cuda, void *stream)
{
	const char *call;
	int result;
	int status = mt_cuda_memory_make(cuda, stream, &call, &result);

	return status ? refuse(cuda->session, status,
			       status == MOETRACE_E_NOMEM ? "the ring could not be made" :
							    "the device's memory cannot be set",
			       call, result, cuda->cu) :
			MOETRACE_OK;
}

/* With the context current. */
static int set_up(struct moetrace_cuda *cuda)
{
	const struct mt_cu *cu = cuda->cu;
	void *stream = NULL;
	int result = cu->stream_create(&stream, MT_CU_STREAM_NON_BLOCKING);
	int status;

	if (result)
		return refuse(cuda->session, MOETRACE_E_IO, "no stream", "cuStreamCreate", result, cu);
	name_device(cuda);
	status = make_memory(cuda, stream);
	if (!status) {
		status = mt_cuda_probe(cuda, stream);
		if (status)
			refuse(cuda->session, status,
			       "the driver refuses to write values in a stream, and the kernel that "
			       "would do it instead",
			       NULL, 0, cu);
	}
	if (!status && mt_cuda_drain_start(cuda))
		status = refuse(cuda->session, MOETRACE_E_NOMEM, "no thread", NULL, 0, cu);
	(void)cu->stream_destroy(stream);
	if (status) {
		mt_cuda_memory_free(cuda);
		if (cuda->words)
			(void)cu->mem_free(cuda->words);
	}
	return status;
}

/* With the set's place for the device kept, as the session's lock is held. */
static int open_device(struct moetrace_cuda *cuda, const struct moetrace_cuda_opts *opts)
{
	struct moetrace_session *session = cuda->session;
	struct mt_cuda_set *set = cuda->set;
	const struct mt_cu *cu = cuda->cu;
	void *ignored;
	int status = find_context(cuda, opts);

	if (status)
		return status;
	for (uint32_t i = 0; i < cuda->index; i++)
		if (set->devices[i]->context == cuda->context)
			return mt_session_error(session, MOETRACE_E_LIMIT,
						"cuda: the session is attached to this device already");
	status = cu->ctx_push(cuda->context);
	if (status)
		return refuse(session, MOETRACE_E_IO, "the context cannot be made current",
			      "cuCtxPushCurrent", status, cu);
	status = set_up(cuda);
	(void)cu->ctx_pop(&ignored);
	return status;
}

static int attach_locked(struct moetrace_session *session, const struct moetrace_cuda_opts *opts,
			 struct moetrace_cuda **ret_cuda)
{
	const struct mt_cu *cu;
	struct mt_cuda_set *set;
	struct moetrace_cuda *cuda;
	char error[256];
	int mode;
	int status;

	status = mt_cu_open(&cu, error, sizeof(error));
	if (status)
		return refuse(session, status, error, NULL, 0, NULL);
	set = mt_cuda_set_of(session);
	if (set && atomic_load(&set->n_devices) == MOETRACE_CUDA_MAX_DEVICES)
		return mt_session_error(session, MOETRACE_E_LIMIT,
					"cuda: the session is attached to %u devices already",
					MOETRACE_CUDA_MAX_DEVICES);
	cuda = set ? new_cuda(session, cu) : NULL;
	if (!cuda)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	cuda->set = set;
	cuda->index = atomic_load(&set->n_devices);
	cuda->ring_bytes = opts->ring_bytes ? opts->ring_bytes : DEFAULT_RING_BYTES;
	/* Only now passes can be late. */
	if (!cuda->index)
		mt_ring_pool_touch_late(&session->pool);
	mode = mt_cu_capture_relaxed(cu);
	status = open_device(cuda, opts);
	/* Else the device would keep a context that nobody uses. */
	if (status && cuda->has_primary)
		(void)cu->primary_release(cuda->device);
	mt_cu_capture_restore(cu, mode);
	if (status) {
		free_cuda(cuda);
		return status;
	}
	record_device(cuda);
	set->devices[cuda->index] = cuda;
	/* Pairs with whoever waits for devices or keeps messages back for them. */
	atomic_store(&set->n_devices, cuda->index + 1);
	*ret_cuda = cuda;
	return MOETRACE_OK;
}

int moetrace_cuda_attach(struct moetrace_session *session, const struct moetrace_cuda_opts *opts,
			 struct moetrace_cuda **ret_cuda)
{
	struct moetrace_cuda_opts none;
	struct moetrace_cuda_opts room;
	int status;

	if (ret_cuda)
		*ret_cuda = NULL;
	if (!session)
		return MOETRACE_E_INVALID;
	/* Before anything is said, which takes a lock. */
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (!ret_cuda)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: attach: there is no place for the handle");
	if (opts && !mt_abi_knows(opts->size, MT_FIRST_CUDA_OPTS))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: attach: options: size is not set; use MOETRACE_INIT()");
	if (session->settings.is_disabled)
		return mt_session_error(session, MOETRACE_E_UNSUPPORTED,
					"cuda: recording is switched off by MOETRACE_DISABLE");
	MOETRACE_INIT(&none);
	opts = opts ? MT_ABI_WIDEN(opts, &room) : &none;
	status = check_options(session, opts);
	if (status)
		return status;
	pthread_mutex_lock(&session->control);
	status = attach_locked(session, opts, ret_cuda);
	pthread_mutex_unlock(&session->control);
	return status;
}

int moetrace_cuda_query(struct moetrace_cuda *cuda, struct moetrace_cuda_status *ret_status)
{
	struct moetrace_cuda_status known;
	uint32_t n_lanes;

	if (!cuda || !ret_status || !mt_abi_knows(ret_status->size, MT_FIRST_CUDA_STATUS))
		return MOETRACE_E_INVALID;
	MOETRACE_INIT(&known);
	memcpy(known.name, cuda->name, sizeof(known.name));
	known.driver_version = cuda->driver_version;
	known.n_lanes = n_lanes = atomic_load(&cuda->n_lanes);
	known.has_stream_writes = cuda->has_write != 0;
	known.has_stream_waits = cuda->has_wait != 0;
	known.has_kernels = cuda->store_kernel != NULL;
	known.timer_resolution_ns = cuda->resolution_ns;
	known.ring_bytes = cuda->ring_bytes;
	known.ring_peak_bytes = atomic_load(&cuda->peak_bytes);
	known.delivered_passes = atomic_load(&cuda->n_delivered);
	known.lost_passes = atomic_load(&cuda->n_lost);
	known.refused_passes = atomic_load(&cuda->n_refused);
	for (uint32_t i = 0; i < n_lanes; i++)
		known.begun_passes += atomic_load(&cuda->lanes[i].n_begun);
	mt_abi_narrow(ret_status, ret_status->size, &known, sizeof(known));
	return MOETRACE_OK;
}

static int init_layers(struct moetrace_cuda_lane *lane, const struct mt_model *model)
{
	lane->n_layers = model->n_layers;
	lane->layers = calloc(model->n_layers + 1ul, sizeof(*lane->layers));
	if (!lane->layers)
		return mt_session_error(lane->cuda->session, MOETRACE_E_NOMEM, "out of memory");
	for (uint32_t i = 0; i < model->n_layers; i++) {
		/* How many slots there will be is not known yet. */
		uint32_t n_ids = lane->id_space == MOETRACE_ID_PHYSICAL ? MT_CUDA_MAX_IDS :
									  model->layers[i].n_ids;

		if (mt_cuda_layer_init(&lane->layers[i], n_ids, model->layers[i].top_k))
			return mt_session_error(lane->cuda->session, MOETRACE_E_UNSUPPORTED,
						"cuda: layer %u has %u ids; 65534 are possible", i,
						n_ids);
	}
	return MOETRACE_OK;
}

/* The side stream and the event, with the context current. */
static int make_side(struct moetrace_cuda_lane *lane)
{
	const struct mt_cu *cu = lane->cuda->cu;
	int mode = mt_cu_capture_relaxed(cu);
	void *ignored;
	int result = cu->ctx_push(lane->cuda->context);

	if (!result) {
		result = cu->stream_create(&lane->side, MT_CU_STREAM_NON_BLOCKING);
		if (!result) {
			result = cu->event_create(&lane->event, MT_CU_EVENT_DISABLE_TIMING);
			if (result)
				(void)cu->stream_destroy(lane->side);
		}
		(void)cu->ctx_pop(&ignored);
	}
	mt_cu_capture_restore(cu, mode);
	if (!result)
		return MOETRACE_OK;
	return mt_session_error(lane->cuda->session,
				result == MT_CU_OUT_OF_MEMORY ? MOETRACE_E_NOMEM : MOETRACE_E_IO,
				"cuda: no stream for copies: error %d %s", result,
				mt_cu_name(cu, result));
}

/* Whose the stream is, where the driver says so: of another context, but not of another device. */
static int is_foreign(const struct moetrace_cuda_lane *lane)
{
	const struct mt_cu *cu = lane->cuda->cu;
	void *context = NULL;
	void *ignored;
	int device = -1;

	if (cu->stream_context(lane->stream, &context) || !context ||
	    context == lane->cuda->context || cu->ctx_push(context))
		return 0;
	if (cu->ctx_get_device(&device))
		device = lane->cuda->device;
	(void)cu->ctx_pop(&ignored);
	return device != lane->cuda->device;
}

static int check_stream(struct moetrace_cuda_lane *lane)
{
	struct moetrace_session *session = lane->cuda->session;

	switch (mt_cuda_ask_stream(lane)) {
	case MT_CUDA_STREAM_CAPTURING:
		return mt_session_error(session, MOETRACE_E_STATE,
					"cuda: a lane cannot be added while its stream is captured");
	case MT_CUDA_STREAM_STRANGE:
		return mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: a lane for what is no stream, or no context is current "
					"in the calling thread");
	default:
		break;
	}
	return is_foreign(lane) ?
		       mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: a lane for a stream of another device; attach to that "
					"one, and add the lane there") :
		       MOETRACE_OK;
}

static int lane_add_locked(struct moetrace_cuda *cuda, const struct moetrace_cuda_lane_info *info,
			   struct moetrace_cuda_lane **ret_lane)
{
	struct moetrace_session *session = cuda->session;
	uint32_t number = atomic_load(&cuda->n_lanes);
	struct moetrace_cuda_lane *lane = &cuda->lanes[number];
	int status;

	if (number == MOETRACE_CUDA_MAX_LANES)
		return mt_session_error(session, MOETRACE_E_LIMIT, "cuda: %u lanes are there already",
					number);
	if (!info->model || info->model > atomic_load(&session->n_models) ||
	    info->order > MOETRACE_ORDER_UNORDERED || info->id_space > MOETRACE_ID_PHYSICAL)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: a lane for a model, an order or an id space that does "
					"not exist");
	memset(lane, 0, sizeof(*lane));
	lane->cuda = cuda;
	lane->number = number;
	lane->stream = info->stream;
	lane->model = info->model;
	lane->order = info->order;
	lane->id_space = info->id_space;
	lane->word = cuda->words + (uint64_t)number * MT_CUDA_WORD_BYTES;
	lane->weight_format = info->without_weights ? MOETRACE_WEIGHT_FORMAT_NONE :
						      (uint8_t)session->opts.weight_format;
	lane->has_margins = info->with_margins != 0;
	status = check_stream(lane);
	if (!status)
		status = init_layers(lane, session->models[info->model - 1]);
	if (!status)
		status = make_side(lane);
	if (status) {
		free(lane->layers);
		return status;
	}
	lane->tie = mt_ties_add(session->ties);
	/* Pairs with the drain thread. */
	atomic_store(&cuda->n_lanes, number + 1);
	*ret_lane = lane;
	return MOETRACE_OK;
}

int moetrace_cuda_lane_add(struct moetrace_cuda *cuda, const struct moetrace_cuda_lane_info *info,
			   struct moetrace_cuda_lane **ret_lane)
{
	struct moetrace_cuda_lane_info room;
	int status;

	if (ret_lane)
		*ret_lane = NULL;
	if (!cuda)
		return MOETRACE_E_INVALID;
	if (atomic_load(&cuda->session->forked))
		return MOETRACE_E_STATE;
	if (!info || !ret_lane)
		return mt_session_error(cuda->session, MOETRACE_E_INVALID,
					"cuda: lane: there is no description, or no place for the "
					"handle");
	if (!mt_abi_knows(info->size, MT_FIRST_CUDA_LANE_INFO))
		return mt_session_error(cuda->session, MOETRACE_E_INVALID,
					"cuda: lane: size is not set; use MOETRACE_INIT()");
	info = MT_ABI_WIDEN(info, &room);
	pthread_mutex_lock(&cuda->session->control);
	status = lane_add_locked(cuda, info, ret_lane);
	pthread_mutex_unlock(&cuda->session->control);
	return status;
}

/* Words that still name a place are cleared: nothing may write into what is freed. */
static int clear_words(struct moetrace_cuda *cuda)
{
	const struct mt_cu *cu = cuda->cu;

	for (uint32_t i = 0; i < atomic_load(&cuda->n_lanes); i++) {
		struct moetrace_cuda_lane *lane = &cuda->lanes[i];

		if (cu->memset_async(lane->word, 0, MT_CUDA_WORD_BYTES, lane->side) ||
		    cu->stream_wait(lane->side))
			return -1;
	}
	return 0;
}

/* A device that is lost, or may still write, keeps what it was given. */
static void release_device(struct moetrace_cuda *cuda)
{
	const struct mt_cu *cu = cuda->cu;
	int mode;
	void *ignored;

	if (atomic_load(&cuda->error) || mt_ring_waiting_bytes(&cuda->ring) ||
	    cu->ctx_push(cuda->context))
		return;
	mode = mt_cu_capture_relaxed(cu);
	if (!mt_cuda_memory_check(cuda) && !clear_words(cuda)) {
		for (uint32_t i = 0; i < atomic_load(&cuda->n_lanes); i++) {
			(void)cu->event_destroy(cuda->lanes[i].event);
			(void)cu->stream_destroy(cuda->lanes[i].side);
		}
		mt_cuda_memory_free(cuda);
	}
	mt_cu_capture_restore(cu, mode);
	(void)cu->ctx_pop(&ignored);
}

/* Handles stay memory, some KB, as do the words: graphs and threads may know them for longer. */
static void leave(struct moetrace_cuda *cuda)
{
	for (uint32_t i = 0; i < atomic_load(&cuda->n_lanes); i++) {
		cuda->lanes[i].is_open = 0;
		cuda->lanes[i].record = NULL;
		cuda->lanes[i].tie = NULL;
	}
	mt_cuda_scratch_free(cuda->scratch);
	cuda->scratch = NULL;
	cuda->set = NULL;
	atomic_store(&closed.forked, 1);
	cuda->session = &closed;
	cuda->left = atomic_load(&left);
	while (!atomic_compare_exchange_weak(&left, &cuda->left, cuda))
		continue;
}

void mt_cuda_release(struct moetrace_cuda *cuda, int is_forked)
{
	if (!is_forked)
		release_device(cuda);
	leave(cuda);
}
