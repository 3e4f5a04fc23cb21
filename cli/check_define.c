/* SPDX-License-Identifier: MIT */
/*
 * The definitions that the scan needs by key, the counters that it proves, and what all proofs
 * use. A layer whose numbers are out of range is left out: the proof of values names it.
 */
#include "cli/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/f16.h"

void check_violation(struct check *check, enum check_proof proof, const char *format, ...)
{
	struct check_result *result = &check->results[proof];
	char text[512];
	va_list args;

	if (result->n_violations < CHECK_MAX_EXAMPLES) {
		va_start(args, format);
		vsnprintf(text, sizeof(text), format, args);
		va_end(args);
		result->examples[result->n_violations] = strdup(text);
	}
	result->n_violations++;
}

bool check_has_reason(const char *reasons, const char *reason)
{
	size_t length = strlen(reason);
	const char *at = reasons;

	while (at && *at) {
		if (strncmp(at, reason, length) == 0 && (at[length] == ',' || at[length] == '\0'))
			return true;
		at = strchr(at, ',');
		at += at != NULL;
	}
	return false;
}

bool check_reasons_are_known(const char *reasons, const char *const *names)
{
	const char *const *name;
	size_t length;

	while (true) {
		length = strcspn(reasons, ",");
		for (name = names; *name; name++)
			if (strlen(*name) == length && memcmp(*name, reasons, length) == 0)
				break;
		if (!*name)
			return false;
		if (reasons[length] == '\0')
			return true;
		reasons += length + 1;
	}
}

void *check_array_grow(const struct check *check, void *array, size_t n, size_t *max,
		       size_t element_bytes)
{
	size_t n_new = *max ? *max * 2 : 256;
	void *grown;

	if (n < *max)
		return array;
	grown = n_new > SIZE_MAX / element_bytes ? NULL : realloc(array, n_new * element_bytes);
	if (!grown) {
		mt_error("%s: out of memory", check->trace->path);
		return NULL;
	}
	*max = n_new;
	return grown;
}

struct check_recording *check_recording_find(struct check *check, int64_t recording_id)
{
	size_t low = 0;
	size_t high = check->n_recordings;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (check->recordings[middle].recording_id < recording_id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == check->n_recordings || check->recordings[low].recording_id != recording_id)
		return NULL;
	return &check->recordings[low];
}

const struct check_layer *check_layer_find(const struct check *check, int64_t layer_id)
{
	size_t low = 0;
	size_t high = check->n_layers;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (check->layers[middle].layer_id < layer_id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == check->n_layers || check->layers[low].layer_id != layer_id)
		return NULL;
	return &check->layers[low];
}

typedef int row_fn(struct check *check, sqlite3_stmt *stmt);

