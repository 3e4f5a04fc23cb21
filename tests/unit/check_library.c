/* SPDX-License-Identifier: MIT */
/*
 * Looks at libraries before the loader opens them: files that would stop or end the program, and
 * where the loader finds what has no folder. Whole is what this program has loaded.
 */
#include <check.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/library.h"
#include "tests/unit/support/suite.h"

static char whole[4096];

static int take_library(struct dl_phdr_info *info, size_t info_bytes, void *argument)
{
	(void)info_bytes;
	(void)argument;
	if (!info->dlpi_addr || info->dlpi_name[0] != '/' || access(info->dlpi_name, R_OK) != 0)
		return 0;
	snprintf(whole, sizeof(whole), "%s", info->dlpi_name);
	return 1;
}

static void find_whole(void)
{
	ck_assert_int_eq(dl_iterate_phdr(take_library, NULL), 1);
}

/* As many bytes of the whole one, the byte at @changed another one; -1: all of them, or none. */
static const char *make_part(const char *name, long n_bytes, long changed)
{
	const char *path = suite_path(name);
	FILE *from = fopen(whole, "r"), *to = fopen(path, "w");
	int byte;

	ck_assert(from && to);
	for (long i = 0; i != n_bytes && (byte = getc(from)) != EOF; i++)
		putc(i == changed ? byte ^ 3 : byte, to);
	ck_assert_int_eq(fclose(to), 0);
	(void)fclose(from);
	return path;
}

static enum mt_library_state look(const char *path, const char *expected)
{
	char why[256] = "?";
	const enum mt_library_state state = mt_library_look(path, why, sizeof(why));

	ck_assert_msg(strstr(why, expected) != NULL, "%s, not %s", why, expected);
	if (state == MT_LIBRARY_WRONG)
		ck_assert_msg(strncmp(why, path, strnlen(path, 100)) == 0, "no path: %s", why);
	return state;
}

START_TEST(test_look_at_files)
{
	const char *pipe = suite_path("pipe"), *folder = suite_path("folder"),
		   *link = suite_path("link");
	const char *text = suite_path("text");
	FILE *file;

	find_whole();
	ck_assert_int_eq(look(whole, ""), MT_LIBRARY_FOUND);
	ck_assert_int_eq(look(make_part("copy", -1, -1), ""), MT_LIBRARY_FOUND);
	ck_assert_int_eq(look("/nonexistent/libcuda.so.1", ""), MT_LIBRARY_MISSING);
	ck_assert_int_eq(look("/dev/null/libcuda.so.1", ""), MT_LIBRARY_MISSING);
	ck_assert_int_eq(mkfifo(pipe, 0600), 0);
	ck_assert_int_eq(look(pipe, "no regular file"), MT_LIBRARY_WRONG);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(look(folder, "no regular file"), MT_LIBRARY_WRONG);
	ck_assert_int_eq(look("/dev/zero", "no regular file"), MT_LIBRARY_WRONG);
	ck_assert_int_eq(symlink("/nonexistent/x", link), 0);
	ck_assert_int_eq(look(link, "a link that leads nowhere"), MT_LIBRARY_WRONG);
	file = fopen(text, "w");
	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 100; i++)
		fputs("INPUT(-lcuda)\n", file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(look(text, "no ELF file"), MT_LIBRARY_WRONG);
	ck_assert_int_eq(look(make_part("class", -1, EI_CLASS), "for this machine"),
			 MT_LIBRARY_WRONG);
	ck_assert_int_eq(look(make_part("order", -1, EI_DATA), "for this machine"),
			 MT_LIBRARY_WRONG);
}
END_TEST

/* Wherever it was cut, in the header, in the program headers or behind them: nothing is opened. */
START_TEST(test_cut)
{
	char expected[64];
	void *library = &library;
	char why[256];

	find_whole();
	ck_assert_int_eq(look(make_part("cut", 0, -1), "an empty file"), MT_LIBRARY_WRONG);
	ck_assert_int_eq(look(make_part("cut", 40, -1), "no ELF file"), MT_LIBRARY_WRONG);
	for (long n_bytes = sizeof(ElfW(Ehdr)); n_bytes <= 4096; n_bytes *= 4) {
		const char *path = make_part("cut", n_bytes, -1);

		snprintf(expected, sizeof(expected), "cut short: it has %ld bytes and needs ",
			 n_bytes);
		ck_assert_int_eq(look(path, expected), MT_LIBRARY_WRONG);
		ck_assert_int_eq(mt_library_open(path, RTLD_NOW, &library, why, sizeof(why)),
				 MT_LIBRARY_WRONG);
		ck_assert_ptr_eq(library, &library);
	}
}
END_TEST

