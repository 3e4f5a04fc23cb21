/* SPDX-License-Identifier: MIT */
/*
 * `moetrace run`: load a model and a workload, serve it on the engine, record it. Everything that
 * can be refused is refused before an output file is made, so that a run that never started leaves
 * nothing behind. A signal ends the run at the next pass; the recording is then stopped as
 * interrupted and closed like any other, and no text is published.
 */
#include "cli/cmd_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/model_load.h"

/* One pass is in flight at a time; the second ring takes a pass while the first is full. */
#define N_RINGS 2

struct run {
	struct mt_run_options options;
	struct mtk_model *model;
	char *model_name;
	struct mtk_workload *workload;
	struct mt_run_choice choice;
	struct mtk_server *server;
	struct mt_run_text text;
	struct moetrace_session *session;
	struct mt_run_progress progress;
	struct mt_run_result result;
	struct mt_run_failure failure;
	struct mt_compare compare;
};

static int exit_code_of(int status)
{
	if (status == MOETRACE_OK)
		return MT_EXIT_OK;
	return status == MOETRACE_E_NOT_FOUND ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
}

static bool observe(void *context, const struct mtk_serve_stats *stats)
{
	struct run *run = context;

	mt_run_progress_show(&run->progress, stats);
	return !mt_run_signals_seen();
}

static struct mtk_serve_options serve_options(struct run *run)
{
	const struct mt_run_options *options = &run->options;

	return (struct mtk_serve_options){
		.limits = {.n_batch = options->n_batch,
			   .n_chunk = options->n_chunk,
			   .n_context = options->n_context,
			   .stop_byte = options->stop_byte,
			   .n_kv_positions = options->n_kv_positions,
			   .n_abort = options->n_abort,
			   .is_lockstep = options->is_lockstep},
		.n_threads = options->n_threads,
		.backend = options->device.backend,
		.temperature = (float)options->temperature,
		.seed = options->seed,
		.oea = mt_rule_oea(&options->rule),
		.choice = run->choice.choice,
		.reuses_prefixes = options->reuses_prefixes,
		.observe = observe,
		.observe_context = run,
	};
}

static int file_load(struct run *run)
{
	const struct mt_run_options *options = &run->options;
	int exit_code = mt_model_load(options->model, options->n_context, &run->model);

	if (exit_code == MT_EXIT_OK)
		exit_code = mt_model_rule_check(run->model, mt_rule_oea(&options->rule));
	return exit_code;
}

static int model_load(struct run *run)
{
	const struct mt_run_options *options = &run->options;
	struct mtk_serve_options serve = serve_options(run);
	int exit_code;

	if (options->n_compare > 0)
		serve.oea = mt_rule_oea(&options->compare[0]);
	exit_code = run->options.shape ? mt_run_shape_load(&run->options, run->workload, &serve,
							   &run->model)
				       : file_load(run);
	for (uint32_t i = 0; i < options->n_compare && exit_code == MT_EXIT_OK; i++)
		exit_code = mt_model_rule_check(run->model, mt_rule_oea(&options->compare[i]));
	return exit_code;
}

/* The shape, or the file's name without folder and ending: what a reader of the trace calls the model. */
static int model_name_make(struct run *run)
{
	const char *path = run->options.shape ? run->options.shape : run->options.model;
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	const char *ending = strstr(name, ".safetensors");

	run->model_name =
		ending && ending > name ? strndup(name, (size_t)(ending - name)) : strdup(name);
	if (run->model_name)
		return MT_EXIT_OK;
	mt_error("out of memory");
	return MT_EXIT_FAILED;
}

static int workload_load(struct run *run)
{
	struct mtk_error error;
	int status = mtk_workload_read(run->options.workload, &run->workload, &error);

	if (status == MOETRACE_OK && run->options.n_repeat > 1)
		status = mtk_workload_repeat(run->workload, run->options.n_repeat, &error);
	if (status < 0)
		mt_error("%s", error.text);
	return exit_code_of(status);
}

