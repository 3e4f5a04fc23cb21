/* SPDX-License-Identifier: MIT */
/*
 * What all pictures have: which recording and model they are of, a head that says so, and below the
 * figure what it leaves out.
 */
#include "cli/plot.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/notes.h"
#include "cli/request_find.h"
#include "schema/functions/questions.h"

#define HEAD_PX	  56
#define MAX_NOTES 32
/* Of a heading or a subtitle, what fits is shown; a <title> has all of it. */
#define MAX_NAME_BYTES 160

/* ---- notes ---- */

void mt_plot_note(struct mt_plot_frame *frame, const char *format, ...)
{
	char **grown;
	char *text;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		return;
	grown = frame->n_notes < MAX_NOTES
			? realloc(frame->notes, (frame->n_notes + 1) * sizeof(*grown))
			: NULL;
	if (!grown) {
		free(text);
		return;
	}
	frame->notes = grown;
	grown[frame->n_notes++] = text;
}

static int notes_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		      struct mt_plot_frame *frame)
{
	const bool needs_rows =
		options->request || options->attribute || options->value == MT_PLOT_WEIGHT;
	sqlite3_stmt *stmt = mt_notes_prepare(trace, (uint64_t)frame->recording_id,
					      needs_rows ? MT_NOTES_ROWS : MT_NOTES_LOAD);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const unsigned char *text =
			sqlite3_column_text(stmt, sqlite3_column_count(stmt) - 1);

		if (text)
			mt_plot_note(frame, "%s", (const char *)text);
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

/* ---- which recording and model ---- */

/* One integer with ?1 and ?2; 0 where there is none. */
static int number_read(const struct mt_trace *trace, const char *sql, int64_t first, int64_t second,
		       int64_t *ret_value)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);
	int rc;

	*ret_value = 0;
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, first);
	sqlite3_bind_int64(stmt, 2, second);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret_value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

static int request_choose(const struct mt_trace *trace, const struct mt_plot_options *options,
			  struct mt_plot_frame *frame)
{
	int status = MT_EXIT_OK;

	if (options->request)
		status = mt_request_find(trace, options->args.recording_id, options->request,
					 &frame->request_id);
	if (status == MT_EXIT_OK && options->request)
		status =
			number_read(trace,
				    "SELECT recording_id FROM request WHERE request_id = ?1 AND ?2 "
				    "IS NOT NULL",
				    frame->request_id, 0, &frame->recording_id);
	return status;
}

static void attribute_bind(sqlite3_stmt *stmt, int i, const char *attribute, bool is_value)
{
	const char *equals = strchr(attribute, '=');

	if (is_value && equals)
		sqlite3_bind_text(stmt, i, equals + 1, -1, SQLITE_STATIC);
	else if (!is_value)
		sqlite3_bind_text(stmt, i, attribute, equals ? (int)(equals - attribute) : -1,
				  SQLITE_STATIC);
}

/* A picture of no request would be one of zeros. */
static int attribute_check(const struct mt_trace *trace, const struct mt_plot_options *options,
			   const struct mt_plot_frame *frame)
{
	sqlite3_stmt *stmt;
	int status;

	if (!options->attribute)
		return MT_EXIT_OK;
	stmt = mt_trace_prepare(trace, "SELECT 1 FROM request_attribute JOIN request USING "
				       "(request_id) WHERE recording_id = ?1 AND key = ?2 AND "
				       "value IS ?3 LIMIT 1");
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, frame->recording_id);
	attribute_bind(stmt, 2, options->attribute, false);
	attribute_bind(stmt, 3, options->attribute, true);
	status = mt_trace_has_row(trace, stmt);
	if (status == MT_EXIT_NOT_FOUND)
		mt_error("%s: recording %" PRId64 " has no request with attribute '%s'%s",
			 trace->path, frame->recording_id, options->attribute,
			 strchr(options->attribute, '=') ? ""
							 : " without a value; give KEY=VALUE");
	return status;
}

