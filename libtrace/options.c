/* SPDX-License-Identifier: MIT */
/*
 * Options: checked, completed from the environment and the defaults, and copied. An option in
 * the environment is the operator's and wins over the program's; what is wrong with one is
 * said with its name.
 */
#include "libtrace/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/pattern.h"
#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/collect.h"
#include "libtrace/definitions.h"

#define DEFAULT_RINGS 4u
#define DEFAULT_RING_BYTES (UINT64_C(32) << 20)
#define DEFAULT_COMMIT_INTERVAL_MS 200u
#define DEFAULT_STOP_TIMEOUT_MS 2000u
#define DEFAULT_WINDOW_NS (10 * MT_NS_PER_S)
#define MAX_DEFAULT_FILE_BYTES (UINT64_C(10) << 30)
#define MIN_FILE_BYTES (UINT64_C(1) << 20)
#define MIN_RING_BYTES (UINT64_C(64) << 10)
#define MAX_RING_BYTES (UINT64_C(4) << 30)

uint64_t mt_default_file_limit_bytes(const char *path)
{
	char folder[4096];
	struct statvfs fs;
	uint64_t half_bytes;
	char *slash;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	if (statvfs(slash ? folder : ".", &fs))
		return MAX_DEFAULT_FILE_BYTES;
	half_bytes = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
	return half_bytes < MAX_DEFAULT_FILE_BYTES ? half_bytes : MAX_DEFAULT_FILE_BYTES;
}

static int check_rank(const char *name, const struct moetrace_rank *rank)
{
	if (!rank->n_ranks || rank->rank < rank->n_ranks)
		return MOETRACE_OK;
	return mt_open_error(MOETRACE_E_INVALID, "options: %s rank %u is none of %u, counted from 0",
			     name, rank->rank, rank->n_ranks);
}

static int check_ranks(const struct moetrace_session_opts *opts)
{
	int status = check_rank("tp", &opts->tp);

	status = status ? status : check_rank("pp", &opts->pp);
	status = status ? status : check_rank("ep", &opts->ep);
	status = status ? status : check_rank("dp", &opts->dp);
	return status ? status : check_rank("world", &opts->world);
}

static int check_options(const struct moetrace_session_opts *opts)
{
	if (opts->weight_format > MOETRACE_WEIGHT_FORMAT_NONE)
		return mt_open_error(MOETRACE_E_INVALID, "options: weight_format %u is none",
				  opts->weight_format);
	if (opts->n_rings > MT_MAX_RINGS)
		return mt_open_error(MOETRACE_E_INVALID, "options: n_rings %u is above %u",
				  opts->n_rings, MT_MAX_RINGS);
	if (opts->ring_bytes &&
	    (opts->ring_bytes < MIN_RING_BYTES || opts->ring_bytes > MAX_RING_BYTES ||
	     (opts->ring_bytes & (opts->ring_bytes - 1))))
		return mt_open_error(MOETRACE_E_INVALID,
				  "options: ring_bytes %llu is no power of two from 64 KiB to 4 GiB",
				  (unsigned long long)opts->ring_bytes);
	if (opts->file_limit_bytes && opts->file_limit_bytes < MIN_FILE_BYTES)
		return mt_open_error(MOETRACE_E_INVALID,
				  "options: file_limit_bytes %llu is below 1 MiB",
				  (unsigned long long)opts->file_limit_bytes);
	if (opts->commit_interval_ms &&
	    (opts->commit_interval_ms < 10 || opts->commit_interval_ms > 10000))
		return mt_open_error(MOETRACE_E_INVALID,
				  "options: commit_interval_ms %u is not from 10 to 10000",
				  opts->commit_interval_ms);
	if ((opts->rotate_bytes && opts->rotate_bytes < MIN_FILE_BYTES) ||
	    (opts->rotate_ns && opts->rotate_ns < MT_NS_PER_MS))
		return mt_open_error(MOETRACE_E_INVALID,
				     "options: rotate_bytes is below 1 MiB, or rotate_ns below 1 ms");
	if (opts->window_ns && (opts->window_ns < MT_NS_PER_MS || opts->window_ns > INT64_MAX / 4))
		return mt_open_error(MOETRACE_E_INVALID, "options: window_ns %llu is below 1 ms or "
				  "absurdly long", (unsigned long long)opts->window_ns);
	return check_ranks(opts);
}