static int rows_each(struct check *check, const char *sql, row_fn *take)
{
	sqlite3_stmt *stmt = mt_trace_prepare(check->trace, sql);
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	if (!stmt)
		return MT_EXIT_FAILED;
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = take(check, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

/* Little-endian fp32; NULL: there are none of that number, or no memory, and nothing is proved. */
static float *bias_read(sqlite3_stmt *stmt, int column, uint32_t n_values)
{
	const uint8_t *p = sqlite3_column_blob(stmt, column);
	float *bias;

	if (sqlite3_column_type(stmt, column) != SQLITE_BLOB || n_values == 0 ||
	    sqlite3_column_bytes(stmt, column) != (int64_t)n_values * 4)
		return NULL;
	bias = malloc(n_values * sizeof(*bias));
	for (uint32_t i = 0; bias && i < n_values; i++)
		bias[i] = mt_f32_from_bits(mt_u32_at(p + 4 * i));
	return bias;
}

static int layer_take(struct check *check, sqlite3_stmt *stmt)
{
	struct check_layer *layers;
	int64_t numbers[4];
	int i;

	for (i = 0; i < 4; i++) {
		numbers[i] = sqlite3_column_int64(stmt, 2 + i);
		if (numbers[i] < 0 || numbers[i] > CHECK_MAX_IDS)
			return MT_EXIT_OK;
	}
	if (numbers[0] + numbers[1] + numbers[2] > CHECK_MAX_IDS || numbers[0] < 1)
		return MT_EXIT_OK;
	layers = check_array_grow(check, check->layers, check->n_layers, &check->max_layers,
				  sizeof(*layers));
	if (!layers)
		return MT_EXIT_FAILED;
	check->layers = layers;
	layers[check->n_layers++] = (struct check_layer){
		.layer_id = sqlite3_column_int64(stmt, 0),
		.model_id = sqlite3_column_int64(stmt, 1),
		.n_experts = (uint32_t)numbers[0],
		.n_ids = (uint32_t)(numbers[0] + numbers[1] + numbers[2]),
		.n_shared = (uint32_t)numbers[2],
		.top_k = (uint32_t)numbers[3],
		.is_unbiased = sqlite3_column_int(stmt, 7) != 0,
		.is_renormalized = sqlite3_column_int(stmt, 6) != 0,
		.has_ordered_weights = sqlite3_column_int(stmt, 8) != 0,
		.weight_scale = sqlite3_column_double(stmt, 9),
		.bias = bias_read(stmt, 10, (uint32_t)(numbers[0] + numbers[1])),
	};
	return MT_EXIT_OK;
}

static int model_take(struct check *check, sqlite3_stmt *stmt)
{
	struct check_model *models =
		realloc(check->models, (check->n_models + 1) * sizeof(*models));

	if (!models) {
		mt_error("%s: out of memory", check->trace->path);
		return MT_EXIT_FAILED;
	}
	check->models = models;
	models[check->n_models++] = (struct check_model){
		.model_id = sqlite3_column_int64(stmt, 0),
		.is_target = sqlite3_column_int(stmt, 1) != 0,
		.n_layers = (size_t)sqlite3_column_int64(stmt, 2),
	};
	return MT_EXIT_OK;
}

/* The N of requests=N in the text of what a recording leaves out; 0: none. */
static int64_t requests_of(const char *sampling)
{
	const char *at = sampling ? strstr(sampling, "requests=") : NULL;
	long long n = at ? strtoll(at + strlen("requests="), NULL, 10) : 0;

	return n < 0 ? 0 : n;
}

static int recording_take(struct check *check, sqlite3_stmt *stmt)
{
	struct check_recording *recordings;

	recordings = realloc(check->recordings, (check->n_recordings + 1) * sizeof(*recordings));
	if (!recordings) {
		mt_error("%s: out of memory", check->trace->path);
		return MT_EXIT_FAILED;
	}
	check->recordings = recordings;
	recordings[check->n_recordings++] = (struct check_recording){
		.recording_id = sqlite3_column_int64(stmt, 0),
		.last_pass_id = sqlite3_column_int64(stmt, 1),
		.start_ns = sqlite3_column_int64(stmt, 2),
		.is_per_token = sqlite3_column_int(stmt, 3) == 0,
		.is_stat = sqlite3_column_int(stmt, 3) == 2,
		.is_routed = sqlite3_column_int(stmt, 5) != 0,
		.n_requests = requests_of((const char *)sqlite3_column_text(stmt, 4)),
		.window = CHECK_NO_WINDOW,
	};
	return MT_EXIT_OK;
}

int check_definitions_load(struct check *check)
{
	int status;

	check->load = calloc(CHECK_MAX_IDS, sizeof(*check->load));
	check->row_of_id = calloc(CHECK_MAX_IDS, sizeof(*check->row_of_id));
	if (!check->load || !check->row_of_id) {
		mt_error("%s: out of memory", check->trace->path);
		return MT_EXIT_FAILED;
	}
	status = rows_each(check,
			   "SELECT layer_id, model_id, n_experts, n_zero_experts, "
			   "n_shared_slots, top_k, weight_kind IN ('renormalized', "
			   "'renormalized,scaled'), has_correction_bias IS 0, "
			   "kind = 'routed' AND scoring IS NOT 'sparsemixer' AND "
			   "(coalesce(weight_kind, '') NOT LIKE '%scaled' OR "
			   "coalesce(routed_scaling_factor, 1) > 0), "
			   "CASE weight_kind WHEN 'raw' THEN 1 WHEN 'scaled' THEN "
			   "max(coalesce(routed_scaling_factor, 0), 0) ELSE 0 END, "
			   "CASE WHEN has_correction_bias = 1 THEN bias_values END "
			   "FROM layer ORDER BY layer_id",
			   layer_take);
	if (status == MT_EXIT_OK)
		status = rows_each(check,
				   "SELECT model_id, kind = 'target', (SELECT count(*) "
				   "FROM layer AS l WHERE l.model_id = m.model_id) "
				   "FROM model AS m ORDER BY model_id",
				   model_take);
	if (status == MT_EXIT_OK)
		status = rows_each(check,
				   "SELECT r.recording_id, s.value, r.start_ns, CASE r.mode WHEN "
				   "'per_pass' THEN 1 WHEN 'stat' THEN 2 ELSE 0 END, r.sampling, "
				   "coalesce(r.routing_source, 'model') = 'model' "
				   "FROM recording AS r "
				   "LEFT JOIN stats AS s ON s.recording_id = r.recording_id "
				   "AND s.name = 'last_pass_id' ORDER BY r.recording_id",
				   recording_take);
	return status;
}

/* ---- counters ---- */

static int stat_take(struct check *check, sqlite3_stmt *stmt)
{
	const struct check_recording *recording;
	const char *name = (const char *)sqlite3_column_text(stmt, 1);
	uint64_t value;
	bool is_ahead;
	size_t i;

	recording = check_recording_find(check, sqlite3_column_int64(stmt, 0));
	if (!recording || !name || recording->is_stat)
		return MT_EXIT_OK; /* without passes: check_sql.c's */
	const struct {
		const char *name;
		uint64_t value;
	} counters[] = {
		{"recorded_passes", recording->n_passes},
		{"recorded_rows", recording->n_rows},
		{"recorded_layers", recording->n_layers},
		{"recorded_assignments", recording->n_assignments},
	};
	for (i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		if (strcmp(name, counters[i].name) == 0)
			break;
	if (i == sizeof(counters) / sizeof(counters[0]))
		return MT_EXIT_OK;
	value = (uint64_t)sqlite3_column_int64(stmt, 2);
	check->results[CHECK_STATS].n_checked++;
	/* While a recording runs, layers are counted before their pass is written. */
	is_ahead = sqlite3_column_int(stmt, 3) != 0 && value > counters[i].value;
	if (sqlite3_column_type(stmt, 2) != SQLITE_INTEGER ||
	    (value != counters[i].value && !is_ahead))
		check_violation(check, CHECK_STATS, "stats %lld,%s: is %lld, the rows give %llu",
				(long long)recording->recording_id, name, (long long)value,
				(unsigned long long)counters[i].value);
	return MT_EXIT_OK;
}

int check_stats_compare(struct check *check)
{
	return rows_each(check,
			 "SELECT r.recording_id, n.name, s.value, "
			 "coalesce(r.end_reason, 'io_error') = 'io_error' "
			 "FROM recording AS r JOIN (SELECT 'recorded_passes' AS name UNION ALL "
			 "SELECT 'recorded_rows' "
			 "UNION ALL SELECT 'recorded_layers' UNION ALL "
			 "SELECT 'recorded_assignments') AS n LEFT JOIN stats AS s "
			 "ON s.recording_id = r.recording_id AND s.name = n.name",
			 stat_take);
}
