/* SPDX-License-Identifier: MIT */
/*
 * doctor: what of the sources of times and power is there, what is off and why, and what to do.
 * It records for a moment into a file of its own, with every collector, and prints what that file
 * says of them; so it asks the same code as a recording.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "common/library.h"
#include "common/pattern.h"

#define COLLECTORS "host,rapl,nvml,nvtx,cupti"
#define WHY_BYTES  160
#define MOMENT_NS  150000000
#define FOLDER_BYTES 1024

static const struct argp_child children[] = {{&mt_args_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = mt_args_pass_on,
	.doc = "Print which sources of times and power are there, which are off and why, and what to "
	       "do about it"
	       "\v"
	       "It records with every source for a moment, into a file that is removed. What is off "
	       "is no failure: the exit code is 0. What is set for recordings (MOETRACE_COLLECTORS, "
	       "MOETRACE_MODE, ...) is looked at and not used; a setting that a recording would refuse "
	       "is an error, and the exit code is 2.\n",
	.children = children,
};

/* ---- what is no collector: CUDA and NCCL, as far as their libraries tell ---- */

struct finding {
	const char *source;
	const char *state;
	char version[32]; /* "": none */
	char reason[256];
};

enum { CUDA, NVLS, NCCL, N_FINDINGS };

#define CUDA_MULTICAST_SUPPORTED 132 /* an attribute of a device: NVLink multicast (NVLS) */

static int ask_driver(void *library, int *ret_version, int *ret_n, int *ret_n_multicast)
{
	int (*init)(unsigned int) = NULL;
	int (*version)(int *) = NULL;
	int (*count)(int *) = NULL;
	int (*attribute)(int *, int, int) = NULL;
	void *symbols[] = {dlsym(library, "cuInit"), dlsym(library, "cuDriverGetVersion"),
			   dlsym(library, "cuDeviceGetCount"),
			   dlsym(library, "cuDeviceGetAttribute")};
	int has_multicast;

	memcpy(&init, &symbols[0], sizeof(init));
	memcpy(&version, &symbols[1], sizeof(version));
	memcpy(&count, &symbols[2], sizeof(count));
	memcpy(&attribute, &symbols[3], sizeof(attribute));
	if (!init || !version || !count || !attribute || version(ret_version) || init(0) ||
	    count(ret_n))
		return -1;
	for (int i = 0; i < *ret_n; i++)
		*ret_n_multicast +=
			!attribute(&has_multicast, CUDA_MULTICAST_SUPPORTED, i) && has_multicast;
	return 0;
}

/* Sums and broadcasts in the NVLink switches: what a collective of NCCL may use. */
static void nvls_look(struct finding *nvls, int n, int n_multicast)
{
	const char *enable = getenv("NCCL_NVLS_ENABLE");

	nvls->state = n_multicast > 1 ? "on" : n > 1 ? "unsupported" : "absent";
	if (n_multicast > 1)
		snprintf(nvls->reason, sizeof(nvls->reason), "possible between %d GPUs%s",
			 n_multicast,
			 enable && strcmp(enable, "0") == 0 ?
				 "; NCCL_NVLS_ENABLE=0 keeps NCCL from using it" :
				 "");
	else if (n > 1)
		snprintf(nvls->reason, sizeof(nvls->reason),
			 "not possible: no two of the %d GPUs can multicast; that takes GPUs from Hopper on "
			 "that are joined by NVLink switches, the fabric manager on the host, and no MIG",
			 n);
	else
		snprintf(nvls->reason, sizeof(nvls->reason),
			 "not possible: it takes two GPUs of one host, and this process sees %s",
			 n ? "one" : "none");
}

static void cuda_look(struct finding *cuda, struct finding *nvls)
{
	int version = 0, n = 0, n_multicast = 0;
	enum mt_library_state state;
	void *library = NULL;
	char why[WHY_BYTES];

	cuda->state = "absent";
	/* The library stays: its driver has threads of its own. */
	state = mt_library_open("libcuda.so.1", RTLD_NOW | RTLD_LOCAL, &library, why, sizeof(why));
	if (state == MT_LIBRARY_MISSING) {
		snprintf(cuda->reason, sizeof(cuda->reason),
			 "no libcuda.so.1: no GPU driver is installed; everything else works without");
	} else if (state == MT_LIBRARY_WRONG) {
		snprintf(cuda->reason, sizeof(cuda->reason),
			 "the driver cannot be opened: %s; install it again, in a container have the "
			 "host's let in",
			 why);
	} else if (ask_driver(library, &version, &n, &n_multicast) < 0 || n == 0) {
		snprintf(cuda->reason, sizeof(cuda->reason),
			 "the driver is there, but it shows no GPU to this process; look at "
			 "CUDA_VISIBLE_DEVICES and at the rights of /dev/nvidia*");
	} else {
		cuda->state = "on";
		snprintf(cuda->reason, sizeof(cuda->reason), "%d GPU%s", n, n == 1 ? "" : "s");
	}
	if (version)
		snprintf(cuda->version, sizeof(cuda->version), "%d.%d", version / 1000,
			 version % 1000 / 10);
	nvls_look(nvls, n, n_multicast);
}

