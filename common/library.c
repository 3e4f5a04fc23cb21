/* SPDX-License-Identifier: MIT */
/*
 * What is looked at in a file is what the loader takes for granted: that it is one, for this
 * machine, and as long as its program headers say. Of files that the loader passes over the first
 * one is remembered, since it may be why nothing is found.
 */
#include "common/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)
#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#elif defined(__powerpc64__)
#define MACHINE EM_PPC64
#else
#define MACHINE EM_NONE /* not looked at */
#endif

/* Paths and reasons share a report's line. */
#define SHOWN "%.100s: "

/* What the loader makes of a file. */
enum verdict {
	WHOLE,
	NOTHING, /* there is none */
	PASSED,	 /* it goes on to the next place */
	REFUSED, /* it fails, waits, or ends the program */
};

#ifdef __GLIBC__
#define OTHER_MACHINE PASSED
#else
#define OTHER_MACHINE REFUSED
#endif

static int read_all(int fd, void *ret_bytes, size_t n_bytes, uint64_t offset)
{
	return pread(fd, ret_bytes, n_bytes, (off_t)offset) == (ssize_t)n_bytes ? 0 : -1;
}

struct file {
	const char *path;
	int fd;
	uint64_t size_bytes;
	char *ret_why;
	size_t why_bytes;
};

static enum verdict say(const struct file *file, enum verdict verdict, const char *why)
{
	snprintf(file->ret_why, file->why_bytes, SHOWN "%s", file->path, why);
	return verdict;
}

static enum verdict say_cut(const struct file *file, uint64_t needed_bytes)
{
	snprintf(file->ret_why, file->why_bytes,
		 SHOWN "cut short: it has %llu bytes and needs %llu or more", file->path,
		 (unsigned long long)file->size_bytes, (unsigned long long)needed_bytes);
	return REFUSED;
}

/* The loader maps each of these parts. */
static enum verdict look_at_segments(const struct file *file, const ElfW(Ehdr) * header)
{
	const uint64_t n_bytes = (uint64_t)header->e_phnum * sizeof(ElfW(Phdr));
	uint64_t needed_bytes = 0, end_bytes;
	ElfW(Phdr) segment;
	int n_loaded = 0;

	if (header->e_phoff > file->size_bytes || n_bytes > file->size_bytes - header->e_phoff)
		return say_cut(file, header->e_phoff + n_bytes);
	for (unsigned i = 0; i < header->e_phnum; i++) {
		if (read_all(file->fd, &segment, sizeof(segment),
			     header->e_phoff + i * sizeof(segment)))
			return say(file, REFUSED, "its program headers cannot be read");
		if (segment.p_type != PT_LOAD)
			continue;
		n_loaded++;
		if (__builtin_add_overflow((uint64_t)segment.p_offset, segment.p_filesz,
					   &end_bytes))
			return say(file, REFUSED, "a part that is to be loaded lies nowhere");
		needed_bytes = end_bytes > needed_bytes ? end_bytes : needed_bytes;
	}
	if (needed_bytes > file->size_bytes)
		return say_cut(file, needed_bytes);
	return n_loaded ? WHOLE : say(file, REFUSED, "a shared object with nothing to load");
}

static enum verdict look_into(const struct file *file)
{
	static const char other[] = "no shared object for this machine";
	ElfW(Ehdr) header;

	if (!file->size_bytes)
		return say(file, REFUSED, "an empty file");
	if (read_all(file->fd, &header, sizeof(header), 0) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return say(file, REFUSED, "no ELF file");
	if (header.e_ident[EI_CLASS] != CLASS ||
	    (MACHINE != EM_NONE && header.e_machine != MACHINE))
		return say(file, OTHER_MACHINE, other);
	if (header.e_ident[EI_DATA] != ORDER || header.e_type != ET_DYN ||
	    header.e_phentsize != sizeof(ElfW(Phdr)))
		return say(file, REFUSED, other);
	return look_at_segments(file, &header);
}

/* Why there is no file to be read: of some reasons the loader takes no notice. */
static enum verdict say_errno(const struct file *file)
{
	struct stat info;

