/* SPDX-License-Identifier: MIT */
/*
 * Where the loader looks for a library that is named without a folder. glibc tells its folders,
 * those of LD_LIBRARY_PATH and of run paths among them, but not that it looks into its cache behind
 * them and before the system's own. Other loaders tell nothing. Variants of a library for newer
 * processors (glibc-hwcaps) are not looked at.
 */
#include "common/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE_PATH	"/etc/ld.so.cache"
#define MAX_CACHE_BYTES (64 << 20)

/* ---- the cache of glibc's loader ---- */

/* The layout, in the machine's own order. */
struct cache_head {
	char magic[20];
	uint32_t n_entries;
	uint32_t n_string_bytes;
	uint32_t more[5];
};

struct cache_entry {
	int32_t flags;
	uint32_t name, path; /* offsets from the head */
	uint32_t more[3];
};

static const char cache_magic[] = "glibc-ld.so.cache1.1";

_Static_assert(sizeof(struct cache_head) == 48, "glibc's layout");
_Static_assert(sizeof(struct cache_entry) == 24, "glibc's layout");
_Static_assert(sizeof(cache_magic) - 1 == 20, "glibc's layout");

/* The file's bytes, to be freed; NULL: there is none that can be read. */
static char *read_file(const char *path, size_t *ret_n_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat info;
	char *bytes = NULL;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0 &&
	    info.st_size <= MAX_CACHE_BYTES)
		bytes = malloc((size_t)info.st_size);
	if (bytes && pread(fd, bytes, (size_t)info.st_size, 0) != (ssize_t)info.st_size) {
		free(bytes);
		bytes = NULL;
	}
	close(fd);
	if (bytes)
		*ret_n_bytes = (size_t)info.st_size;
	return bytes;
}

/* A string that ends within the cache; NULL: there is none. */
static const char *string_at(const char *cache, size_t n_bytes, uint32_t offset)
{
	return offset < n_bytes && memchr(cache + offset, '\0', n_bytes - offset) ? cache + offset
										  : NULL;
}

static int walk_entries(const char *cache, size_t n_bytes, const char *name,
			mt_library_visit_fn *visit, void *context)
{
	struct cache_head head;
	struct cache_entry entry;
	size_t n_entries;

	if (n_bytes < sizeof(head))
		return 0;
	memcpy(&head, cache, sizeof(head));
	n_entries = (n_bytes - sizeof(head)) / sizeof(entry);
	n_entries = head.n_entries < n_entries ? head.n_entries : n_entries;
	for (size_t i = 0; i < n_entries; i++) {
		const char *entry_name, *path;

		memcpy(&entry, cache + sizeof(head) + i * sizeof(entry), sizeof(entry));
		entry_name = string_at(cache, n_bytes, entry.name);
		path = string_at(cache, n_bytes, entry.path);
		if (entry_name && path && strcmp(entry_name, name) == 0 && visit(context, path))
			return 1;
	}
	return 0;
}

int mt_library_walk_cache(const char *cache_path, const char *name, mt_library_visit_fn *visit,
			  void *context)
{
	size_t n_bytes;
	char *bytes = read_file(cache_path, &n_bytes);
	const char *cache;
	int is_over = 0;

	if (!bytes)
		return 0;
	/* Older ones have another form before this one. */
	cache = memmem(bytes, n_bytes, cache_magic, sizeof(cache_magic) - 1);
	if (cache)
		is_over = walk_entries(cache, n_bytes - (size_t)(cache - bytes), name, visit,
				       context);
	free(bytes);
	return is_over;
}

/* ---- folders ---- */

static int visit_in(const char *folder, size_t n_bytes, const char *name,
		    mt_library_visit_fn *visit, void *context)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%.*s/%s", (int)n_bytes, folder, name);

	return n > 0 && (size_t)n < sizeof(path) && visit(context, path);
}

#ifdef __GLIBC__

/* What the loader searches for the object that this code is a part of; NULL: it does not tell. */
static Dl_serinfo *folders_get(void)
{
	static const char here;
	struct link_map *map = NULL;
	Dl_serinfo *folders, size;
	Dl_info info;

	if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map ||
	    dlinfo(map, RTLD_DI_SERINFOSIZE, &size))
		return NULL;
	folders = malloc(size.dls_size);
	if (folders &&
	    (dlinfo(map, RTLD_DI_SERINFOSIZE, folders) || dlinfo(map, RTLD_DI_SERINFO, folders))) {
		free(folders);
		return NULL;
	}
	return folders;
}

/* The system's own folders: /lib and /usr/lib, with an ending as in /lib64 or one part below them.
 */
static int is_system(const char *folder)
{
	const char *at = strncmp(folder, "/usr/", 5) == 0 ? folder + 4 : folder;
	const char *below;

	if (strncmp(at, "/lib", 4) != 0)
		return 0;
	below = strchr(at + 4, '/');
	return !below || !strchr(below + 1, '/');
}

/* How many of the folders come before the cache: the last ones are the system's, each once. */
static unsigned count_before_cache(const Dl_serinfo *folders)
{
	unsigned n = folders->dls_cnt;

	while (n && is_system(folders->dls_serpath[n - 1].dls_name)) {
		for (unsigned i = n; i < folders->dls_cnt; i++)
			if (strcmp(folders->dls_serpath[i].dls_name,
				   folders->dls_serpath[n - 1].dls_name) == 0)
				return n;
		n--;
	}
	return n;
}

void mt_library_walk(const char *name, mt_library_visit_fn *visit, void *context)
{
	Dl_serinfo *folders = folders_get();
	const unsigned n = folders ? folders->dls_cnt : 0;
	const unsigned n_before = folders ? count_before_cache(folders) : 0;
	int is_over = 0;

	for (unsigned i = 0; i <= n && !is_over; i++) {
		if (i == n_before)
			is_over = mt_library_walk_cache(CACHE_PATH, name, visit, context);
		if (i < n && !is_over)
			is_over = visit_in(folders->dls_serpath[i].dls_name,
					   strlen(folders->dls_serpath[i].dls_name), name, visit,
					   context);
	}
	free(folders);
}

#else

/* Returns whether the walk has ended. */
static int walk_list(const char *list, const char *name, mt_library_visit_fn *visit, void *context)
{
	while (list && *list) {
		const size_t n_bytes = strcspn(list, ":\n");

		if (n_bytes && visit_in(list, n_bytes, name, visit, context))
			return 1;
		list += n_bytes + (list[n_bytes] != '\0');
	}
	return 0;
}

void mt_library_walk(const char *name, mt_library_visit_fn *visit, void *context)
{
	if (!walk_list(secure_getenv("LD_LIBRARY_PATH"), name, visit, context))
		(void)walk_list("/lib:/usr/local/lib:/usr/lib", name, visit, context);
}

#endif