/* @origin: who gave it */
static int check_collectors(const char *origin, const char *list)
{
	char why[256];

	if (mt_collect_check(list, why, sizeof(why)))
		return MOETRACE_OK;
	return mt_open_error(MOETRACE_E_INVALID, "%s: %s", origin, why);
}

static void set_default_u32(uint32_t *option, uint32_t value)
{
	*option = *option ? *option : value;
}

static void set_default_u64(uint64_t *option, uint64_t value)
{
	*option = *option ? *option : value;
}

static int copy_string(const char **string)
{
	*string = *string ? strdup(*string) : NULL;
	return *string ? 0 : -1;
}

void mt_options_free(struct moetrace_session *session)
{
	free((char *)session->opts.session_name);
	free((char *)session->opts.engine_name);
	free((char *)session->opts.engine_version);
	free((char *)session->opts.socket_dir);
	free((char *)session->opts.collectors);
	free(session->path);
	free(session->base_path);
}

uint32_t mt_options_rank(const struct moetrace_session_opts *opts)
{
	return opts->world.n_ranks ? opts->world.rank : 0;
}

/* A variable that is set and not empty; NULL otherwise, also in a program with raised rights. */
static const char *environment(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

int mt_is_disabled(void)
{
	const char *value = environment("MOETRACE_DISABLE");

	return value && strcmp(value, "0") != 0;
}

static int read_start(struct mt_settings *settings)
{
	const char *value = environment("MOETRACE_START");

	settings->start = -1;
	if (!value)
		return MOETRACE_OK;
	if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
		return mt_open_error(MOETRACE_E_INVALID,
				     "MOETRACE_START is '%.40s': set it to 0 or 1", value);
	settings->start = value[0] - '0';
	return MOETRACE_OK;
}

/* Read by the tool of ranges itself; here it is looked at. */
static int check_nvtx(void)
{
	const char *value = environment("MOETRACE_NVTX");

	if (!value || strcmp(value, "0") == 0 || strcmp(value, "1") == 0)
		return MOETRACE_OK;
	return mt_open_error(MOETRACE_E_INVALID, "MOETRACE_NVTX is '%.40s': set it to 0 or 1", value);
}

static int read_mode(struct mt_settings *settings)
{
	const char *value = environment("MOETRACE_MODE");

	settings->mode = -1;
	if (!value)
		return MOETRACE_OK;
	settings->mode = mt_mode_parse(value);
	if (settings->mode < 0)
		return mt_open_error(MOETRACE_E_INVALID,
				     "MOETRACE_MODE is '%.40s': set it to per_token, per_pass or "
				     "stat",
				     value);
	return MOETRACE_OK;
}

static const char *const mode_names[] = { "per_token", "per_pass", "stat" };

#define N_MODES 3

int mt_mode_parse(const char *name)
{
	for (int i = 0; i < N_MODES; i++)
		if (strcmp(name, mode_names[i]) == 0)
			return i;
	return -1;
}

const char *mt_mode_name(int mode)
{
	return mode >= 0 && mode < N_MODES ? mode_names[mode] : NULL;
}

char *mt_absolute_path(const char *path)
{
	char folder[MT_PATH_BYTES];
	char *absolute;

	if (path[0] == '/' || !getcwd(folder, sizeof(folder)))
		return strdup(path);
	return asprintf(&absolute, "%s/%s", folder, path) < 0 ? NULL : absolute;
}

/* The path in force: MOETRACE_OUTPUT with its places filled in, else the program's, literally. */
static int resolve_path(struct moetrace_session *session, const char *path)
{
	const char *pattern = environment("MOETRACE_OUTPUT");
	char expanded[MT_PATH_BYTES];
	int status;

	if (pattern) {
		status = mt_pattern_expand(pattern, mt_options_rank(&session->opts), expanded,
					   sizeof(expanded));
		if (status)
			return mt_open_error(MOETRACE_E_INVALID,
					     "MOETRACE_OUTPUT is '%.200s': %s", pattern,
					     status == MOETRACE_E_LIMIT ?
						     "too long" :
						     "%h, %p, %r, %t and %% are known");
		path = expanded;
	}
	if (!path || !*path)
		return mt_open_error(MOETRACE_E_INVALID, "no path, and MOETRACE_OUTPUT is not set");
	session->path = mt_absolute_path(path);
	session->base_path = session->path ? strdup(session->path) : NULL;
	return session->base_path ? MOETRACE_OK :
			       mt_open_error(MOETRACE_E_NOMEM, "%s: out of memory", path);
}

static void set_defaults(struct moetrace_session_opts *opts)
{
	set_default_u32(&opts->n_rings, DEFAULT_RINGS);
	set_default_u64(&opts->ring_bytes, DEFAULT_RING_BYTES);
	set_default_u32(&opts->commit_interval_ms, DEFAULT_COMMIT_INTERVAL_MS);
	set_default_u32(&opts->stop_timeout_ms, DEFAULT_STOP_TIMEOUT_MS);
	set_default_u64(&opts->window_ns, DEFAULT_WINDOW_NS);
}

/* Own copies of all strings; what cannot be copied is NULL, so that all can be freed. */
static int copy_strings(struct moetrace_session_opts *opts)
{
	const char **const strings[] = { &opts->session_name, &opts->engine_name,
					 &opts->engine_version, &opts->socket_dir,
					 &opts->collectors };
	int status = MOETRACE_OK;

	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		int is_set = *strings[i] != NULL;

		if (copy_string(strings[i]) && is_set)
			status = MOETRACE_E_NOMEM;
	}
	return status;
}

