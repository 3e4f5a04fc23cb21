/* SPDX-License-Identifier: MIT */
/*
 * The collectors of a session: which were asked for, when they read and when they rest, and what
 * became of them.
 */
#include "libtrace/collect_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/session.h"

/* A call that lasts for longer is taken for one that never ends. */
#define DEFAULT_HANG_MS 3000u
#define MAX_HANG_MS	3600000ul
#define DEFAULT_CUPTI_MODE "graph"
/* A call that has lasted for so long when a recording ends hangs in it: 1500 ms by default. */
#define PATIENCE_PART	2
/* The last look has as long, as far as passes have left it of the time for the end; but so much always. */
#define LAST_LOOK_PART	6
#define MIN_PATIENCE_NS (500 * MT_NS_PER_MS)
/* A recording that is ended without waiting for the last look waits for a call that is under way. */
#define SETTLE_NS	(100 * MT_NS_PER_MS)

/* ---- names ---- */

static const struct mt_collector_ops *find_ops(const char *name, size_t n_bytes)
{
	for (uint32_t i = 0; mtc_registry[i]; i++)
		if (strlen(mtc_registry[i]->name) == n_bytes &&
		    memcmp(mtc_registry[i]->name, name, n_bytes) == 0)
			return mtc_registry[i];
	return NULL;
}

/* The next entry of a list, whose length may be 0; 0: there is none. */
static int next_entry(const char **list, const char **ret_entry, size_t *ret_n_bytes)
{
	const char *entry = *list;

	if (!entry)
		return 0;
	*ret_n_bytes = strcspn(entry, ",");
	*list = entry[*ret_n_bytes] ? entry + *ret_n_bytes + 1 : NULL;
	*ret_entry = entry;
	return 1;
}

static int is_none(const char *list)
{
	return !list || !*list || strcmp(list, "none") == 0;
}

/* The part of an entry such as cupti=graph before its mode. */
static size_t name_bytes(const char *entry, size_t n_bytes)
{
	const char *equals = memchr(entry, '=', n_bytes);

	return equals ? (size_t)(equals - entry) : n_bytes;
}

/* The mode of an entry; 0: it has none, and needs none. -1: it is none of the collector's. */
static int mode_of(const struct mt_collector_ops *ops, const char *entry, size_t n_bytes,
		   char *ret_mode)
{
	size_t n = name_bytes(entry, n_bytes);

	ret_mode[0] = '\0';
	if (n == n_bytes)
		return 0;
	if (n_bytes - n > MT_MODE_BYTES || !ops->is_mode)
		return -1;
	snprintf(ret_mode, MT_MODE_BYTES, "%.*s", (int)(n_bytes - n - 1), entry + n + 1);
	return ops->is_mode(ret_mode) ? 1 : -1;
}

/* Whether an entry before @entry asks the same collector in another way. */
static int is_contradicted(const char *list, const char *entry, size_t n_bytes)
{
	const size_t n_name = name_bytes(entry, n_bytes);
	const char *other;
	size_t n_other;

	while (next_entry(&list, &other, &n_other) && other != entry)
		if (name_bytes(other, n_other) == n_name && memcmp(other, entry, n_name) == 0 &&
		    (n_other != n_bytes || memcmp(other, entry, n_bytes) != 0))
			return 1;
	return 0;
}

static void append_names(char *text, size_t n_bytes)
{
	for (uint32_t i = 0; mtc_registry[i]; i++) {
		size_t n = strlen(text);

		snprintf(text + n, n_bytes - n, "%s%s", i ? "," : "", mtc_registry[i]->name);
	}
}

