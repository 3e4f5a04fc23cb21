/* SPDX-License-Identifier: MIT */
/*
 * The page as one file: script, style and the answers to what the page asks first, as text that no
 * markup can be in. What is asked is written as the page writes it, since an answer is found by its
 * question. The page's script is let through by its hash and nothing else is, and no connection.
 */
#include "viewer/view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "viewer/answer.h"
#include "viewer/page.h"
#include "viewer/timeline.h"

/* Rows of expert load in a file: windows are put together until they are no more. */
#define MAX_LOAD_ROWS 150000
/* Entries of top-k, some 30 bytes each; and of how many requests, and positions of each, at most. */
#define MAX_ENTRIES   150000
#define MAX_REQUESTS  32
#define N_POSITIONS   64
#define MAX_MODELS    16
/* Steps of the timeline, and of all lanes together. */
#define TIMELINE_WIDTH 4000
#define TIMELINE_STEPS 50000
/* Nobody waits before a page: whole files of many GB are read. */
#define LIMIT_MS       3600000

struct export {
	FILE *out;
	const struct mt_view_options *options;
	struct mt_source *source;
	size_t trace;
	size_t n_shares; /* recordings of all traces, about: each may have so much of the limits */
	bool has_answer; /* one was written */
	char *error;
};

struct models {
	size_t n;
	int64_t ids[MAX_MODELS];
};

/* ---- text ---- */

static const struct mt_page_file *page_find(const char *name)
{
	for (size_t i = 0; i < mt_n_page_files; i++)
		if (strcmp(strrchr(mt_page_files[i].name, '/') + 1, name) == 0)
			return &mt_page_files[i];
	return NULL;
}

/* JSON has '<' inside strings alone; as an escape it is no markup. */
static void json_write(FILE *out, const char *bytes, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++) {
		if (bytes[i] == '<')
			fputs("\\u003c", out);
		else if (bytes[i] != '\n')
			putc(bytes[i], out);
	}
}

static void base64_write(FILE *out, const char *text, size_t n_bytes)
{
	const unsigned char *bytes = (const unsigned char *)text;
	char group[4];

	putc('"', out);
	for (size_t i = 0; i < n_bytes; i += 3) {
		mt_base64_group(bytes + i, n_bytes - i, group);
		fwrite(group, 1, sizeof(group), out);
	}
	putc('"', out);
}

/* ---- answers ---- */

static void parameters_split(char *text, struct mt_question *question)
{
	char *rest, *pair = strtok_r(text, "&", &rest);

	for (; pair && question->n_parameters < MT_QUESTION_MAX_PARAMETERS; pair = strtok_r(NULL, "&", &rest)) {
		char *value = strchr(pair, '=');

		if (!value)
			continue;
		*value = '\0';
		question->parameters[question->n_parameters++] =
			(struct mt_parameter){.name = pair, .value = value + 1};
	}
}

static void answer_write(struct export *export, const char *key, const struct mt_view_reply *reply)
{
	fprintf(export->out, "%s\n\"%zu/%s\":", export->has_answer ? "," : "", export->trace, key);
	if (strcmp(reply->content_type, "application/json") == 0)
		json_write(export->out, reply->bytes, reply->n_bytes);
	else
		base64_write(export->out, reply->bytes, reply->n_bytes);
	export->has_answer = true;
}

static void tell(const struct export *export, const char *what, double part)
{
	if (export->options->progress)
		export->options->progress(export->source->name, what, part);
}

/*
 * Ask "NAME?a=1&b=2" and write the answer under @key. What cannot be answered is left out, as the
 * page then says. Returns whether it was answered.
 */
static bool put(struct export *export, const char *key, const char *ask)
{
	char text[256];
	struct mt_question question = {.name = text, .peer_fd = -1, .limit_ms = LIMIT_MS};
	struct mt_view_reply reply;
	char *parameters;
	bool is_good;

	snprintf(text, sizeof(text), "%s", ask);
	parameters = strchr(text, '?');
	if (parameters) {
		*parameters = '\0';
		parameters_split(parameters + 1, &question);
	}
	if (!mt_view_reply_begin(&reply))
		return false;
	tell(export, text, 0);
	mt_answer(&question, export->source, &reply);
	is_good = reply.status == MT_REPLY_OK && reply.bytes;
	if (is_good)
		answer_write(export, key, &reply);
	mt_view_reply_free(&reply);
	return is_good;
}

