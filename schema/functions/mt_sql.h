/* SPDX-License-Identifier: MIT */
/*
 * The SQL functions of moetrace for whole files. mt_sql_register() adds them to a connection;
 * the loadable module moetrace_sql calls it from its entry sqlite3_moetracesql_init. They read
 * the trace that is the connection's main database and write nothing.
 *
 *   moe_topk   table-valued: the columns of routed_expert, also for rows of no request
 *   moe_load   table-valued: tokens by recording, layer, expert and phase, from the stored ids
 *   moe_eplb   table-valued: a placement of the experts on ranks by their load
 *   moe_balance  table-valued: how even ranks were under a placement, pass by pass
 *   moe_oea    table-valued: what a rule such as opportunistic expert activation would save
 *   moe_balance_pass  table-valued: the same for each layer of each pass
 *   moe_share  table-valued: the share of each expert and its error as an estimate from passes
 *   moe_rows   table-valued: how many rows an expert receives in a pass, as a histogram
 *   moe_pairs  table-valued: how often two experts were selected together
 *   moe_steps  table-valued: what consecutive positions and passes have in common
 *   moe_fit    table-valued: recorded layer times as a line of active experts and rows
 *   moe_layer_time  table-valued: view layer_time, of some passes where the file is large
 *   moe_rule   table-valued: what the rules of a recording did
 *   moe_diff   table-valued: what differs between the choices of two recordings, by layer
 *   moe_diff_request, moe_attempts  table-valued: the same by request, and by attempts of requests
 *   moe_similarity, moe_outliers  table-valued: how alike requests were routed
 *   moe_expand table-valued: further experts whose scores are near those that were chosen
 */
#ifndef MT_SCHEMA_FUNCTIONS_MT_SQL_H
#define MT_SCHEMA_FUNCTIONS_MT_SQL_H

#include <sqlite3.h>

/*
 * The extended result code of a function that cannot do what its arguments ask for, as
 * sqlite3_extended_errcode() has it. The file may well be sound: what is wrong with a file is
 * SQLITE_CORRUPT.
 */
#define MT_SQL_ARGUMENT (SQLITE_ERROR | (109 << 8))

/* Returns an SQLite result code; on failure sqlite3_errmsg(db) says why. */
int mt_sql_register(sqlite3 *db);

/* The pass that a function of this thread began to read last: passes are read in the order of their ids. */
extern _Thread_local sqlite3_int64 mt_reader_pass_id;

/* The parts, one a table-valued function. */
int mt_sql_register_topk(sqlite3 *db);
int mt_sql_register_load(sqlite3 *db);
int mt_sql_register_eplb(sqlite3 *db);
int mt_sql_register_balance(sqlite3 *db);
int mt_sql_register_oea(sqlite3 *db);
int mt_sql_register_balance_pass(sqlite3 *db);
int mt_sql_register_share(sqlite3 *db);
int mt_sql_register_pairs(sqlite3 *db);
int mt_sql_register_rows(sqlite3 *db);
int mt_sql_register_steps(sqlite3 *db);
int mt_sql_register_fit(sqlite3 *db);
int mt_sql_register_layer_time(sqlite3 *db);
int mt_sql_register_rule(sqlite3 *db);
int mt_sql_register_expand(sqlite3 *db);
int mt_sql_register_diff(sqlite3 *db);
int mt_sql_register_diff_request(sqlite3 *db);
int mt_sql_register_outliers(sqlite3 *db);
int mt_sql_register_similarity(sqlite3 *db);

#endif
