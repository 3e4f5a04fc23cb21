/* SPDX-License-Identifier: MIT */
/*
 * moe_fit(by_layer): the line through the recorded layer times of decode passes,
 *   time = a + b * active_experts + c * rows,
 * by least squares. With by_layer 1 each layer has its own; with 0 the layers of a model share b and
 * c and have an a each, of which the mean is returned, so that layers that take longer for another
 * reason are not taken for ones with more experts. Times far from the first line (more than six
 * times the median distance, scaled as for a normal distribution: the program was interrupted) are
 * left out and counted. c is NULL, and part of a, where batches have one size or rows and experts
 * go together; b is NULL where all passes touched equally many experts. Of large files some passes are
 * read (layer_times.h).
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "layer_times.h"
#include "mt_sql.h"
#include "tvf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/compare.h"

#define MAX_POINTS	(1 << 19)
#define OUTLIER_FACTOR	(6 * 1.4826)
#define MIN_FREEDOM	3
#define COLLINEAR_SHARE 1e-6

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf fit_tvf = {
	.name = "moe_fit",
	.declaration =
		"CREATE TABLE moe_fit (model_id INTEGER, layer_id INTEGER, layer INTEGER,"
		" source TEXT, n_batches INTEGER, n_outliers INTEGER, n_ruled INTEGER,"
		" a_ns REAL, b_ns REAL, c_ns REAL, a_low_ns REAL, a_high_ns REAL, b_low_ns REAL,"
		" b_high_ns REAL, c_low_ns REAL, c_high_ns REAL, r2 REAL, residual_ns REAL,"
		" mean_ns REAL, min_active INTEGER, max_active INTEGER, min_rows INTEGER,"
		" max_rows INTEGER, by_layer INTEGER HIDDEN)",
	.n_columns = 23,
	.n_arguments = 1,
	.n_rows = 60,
	.compute = compute,
};

struct point {
	uint32_t layer; /* index in layers */
	bool is_ruled, is_outlier;
	double active, rows, time_ns;
};

struct layer {
	sqlite3_int64 model_id, layer_id, layer;
	bool is_kernel; /* its operations were timed */
	double n, active, rows, time_ns; /* sums over the points in use; then means */
};

struct points {
	struct mt_tvf_rows *rows;
	struct point *points;
	size_t n_points, size;
	struct layer *layers;
	size_t n_layers, layers_size, hint;
	double *distances; /* [n_points] */
};

/* The line of some of the layers. */
struct line {
	size_t n, n_outliers, n_ruled, n_layers;
	double a, b, c, a_error, b_error, c_error; /* errors: half a 95 % interval */
	bool has_b, has_c;
	double active, rows, time_ns; /* means */
	double r2, residual_ns;
	double min_active, max_active, min_rows, max_rows;
};

/* ---- reading ---- */

/* Tables only, and views of them: a file whose view is one of moe_fit must not recurse. */
static int prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret_stmt)
{
	return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_NO_VTAB, ret_stmt, NULL);
}

static int layer_find(struct points *points, const struct mt_layer_time *time, uint32_t *ret_layer)
{
	const sqlite3_int64 layer_id = time->layer_id;

	for (size_t i = 0; i < points->n_layers; i++) {
		const size_t at = (points->hint + i) % points->n_layers;

		if (points->layers[at].layer_id == layer_id) {
			points->hint = at + 1;
			*ret_layer = (uint32_t)at;
			return SQLITE_OK;
		}
	}
	if (mt_array_reserve(&points->layers, &points->layers_size, points->n_layers + 1,
			     sizeof(*points->layers)) != SQLITE_OK)
		return SQLITE_NOMEM;
	points->layers[points->n_layers] = (struct layer){
		.model_id = time->model_id,
		.layer_id = layer_id,
		.layer = time->layer,
		.is_kernel = time->is_kernel,
	};
	*ret_layer = (uint32_t)points->n_layers++;
	return SQLITE_OK;
}

