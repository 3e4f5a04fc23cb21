/* SPDX-License-Identifier: MIT */
/*
 * Kernels and graph launches of the GPU, by CUPTI's activity records: what is switched on and off, and
 * when. Everything that it delivers is parsed on the collector's own thread.
 *
 * CUPTI has one subscriber a process and keeps pointers to callbacks for as long as it lives; so what
 * those touch is static (buffers.c, launches.c), belongs to one collector at a time, and is never
 * freed. Graph records must be on before a graph is made, so they stay on.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectors/cupti/api.h"
#include "collectors/cupti/buffers.h"
#include "collectors/cupti/graphs.h"
#include "collectors/cupti/launches.h"
#include "collectors/cupti/mode.h"
#include "collectors/cupti/records.h"
#include "collectors/cupti/roles.h"
#include "collectors/cupti/sampler.h"
#include "collectors/cupti/serial.h"
#include "collectors/registry.h"
#include "collectors/report.h"
#include "common/library.h"

#define DRIVER	     "libcuda.so.1"
#define POOL_LIMIT   32u
/* Time without a record after which it is said that nothing comes. */
#define QUIET_NS     UINT64_C(1000000000)
/* How long the end of a recording waits for the last launch, and how often it looks at least. */
#define LAST_NS	       UINT64_C(200000000)
#define LAST_LOOKS     20
#define BETWEEN_LAST_NS 2000000
/* What CUPTI's clock may lie outside of two looks at CLOCK_REALTIME. */
#define CLOCK_SLACK_NS 1000000u
#define CLOCK_TRIES    3
#define MODES                                                                       \
	"off, graph, eager, kernel, kernel:every=N (1 to 1000000), kernel:per_s=N " \
	"(1 to 100) or kernel:window=START+LENGTH (seconds)"

/* What there is once a process. */
static struct {
	_Atomic int is_used;     /* by a collector */
	int is_registered;       /* callbacks may be registered once a process */
	struct mtc_cupti api;
	void *subscriber;
} shared;

struct cupti {
	const struct mt_collector_out *out;
	struct mtc_cupti_mode mode;
	const char *kernel_roles;
	struct mtc_cupti_records records;
	struct mtc_cupti_sampler *sampler; /* NULL: kernels are not sampled, or nothing is recorded */
	uint64_t quiet_ns;    /* when the last record came, or the recording began */
	int has_kernels;      /* records of kernels are on, and no sampler switches them */
	int is_recording;
	struct mtc_retry retry;
	char library_note[160];
};

/* Kernels of some passes, or of some moments, by a thread that switches their records. */
static int is_sampled(const struct cupti *cupti)
{
	return cupti->mode.has_kernels && cupti->mode.sampling != MTC_CUPTI_ALWAYS;
}

/* ---- polling ---- */

static uint32_t take_filled(struct cupti *cupti)
{
	cupti->records.n_taken = 0;
	mtc_cupti_buffers_take(mtc_cupti_records_take, &cupti->records);
	return cupti->records.n_taken;
}

/* An error is not 0: then the number is unknown from here on. */
static void count_dropped(const struct cupti *cupti)
{
	size_t n = 0;
	int result = shared.api.dropped(NULL, 0, &n);
	int is_known = result == MTC_CUPTI_OK && n <= INT64_MAX && !mtc_cupti_buffers_overflowed();

	cupti->out->dropped(cupti->out->context, is_known ? (int64_t)n : MT_UNKNOWN);
}

