/* SPDX-License-Identifier: MIT */
/*
 * Kernels and graph launches of the GPU, by CUPTI's activity records.
 *
 * Its callbacks come on threads of others, in the middle of launches: they take a buffer from a pool
 * and put one back by an atomic operation each, and do nothing else. Everything is parsed on the
 * collector's own thread. CUPTI keeps pointers to callbacks and buffers for as long as the process
 * lives, so these are static, belong to one collector at a time and are never given back.
 *
 * Mode graph has a record a launch of a whole graph, mode kernel one a kernel; kernel:N reads kernels
 * for N tenths of a second. Graph records must be on before a graph is made, so they stay on.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectors/cupti/api.h"
#include "collectors/cupti/roles.h"
#include "collectors/registry.h"
#include "collectors/report.h"

#define N_BUFFERS    16u
#define BUFFER_BYTES (UINT64_C(512) << 10)
#define POOL_LIMIT   32u
#define MAX_DEVICES  16u
#define N_TENTHS     10u
/* Time without a record after which it is said that nothing comes. */
#define QUIET_NS     UINT64_C(1000000000)
/* What CUPTI's clock may lie outside of two looks at CLOCK_REALTIME. */
#define CLOCK_SLACK_NS 1000000u

/* What the callbacks share with the collector. */
static struct {
	_Atomic uint32_t free;   /* a bit a buffer that nobody has */
	_Atomic uint32_t filled; /* and one that waits to be parsed */
	_Atomic uint64_t n_declined;
	size_t valid_bytes[N_BUFFERS]; /* of filled ones */
	uint8_t *buffers;        /* [N_BUFFERS][BUFFER_BYTES], zero when free */
	_Atomic int is_used;     /* by a collector */
	int is_registered;       /* callbacks may be registered once a process */
	struct mtc_cupti api;
	void *subscriber;
} shared;

struct cupti {
	const struct mt_collector_out *out;
	uint32_t kind;
	uint32_t n_tenths;    /* of a second in which kernels are read; 10: always */
	uint32_t n_polls;
	uint64_t quiet_ns;    /* when the last record came, or the recording began */
	int is_enabled;
	int is_recording;
	char library_note[160];
	uint32_t devices[MAX_DEVICES]; /* by ordinal; MT_NO_DEVICE: not asked yet */
	const char *last_name;
	uint32_t last_number;
};

/* ---- callbacks ---- */

static void requested(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_n_max)
{
	uint32_t free = atomic_load_explicit(&shared.free, memory_order_acquire);

	*ret_n_max = 0;
	while (free) {
		uint32_t bit = free & (~free + 1);

		if (!atomic_compare_exchange_weak_explicit(&shared.free, &free, free & ~bit,
							   memory_order_acq_rel,
							   memory_order_acquire))
			continue;
		*ret_buffer = shared.buffers + (size_t)__builtin_ctz(bit) * BUFFER_BYTES;
		*ret_bytes = BUFFER_BYTES;
		return;
	}
	/* It then drops records, and counts them. */
	atomic_fetch_add_explicit(&shared.n_declined, 1, memory_order_relaxed);
	*ret_buffer = NULL;
	*ret_bytes = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t n_bytes,
		      size_t valid_bytes)
{
	size_t i;

	(void)context;
	(void)stream;
	(void)n_bytes;
	if (!buffer)
		return;
	i = (size_t)(buffer - shared.buffers) / BUFFER_BYTES;
	if (i >= N_BUFFERS)
		return;
	shared.valid_bytes[i] = valid_bytes < BUFFER_BYTES ? valid_bytes : BUFFER_BYTES;
	/* Pairs with parse_filled(). */
	atomic_fetch_or_explicit(&shared.filled, UINT32_C(1) << i, memory_order_release);
}

static void subscribed(void *context, int domain, uint32_t id, const void *data)
{
	(void)context;
	(void)domain;
	(void)id;
	(void)data;
}

/* ---- records ---- */