static int point_add(struct points *points, const struct mt_layer_time *time, bool is_ruled)
{
	struct point point = {
		.active = (double)time->active_experts,
		.rows = (double)time->n_rows,
		.time_ns = (double)time->duration_ns,
		.is_ruled = is_ruled,
	};
	int rc = layer_find(points, time, &point.layer);

	if (rc != SQLITE_OK)
		return rc;
	if (points->n_points == MAX_POINTS)
		return mt_tvf_fail(points->rows, "moe_fit: more than %d layer times of a pass",
				   MAX_POINTS);
	if (mt_array_reserve(&points->points, &points->size, points->n_points + 1,
			     sizeof(*points->points)) != SQLITE_OK)
		return SQLITE_NOMEM;
	points->points[points->n_points++] = point;
	return SQLITE_OK;
}

/* Whether a rule changed what was chosen. */
static int ruled_find(sqlite3_stmt *stmt, const struct mt_layer_time *time, bool *ret_is_ruled)
{
	int rc;

	sqlite3_bind_int64(stmt, 1, time->pass_id);
	sqlite3_bind_int64(stmt, 2, time->layer_id);
	rc = sqlite3_step(stmt);
	*ret_is_ruled = rc == SQLITE_ROW && sqlite3_column_int(stmt, 0);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		rc = SQLITE_OK;
	sqlite3_reset(stmt);
	return rc;
}

static bool is_point(const struct mt_layer_time *time)
{
	return time->phase && strcmp(time->phase, "decode") == 0 && time->has_duration && time->duration_ns > 0 &&
	       time->has_active_experts && time->active_experts > 0 && time->has_n_rows && time->n_rows > 0;
}

