/* SPDX-License-Identifier: MIT */
/*
 * A stranger gets at a new trace between its exclusive creation and SQLite's first lock: moves it
 * away, or puts a file or a link of its own in its place. Opening fails and says so, and nothing of
 * the stranger's is written or deleted. SQLite's hook for system calls gives the stranger its chance.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

#define STRANGER "a stranger's words"

/* When the stranger comes, and what it does. */
enum chance { BEFORE_OPEN, AFTER_OPEN, BEFORE_LOCK, N_CHANCES };
enum deed { MOVES, REPLACES, LINKS, N_DEEDS };

static const char *target; /* NULL: the stranger has been there, or is not to come */
static char moved[1024];
static enum chance chance;
static enum deed deed;

static void act(void)
{
	const char *path = target;
	FILE *file;

	target = NULL;
	snprintf(moved, sizeof(moved), "%s.moved", path);
	REQUIRE(rename(path, moved) == 0, "cannot move %s", path);
	if (deed == REPLACES) {
		file = fopen(path, "w");
		REQUIRE(file && fputs(STRANGER, file) >= 0 && fclose(file) == 0, "cannot write");
	} else if (deed == LINKS) {
		REQUIRE(symlink(moved, path) == 0, "cannot link");
	}
}

static int hooked_open(const char *path, int flags, int mode)
{
	int is_target = target && strcmp(path, target) == 0;
	int fd;

	if (is_target && chance == BEFORE_OPEN)
		act();
	fd = open(path, flags, mode);
	if (is_target && chance == AFTER_OPEN)
		act();
	return fd;
}

static int hooked_fcntl(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (target && chance == BEFORE_LOCK && command == F_SETLK)
		act();
	return fcntl(fd, command, argument);
}

static void hook(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

	ck_assert_int_eq(vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)hooked_open),
			 SQLITE_OK);
	ck_assert_int_eq(vfs->xSetSystemCall(vfs, "fcntl", (sqlite3_syscall_ptr)hooked_fcntl),
			 SQLITE_OK);
}

/* What the stranger left is there, as it was, and the trace has nothing in it. */
static void check_stranger(const char *path)
{
	char text[64] = "";
	struct stat info;
	FILE *file;

	ck_assert_int_eq(stat(moved, &info), 0);
	ck_assert_int_eq(info.st_size, 0);
	if (deed == MOVES) {
		ck_assert_int_ne(access(path, F_OK), 0);
		return;
	}
	ck_assert_int_eq(lstat(path, &info), 0);
	ck_assert_int_eq(S_ISLNK(info.st_mode), deed == LINKS);
	if (deed != REPLACES)
		return;
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_str_eq(text, STRANGER);
}

START_TEST(test_session_open)
{
	const struct moetrace_session_opts opts = toy_opts();
	const char *path = suite_path("new.db");
	struct moetrace_session *session;

	chance = (enum chance)(_i / N_DEEDS);
	deed = (enum deed)(_i % N_DEEDS);
	hook();
	target = path;
	ck_assert_int_eq(moetrace_session_open(path, &opts, &session), MOETRACE_E_IO);
	ck_assert_ptr_null(target);
	ck_assert_msg(strstr(moetrace_open_errmsg(), "moved or replaced") != NULL, "%s",
		      moetrace_open_errmsg());
	ck_assert_ptr_nonnull(strstr(moetrace_open_errmsg(), path));
	check_stranger(path);
	/* No trouble for the next one. */
	ck_assert_int_eq(moetrace_session_open(suite_path("other.db"), &opts, &session),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
}
END_TEST

/* The same for the next file of a rotation: recording goes on in the old one. */
START_TEST(test_rotate)
{
	struct toy toy = toy_start("old.db", NULL, 2, 64, 4);
	const char *path = suite_path("next.db");
	sqlite3 *db;

	chance = (enum chance)_i;
	deed = REPLACES;
	hook();
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	target = path;
	ck_assert_int_eq(moetrace_rotate(toy.session, path), MOETRACE_E_IO);
	check_stranger(path);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replaced");
	TCase *replaced = tcase_create("replaced");

	tcase_add_loop_test(replaced, test_session_open, 0, N_CHANCES * N_DEEDS);
	/* Locks of the old file are taken all the time. */
	tcase_add_loop_test(replaced, test_rotate, 0, BEFORE_LOCK);
	suite_add_tcase(suite, replaced);
	return suite_run(suite);
}