/* What is wrong with an entry, and what to do; 0: nothing. */
static int find_fault(const char *list, const char *entry, size_t n_bytes, char *ret_why,
		      size_t why_bytes)
{
	const size_t n_name = name_bytes(entry, n_bytes);
	const struct mt_collector_ops *ops = find_ops(entry, n_name);
	char mode[MT_MODE_BYTES];

	if (!ops) {
		if (n_name)
			snprintf(ret_why, why_bytes, "there is no collector '%.*s': give some of ",
				 n_name < 40 ? (int)n_name : 40, entry);
		else
			snprintf(ret_why, why_bytes, "an entry has no name: give some of ");
		append_names(ret_why, why_bytes);
		snprintf(ret_why + strlen(ret_why), why_bytes - strlen(ret_why),
			 ", or none by itself");
	} else if (mode_of(ops, entry, n_bytes, mode) < 0 && ops->is_mode) {
		snprintf(ret_why, why_bytes, "%s has no mode '%.*s': give %s", ops->name,
			 n_bytes - n_name < 40 ? (int)(n_bytes - n_name - 1) : 40, entry + n_name + 1,
			 ops->modes);
	} else if (n_name != n_bytes && !ops->is_mode) {
		snprintf(ret_why, why_bytes, "%s has no modes: give %s alone", ops->name, ops->name);
	} else if (is_contradicted(list, entry, n_bytes)) {
		snprintf(ret_why, why_bytes, "%s is asked in two ways: give it once", ops->name);
	} else {
		return 0;
	}
	return 1;
}

int mt_collect_check(const char *list, char *ret_why, size_t why_bytes)
{
	const char *rest = is_none(list) ? NULL : list;
	const char *entry;
	size_t n_bytes;

	while (next_entry(&rest, &entry, &n_bytes))
		if (find_fault(list, entry, n_bytes, ret_why, why_bytes))
			return 0;
	return 1;
}

/* ---- the session's side ---- */

static void add_source(struct mt_collect *collect, const struct mt_collector_ops *ops)
{
	struct mt_source *source = &collect->sources[collect->n_sources];

	for (uint32_t i = 0; i < collect->n_sources; i++)
		if (collect->sources[i].ops == ops)
			return;
	if (collect->n_sources == MT_MAX_COLLECTORS)
		return;
	collect->n_sources++;
	source->collect = collect;
	source->ops = ops;
	source->status.name = ops->name;
	source->status.interval_ns = ops->interval_ns;
	mt_collect_out_fill(source);
}

/* A mode in the list comes before that of the environment; one collector alone has any. */
static void add_entry(struct mt_collect *collect, const char *entry, size_t n_bytes)
{
	const struct mt_collector_ops *ops = find_ops(entry, name_bytes(entry, n_bytes));
	char mode[MT_MODE_BYTES];

	add_source(collect, ops);
	if (mode_of(ops, entry, n_bytes, mode) > 0)
		snprintf(collect->paths[4], sizeof(collect->paths[4]), "%s", mode);
}

/* Where the environment says, else where it always is. */
static const char *place(char *ret_path, const char *variable, const char *otherwise)
{
	const char *value = secure_getenv(variable);

	snprintf(ret_path, MT_PLACE_BYTES, "%s", value && *value ? value : otherwise);
	return ret_path;
}

/* What must be there before the program makes its first graph. */
static void wait_until_open(struct mt_source *source)
{
	uint64_t until_ns = mt_monotonic_ns() + source->collect->hang_ns;

	pthread_mutex_lock(&source->collect->lock);
	while (source->ops->is_early && !source->status.is_known && mt_monotonic_ns() < until_ns)
		mt_collect_sleep_until(source, until_ns);
	pthread_mutex_unlock(&source->collect->lock);
}

/* A variable of the environment; "" where it is not set. */
static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value ? value : "";
}

/* How long a call may last; 0: what the environment says is no such number. */
static uint64_t hang_ms(const char *value)
{
	uint64_t ms = 0;

	if (!value || !*value)
		return DEFAULT_HANG_MS;
	while (*value >= '0' && *value <= '9' && ms <= MAX_HANG_MS)
		ms = ms * 10 + (uint64_t)(*value++ - '0');
	return *value || ms > MAX_HANG_MS ? 0 : ms;
}

