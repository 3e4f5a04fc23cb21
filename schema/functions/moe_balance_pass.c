/* SPDX-License-Identifier: MIT */
/*
 * moe_balance_pass(n_ranks, placement, shared, phase, model, recording): the figures of moe_balance() for each layer
 * of each pass, in the order of the passes. The rows come pass by pass, so that a large file takes
 * no memory. Layers without rows, and those of which nothing is known, have no row.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "rank_load.h"
#include "tvf.h"

static int begin(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		 void **ret_state);
static int more(void *state, struct mt_tvf_rows *rows);
static void end(void *state);

static const struct mt_tvf balance_pass = {
	.name = "moe_balance_pass",
	.declaration =
		"CREATE TABLE moe_balance_pass (recording_id INTEGER, model_id INTEGER,"
		" pass_id INTEGER, layer_id INTEGER, layer INTEGER, phase TEXT, begin_ns INTEGER,"
		" ranks INTEGER, tokens INTEGER, hottest_rank INTEGER, mean_rank_tokens REAL,"
		" max_rank_tokens REAL, max_over_mean REAL, balancedness REAL, cv REAL, gini REAL,"
		" entropy REAL," MT_RANK_ARGUMENTS_SQL,
	.n_columns = 17,
	.n_arguments = MT_N_RANK_ARGUMENTS,
	.n_rows = 100000,
	.begin = begin,
	.more = more,
	.end = end,
};

static int begin(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		 void **ret_state)
{
	struct mt_rank_load *load = sqlite3_malloc(sizeof(*load));

	if (!load)
		return SQLITE_NOMEM;
	*ret_state = load;
	return mt_rank_load_open(load, db, &balance_pass, arguments, rows);
}

static void end(void *state)
{
	mt_rank_load_close(state);
	sqlite3_free(state);
}

static int list(struct mt_rank_load *load, struct mt_tvf_rows *rows)
{
	const struct mt_reader *reader = &load->load.reader;
	struct mt_balance b;
	int rc = SQLITE_OK;

	mt_rank_load_balance(load, &b);
	const sqlite3_int64 keys[] = {reader->recording_id,
				      load->load.layer.model_id,
				      reader->pass_id,
				      load->load.layer.layer_id,
				      load->load.layer.layer,
				      0,
				      reader->begin_ns,
				      load->map->n_ranks,
				      (sqlite3_int64)load->tokens,
				      b.hottest_rank};
	const double figures[] = {b.mean, b.max,  b.max_over_mean, b.balancedness,
				  b.cv,	  b.gini, b.entropy};

	for (int i = 0; rc == SQLITE_OK && i < 10; i++)
		rc = i == 5 ? mt_tvf_text(rows, reader->phase) : mt_tvf_int64(rows, keys[i]);
	for (int i = 0; rc == SQLITE_OK && i < 7; i++)
		rc = mt_tvf_double(rows, figures[i]);
	return rc;
}

static int more(void *state, struct mt_tvf_rows *rows)
{
	struct mt_rank_load *load = state;
	int rc;

	load->rows = rows;
	do
		rc = mt_rank_load_next(load);
	while (rc == SQLITE_ROW && (!load->is_known || load->tokens == 0));
	if (rc == SQLITE_ROW)
		return list(load, rows);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_sql_register_balance_pass(sqlite3 *db)
{
	return mt_tvf_register(db, &balance_pass);
}
