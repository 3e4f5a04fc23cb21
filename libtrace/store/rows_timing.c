/* SPDX-License-Identifier: MIT */
/*
 * Rows of schema/0002-timing.sql.
 */
#include "libtrace/store/store_internal.h"

int mt_store_string(struct mt_store *store, int64_t string_id, const char *value, const char *role,
		    int moves_data)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_STRING);

	mt_store_bind_int(stmt, 1, string_id);
	mt_store_bind_text(stmt, 2, value);
	mt_store_bind_text(stmt, 3, role);
	mt_store_bind_int(stmt, 4, role ? moves_data : MT_NULL);
	return mt_store_step(store, MT_STMT_STRING);
}

int mt_store_kernel(struct mt_store *store, const struct mt_kernel_row *row)
{
	const int64_t values[] = { row->recording_id, row->device_id, row->stream,
				   row->name_id,      row->start_ns,  row->end_ns,
				   row->pass_id,      row->layer_id,  row->known_by,
				   row->flags,	      row->launch_shape_id, row->correlation };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_KERNEL);

	for (int i = 0; i < (int)(sizeof(values) / sizeof(values[0])); i++)
		mt_store_bind_int(stmt, i + 1, values[i]);
	return mt_store_step(store, MT_STMT_KERNEL);
}
