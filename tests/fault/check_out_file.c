/* SPDX-License-Identifier: MIT */
/*
 * Files that the command writes, when the steps at their beginning and end fail: the reason is
 * told, what was there is whole, and no temporary file is left. The calls are failed by definitions
 * of this program that go before the C library's.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/out_file.h"
#include "tests/unit/support/suite.h"

/* ---- calls that fail ---- */

static struct {
	int fdopen, fsync, rename, renameat2; /* errno; 0: they work */
} failing;

static int refuse(int error)
{
	errno = error;
	return -1;
}

FILE *fdopen(int fd, const char *mode)
{
	FILE *(*real)(int, const char *) =
		(FILE * (*)(int, const char *)) dlsym(RTLD_NEXT, "fdopen");

	if (!failing.fdopen)
		return real(fd, mode);
	errno = failing.fdopen;
	return NULL;
}

int fsync(int fd)
{
	return failing.fsync ? refuse(failing.fsync) : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
	return failing.rename ? refuse(failing.rename)
			      : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	return failing.renameat2 ? refuse(failing.renameat2)
				 : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

/* ---- what is told, and what is left ---- */

static char told[512];
static char folder[512];

void mt_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(told, sizeof(told), format, args);
	va_end(args);
}

static void setup(void)
{
	snprintf(folder, sizeof(folder), "%s", suite_path("out"));
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(chdir(folder), 0);
}

static void file_put(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	ck_assert_int_eq(fclose(file), 0);
}

static void expect_text(const char *name, const char *want)
{
	char text[64] = "";
	FILE *file = fopen(name, "r");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fread(text, 1, sizeof(text) - 1, file), strlen(want));
	ck_assert_str_eq(text, want);
	fclose(file);
}

/* Files of the folder, of which each begins with the character @begins. */
static void expect_files(int n_files, char begins)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;
	int n = 0;

	ck_assert_ptr_nonnull(stream);
	while ((entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		ck_assert_msg(entry->d_name[0] == begins, "%s is left", entry->d_name);
		n++;
	}
	closedir(stream);
	ck_assert_int_eq(n, n_files);
}

static struct mt_out_file begun(bool overwrites)
{
	struct mt_out_file file;

	ck_assert_int_eq(mt_out_file_begin("page", overwrites, &file), MT_EXIT_OK);
	fputs("new", file.out);
	return file;
}

/* ---- the cases ---- */

START_TEST(test_begin_stream_fails)
{
	struct mt_out_file file;

	failing.fdopen = ENOMEM;
	ck_assert_int_eq(mt_out_file_begin("page", false, &file), MT_EXIT_FAILED);
	ck_assert_str_eq(told, "page cannot be written: Cannot allocate memory; name another file");
	expect_files(0, 'p');
}
END_TEST

START_TEST(test_begin_over_special_file)
{
	struct mt_out_file file;

	ck_assert_int_eq(mkfifo("page", 0600), 0);
	ck_assert_int_eq(mt_out_file_begin("page", true, &file), MT_EXIT_FAILED);
	ck_assert_str_eq(told, "page is not a regular file and is not replaced");
	expect_files(1, 'p');
}
END_TEST

static const struct {
	bool overwrites;
	int fsync, rename, renameat2;
	const char *told;
} ends[] = {
	{true, 0, EIO, 0, "page cannot be written: Input/output error; nothing of it is left"},
	{false, 0, 0, EROFS,
	 "page cannot be written: Read-only file system; nothing of it is left"},
	{false, 0, EACCES, EINVAL,
	 "page cannot be written: Permission denied; nothing of it is left"},
	{true, ENOSPC, 0, 0,
	 "page cannot be written: No space left on device; nothing of it is left"},
};

START_TEST(test_finish_fails)
{
	struct mt_out_file file;

	if (ends[_i].overwrites)
		file_put("page", "old");
	file = begun(ends[_i].overwrites);
	failing.fsync = ends[_i].fsync;
	failing.rename = ends[_i].rename;
	failing.renameat2 = ends[_i].renameat2;
	ck_assert_int_eq(mt_out_file_finish(&file), MT_EXIT_FAILED);
	ck_assert_str_eq(told, ends[_i].told);
	expect_files(ends[_i].overwrites, 'p');
	if (ends[_i].overwrites)
		expect_text("page", "old");
}
END_TEST

/* _i: whether the file system cannot rename with a condition. */
START_TEST(test_finish_over_what_appeared)
{
	struct mt_out_file file = begun(false);

	failing.renameat2 = _i ? EINVAL : 0;
	file_put("page", "theirs");
	ck_assert_int_eq(mt_out_file_finish(&file), MT_EXIT_FAILED);
	ck_assert_str_eq(
		told,
		"page appeared meanwhile and is kept; give another name, or -f to replace it");
	expect_text("page", "theirs");
	expect_files(1, 'p');
}
END_TEST

START_TEST(test_finish_good)
{
	struct mt_out_file file = begun(false);

	failing.renameat2 = _i ? EINVAL : 0;
	ck_assert_int_eq(mt_out_file_finish(&file), MT_EXIT_OK);
	expect_text("page", "new");
	expect_files(1, 'p');
}
END_TEST

START_TEST(test_discard)
{
	struct mt_out_file file = begun(false);

	mt_out_file_discard(&file);
	expect_files(0, 'p');
}
END_TEST

START_TEST(test_interrupted)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		begun(false);
		raise(SIGTERM);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	expect_files(0, 'p');
}
END_TEST

START_TEST(test_interrupt_ignored)
{
	struct mt_out_file file;

	signal(SIGHUP, SIG_IGN);
	file = begun(false);
	raise(SIGHUP);
	ck_assert_int_eq(mt_out_file_finish(&file), MT_EXIT_OK);
	expect_text("page", "new");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("out_file");
	TCase *tests = tcase_create("out_file");

	tcase_add_checked_fixture(tests, setup, NULL);
	tcase_add_test(tests, test_begin_stream_fails);
	tcase_add_test(tests, test_begin_over_special_file);
	tcase_add_loop_test(tests, test_finish_fails, 0, (int)(sizeof(ends) / sizeof(ends[0])));
	tcase_add_loop_test(tests, test_finish_over_what_appeared, 0, 2);
	tcase_add_loop_test(tests, test_finish_good, 0, 2);
	tcase_add_test(tests, test_discard);
	tcase_add_test(tests, test_interrupted);
	tcase_add_test(tests, test_interrupt_ignored);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