static int recording_choose(const struct mt_trace *trace, const struct mt_plot_options *options,
			    struct mt_plot_frame *frame)
{
	int status;

	frame->recording_id = (int64_t)options->args.recording_id;
	status = request_choose(trace, options, frame);
	if (status == MT_EXIT_OK && !frame->recording_id)
		status = mt_trace_int(trace, "SELECT min(recording_id) FROM recording",
				      &frame->recording_id);
	if (status != MT_EXIT_OK || frame->recording_id)
		return status;
	mt_error("%s: has no recording: there is nothing to draw", trace->path);
	return MT_EXIT_NOT_FOUND;
}

#define SQL_MODEL                                                                        \
	"SELECT model_id FROM model AS m WHERE ?2 IN (0, model_id) ORDER BY NOT EXISTS " \
	"(SELECT 1 FROM layer AS l JOIN expert_load_window AS w USING (layer_id) WHERE " \
	"l.model_id = m.model_id AND w.recording_id = ?1), model_id LIMIT 1"

static int model_choose(const struct mt_trace *trace, const struct mt_plot_options *options,
			struct mt_plot_frame *frame)
{
	int status = number_read(trace, SQL_MODEL, frame->recording_id, (int64_t)options->model_id,
				 &frame->model_id);

	if (status != MT_EXIT_OK || frame->model_id)
		return status;
	if (options->model_id)
		mt_error("%s: has no model %" PRIu64 "; 'moetrace info %s' lists them", trace->path,
			 options->model_id, trace->path);
	else
		mt_error("%s: has no model: there is nothing to draw", trace->path);
	return MT_EXIT_NOT_FOUND;
}

#define SQL_SUBTITLE                                                                             \
	"SELECT printf('recording %d%s, %s, model %s%s', r.recording_id, CASE WHEN (SELECT "     \
	"count(*) FROM recording) > 1 THEN ' of ' || (SELECT count(*) FROM recording) ELSE ''"   \
	" END, r.mode, m.name, CASE WHEN m.kind <> 'target' THEN ' (' || m.kind || ')' ELSE '' " \
	"END) "                                                                                  \
	"FROM recording AS r, model AS m WHERE r.recording_id = ?1 AND m.model_id = ?2"

static int subtitle_read(const struct mt_trace *trace, struct mt_plot_frame *frame)
{
	const char *slash = strrchr(trace->path, '/');
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_SUBTITLE);
	int rc, n = -1;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, frame->recording_id);
	sqlite3_bind_int64(stmt, 2, frame->model_id);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW && sqlite3_column_text(stmt, 0))
		n = asprintf(&frame->subtitle, "%s: %s", slash ? slash + 1 : trace->path,
			     (const char *)sqlite3_column_text(stmt, 0));
	sqlite3_finalize(stmt);
	if (n >= 0)
		return MT_EXIT_OK;
	frame->subtitle = NULL;
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return mt_trace_error(trace);
	mt_error("%s: recording %" PRId64 " or its model cannot be read", trace->path,
		 frame->recording_id);
	return MT_EXIT_FAILED;
}

int mt_plot_frame_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		       struct mt_plot_frame *ret_frame)
{
	struct mt_plot_frame frame = {.recording_id = 0};
	int status = recording_choose(trace, options, &frame);

	if (status == MT_EXIT_OK)
		status = model_choose(trace, options, &frame);
	if (status == MT_EXIT_OK)
		status = attribute_check(trace, options, &frame);
	if (status == MT_EXIT_OK)
		status = subtitle_read(trace, &frame);
	if (status == MT_EXIT_OK)
		status = notes_read(trace, options, &frame);
	if (status != MT_EXIT_OK) {
		mt_plot_frame_free(&frame);
		return status;
	}
	*ret_frame = frame;
	return MT_EXIT_OK;
}

