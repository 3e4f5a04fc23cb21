/* SPDX-License-Identifier: MIT */
/*
 * The verbs of the control socket. Each does what a call of <moetrace/session.h> does, and
 * fails with its status and its words.
 */
#include "libtrace/control/commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libtrace/clock.h"
#include "libtrace/control/server.h"
#include "libtrace/options.h"
#include "libtrace/overhead.h"

struct verb {
	const char *name;
	const char *arguments; /* keys that it takes, each with a blank behind it */
	const char *help;
	void (*run)(struct mt_control *control, const struct mt_control_line *line,
		    struct mt_reply *reply);
};

static void help(struct mt_control *control, const struct mt_control_line *line,
		 struct mt_reply *reply);

void mt_control_open(struct mt_control *control, struct moetrace_session *session)
{
	control->session = session;
	control->speaker = NULL;
	control->owner = NULL;
}

void mt_control_close(struct mt_control *control)
{
	mt_overhead_end(control->session);
	control->owner = NULL;
}

/* Why a call failed: the session's words, else the status's own. */
static void end(struct mt_control *control, struct mt_reply *reply, int status)
{
	char text[512];

	moetrace_errmsg(control->session, text, sizeof(text));
	mt_reply_end(reply, status, *text ? text : moetrace_status_string(status));
}

static void hello(struct mt_control *control, struct mt_reply *reply)
{
	const struct moetrace_session *session = control->session;
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1))
		host[0] = '\0';
	mt_reply_text(reply, "name", session->opts.session_name);
	mt_reply_number(reply, "pid", (uint64_t)getpid());
	mt_reply_text(reply, "host", host);
	mt_reply_number(reply, "rank", mt_options_rank(&session->opts));
}

static void status(struct mt_control *control, const struct mt_control_line *line,
		   struct mt_reply *reply)
{
	struct moetrace_session_status now;
	char path[MT_PATH_BYTES];
	int result;

	(void)line;
	MOETRACE_INIT(&now);
	result = moetrace_status(control->session, &now);
	if (result) {
		end(control, reply, result);
		return;
	}
	hello(control, reply);
	mt_session_path(control->session, path, sizeof(path));
	mt_reply_text(reply, "file", path);
	mt_reply_text(reply, "state", now.is_recording ? "recording" :
						    now.is_failed    ? "failed" :
								       "idle");
	mt_reply_number(reply, "recording_id", now.recording_id);
	mt_reply_number(reply, "recording_ns", now.recording_ns);
	mt_reply_number(reply, "recorded_passes", now.recorded_passes);
	mt_reply_number(reply, "recorded_rows", now.recorded_rows);
	mt_reply_number(reply, "recorded_assignments", now.recorded_assignments);
	mt_reply_number(reply, "dropped_passes", now.dropped_passes);
	mt_reply_number(reply, "dropped_layers", now.dropped_layers);
	mt_reply_number(reply, "dropped_bytes", now.dropped_bytes);
	mt_reply_number(reply, "misuse", now.misuse);
	mt_reply_double(reply, "passes_per_s", now.passes_per_s);
	mt_reply_double(reply, "rows_per_s", now.rows_per_s);
	mt_reply_double(reply, "file_mb_per_s", now.file_bytes_per_s / 1e6);
	mt_reply_number(reply, "file_bytes", now.file_bytes);
	mt_reply_number(reply, "file_limit_bytes", now.file_limit_bytes);
	mt_reply_double(reply, "limit_in_s", now.limit_in_s);
	mt_reply_number(reply, "ring_bytes", now.ring_bytes);
	mt_reply_number(reply, "ring_fill_bytes", now.ring_fill_bytes);
	mt_reply_number(reply, "ring_peak_bytes", now.ring_peak_bytes);
	mt_reply_number(reply, "writer_cpu_ns", now.writer_cpu_ns);
	mt_reply_number(reply, "control_cpu_ns", now.control_cpu_ns);
	mt_reply_number(reply, "memory_bytes", now.memory_bytes);
	mt_reply_number(reply, "flight_bytes", now.flight_bytes);
	mt_reply_number(reply, "flight_fill_bytes", now.flight_fill_bytes);
	mt_reply_number(reply, "flight_passes", now.flight_passes);
	mt_reply_end(reply, MOETRACE_OK, NULL);
}

