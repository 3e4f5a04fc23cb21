/* SPDX-License-Identifier: MIT */
/*
 * moetrace_session_open(): each status that it promises, the ranges of its options, what is
 * left behind after a refusal, and structs of other sizes, here and in the calls that follow.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* Any address that is not NULL, to see that failure sets NULL. */
static struct moetrace_session *const no_session = (struct moetrace_session *)(void *)&no_session;

static uint32_t n_files_beside(const char *path)
{
	char folder[512];
	uint32_t n = 0;
	DIR *dir;

	snprintf(folder, sizeof(folder), "%s", path);
	*strrchr(folder, '/') = 0;
	dir = opendir(folder);
	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
		n += strstr(entry->d_name, strrchr(path, '/') + 1) != NULL;
	closedir(dir);
	return n;
}

/* An open that fails as told: in words, and without a session. */
static void refuse_open(const char *path, const struct moetrace_session_opts *opts, int want)
{
	struct moetrace_session *session = no_session;
	int status = moetrace_session_open(path, opts, &session);
	const char *message = moetrace_open_errmsg();

	ck_assert_msg(status == want, "%d instead of %d: %s", status, want, message);
	ck_assert_ptr_null(session);
	ck_assert_uint_gt(strlen(message), 10);
	ck_assert_ptr_null(strchr(message, '\n'));
}

/* ---- moetrace_session_open ---- */

START_TEST(test_open_null)
{
	struct moetrace_session *session = no_session;

	ck_assert_int_eq(moetrace_session_open(NULL, NULL, &session), MOETRACE_E_INVALID);
	ck_assert_ptr_null(session);
	ck_assert_int_eq(moetrace_session_open(suite_path("x.db"), NULL, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_session_open("", NULL, &session), MOETRACE_E_INVALID);
	ck_assert_ptr_null(session);
}
END_TEST

START_TEST(test_open_defaults)
{
	const char *path = suite_path("defaults.db");
	struct moetrace_session *session = NULL;

	ck_assert_int_eq(moetrace_session_open(path, NULL, &session), MOETRACE_OK);
	ck_assert_ptr_nonnull(session);
	ck_assert_str_eq(moetrace_open_errmsg(), "");
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	agree_check_file(path);
}
END_TEST

/* The file that is there stays as it is, whatever it is. */
START_TEST(test_open_existing)
{
	const char *path = suite_path("exists.db"), *folder = suite_path("folder");
	FILE *file = fopen(path, "w");
	struct stat info;

	ck_assert_ptr_nonnull(file);
	fclose(file);
	refuse_open(path, NULL, MOETRACE_E_EXISTS);
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_int_eq(info.st_size, 0);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	refuse_open(folder, NULL, MOETRACE_E_EXISTS);
	ck_assert_uint_eq(n_files_beside(path), 1);
}
END_TEST

/* A dangling link is no path to a new file elsewhere. */
START_TEST(test_open_link)
{
	const char *link = suite_path("link.db"), *target = suite_path("target.db");

	ck_assert_int_eq(symlink(target, link), 0);
	refuse_open(link, NULL, MOETRACE_E_EXISTS);
	ck_assert_int_ne(access(target, F_OK), 0);
}
END_TEST

START_TEST(test_open_without_folder)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/no/such/folder.db", suite_path("missing"));
	refuse_open(path, NULL, MOETRACE_E_IO);
	snprintf(path, sizeof(path), "/dev/null/x.db");
	refuse_open(path, NULL, MOETRACE_E_IO);
}
END_TEST

START_TEST(test_open_read_only_folder)
{
	const char *folder = suite_path("read-only");
	char path[512];

	ck_assert_int_eq(mkdir(folder, 0500), 0);
	snprintf(path, sizeof(path), "%s/x.db", folder);
	/* The superuser may write everywhere. */
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
		return;
	if (access(folder, X_OK) != 0)
		snprintf(path, sizeof(path), "/x.db");
	refuse_open(path, NULL, MOETRACE_E_IO);
}
END_TEST

START_TEST(test_open_names_that_are_too_long)
{
	static char path[8192];

	memset(path, 'x', sizeof(path) - 1);
	memcpy(path, "/tmp/", 5);
	refuse_open(path, NULL, MOETRACE_E_IO);
}
END_TEST

