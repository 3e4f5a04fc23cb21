/* SPDX-License-Identifier: MIT */
/*
 * Does the recorder keep up? 20 million assignments a second for a minute, with default rings
 * and options, on a disk: what was lost, how full the rings became and how long the longest
 * commit took.
 *
 *   bench_loss [FOLDER [SECONDS [MILLIONS]]]
 *
 * It writes about 60 MB a second into FOLDER (default: $TMPDIR or /var/tmp) and removes it.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "bench/load.h"

enum { N_LAYERS = 58, N_ROWS = 64, PASS_ASSIGNMENTS = N_LAYERS * N_ROWS * LOAD_TOP_K };

struct result {
	uint64_t n_passes;
	uint64_t n_null;
	uint64_t late_ns; /* most that the loop itself was behind its pace */
};

static struct result run(struct load *load, double seconds, double pace)
{
	const double pass_ns = PASS_ASSIGNMENTS / pace * 1e9;
	const uint64_t start_ns = load_now_ns();
	struct result result = {0};
	uint64_t n;

	for (n = 0; (double)n * pass_ns < seconds * 1e9; n++) {
		const uint64_t due_ns = start_ns + (uint64_t)((double)(n + 1) * pass_ns);

		if (load_pass(load))
			result.n_passes++;
		else
			result.n_null++;
		if (load_now_ns() < due_ns)
			load_sleep_until_ns(due_ns);
		else if (load_now_ns() - due_ns > result.late_ns)
			result.late_ns = load_now_ns() - due_ns;
	}
	return result;
}

static long long longest_commit_ns(const char *path)
{
	sqlite3_stmt *stmt = NULL;
	long long value = -1;
	sqlite3 *db = NULL;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(db, "SELECT value FROM stats WHERE name = 'longest_commit_ns'", -1,
			       &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return value;
}

static void check_room(const char *folder, double bytes)
{
	struct statvfs info;

	/* The recorder leaves half of what is free to others. */
	if (statvfs(folder, &info) != 0 ||
	    (double)info.f_bavail * (double)info.f_frsize < 2.2 * bytes)
		load_die(folder,
			 "too little room for this run: name another folder, or fewer seconds");
}

int main(int argc, char **argv)
{
	const char *tmpdir = getenv("TMPDIR");
	const char *folder = argc > 1 ? argv[1] : tmpdir && *tmpdir ? tmpdir : "/var/tmp";
	const double seconds = argc > 2 ? atof(argv[2]) : 60.0;
	const double pace = (argc > 3 ? atof(argv[3]) : 20.0) * 1e6;
	struct moetrace_session_status status;
	struct result result;
	struct load load;

	check_room(folder, pace * seconds * 3.3);
	load_open(&load, folder, NULL, N_LAYERS, 256, N_ROWS, N_ROWS);
	result = run(&load, seconds, pace);
	moetrace_stop(load.session, NULL);
	status = load_status(&load);
	load_close(&load, true);
	printf("%.0f M assignments/s for %.0f s in %s: %llu passes recorded, %llu passes and %llu"
	       " layers lost\n",
	       pace / 1e6, seconds, folder, (unsigned long long)status.recorded_passes,
	       (unsigned long long)status.dropped_passes,
	       (unsigned long long)status.dropped_layers);
	printf("rings at most %.1f of %.1f MB full; longest commit %.1f ms; the load itself at most"
	       " %.1f ms late; writer %.0f %% of a CPU; file %.0f MB\n",
	       (double)status.ring_peak_bytes / 1e6, (double)status.ring_bytes / 4e6,
	       (double)longest_commit_ns(load.path) / 1e6, (double)result.late_ns / 1e6,
	       (double)status.writer_cpu_ns / seconds / 1e7, (double)status.file_bytes / 1e6);
	unlink(load.path);
	printf("bar: no loss: %s\n",
	       status.dropped_passes + status.dropped_layers == 0 ? "met" : "NOT MET");
	return status.dropped_passes + status.dropped_layers == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