static void start(struct mt_control *control, const struct mt_control_line *line,
		  struct mt_reply *reply)
{
	const char *mode = mt_control_line_value(line, "mode");
	struct mt_recording_opts last;
	int number = mode ? mt_mode_parse(mode) : -1;
	int result;

	if (mode && number < 0) {
		mt_reply_end(reply, MOETRACE_E_INVALID, "mode is per_token, per_pass or stat");
		return;
	}
	mt_session_last_opts(control->session, &last);
	if (mode)
		last.opts.mode = (uint32_t)number;
	if (mt_control_line_value(line, "source"))
		last.opts.routing_source = mt_control_line_value(line, "source");
	result = mt_session_start(control->session, &last.opts);
	if (result)
		end(control, reply, result);
	else
		status(control, line, reply);
}

static void stop(struct mt_control *control, const struct mt_control_line *line,
		 struct mt_reply *reply)
{
	int result = moetrace_stop(control->session, mt_control_line_value(line, "reason"));

	if (result)
		end(control, reply, result);
	else
		status(control, line, reply);
}

static void rotate(struct mt_control *control, const struct mt_control_line *line,
		   struct mt_reply *reply)
{
	int result = moetrace_rotate(control->session, mt_control_line_value(line, "path"));

	if (result)
		end(control, reply, result);
	else
		status(control, line, reply);
}

static void dump(struct mt_control *control, const struct mt_control_line *line,
		 struct mt_reply *reply)
{
	struct moetrace_dump_result dumped;
	int result;

	(void)line;
	MOETRACE_INIT(&dumped);
	result = moetrace_dump(control->session, &dumped);
	if (result) {
		end(control, reply, result);
		return;
	}
	mt_reply_text(reply, "file", dumped.path);
	mt_reply_number(reply, "recording_id", dumped.recording_id);
	mt_reply_number(reply, "last_pass_id", dumped.last_pass_id);
	mt_reply_number(reply, "commit_ns", dumped.commit_ns);
	mt_reply_end(reply, MOETRACE_OK, NULL);
}

/* A whole number in [min, max]; -1: it is none. */
static int64_t whole_number(const char *text, uint32_t min, uint32_t max)
{
	uint64_t value = 0;

	for (const char *at = text; *at; at++) {
		if (*at < '0' || *at > '9' || value > max)
			return -1;
		value = value * 10 + (uint64_t)(*at - '0');
	}
	return value >= min && value <= max ? (int64_t)value : -1;
}

/* Who reads the file finds passes that were left out: here is why. */
static void note_measurement(struct moetrace_session *session)
{
	struct mt_message *message = mt_message_new(
		MT_MESSAGE_DIAGNOSTIC,
		"the cost of recording was measured: every other block of passes was left out",
		"session");

	if (message)
		mt_session_post(session, message);
}

static void overhead(struct mt_control *control, const struct mt_control_line *line,
		     struct mt_reply *reply)
{
	const char *pairs = mt_control_line_value(line, "pairs");
	const char *block = mt_control_line_value(line, "block_ms");
	int64_t n_pairs = whole_number(pairs ? pairs : "20", 1, MT_OVERHEAD_MAX_PAIRS);
	int64_t block_ms = whole_number(block ? block : "1000", MT_OVERHEAD_MIN_BLOCK_MS,
					MT_OVERHEAD_MAX_BLOCK_MS);
	const struct mt_overhead *begun;
	int result;

	if (n_pairs < 0 || block_ms < 0) {
		mt_reply_end(reply, MOETRACE_E_INVALID,
			     "pairs is 1 to 1000, block_ms is 20 to 60000");
		return;
	}
	if (control->owner) {
		mt_reply_end(reply, MOETRACE_E_STATE,
			     "its cost is being measured already; wait until that is over");
		return;
	}
	if (!atomic_load(&control->session->recording_id)) {
		mt_reply_end(reply, MOETRACE_E_STATE, "nothing is recorded; start a recording first");
		return;
	}
	result = mt_overhead_begin(control->session, (uint32_t)n_pairs, (uint32_t)block_ms);
	if (result) {
		end(control, reply, result);
		return;
	}
	control->owner = control->speaker;
	note_measurement(control->session);
	begun = atomic_load(&control->session->overhead);
	mt_reply_number(reply, "start_ns", begun->start_ns);
	mt_reply_number(reply, "block_ns", begun->block_ns);
	mt_reply_number(reply, "n_blocks", begun->n_blocks);
	mt_reply_end(reply, MOETRACE_OK, NULL);
}

