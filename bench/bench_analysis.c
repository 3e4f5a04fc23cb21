/* SPDX-License-Identifier: MIT */
/*
 * What analyses of a large trace take: CPU time and peak memory of the command on a file of 1 GB
 * that tests/schema/make_trace makes (29 300 decode passes of 64 rows through 58 layers of 256
 * experts, top-8, one-byte ids), read once before, so that it is in memory. Run in the build
 * folder.
 *
 *   bench_analysis [FILE.db]    FILE.db is made unless it is there; it is removed only if made here
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

enum { N_RUNS = 3 };

struct measure {
	const char *what;
	const char *arguments[8]; /* after the command; "FILE" stands for the file */
	double max_s;		  /* CPU time; 0: no bar */
};

static const char windows[] =
	"INSERT INTO expert_load_window SELECT 1, w.value * 10000000000, layer_id, b.value, "
	"10000000000, 0, 29300 * 64 * 8 / 256 / 29, 0, 0, 0 FROM layer CROSS JOIN byte AS b "
	"CROSS JOIN byte AS w ON w.value < 29";

static const struct measure measures[] = {
	{"expert load from expert_load_window",
	 {"query", "FILE", "SELECT layer, expert, tokens FROM expert_load"},
	 0.3},
	{"expert load from the ids, moe_load",
	 {"query", "FILE", "SELECT sum(tokens) FROM moe_load"},
	 1},
	{"report", {"report", "FILE"}, 5},
	{"experts --coverage", {"experts", "FILE", "--coverage"}, 0},
	{"experts --pairs", {"experts", "FILE", "--pairs"}, 0},
	{"experts --steps", {"experts", "FILE", "--steps"}, 0},
	{"balance --ranks 8", {"balance", "FILE", "--ranks", "8"}, 0},
	{"efficiency's histogram", {"query", "FILE", "SELECT sum(rows) FROM moe_rows"}, 0},
};

static const double max_mb = 200;

/* Runs a command with its output thrown away; returns whether it exited with 0. */
static bool run(const char *const *argv, struct rusage *ret_usage)
{
	int status, out;
	pid_t child = fork();

	if (child == 0) {
		out = open("/dev/null", O_WRONLY);
		if (out < 0 || dup2(out, STDOUT_FILENO) < 0)
			_exit(127);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	return child > 0 && wait4(child, &status, 0, ret_usage) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

static double seconds(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

static bool make_file(const char *path)
{
	const char *const make[] = {"tests/schema/make_trace", "ids", path, "29300", NULL};
	const char *const fill[] = {"sqlite3", path, windows, NULL};
	struct rusage usage;

	return run(make, &usage) && run(fill, &usage);
}

/* The least of some runs, of one where only memory has a bar; whether the bars are met. */
static bool measure(const struct measure *m, const char *path)
{
	const char *argv[10] = {"cli/moetrace"};
	struct rusage usage;
	double least_s = 0, mb = 0;
	bool is_met;

	for (int i = 0; i < 8 && m->arguments[i]; i++)
		argv[i + 1] = m->arguments[i][0] == 'F' ? path : m->arguments[i];
	for (int i = 0; i < (m->max_s > 0 ? N_RUNS : 1); i++) {
		if (!run(argv, &usage)) {
			printf("%-38s failed\n", m->what);
			return false;
		}
		if (i == 0 || seconds(&usage) < least_s)
			least_s = seconds(&usage);
		mb = (double)usage.ru_maxrss / 1024 > mb ? (double)usage.ru_maxrss / 1024 : mb;
	}
	is_met = (m->max_s == 0 || least_s < m->max_s) && mb < max_mb;
	printf("%-38s %7.2f s", m->what, least_s);
	if (m->max_s > 0)
		printf(" (bar %.1f)", m->max_s);
	printf("  %6.1f MB (bar %.0f)  %s\n", mb, max_mb, is_met ? "met" : "NOT met");
	fflush(stdout);
	return is_met;
}

int main(int argc, char **argv)
{
	char made[] = "/dev/shm/moetrace-bench.XXXXXX";
	const char *path = argc > 1 ? argv[1] : made;
	struct stat info;
	bool is_met = true, is_made = false;

	if (argc == 1) {
		int file = mkstemp(made);

		if (file < 0) {
			perror("bench_analysis: /dev/shm");
			return 1;
		}
		close(file);
		unlink(made);
	}
	if (stat(path, &info) != 0) {
		is_made = true;
		if (!make_file(path)) {
			fprintf(stderr,
				"bench_analysis: %s could not be made (run this in the build "
				"folder; sqlite3 is needed)\n",
				path);
			unlink(path);
			return 1;
		}
		is_met = stat(path, &info) == 0;
	}
	printf("%s: %.2f GB\n", path, (double)info.st_size / 1e9);
	for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++)
		is_met &= measure(&measures[i], path);
	if (is_made)
		unlink(path);
	return is_met ? 0 : 1;
}