/* A file that may not grow: nothing is left behind, and no signal ends the program. */
START_TEST(test_open_with_a_file_size_limit)
{
	const char *path = suite_path("limit.db");
	const struct rlimit limit = {.rlim_cur = 16384, .rlim_max = RLIM_INFINITY};
	const struct rlimit unlimited = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	struct moetrace_session *session;
	int status;

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	status = moetrace_session_open(path, NULL, &session);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
	ck_assert_int_eq(status, MOETRACE_E_IO);
	ck_assert_ptr_null(session);
	ck_assert_uint_eq(n_files_beside(path), 0);
}
END_TEST

/* Rings that cannot be had. */
START_TEST(test_open_without_memory)
{
	const char *path = suite_path("memory.db");
	const struct rlimit limit = {.rlim_cur = UINT64_C(1) << 30, .rlim_max = RLIM_INFINITY};
	struct moetrace_session_opts opts;

	if (suite_has_sanitizer("address") || suite_has_sanitizer("thread"))
		return;
	MOETRACE_INIT(&opts);
	opts.n_rings = 64;
	opts.ring_bytes = UINT64_C(4) << 30;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	refuse_open(path, &opts, MOETRACE_E_NOMEM);
	ck_assert_uint_eq(n_files_beside(path), 0);
}
END_TEST

enum option {
	SIZE_ZERO,
	SIZE_SMALL,
	RING_ODD,
	RING_SMALL,
	RING_LARGE,
	RINGS_MANY,
	INTERVAL_SHORT,
	INTERVAL_LONG,
	WEIGHT_FORMAT,
	RANK_TP,
	RANK_PP,
	RANK_EP,
	RANK_DP,
	RANK_WORLD,
	WINDOW_SHORT,
	N_OPTIONS,
};

static void set_wrong(struct moetrace_session_opts *opts, enum option option)
{
	switch (option) {
	case SIZE_ZERO:
		opts->size = 0;
		break;
	case SIZE_SMALL:
		opts->size = sizeof(size_t);
		break;
	case RING_ODD:
		opts->ring_bytes = (UINT64_C(1) << 20) + 1;
		break;
	case RING_SMALL:
		opts->ring_bytes = UINT64_C(1) << 15;
		break;
	case RING_LARGE:
		opts->ring_bytes = UINT64_C(1) << 33;
		break;
	case RINGS_MANY:
		opts->n_rings = 65;
		break;
	case INTERVAL_SHORT:
		opts->commit_interval_ms = 9;
		break;
	case INTERVAL_LONG:
		opts->commit_interval_ms = 10001;
		break;
	case WEIGHT_FORMAT:
		opts->weight_format = 3;
		break;
	case RANK_TP:
		opts->tp = (struct moetrace_rank){2, 2};
		break;
	case RANK_PP:
		opts->pp = (struct moetrace_rank){1, 1};
		break;
	case RANK_EP:
		opts->ep = (struct moetrace_rank){UINT32_MAX, 8};
		break;
	case RANK_DP:
		opts->dp = (struct moetrace_rank){9, 8};
		break;
	case RANK_WORLD:
		opts->world = (struct moetrace_rank){2, 1};
		break;
	default:
		opts->window_ns = 999999;
		break;
	}
}

START_TEST(test_open_options_out_of_range)
{
	const char *path = suite_path("range.db");
	struct moetrace_session_opts opts;

	MOETRACE_INIT(&opts);
	set_wrong(&opts, _i);
	refuse_open(path, &opts, MOETRACE_E_INVALID);
	ck_assert_uint_eq(n_files_beside(path), 0);
}
END_TEST