/* A driver starts threads, which take no signal. */
static int device_open(struct run *run)
{
	sigset_t before;
	int exit_code;

	mt_run_signals_hold(&before);
	exit_code = mt_device_open(&run->options.device, run->model);
	mt_run_signals_release(&before);
	return exit_code;
}

static int server_make(struct run *run)
{
	const struct mtk_serve_options serve = serve_options(run);
	struct mtk_error error;
	sigset_t before;
	int status;

	mt_run_signals_hold(&before);
	status = mtk_server_create(run->model, run->workload, &serve, &run->server, &error);
	mt_run_signals_release(&before);
	if (status == MOETRACE_OK)
		return MT_EXIT_OK;
	mt_error("%s", error.text);
	return MT_EXIT_FAILED;
}

/* Whether it was --collect or a variable of the environment that the library refused. */
static bool setting_refuse(const char *text)
{
	static const char option[] = "options: collectors: ";
	static const char variable[] = "MOETRACE_";
	const bool is_option = strncmp(text, option, sizeof(option) - 1) == 0;

	if (is_option)
		mt_error("--collect: %s", text + sizeof(option) - 1);
	else if (strncmp(text, variable, sizeof(variable) - 1) == 0)
		mt_error("%s", text);
	else
		return false;
	return true;
}

/* Another run may have come first; its journal must not be moved away. */
static int session_refuse(const char *path, int status)
{
	struct stat info;

	if (status == MOETRACE_E_INVALID && setting_refuse(moetrace_open_errmsg()))
		return MT_EXIT_USAGE;
	if (mt_run_is_in_use(path))
		mt_error("%s is in use by another process; give another name", path);
	else if (status == MOETRACE_E_EXISTS && lstat(path, &info) == 0)
		mt_error("%s was made by another process just now; give another name", path);
	else
		mt_error("%s", moetrace_open_errmsg());
	return MT_EXIT_FAILED;
}

