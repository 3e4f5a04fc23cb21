/* SPDX-License-Identifier: MIT */
/*
 * The statuses that the headers promise: for each call (but for moetrace_session_open(), see
 * check_open) and each status one test that produces it, and NULL handles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* ---- moetrace_session_close ---- */

START_TEST(test_close)
{
	struct toy toy = toy_open("close.db", NULL, 1, 8, 2);
	char journal[1024];

	ck_assert_int_eq(moetrace_session_close(NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	snprintf(journal, sizeof(journal), "%s-wal", toy.path);
	ck_assert_int_eq(access(toy.path, F_OK), 0);
	ck_assert_int_ne(access(journal, F_OK), 0);
}
END_TEST

/* ---- moetrace_start, moetrace_stop, moetrace_flush ---- */

START_TEST(test_start_and_stop)
{
	struct toy toy = toy_open("start.db", NULL, 1, 8, 2);

	ck_assert_int_eq(moetrace_start(NULL, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_stop(NULL, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_flush(NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	toy_close(&toy);
}
END_TEST

START_TEST(test_stop_timeout)
{
	struct moetrace_session_opts opts = toy_opts();
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_pass *pass;
	struct toy toy;

	opts.stop_timeout_ms = 50;
	toy = toy_start("timeout.db", &opts, 1, 8, 2);
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	toy_finish(&toy, pass, 1);
	toy_close(&toy);
}
END_TEST

/* Recording options of no size. */
START_TEST(test_start_with_wrong_options)
{
	struct toy toy = toy_open("opts.db", NULL, 1, 8, 2);
	struct moetrace_recording_opts opts;

	memset(&opts, 0, sizeof(opts));
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	toy_close(&toy);
}
END_TEST

/* ---- moetrace_model_add ---- */

enum wrong_model {
	MODEL_SIZE,
	MODEL_NAME_NULL,
	MODEL_KIND,
	LAYERS_NULL,
	LAYER_SIZE,
	LAYER_SIZES_DIFFER,
	LAYER_NO_EXPERTS,
	LAYER_NO_TOP_K,
	LAYER_TOP_K_ABOVE_IDS,
	LAYERS_EQUAL,
	LAYERS_DESCEND,
	LAYER_KIND,
	LAYER_SCORING,
	LAYER_TOO_MANY_EXPERTS,
	LAYER_IDS_WRAP,
	LAYER_TOP_K_TOO_LARGE,
	LAYERS_TOO_MANY,
	N_WRONG_MODELS,
};

static int spoil_model(struct moetrace_model_info *info, struct moetrace_layer_info *layers,
		       enum wrong_model wrong)
{
	switch (wrong) {
	case MODEL_SIZE:
		info->size = 0;
		break;
	case MODEL_NAME_NULL:
		info->name = NULL;
		break;
	case MODEL_KIND:
		info->kind = 3;
		break;
	case LAYERS_NULL:
		info->layers = NULL;
		break;
	case LAYER_SIZE:
		layers[0].size = 0;
		break;
	case LAYER_SIZES_DIFFER:
		layers[1].size -= 8;
		break;
	case LAYER_NO_EXPERTS:
		layers[1].n_experts = 0;
		break;
	case LAYER_NO_TOP_K:
		layers[1].top_k = 0;
		break;
	case LAYER_TOP_K_ABOVE_IDS:
		layers[1].top_k = 9;
		break;
	case LAYERS_EQUAL:
		layers[1].layer = layers[0].layer;
		break;
	case LAYERS_DESCEND:
		layers[0].layer = 7;
		break;
	case LAYER_KIND:
		layers[0].kind = 2;
		break;
	case LAYER_SCORING:
		layers[0].scoring = 99;
		break;
	case LAYER_TOO_MANY_EXPERTS:
		layers[0].n_experts = MOETRACE_MAX_EXPERTS + 1;
		return MOETRACE_E_LIMIT;
	case LAYER_IDS_WRAP:
		layers[0].n_shared_slots = UINT32_MAX;
		return MOETRACE_E_LIMIT;
	case LAYER_TOP_K_TOO_LARGE:
		layers[0].n_experts = 1000;
		layers[0].top_k = MOETRACE_MAX_TOP_K + 1;
		return MOETRACE_E_LIMIT;
	default:
		info->n_moe_layers = MOETRACE_MAX_MOE_LAYERS + 1;
		return MOETRACE_E_LIMIT;
	}
	return MOETRACE_E_INVALID;
}

START_TEST(test_model_add_refuses)
{
	struct toy toy = toy_open("models.db", NULL, 1, 8, 2);
	struct moetrace_layer_info *layers = calloc(MOETRACE_MAX_MOE_LAYERS + 1, sizeof(*layers));
	struct moetrace_model_info info;
	uint32_t i, model = 77;
	sqlite3 *db;
	int want;

	ck_assert_ptr_nonnull(layers);
	for (i = 0; i <= MOETRACE_MAX_MOE_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i;
		layers[i].n_experts = 8;
		layers[i].top_k = 2;
	}
	MOETRACE_INIT(&info);
	info.name = "wrong";
	info.layers = layers;
	info.n_moe_layers = 3;
	want = spoil_model(&info, layers, _i);
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), want);
	ck_assert_uint_eq(model, 0);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM model"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM layer"), 1);
	db_close(db);
	free(layers);
}
END_TEST

START_TEST(test_model_add_limits)
{
	struct toy toy = toy_open("many.db", NULL, 1, 8, 2);
	struct moetrace_model_info info;
	uint32_t i, model;

	MOETRACE_INIT(&info);
	info.name = "many";
	ck_assert_int_eq(moetrace_model_add(NULL, &info, &model), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_model_add(toy.session, NULL, &model), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, NULL), MOETRACE_E_INVALID);
	toy_model_add(toy.session, "all layers", 0, MOETRACE_MAX_MOE_LAYERS, 8, 2);
	toy_model_add(toy.session, "all experts", 0, 1, MOETRACE_MAX_EXPERTS, 2);
	for (i = 3; i < MOETRACE_MAX_MODELS; i++) {
		ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), MOETRACE_OK);
		ck_assert_uint_ne(model, 0);
	}
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), MOETRACE_E_LIMIT);
	ck_assert_uint_eq(model, 0);
	toy_close(&toy);
}
END_TEST