static void nccl_look(struct finding *nccl)
{
	char why[WHY_BYTES];
	void *library = NULL;
	enum mt_library_state state = mt_library_open("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL,
						      &library, why, sizeof(why));
	void *symbol = state == MT_LIBRARY_FOUND ? dlsym(library, "ncclGetVersion") : NULL;
	int (*ask)(int *) = NULL;
	int version = 0;

	memcpy(&ask, &symbol, sizeof(ask));
	nccl->state = "absent";
	if (state == MT_LIBRARY_WRONG) {
		snprintf(nccl->reason, sizeof(nccl->reason),
			 "NCCL cannot be opened: %s; install it again", why);
		return;
	}
	if (!ask || ask(&version) || version < 10000) {
		snprintf(nccl->reason, sizeof(nccl->reason),
			 "no libnccl.so.2 from version 2.9 on where libraries are looked for; of a program "
			 "that brings its own, the recording has the version");
		return;
	}
	nccl->state = "on";
	snprintf(nccl->version, sizeof(nccl->version), "%d.%d.%d", version / 10000,
		 version % 10000 / 100, version % 100);
}

/* ---- what is set in the environment ---- */

static const struct setting {
	const char *name;
	bool is_used; /* by doctor's own recording, too */
} settings[] = {
	{"MOETRACE_OUTPUT", false},
	{"MOETRACE_START", false},
	{"MOETRACE_DISABLE", false},
	{"MOETRACE_MODE", false},
	{"MOETRACE_SOCKET_DIR", false},
	{"MOETRACE_COLLECTORS", false},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", true},
	{"MOETRACE_CUPTI", true},
	{"MOETRACE_CUPTI_MODE", true},
	{"MOETRACE_KERNEL_ROLES", true},
	{"MOETRACE_NVML", true},
	{"MOETRACE_NVTX", true},
	{"MOETRACE_POWERCAP", true},
	{"MOETRACE_PROC", true},
};

#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

static void session_opts(struct moetrace_session_opts *ret_opts)
{
	MOETRACE_INIT(ret_opts);
	ret_opts->engine_name = "doctor";
	ret_opts->n_rings = 1;
	ret_opts->ring_bytes = 1 << 16;
	ret_opts->socket_dir = "none";
}

/* The library says it of a session that gets no further, since its file can be nowhere. */
static bool is_refused(const char *name, const char *value)
{
	struct moetrace_session_opts opts;
	struct moetrace_session *session;
	char path[4096];
	int status;

	if (strcmp(name, "MOETRACE_OUTPUT") == 0) {
		status = mt_pattern_expand(value, 0, path, sizeof(path));
		if (status < 0)
			mt_error("MOETRACE_OUTPUT '%.200s' is too long, or has a letter after %% that "
				 "is not h, p, r or t",
				 value);
		return status < 0;
	}
	if (strcmp(name, "MOETRACE_DISABLE") == 0 || setenv(name, value, 1) < 0)
		return false;
	session_opts(&opts);
	status = moetrace_session_open("/dev/null/doctor.db", &opts, &session);
	if (status == MOETRACE_E_INVALID)
		mt_error("%s", moetrace_open_errmsg());
	else if (status == MOETRACE_OK)
		(void)moetrace_session_close(session);
	unsetenv(name);
	return status == MOETRACE_E_INVALID;
}

/* Each by itself, so that all that is wrong is said; what only other recordings use is taken away. */
static int settings_check(void)
{
	char *values[N_SETTINGS] = {NULL};
	int exit_code = MT_EXIT_OK;

	for (size_t i = 0; i < N_SETTINGS; i++) {
		const char *value = getenv(settings[i].name);

		if (value && *value)
			values[i] = strdup(value);
		unsetenv(settings[i].name);
	}
	for (size_t i = 0; i < N_SETTINGS; i++)
		if (values[i] && is_refused(settings[i].name, values[i]))
			exit_code = MT_EXIT_USAGE;
	for (size_t i = 0; i < N_SETTINGS; i++) {
		if (values[i] && settings[i].is_used)
			(void)setenv(settings[i].name, values[i], 1);
		free(values[i]);
	}
	return exit_code;
}