static int points_read(struct points *points, sqlite3 *db)
{
	static const char sql[] = "SELECT x.rule_id IS NOT NULL FROM main.pass_layer AS pl JOIN main.topk AS x"
				  " ON x.topk_id = pl.topk_id WHERE pl.pass_id = ?1 AND pl.layer_id = ?2";
	struct mt_layer_times *times = NULL;
	struct mt_layer_time time;
	sqlite3_stmt *stmt = NULL;
	bool is_ruled;
	int rc = prepare(db, sql, &stmt);

	if (rc == SQLITE_OK)
		rc = mt_layer_times_begin(db, MT_LAYER_TIMES_OPERATIONS, &times);
	while (rc == SQLITE_OK && (rc = mt_layer_times_next(times, &time)) == SQLITE_ROW) {
		rc = SQLITE_OK;
		if (!is_point(&time))
			continue;
		rc = ruled_find(stmt, &time, &is_ruled);
		if (rc == SQLITE_OK)
			rc = point_add(points, &time, is_ruled);
	}
	mt_layer_times_free(times);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- the line ---- */

/* Points of the layers from @first on, those that are no outliers. */
struct walk {
	const struct points *points;
	sqlite3_int64 model_id;
	sqlite3_int64 layer_id; /* 0: all of the model */
};

static bool is_in(const struct walk *walk, const struct point *point)
{
	const struct layer *layer = &walk->points->layers[point->layer];

	return layer->model_id == walk->model_id &&
	       (walk->layer_id == 0 || layer->layer_id == walk->layer_id);
}

static void means_find(const struct walk *walk, struct line *line)
{
	const struct points *points = walk->points;

	for (size_t i = 0; i < points->n_layers; i++) {
		struct layer *layer = &points->layers[i];

		layer->n = layer->active = layer->rows = layer->time_ns = 0;
	}
	*line = (struct line){.min_active = INFINITY, .min_rows = INFINITY};
	for (size_t i = 0; i < points->n_points; i++) {
		const struct point *point = &points->points[i];
		struct layer *layer = &points->layers[point->layer];

		if (!is_in(walk, point))
			continue;
		line->n_outliers += point->is_outlier;
		if (point->is_outlier)
			continue;
		line->n++;
		line->n_ruled += point->is_ruled;
		line->min_active = fmin(line->min_active, point->active);
		line->max_active = fmax(line->max_active, point->active);
		line->min_rows = fmin(line->min_rows, point->rows);
		line->max_rows = fmax(line->max_rows, point->rows);
		layer->n++;
		layer->active += point->active;
		layer->rows += point->rows;
		layer->time_ns += point->time_ns;
	}
	for (size_t i = 0; i < points->n_layers; i++) {
		struct layer *layer = &points->layers[i];

		if (layer->n == 0)
			continue;
		line->n_layers++;
		line->active += layer->active / (double)line->n;
		line->rows += layer->rows / (double)line->n;
		line->time_ns += layer->time_ns / (double)line->n;
		layer->active /= layer->n;
		layer->rows /= layer->n;
		layer->time_ns /= layer->n;
	}
}

/* Sums of products of distances from the layers' means: experts, rows, time. */
struct products {
	double tt, tr, rr, ty, ry, yy;
};

static struct products products_find(const struct walk *walk)
{
	const struct points *points = walk->points;
	struct products sums = {0};

	for (size_t i = 0; i < points->n_points; i++) {
		const struct point *point = &points->points[i];
		const struct layer *layer = &points->layers[point->layer];
		const double t = point->active - layer->active, r = point->rows - layer->rows;
		const double y = point->time_ns - layer->time_ns;

		if (point->is_outlier || !is_in(walk, point))
			continue;
		sums.tt += t * t;
		sums.tr += t * r;
		sums.rr += r * r;
		sums.ty += t * y;
		sums.ry += r * y;
		sums.yy += y * y;
	}
	return sums;
}

/* Half a 95 % interval of a normal value whose deviation was estimated. */
static double half_interval(double variance, double freedom)
{
	return (1.96 + 2.4 / freedom) * sqrt(fmax(variance, 0));
}

static void line_find(const struct walk *walk, struct line *line)
{
	struct products s;
	double determinant, explained, freedom, variance, v_bb = 0, v_bc = 0, v_cc = 0;

	means_find(walk, line);
	s = products_find(walk);
	determinant = s.tt * s.rr - s.tr * s.tr;
	line->has_c = s.tt > 0 && s.rr > 0 && determinant > COLLINEAR_SHARE * s.tt * s.rr;
	line->has_b = s.tt > 0;
	if (line->has_c) {
		line->b = (s.ty * s.rr - s.ry * s.tr) / determinant;
		line->c = (s.ry * s.tt - s.ty * s.tr) / determinant;
	} else if (line->has_b) {
		line->b = s.ty / s.tt;
	}
	line->a = line->time_ns - line->b * line->active - line->c * line->rows;
	explained = line->b * s.ty + line->c * s.ry;
	freedom = (double)line->n - (double)line->n_layers - line->has_b - line->has_c;
	if (freedom < MIN_FREEDOM)
		line->has_b = false;
	if (!line->has_b)
		return;
	variance = fmax(s.yy - explained, 0) / freedom;
	line->residual_ns = sqrt(variance);
	line->r2 = s.yy > 0 ? explained / s.yy : 1;
	v_bb = variance * (line->has_c ? s.rr / determinant : 1 / s.tt);
	v_cc = line->has_c ? variance * s.tt / determinant : 0;
	v_bc = line->has_c ? -variance * s.tr / determinant : 0;
	line->b_error = half_interval(v_bb, freedom);
	line->c_error = half_interval(v_cc, freedom);
	line->a_error = half_interval(variance / (double)line->n +
					      line->active * line->active * v_bb +
					      line->rows * line->rows * v_cc +
					      2 * line->active * line->rows * v_bc,
				      freedom);
}

static double distance_of(const struct walk *walk, const struct line *line,
			  const struct point *point)
{
	const struct layer *layer = &walk->points->layers[point->layer];

	return fabs(point->time_ns - layer->time_ns - line->b * (point->active - layer->active) -
		    line->c * (point->rows - layer->rows));
}

static void outliers_mark(const struct walk *walk, const struct line *line)
{
	const struct points *points = walk->points;
	double limit;
	size_t n = 0;

	for (size_t i = 0; i < points->n_points; i++)
		if (is_in(walk, &points->points[i]))
			points->distances[n++] = distance_of(walk, line, &points->points[i]);
	if (n == 0)
		return;
	qsort(points->distances, n, sizeof(*points->distances), mt_compare_doubles);
	limit = OUTLIER_FACTOR * points->distances[n / 2];
	for (size_t i = 0; limit > 0 && i < points->n_points; i++) {
		struct point *point = &points->points[i];

		if (is_in(walk, point))
			point->is_outlier = distance_of(walk, line, point) > limit;
	}
}

/* ---- listing ---- */

static int list_counts(struct mt_tvf_rows *rows, const struct layer *layer, bool by_layer,
		       const struct line *line)
{
	int rc = mt_tvf_int64(rows, layer->model_id);

	if (rc == SQLITE_OK)
		rc = by_layer ? mt_tvf_int64(rows, layer->layer_id) : mt_tvf_null(rows);
	if (rc == SQLITE_OK)
		rc = by_layer ? mt_tvf_int64(rows, layer->layer) : mt_tvf_null(rows);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, layer->is_kernel ? "kernel" : "selection");
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)line->n);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)line->n_outliers);
	return rc == SQLITE_OK ? mt_tvf_int64(rows, (sqlite3_int64)line->n_ruled) : rc;
}