START_TEST(test_open_options_at_their_ends)
{
	const char *path = suite_path("ends.db");
	struct moetrace_session *session;
	struct moetrace_session_opts opts;

	MOETRACE_INIT(&opts);
	opts.ring_bytes = UINT64_C(1) << 16;
	opts.n_rings = _i ? 64 : 1;
	opts.commit_interval_ms = _i ? 10000 : 10;
	opts.weight_format = _i ? MOETRACE_WEIGHT_FORMAT_NONE : MOETRACE_WEIGHT_FORMAT_FP16;
	opts.window_ns = _i ? UINT64_C(86400000000000) : 1000000;
	ck_assert_int_eq(moetrace_session_open(path, &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	agree_check_file(path);
}
END_TEST

/* The message belongs to the thread and its last open. */
START_TEST(test_open_errmsg)
{
	struct moetrace_session *session;
	char first[512];

	ck_assert_str_eq(moetrace_open_errmsg(), "");
	refuse_open("/no/such/folder/x.db", NULL, MOETRACE_E_IO);
	snprintf(first, sizeof(first), "%s", moetrace_open_errmsg());
	ck_assert_ptr_nonnull(strstr(first, "/no/such/folder/x.db"));
	ck_assert_int_eq(moetrace_session_open(suite_path("errmsg.db"), NULL, &session),
			 MOETRACE_OK);
	ck_assert_str_eq(moetrace_open_errmsg(), "");
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
}
END_TEST

/* A program that was built with later headers has a larger struct; what it does not use is 0. */
START_TEST(test_larger_structs)
{
	struct {
		struct moetrace_session_opts opts;
		uint64_t later[8];
	} larger;
	struct {
		struct moetrace_recording_opts opts;
		uint64_t later[8];
	} larger_recording;
	struct {
		struct moetrace_request_info info;
		uint64_t later[8];
	} larger_request;
	const char *path = suite_path("larger.db");
	struct moetrace_session *session;
	uint64_t request;

	memset(&larger, 0, sizeof(larger));
	larger.opts.size = sizeof(larger);
	ck_assert_int_eq(moetrace_session_open(path, &larger.opts, &session), MOETRACE_OK);
	memset(&larger_recording, 0, sizeof(larger_recording));
	larger_recording.opts.size = sizeof(larger_recording);
	larger_recording.opts.routing_source = "model";
	ck_assert_int_eq(moetrace_start(session, &larger_recording.opts), MOETRACE_OK);
	memset(&larger_request, 0, sizeof(larger_request));
	larger_request.info.size = sizeof(larger_request);
	ck_assert_int_eq(moetrace_request_begin(session, &larger_request.info, &request),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
}
END_TEST

/* The array of layers is walked by the size that its elements say. */
START_TEST(test_larger_layers)
{
	struct {
		struct moetrace_layer_info info;
		uint64_t later[3];
	} layers[3];
	struct toy toy = toy_open("layers.db", NULL, 1, 8, 2);
	struct moetrace_model_info info;
	uint32_t i, model;
	sqlite3 *db;

	memset(layers, 0, sizeof(layers));
	for (i = 0; i < 3; i++) {
		layers[i].info.size = sizeof(layers[i]);
		layers[i].info.layer = 2 * i;
		layers[i].info.n_experts = 10 + i;
		layers[i].info.top_k = 1 + i;
	}
	MOETRACE_INIT(&info);
	info.name = "larger";
	info.layers = &layers[0].info;
	info.n_moe_layers = 3;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), MOETRACE_OK);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(layer || ':' || n_experts || ':' || top_k)"
				 " FROM (SELECT * FROM layer WHERE model_id = 2 ORDER BY layer)"),
			 "0:10:1,2:11:2,4:12:3");
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("open");
	TCase *opening = tcase_create("open");
	TCase *sizes = tcase_create("sizes");

	tcase_add_test(opening, test_open_null);
	tcase_add_test(opening, test_open_defaults);
	tcase_add_test(opening, test_open_existing);
	tcase_add_test(opening, test_open_link);
	tcase_add_test(opening, test_open_without_folder);
	tcase_add_test(opening, test_open_read_only_folder);
	tcase_add_test(opening, test_open_names_that_are_too_long);
	tcase_add_test(opening, test_open_with_a_file_size_limit);
	tcase_add_test(opening, test_open_without_memory);
	tcase_add_loop_test(opening, test_open_options_out_of_range, 0, N_OPTIONS);
	tcase_add_loop_test(opening, test_open_options_at_their_ends, 0, 2);
	tcase_add_test(opening, test_open_errmsg);
	tcase_add_test(sizes, test_larger_structs);
	tcase_add_test(sizes, test_larger_layers);
	suite_add_tcase(suite, opening);
	suite_add_tcase(suite, sizes);
	return suite_run(suite);
}