/* Begin to record at a path where nothing is; a failure leaves nothing there. */
static int session_begin(struct run *run)
{
	const char *path = run->options.output;
	struct moetrace_session_opts session_opts;
	struct moetrace_recording_opts recording_opts;
	char text[512];
	int status;

	MOETRACE_INIT(&session_opts);
	session_opts.engine_name = "moetrace";
	session_opts.engine_version = moetrace_version();
	session_opts.n_rings = N_RINGS;
	session_opts.socket_dir = run->options.socket_dir;
	session_opts.collectors = run->options.collectors;
	status = moetrace_session_open(path, &session_opts, &run->session);
	if (status < 0)
		return session_refuse(path, status);
	MOETRACE_INIT(&recording_opts);
	recording_opts.routing_source = run->options.routing_text;
	recording_opts.mode = run->options.mode;
	recording_opts.sample_every_n_passes = run->options.sample_every_n_passes;
	recording_opts.sample_every_n_requests = run->options.sample_every_n_requests;
	recording_opts.flight_bytes = run->options.flight_bytes;
	recording_opts.flight_seconds = run->options.flight_seconds;
	if (moetrace_start(run->session, &recording_opts) < 0) {
		moetrace_errmsg(run->session, text, sizeof(text));
		mt_error("the recording cannot be started: %s", text);
		(void)moetrace_session_close(run->session);
		run->session = NULL;
		mt_run_recording_discard(path);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

/* Start the recording; what it replaces is kept until that is done. */
static int recording_start(struct run *run)
{
	struct mt_run_aside aside;
	sigset_t before;
	int exit_code;

	mt_run_signals_hold(&before);
	exit_code = mt_run_aside_begin(&run->options, &aside);
	if (exit_code == MT_EXIT_OK) {
		exit_code = session_begin(run);
		mt_run_aside_end(&aside, exit_code == MT_EXIT_OK);
	}
	mt_run_signals_release(&before);
	return exit_code;
}

static uint64_t file_size_bytes(const char *path)
{
	struct stat info;

	return stat(path, &info) < 0 ? 0 : (uint64_t)info.st_size;
}

/* A journal that is still there holds a part of the recording: another program has it open. */
static void journal_mention(struct run *run, int exit_code)
{
	char *journal = mt_run_text_join(run->options.output, "-wal");

	if (journal && file_size_bytes(journal) > 0) {
		if (exit_code == MT_EXIT_OK)
			mt_warn("another program has %s open: its journal %s stays beside it until "
				"that program ends; keep the two together",
				run->options.output, journal);
		else
			mt_run_fail(&run->failure, "its journal %s stays beside it; keep the two "
				    "together", journal);
	}
	free(journal);
}

/* What was stored, and what was not: also the passes after a recording that ended by itself. */
static void recorded_read(struct run *run)
{
	const struct mtk_serve_stats *served = &run->result.served;
	struct moetrace_session_status *recorded = &run->result.recorded;
	uint64_t n_passes =
		served->n_prefill_passes + served->n_decode_passes + served->n_mixed_passes;

	MOETRACE_INIT(recorded);
	if (moetrace_status(run->session, recorded) < 0)
		memset(recorded, 0, sizeof(*recorded));
	if (recorded->is_failed && n_passes > recorded->recorded_passes + recorded->dropped_passes)
		recorded->dropped_passes = n_passes - recorded->recorded_passes;
}

/* Stop and close the recording, whatever the run came to. */
static int recording_finish(struct run *run, const char *reason)
{
	const char *path = run->options.output;
	struct mt_run_result *result = &run->result;
	int exit_code = MT_EXIT_OK;
	char text[512];
	int status;

	if (!run->session)
		return MT_EXIT_OK;
	status = moetrace_stop(run->session, reason);
	recorded_read(run);
	/* An operator may have stopped it before, or never started it. */
	if (status < 0 && (status != MOETRACE_E_STATE || result->recorded.is_failed)) {
		moetrace_errmsg(run->session, text, sizeof(text));
		mt_run_fail(&run->failure, "the recording is not complete: %s", text);
		exit_code = MT_EXIT_FAILED;
	}
	if (moetrace_session_close(run->session) < 0 && exit_code == MT_EXIT_OK) {
		mt_run_fail(&run->failure,
			    "%s could not be closed properly; what was committed is in it", path);
		exit_code = MT_EXIT_FAILED;
	}
	run->session = NULL;
	journal_mention(run, exit_code);
	result->path = path;
	result->file_bytes = file_size_bytes(path);
	return exit_code;
}

/* Serve, and bring the recording to its end. */
static int serve(struct run *run)
{
	const struct mtk_serve_recording recording = {
		.session = run->session,
		.model_name = run->model_name,
		.records_tokens = run->options.records_tokens,
		.records_kernels = run->options.records_kernels,
		.records_margins = run->options.records_margins,
	};
	struct mtk_serve_stats *stats = &run->result.served;
	struct mtk_error error;
	int status = mtk_server_run(run->server, &recording, stats, &error);
	int exit_code;

	mt_run_progress_clear(&run->progress);
	if (status < 0)
		mt_run_fail(&run->failure, "%s", error.text);
	else if (stats->interrupted)
		mt_run_fail(&run->failure, "interrupted by a signal: %u of %u requests were served",
			    stats->n_done, stats->n_requests);
	exit_code = recording_finish(run, status < 0	       ? "failed"
					  : stats->interrupted ? "interrupted"
							       : "finished");
	if (exit_code == MT_EXIT_OK && stats->interrupted && run->result.path)
		mt_run_fail(&run->failure, "the recording was closed");
	if (status < 0 && stats->total_ns == 0 && run->result.path)
		mt_run_recording_discard(run->result.path);
	return status < 0 || stats->interrupted ? MT_EXIT_FAILED : exit_code;
}

static int inputs_load(struct run *run)
{
	int exit_code = mt_run_outputs_check(&run->options);

	if (exit_code == MT_EXIT_OK)
		exit_code = workload_load(run);
	if (exit_code == MT_EXIT_OK)
		exit_code = model_load(run);
	if (exit_code == MT_EXIT_OK)
		exit_code = model_name_make(run);
	if (exit_code == MT_EXIT_OK)
		exit_code = mt_run_choice_make(&run->options, run->model, run->workload,
					       &run->choice);
	if (exit_code == MT_EXIT_OK)
		exit_code = device_open(run);
	if (exit_code == MT_EXIT_OK)
		exit_code = server_make(run);
	return exit_code;
}

/* The text is complete even where the recording is not. */
static int text_write(struct run *run)
{
	const struct mtk_serve_stats *served = &run->result.served;

	if (served->n_done == served->n_requests)
		return mt_run_text_finish(&run->text, run->server, served->n_requests,
					  &run->failure);
	if (run->text.out)
		mt_run_fail(&run->failure, "no text was written");
	return MT_EXIT_FAILED;
}

/* In place of a run: many of them, the last of which is the one that is summed up. */
static int compare(struct run *run)
{
	struct mt_compare *compare = &run->compare;
	int exit_code = recording_start(run);

	/* It showed that everything fits; each run makes one of its own. */
	mtk_server_destroy(run->server);
	run->server = NULL;
	if (exit_code != MT_EXIT_OK)
		return exit_code;
	*compare = (struct mt_compare){
		.options = &run->options,
		.model = run->model,
		.workload = run->workload,
		.model_name = run->model_name,
		.serve = serve_options(run),
		.session = run->session,
		.failure = &run->failure,
		.same_tokens = calloc((size_t)run->options.n_pairs * run->options.n_compare,
				      sizeof(double)),
	};
	exit_code = compare->same_tokens ? mt_compare_serve(compare) : MT_EXIT_FAILED;
	mt_run_progress_clear(&run->progress);
	run->result.served = compare->stats;
	if (recording_finish(run, exit_code == MT_EXIT_OK     ? "finished"
				  : compare->stats.interrupted ? "interrupted"
							       : "failed") != MT_EXIT_OK)
		exit_code = MT_EXIT_FAILED;
	if (exit_code == MT_EXIT_OK)
		exit_code = mt_compare_print(compare, run->options.output);
	if (run->failure.text[0] != '\0')
		mt_error("%s", run->failure.text);
	free(compare->same_tokens);
	return exit_code;
}

static int outputs_write(struct run *run)
{
	int exit_code = mt_run_text_open(&run->options, &run->text);
	int text_exit_code, summary_exit_code = MT_EXIT_OK;

	if (exit_code == MT_EXIT_OK && run->options.output)
		exit_code = recording_start(run);
	if (exit_code != MT_EXIT_OK)
		return exit_code;
	exit_code = serve(run);
	text_exit_code = text_write(run);
	run->result.routing = run->options.routing_text;
	run->result.model = run->model;
	if (run->options.device.is_given)
		run->result.device = run->options.device.text;
	if (run->result.served.total_ns > 0)
		summary_exit_code = mt_run_summary_print(&run->result, run->options.args.format);
	if (run->failure.text[0] != '\0')
		mt_error("%s", run->failure.text);
	if (exit_code != MT_EXIT_OK)
		return exit_code;
	return text_exit_code != MT_EXIT_OK ? text_exit_code : summary_exit_code;
}

int mt_cmd_run(int argc, char **argv)
{
	struct run run = {0};
	int exit_code = mt_run_options_parse(argc, argv, &run.options);

	if (exit_code != MT_EXIT_OK)
		return exit_code;
	exit_code = inputs_load(&run);
	if (exit_code == MT_EXIT_OK) {
		mt_run_signals_catch();
		exit_code = run.options.n_compare > 0 ? compare(&run)
							      : outputs_write(&run);
	}
	/* The server's threads end before the name that the signal handler reads is freed. */
	mtk_server_destroy(run.server);
	mt_device_close(&run.options.device);
	mt_run_text_discard(&run.text);
	mt_run_choice_release(&run.choice);
	mtk_workload_destroy(run.workload);
	mtk_model_destroy(run.model);
	free(run.model_name);
	return exit_code;
}