static int set_kernels(struct cupti *cupti, int is_on)
{
	int result = MTC_CUPTI_OK;

	if (is_on == cupti->has_kernels)
		return result;
	if (!is_on)
		mtc_cupti_launches_record(0);
	result = is_on ? shared.api.enable(MTC_CUPTI_CONCURRENT_KERNEL) :
			 shared.api.disable(MTC_CUPTI_CONCURRENT_KERNEL);
	if (result == MTC_CUPTI_OK)
		cupti->has_kernels = is_on;
	mtc_cupti_launches_record(cupti->has_kernels);
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

/* Whether one reading lies between two of CLOCK_REALTIME, which may be set in just that moment. */
static int has_realtime(void)
{
	uint64_t before_ns = realtime_ns();
	uint64_t cupti_ns = 0;
	int result = shared.api.timestamp(&cupti_ns);
	uint64_t after_ns = realtime_ns();

	return result == MTC_CUPTI_OK && cupti_ns + CLOCK_SLACK_NS >= before_ns &&
	       cupti_ns <= after_ns + CLOCK_SLACK_NS;
}

/* CUPTI's stamps are CLOCK_REALTIME, unless somebody gave it another clock. */
static int check_clock(struct mt_collector_report *report)
{
	for (int i = 0; i < CLOCK_TRIES; i++)
		if (has_realtime())
			return 0;
	mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
		   "CUPTI's clock is not CLOCK_REALTIME: another part of the program gave it a "
		   "clock of its own, and its times cannot be placed; record without that profiler");
	return -1;
}

static const char *why_quiet(const struct cupti *cupti)
{
	if (!cupti->mode.has_kernels)
		return "what was is no graph (then choose mode kernel), or it was made before the "
		       "session";
	return cupti->mode.sampling == MTC_CUPTI_ALWAYS ?
		       "CUPTI of this version does not deliver" :
		       "it was in no pass that a sample could take";
}

static void say_quiet(struct cupti *cupti, uint32_t n, struct mt_collector_report *report)
{
	uint64_t now_ns = cupti->out->now_ns(cupti->out->context);

	if (n)
		cupti->quiet_ns = now_ns;
	/* A window says itself when nothing is to come. */
	if (now_ns - cupti->quiet_ns >= QUIET_NS && !report->reason[0] &&
	    cupti->mode.sampling != MTC_CUPTI_WINDOW)
		mtc_report(report, MT_COLLECTOR_ON,
			   "no record came for a second: nothing was launched, or %s",
			   why_quiet(cupti));
	else if (n)
		snprintf(report->reason, sizeof(report->reason), "%s", cupti->library_note);
}

/* One failure is no end; what came until then is there. */
static void fail(struct cupti *cupti, int result, struct mt_collector_report *report)
{
	const char *text = "";

	(void)shared.api.result_string(result, &text);
	cupti->out->dropped(cupti->out->context, MT_UNKNOWN);
	if (mtc_retry_failed(&cupti->retry))
		mtc_report(report, MT_COLLECTOR_FAILED,
			   "CUPTI failed %u times in a row: %.80s (error %d); end what else profiles the "
			   "program, or try another version of CUPTI with MOETRACE_CUPTI",
			   MTC_MAX_FAILED, text, result);
	else
		mtc_report(report, MT_COLLECTOR_ON,
			   "CUPTI failed: %.80s (error %d); how many records were lost is not known; if "
			   "that goes on, end what else profiles the program",
			   text, result);
}

static void cupti_poll(void *collector, struct mt_collector_report *report)
{
	struct cupti *cupti = collector;
	int result = MTC_CUPTI_OK;

	if (!mtc_retry_is_due(&cupti->retry) || check_clock(report))
		return;
	if (cupti->is_recording && is_sampled(cupti) && !cupti->sampler) {
		mtc_report(report, MT_COLLECTOR_FAILED,
			   "no thread to take samples with: let the program have more memory and threads, "
			   "and start it again");
		return;
	}
	if (cupti->is_recording && cupti->sampler)
		result = mtc_cupti_sampler_result(cupti->sampler);
	else if (cupti->is_recording && cupti->mode.has_kernels)
		result = set_kernels(cupti, 1);
	if (result == MTC_CUPTI_OK)
		result = shared.api.flush(0);
	if (result != MTC_CUPTI_OK)
		return fail(cupti, result, report);
	mtc_retry_worked(&cupti->retry);
	compare_clock(cupti);
	say_quiet(cupti, take_filled(cupti), report);
	mtc_cupti_graphs_settle(cupti->records.graphs, 0);
	mtc_cupti_serial_settle(cupti->records.serial, 0);
	count_dropped(cupti);
}

