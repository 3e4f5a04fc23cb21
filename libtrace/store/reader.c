/* SPDX-License-Identifier: MIT */
/*
 * A request's experts out of the newest file that has it, in one read transaction: its row, its links, then the
 * slices of each part with their layers. Blobs are trusted as far as their sizes go: what does
 * not fit is an error, as the file may be anybody's by now.
 */
#include "libtrace/store/reader.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/past.h"
#include "libtrace/store/store.h"

#define BUSY_TIMEOUT_MS 2000

#define SQL_REQUEST                                                                           \
	"SELECT request_id, n_attempts, n_positions FROM request WHERE handle = ?1 "          \
	"ORDER BY recording_id DESC LIMIT 1"
/* All that counts for the length of an attempt: rows of target models, and links. */
#define SQL_LENGTH                                                                            \
	"SELECT s.first_position, s.positions, s.n_rows, s.phase, s.accepted "                \
	"FROM pass_request AS s CROSS JOIN pass AS p ON p.pass_id = s.pass_id "               \
	"CROSS JOIN model AS m ON m.model_id = p.model_id AND m.kind = 'target' "             \
	"WHERE s.request_id = ?1 AND s.attempt = ?2 AND s.phase <> 'draft' UNION ALL "        \
	"SELECT first_position, NULL, n_positions, '', NULL FROM request_reuse "              \
	"WHERE request_id = ?1 AND attempt = ?2"
#define SQL_LINKS                                                                             \
	"SELECT source_request_id, source_attempt, first_position, n_positions "              \
	"FROM request_reuse WHERE request_id = ?1 AND attempt = ?2 "                          \
	"AND source_request_id IS NOT NULL ORDER BY first_position"
#define SQL_SLICES                                                                            \
	"SELECT s.pass_id, s.first_position, s.positions, s.row_offset, s.n_rows, s.phase, "  \
	"s.accepted, coalesce(p.reasons, '') LIKE '%sampled%' FROM pass_request AS s CROSS JOIN pass AS p ON p.pass_id = s.pass_id "    \
	"AND p.model_id = ?3 WHERE s.request_id = ?1 AND s.attempt = ?2 ORDER BY s.pass_id, " \
	"s.slice"
#define SQL_LAYERS                                                                            \
	"SELECT pl.layer_id, pl.state, pl.n_rows, pl.topk_row, t.k, t.id_bytes, t.topk_ids, " \
	"t.n_valid, t.row_map FROM pass_layer AS pl LEFT JOIN topk AS t USING (topk_id) "     \
	"WHERE pl.pass_id = ?1"

enum { STMT_REQUEST, STMT_LENGTH, STMT_LINKS, STMT_SLICES, STMT_LAYERS, N_STMTS };

struct reader {
	sqlite3 *db;
	sqlite3_stmt *stmts[N_STMTS];
	const struct mt_model *model;
	struct mt_experts_ask *ask;
	int has_request;    /* the file has a row of it */
	const char *broken; /* what of the file is not what it should be */
};