	if (errno == ENOENT && lstat(file->path, &info) == 0 && S_ISLNK(info.st_mode))
		return say(file, PASSED, "a link that leads nowhere");
	if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG)
		return NOTHING;
	return say(file, errno == EACCES ? PASSED : REFUSED, strerror(errno));
}

static enum verdict look_at(const char *path, char *ret_why, size_t why_bytes)
{
	struct file file = {.path = path, .ret_why = ret_why, .why_bytes = why_bytes};
	struct stat info;
	enum verdict verdict;

	if (stat(path, &info))
		return say_errno(&file);
	if (!S_ISREG(info.st_mode))
		return say(&file, REFUSED, "no regular file");
	/* Without waiting, should the file be another one by now. */
	file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file.fd < 0)
		return say_errno(&file);
	if (fstat(file.fd, &info)) {
		verdict = say_errno(&file);
	} else {
		file.size_bytes = (uint64_t)info.st_size;
		verdict = look_into(&file);
	}
	close(file.fd);
	return verdict;
}

/* ---- the place where the loader stops ---- */

struct look {
	enum mt_library_state state;
	char *ret_why;
	size_t why_bytes;
};

static int look_here(void *context, const char *path)
{
	struct look *look = context;
	char why[256];
	const enum verdict verdict = look_at(path, why, sizeof(why));

	if (verdict == NOTHING || (verdict == PASSED && look->state == MT_LIBRARY_WRONG))
		return 0;
	look->state = verdict == WHOLE ? MT_LIBRARY_FOUND : MT_LIBRARY_WRONG;
	snprintf(look->ret_why, look->why_bytes, "%s", verdict == WHOLE ? "" : why);
	return verdict != PASSED;
}

enum mt_library_state mt_library_look(const char *name, char *ret_why, size_t why_bytes)
{
	struct look look = {MT_LIBRARY_MISSING, ret_why, why_bytes};
	char path[PATH_MAX];

	snprintf(ret_why, why_bytes, "%s", "");
	if (strchr(name, '/'))
		(void)look_here(&look, name);
	else if (mt_library_loaded(name, path, sizeof(path)))
		look.state = MT_LIBRARY_FOUND;
	else
		mt_library_walk(name, look_here, &look);
	return look.state;
}

/* ---- what is loaded ---- */

struct search {
	const char *name;
	char *ret_path;
	size_t path_bytes;
};

static int is_it(struct dl_phdr_info *info, size_t info_bytes, void *argument)
{
	const struct search *search = argument;
	const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

	(void)info_bytes;
	if (!name || strcmp(name + 1, search->name) != 0 ||
	    strlen(info->dlpi_name) >= search->path_bytes)
		return 0;
	strcpy(search->ret_path, info->dlpi_name);
	return 1;
}

int mt_library_loaded(const char *name, char *ret_path, size_t path_bytes)
{
	struct search search = {name, ret_path, path_bytes};

	return dl_iterate_phdr(is_it, &search);
}

enum mt_library_state mt_library_open(const char *name, int flags, void **ret_library,
				      char *ret_why, size_t why_bytes)
{
	enum mt_library_state state = MT_LIBRARY_MISSING;
	char path[PATH_MAX];
	void *library = NULL;

	if (!strchr(name, '/') && mt_library_loaded(name, path, sizeof(path)))
		library = dlopen(path, flags | RTLD_NOLOAD);
	if (!library) {
		state = mt_library_look(name, ret_why, why_bytes);
		if (state == MT_LIBRARY_WRONG)
			return state;
		library = dlopen(name, flags);
	}
	if (!library) {
		snprintf(ret_why, why_bytes, "%s", dlerror());
		return state == MT_LIBRARY_FOUND ? MT_LIBRARY_WRONG : MT_LIBRARY_MISSING;
	}
	*ret_library = library;
	return MT_LIBRARY_FOUND;
}