static void cupti_begin(void *collector)
{
	struct cupti *cupti = collector;

	/* What lies there is of before. */
	cupti->records.is_wanted = 0;
	(void)shared.api.flush(0);
	(void)take_filled(cupti);
	mtc_cupti_launches_forget();
	cupti->records.last_correlation = 0;
	compare_clock(cupti);
	cupti->is_recording = cupti->records.is_wanted = 1;
	cupti->quiet_ns = cupti->out->now_ns(cupti->out->context);
	mtc_cupti_records_begin(&cupti->records);
	if (is_sampled(cupti))
		cupti->sampler = mtc_cupti_sampler_start(&shared.api, &cupti->mode, cupti->out);
}

static void stop_sampler(struct cupti *cupti)
{
	if (cupti->sampler)
		(void)mtc_cupti_sampler_stop(cupti->sampler);
	cupti->sampler = NULL;
}

/* Until what was launched last has been delivered; returns 0 where that takes too long. */
static int wait_for_last(struct cupti *cupti)
{
	const uint32_t last = mtc_cupti_launches_last(cupti->mode.has_kernels);
	const uint64_t until_ns = cupti->out->now_ns(cupti->out->context) + LAST_NS;
	const struct timespec pause = { 0, BETWEEN_LAST_NS };

	for (int i = 0; last; i++) {
		(void)shared.api.flush(0);
		compare_clock(cupti);
		(void)take_filled(cupti);
		if ((int32_t)(cupti->records.last_correlation - last) >= 0)
			break;
		if (i >= LAST_LOOKS && cupti->out->now_ns(cupti->out->context) > until_ns)
			return 0;
		nanosleep(&pause, NULL);
	}
	return 1;
}

/*
 * A while for what runs still, since what was read before records go off keeps its ends; off before the
 * rest is forced out with an end of 0, as that is never delivered again. Launches of whole graphs are
 * not forced out, as their records stay on: those that come too late are lost.
 */
static void cupti_rest(void *collector)
{
	struct cupti *cupti = collector;

	stop_sampler(cupti);
	if (!wait_for_last(cupti) && !cupti->mode.has_kernels)
		cupti->out->dropped(cupti->out->context, MT_UNKNOWN);
	(void)set_kernels(cupti, 0);
	(void)shared.api.flush(cupti->mode.has_kernels ? MTC_CUPTI_FLUSH_FORCED : 0);
	compare_clock(cupti);
	(void)take_filled(cupti);
	mtc_cupti_graphs_settle(cupti->records.graphs, 1);
	mtc_cupti_serial_settle(cupti->records.serial, 1);
	count_dropped(cupti);
	cupti->is_recording = cupti->records.is_wanted = 0;
}

/* ---- life ---- */

static int is_mode(const char *text)
{
	struct mtc_cupti_mode mode;

	return mtc_cupti_mode_parse(text, &mode) == 0;
}

static int check(const struct mt_collector_places *places, char *ret_why, size_t why_bytes)
{
	char wrong[60];

	if (!is_mode(places->cupti_mode)) {
		snprintf(ret_why, why_bytes, "MOETRACE_CUPTI_MODE is '%.40s': set it to " MODES,
			 places->cupti_mode);
		return 0;
	}
	if (mtc_cupti_roles_check(places->kernel_roles, wrong, sizeof(wrong)) == 0)
		return 1;
	snprintf(ret_why, why_bytes,
		 "MOETRACE_KERNEL_ROLES has '%s': write PATTERN=ROLE, with commas between entries and no "
		 "blanks around them; "
		 "roles are gate, topk, align, dispatch, experts, combine, shared, attention, norm, "
		 "embed, head, collective, copy and other",
		 wrong);
	return 0;
}