/* Each collector knows its own. */
static int check_places(void)
{
	const char *mode = variable("MOETRACE_CUPTI_MODE");
	const struct mt_collector_places places = {
		.cupti_mode = *mode ? mode : DEFAULT_CUPTI_MODE,
		.kernel_roles = variable("MOETRACE_KERNEL_ROLES"),
	};
	char why[400];

	for (uint32_t i = 0; mtc_registry[i]; i++)
		if (mtc_registry[i]->check && !mtc_registry[i]->check(&places, why, sizeof(why)))
			return mt_open_error(MOETRACE_E_INVALID, "%s", why);
	return MOETRACE_OK;
}

int mt_collect_check_environment(void)
{
	static const char *const places[] = { "MOETRACE_CUPTI", "MOETRACE_CUPTI_MODE", "MOETRACE_PROC",
					      "MOETRACE_POWERCAP", "MOETRACE_NVML" };
	const char *timeout = secure_getenv("MOETRACE_COLLECTOR_TIMEOUT_MS");

	if (!hang_ms(timeout))
		return mt_open_error(MOETRACE_E_INVALID,
				     "MOETRACE_COLLECTOR_TIMEOUT_MS is '%.40s': set it to a number "
				     "of milliseconds from 1 to %lu",
				     timeout, MAX_HANG_MS);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *value = secure_getenv(places[i]);

		if (value && strlen(value) >= MT_PLACE_BYTES)
			return mt_open_error(MOETRACE_E_INVALID,
					     "%s has %zu bytes: set it to at most %u", places[i],
					     strlen(value), MT_PLACE_BYTES - 1);
	}
	return check_places();
}

int mt_collect_open(struct moetrace_session *session, const char *list,
		    struct mt_collect **ret_collect)
{
	struct mt_collect *collect;
	pthread_condattr_t attributes;
	const char *entry;
	size_t n_bytes;
	int status = MOETRACE_OK;

