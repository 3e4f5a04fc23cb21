/* SPDX-License-Identifier: MIT */
/*
 * A VFS of SQLite that reads a file in larger pieces than pages where its pages are read one after
 * another, which those of blobs and scans are: a page a system call is most of what a whole file
 * costs to read. It is named in the URI a file is opened with, and is any other VFS for files that
 * are not opened for reading alone.
 */
#ifndef MT_CLI_READ_AHEAD_H
#define MT_CLI_READ_AHEAD_H

/* As the parameter of a URI. */
#define MT_READ_AHEAD_PARAMETER "vfs=moetrace-ahead"

/* Makes the VFS known to SQLite, once a process; returns a code of SQLite's. */
int mt_read_ahead_register(void);

#endif