/* ---- requests ---- */

START_TEST(test_requests)
{
	static const uint32_t token = 5;
	struct toy toy = toy_start("requests.db", NULL, 1, 8, 2);
	struct moetrace_session *session = toy.session;
	struct moetrace_request_info info;
	uint64_t request = 7;

	ck_assert_int_eq(moetrace_request_begin(NULL, NULL, &request), MOETRACE_E_INVALID);
	ck_assert_uint_eq(request, MOETRACE_NO_REQUEST);
	ck_assert_int_eq(moetrace_request_begin(session, NULL, NULL), MOETRACE_E_INVALID);
	memset(&info, 0, sizeof(info));
	request = 7;
	ck_assert_int_eq(moetrace_request_begin(session, &info, &request), MOETRACE_E_INVALID);
	ck_assert_uint_eq(request, MOETRACE_NO_REQUEST);
	ck_assert_int_eq(moetrace_request_begin(session, NULL, &request), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_attribute_set(NULL, request, "k", "v"),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_attribute_set(session, MOETRACE_NO_REQUEST, "k", "v"),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, NULL, "v"),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "", "v"),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_attribute_set(session, request, "k", NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_tokens(NULL, request, 0, &token, 1), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_tokens(session, request, 0, NULL, 1), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_tokens(session, request, UINT32_MAX, &token, 1),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(NULL, request, MOETRACE_REQUEST_FINISHED, 0),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_end(session, request, 0, 0), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_end(session, request, 4, 0), MOETRACE_E_INVALID);
	ck_assert_int_eq(
		moetrace_request_end(session, MOETRACE_NO_REQUEST, MOETRACE_REQUEST_FINISHED, 0),
		MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_end(session, request, MOETRACE_REQUEST_FAILED, 0),
			 MOETRACE_OK);
	toy_close(&toy);
}
END_TEST