/* The GPU behind an ordinal of CUDA: asked from the driver, whose library is there already. */
static void find_gpu(uint32_t ordinal, char *ret_uuid, size_t uuid_bytes)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbols[2] = { library ? dlsym(library, "cuDeviceGet") : NULL,
			     library ? dlsym(library, "cuDeviceGetUuid_v2") : NULL };
	int (*get)(int *, int) = NULL;
	int (*get_uuid)(unsigned char *, int) = NULL;
	unsigned char b[16];
	int device;

	memcpy(&get, &symbols[0], sizeof(get));
	memcpy(&get_uuid, &symbols[1], sizeof(get_uuid));
	snprintf(ret_uuid, uuid_bytes, "cuda:%u", ordinal);
	if (!get || !get_uuid || get(&device, (int)ordinal) || get_uuid(b, device))
		return;
	snprintf(ret_uuid, uuid_bytes,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
}

static uint32_t device_of(struct cupti *cupti, uint32_t ordinal)
{
	char uuid[64];

	if (ordinal >= MAX_DEVICES)
		return MT_NO_DEVICE;
	if (cupti->devices[ordinal] == MT_NO_DEVICE) {
		find_gpu(ordinal, uuid, sizeof(uuid));
		cupti->devices[ordinal] = cupti->out->gpu(cupti->out->context, uuid, "");
	}
	return cupti->devices[ordinal];
}

/* Names are pointers that CUPTI owns; kernels come in runs of the same one. */
static uint32_t name_of(struct cupti *cupti, const char *name)
{
	uint32_t role, moves_data;

	if (!name)
		name = "(unknown)";
	if (name != cupti->last_name) {
		mtc_cupti_role(name, &role, &moves_data);
		cupti->last_number =
			cupti->out->name(cupti->out->context, name, role, moves_data);
		cupti->last_name = name;
	}
	return cupti->last_number;
}

/* 0: not stamped, or it cannot be placed. */
static int64_t to_session_ns(const struct mt_collector_out *out, uint64_t cupti_ns)
{
	return cupti_ns ? (int64_t)out->from_clock(out->context, MT_CLOCK_CUPTI, cupti_ns) : 0;
}

/* Both times on the session's clock, and what is wrong with them. */
static void set_times(const struct cupti *cupti, uint64_t start_ns, uint64_t end_ns,
		      struct mt_kernel_reading *reading)
{
	const struct mt_collector_out *out = cupti->out;

	reading->start_ns = to_session_ns(out, start_ns);
	/* Of two conversions a short length would not be left. */
	reading->end_ns = reading->start_ns && end_ns >= start_ns ?
				  reading->start_ns + (int64_t)(end_ns - start_ns) :
				  to_session_ns(out, end_ns);
	if (!start_ns)
		reading->flags |= MT_TIME_UNSTAMPED;
	else if (!end_ns)
		reading->flags |= MT_TIME_UNENDED;
	else if (end_ns < start_ns)
		reading->flags |= MT_TIME_REVERSED;
	if ((start_ns && !reading->start_ns) || (end_ns && !reading->end_ns) ||
	    reading->start_ns > (int64_t)out->now_ns(out->context) + 1000000000)
		reading->flags |= MT_TIME_OUTSIDE | MT_TIME_UNSTAMPED;
	if (!reading->start_ns)
		reading->start_ns = MT_UNKNOWN;
	if (!reading->end_ns)
		reading->end_ns = MT_UNKNOWN;
}

static void take_kernel(struct cupti *cupti, const struct mtc_cupti_kernel *kernel)
{
	struct mt_kernel_reading reading = {
		.device = device_of(cupti, kernel->device),
		.time_ns = cupti->out->now_ns(cupti->out->context),
		.name = name_of(cupti, kernel->name),
		.stream = kernel->stream,
		.correlation = kernel->correlation,
		.registers = kernel->registers,
		.static_shared_bytes = kernel->static_shared_bytes,
		.dynamic_shared_bytes = kernel->dynamic_shared_bytes,
	};

	for (int i = 0; i < 3; i++) {
		reading.grid[i] = kernel->grid[i];
		reading.block[i] = kernel->block[i];
	}
	set_times(cupti, kernel->start_ns, kernel->end_ns, &reading);
	cupti->out->kernel(cupti->out->context, &reading);
}

