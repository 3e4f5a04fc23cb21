/* SPDX-License-Identifier: MIT */
/*
 * The replaced system calls of io_fault.h. The names are those of SQLite's unix VFS; a build
 * of SQLite uses one of them.
 */
#include "tests/fault/support/io_fault.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <sqlite3.h>

#include "tests/unit/support/suite.h"

static atomic_bool stalled;
static atomic_int n_waiting;
static atomic_int failing;
static _Atomic int64_t writes_until_failure;

/* Waits as long as the disk stands still; -1: this write fails, with errno set. */
static int before_write(void)
{
	n_waiting++;
	while (stalled)
		usleep(1000);
	n_waiting--;
	if (!failing || writes_until_failure-- > 0)
		return 0;
	errno = failing;
	return -1;
}

static ssize_t faulty_pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
	return before_write() == 0 ? pwrite(fd, bytes, n, offset) : -1;
}

static ssize_t faulty_write(int fd, const void *bytes, size_t n)
{
	return before_write() == 0 ? write(fd, bytes, n) : -1;
}

static void replace(const char *name, sqlite3_syscall_ptr function)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

	ck_assert(vfs->iVersion >= 3);
	if (vfs->xGetSystemCall(vfs, name))
		ck_assert_int_eq(vfs->xSetSystemCall(vfs, name, function), SQLITE_OK);
}

void io_fault_install(void)
{
	replace("write", (sqlite3_syscall_ptr)faulty_write);
	replace("pwrite", (sqlite3_syscall_ptr)faulty_pwrite);
	replace("pwrite64", (sqlite3_syscall_ptr)faulty_pwrite);
}

void io_fault_stall(bool is_stalled)
{
	stalled = is_stalled;
}

void io_fault_wait_for_stalled(void)
{
	while (!stalled || !n_waiting)
		usleep(1000);
}

void io_fault_fail(int error, uint32_t n)
{
	writes_until_failure = n;
	failing = error;
}
