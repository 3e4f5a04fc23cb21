/* SPDX-License-Identifier: MIT */
/*
 * Registration. The same sources are compiled twice: with SQLITE_CORE into the command, which
 * links SQLite, and without it into the module, where every call goes through the table that
 * the host's SQLite passes to the entry point. The module is never unloaded while a connection
 * uses it, so it keeps no state of its own.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include "mt_sql.h"

#include <stddef.h>

static int (*const parts[])(sqlite3 *) = {
	mt_sql_register_topk,
	mt_sql_register_load,
	mt_sql_register_eplb,
	mt_sql_register_balance,
	mt_sql_register_balance_pass,
	mt_sql_register_share,
	mt_sql_register_pairs,
	mt_sql_register_rows,
	mt_sql_register_steps,
	mt_sql_register_oea,
	mt_sql_register_fit,
	mt_sql_register_layer_time,
	mt_sql_register_rule,
	mt_sql_register_expand,
	mt_sql_register_diff,
	mt_sql_register_diff_request,
	mt_sql_register_outliers,
	mt_sql_register_similarity,
};

int mt_sql_register(sqlite3 *db)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(parts) / sizeof(parts[0]); i++)
		rc = parts[i](db);
	return rc;
}

#ifndef SQLITE_CORE
__attribute__((visibility("default"))) int
sqlite3_moetracesql_init(sqlite3 *db, char **ret_error, const sqlite3_api_routines *api);

int sqlite3_moetracesql_init(sqlite3 *db, char **ret_error, const sqlite3_api_routines *api)
{
	int rc;

	SQLITE_EXTENSION_INIT2(api);
	rc = mt_sql_register(db);
	if (rc != SQLITE_OK)
		*ret_error = sqlite3_mprintf("moetrace_sql: %s", sqlite3_errmsg(db));
	return rc;
}
#endif
