/* SPDX-License-Identifier: MIT */
/*
 * Energy of the host's processors and memory by the kernel's powercap tree. Each domain has a
 * counter of its own range; what is stored goes on past its end. A counter that cannot be read for
 * want of permission is a state, not zero; one that cannot be read once in a while is read again.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectors/registry.h"
#include "collectors/report.h"

#define MAX_DOMAINS 32
/* Where it is where nobody says otherwise. */
#define USUAL_ROOT "/sys/class/powercap"
/* No domain draws as much: 100 kW, in uJ a ns. A counter that went on by more has begun anew. */
#define MAX_UJ_PER_NS 100
/* Counters are written when they like: by so much later than they are read. */
#define SLACK_NS 100000000
#define WHY_BYTES 160

struct domain {
	char path[MT_PLACE_BYTES + 300]; /* of its energy_uj */
	char name[32];
	int64_t range_uj; /* the counter begins anew behind it */
	int64_t last_uj;
	int64_t total_uj; /* since it was first read */
	uint64_t last_ns; /* session clock, of last_uj */
	struct mtc_retry retry;
	int is_given_up;
};

struct rapl {
	const struct mt_collector_out *out;
	int n_domains;
	int n_given_up;
	uint64_t n_failed;   /* readings of the recording */
	int is_new;          /* a recording has begun, and nothing was said in it yet */
	char note[256];      /* what it lacked when it was opened */
	struct domain domains[MAX_DOMAINS];
};

/* By a domain before it, or for GPUs. */
static int is_taken(const struct rapl *rapl, const char *name)
{
	static const char *const of_gpus[] = { "gpu", "module", "memory" };

	for (size_t i = 0; i < sizeof(of_gpus) / sizeof(of_gpus[0]); i++)
		if (strcmp(of_gpus[i], name) == 0)
			return 1;
	for (int i = 0; i < rapl->n_domains; i++)
		if (strcmp(rapl->domains[i].name, name) == 0)
			return 1;
	return 0;
}

/* A name that nothing else has: two sockets have a "dram" each. */
static void name_domain(const struct rapl *rapl, struct domain *domain, const char *name,
			const char *folder)
{
	snprintf(domain->name, sizeof(domain->name), "%.31s", name[0] ? name : folder);
	if (is_taken(rapl, domain->name))
		snprintf(domain->name, sizeof(domain->name), "%.12s %.18s", name, folder);
	for (int i = rapl->n_domains; is_taken(rapl, domain->name); i++)
		snprintf(domain->name, sizeof(domain->name), "%.20s %d", name, i);
}

/* What is wrong with the number of a file, and where. */
static void say_number(const char *path, int error, char *ret_why)
{
	if (error == EINVAL)
		snprintf(ret_why, WHY_BYTES, "%.110s holds no number", path);
	else
		snprintf(ret_why, WHY_BYTES, "%.110s: %.40s", path, strerror(error));
}

/* Returns 0, or the error that kept the counter from being read, with @ret_why. */
static int read_counter(const struct domain *domain, int64_t *ret_uj, char *ret_why)
{
	if (mtc_read_number(domain->path, ret_uj)) {
		int error = errno;

		say_number(domain->path, error, ret_why);
		return error;
	}
	if (*ret_uj >= 0 && *ret_uj <= domain->range_uj)
		return 0;
	snprintf(ret_why, WHY_BYTES, "%.80s is %lld, its range %lld", domain->path,
		 (long long)*ret_uj, (long long)domain->range_uj);
	return ERANGE;
}