START_TEST(test_loaded)
{
	const char *name;
	void *library = NULL;
	char path[4096], why[256];

	find_whole();
	name = strrchr(whole, '/') + 1;
	ck_assert_int_eq(mt_library_loaded(name, path, sizeof(path)), 1);
	ck_assert_str_eq(path, whole);
	ck_assert_int_eq(mt_library_loaded("libnone.so.1", path, sizeof(path)), 0);
	ck_assert_int_eq(mt_library_open(name, RTLD_NOW, &library, why, sizeof(why)),
			 MT_LIBRARY_FOUND);
	ck_assert_ptr_nonnull(library);
	ck_assert_int_eq(dlclose(library), 0);
	ck_assert_int_eq(mt_library_open("libnone.so.1", RTLD_NOW, &library, why, sizeof(why)),
			 MT_LIBRARY_MISSING);
	ck_assert_ptr_nonnull(strstr(why, "libnone.so.1"));
}
END_TEST

/* ---- the cache of glibc's loader ---- */

struct places {
	uint32_t n;
	char last[64];
};

static int take_place(void *context, const char *path)
{
	struct places *places = context;

	places->n++;
	snprintf(places->last, sizeof(places->last), "%s", path);
	return strcmp(path, "/second") == 0;
}

/* Four entries, of them two of libx.so, the last one with a path that is nowhere. */
static size_t make_cache(char *ret_bytes)
{
	static const char strings[] = "libx.so\0/first\0/second\0liby.so\0/other";
	const uint32_t begin = 48 + 4 * 24;
	const uint32_t entries[4][2] = {{begin + 23, begin + 31},
					{begin, begin + 8},
					{begin, begin + 15},
					{begin, UINT32_MAX}};
	uint32_t head[2] = {4, sizeof(strings)};

	memset(ret_bytes, 0, begin);
	memcpy(ret_bytes, "glibc-ld.so.cache1.1", 20);
	memcpy(ret_bytes + 20, head, sizeof(head));
	for (int i = 0; i < 4; i++)
		memcpy(ret_bytes + 48 + 24 * i + 4, entries[i], sizeof(entries[i]));
	memcpy(ret_bytes + begin, strings, sizeof(strings));
	return begin + sizeof(strings);
}

static struct places walk(const char *before, const char *bytes, size_t n_bytes, const char *name,
			  int is_over)
{
	static const char *path;
	struct places places = {0};
	FILE *file;

	path = path ? path : suite_path("cache");
	file = fopen(path, "w");
	REQUIRE(file, "%s cannot be written", path);
	fputs(before, file);
	REQUIRE(fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0, "%s: not written",
		path);
	REQUIRE(mt_library_walk_cache(path, name, take_place, &places) == is_over, "%s: %s", name,
		places.last);
	return places;
}

START_TEST(test_cache)
{
	char bytes[512];
	const size_t n_bytes = make_cache(bytes);
	struct places places = walk("", bytes, n_bytes, "libx.so", 1);

	ck_assert_uint_eq(places.n, 2);
	ck_assert_str_eq(places.last, "/second");
	places = walk("ld.so-1.7.0 of older ones", bytes, n_bytes, "liby.so", 0);
	ck_assert_uint_eq(places.n, 1);
	ck_assert_str_eq(places.last, "/other");
	ck_assert_uint_eq(walk("", bytes, n_bytes, "libz.so", 0).n, 0);
	/* Cut anywhere, and with more entries than it has room for: what is whole of it is read. */
	for (size_t n = 0; n < n_bytes; n++)
		REQUIRE(walk("", bytes, n, "liby.so", 0).n <= 1, "%zu bytes", n);
	memset(bytes + 20, 0xff, 4);
	ck_assert_uint_eq(walk("", bytes, n_bytes, "liby.so", 0).n, 1);
	ck_assert_int_eq(mt_library_walk_cache("/dev/zero", "liby.so", take_place, &places), 0);
	ck_assert_int_eq(mt_library_walk_cache("/nonexistent", "liby.so", take_place, &places), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("library");
	TCase *tests = tcase_create("library");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_look_at_files);
	tcase_add_test(tests, test_cut);
	tcase_add_test(tests, test_loaded);
	tcase_add_test(tests, test_cache);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
