/* SPDX-License-Identifier: MIT */
/*
 * The folder of control sockets, and names in it: HOST.PID.RANK.N.sock. A socket is always
 * reached through a descriptor of its folder, so the length of the folder's path does not
 * matter, and a folder that somebody puts in its place meanwhile is not taken for it.
 */
#ifndef MT_COMMON_FOLDER_H
#define MT_COMMON_FOLDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MT_FOLDER_PATH_BYTES 4096u
/* "/proc/self/fd/N/" and the name must fit into sun_path. */
#define MT_SOCKET_NAME_BYTES 80u

/**
 * Where the sockets are.
 *
 * @dir       Folder that was asked for; NULL: $XDG_RUNTIME_DIR/moetrace or /tmp/moetrace-UID.
 * @may_make  Make the default folder (0700) if it is not there.
 *
 * Returns  a descriptor, to be closed by the caller; a negative status: it is not there, or not
 *          to be trusted, as @ret_error says (@error_bytes). @ret_path gets the folder's path
 *          (MT_FOLDER_PATH_BYTES) in either case.
 */
int mt_folder_open(const char *dir, int may_make, char *ret_path, char *ret_error,
		   size_t error_bytes);

/* The address of @name in the folder; MOETRACE_OK, or MOETRACE_E_LIMIT: the name is too long. */
int mt_folder_address(int folder_fd, const char *name, struct sockaddr_un *ret_address,
		      socklen_t *ret_n_bytes);

/*
 * Connect to @name, which is no symbolic link, within @timeout_ms (0: at once or not at all); a
 * descriptor whose reads and writes have that limit, too, or the negative errno.
 */
int mt_folder_connect(int folder_fd, const char *name, uint32_t timeout_ms);

/* "HOST.PID.RANK.N.sock" into @ret_name (MT_SOCKET_NAME_BYTES). */
void mt_folder_name(uint32_t rank, uint32_t n, char *ret_name);

/* The process that a name belongs to; 0: it is no name of this host's. */
long mt_folder_name_pid(const char *name);

/* Remove the sockets of this host's processes that have ended without removing them. */
void mt_folder_clean(int folder_fd);

#endif
