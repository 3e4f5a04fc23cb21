/* SPDX-License-Identifier: MIT */
/*
 * `moetrace run`: load a model and a workload, serve it on the engine, record it. Everything that
 * can be refused is refused before an output file is made, so that a run that never started leaves
 * nothing behind. SIGINT and SIGTERM set a flag that ends the run at the next pass; the recording
 * is then stopped as interrupted and closed like any other. A second signal has its default effect.
 */
#include "cli/cmd_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/engine/qwen3moe_config.h"
#include "kernels/engine/safetensors.h"

/* One pass is in flight at a time; the second ring takes a pass while the first is full. */
#define N_RINGS 2

static volatile sig_atomic_t signal_seen;

struct run {
	struct mt_run_options options;
	struct mtk_model *model;
	char *model_name;
	struct mtk_workload *workload;
	struct mtk_server *server;
	struct mt_run_text text;
	struct moetrace_session *session;
	struct mt_run_progress progress;
	struct mt_run_result result;
};

static void on_signal(int number)
{
	signal_seen = number;
}

static void signals_catch(void)
{
	struct sigaction action = {.sa_handler = on_signal,
				   .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int exit_code_of(int status)
{
	if (status == MOETRACE_OK)
		return MT_EXIT_OK;
	return status == MOETRACE_E_NOT_FOUND ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
}

/* What is wrong with a model file is known; that a tensor is missing does not make it absent. */
static int model_create(struct run *run, struct mtk_safetensors *file)
{
	struct mtk_tensor_source source = mtk_safetensors_source(file);
	struct mtk_model_config config;
	struct mtk_error error;
	char message[MTK_MESSAGE_BYTES];

	if (mtk_qwen3moe_config_read(file, run->options.n_context, &config, &error) < 0) {
		mt_error("%s", error.text);
		return MT_EXIT_FAILED;
	}
	if (mtk_model_create(&config, &source, message, &run->model) < 0) {
		mt_error("%s: %s", run->options.model, message);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

static int model_load(struct run *run)
{
	struct mtk_safetensors *file;
	struct mtk_error error;
	int status = mtk_safetensors_open(run->options.model, &file, &error);
	int exit_code;

	if (status < 0) {
		mt_error("%s", error.text);
		return exit_code_of(status);
	}
	exit_code = model_create(run, file);
	mtk_safetensors_close(file);
	return exit_code;
}

/* The file's name without folder and ending: what a reader of the trace calls the model. */
static int model_name_make(struct run *run)
{
	const char *slash = strrchr(run->options.model, '/');
	const char *name = slash ? slash + 1 : run->options.model;
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

	if (status < 0)
		mt_error("%s", error.text);
	return exit_code_of(status);
}

static bool observe(void *context, const struct mtk_serve_stats *stats)
{
	struct run *run = context;

	mt_run_progress_show(&run->progress, stats);
	return signal_seen == 0;
}

static int server_make(struct run *run)
{
	const struct mt_run_options *options = &run->options;
	struct mtk_serve_options serve = {
		.limits = {.n_batch = options->n_batch,
			   .n_chunk = options->n_chunk,
			   .n_context = options->n_context,
			   .stop_byte = options->stop_byte},
		.n_threads = options->n_threads,
		.temperature = (float)options->temperature,
		.seed = options->seed,
		.observe = observe,
		.observe_context = run,
	};
	struct mtk_error error;

	if (mtk_server_create(run->model, run->workload, &serve, &run->server, &error) ==
	    MOETRACE_OK)
		return MT_EXIT_OK;
	mt_error("%s", error.text);
	return MT_EXIT_FAILED;
}

static void session_error(struct run *run, const char *what)
{
	char text[512];

	/* The recorder's own words name the file where it is at fault. */
	moetrace_errmsg(run->session, text, sizeof(text));
	mt_error("%s: %s", what, text);
}

/* Make the file and start the recording; a failure leaves no file behind. */
static int recording_start(struct run *run)
{
	struct moetrace_session_opts session_opts;
	struct moetrace_recording_opts recording_opts;

	if (run->options.overwrites && mt_run_recording_clear(&run->options) != MT_EXIT_OK)
		return MT_EXIT_FAILED;
	MOETRACE_INIT(&session_opts);
	session_opts.engine_name = "moetrace";
	session_opts.engine_version = moetrace_version();
	session_opts.n_rings = N_RINGS;
	if (moetrace_session_open(run->options.output, &session_opts, &run->session) < 0) {
		mt_error("%s", moetrace_open_errmsg());
		return MT_EXIT_FAILED;
	}
	MOETRACE_INIT(&recording_opts);
	recording_opts.routing_source = "model";
	if (moetrace_start(run->session, &recording_opts) < 0) {
		session_error(run, "the recording cannot be started");
		(void)moetrace_session_close(run->session);
		run->session = NULL;
		mt_run_recording_discard(run->options.output);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

static uint64_t file_size_bytes(const char *path)
{
	struct stat info;

	return stat(path, &info) < 0 ? 0 : (uint64_t)info.st_size;
}

/* Stop and close the recording, whatever the run came to. */
static int recording_finish(struct run *run, const char *reason)
{
	const char *path = run->options.output;
	struct mt_run_result *result = &run->result;
	int exit_code = MT_EXIT_OK;

	if (!run->session)
		return MT_EXIT_OK;
	if (moetrace_stop(run->session, reason) < 0) {
		session_error(run, "the recording is not complete");
		exit_code = MT_EXIT_FAILED;
	}
	MOETRACE_INIT(&result->recorded);
	if (moetrace_status(run->session, &result->recorded) < 0)
		memset(&result->recorded, 0, sizeof(result->recorded));
	if (moetrace_session_close(run->session) < 0 && exit_code == MT_EXIT_OK) {
		mt_error("%s: the file could not be closed properly; what was committed is in it",
			 path);
		exit_code = MT_EXIT_FAILED;
	}
	run->session = NULL;
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
	};
	struct mtk_serve_stats *stats = &run->result.served;
	struct mtk_error error;
	int status = mtk_server_run(run->server, &recording, stats, &error);
	int exit_code;

	mt_run_progress_clear(&run->progress);
	exit_code = recording_finish(run, status < 0	       ? "failed"
					  : stats->interrupted ? "interrupted"
							       : "finished");
	if (status < 0)
		mt_error("%s", error.text);
	else if (stats->interrupted)
		mt_error("interrupted by a signal: %u of %u requests were served%s", stats->n_done,
			 stats->n_requests, run->result.path ? "; the recording was closed" : "");
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
		exit_code = server_make(run);
	return exit_code;
}

static int outputs_write(struct run *run)
{
	int exit_code = mt_run_text_open(&run->options, &run->text);
	int text_exit_code = MT_EXIT_OK, summary_exit_code = MT_EXIT_OK;

	if (exit_code == MT_EXIT_OK && run->options.output)
		exit_code = recording_start(run);
	if (exit_code != MT_EXIT_OK)
		return exit_code;
	exit_code = serve(run);
	/* The text is complete even where the recording is not. */
	if (run->result.served.n_done == run->result.served.n_requests)
		text_exit_code =
			mt_run_text_finish(&run->text, run->server, run->result.served.n_requests);
	if (run->result.served.total_ns > 0)
		summary_exit_code = mt_run_summary_print(&run->result, run->options.args.format);
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
		signals_catch();
		exit_code = outputs_write(&run);
	}
	mt_run_text_discard(&run.text);
	mtk_server_destroy(run.server);
	mtk_workload_destroy(run.workload);
	mtk_model_destroy(run.model);
	free(run.model_name);
	return exit_code;
}