/* Returns whether anything is to be recorded. The words were checked when the session was opened. */
static int set_mode(struct cupti *cupti, const char *mode, struct mt_collector_report *report)
{
	(void)mtc_cupti_mode_parse(mode, &cupti->mode);
	snprintf(report->mode, sizeof(report->mode), "%s", mode);
	if (cupti->mode.is_off)
		mtc_report(report, MT_COLLECTOR_ABSENT, "mode off was asked for");
	return !cupti->mode.is_off;
}

/* Asked only where CUPTI does not start, since it says no more than that it failed. */
static int has_driver(void)
{
	char why[160];

	return mt_library_look(DRIVER, why, sizeof(why)) != MT_LIBRARY_MISSING;
}

/* CUPTI opens the driver's library by itself, without a look at it. */
static int is_driver_wrong(struct mt_collector_report *report)
{
	char why[160];

	if (mt_library_look(DRIVER, why, sizeof(why)) != MT_LIBRARY_WRONG)
		return 0;
	mtc_report(report, MT_COLLECTOR_ABSENT,
		   "no driver: CUPTI is there, but %s; install the GPU's driver again, in a "
		   "container have the host's let in",
		   why);
	return 1;
}

/* Who has CUPTI, as far as it says; else who that may be. */
static void find_other(char *ret_other, size_t other_bytes)
{
	struct mtc_cupti_subscriber subscriber = { sizeof(subscriber), "moetrace", ret_other,
						   other_bytes };
	void *handle;

	ret_other[0] = '\0';
	/* It is asked by the call that has just been refused: should that work now, it is taken back. */
	if (shared.api.subscribe_named &&
	    shared.api.subscribe_named(&handle, mtc_cupti_called, NULL, &subscriber) == MTC_CUPTI_OK)
		(void)shared.api.unsubscribe(handle);
	ret_other[other_bytes - 1] = '\0';
	if (!ret_other[0])
		snprintf(ret_other, other_bytes, "nsys, ncu, compute-sanitizer or a profiler in the program");
}

static int subscribe(struct mt_collector_report *report)
{
	const char *text = "";
	char other[80];
	int result;

	if (is_driver_wrong(report))
		return -1;
	result = shared.api.subscribe(&shared.subscriber, mtc_cupti_called, NULL);
	if (result == MTC_CUPTI_OK)
		return 0;
	(void)shared.api.result_string(result, &text);
	if (result == MTC_CUPTI_MULTIPLE_SUBSCRIBERS || result == MTC_CUPTI_MAX_LIMIT_REACHED) {
		find_other(other, sizeof(other));
		mtc_report(report, MT_COLLECTOR_BUSY,
			   "another tool has CUPTI (%s): end it, or record without; routing and power "
			   "are not touched by it",
			   other);
	} else if (!has_driver()) {
		mtc_report(report, MT_COLLECTOR_ABSENT,
			   "no driver: CUPTI is there, libcuda.so.1 is not; install the GPU's driver, "
			   "in a container have the host's let in");
	} else {
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
			   "CUPTI does not start: %.80s (error %d); its version has to be that of the "
			   "driver or an older one: name another with MOETRACE_CUPTI",
			   text, result);
	}
	return -1;
}

static void limit_pools(struct cupti *cupti)
{
	size_t limit = POOL_LIMIT, n_bytes = sizeof(limit);
	uint8_t yes = 1;
	size_t n_yes = sizeof(yes);

	if (shared.api.set_attribute(MTC_CUPTI_POOL_LIMIT, &n_bytes, &limit) != MTC_CUPTI_OK)
		snprintf(cupti->library_note, sizeof(cupti->library_note),
			 "the memory that CUPTI takes on the GPU could not be limited; another version of "
			 "it, named with MOETRACE_CUPTI, may let it be");
	(void)shared.api.set_attribute(MTC_CUPTI_ZEROED_OUT, &n_yes, &yes);
}