/* So many samples an answer. */
#define SAMPLES_AT_ONCE 4096u

static void samples(struct mt_control *control, const struct mt_control_line *line,
		    struct mt_reply *reply)
{
	struct moetrace_session *session = control->session;
	struct mt_overhead *measured = atomic_load(&session->overhead);
	const struct mt_overhead_sample *sample = NULL;
	uint64_t now_ns = mt_session_ns(session, mt_monotonic_ns());
	uint64_t n_taken;

	(void)line;
	if (control->owner != control->speaker) {
		mt_reply_end(reply, MOETRACE_E_STATE, "this peer measures nothing; say overhead first");
		return;
	}
	for (uint32_t i = 0; i < SAMPLES_AT_ONCE && (sample = mt_overhead_next(measured)); i++)
		mt_reply_line(reply, "sample %llu %u %u %u", (unsigned long long)sample->time_ns,
			      sample->model, sample->phase, sample->n_rows);
	n_taken = atomic_load(&measured->n_taken);
	mt_reply_number(reply, "n_missing",
			n_taken > MT_OVERHEAD_MAX_SAMPLES ? n_taken - MT_OVERHEAD_MAX_SAMPLES : 0);
	mt_reply_text(reply, "state", atomic_load(&session->recording_id) ? "recording" : "idle");
	mt_reply_number(reply, "now_ns", now_ns);
	mt_reply_number(reply, "has_more", sample != NULL);
	mt_reply_end(reply, MOETRACE_OK, NULL);
}

static const struct verb verbs[] = {
	{ "help", "", "the verbs", help },
	{ "status", "", "what the session is doing", status },
	{ "start", "mode source ", "start a recording; mode=per_token|per_pass|stat source=NAME",
	  start },
	{ "stop", "reason ", "stop the recording; reason=WORD", stop },
	{ "rotate", "path ", "go on in another file; path=FILE", rotate },
	{ "overhead", "pairs block_ms ",
	  "leave out every other block of passes until this connection ends; pairs=N block_ms=N",
	  overhead },
	{ "samples", "", "begins of passes that overhead has kept: ns, model, phase, rows", samples },
	{ "dump", "",
	  "commit, or write what flight mode kept, and say where the recording can be read",
	  dump },
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void help(struct mt_control *control, const struct mt_control_line *line,
		 struct mt_reply *reply)
{
	(void)control;
	(void)line;
	for (size_t i = 0; i < N_VERBS; i++)
		mt_reply_text(reply, verbs[i].name, verbs[i].help);
	mt_reply_end(reply, MOETRACE_OK, NULL);
}

/* The first key that the verb does not take; NULL: there is none. */
static const char *unknown_key(const struct verb *verb, const struct mt_control_line *line)
{
	for (uint32_t i = 0; i < line->n_args; i++) {
		size_t n = strlen(line->args[i].key);
		const char *at = verb->arguments;

		while (*at && (strncmp(at, line->args[i].key, n) != 0 || at[n] != ' '))
			at = strchr(at, ' ') + 1;
		if (!*at)
			return line->args[i].key;
	}
	return NULL;
}

void mt_control_execute(struct mt_control *control, struct mt_peer *peer,
			const struct mt_control_line *line, struct mt_reply *reply)
{
	char text[128];

	control->speaker = peer;
	for (size_t i = 0; i < N_VERBS; i++) {
		const char *key;

		if (strcmp(verbs[i].name, line->verb) != 0)
			continue;
		key = unknown_key(&verbs[i], line);
		if (!key) {
			verbs[i].run(control, line, reply);
			return;
		}
		snprintf(text, sizeof(text), "%s has no argument %.40s; 'help' lists them",
			 verbs[i].name, key);
		mt_reply_end(reply, MOETRACE_E_INVALID, text);
		return;
	}
	snprintf(text, sizeof(text), "unknown verb %.40s; 'help' lists them", line->verb);
	mt_reply_end(reply, MOETRACE_E_INVALID, text);
}

void mt_control_gone(struct mt_control *control, const struct mt_peer *peer)
{
	if (control->owner != peer)
		return;
	mt_overhead_end(control->session);
	control->owner = NULL;
}

int mt_control_is_owner(const struct mt_control *control, const struct mt_peer *peer)
{
	return control->owner == peer;
}