int mt_options_resolve(struct moetrace_session *session, const char *path,
		       const struct moetrace_session_opts *opts)
{
	struct moetrace_session_opts *to = &session->opts;
	struct moetrace_session_opts room;
	const char *socket_dir = environment("MOETRACE_SOCKET_DIR");
	const char *collectors = environment("MOETRACE_COLLECTORS");
	char name[256];
	int status;

	if (opts && !mt_abi_knows(opts->size, MT_FIRST_SESSION_OPTS))
		return mt_open_error(MOETRACE_E_INVALID,
				     "options: size is not set; use MOETRACE_INIT()");
	if (opts)
		*to = *(const struct moetrace_session_opts *)MT_ABI_WIDEN(opts, &room);
	to->size = sizeof(*to);
	if (socket_dir)
		to->socket_dir = socket_dir;
	if (collectors)
		to->collectors = collectors;
	if (!to->session_name) {
		mt_program_name(name, sizeof(name));
		to->session_name = name;
	}
	if (copy_strings(to))
		return mt_open_error(MOETRACE_E_NOMEM, "%s: out of memory", path ? path : "");
	status = check_options(to);
	if (!status)
		status = check_collectors(collectors ? "MOETRACE_COLLECTORS" : "options: collectors",
					  to->collectors);
	if (!status)
		status = mt_collect_check_environment();
	if (!status)
		status = check_nvtx();
	if (!status)
		status = read_start(&session->settings);
	if (!status)
		status = read_mode(&session->settings);
	if (!status)
		status = resolve_path(session, path);
	if (status)
		return status;
	set_defaults(to);
	session->settings.has_default_limit = !to->file_limit_bytes;
	set_default_u64(&to->file_limit_bytes, mt_default_file_limit_bytes(session->path));
	if (to->file_limit_bytes < MIN_FILE_BYTES)
		return mt_open_error(MOETRACE_E_IO, "%s: less than 2 MiB are free there",
				     session->path);
	return MOETRACE_OK;
}
