/* SPDX-License-Identifier: MIT */
/*
 * What the process itself takes: its processor time, that of the recorder's threads (their names
 * begin with "moetrace"), how many threads there are, and resident memory. Read from /proc.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectors/registry.h"
#include "collectors/report.h"

struct host {
	const struct mt_collector_out *out;
	char self[MT_PLACE_BYTES + 8]; /* folder of the process */
	int64_t page_bytes;
};

/* The processor time of a thread, which its schedstat begins with. */
static int64_t thread_cpu_ns(const struct host *host, const char *thread)
{
	char path[MT_PLACE_BYTES + 320];
	char text[128];
	char *end;
	long long value;

	snprintf(path, sizeof(path), "%s/task/%s/schedstat", host->self, thread);
	if (mtc_read_text(path, text, sizeof(text)))
		return MT_UNKNOWN;
	errno = 0;
	value = strtoll(text, &end, 10);
	return end == text || *end != ' ' || errno ? MT_UNKNOWN : value;
}

static int is_recorder(const struct host *host, const char *thread)
{
	char path[MT_PLACE_BYTES + 320];
	char name[32];

	snprintf(path, sizeof(path), "%s/task/%s/comm", host->self, thread);
	return mtc_read_text(path, name, sizeof(name)) == 0 && strncmp(name, "moetrace", 8) == 0;
}

/* A thread may end while it is looked at; then it is none of the recorder's. */
static void read_threads(const struct host *host, struct mt_host_reading *reading)
{
	char path[MT_PLACE_BYTES + 320];
	const struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/task", host->self);
	folder = opendir(path);
	if (!folder)
		return;
	reading->n_threads = 0;
	reading->recorder_cpu_ns = 0;
	while ((entry = readdir(folder))) {
		int64_t cpu_ns;

		if (entry->d_name[0] == '.')
			continue;
		reading->n_threads++;
		/* The command's own main thread has the same name, and is none. */
		if (!is_recorder(host, entry->d_name) || atol(entry->d_name) == getpid())
			continue;
		cpu_ns = thread_cpu_ns(host, entry->d_name);
		if (cpu_ns != MT_UNKNOWN)
			reading->recorder_cpu_ns += cpu_ns;
	}
	closedir(folder);
	if (!reading->n_threads)
		reading->n_threads = reading->recorder_cpu_ns = MT_UNKNOWN;
}

static void read_memory(const struct host *host, struct mt_host_reading *reading)
{
	char path[MT_PLACE_BYTES + 320];
	char text[128];
	long long n_pages;

	snprintf(path, sizeof(path), "%s/statm", host->self);
	if (mtc_read_text(path, text, sizeof(text)) == 0 &&
	    sscanf(text, "%*s %lld", &n_pages) == 1 && n_pages >= 0)
		reading->resident_bytes = n_pages * host->page_bytes;
}

static void host_poll(void *collector, struct mt_collector_report *report)
{
	struct host *host = collector;
	struct mt_host_reading reading = { 0, 0, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN };
	struct timespec cpu;

	reading.time_ns = host->out->now_ns(host->out->context);
	read_threads(host, &reading);
	read_memory(host, &reading);
	/* After that of its threads, which then is not more. */
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu)) {
		mtc_report(report, MT_COLLECTOR_FAILED,
			   "the process's processor time cannot be read: %s; let the sandbox that it "
			   "runs in allow clock_gettime()",
			   strerror(errno));
		return;
	}
	reading.process_cpu_ns = (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
	host->out->host(host->out->context, &reading);
}

static void host_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		      void **ret_collector, struct mt_collector_report *ret_report)
{
	struct host *host = calloc(1, sizeof(*host));

	if (!host) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED,
			   "out of memory: let the program have more, and start it again");
		return;
	}
	host->out = out;
	host->page_bytes = sysconf(_SC_PAGESIZE);
	snprintf(host->self, sizeof(host->self), "%s/self", places->proc);
	if (access(host->self, R_OK))
		mtc_report(ret_report, MT_COLLECTOR_ON,
			   "%.100s: %.40s: memory and threads are not known; mount /proc, or name it "
			   "with MOETRACE_PROC",
			   host->self, strerror(errno));
	*ret_collector = host;
}

static void host_close(void *collector)
{
	free(collector);
}

const struct mt_collector_ops mtc_host = {
	.name = "host",
	.interval_ns = 1000000000,
	.open = host_open,
	.poll = host_poll,
	.close = host_close,
};