static void take_graph(struct cupti *cupti, const struct mtc_cupti_graph *graph)
{
	struct mt_kernel_reading reading = {
		.device = device_of(cupti, graph->device),
		.time_ns = cupti->out->now_ns(cupti->out->context),
		.is_graph = 1,
		.stream = graph->stream,
		.correlation = graph->correlation,
	};

	set_times(cupti, graph->start_ns, graph->end_ns, &reading);
	cupti->out->kernel(cupti->out->context, &reading);
}

/* Returns how many records the buffer held. */
static uint32_t parse_buffer(struct cupti *cupti, uint8_t *buffer, size_t valid_bytes)
{
	void *record = NULL;
	uint32_t n = 0;
	uint32_t kind;

	while (shared.api.next_record(buffer, valid_bytes, &record) == MTC_CUPTI_OK) {
		memcpy(&kind, record, sizeof(kind));
		n++;
		if (!cupti->is_recording)
			continue;
		if (kind == MTC_CUPTI_CONCURRENT_KERNEL)
			take_kernel(cupti, record);
		else if (kind == MTC_CUPTI_GRAPH_TRACE)
			take_graph(cupti, record);
	}
	return n;
}

static uint32_t parse_filled(struct cupti *cupti)
{
	/* Pairs with completed(). */
	uint32_t filled = atomic_exchange_explicit(&shared.filled, 0, memory_order_acquire);
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_BUFFERS; i++) {
		uint8_t *buffer = shared.buffers + i * BUFFER_BYTES;

		if (!(filled >> i & 1))
			continue;
		n += parse_buffer(cupti, buffer, shared.valid_bytes[i]);
		memset(buffer, 0, BUFFER_BYTES);
		atomic_fetch_or_explicit(&shared.free, UINT32_C(1) << i, memory_order_release);
	}
	return n;
}

/* ---- polling ---- */

/* An error is not 0: then the number is unknown from here on. */
static void count_dropped(const struct cupti *cupti)
{
	size_t n = 0;
	int result = shared.api.dropped(NULL, 0, &n);

	cupti->out->dropped(cupti->out->context,
			    result == MTC_CUPTI_OK && n <= INT64_MAX ? (int64_t)n : MT_UNKNOWN);
}

/* Kernels are read in the first tenths of each second. */
static int choose_kinds(struct cupti *cupti, int is_wanted)
{
	int result = MTC_CUPTI_OK;

	if (cupti->kind == MTC_CUPTI_GRAPH_TRACE || is_wanted == cupti->is_enabled)
		return result;
	result = is_wanted ? shared.api.enable(cupti->kind) : shared.api.disable(cupti->kind);
	if (result == MTC_CUPTI_OK)
		cupti->is_enabled = is_wanted;
	return result;
}

static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t read_timestamp(void *reader)
{
	uint64_t cupti_ns = 0;

	(void)reader;
	return shared.api.timestamp(&cupti_ns) == MTC_CUPTI_OK ? cupti_ns : 0;
}

/* Before records are parsed: then their times lie between two comparisons. */
static void compare_clock(const struct cupti *cupti)
{
	cupti->out->compare_clock(cupti->out->context, MT_NO_DEVICE, MT_CLOCK_CUPTI,
				  read_timestamp, NULL);
}

/* CUPTI's stamps are CLOCK_REALTIME, unless somebody gave it another clock. */
static int check_clock(struct mt_collector_report *report)
{
	uint64_t before_ns = realtime_ns();
	uint64_t cupti_ns = 0;
	int result = shared.api.timestamp(&cupti_ns);
	uint64_t after_ns = realtime_ns();

	if (result == MTC_CUPTI_OK && cupti_ns + CLOCK_SLACK_NS >= before_ns &&
	    cupti_ns <= after_ns + CLOCK_SLACK_NS)
		return 0;
	mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
		   "CUPTI's clock is not CLOCK_REALTIME: another part of the program gave it a "
		   "clock of its own, and its times cannot be placed");
	return -1;
}