static int reader_open(struct reader *reader, const char *path)
{
	static const char *const sql[N_STMTS] = { SQL_REQUEST, SQL_LENGTH, SQL_LINKS, SQL_SLICES,
						  SQL_LAYERS };

	if (sqlite3_open_v2(path, &reader->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL))
		return MOETRACE_E_IO;
	sqlite3_busy_timeout(reader->db, BUSY_TIMEOUT_MS);
	if (sqlite3_exec(reader->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		return MOETRACE_E_IO;
	for (int i = 0; i < N_STMTS; i++)
		if (sqlite3_prepare_v2(reader->db, sql[i], -1, &reader->stmts[i], NULL))
			return MOETRACE_E_IO;
	return MOETRACE_OK;
}

static void reader_close(struct reader *reader)
{
	for (int i = 0; i < N_STMTS; i++)
		sqlite3_finalize(reader->stmts[i]);
	sqlite3_close(reader->db);
}

/* A row: 1; none: 0; a failure: MOETRACE_E_IO. */
static int step(sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	if (rc == SQLITE_ROW)
		return 1;
	return rc == SQLITE_DONE ? 0 : MOETRACE_E_IO;
}

/* A blob of @n_bytes from byte @at on; NULL where the column is NULL or not that long. */
static const uint8_t *blob_at(sqlite3_stmt *stmt, int column, uint64_t at, uint64_t n_bytes)
{
	const uint8_t *blob = sqlite3_column_blob(stmt, column);
	uint64_t length = (uint64_t)sqlite3_column_bytes(stmt, column);

	return blob && at <= length && n_bytes <= length - at ? blob + at : NULL;
}

/* The layer's stored rows; 0 if they are not as the file should have them. */
static int rows_read(sqlite3_stmt *stmt, struct mt_experts_rows *rows)
{
	int64_t first = sqlite3_column_int64(stmt, 3);
	int64_t n_rows = sqlite3_column_int64(stmt, 2);
	int64_t k = sqlite3_column_int64(stmt, 4);
	int64_t id_bytes = sqlite3_column_int64(stmt, 5);

	if (first < 0 || first > UINT32_MAX || n_rows < 0 || n_rows > MOETRACE_MAX_ROWS || k < 1 ||
	    k > MOETRACE_MAX_TOP_K || id_bytes < 1 || id_bytes > 2)
		return n_rows == 0;
	rows->n_rows = (uint32_t)n_rows;
	rows->k = (uint32_t)k;
	rows->id_bytes = (uint32_t)id_bytes;
	rows->ids = blob_at(stmt, 6, (uint64_t)(first * k * id_bytes),
			    (uint64_t)(n_rows * k * id_bytes));
	rows->n_valid = blob_at(stmt, 7, (uint64_t)first, (uint64_t)n_rows);
	rows->row_map = blob_at(stmt, 8, (uint64_t)first * 4, (uint64_t)n_rows * 4);
	for (uint32_t i = 0; rows->n_valid && i < rows->n_rows; i++)
		if (rows->n_valid[i] > rows->k)
			return 0;
	return (rows->ids || !n_rows) &&
	       (rows->n_valid != NULL) == (sqlite3_column_type(stmt, 7) != SQLITE_NULL) &&
	       (rows->row_map != NULL) == (sqlite3_column_type(stmt, 8) != SQLITE_NULL);
}

static uint32_t index_of(const struct mt_model *model, int64_t layer_id)
{
	uint32_t i = 0;

	while (i < model->n_layers && model->layers[i].layer_id != layer_id)
		i++;
	return i;
}

static int layers_read(struct reader *reader, int64_t pass_id, int is_sampled,
		       const struct mt_experts_part *part, const struct mt_experts_slice *slice)
{
	struct mt_experts *experts = &reader->ask->experts;
	sqlite3_stmt *stmt = reader->stmts[STMT_LAYERS];
	int status;

	mt_experts_slice_begin(experts, part, slice);
	sqlite3_bind_int64(stmt, 1, pass_id);
	while ((status = step(stmt)) == 1) {
		struct mt_experts_rows rows = {
			.layer = index_of(reader->model, sqlite3_column_int64(stmt, 0)),
			.state = (uint32_t)sqlite3_column_int(stmt, 1),
		};

		if (rows.layer == experts->n_layers ||
		    (rows.state == MT_LAYER_STORED && !rows_read(stmt, &rows))) {
			reader->broken = "a layer's rows are not as they should be";
			status = MOETRACE_E_IO;
			break;
		}
		status = mt_experts_rows_add(experts, part, slice, &rows);
		if (status)
			break;
	}
	mt_experts_slice_end(experts, is_sampled);
	sqlite3_reset(stmt);
	return status;
}

static uint32_t phase_of(const char *name)
{
	if (name && strcmp(name, "draft") == 0)
		return MOETRACE_PHASE_DRAFT;
	if (name && strcmp(name, "verify") == 0)
		return MOETRACE_PHASE_VERIFY;
	return MOETRACE_PHASE_PREFILL; /* computed, as decode is */
}

static int part_read(struct reader *reader, const struct mt_experts_part *part)
{
	sqlite3_stmt *stmt = reader->stmts[STMT_SLICES];
	int status;

	sqlite3_bind_int64(stmt, 1, part->request_id);
	sqlite3_bind_int64(stmt, 2, part->attempt);
	sqlite3_bind_int64(stmt, 3, reader->model->model_id);
	while ((status = step(stmt)) == 1) {
		uint64_t n_rows = (uint64_t)sqlite3_column_int64(stmt, 4);
		struct mt_experts_slice slice = {
			.first_position = (uint64_t)sqlite3_column_int64(stmt, 1),
			.positions = blob_at(stmt, 2, 0, n_rows * 4),
			.row_offset = (uint32_t)sqlite3_column_int64(stmt, 3),
			.n_rows = (uint32_t)n_rows,
			.phase = phase_of((const char *)sqlite3_column_text(stmt, 5)),
			.accepted = blob_at(stmt, 6, 0, n_rows),
		};

		if (n_rows > MOETRACE_MAX_ROWS) {
			reader->broken = "a slice has more rows than a pass can have";
			status = MOETRACE_E_IO;
			break;
		}
		status = layers_read(reader, sqlite3_column_int64(stmt, 0),
				     sqlite3_column_int(stmt, 7), part, &slice);
		if (status)
			break;
	}
	sqlite3_reset(stmt);
	return status;
}

/* One past the highest position that a row of the statement computed. */
static uint64_t row_end(sqlite3_stmt *stmt)
{
	uint64_t n_rows = (uint64_t)sqlite3_column_int64(stmt, 2);
	const uint8_t *positions = blob_at(stmt, 1, 0, n_rows * 4);
	const uint8_t *accepted = blob_at(stmt, 4, 0, n_rows);
	const char *phase = (const char *)sqlite3_column_text(stmt, 3);
	int is_verify = phase && strcmp(phase, "verify") == 0;
	uint64_t end = 0;

	if (!positions && !is_verify)
		return (uint64_t)sqlite3_column_int64(stmt, 0) + n_rows;
	for (uint64_t i = 0; n_rows <= MOETRACE_MAX_ROWS && i < n_rows; i++) {
		uint64_t position = (uint64_t)sqlite3_column_int64(stmt, 0) + i;
		uint32_t listed;

		if (is_verify && (!accepted || !accepted[i]))
			continue;
		if (positions) {
			memcpy(&listed, positions + 4 * i, sizeof(listed));
			position = listed;
		}
		end = position + 1 > end ? position + 1 : end;
	}
	return end;
}

static int length_read(struct reader *reader, const struct mt_experts_part *own, uint64_t *ret_end)
{
	sqlite3_stmt *stmt = reader->stmts[STMT_LENGTH];
	uint64_t end = 0;
	int status;

	sqlite3_bind_int64(stmt, 1, own->request_id);
	sqlite3_bind_int64(stmt, 2, own->attempt);
	while ((status = step(stmt)) == 1)
		end = row_end(stmt) > end ? row_end(stmt) : end;
	*ret_end = end;
	return status;
}

/* The request's row, and what is asked for of it. */
static int request_read(struct reader *reader, uint64_t handle, struct mt_experts_part *ret_own)
{
	struct mt_experts_ask *ask = reader->ask;
	sqlite3_stmt *stmt = reader->stmts[STMT_REQUEST];
	int64_t n_attempts;
	uint64_t end = 0;
	int status;

	sqlite3_bind_int64(stmt, 1, (int64_t)handle);
	status = step(stmt);
	if (status != 1)
		return status ? status : MOETRACE_E_NOT_FOUND;
	reader->has_request = 1;
	n_attempts = sqlite3_column_int64(stmt, 1);
	if (ask->attempt == MOETRACE_ATTEMPT_LAST)
		ask->attempt = (uint32_t)(n_attempts - 1);
	if (ask->attempt >= n_attempts)
		return MOETRACE_E_NOT_FOUND;
	ret_own->request_id = sqlite3_column_int64(stmt, 0);
	ret_own->attempt = ask->attempt;
	if (!ask->n_positions && sqlite3_column_type(stmt, 2) != SQLITE_NULL &&
	    ask->attempt + 1 == n_attempts) {
		end = (uint64_t)sqlite3_column_int64(stmt, 2);
	} else if (!ask->n_positions) {
		status = length_read(reader, ret_own, &end);
		if (status)
			return status;
	}
	if (!ask->n_positions && end > ask->first_position)
		ask->n_positions = end - ask->first_position;
	ret_own->first = ask->first_position;
	ret_own->n = ask->n_positions;
	return MOETRACE_OK;
}

static int links_read(struct reader *reader, const struct mt_experts_part *own)
{
	sqlite3_stmt *stmt = reader->stmts[STMT_LINKS];
	int status;

	sqlite3_bind_int64(stmt, 1, own->request_id);
	sqlite3_bind_int64(stmt, 2, own->attempt);
	while ((status = step(stmt)) == 1) {
		struct mt_experts_part part = {
			.request_id = sqlite3_column_int64(stmt, 0),
			.attempt = (uint32_t)sqlite3_column_int64(stmt, 1),
			.is_reused = 1,
			.first = (uint64_t)sqlite3_column_int64(stmt, 2),
			.n = (uint64_t)sqlite3_column_int64(stmt, 3),
		};

		if (part.first >= own->first + own->n || part.first + part.n <= own->first)
			continue;
		status = part_read(reader, &part);
		if (status)
			break;
	}
	sqlite3_reset(stmt);
	return status;
}

/* One file. *ret_is_last: the request is in it, so that no older one is asked. */
static int file_read(struct mt_experts_ask *ask, const char *path, uint64_t handle,
		     const struct mt_model *model, int *ret_is_last, char *ret_error)
{
	struct reader reader = { .model = model, .ask = ask };
	struct mt_experts_part own = { .request_id = 0 };
	int status = reader_open(&reader, path);

	if (!status)
		status = request_read(&reader, handle, &own);
	if (!status)
		status = mt_experts_open(&ask->experts, ask->first_position, ask->n_positions,
					 model->n_layers, mt_model_top_k(model));
	if (!status && model->kind == MOETRACE_MODEL_TARGET)
		status = links_read(&reader, &own);
	if (!status)
		status = part_read(&reader, &own);
	if (status == MOETRACE_E_IO)
		snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s: %s", path,
			 reader.broken ? reader.broken : sqlite3_errmsg(reader.db));
	*ret_is_last = reader.has_request;
	reader_close(&reader);
	return status;
}

int mt_reader_experts(struct mt_experts_ask *ask, uint64_t handle, const struct mt_model *model,
		      char *ret_error)
{
	int is_last = 0;
	int status = file_read(ask, ask->path, handle, model, &is_last, ret_error);

	for (uint32_t i = ask->past->n_files;
	     status == MOETRACE_E_NOT_FOUND && !is_last && i-- > 0;)
		if (mt_past_is_there(&ask->past->files[i]))
			status = file_read(ask, ask->past->files[i].path, handle, model, &is_last,
					   ret_error);
	return status;
}