/* The same of a domain that is found. */
static int add_domain(struct rapl *rapl, const char *root, const char *folder, char *ret_why)
{
	struct domain *domain = &rapl->domains[rapl->n_domains];
	char path[sizeof(domain->path)];
	char name[64];
	int error;

	snprintf(path, sizeof(path), "%s/%s/name", root, folder);
	if (mtc_read_text(path, name, sizeof(name))) {
		error = errno;
		say_number(path, error, ret_why);
		return error;
	}
	snprintf(path, sizeof(path), "%s/%s/max_energy_range_uj", root, folder);
	if (mtc_read_number(path, &domain->range_uj)) {
		error = errno;
		say_number(path, error, ret_why);
		return error;
	}
	if (domain->range_uj <= 0) {
		snprintf(ret_why, WHY_BYTES, "%.110s is %lld", path, (long long)domain->range_uj);
		return ERANGE;
	}
	snprintf(domain->path, sizeof(domain->path), "%s/%s/energy_uj", root, folder);
	error = read_counter(domain, &domain->last_uj, ret_why);
	if (error)
		return error;
	domain->total_uj = 0;
	domain->last_ns = rapl->out->now_ns(rapl->out->context);
	name_domain(rapl, domain, name, folder);
	rapl->n_domains++;
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_domain(const struct dirent *entry)
{
	return strncmp(entry->d_name, "intel-rapl:", 11) == 0;
}

/* Folders of domains, in the order of their names; how many, and why not where there are none. */
static int list_folders(const char *root, struct dirent ***ret_folders, int *ret_error)
{
	int n = scandir(root, ret_folders, is_domain, by_name);

	*ret_error = n < 0 ? errno : 0;
	return n < 0 ? 0 : n;
}

static void tell_none(const char *root, int error, struct mt_collector_report *report)
{
	mtc_report(report, MT_COLLECTOR_ABSENT,
		   "%.90s: %.40s: this machine or its kernel does not count energy (a virtual machine does "
		   "not: measure on its host)%s",
		   root, error ? strerror(error) : "no intel-rapl domain",
		   strcmp(root, USUAL_ROOT) != 0 ? ", or MOETRACE_POWERCAP names the wrong folder" : "");
}

/* What a collector that reads some domains lacks of the others. */
static void tell_lacks(int n_folders, int n_unread, int n_left_out, const char *why,
		       struct mt_collector_report *report)
{
	char unread[WHY_BYTES + 80] = "";

	if (n_unread)
		snprintf(unread, sizeof(unread),
			 "%d of %d domains cannot be read (%.120s): look at its folder, the others are "
			 "read",
			 n_unread, n_folders, why);
	if (n_left_out)
		mtc_report(report, MT_COLLECTOR_ON,
			   "%.160s%s%d of %d domains are left out: it reads %d at most", unread,
			   n_unread ? "; " : "", n_left_out, n_folders, MAX_DOMAINS);
	else if (n_unread)
		mtc_report(report, MT_COLLECTOR_ON, "%s", unread);
}

static void find_domains(struct rapl *rapl, const char *root, struct mt_collector_report *report)
{
	struct dirent **folders = NULL;
	int error;
	int n_folders = list_folders(root, &folders, &error);
	int is_closed = error == EACCES || error == EPERM;
	int n_denied = 0;
	int n_left_out = 0;
	char why[WHY_BYTES] = "";

	for (int i = 0; i < n_folders; i++) {
		int is_full = rapl->n_domains == MAX_DOMAINS;

		error = is_full ? 0 : add_domain(rapl, root, folders[i]->d_name, why);
		n_left_out += is_full;
		n_denied += error == EACCES || error == EPERM;
		free(folders[i]);
	}
	free(folders);
	if (is_closed)
		mtc_report(report, MT_COLLECTOR_DENIED,
			   "no permission to look into %.100s: run as root, or let root open it (chmod a+rx)",
			   root);
	else if (!n_folders)
		tell_none(root, error, report);
	else if (!rapl->n_domains && n_denied)
		mtc_report(report, MT_COLLECTOR_DENIED,
			   "no permission to read %.100s/*/energy_uj: run as root, or let root make them "
			   "readable (chmod a+r, their folders a+rx)",
			   root);
	else if (!rapl->n_domains)
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
			   "no counter can be read (%.120s): is MOETRACE_POWERCAP, if it is set, a folder "
			   "like /sys/class/powercap?",
			   why);
	else
		tell_lacks(n_folders, n_folders - rapl->n_domains - n_left_out, n_left_out, why,
			   report);
}

/*
 * Add what the counter went on. A range is tens of kilojoules at least, and polls are close, so that a
 * counter that is lower has begun anew behind its range once; one that would have gone on by more than
 * anything draws was set to something else: what was drawn until then is not known.
 */
static int advance(struct domain *domain, uint64_t now_ns, char *ret_why)
{
	int64_t now_uj;
	uint64_t went_on_uj;
	uint64_t passed_ns = now_ns - domain->last_ns;
	int error = read_counter(domain, &now_uj, ret_why);

	if (error)
		return error;
	went_on_uj = (uint64_t)now_uj - (uint64_t)domain->last_uj;
	if (now_uj < domain->last_uj)
		went_on_uj += (uint64_t)domain->range_uj + 1;
	domain->last_uj = now_uj;
	domain->last_ns = now_ns;
	if (went_on_uj / MAX_UJ_PER_NS > passed_ns + SLACK_NS) {
		snprintf(ret_why, WHY_BYTES, "%.90s went on by %llu J at once", domain->path,
			 (unsigned long long)(went_on_uj / 1000000));
		return ERANGE;
	}
	domain->total_uj += (int64_t)went_on_uj;
	return 0;
}