static void say_quiet(struct cupti *cupti, uint32_t n, struct mt_collector_report *report)
{
	uint64_t now_ns = cupti->out->now_ns(cupti->out->context);

	if (n)
		cupti->quiet_ns = now_ns;
	if (now_ns - cupti->quiet_ns >= QUIET_NS && !report->reason[0])
		mtc_report(report, MT_COLLECTOR_ON,
			   "no record came for a second: nothing was launched, or %s",
			   cupti->kind == MTC_CUPTI_GRAPH_TRACE ?
				   "what was is no graph (then choose mode kernel), or it was made "
				   "before the session" :
				   "CUPTI of this version does not deliver");
	else if (n)
		snprintf(report->reason, sizeof(report->reason), "%s", cupti->library_note);
}

static void cupti_poll(void *collector, struct mt_collector_report *report)
{
	struct cupti *cupti = collector;
	int result = choose_kinds(cupti, cupti->n_polls++ % N_TENTHS < cupti->n_tenths);
	const char *text = "";

	if (check_clock(report))
		return;
	if (result == MTC_CUPTI_OK)
		result = shared.api.flush(0);
	if (result != MTC_CUPTI_OK) {
		(void)shared.api.result_string(result, &text);
		mtc_report(report, MT_COLLECTOR_FAILED, "CUPTI failed: %.150s", text);
		return;
	}
	compare_clock(cupti);
	say_quiet(cupti, parse_filled(cupti), report);
	count_dropped(cupti);
}

static void cupti_begin(void *collector)
{
	struct cupti *cupti = collector;

	/* What lies there is of before. */
	(void)shared.api.flush(0);
	(void)parse_filled(cupti);
	compare_clock(cupti);
	cupti->is_recording = 1;
	cupti->n_polls = 0;
	cupti->quiet_ns = cupti->out->now_ns(cupti->out->context);
	memset(cupti->devices, 0xff, sizeof(cupti->devices));
}

/* Disabled first: what is forced out with an end of 0 is never delivered again. */
static void cupti_rest(void *collector)
{
	struct cupti *cupti = collector;

	(void)choose_kinds(cupti, 0);
	(void)shared.api.flush(cupti->kind == MTC_CUPTI_GRAPH_TRACE ? 0 : MTC_CUPTI_FLUSH_FORCED);
	compare_clock(cupti);
	(void)parse_filled(cupti);
	count_dropped(cupti);
	cupti->is_recording = 0;
}

/* ---- life ---- */

static int set_mode(struct cupti *cupti, const char *mode, struct mt_collector_report *report)
{
	char *end = NULL;
	unsigned long n_tenths = strncmp(mode, "kernel:", 7) == 0 ? strtoul(mode + 7, &end, 10) : 0;

	cupti->n_tenths = N_TENTHS;
	cupti->kind = MTC_CUPTI_CONCURRENT_KERNEL;
	if (strcmp(mode, "graph") == 0)
		cupti->kind = MTC_CUPTI_GRAPH_TRACE;
	else if (end && end != mode + 7 && !*end && n_tenths >= 1 && n_tenths <= N_TENTHS)
		cupti->n_tenths = (uint32_t)n_tenths;
	else if (strcmp(mode, "kernel") != 0) {
		mtc_report(report, MT_COLLECTOR_FAILED,
			   "MOETRACE_CUPTI_MODE is '%.40s': set it to graph, kernel or kernel:N, N "
			   "tenths of each second",
			   mode);
		return -1;
	}
	snprintf(report->mode, sizeof(report->mode), "%s", mode);
	return 0;
}

static int make_buffers(void)
{
	if (!shared.buffers) {
		shared.buffers = aligned_alloc(4096, N_BUFFERS * BUFFER_BYTES);
		if (!shared.buffers)
			return -1;
		/* Touched now, so that no launch waits for the kernel. */
		memset(shared.buffers, 0, N_BUFFERS * BUFFER_BYTES);
		atomic_store(&shared.free, (UINT32_C(1) << N_BUFFERS) - 1);
	}
	return 0;
}

static int subscribe(struct mt_collector_report *report)
{
	const char *text = "";
	int result = shared.api.subscribe(&shared.subscriber, subscribed, NULL);

	if (result == MTC_CUPTI_OK)
		return 0;
	(void)shared.api.result_string(result, &text);
	if (result == MTC_CUPTI_MULTIPLE_SUBSCRIBERS || result == MTC_CUPTI_MAX_LIMIT_REACHED)
		mtc_report(report, MT_COLLECTOR_BUSY,
			   "another tool has CUPTI (nsys, ncu, compute-sanitizer or a profiler in "
			   "the program): end it, or record without; routing and power are not "
			   "touched by it");
	else
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED, "CUPTI does not start: %.150s", text);
	return -1;
}

