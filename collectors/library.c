/* SPDX-License-Identifier: MIT */
/*
 * Files that are named as libraries, looked at before the loader opens them. It holds its lock
 * meanwhile, so that a pipe without a writer would stop the whole program, and it maps what the
 * program headers tell of, so that a file that is cut short would end it.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectors/report.h"

#define CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)
/* Of others the loader says that there is no such file. */
#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#elif defined(__powerpc64__)
#define MACHINE EM_PPC64
#else
#define MACHINE EM_NONE /* not looked at */
#endif

static int read_all(int fd, void *ret_bytes, size_t n_bytes, uint64_t offset)
{
	return pread(fd, ret_bytes, n_bytes, (off_t)offset) == (ssize_t)n_bytes ? 0 : -1;
}

/* What is wrong with the file; NULL: nothing. */
static const char *look_at(int fd, uint64_t size)
{
	ElfW(Ehdr) header;
	ElfW(Phdr) segment;
	int n_loaded = 0;

	if (read_all(fd, &header, sizeof(header), 0) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return "no ELF file";
	if (header.e_ident[EI_CLASS] != CLASS || header.e_ident[EI_DATA] != ORDER ||
	    header.e_type != ET_DYN || (MACHINE != EM_NONE && header.e_machine != MACHINE) ||
	    header.e_phentsize != sizeof(segment))
		return "no shared object for this machine";
	for (unsigned i = 0; i < header.e_phnum; i++) {
		if (header.e_phoff > size ||
		    read_all(fd, &segment, sizeof(segment),
			     header.e_phoff + i * (uint64_t)sizeof(segment)))
			return "the file is cut short: its program headers are missing";
		if (segment.p_type != PT_LOAD)
			continue;
		n_loaded++;
		if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)
			return "the file is cut short: a part that is to be loaded lies beyond its end";
	}
	return n_loaded ? NULL : "a shared object with nothing to load";
}

int mtc_is_library(const char *path, char *ret_error, int error_bytes)
{
	const char *wrong;
	struct stat info;
	int fd;

	if (!strchr(path, '/') || stat(path, &info))
		return 1;
	/* Without waiting, should the file be another one by now. */
	fd = S_ISREG(info.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (!S_ISREG(info.st_mode))
		wrong = "no regular file";
	else if (fd < 0 || fstat(fd, &info))
		wrong = strerror(errno);
	else
		wrong = look_at(fd, (uint64_t)info.st_size);
	if (fd >= 0)
		close(fd);
	if (wrong)
		snprintf(ret_error, (size_t)error_bytes, "%.100s: %s; name the library itself", path,
			 wrong);
	return !wrong;
}