/* Launches, and while graphs are made their nodes. Without them rows have no pass and no layer. */
static void enable_callbacks(struct cupti *cupti)
{
	static const uint32_t graphs[] = { MTC_CUPTI_LAUNCH_GRAPH, MTC_CUPTI_LAUNCH_GRAPH_PTSZ };
	static const uint32_t kernels[] = {
		MTC_CUPTI_LAUNCH_KERNEL,      MTC_CUPTI_LAUNCH_KERNEL_PTSZ,
		MTC_CUPTI_LAUNCH_COOPERATIVE, MTC_CUPTI_LAUNCH_COOPERATIVE_PTSZ,
		MTC_CUPTI_LAUNCH_KERNEL_EX,   MTC_CUPTI_LAUNCH_KERNEL_EX_PTSZ,
	};
	static const uint32_t nodes[] = { MTC_CUPTI_NODE_CREATED, MTC_CUPTI_NODE_CLONED };
	int result = MTC_CUPTI_OK;

	for (size_t i = 0; i < sizeof(graphs) / sizeof(graphs[0]); i++)
		result |= shared.api.enable_callback(1, shared.subscriber, MTC_CUPTI_DOMAIN_DRIVER,
						     graphs[i]);
	for (size_t i = 0; cupti->mode.has_kernels && i < sizeof(kernels) / sizeof(kernels[0]); i++)
		result |= shared.api.enable_callback(1, shared.subscriber, MTC_CUPTI_DOMAIN_DRIVER,
						     kernels[i]);
	for (size_t i = 0; cupti->mode.has_kernels && i < sizeof(nodes) / sizeof(nodes[0]); i++)
		result |= shared.api.enable_callback(1, shared.subscriber,
						     MTC_CUPTI_DOMAIN_RESOURCE, nodes[i]);
	if (result != MTC_CUPTI_OK)
		snprintf(cupti->library_note, sizeof(cupti->library_note),
			 "CUPTI refuses to tell of launches: kernels may lack pass and layer; end what "
			 "else profiles the program");
	cupti->out->ask(cupti->out->context, 1);
	mtc_cupti_launches_use(cupti->out);
}

static int enable_kinds(const struct cupti *cupti)
{
	int result = MTC_CUPTI_OK;

	if (cupti->mode.has_graphs)
		result = shared.api.enable(MTC_CUPTI_GRAPH_TRACE);
	/* Whether kernels would be refused is known only by trying. */
	if (result == MTC_CUPTI_OK && cupti->mode.has_kernels)
		result = shared.api.enable(MTC_CUPTI_CONCURRENT_KERNEL);
	if (result == MTC_CUPTI_OK && cupti->mode.has_kernels)
		result = shared.api.disable(MTC_CUPTI_CONCURRENT_KERNEL);
	/* Their absence is no loss. */
	if (result == MTC_CUPTI_OK)
		(void)shared.api.enable(MTC_CUPTI_OVERHEAD);
	return result;
}

/* Subscribed before any other call: those would take another tool's buffers from it. */
static int start(struct cupti *cupti, struct mt_collector_report *report)
{
	int result;

	if (subscribe(report))
		return -1;
	snprintf(report->version, sizeof(report->version), "%u", shared.api.version_number);
	cupti->out->version(cupti->out->context, "cupti", report->version);
	limit_pools(cupti);
	result = shared.is_registered ?
			 MTC_CUPTI_OK :
			 shared.api.register_callbacks(mtc_cupti_buffer_requested,
						       mtc_cupti_buffer_completed);
	shared.is_registered = 1;
	if (result == MTC_CUPTI_OK)
		result = enable_kinds(cupti);
	if (result != MTC_CUPTI_OK) {
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
			   "CUPTI refuses records of this kind (error %d): choose another mode, such as "
			   "graph or kernel, or another version with MOETRACE_CUPTI",
			   result);
		(void)shared.api.unsubscribe(shared.subscriber);
		return -1;
	}
	if (check_clock(report)) {
		(void)shared.api.unsubscribe(shared.subscriber);
		return -1;
	}
	enable_callbacks(cupti);
	snprintf(report->reason, sizeof(report->reason), "%s", cupti->library_note);
	return 0;
}

