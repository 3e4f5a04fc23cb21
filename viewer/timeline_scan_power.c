/* SPDX-License-Identifier: MIT */
/*
 * Reads spans of power: what was read, else what the energy counter went on by since the reading
 * before it, for which some rows before a span are looked at, too. Lanes carry a hash of their domain.
 */
#include "viewer/timeline_scan_internal.h"

#include <stdio.h>
#include <string.h>

#define POWER_ROWS_BEFORE 256
#define MAX_METERS	  64

/* The last reading of a meter. */
struct meter {
	struct mt_lane lane;
	bool is_buffer, has_energy;
	int64_t time_ns, energy_mj;
};

/* A domain as a number (FNV-1a), whose text is kept. */
static int64_t domain_number(struct mt_scan *scan, const char *domain)
{
	uint64_t hash = 14695981039346656037u;
	size_t i = 0;

	for (const char *c = domain ? domain : ""; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	while (i < scan->n_domains && scan->domains[i].number != (int64_t)hash)
		i++;
	if (i == scan->n_domains && i < MAX_DOMAINS) {
		scan->domains[i].number = (int64_t)hash;
		snprintf(scan->domains[i].text, sizeof(scan->domains[i].text), "%s", domain ? domain : "");
		scan->n_domains++;
	}
	return (int64_t)hash;
}

const char *mt_scan_domain(const struct mt_scan *scan, int64_t number)
{
	for (size_t i = 0; i < scan->n_domains; i++)
		if (scan->domains[i].number == number)
			return scan->domains[i].text;
	return "another domain";
}

static struct meter *meter_find(struct meter *meters, size_t *n_meters, const struct meter *like)
{
	for (size_t i = 0; i < *n_meters; i++)
		if (meters[i].lane.a == like->lane.a && meters[i].lane.b == like->lane.b &&
		    meters[i].is_buffer == like->is_buffer)
			return &meters[i];
	if (*n_meters == MAX_METERS)
		return NULL;
	meters[*n_meters] = *like;
	meters[*n_meters].has_energy = false;
	return &meters[(*n_meters)++];
}

/* What a reading says in watts; false: nothing. */
static bool watts_of(sqlite3_stmt *stmt, const struct meter *before, const struct meter *now,
		     double *ret_watts)
{
	if (sqlite3_column_type(stmt, 5) != SQLITE_NULL)
		*ret_watts = sqlite3_column_double(stmt, 5) / 1000;
	else if (before && before->has_energy && now->has_energy && now->time_ns > before->time_ns)
		*ret_watts = ((double)now->energy_mj - (double)before->energy_mj) * 1e6 /
			     ((double)now->time_ns - (double)before->time_ns);
	else if (sqlite3_column_type(stmt, 6) != SQLITE_NULL)
		*ret_watts = sqlite3_column_double(stmt, 6) / 1000;
	else
		return false;
	return true;
}

/* What was read along with power. */
static bool gauges_add(sqlite3_stmt *stmt, int64_t time_ns, struct mt_items *items)
{
	bool has_memory = true;

	for (int i = 0; i < 3 && has_memory; i++) {
		const struct mt_lane lane = {(enum mt_lane_type)(MT_LANE_CLOCK + i),
					     sqlite3_column_int64(stmt, 2), 0, 0};

		if (mt_scan_is_number(stmt, 9 + i))
			has_memory = mt_scan_point(items, lane, time_ns, sqlite3_column_double(stmt, 9 + i), 0);
	}
	return has_memory;
}

/* A row at or behind the span's first one, or before it. */
static bool power_row(struct mt_scan *scan, sqlite3_stmt *stmt, bool is_in, struct meter *meters,
		      size_t *n_meters, struct mt_items *items)
{
	const char *domain = (const char *)sqlite3_column_text(stmt, 3);
	const char *source = (const char *)sqlite3_column_text(stmt, 4);
	const struct meter now = {
		.lane = {MT_LANE_POWER, sqlite3_column_int64(stmt, 2), domain_number(scan, domain), 0},
		.is_buffer = source && strcmp(source, "buffer") == 0,
		.has_energy = mt_scan_is_number(stmt, 7),
		.time_ns = sqlite3_column_int64(stmt, 1),
		.energy_mj = sqlite3_column_int64(stmt, 7),
	};
	struct meter *meter = meter_find(meters, n_meters, &now);
	bool has_memory = true;
	double watts;

	if (is_in && watts_of(stmt, meter, &now, &watts))
		has_memory = mt_scan_point(items, now.lane, now.time_ns, watts,
				       sqlite3_column_double(stmt, 8) / 1000);
	if (meter)
		*meter = now;
	return has_memory && (!is_in || gauges_add(stmt, now.time_ns, items));
}

enum mt_scan_result mt_scan_power(struct mt_scan *scan, int64_t first, int64_t last,
				      struct mt_items *items)
{
	const int64_t before = first > INT64_MIN + POWER_ROWS_BEFORE ? first - POWER_ROWS_BEFORE : first;
	sqlite3_stmt *stmt = mt_scan_begin(scan, S_POWER, before, last);
	enum mt_scan_result result = MT_SCAN_DONE;
	struct meter meters[MAX_METERS];
	size_t n_meters = 0;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && result == MT_SCAN_DONE)
		if (mt_scan_is_number(stmt, 1) && !power_row(scan, stmt, sqlite3_column_int64(stmt, 0) >= first,
						     meters, &n_meters, items))
			result = MT_SCAN_NO_MEMORY;
	return mt_scan_end(stmt, rc, result);
}