/* Numbers of positions that no sequence has are stored as they are, and cost no memory. */
START_TEST(test_huge_positions)
{
	struct toy toy = toy_start("huge.db", NULL, 1, 8, 2);
	const uint64_t far = toy_request(&toy, "far"), long_one = toy_request(&toy, "long");
	struct rusage before, after;
	sqlite3 *db;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, far, UINT32_MAX - 1, 2));
	ck_assert_int_eq(
		moetrace_request_end(toy.session, far, MOETRACE_REQUEST_FINISHED, UINT32_MAX),
		MOETRACE_OK);
	ck_assert_int_eq(
		moetrace_request_end(toy.session, long_one, MOETRACE_REQUEST_FINISHED, UINT32_MAX),
		MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &after), 0);
	ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 64 * 1024);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM request WHERE external_id = 'far'"),
			 "missing");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE external_id = 'long'"),
			 UINT32_MAX);
	ck_assert_int_eq(db_int(db, "SELECT max(position) FROM token_topk"), UINT32_MAX);
	db_close(db);
}
END_TEST

/* ---- moetrace_status, messages ---- */

START_TEST(test_status_arguments)
{
	struct {
		struct moetrace_session_status status;
		uint64_t later[4];
	} larger;
	struct toy toy = toy_open("status.db", NULL, 1, 8, 2);
	struct moetrace_session_status status;

	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_status(NULL, &status), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_status(toy.session, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_status(toy.session, &status), MOETRACE_OK);
	ck_assert_uint_eq(status.size, sizeof(status));
	status.size = 0;
	ck_assert_int_eq(moetrace_status(toy.session, &status), MOETRACE_E_INVALID);
	status.size = sizeof(status.size);
	ck_assert_int_eq(moetrace_status(toy.session, &status), MOETRACE_E_INVALID);
	status.size = SIZE_MAX;
	ck_assert_int_eq(moetrace_status(toy.session, &status), MOETRACE_E_INVALID);
	/* A program with later headers: what this library does not know is 0. */
	memset(&larger, 0xff, sizeof(larger));
	larger.status.size = sizeof(larger);
	ck_assert_int_eq(moetrace_status(toy.session, &larger.status), MOETRACE_OK);
	ck_assert_uint_eq(larger.status.size, sizeof(larger));
	ck_assert_uint_eq(larger.status.recording_id, 0);
	ck_assert_uint_eq(larger.status.file_limit_bytes, status.file_limit_bytes);
	ck_assert_uint_eq(larger.later[0] | larger.later[3], 0);
	toy_close(&toy);
}
END_TEST

START_TEST(test_errmsg)
{
	struct toy toy = toy_open("errmsg.db", NULL, 1, 8, 2);
	char message[256], small[8];

	moetrace_errmsg(toy.session, message, sizeof(message));
	ck_assert_str_eq(message, "");
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	moetrace_errmsg(toy.session, message, sizeof(message));
	ck_assert_uint_gt(strlen(message), 10);
	ck_assert_ptr_null(strchr(message, '\n'));
	memset(small, 'x', sizeof(small));
	moetrace_errmsg(toy.session, small, sizeof(small));
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
	ck_assert_int_eq(strncmp(small, message, sizeof(small) - 1), 0);
	small[0] = 'y';
	moetrace_errmsg(toy.session, small, 0);
	ck_assert_int_eq(small[0], 'y');
	moetrace_errmsg(toy.session, NULL, 0);
	moetrace_errmsg(NULL, message, sizeof(message));
	ck_assert_str_eq(message, "");
	toy_close(&toy);
}
END_TEST