/* What CUPTI keeps pointers to, and the collector's own. */
static int make_memory(struct cupti *cupti)
{
	if (mtc_cupti_buffers_make(shared.api.version_number >= MTC_CUPTI_MAY_DECLINE) ||
	    mtc_cupti_launches_make(&shared.api))
		return -1;
	cupti->records.api = &shared.api;
	cupti->records.out = cupti->out;
	cupti->records.is_sampled = is_sampled(cupti);
	cupti->records.serial = mtc_cupti_serial_make(cupti->out);
	cupti->records.graphs = mtc_cupti_graphs_make(cupti->out, cupti->records.serial,
							 cupti->kernel_roles);
	mtc_cupti_records_begin(&cupti->records);
	return cupti->records.graphs && cupti->records.serial ? 0 : -1;
}

static void cupti_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		       void **ret_collector, struct mt_collector_report *ret_report)
{
	struct cupti *cupti = calloc(1, sizeof(*cupti));
	char error[200];
	int none = 0;

	if (!cupti) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED,
			   "out of memory: let the program have more, and start it again");
		return;
	}
	cupti->out = out;
	cupti->kernel_roles = places->kernel_roles;
	if (!set_mode(cupti, places->cupti_mode, ret_report))
		goto err_cupti;
	if (!atomic_compare_exchange_strong(&shared.is_used, &none, 1)) {
		mtc_report(ret_report, MT_COLLECTOR_BUSY,
			   "another session of this process has CUPTI: close it first, or record there");
		goto err_cupti;
	}
	if (!shared.api.library &&
	    mtc_cupti_open(places->cupti, &shared.api, error, sizeof(error))) {
		shared.api.library = NULL;
		mtc_report(ret_report, MT_COLLECTOR_ABSENT,
			   "%.170s; install the CUDA toolkit's CUPTI, or name the library with "
			   "MOETRACE_CUPTI",
			   error);
		goto err_used;
	}
	if (make_memory(cupti)) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED,
			   "out of memory: let the program have more, and start it again");
		goto err_graphs;
	}
	if (start(cupti, ret_report))
		goto err_graphs;
	*ret_collector = cupti;
	return;

err_graphs:
	mtc_cupti_graphs_free(cupti->records.graphs);
	mtc_cupti_serial_free(cupti->records.serial);
err_used:
	atomic_store(&shared.is_used, 0);
err_cupti:
	free(cupti);
}

/* Never finalized: that ends with crashes in programs that have graphs. */
static void cupti_close(void *collector)
{
	struct cupti *cupti = collector;

	stop_sampler(cupti);
	(void)set_kernels(cupti, 0);
	if (cupti->mode.has_graphs)
		(void)shared.api.disable(MTC_CUPTI_GRAPH_TRACE);
	(void)shared.api.disable(MTC_CUPTI_OVERHEAD);
	(void)shared.api.flush(0);
	cupti->records.is_wanted = 0;
	(void)take_filled(cupti);
	(void)shared.api.unsubscribe(shared.subscriber);
	mtc_cupti_launches_use(NULL);
	cupti->out->ask(cupti->out->context, 0);
	mtc_cupti_graphs_free(cupti->records.graphs);
	mtc_cupti_serial_free(cupti->records.serial);
	atomic_store(&shared.is_used, 0);
	free(cupti);
}

const struct mt_collector_ops mtc_cupti = {
	.name = "cupti",
	.interval_ns = 100000000,
	.is_early = 1,
	.is_mode = is_mode,
	.modes = MODES,
	.check = check,
	.open = cupti_open,
	.begin = cupti_begin,
	.poll = cupti_poll,
	.rest = cupti_rest,
	.close = cupti_close,
};