/* ---- a moment's recording ---- */

static int record(const char *path)
{
	const struct timespec moment = {0, MOMENT_NS};
	struct moetrace_session_opts opts;
	struct moetrace_session *session;
	int status;

	session_opts(&opts);
	opts.collectors = COLLECTORS;
	status = moetrace_session_open(path, &opts, &session);
	if (status < 0) {
		mt_error("%s", moetrace_open_errmsg());
		return MT_EXIT_FAILED;
	}
	status = moetrace_start(session, NULL);
	nanosleep(&moment, NULL);
	if (status == MOETRACE_OK)
		status = moetrace_stop(session, NULL);
	if (moetrace_session_close(session) < 0 || status < 0) {
		mt_error("%s: the recording failed: %s", path, moetrace_status_string(status));
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

#define SQL_FINDING(source, state, version, reason) \
	"SELECT " source " AS source, " state " AS state, " version " AS version, " reason " AS what_to_know"

#define SQL_SOURCES                                                                                  \
	SQL_FINDING("?1", "?2", "?3", "?4") " UNION ALL " SQL_FINDING("?5", "?6", "?7", "?8") " UNION " \
	"ALL " SQL_FINDING("?9", "?10", "?11", "?12") " UNION ALL SELECT name, state, version, reason " \
	"FROM collector"

static int sources_print(const struct mt_trace *trace, const struct finding *findings,
			 enum mt_format format)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_SOURCES);
	struct mt_output output;
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	for (int i = 0; i < N_FINDINGS; i++) {
		const char *texts[] = {findings[i].source, findings[i].state, findings[i].version,
				       findings[i].reason};

		for (int k = 0; k < 4; k++)
			if (*texts[k])
				sqlite3_bind_text(stmt, 4 * i + k + 1, texts[k], -1, SQLITE_STATIC);
	}
	mt_output_begin(&output, stdout, format);
	status = mt_trace_print(trace, &output, stmt);
	sqlite3_finalize(stmt);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	return status;
}

static int look(const char *folder, enum mt_format format)
{
	struct finding findings[N_FINDINGS] = {
		[CUDA] = {.source = "cuda"}, [NVLS] = {.source = "nvls"}, [NCCL] = {.source = "nccl"}};
	struct mt_trace trace;
	char path[FOLDER_BYTES + 16];
	int status;

	snprintf(path, sizeof(path), "%s/doctor.db", folder);
	cuda_look(&findings[CUDA], &findings[NVLS]);
	nccl_look(&findings[NCCL]);
	status = record(path);
	if (status == MT_EXIT_OK)
		status = mt_trace_open(path, &trace);
	if (status == MT_EXIT_OK) {
		status = sources_print(&trace, findings, format);
		mt_trace_close(&trace);
	}
	(void)unlink(path);
	return status;
}

/* A new folder where one can be made: a folder for such things may be read-only. */
static int folder_make(char *ret_folder)
{
	const char *const parents[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm", "."};
	const size_t n = sizeof(parents) / sizeof(parents[0]);

	for (size_t i = 0; i < n; i++) {
		if (!parents[i] || strlen(parents[i]) + sizeof("/moetrace.XXXXXX") > FOLDER_BYTES)
			continue;
		snprintf(ret_folder, FOLDER_BYTES, "%s/moetrace.XXXXXX", parents[i]);
		if (mkdtemp(ret_folder))
			return MT_EXIT_OK;
	}
	mt_error("no folder can be made in TMPDIR, /tmp, /var/tmp, /dev/shm or here: set TMPDIR to one "
		 "that can be written to");
	return MT_EXIT_FAILED;
}

int mt_cmd_doctor(int argc, char **argv)
{
	struct mt_args args = {.no_file = true};
	char folder[FOLDER_BYTES];
	int status;

	status = mt_args_parse(&argp, argc, argv, &args, &args);
	if (status != MT_EXIT_OK)
		return status;
	status = settings_check();
	if (status == MT_EXIT_OK)
		status = folder_make(folder);
	if (status != MT_EXIT_OK)
		return status;
	status = look(folder, args.format);
	(void)rmdir(folder);
	return status;
}
