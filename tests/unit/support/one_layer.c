/* SPDX-License-Identifier: MIT */
/*
 * One selection in one pass of a model with one layer; see one_layer.h.
 */
#include "tests/unit/support/one_layer.h"

#include <check.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"

struct moetrace_pass *one_layer_begin(const struct toy *toy, uint32_t n_rows)
{
	const struct moetrace_slice slice = {.n_rows = n_rows};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);

	ck_assert_ptr_nonnull(pass);
	return pass;
}

/* What is stored of the only layer of the only pass, in hexadecimal. */
const char *one_layer_stored(sqlite3 *db, const char *column)
{
	const char *row_bytes = strcmp(column, "topk_ids") == 0	      ? "t.k * t.id_bytes"
				: strcmp(column, "topk_weights") == 0 ? "t.k * 2"
				: strcmp(column, "row_map") == 0      ? "4"
								      : "1";

	return db_text(db,
		       "SELECT iif(t.%s IS NULL, 'none', hex(substr(t.%s, 1 + pl.topk_row * %s,"
		       " pl.n_rows * %s))) FROM pass_layer AS pl JOIN topk AS t USING (topk_id)",
		       column, column, row_bytes, row_bytes);
}

/* Records one pass of one layer and returns the closed file, which agrees with itself. */
sqlite3 *one_layer_record(uint32_t n_experts, uint32_t top_k, uint32_t n_rows,
			  struct moetrace_selection *selection)
{
	struct toy toy = toy_start("select.db", NULL, 1, n_experts, top_k);
	struct moetrace_pass *pass = one_layer_begin(&toy, n_rows);
	sqlite3 *db;

	selection->n_rows = selection->n_rows ? selection->n_rows : n_rows;
	moetrace_select_experts(pass, selection);
	moetrace_pass_end(pass);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	return db;
}

struct moetrace_selection one_layer_selection(uint32_t id_type, const void *ids)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.id_type = id_type;
	selection.ids = ids;
	return selection;
}