static int list_line(struct mt_tvf_rows *rows, const struct line *line)
{
	const bool b = line->has_b, c = b && line->has_c;
	const double reals[] = {line->a,
				line->b,
				line->c,
				line->a - line->a_error,
				line->a + line->a_error,
				line->b - line->b_error,
				line->b + line->b_error,
				line->c - line->c_error,
				line->c + line->c_error,
				line->r2,
				line->residual_ns};
	const bool known[] = {b, b, c, b, b, b, b, c, c, b, b};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(reals) / sizeof(reals[0]); i++)
		rc = mt_tvf_known(rows, known[i], reals[i]);
	if (rc == SQLITE_OK)
		rc = mt_tvf_double(rows, line->time_ns);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)line->min_active);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)line->max_active);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)line->min_rows);
	return rc == SQLITE_OK ? mt_tvf_int64(rows, (sqlite3_int64)line->max_rows) : rc;
}

static int line_list(const struct points *points, const struct layer *layer, bool by_layer)
{
	const struct walk walk = {points, layer->model_id, by_layer ? layer->layer_id : 0};
	struct line line;
	int rc;

	line_find(&walk, &line);
	outliers_mark(&walk, &line);
	line_find(&walk, &line);
	rc = list_counts(points->rows, layer, by_layer, &line);
	return rc == SQLITE_OK ? list_line(points->rows, &line) : rc;
}

static bool is_first_of_model(const struct points *points, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (points->layers[j].model_id == points->layers[i].model_id)
			return false;
	return true;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct points points = {.rows = rows};
	uint32_t by_layer;
	int rc = mt_tvf_uint(rows, &fit_tvf, arguments, 0, "by_layer", 0, 1, 0, &by_layer);

	if (rc != SQLITE_OK)
		return rc;
	rc = points_read(&points, db);
	points.distances = sqlite3_malloc64(points.n_points * sizeof(*points.distances) + 1);
	if (rc == SQLITE_OK && !points.distances)
		rc = SQLITE_NOMEM;
	for (size_t i = 0; rc == SQLITE_OK && i < points.n_layers; i++)
		if (by_layer || is_first_of_model(&points, i))
			rc = line_list(&points, &points.layers[i], by_layer);
	sqlite3_free(points.points);
	sqlite3_free(points.layers);
	sqlite3_free(points.distances);
	return rc;
}

int mt_sql_register_fit(sqlite3 *db)
{
	return mt_tvf_register(db, &fit_tvf);
}
