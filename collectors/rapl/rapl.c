/* SPDX-License-Identifier: MIT */
/*
 * Energy of the host's processors and memory by the kernel's powercap tree. Each domain has a
 * counter of its own range; what is stored goes on past its end. A counter that cannot be read for
 * want of permission is a state, not zero.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectors/registry.h"
#include "collectors/report.h"

#define MAX_DOMAINS 32

struct domain {
	char path[400];   /* of its energy_uj */
	char name[32];
	int64_t range_uj; /* the counter begins anew behind it */
	int64_t last_uj;
	int64_t total_uj; /* since it was first read */
};

struct rapl {
	const struct mt_collector_out *out;
	int n_domains;
	struct domain domains[MAX_DOMAINS];
};

/* A name that no domain before it has: two sockets have a "dram" each. */
static void name_domain(struct rapl *rapl, struct domain *domain, const char *name,
			const char *folder)
{
	snprintf(domain->name, sizeof(domain->name), "%.31s", name[0] ? name : folder);
	for (int i = 0; i < rapl->n_domains; i++)
		if (strcmp(rapl->domains[i].name, domain->name) == 0)
			snprintf(domain->name, sizeof(domain->name), "%.15s %.15s", name, folder);
}

/* Returns 0, or the error that kept the counter from being read. */
static int add_domain(struct rapl *rapl, const char *root, const char *folder)
{
	struct domain *domain = &rapl->domains[rapl->n_domains];
	char path[400];
	char name[64];

	snprintf(path, sizeof(path), "%.200s/%.100s/name", root, folder);
	if (mtc_read_text(path, name, sizeof(name)))
		return errno;
	snprintf(path, sizeof(path), "%.200s/%.100s/max_energy_range_uj", root, folder);
	if (mtc_read_number(path, &domain->range_uj) || domain->range_uj <= 0)
		return EINVAL;
	snprintf(domain->path, sizeof(domain->path), "%.200s/%.100s/energy_uj", root, folder);
	if (mtc_read_number(domain->path, &domain->last_uj))
		return errno;
	if (domain->last_uj < 0 || domain->last_uj > domain->range_uj)
		return EINVAL;
	domain->total_uj = 0;
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

/* Folders of domains, in the order of their names; how many, or -1: no permission. */
static int list_folders(const char *root, struct dirent ***ret_folders)
{
	int n = scandir(root, ret_folders, is_domain, by_name);

	return n >= 0 ? n : errno == EACCES || errno == EPERM ? -1 : 0;
}

/* What a collector that reads some domains lacks of the others. */
static void tell_lacks(int n_folders, int n_unread, int n_left_out, int last_error,
		       struct mt_collector_report *report)
{
	char unread[120] = "";

	if (n_unread)
		snprintf(unread, sizeof(unread), "%d of %d domains cannot be read: %.60s", n_unread,
			 n_folders, strerror(last_error));
	if (n_left_out)
		mtc_report(report, MT_COLLECTOR_ON,
			   "%s%s%d of %d domains are left out: it reads %d at most", unread,
			   n_unread ? "; " : "", n_left_out, n_folders, MAX_DOMAINS);
	else if (n_unread)
		mtc_report(report, MT_COLLECTOR_ON, "%s", unread);
}

static void find_domains(struct rapl *rapl, const char *root, struct mt_collector_report *report)
{
	struct dirent **folders = NULL;
	int n_folders = list_folders(root, &folders);
	int n_denied = n_folders < 0;
	int n_left_out = 0;
	int last_error = 0;

	for (int i = 0; i < n_folders; i++) {
		int is_full = rapl->n_domains == MAX_DOMAINS;
		int error = is_full ? 0 : add_domain(rapl, root, folders[i]->d_name);

		n_left_out += is_full;
		n_denied += error == EACCES || error == EPERM;
		last_error = error ? error : last_error;
		free(folders[i]);
	}
	free(folders);
	if (!n_folders)
		mtc_report(report, MT_COLLECTOR_ABSENT,
			   "%.100s has no intel-rapl domain: this machine or its kernel does not "
			   "count energy",
			   root);
	else if (!rapl->n_domains && n_denied)
		mtc_report(report, MT_COLLECTOR_DENIED,
			   "no permission to read %.100s/*/energy_uj: run as root, or let root make them "
			   "readable (chmod a+r)",
			   root);
	else if (!rapl->n_domains)
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED, "%.100s: no counter can be read: %s",
			   root, strerror(last_error));
	else
		tell_lacks(n_folders, n_folders - rapl->n_domains - n_left_out, n_left_out,
			   last_error, report);
}

/*
 * Add what the counter went on. A range is tens of kilojoules at least, and polls are close, so
 * that a counter that is lower has begun anew once.
 */
static int advance(struct domain *domain)
{
	int64_t now_uj;

	if (mtc_read_number(domain->path, &now_uj))
		return errno;
	if (now_uj < 0 || now_uj > domain->range_uj)
		return EINVAL;
	domain->total_uj += now_uj - domain->last_uj;
	if (now_uj < domain->last_uj)
		domain->total_uj += domain->range_uj + 1;
	domain->last_uj = now_uj;
	return 0;
}

static void rapl_poll(void *collector, struct mt_collector_report *report)
{
	struct rapl *rapl = collector;

	for (int i = 0; i < rapl->n_domains; i++) {
		struct domain *domain = &rapl->domains[i];
		uint64_t before_ns = rapl->out->now_ns(rapl->out->context);
		int error = advance(domain);
		uint64_t cost_ns = rapl->out->now_ns(rapl->out->context) - before_ns;
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

		if (error) {
			mtc_report(report, MT_COLLECTOR_FAILED, "%.150s: %s", domain->path,
				   strerror(error));
			return;
		}
		memcpy(reading.domain, domain->name, sizeof(reading.domain));
		rapl->out->power(rapl->out->context, &reading);
	}
}

static void rapl_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		      void **ret_collector, struct mt_collector_report *ret_report)
{
	struct rapl *rapl = calloc(1, sizeof(*rapl));

	if (!rapl) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED, "out of memory");
		return;
	}
	rapl->out = out;
	find_domains(rapl, places->powercap, ret_report);
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
	.poll = rapl_poll,
	.close = rapl_close,
};
