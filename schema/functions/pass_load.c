/* SPDX-License-Identifier: MIT */
/*
 * Counting, layer by layer. Ids that no expert of the layer has are counted nowhere: the recorder
 * keeps them as they came and says so in the verdict.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "pass_load.h"
#include "trace_reader_internal.h"

#include <string.h>

enum { N_COUNTS = 65536 };

static const char counted_sql[] = "SELECT count_bytes, counts FROM main.layer_load"
				  " WHERE pass_id = ?1 AND layer_id = ?2";

int mt_pass_load_open(struct mt_pass_load *load, sqlite3 *db, const char *name,
		      const struct mt_filter *filter, const char *phase)
{
	int rc;

	memset(load, 0, sizeof(*load));
	load->phase = phase;
	rc = mt_reader_open_passes(&load->reader, db, name, filter);
	if (rc == SQLITE_OK)
		rc = mt_reader_prepare(&load->reader, counted_sql, &load->counted_stmt);
	if (rc != SQLITE_OK)
		return rc;
	load->counts = sqlite3_malloc64(N_COUNTS * sizeof(*load->counts));
	if (!load->counts)
		return SQLITE_NOMEM;
	memset(load->counts, 0, N_COUNTS * sizeof(*load->counts));
	return SQLITE_OK;
}

void mt_pass_load_close(struct mt_pass_load *load)
{
	sqlite3_finalize(load->counted_stmt);
	sqlite3_free(load->counts);
	mt_reader_close(&load->reader);
	memset(load, 0, sizeof(*load));
}

static void count_u8(uint32_t *counts, const uint8_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		counts[ids[i]]++;
}

static void count_u16(uint32_t *counts, const uint8_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		counts[ids[2 * i] | ids[2 * i + 1] << 8]++;
}

static int count_stored(struct mt_pass_load *load)
{
	struct mt_reader *reader = &load->reader;
	const struct mt_run *run = reader->run;
	const size_t row_bytes = run->k * run->id_bytes;
	const uint8_t *ids = run->ids + reader->first_row * row_bytes;
	void (*count)(uint32_t *, const uint8_t *, size_t) =
		run->id_bytes == 1 ? count_u8 : count_u16;

	load->n_used = run->id_bytes == 1 ? 256 : N_COUNTS;
	load->n_rows = reader->n_layer_rows;
	if (!run->n_valid) {
		count(load->counts, ids, reader->n_layer_rows * run->k);
		return SQLITE_OK;
	}
	for (size_t i = 0; i < reader->n_layer_rows; i++, ids += row_bytes) {
		size_t n_valid;
		int rc = mt_reader_n_valid(reader, i, &n_valid);

		if (rc != SQLITE_OK)
			return rc;
		count(load->counts, ids, n_valid);
	}
	return SQLITE_OK;
}

/* The little-endian number of @n_bytes at @bytes. */
static uint32_t number(const uint8_t *bytes, size_t n_bytes)
{
	uint32_t value = 0;

	for (size_t i = 0; i < n_bytes; i++)
		value |= (uint32_t)bytes[i] << 8 * i;
	return value;
}

static int fail_counted(struct mt_pass_load *load)
{
	return mt_reader_fail(&load->reader,
			      "layer_load (pass %lld, layer_id %lld): there is no such row, or"
			      " counts is no blob of %u counts",
			      load->reader.pass_id, load->reader.layer_id, load->n_slots);
}

static int count_counted(struct mt_pass_load *load)
{
	sqlite3_stmt *stmt = load->counted_stmt;
	const uint8_t *blob;
	size_t n_bytes;
	int rc;

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, load->reader.pass_id);
	sqlite3_bind_int64(stmt, 2, load->reader.layer_id);
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? fail_counted(load)
					 : mt_reader_fail_sqlite(&load->reader, rc);
	if (!mt_column_count(stmt, 0, &n_bytes) || (n_bytes != 1 && n_bytes != 2 && n_bytes != 4) ||
	    sqlite3_column_type(stmt, 1) != SQLITE_BLOB ||
	    (size_t)sqlite3_column_bytes(stmt, 1) != n_bytes * load->n_slots)
		return fail_counted(load);
	blob = sqlite3_column_blob(stmt, 1);
	for (uint32_t i = 0; blob && i < load->n_slots; i++)
		load->counts[i] = number(blob + i * n_bytes, n_bytes);
	load->n_used = load->n_slots;
	load->n_rows = load->reader.n_rows;
	return SQLITE_OK;
}

static int next_layer(struct mt_pass_load *load)
{
	struct mt_reader *reader = &load->reader;
	int rc;

	do {
		rc = reader->pass_id ? mt_reader_next_layer(reader) : SQLITE_DONE;
		while (rc == SQLITE_DONE) {
			rc = mt_reader_next_pass(reader);
			if (rc != SQLITE_ROW)
				return rc;
			rc = !load->phase || load->phase == reader->phase
				     ? mt_reader_next_layer(reader)
				     : SQLITE_DONE;
		}
	} while (rc == SQLITE_ROW && reader->layer_model_id != reader->model_id);
	return rc;
}

int mt_pass_load_next(struct mt_pass_load *load)
{
	int rc = next_layer(load);

	if (rc != SQLITE_ROW)
		return rc;
	memset(load->counts, 0, load->n_used * sizeof(*load->counts));
	load->n_used = 0;
	load->layer = *load->reader.layer_facts;
	load->n_slots =
		load->layer.n_experts + load->layer.n_zero_experts + load->layer.n_shared_slots;
	load->is_known =
		load->reader.state == MT_LAYER_STORED || load->reader.state == MT_LAYER_COUNTED;
	load->n_rows = 0;
	load->n_routed = 0;
	if (!load->is_known)
		return SQLITE_ROW;
	rc = load->reader.state == MT_LAYER_STORED ? count_stored(load) : count_counted(load);
	for (uint32_t i = 0; i < load->layer.n_experts; i++)
		load->n_routed += load->counts[i];
	return rc == SQLITE_OK ? SQLITE_ROW : rc;
}
