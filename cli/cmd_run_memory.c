/* SPDX-License-Identifier: MIT */
/*
 * How much memory a run may take: what the system has left, and what the control groups of this
 * process let it have, whichever is less. Files that cannot be read bound nothing.
 */
#include "cli/cmd_run.h"

#include <inttypes.h>
#include <string.h>

/* The number behind @key at the start of a line of a file; UINT64_MAX: there is none. */
static uint64_t number_of(const char *path, const char *key)
{
	FILE *file = fopen(path, "re");
	uint64_t value = UINT64_MAX;
	const size_t n_key = strlen(key);
	char line[256];

	if (!file)
		return UINT64_MAX;
	while (value == UINT64_MAX && fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, n_key) == 0 &&
		    sscanf(line + n_key, " %" SCNu64, &value) != 1)
			break;
	}
	fclose(file);
	return value;
}

/* What a group has left: its limit less what it uses, less files that it can drop. */
static uint64_t group_available(const char *folder, const char *limit, const char *usage)
{
	char path[4200];
	uint64_t max, used, files;

	snprintf(path, sizeof(path), "%s/%s", folder, limit);
	max = number_of(path, "");
	snprintf(path, sizeof(path), "%s/%s", folder, usage);
	used = number_of(path, "");
	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	files = number_of(path, "inactive_file ");
	if (max == UINT64_MAX || used == UINT64_MAX)
		return UINT64_MAX;
	used -= files < used ? files : 0;
	return used < max ? max - used : 0;
}

/* The group at @path of a mounted hierarchy, and those above it. */
static uint64_t groups_available(const char *mount, char *path, const char *limit,
				 const char *usage)
{
	uint64_t least = UINT64_MAX;

	for (;;) {
		char folder[4096];
		char *slash = strrchr(path, '/');
		uint64_t available;

		snprintf(folder, sizeof(folder), "%s%s", mount, path);
		available = group_available(folder, limit, usage);
		least = available < least ? available : least;
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* A line of /proc/self/cgroup: `0::PATH` of the unified hierarchy, or `N:...,memory:PATH`. */
static uint64_t line_available(char *line)
{
	char *names = strchr(line, ':');
	char *path = names ? strchr(names + 1, ':') : NULL;

	if (!path)
		return UINT64_MAX;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	if (strcmp(line, "0:") == 0)
		return groups_available("/sys/fs/cgroup", path, "memory.max", "memory.current");
	if (strstr(names, "memory"))
		return groups_available("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
					"memory.usage_in_bytes");
	return UINT64_MAX;
}

uint64_t mt_run_memory_available(void)
{
	uint64_t least = number_of("/proc/meminfo", "MemAvailable:");
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[4096];

	least = least > UINT64_MAX / 1024 ? UINT64_MAX : least * 1024;
	while (file && fgets(line, sizeof(line), file)) {
		uint64_t available = line_available(line);

		least = available < least ? available : least;
	}
	if (file)
		fclose(file);
	return least;
}