static bool put_same(struct export *export, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static bool put_same(struct export *export, const char *format, ...)
{
	char ask[256];
	va_list args;

	va_start(args, format);
	vsnprintf(ask, sizeof(ask), format, args);
	va_end(args);
	return put(export, ask, ask);
}

/* ---- what a trace has ---- */

/* Up to @max integers of a statement's first column, with ?1. */
static size_t integers_read(struct export *export, const char *sql, int64_t parameter,
			    int64_t *ret_values, size_t max)
{
	struct mt_source_run *run = mt_source_take(export->source, 60000, -1);
	sqlite3_stmt *stmt;
	size_t n = 0;

	if (!run)
		return 0;
	if (sqlite3_prepare_v2(run->db, sql, -1, &stmt, NULL) == SQLITE_OK) {
		sqlite3_bind_int64(stmt, 1, parameter);
		while (n < max && sqlite3_step(stmt) == SQLITE_ROW)
			ret_values[n++] = sqlite3_column_int64(stmt, 0);
		sqlite3_finalize(stmt);
	}
	mt_source_return(run);
	return n;
}

static void load_put(struct export *export, int64_t recording, int64_t model)
{
	int64_t n_rows = 0, merge;
	char key[96], ask[160];

	integers_read(export, "SELECT count(*) FROM expert_load_window WHERE recording_id = ?1",
		      recording, &n_rows, 1);
	merge = n_rows / (MAX_LOAD_ROWS / (int64_t)export->n_shares + 1) + 1;
	for (int is_windows = 0; is_windows < 2; is_windows++) {
		const char *name = is_windows ? "load_windows" : "load";

		snprintf(key, sizeof(key), "%s?recording=%" PRId64 "&model=%" PRId64, name, recording,
			 model);
		snprintf(ask, sizeof(ask),
			 "%s_merged?recording=%" PRId64 "&model=%" PRId64 "&merge=%" PRId64, name,
			 recording, model, merge);
		put(export, key, merge > 1 ? ask : key);
	}
}

/* As the page chooses: what was told, else the most that divide the experts. */
static void ranks_put(struct export *export, int64_t recording, int64_t model)
{
	int64_t told = 0;
	const int64_t usual[] = {8, 4, 2, 1};

	integers_read(export, "SELECT coalesce(ep_size, 0) FROM process ORDER BY process_id LIMIT ?1", 1,
		      &told, 1);
	if (told > 0)
		put_same(export, "ranks?recording=%" PRId64 "&model=%" PRId64 "&ranks=%" PRId64
				 "&phase=decode", recording, model, told);
	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (usual[i] != told &&
		    put_same(export, "ranks?recording=%" PRId64 "&model=%" PRId64 "&ranks=%" PRId64
				     "&phase=decode", recording, model, usual[i]))
			return;
}

static void request_put(struct export *export, int64_t recording, const struct models *models,
			int64_t request)
{
	int64_t attempt = 0;

	integers_read(export, "SELECT max(attempt) FROM pass_request WHERE request_id = ?1", request,
		      &attempt, 1);
	put_same(export, "request?request=%" PRId64, request);
	put_same(export, "request?request=%" PRId64 "&first=0&last=%d", request, N_POSITIONS - 1);
	put_same(export, "request_topk?request=%" PRId64 "&attempt=%" PRId64 "&first=0&last=%d", request,
		 attempt, N_POSITIONS - 1);
	for (size_t i = 0; i < models->n; i++)
		put_same(export, "load_request?recording=%" PRId64 "&model=%" PRId64 "&request=%" PRId64,
			 recording, models->ids[i], request);
}

/* How many requests of a recording the limit allows, by what a position takes. */
static size_t requests_limit(struct export *export)
{
	int64_t n_entries = 0, n_fit;

	integers_read(export, "SELECT sum(top_k) FROM layer WHERE ?1", 1, &n_entries, 1);
	if (n_entries < 1 || n_entries > MAX_ENTRIES)
		n_entries = 1000;
	n_fit = MAX_ENTRIES / (int64_t)export->n_shares / (n_entries * N_POSITIONS);
	return n_fit < 1 ? 1 : n_fit < MAX_REQUESTS ? (size_t)n_fit : MAX_REQUESTS;
}

/* All of it is read before it is written. */
static void timeline_put(struct export *export, int64_t recording)
{
	struct mt_source *source = export->source;
	struct mt_timeline *timeline;
	char key[96], ask[160];
	size_t n_lanes = 1, width;

	pthread_mutex_lock(&source->timeline_lock);
	timeline = mt_timeline_get(source, recording);
	while (timeline && !mt_timeline_wait(timeline, 200)) {
		mt_timeline_lock(timeline);
		tell(export, "timeline", mt_timeline_progress(timeline));
		if (!timeline->is_reading)
			timeline = NULL; /* it failed, as the answer will say */
		mt_timeline_unlock(source->timeline);
	}
	if (timeline && timeline->n_lanes > 0)
		n_lanes = timeline->n_lanes;
	pthread_mutex_unlock(&source->timeline_lock);
	width = TIMELINE_STEPS / n_lanes / export->n_shares;
	if (width > TIMELINE_WIDTH)
		width = TIMELINE_WIDTH;
	snprintf(key, sizeof(key), "timeline?recording=%" PRId64, recording);
	snprintf(ask, sizeof(ask), "%s&width=%zu", key, width);
	put(export, key, ask);
}

static void recording_put(struct export *export, int64_t recording)
{
	static const char *const sections[] = {"attention",  "slow",	"padding", "recordings", "verdicts",
					       "throughput", "balance", "hottest", "layer_times"};
	int64_t requests[MAX_REQUESTS];
	struct models models;
	size_t n;

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		put_same(export, "report?recording=%" PRId64 "&section=%s", recording, sections[i]);
	put_same(export, "oea?recording=%" PRId64, recording);
	put_same(export, "oea_fit?recording=%" PRId64, recording);
	put_same(export, "oea_notes?recording=%" PRId64, recording);
	put_same(export, "gaps?recording=%" PRId64, recording);
	put_same(export, "sources?recording=%" PRId64, recording);
	put_same(export, "throttles?recording=%" PRId64, recording);
	put_same(export, "requests?recording=%" PRId64, recording);
	timeline_put(export, recording);
	models.n = integers_read(export, "SELECT model_id FROM model WHERE ?1 ORDER BY model_id", 1,
				 models.ids, MAX_MODELS);
	for (size_t i = 0; i < models.n; i++) {
		load_put(export, recording, models.ids[i]);
		ranks_put(export, recording, models.ids[i]);
	}
	n = integers_read(export, "SELECT request_id FROM request WHERE recording_id = ?1 ORDER BY "
				  "request_id", recording, requests, requests_limit(export));
	for (size_t i = 0; i < n; i++)
		request_put(export, recording, &models, requests[i]);
}

static void trace_put(struct export *export)
{
	int64_t recordings[16];
	size_t n = integers_read(export, "SELECT recording_id FROM recording WHERE ?1 ORDER BY "
					 "recording_id", 1, recordings,
				 sizeof(recordings) / sizeof(recordings[0]));

	export->n_shares = (n ? n : 1) * export->options->n_files;
	put(export, "info", "info");
	put(export, "oea_verify", "oea_verify");
	for (size_t i = 0; i < n; i++)
		recording_put(export, recordings[i]);
}

/* ---- the file ---- */

static void session_write(const struct export *export)
{
	const struct mt_view_options *options = export->options;
	char *text = NULL;
	size_t n_bytes;
	FILE *out = open_memstream(&text, &n_bytes);
	struct mt_jsonw json;

	if (!out)
		return;
	mt_jsonw_init(&json, out);
	mt_jsonw_object_begin(&json);
	mt_jsonw_key(&json, "version");
	mt_jsonw_string(&json, options->version);
	mt_jsonw_key(&json, "is_redacted");
	mt_jsonw_boolean(&json, options->is_redacted);
	mt_jsonw_key(&json, "query_limit_ms");
	mt_jsonw_uint64(&json, 0);
	mt_jsonw_key(&json, "left_out");
	mt_jsonw_array_begin(&json);
	mt_jsonw_string(&json, "the experts of each token, but for the first 64 positions of a recording's "
			       "first requests, at most 32");
	mt_jsonw_string(&json, "what is behind a cell or a bar");
	mt_jsonw_string(&json, "the timeline beyond some 4000 steps of time");
	mt_jsonw_string(&json, "windows of time of a recording with very many, which are put together");
	mt_jsonw_string(&json, "SQL");
	if (options->is_redacted)
		mt_jsonw_string(&json, "token ids, ids and attributes of requests, host, program, "
				       "messages, notes and names of ranges (redacted)");
	mt_jsonw_array_end(&json);
	mt_jsonw_key(&json, "traces");
	mt_jsonw_array_begin(&json);
	for (size_t i = 0; i < options->n_files; i++) {
		const char *name = strrchr(options->files[i].path, '/');

		name = name ? name + 1 : options->files[i].path;
		mt_jsonw_object_begin(&json);
		mt_jsonw_key(&json, "name");
		mt_jsonw_string(&json, name);
		mt_jsonw_key(&json, "path");
		mt_jsonw_string(&json, name);
		mt_jsonw_key(&json, "is_live");
		mt_jsonw_boolean(&json, false);
		mt_jsonw_object_end(&json);
	}
	mt_jsonw_array_end(&json);
	mt_jsonw_object_end(&json);
	if (fclose(out) == 0)
		json_write(export->out, text, n_bytes);
	free(text);
}

static bool data_write(struct export *export)
{
	const struct mt_view_options *options = export->options;
	atomic_bool stops = false;
	struct mt_source source;

	fputs("<script type=\"application/json\" id=\"moetrace-data\">{\"session\":", export->out);
	session_write(export);
	fputs(",\"answers\":{", export->out);
	for (size_t i = 0; i < options->n_files; i++) {
		if (!mt_source_init(&source, &options->files[i], options->is_redacted, &stops)) {
			snprintf(export->error, MT_VIEW_ERROR_BYTES, "out of memory");
			return false;
		}
		export->source = &source;
		export->trace = i;
		trace_put(export);
		mt_source_destroy(&source);
	}
	fputs("\n}}</script>\n", export->out);
	return true;
}

/* The page's text up to @mark; returns what follows it. */
static const char *page_until(FILE *out, const char *page, const char *mark)
{
	const char *at = strstr(page, mark);

	if (!at)
		return NULL;
	fwrite(page, 1, (size_t)(at - page), out);
	return at + strlen(mark);
}

bool mt_view_export(const struct mt_view_options *options, FILE *out, char *ret_error)
{
	struct export export = {.out = out, .options = options, .error = ret_error};
	const struct mt_page_file *script = page_find("app.js"), *style = page_find("app.css");
	const struct mt_page_file *hash = page_find("script.sha256");
	const char *rest = page_find("index.html")->bytes;

	rest = page_until(out, rest, "<link rel=\"stylesheet\" href=\"app.css\">");
	if (rest) {
		fprintf(out,
			"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
			"script-src 'sha256-%.*s'; style-src 'unsafe-inline'; img-src data: blob:; "
			"base-uri 'none'; form-action 'none'\">\n<style>",
			(int)strcspn(hash->bytes, "\n"), hash->bytes);
		fwrite(style->bytes, 1, style->n_bytes, out);
		fputs("</style>", out);
		rest = page_until(out, rest, "<script src=\"app.js\"></script>");
	}
	if (!rest) {
		snprintf(ret_error, MT_VIEW_ERROR_BYTES, "the built-in page is not as expected");
		return false;
	}
	if (!data_write(&export))
		return false;
	fputs("<script>", out);
	fwrite(script->bytes, 1, script->n_bytes, out);
	fputs("</script>", out);
	fputs(rest, out);
	return true;
}
