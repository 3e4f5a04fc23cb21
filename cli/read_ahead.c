/* SPDX-License-Identifier: MIT */
/*
 * What was read ahead is given out only where nobody can have changed it since: while this
 * connection holds the lock that every writer of a file without WAL has to wait for, or where the
 * file is said to be immutable. It is forgotten with the lock. A file with WAL is written while it
 * is read, so nothing is read ahead there.
 */
#include "cli/read_ahead.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sqlite3.h>

enum {
	N_WINDOWS = 4,
	N_ENDS = 8,
	WINDOW_BYTES = 64 << 10,
};

/* What lies in memory of the file; n_bytes 0: nothing. */
struct window {
	sqlite3_int64 at;
	int n_bytes;
	uint64_t last_use;
};

struct ahead_file {
	sqlite3_file base;
	sqlite3_file *real; /* behind this in the same memory */
	bool is_immutable;
	bool has_wal;
	int lock; /* SQLITE_LOCK_... */
	uint64_t clock;
	struct window windows[N_WINDOWS];
	/* Where the last reads ended: one that begins there goes on. */
	sqlite3_int64 ends[N_ENDS];
	unsigned next_end;
	unsigned char *bytes; /* of all windows; NULL: not needed yet */
};

static sqlite3_vfs ahead_vfs;
static sqlite3_vfs *real_vfs;

static struct ahead_file *ahead_of(sqlite3_file *file)
{
	return (struct ahead_file *)file;
}

static sqlite3_file *real_of(sqlite3_file *file)
{
	return ahead_of(file)->real;
}

static void forget(struct ahead_file *file)
{
	memset(file->windows, 0, sizeof(file->windows));
}

/* Whether what was read stays true until the lock is given up. */
static bool is_steady(const struct ahead_file *file)
{
	return file->is_immutable || (file->lock >= SQLITE_LOCK_SHARED && !file->has_wal);
}

static unsigned char *bytes_of(const struct ahead_file *file, const struct window *window)
{
	return file->bytes + (window - file->windows) * (ptrdiff_t)WINDOW_BYTES;
}

static struct window *window_find(struct ahead_file *file, int n, sqlite3_int64 at)
{
	for (int i = 0; i < N_WINDOWS; i++) {
		struct window *window = &file->windows[i];

		if (at >= window->at && at + n <= window->at + window->n_bytes)
			return window;
	}
	return NULL;
}

/* The place in `ends` of a read that ended at @at; -1: there was none lately. */
static int end_find(const struct ahead_file *file, sqlite3_int64 at)
{
	for (int i = 0; i < N_ENDS; i++)
		if (file->ends[i] == at)
			return i;
	return -1;
}

/* NULL: the file ends before a window does, or cannot be read; SQLite is to read itself. */
static struct window *window_read(struct ahead_file *file, sqlite3_int64 at)
{
	struct window *window = &file->windows[0];

	if (!file->bytes)
		file->bytes = sqlite3_malloc(N_WINDOWS * WINDOW_BYTES);
	if (!file->bytes)
		return NULL;
	for (int i = 1; i < N_WINDOWS; i++)
		if (file->windows[i].last_use < window->last_use)
			window = &file->windows[i];
	window->n_bytes = 0;
	if (file->real->pMethods->xRead(file->real, bytes_of(file, window), WINDOW_BYTES, at) !=
	    SQLITE_OK)
		return NULL;
	window->at = at;
	window->n_bytes = WINDOW_BYTES;
	return window;
}

static int ahead_read(sqlite3_file *base, void *to, int n, sqlite3_int64 at)
{
	struct ahead_file *file = ahead_of(base);
	struct window *window;
	int end;

	if (!is_steady(file) || n > WINDOW_BYTES)
		return file->real->pMethods->xRead(file->real, to, n, at);
	window = window_find(file, n, at);
	if (!window) {
		end = end_find(file, at);
		if (end >= 0)
			window = window_read(file, at);
		else
			end = (int)(file->next_end++ % N_ENDS);
		file->ends[end] = at + (window ? WINDOW_BYTES : n);
	}
	if (!window)
		return file->real->pMethods->xRead(file->real, to, n, at);
	window->last_use = ++file->clock;
	memcpy(to, bytes_of(file, window) + (at - window->at), (size_t)n);
	return SQLITE_OK;
}

/* ---- what tells whether the file may change ---- */

static int ahead_lock(sqlite3_file *base, int lock)
{
	struct ahead_file *file = ahead_of(base);
	int rc = file->real->pMethods->xLock(file->real, lock);

	if (rc == SQLITE_OK && lock > file->lock)
		file->lock = lock;
	return rc;
}

static int ahead_unlock(sqlite3_file *base, int lock)
{
	struct ahead_file *file = ahead_of(base);

	if (lock < SQLITE_LOCK_SHARED)
		forget(file);
	if (lock < file->lock)
		file->lock = lock;
	return file->real->pMethods->xUnlock(file->real, lock);
}