	*ret_collect = NULL;
	if (is_none(list))
		return MOETRACE_OK;
	collect = calloc(1, sizeof(*collect));
	if (!collect)
		return MOETRACE_E_NOMEM;
	/* A copy: the program may set variables while a thread reads. */
	collect->kernel_roles = strdup(variable("MOETRACE_KERNEL_ROLES"));
	if (!collect->kernel_roles) {
		free(collect);
		return MOETRACE_E_NOMEM;
	}
	collect->places.kernel_roles = collect->kernel_roles;
	collect->session = session;
	collect->start_monotonic_ns = session->start_monotonic_ns;
	collect->places.cupti = place(collect->paths[3], "MOETRACE_CUPTI", "");
	collect->places.cupti_mode = place(collect->paths[4], "MOETRACE_CUPTI_MODE",
					  DEFAULT_CUPTI_MODE);
	collect->places.proc = place(collect->paths[0], "MOETRACE_PROC", "/proc");
	collect->places.powercap = place(collect->paths[1], "MOETRACE_POWERCAP", "/sys/class/powercap");
	collect->places.nvml = place(collect->paths[2], "MOETRACE_NVML", "libnvidia-ml.so.1");
	collect->hang_ns =
		hang_ms(secure_getenv("MOETRACE_COLLECTOR_TIMEOUT_MS")) * MT_NS_PER_MS;
	pthread_mutex_init(&collect->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&collect->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	session->ties = &collect->ties;
	while (next_entry(&list, &entry, &n_bytes))
		add_entry(collect, entry, n_bytes);
	collect->n_users = 1;
	for (uint32_t i = 0; !status && i < collect->n_sources; i++) {
		collect->n_users++;
		status = mt_collect_thread_start(&collect->sources[i]);
		collect->n_users -= status != 0;
	}
	if (status) {
		session->ties = NULL;
		mt_collect_end(collect);
		mt_collect_close(collect);
	} else {
		*ret_collect = collect;
	}
	for (uint32_t i = 0; !status && i < collect->n_sources; i++)
		wait_until_open(&collect->sources[i]);
	return status;
}

/* Under the lock: a call has lasted for @busy_ns. */
static void cut_off(struct mt_source *source, uint64_t busy_ns)
{
	struct mt_collector_report *report = &source->status.report;

	source->is_cut = 1;
	source->status.is_known = 1;
	report->state = MT_COLLECTOR_HUNG;
	snprintf(report->reason, sizeof(report->reason),
		 "a call did not come back for %llu ms: it was cut off, and recording goes on "
		 "without it; look at the driver's log",
		 (unsigned long long)(busy_ns / MT_NS_PER_MS));
}

/* Who lets calls last for longer than usual waits longer for them, too; nobody for less. */
static uint64_t part_of_hang_ns(const struct mt_collect *collect, uint32_t part)
{
	uint64_t wait_ns = collect->hang_ns / part;

	return wait_ns > MIN_PATIENCE_NS ? wait_ns : MIN_PATIENCE_NS;
}

uint64_t mt_collect_patience_ns(const struct mt_collect *collect)
{
	return part_of_hang_ns(collect, PATIENCE_PART);
}

/* Of one call, at the end of the session: no longer than any other call may last. */
static uint64_t end_patience_ns(const struct mt_collect *collect)
{
	uint64_t wait_ns = mt_collect_patience_ns(collect);

	return wait_ns < collect->hang_ns ? wait_ns : collect->hang_ns;
}

/*
 * Under the lock: wait until its thread is about to end, or its call has lasted for as long as the end
 * of a recording waits. A thread that is in none waits for a processor alone.
 */
static void wait_for_thread(struct mt_source *source, uint64_t until_ns)
{
	const uint64_t patience_ns = end_patience_ns(source->collect);

	while (!source->has_left && mt_monotonic_ns() < until_ns) {
		uint64_t busy_since_ns = source->busy_since_ns;
		uint64_t given_up_ns = busy_since_ns ? busy_since_ns + patience_ns : until_ns;

		if (busy_since_ns && (source->is_cut || mt_monotonic_ns() >= given_up_ns))
			return;
		mt_collect_sleep_until(source, given_up_ns < until_ns ? given_up_ns : until_ns);
	}
}

/*
 * Under the lock: who has not come back at the end of the session. What was cut off before has its
 * reason, and what is in another call than its end is missing in recordings, which say so.
 */
static void cut_off_end(struct mt_source *source)
{
	struct mt_collector_report *report = &source->status.report;
	uint64_t busy_ns = source->busy_since_ns ? mt_monotonic_ns() - source->busy_since_ns :
						   source->collect->hang_ns;

	if (!source->has_thread || source->has_left || source->is_cut)
		return;
	cut_off(source, busy_ns);
	if (!source->is_ending)
		return;
	source->status.has_hung_at_end = 1;
	snprintf(report->reason, sizeof(report->reason),
		 "its end did not come back for %llu ms and was left alone, after all that it had read; "
		 "look at the driver's log",
		 (unsigned long long)(busy_ns / MT_NS_PER_MS));
}

void mt_collect_end(struct mt_collect *collect)
{
	uint64_t until_ns;

	if (!collect)
		return;
	until_ns = mt_monotonic_ns() + collect->hang_ns + end_patience_ns(collect);
	pthread_mutex_lock(&collect->lock);
	collect->is_closing = 1;
	pthread_cond_broadcast(&collect->changed);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		if (collect->sources[i].has_thread)
			wait_for_thread(&collect->sources[i], until_ns);
		cut_off_end(&collect->sources[i]);
	}
	pthread_mutex_unlock(&collect->lock);
}

void mt_collect_close(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct mt_source *source = &collect->sources[i];
		int has_left = source->has_left;

		source->is_cut = 1;
		pthread_mutex_unlock(&collect->lock);
		if (source->has_thread && has_left)
			pthread_join(source->thread, NULL);
		else if (source->has_thread)
			(void)pthread_detach(source->thread);
		pthread_mutex_lock(&collect->lock);
	}
	mt_collect_leave(collect);
}

void mt_collect_free(struct mt_collect *collect)
{
	if (!collect)
		return;
	while (collect->tail < collect->head)
		mt_reading_release(&collect->readings[collect->tail++ % MT_MAX_READINGS]);
	mt_collect_graphs_free(collect);
	free(collect->kernel_roles);
	free(collect);
}