START_TEST(test_status_strings)
{
#define ONE_STRING(name, value, sentence)         \
	ck_assert_int_eq(MOETRACE_##name, value); \
	ck_assert_str_eq(moetrace_status_string(MOETRACE_##name), sentence);
	MOETRACE_STATUS_MAP(ONE_STRING)
#undef ONE_STRING
	ck_assert_str_eq(moetrace_status_string(1), "unknown status");
	ck_assert_str_eq(moetrace_status_string(-12), "unknown status");
	ck_assert_str_eq(moetrace_status_string(-2147483647 - 1), "unknown status");
}
END_TEST

START_TEST(test_version)
{
	char version[64];

	ck_assert_str_eq(moetrace_version(), MOETRACE_VERSION_STRING);
	snprintf(version, sizeof(version), "%d.%d.%d", MOETRACE_VERSION_MAJOR,
		 MOETRACE_VERSION_MINOR, MOETRACE_VERSION_PATCH);
	ck_assert_str_eq(version, MOETRACE_VERSION_STRING);
}
END_TEST

/* ---- a program whose session did not open ---- */

START_TEST(test_life_without_a_session)
{
	static const uint32_t token = 1;
	struct toy toy = {.n_layers = 2, .n_experts = 8, .top_k = 2};
	struct moetrace_model_info info;
	uint64_t request = 9;
	uint32_t model = 9;

	ck_assert_int_ne(moetrace_session_open("/no/such/folder/x.db", NULL, &toy.session),
			 MOETRACE_OK);
	MOETRACE_INIT(&info);
	info.name = "m";
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), MOETRACE_E_INVALID);
	ck_assert_uint_eq(model, 0);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_begin(toy.session, NULL, &request), MOETRACE_E_INVALID);
	ck_assert_uint_eq(request, MOETRACE_NO_REQUEST);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 0, 1));
	ck_assert_int_eq(moetrace_request_attribute_set(toy.session, request, "k", "v"),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_tokens(toy.session, request, 0, &token, 1),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 1),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
}
END_TEST

/* ---- a forked child ---- */

static int child_contract(struct toy *toy)
{
	static const uint32_t token = 1;
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_model_info info;
	uint64_t request = 9;
	uint32_t model = 9, rule = 9;

	MOETRACE_INIT(&info);
	info.name = "child";
	if (toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1))
		return 1;
	if (moetrace_start(toy->session, NULL) != MOETRACE_E_STATE)
		return 2;
	if (moetrace_stop(toy->session, NULL) != MOETRACE_E_STATE)
		return 3;
	if (moetrace_flush(toy->session) != MOETRACE_E_STATE)
		return 4;
	if (moetrace_model_add(toy->session, &info, &model) != MOETRACE_E_STATE || model != 0)
		return 5;
	if (moetrace_rule_add(toy->session, "child", &rule) != MOETRACE_E_STATE || rule != 0)
		return 11;
	if (moetrace_request_begin(toy->session, NULL, &request) != MOETRACE_E_STATE ||
	    request != 0)
		return 6;
	if (moetrace_request_attribute_set(toy->session, 1, "k", "v") != MOETRACE_E_STATE)
		return 7;
	if (moetrace_request_tokens(toy->session, 1, 0, &token, 1) != MOETRACE_E_STATE)
		return 8;
	if (moetrace_request_end(toy->session, 1, MOETRACE_REQUEST_FINISHED, 0) != MOETRACE_E_STATE)
		return 9;
	return moetrace_session_close(toy->session) == MOETRACE_OK ? 0 : 10;
}

START_TEST(test_forked_child)
{
	struct toy toy = toy_start("child.db", NULL, 1, 8, 2);
	int status;
	pid_t pid;

	toy_request(&toy, "r");
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(child_contract(&toy));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's check %d failed",
		      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	toy_close(&toy);
	agree_check_file(toy.path);
}
END_TEST

static Suite *contract_suite(void)
{
	Suite *suite = suite_create("contract");
	TCase *calls = tcase_create("calls");

	tcase_add_test(calls, test_close);
	tcase_add_test(calls, test_start_and_stop);
	tcase_add_test(calls, test_stop_timeout);
	tcase_add_test(calls, test_start_with_wrong_options);
	tcase_add_loop_test(calls, test_model_add_refuses, 0, N_WRONG_MODELS);
	tcase_add_test(calls, test_model_add_limits);
	tcase_add_test(calls, test_requests);
	tcase_add_test(calls, test_huge_positions);
	tcase_add_test(calls, test_status_arguments);
	tcase_add_test(calls, test_errmsg);
	tcase_add_test(calls, test_status_strings);
	tcase_add_test(calls, test_version);
	tcase_add_test(calls, test_life_without_a_session);
	tcase_add_test(calls, test_forked_child);
	suite_add_tcase(suite, calls);
	return suite;
}

int main(void)
{
	return suite_run(contract_suite());
}