void mt_plot_frame_free(struct mt_plot_frame *frame)
{
	while (frame->n_notes > 0)
		free(frame->notes[--frame->n_notes]);
	free(frame->notes);
	free(frame->subtitle);
}

/* ---- questions ---- */

static void parameter_bind(sqlite3_stmt *stmt, int i, const struct mt_plot_options *options,
			   const struct mt_plot_frame *frame)
{
	const char *name = sqlite3_bind_parameter_name(stmt, i);

	if (!name)
		return;
	if (strcmp(name, ":recording") == 0)
		sqlite3_bind_int64(stmt, i, frame->recording_id);
	else if (strcmp(name, ":model") == 0)
		sqlite3_bind_int64(stmt, i, frame->model_id);
	else if (strcmp(name, ":request") == 0)
		sqlite3_bind_int64(stmt, i, frame->request_id);
	else if (frame->has_span && strcmp(name, ":from") == 0)
		sqlite3_bind_int64(stmt, i, frame->from_ns);
	else if (frame->has_span && strcmp(name, ":until") == 0)
		sqlite3_bind_int64(stmt, i, frame->until_ns);
	else if (strcmp(name, ":rule") == 0 && options->rule)
		sqlite3_bind_text(stmt, i, options->rule, -1, SQLITE_STATIC);
	else if (options->attribute && (strcmp(name, ":key") == 0 || strcmp(name, ":value") == 0))
		attribute_bind(stmt, i, options->attribute, name[1] == 'v');
}

sqlite3_stmt *mt_plot_question(const struct mt_trace *trace, const char *name,
			       const struct mt_plot_options *options,
			       const struct mt_plot_frame *frame)
{
	struct mt_question_part part;
	sqlite3_stmt *stmt = NULL;
	char *sql = NULL;

	if (mt_question_first(name, &part))
		sql = strndup(part.sql, part.n_bytes);
	if (sql)
		stmt = mt_trace_prepare(trace, sql);
	else
		mt_error("%s: out of memory", trace->path);
	free(sql);
	for (int i = 1; stmt && i <= sqlite3_bind_parameter_count(stmt); i++)
		parameter_bind(stmt, i, options, frame);
	return stmt;
}

/* ---- the sheet ---- */

static double notes_draw(const struct mt_svg *svg, const struct mt_plot_frame *frame, double y,
			 double width)
{
	for (size_t i = 0; i < frame->n_notes; i++)
		y = mt_svg_paragraph(svg, MT_PLOT_LEFT_PX, y, width - MT_PLOT_LEFT_PX - 16,
				     MT_SVG_QUIET, frame->notes[i]);
	return y;
}

void mt_plot_sheet_begin(struct mt_plot_sheet *sheet, FILE *out,
			 const struct mt_plot_options *options, const struct mt_plot_frame *frame,
			 double width, double body_height, const char *title, const char *about)
{
	const struct mt_svg measure = {.out = NULL};
	const double bottom = HEAD_PX + body_height;
	const double height = notes_draw(&measure, frame, bottom + 8, width) + 6;
	char head[MAX_NAME_BYTES + 1];

	if (options->title)
		title = options->title;
	mt_svg_begin(&sheet->svg, out, width, height, options->theme, title, about);
	sheet->top = HEAD_PX;
	sheet->bottom = bottom;
	snprintf(head, sizeof(head), "%s", title);
	mt_svg_heading(&sheet->svg, MT_PLOT_LEFT_PX, 24, head);
	mt_svg_text(&sheet->svg, MT_PLOT_LEFT_PX, 42, MT_SVG_QUIET, MT_SVG_START, "%.*s",
		    MAX_NAME_BYTES, frame->subtitle);
}

void mt_plot_sheet_end(struct mt_plot_sheet *sheet, const struct mt_plot_frame *frame)
{
	notes_draw(&sheet->svg, frame, sheet->bottom + 8, sheet->svg.width);
	mt_svg_end(&sheet->svg);
}