static void deliver(const struct rapl *rapl, const struct domain *domain, uint64_t before_ns,
		    uint64_t cost_ns)
{
	struct mt_power_reading reading = {
		.device = MT_DEVICE_HOST,
		.time_ns = before_ns + cost_ns / 2,
		.instant_mw = MT_UNKNOWN,
		.average_mw = MT_UNKNOWN,
		.energy_mj = domain->total_uj / 1000,
		.limit_mw = MT_UNKNOWN,
		.throttle_reasons = MT_UNKNOWN,
		.processor_mhz = MT_UNKNOWN,
		.memory_mhz = MT_UNKNOWN,
		.temperature_c = MT_UNKNOWN,
		.cost_ns = (int64_t)cost_ns,
	};

	memcpy(reading.domain, domain->name, sizeof(reading.domain));
	rapl->out->power(rapl->out->context, &reading);
}

/* A reading that failed is counted; the domain is looked at again, until it failed too often. */
static void tell_failed(struct rapl *rapl, struct domain *domain, int error, const char *why,
			struct mt_collector_report *report)
{
	int is_denied = error == EACCES || error == EPERM;
	enum mt_collector_state state = MT_COLLECTOR_ON;

	rapl->n_failed++;
	rapl->out->dropped(rapl->out->context, 1);
	domain->is_given_up = mtc_retry_failed(&domain->retry);
	rapl->n_given_up += domain->is_given_up;
	if (rapl->n_given_up == rapl->n_domains)
		state = MT_COLLECTOR_FAILED;
	if (domain->is_given_up)
		mtc_report(report, state,
			   "%d of %d domains are no longer read, after %u failures in a row (%.120s): "
			   "%s, and %s",
			   rapl->n_given_up, rapl->n_domains, MTC_MAX_FAILED, why,
			   is_denied ? "make it readable (chmod a+r)" : "look at the kernel's log",
			   state == MT_COLLECTOR_ON ? "record again" : "start the program again");
	else if (!rapl->n_given_up)
		mtc_report(report, state,
			   "%llu readings failed and are missing, the last one was %.120s; if that goes "
			   "on, look at the kernel's log",
			   (unsigned long long)rapl->n_failed, why);
}

/* With a recording all domains that were ever found get another try. */
static void rapl_begin(void *collector)
{
	struct rapl *rapl = collector;

	for (int i = 0; i < rapl->n_domains; i++) {
		mtc_retry_worked(&rapl->domains[i].retry);
		rapl->domains[i].is_given_up = 0;
	}
	rapl->n_given_up = 0;
	rapl->n_failed = 0;
	rapl->is_new = 1;
}

static void rapl_poll(void *collector, struct mt_collector_report *report)
{
	struct rapl *rapl = collector;
	char why[WHY_BYTES];

	if (rapl->is_new)
		mtc_report(report, MT_COLLECTOR_ON, "%s", rapl->note);
	rapl->is_new = 0;
	for (int i = 0; i < rapl->n_domains; i++) {
		struct domain *domain = &rapl->domains[i];
		uint64_t before_ns, cost_ns;
		int error;

		if (domain->is_given_up || !mtc_retry_is_due(&domain->retry))
			continue;
		before_ns = rapl->out->now_ns(rapl->out->context);
		error = advance(domain, before_ns, why);
		cost_ns = rapl->out->now_ns(rapl->out->context) - before_ns;
		if (error) {
			tell_failed(rapl, domain, error, why, report);
			continue;
		}
		mtc_retry_worked(&domain->retry);
		deliver(rapl, domain, before_ns, cost_ns);
	}
}

static void rapl_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		      void **ret_collector, struct mt_collector_report *ret_report)
{
	struct rapl *rapl = calloc(1, sizeof(*rapl));

	if (!rapl) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED,
			   "out of memory: let the program have more, and start it again");
		return;
	}
	rapl->out = out;
	find_domains(rapl, places->powercap, ret_report);
	snprintf(rapl->note, sizeof(rapl->note), "%s", ret_report->reason);
	if (ret_report->state == MT_COLLECTOR_ON)
		*ret_collector = rapl;
	else
		free(rapl);
}

static void rapl_close(void *collector)
{
	free(collector);
}

const struct mt_collector_ops mtc_rapl = {
	.name = "rapl",
	.interval_ns = 100000000,
	.open = rapl_open,
	.begin = rapl_begin,
	.poll = rapl_poll,
	.close = rapl_close,
};
