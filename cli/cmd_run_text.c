/* SPDX-License-Identifier: MIT */
/*
 * The text output of `moetrace run`: a file under a temporary name beside the final one, which it
 * gets only when it is complete. The temporary file is known to the signal handler as long as it
 * exists.
 */
#include "cli/cmd_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/out_file.h"
#include "common/jsonw.h"
#include "common/utf8.h"

/* Signals are held: no file exists that the handler does not know. */
static int temporary_create(struct mt_run_text *text)
{
	int fd = open(text->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0)
		return -1;
	text->out = fdopen(fd, "w");
	if (!text->out) {
		int error = errno;

		close(fd);
		(void)unlink(text->temporary);
		errno = error;
		return -1;
	}
	mt_run_signals_remove(text->temporary);
	return 0;
}

int mt_run_text_open(const struct mt_run_options *options, struct mt_run_text *ret_text)
{
	struct mt_run_text text = {.path = options->text_output, .overwrites = options->overwrites};
	char suffix[32];
	sigset_t before;
	int status;

	*ret_text = text;
	if (!text.path)
		return MT_EXIT_OK;
	snprintf(suffix, sizeof(suffix), ".%ld.tmp", (long)getpid());
	text.temporary = mt_run_text_join(text.path, suffix);
	if (!text.temporary) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	mt_run_signals_hold(&before);
	status = temporary_create(&text);
	mt_run_signals_release(&before);
	if (status < 0) {
		mt_error("%s cannot be written: %s", text.path, strerror(errno));
		free(text.temporary);
		return MT_EXIT_FAILED;
	}
	*ret_text = text;
	return MT_EXIT_OK;
}

static void id_write(struct mt_jsonw *json, const struct mtk_workload_request *request)
{
	mt_jsonw_key(json, "id");
	if (request->id_is_integer)
		mt_jsonw_int64(json, strtoll(request->id, NULL, 10));
	else
		mt_jsonw_string(json, request->id);
}

static const char *finish_name(enum mtk_finish finish)
{
	if (finish == MTK_FINISH_ABORT)
		return "abort";
	return finish == MTK_FINISH_STOP ? "stop" : "length";
}

static void sequence_write(struct mt_jsonw *json, const struct mtk_sequence *sequence)
{
	const struct mtk_workload_request *request = sequence->request;

	mt_jsonw_object_begin(json);
	id_write(json, request);
	mt_jsonw_key(json, "prompt");
	mt_jsonw_bytes(json, request->prompt, request->n_prompt_bytes);
	mt_jsonw_key(json, "text");
	mt_jsonw_bytes(json, sequence->text, sequence->n_generated);
	if (!mt_utf8_is_valid(sequence->text, sequence->n_generated)) {
		mt_jsonw_key(json, "text_hex");
		mt_jsonw_hex(json, sequence->text, sequence->n_generated);
	}
	mt_jsonw_key(json, "finish_reason");
	mt_jsonw_string(json, finish_name(sequence->finish));
	mt_jsonw_object_end(json);
}

/* Replacing needs -f also where the file appeared while the run was on its way. */
static int text_publish(struct mt_run_text *text, struct mt_run_failure *failure)
{
	if (mt_out_file_name(text->temporary, text->path, text->overwrites) < 0) {
		if (errno == EEXIST)
			mt_run_fail(failure,
				    "%s appeared during the run; it is kept, and the text is lost",
				    text->path);
		else
			mt_run_fail(failure, "%s cannot be written: %s", text->path,
				    strerror(errno));
		return MT_EXIT_FAILED;
	}
	text->is_published = true;
	return MT_EXIT_OK;
}

int mt_run_text_finish(struct mt_run_text *text, const struct mtk_server *server,
		       uint32_t n_requests, struct mt_run_failure *failure)
{
	struct mt_jsonw json;
	int status = MOETRACE_OK, error = 0;
	FILE *out = text->out;
	uint32_t i;

	if (!out)
		return MT_EXIT_OK;
	mt_jsonw_init(&json, out);
	for (i = 0; i < n_requests && status == MOETRACE_OK; i++) {
		sequence_write(&json, mtk_server_sequence(server, i));
		status = mt_jsonw_end_line(&json);
	}
	if (status < 0)
		error = errno;
	text->out = NULL;
	if (fclose(out) != 0 && status == MOETRACE_OK) {
		status = MOETRACE_E_IO;
		error = errno;
	}
	if (status < 0) {
		mt_run_fail(failure, "%s cannot be written: %s", text->path, strerror(error));
		return MT_EXIT_FAILED;
	}
	return text_publish(text, failure);
}

void mt_run_text_discard(struct mt_run_text *text)
{
	if (text->out)
		fclose(text->out);
	if (text->temporary && !text->is_published)
		(void)unlink(text->temporary);
	mt_run_signals_remove(NULL);
	free(text->temporary);
	text->out = NULL;
	text->temporary = NULL;
}
