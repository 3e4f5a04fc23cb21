/* SPDX-License-Identifier: MIT */
/*
 * Readings of power: the last one of each device and domain, and means by bucket. A source that has
 * a counter of energy alone gives power by what the counter went on by.
 */
#include "cli/top.h"

#include <stdio.h>
#include <string.h>

#define SLACK_ROWS 256

#define SQL_DEVICES                                                                    \
	"SELECT device_id, kind, name, power_limit_mw FROM device WHERE kind = 'cuda' " \
	"ORDER BY device_id"

#define SQL_SAMPLES                                                                          \
	"SELECT s.device_id, s.domain, d.kind, d.name, d.power_limit_mw, s.time_ns, "        \
	"coalesce(s.instant_mw, s.average_mw), s.energy_mj, s.limit_mw, s.temperature_c, "   \
	"s.throttle_reasons FROM power_sample AS s JOIN device AS d USING (device_id) "      \
	"WHERE s.power_sample_id > ?1 AND s.recording_id = ?2 ORDER BY s.power_sample_id"

static struct mt_top_meter *meter_add(struct mt_top *top, sqlite3_stmt *stmt, int64_t device_id,
				      const char *domain, int kind_column)
{
	struct mt_top_meter *meter = &top->meters[top->n_meters];
	const char *kind = (const char *)sqlite3_column_text(stmt, kind_column);
	size_t i;

	if (top->n_meters == MT_TOP_MAX_METERS) {
		top->n_more_meters++;
		return NULL;
	}
	memset(meter, 0, sizeof(*meter));
	meter->device_id = device_id;
	snprintf(meter->domain, sizeof(meter->domain), "%s", domain);
	meter->is_gpu = kind && strcmp(kind, "cuda") == 0;
	mt_top_column_copy(stmt, kind_column + 1, meter->name, sizeof(meter->name));
	meter->last_w = meter->limit_w = meter->temperature_c = -1;
	meter->counter_mj = meter->last_ns = -1;
	for (i = 0; i < MT_TOP_BUCKETS; i++)
		meter->index[i] = -1;
	top->n_meters++;
	return meter;
}

/* A device of which nothing was read yet has a meter without a domain, for its first one. */
static struct mt_top_meter *meter_find(struct mt_top *top, int64_t device_id, const char *domain)
{
	size_t i;

	for (i = 0; i < top->n_meters; i++) {
		struct mt_top_meter *meter = &top->meters[i];

		if (meter->device_id != device_id)
			continue;
		if (!meter->domain[0] && domain)
			snprintf(meter->domain, sizeof(meter->domain), "%s", domain);
		if (!domain || strcmp(meter->domain, domain) == 0)
			return meter;
	}
	return NULL;
}

static void watts_add(const struct mt_top *top, struct mt_top_meter *meter, int64_t time_ns,
		      double watts)
{
	const int64_t index = time_ns / top->bucket_ns;
	const size_t i = (size_t)(index % MT_TOP_BUCKETS);

	meter->last_w = watts;
	meter->last_ns = time_ns;
	if (meter->index[i] > index)
		return;
	if (meter->index[i] < index) {
		meter->index[i] = index;
		meter->sum_w[i] = 0;
		meter->n_readings[i] = 0;
	}
	meter->sum_w[i] += watts;
	meter->n_readings[i]++;
}

static void limit_take(struct mt_top_meter *meter, sqlite3_stmt *stmt, int column)
{
	if (sqlite3_column_type(stmt, column) != SQLITE_NULL)
		meter->limit_w = (double)sqlite3_column_int64(stmt, column) / 1e3;
}

static void counter_take(const struct mt_top *top, struct mt_top_meter *meter, int64_t time_ns,
			 int64_t energy_mj, bool is_needed)
{
	const int64_t length_ns = time_ns - meter->counter_ns;

	if (is_needed && meter->counter_mj >= 0 && length_ns > 0 && energy_mj >= meter->counter_mj)
		watts_add(top, meter, time_ns,
			  (double)(energy_mj - meter->counter_mj) * 1e6 / (double)length_ns);
	meter->counter_mj = energy_mj;
	meter->counter_ns = time_ns;
}

static void sample_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	const int64_t device_id = sqlite3_column_int64(stmt, 0);
	const int64_t time_ns = sqlite3_column_int64(stmt, 5);
	const bool has_power = sqlite3_column_type(stmt, 6) != SQLITE_NULL;
	char domain[64];
	struct mt_top_meter *meter;

	mt_top_column_copy(stmt, 1, domain, sizeof(domain));
	meter = meter_find(top, device_id, domain);
	if (!meter)
		meter = meter_add(top, stmt, device_id, domain, 2);
	if (!meter || time_ns < 0)
		return;
	if (meter->limit_w < 0)
		limit_take(meter, stmt, 4);
	limit_take(meter, stmt, 8);
	if (has_power)
		watts_add(top, meter, time_ns, (double)sqlite3_column_int64(stmt, 6) / 1e3);
	if (sqlite3_column_type(stmt, 7) != SQLITE_NULL)
		counter_take(top, meter, time_ns, sqlite3_column_int64(stmt, 7), !has_power);
	if (sqlite3_column_type(stmt, 9) != SQLITE_NULL)
		meter->temperature_c = (double)sqlite3_column_int64(stmt, 9);
	if (sqlite3_column_type(stmt, 10) != SQLITE_NULL)
		meter->held_down_by = (uint64_t)sqlite3_column_int64(stmt, 10);
}

/* GPUs that are known are shown even where nothing reads their power. */
static int devices_read(struct mt_top *top, const struct mt_trace *trace)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_DEVICES);
	struct mt_top_meter *meter;
	int rc, status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	top->n_more_meters = 0;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const int64_t device_id = sqlite3_column_int64(stmt, 0);

		if (meter_find(top, device_id, NULL))
			continue;
		meter = meter_add(top, stmt, device_id, "", 1);
		if (meter)
			limit_take(meter, stmt, 3);
	}
	if (rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

static int samples_read(struct mt_top *top, const struct mt_trace *trace)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_SAMPLES);
	int rc, status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->power_cursor);
	sqlite3_bind_int64(stmt, 2, top->facts.recording_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		sample_take(top, stmt);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

int mt_top_power_read(struct mt_top *top, const struct mt_trace *trace)
{
	int64_t first, last;
	int status = devices_read(top, trace);

	if (status == MT_EXIT_OK)
		status = mt_trace_int(trace, "SELECT max(power_sample_id) FROM power_sample",
				      &last);
	if (status != MT_EXIT_OK || last <= top->power_cursor)
		return status;
	if (top->power_cursor < 0) {
		/* The limit is read once a second, so a little before the window, too. */
		status = mt_top_key_find(trace, "power_sample", "power_sample_id", "time_ns",
					 mt_top_from_ns(top) - 2000000000, SLACK_ROWS, &first);
		top->power_cursor = first - 1;
	}
	if (status == MT_EXIT_OK)
		status = samples_read(top, trace);
	top->power_cursor = last;
	return status;
}