void mt_collect_start(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	collect->n_starts++;
	memset(collect->clock_stored_ns, 0, sizeof(collect->clock_stored_ns));
	pthread_cond_broadcast(&collect->changed);
	pthread_mutex_unlock(&collect->lock);
}

void mt_collect_use_gpu(struct mt_collect *collect, const char *uuid)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	if (uuid[0] && collect->n_used < MT_MAX_COLLECT_DEVICES)
		snprintf(collect->used_uuids[collect->n_used++], sizeof(collect->used_uuids[0]),
			 "%s", uuid);
	pthread_mutex_unlock(&collect->lock);
}

/*
 * Until when a source's last look is waited for; 0: it has made it. A call that has lasted for longer
 * already is not waited for again.
 */
static uint64_t last_look_until(const struct mt_source *source, uint64_t until_ns)
{
	const struct mt_collect *collect = source->collect;
	uint64_t given_up_ns = source->busy_since_ns + mt_collect_patience_ns(collect);

	if (source->is_cut || source->n_finished == collect->n_stops)
		return 0;
	return source->busy_since_ns && given_up_ns < until_ns ? given_up_ns : until_ns;
}

/* Until when the call that was under way as the recording ended is waited for; 0: there is none. */
static uint64_t call_until(const struct mt_source *source, uint64_t until_ns)
{
	int is_under_way = source->busy_since_ns &&
			   source->busy_since_ns < source->collect->stopped_ns;

	return is_under_way && !source->is_cut && !source->is_ending ? until_ns : 0;
}

/* Under the lock. */
static void wait_for_sources(struct mt_collect *collect, uint64_t until_ns,
			     uint64_t (*until)(const struct mt_source *source, uint64_t until_ns))
{
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct mt_source *source = &collect->sources[i];
		uint64_t wait_ns;

		while ((wait_ns = until(source, until_ns)) > mt_monotonic_ns())
			mt_collect_sleep_until(source, wait_ns);
	}
}

void mt_collect_settle(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	if (collect->n_waited != collect->n_stops)
		wait_for_sources(collect, mt_monotonic_ns() + SETTLE_NS, call_until);
	pthread_mutex_unlock(&collect->lock);
}

/* What is left of the time for the end, between the least and the most that a last look has. */
static uint64_t last_looks_until(const struct mt_collect *collect, uint64_t until_ns)
{
	uint64_t now_ns = mt_monotonic_ns();
	uint64_t least_ns = now_ns + part_of_hang_ns(collect, LAST_LOOK_PART);
	uint64_t most_ns = now_ns + mt_collect_patience_ns(collect);

	return until_ns < least_ns ? least_ns : until_ns > most_ns ? most_ns : until_ns;
}

void mt_collect_stop(struct mt_collect *collect, uint64_t until_ns)
{
	const int must_wait = until_ns != 0;

	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	if (collect->n_stops != collect->n_starts) {
		collect->n_stops = collect->n_starts;
		collect->stopped_ns = mt_monotonic_ns();
		pthread_cond_broadcast(&collect->changed);
	}
	if (must_wait)
		collect->n_waited = collect->n_stops;
	if (must_wait)
		wait_for_sources(collect, last_looks_until(collect, until_ns), last_look_until);
	pthread_mutex_unlock(&collect->lock);
}

/* ---- the writer's side ---- */

void mt_collect_watch(struct mt_collect *collect)
{
	uint64_t now_ns = mt_monotonic_ns();

	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct mt_source *source = &collect->sources[i];

		if (!source->is_cut && !source->is_ending && source->busy_since_ns &&
		    now_ns > source->busy_since_ns + collect->hang_ns)
			cut_off(source, collect->hang_ns);
	}
	pthread_mutex_unlock(&collect->lock);
}

uint32_t mt_collect_count(const struct mt_collect *collect)
{
	return collect ? collect->n_sources : 0;
}
