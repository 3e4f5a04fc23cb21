/* SPDX-License-Identifier: MIT */
/*
 * The trace as a file among others: made exclusively, known by device and number, and removed with
 * what lies beside it. Invariant: no file is touched that the store did not create, also when its
 * name has become another one's meanwhile.
 */
#include "libtrace/store/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Shared memory of a WAL and locks between hosts do not go together. */
int mt_store_file_is_network(const char *path)
{
	static const unsigned int magics[] = {
		0x6969u,     /* NFS */
		0x517bu,     /* SMB */
		0xff534d42u, /* CIFS */
		0xfe534d42u, /* SMB2 */
		0x5346414fu, /* AFS */
		0x73757245u, /* Coda */
		0x00c36400u, /* Ceph */
		0x0bd00bd0u, /* Lustre */
		0x47504653u, /* GPFS */
	};
	struct statfs fs;

	if (statfs(path, &fs))
		return 0;
	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
		if ((unsigned int)fs.f_type == magics[i])
			return 1;
	return 0;
}

/* A journal without its file belongs to a trace that somebody moved: do not touch it. */
static int has_stray_journal(const char *path)
{
	static const char *const suffixes[] = { "-wal", "-journal" };
	char name[4096];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (snprintf(name, sizeof(name), "%s%s", path, suffixes[i]) < (int)sizeof(name) &&
		    access(name, F_OK) == 0)
			return 1;
	return 0;
}

int mt_store_file_create(const char *path, char *ret_error)
{
	int fd;

	if (access(path, F_OK) != 0 && has_stray_journal(path)) {
		snprintf(ret_error, MT_STORE_ERROR_BYTES,
			 "%s: a journal of that name (-wal or -journal) is there without its file; "
			 "if no process records into it any more, move it away",
			 path);
		return MOETRACE_E_EXISTS;
	}
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0) {
		int is_there = errno == EEXIST;

		snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s: cannot create: %s%s", path,
			 strerror(errno),
			 is_there ? "; choose another name or remove it" : "");
		return is_there ? MOETRACE_E_EXISTS : MOETRACE_E_IO;
	}
	return fd;
}

void mt_store_file_take_back(const char *path, int fd)
{
	struct stat created, now;

	if (fstat(fd, &created) == 0 && lstat(path, &now) == 0 &&
	    created.st_dev == now.st_dev && created.st_ino == now.st_ino)
		unlink(path);
}

/* While anybody has the file open, no other one can have its number. */
int mt_store_file_is_own(const struct mt_store *store)
{
	struct stat info;

	return lstat(store->path, &info) == 0 && info.st_dev == store->device &&
	       info.st_ino == store->inode;
}

/*
 * Does another file, or none, have the name? Then what is written is for nobody: readers do not
 * find it, and the journal beside it may be taken for another file's.
 */
int mt_store_file_is_gone(const struct mt_store *store)
{
	struct stat info;

	if (lstat(store->path, &info))
		return errno == ENOENT || errno == ENOTDIR || errno == ESTALE;
	return info.st_dev != store->device || info.st_ino != store->inode;
}

void mt_store_file_remove(const struct mt_store *store)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
	char name[4096];

	if (!mt_store_file_is_own(store))
		return;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (snprintf(name, sizeof(name), "%s%s", store->path, suffixes[i]) <
		    (int)sizeof(name))
			unlink(name);
}

/*
 * SQLite takes the journal away first and then says in the file's header that there is none. A
 * reader that opens the file in between makes an empty one again, which nobody would take away:
 * whoever reads with it keeps the header from being changed, so now nobody does.
 */
void mt_store_file_remove_empty_journal(const struct mt_store *store)
{
	static const char *const suffixes[] = { "-wal", "-shm" };
	char name[4096];
	struct stat info;

	for (size_t i = 0; i < 2 && mt_store_file_is_own(store); i++) {
		if (snprintf(name, sizeof(name), "%s%s", store->path, suffixes[i]) >=
		    (int)sizeof(name))
			return;
		if (i == 0 && (stat(name, &info) != 0 || info.st_size > 0))
			return;
		unlink(name);
	}
}

uint64_t mt_store_file_journal_bytes(const struct mt_store *store)
{
	char name[4096];
	struct stat info;

	if (snprintf(name, sizeof(name), "%s-wal", store->path) >= (int)sizeof(name) ||
	    stat(name, &info))
		return 0;
	return (uint64_t)info.st_size;
}