/* SQLite asks for it to use the WAL, and before it reads anything that the WAL's writer may write.
 */
static int ahead_shm_map(sqlite3_file *base, int i, int n_bytes, int extends,
			 void volatile **ret_at)
{
	struct ahead_file *file = ahead_of(base);

	file->has_wal = true;
	forget(file);
	return file->real->pMethods->xShmMap(file->real, i, n_bytes, extends, ret_at);
}

/* ---- what is passed on ---- */

static int ahead_close(sqlite3_file *base)
{
	struct ahead_file *file = ahead_of(base);
	int rc = file->real->pMethods->xClose(file->real);

	sqlite3_free(file->bytes);
	file->bytes = NULL;
	return rc;
}

static int ahead_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 at)
{
	forget(ahead_of(file));
	return real_of(file)->pMethods->xWrite(real_of(file), from, n, at);
}

static int ahead_truncate(sqlite3_file *file, sqlite3_int64 n_bytes)
{
	forget(ahead_of(file));
	return real_of(file)->pMethods->xTruncate(real_of(file), n_bytes);
}

static int ahead_sync(sqlite3_file *file, int flags)
{
	return real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int ahead_file_size(sqlite3_file *file, sqlite3_int64 *ret_n_bytes)
{
	return real_of(file)->pMethods->xFileSize(real_of(file), ret_n_bytes);
}

static int ahead_check_reserved(sqlite3_file *file, int *ret_is_reserved)
{
	return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret_is_reserved);
}

static int ahead_control(sqlite3_file *file, int what, void *argument)
{
	return real_of(file)->pMethods->xFileControl(real_of(file), what, argument);
}

static int ahead_sector_size(sqlite3_file *file)
{
	return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int ahead_characteristics(sqlite3_file *file)
{
	return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int ahead_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
	return real_of(file)->pMethods->xShmLock(real_of(file), offset, n, flags);
}

static void ahead_shm_barrier(sqlite3_file *file)
{
	real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int ahead_shm_unmap(sqlite3_file *file, int deletes)
{
	return real_of(file)->pMethods->xShmUnmap(real_of(file), deletes);
}

/* Of version 2: without the mappings of version 3, which would leave nothing to read here. */
static const sqlite3_io_methods ahead_methods = {
	.iVersion = 2,
	.xClose = ahead_close,
	.xRead = ahead_read,
	.xWrite = ahead_write,
	.xTruncate = ahead_truncate,
	.xSync = ahead_sync,
	.xFileSize = ahead_file_size,
	.xLock = ahead_lock,
	.xUnlock = ahead_unlock,
	.xCheckReservedLock = ahead_check_reserved,
	.xFileControl = ahead_control,
	.xSectorSize = ahead_sector_size,
	.xDeviceCharacteristics = ahead_characteristics,
	.xShmMap = ahead_shm_map,
	.xShmLock = ahead_shm_lock,
	.xShmBarrier = ahead_shm_barrier,
	.xShmUnmap = ahead_shm_unmap,
};

static int ahead_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags,
		      int *ret_flags)
{
	struct ahead_file *file = ahead_of(base);
	int rc;

	(void)vfs;
	if (!(flags & SQLITE_OPEN_MAIN_DB) || !(flags & SQLITE_OPEN_READONLY))
		return real_vfs->xOpen(real_vfs, name, base, flags, ret_flags);
	memset(file, 0, sizeof(*file));
	memset(file->ends, 0xff, sizeof(file->ends));
	file->real = (sqlite3_file *)(file + 1);
	rc = real_vfs->xOpen(real_vfs, name, file->real, flags, ret_flags);
	if (rc == SQLITE_OK && file->real->pMethods->iVersion < 2) {
		file->real->pMethods->xClose(file->real);
		return real_vfs->xOpen(real_vfs, name, base, flags, ret_flags);
	}
	/* SQLite closes what has methods, also after an error. */
	file->base.pMethods = file->real->pMethods ? &ahead_methods : NULL;
	file->is_immutable = name && sqlite3_uri_boolean(name, "immutable", 0);
	return rc;
}

/*
 * All functions but xOpen are those of the real VFS: of the VFS that they are given, they look at
 * nothing that is not the same in both.
 */
int mt_read_ahead_register(void)
{
	if (sqlite3_initialize() != SQLITE_OK)
		return SQLITE_ERROR;
	if (real_vfs)
		return SQLITE_OK;
	real_vfs = sqlite3_vfs_find(NULL);
	if (!real_vfs)
		return SQLITE_ERROR;
	ahead_vfs = *real_vfs;
	ahead_vfs.pNext = NULL;
	ahead_vfs.zName = "moetrace-ahead";
	ahead_vfs.szOsFile = (int)sizeof(struct ahead_file) + real_vfs->szOsFile;
	ahead_vfs.xOpen = ahead_open;
	return sqlite3_vfs_register(&ahead_vfs, 0);
}