static void limit_pools(struct cupti *cupti)
{
	size_t limit = POOL_LIMIT, n_bytes = sizeof(limit);
	uint8_t yes = 1;
	size_t n_yes = sizeof(yes);

	if (shared.api.set_attribute(MTC_CUPTI_POOL_LIMIT, &n_bytes, &limit) != MTC_CUPTI_OK)
		snprintf(cupti->library_note, sizeof(cupti->library_note),
			 "the memory that CUPTI takes on the GPU could not be limited");
	(void)shared.api.set_attribute(MTC_CUPTI_ZEROED_OUT, &n_yes, &yes);
}

/* Subscribed before any other call: those would take another tool's buffers from it. */
static int start(struct cupti *cupti, struct mt_collector_report *report)
{
	uint32_t version = 0;
	int result;

	if (subscribe(report))
		return -1;
	if (shared.api.version(&version) == MTC_CUPTI_OK) {
		snprintf(report->version, sizeof(report->version), "%u", version);
		cupti->out->version(cupti->out->context, "cupti", report->version);
	}
	limit_pools(cupti);
	result = shared.is_registered ? MTC_CUPTI_OK :
					shared.api.register_callbacks(requested, completed);
	shared.is_registered = 1;
	if (result == MTC_CUPTI_OK && cupti->kind == MTC_CUPTI_GRAPH_TRACE)
		result = shared.api.enable(cupti->kind);
	if (result != MTC_CUPTI_OK) {
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
			   "CUPTI refuses records of this kind (error %d)", result);
		(void)shared.api.unsubscribe(shared.subscriber);
		return -1;
	}
	if (check_clock(report)) {
		(void)shared.api.unsubscribe(shared.subscriber);
		return -1;
	}
	snprintf(report->reason, sizeof(report->reason), "%s", cupti->library_note);
	return 0;
}

static void cupti_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		       void **ret_collector, struct mt_collector_report *ret_report)
{
	struct cupti *cupti = calloc(1, sizeof(*cupti));
	char error[200];
	int none = 0;

	if (!cupti) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED, "out of memory");
		return;
	}
	cupti->out = out;
	if (set_mode(cupti, places->cupti_mode, ret_report))
		goto err_cupti;
	if (!atomic_compare_exchange_strong(&shared.is_used, &none, 1)) {
		mtc_report(ret_report, MT_COLLECTOR_BUSY,
			   "another session of this process has CUPTI");
		goto err_cupti;
	}
	if (!shared.api.library &&
	    mtc_cupti_open(places->cupti, &shared.api, error, sizeof(error))) {
		shared.api.library = NULL;
		mtc_report(ret_report, MT_COLLECTOR_ABSENT, "no CUPTI: %s", error);
		goto err_used;
	}
	if (make_buffers()) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED, "out of memory");
		goto err_used;
	}
	if (start(cupti, ret_report))
		goto err_used;
	*ret_collector = cupti;
	return;

err_used:
	atomic_store(&shared.is_used, 0);
err_cupti:
	free(cupti);
}

/* Never finalized: that ends with crashes in programs that have graphs. */
static void cupti_close(void *collector)
{
	struct cupti *cupti = collector;

	(void)choose_kinds(cupti, 0);
	if (cupti->kind == MTC_CUPTI_GRAPH_TRACE)
		(void)shared.api.disable(cupti->kind);
	(void)shared.api.flush(0);
	cupti->is_recording = 0;
	(void)parse_filled(cupti);
	(void)shared.api.unsubscribe(shared.subscriber);
	atomic_store(&shared.is_used, 0);
	free(cupti);
}

const struct mt_collector_ops mtc_cupti = {
	.name = "cupti",
	.interval_ns = 100000000,
	.is_early = 1,
	.open = cupti_open,
	.begin = cupti_begin,
	.poll = cupti_poll,
	.rest = cupti_rest,
	.close = cupti_close,
};
