/* SPDX-License-Identifier: MIT */
/*
 * Counting by recording, layer, value and expert. GROUP BY would sort every assignment of the
 * file; here a cell is found directly: a slot for each recording and layer that occurs, with
 * n_values x n_experts counts. Numbers of the file are checked before they are used as sizes.
 */
#include "cli/lift.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXPERTS 65536

struct member {
	int64_t request_id;
	int64_t value; /* index of its value */
};

struct slot {
	int64_t recording_id;
	int64_t layer_id;
	int64_t n_experts;
	uint64_t *tokens; /* [n_values][n_experts] */
};

struct counter {
	const struct mt_trace *trace;
	struct member *members; /* by ascending request */
	size_t n_members;
	size_t max_members;
	size_t last_member; /* the one found last: rows of a request follow each other */
	int64_t n_values;
	struct slot *slots;
	size_t n_slots;
	size_t last_slot;
	sqlite3_stmt *layer; /* experts of a layer */
};

static int memory_error(const struct counter *counter)
{
	mt_error("%s: out of memory for counts by attribute", counter->trace->path);
	return MT_EXIT_FAILED;
}

static int member_add(struct counter *counter, int64_t request_id, int64_t value)
{
	struct member *members;
	size_t max;

	if (counter->n_members == counter->max_members) {
		max = counter->max_members ? counter->max_members * 2 : 256;
		members = realloc(counter->members, max * sizeof(*members));
		if (!members)
			return memory_error(counter);
		counter->members = members;
		counter->max_members = max;
	}
	counter->members[counter->n_members++] = (struct member){request_id, value};
	if (value >= counter->n_values)
		counter->n_values = value + 1;
	return MT_EXIT_OK;
}

#define SQL_VALUES                                                                              \
	"CREATE TEMP TABLE lift_value AS SELECT value, row_number() OVER (ORDER BY value) - 1 " \
	"AS number FROM (SELECT DISTINCT value FROM request_attribute WHERE key = ?1)"
#define SQL_MEMBERS                                                  \
	"SELECT a.request_id, v.number FROM request_attribute AS a " \
	"JOIN temp.lift_value AS v ON v.value IS a.value WHERE a.key = ?1 ORDER BY a.request_id"

static int values_create(const struct counter *counter, const char *key)
{
	sqlite3_stmt *stmt = mt_trace_prepare(counter->trace, SQL_VALUES);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(counter->trace);
}

static int members_read(struct counter *counter, const char *key)
{
	sqlite3_stmt *stmt;
	int status = values_create(counter, key);
	int rc = SQLITE_DONE;

	if (status != MT_EXIT_OK)
		return status;
	stmt = mt_trace_prepare(counter->trace, SQL_MEMBERS);
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = member_add(counter, sqlite3_column_int64(stmt, 0),
				    sqlite3_column_int64(stmt, 1));
	sqlite3_finalize(stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		return mt_trace_error(counter->trace);
	if (status == MT_EXIT_OK && counter->n_values > MT_LIFT_MAX_VALUES) {
		mt_error("%s: attribute '%s' has %lld values, more than the %d that can be "
			 "compared; "
			 "choose another",
			 counter->trace->path, key, (long long)counter->n_values,
			 MT_LIFT_MAX_VALUES);
		return MT_EXIT_FAILED;
	}
	return status;
}

/* The value of a request; -1: it has none. */
static int64_t value_of(struct counter *counter, int64_t request_id)
{
	size_t low = 0;
	size_t high = counter->n_members;

	if (counter->last_member < high &&
	    counter->members[counter->last_member].request_id == request_id)
		return counter->members[counter->last_member].value;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (counter->members[middle].request_id < request_id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == counter->n_members || counter->members[low].request_id != request_id)
		return -1;
	counter->last_member = low;
	return counter->members[low].value;
}

static int64_t experts_of(const struct counter *counter, int64_t layer_id)
{
	int64_t n = 0;

	sqlite3_bind_int64(counter->layer, 1, layer_id);
	if (sqlite3_step(counter->layer) == SQLITE_ROW)
		n = sqlite3_column_int64(counter->layer, 0);
	sqlite3_reset(counter->layer);
	return n < 0 || n > MAX_EXPERTS ? 0 : n;
}

/* The slot of a recording and layer; NULL after an error line. */
static struct slot *slot_get(struct counter *counter, int64_t recording_id, int64_t layer_id)
{
	struct slot *slots = counter->slots;
	size_t i = counter->last_slot;
	size_t n;

	if (i < counter->n_slots && slots[i].layer_id == layer_id &&
	    slots[i].recording_id == recording_id)
		return &slots[i];
	for (i = 0; i < counter->n_slots; i++)
		if (slots[i].layer_id == layer_id && slots[i].recording_id == recording_id)
			break;
	counter->last_slot = i;
	if (i < counter->n_slots)
		return &slots[i];
	slots = realloc(slots, (counter->n_slots + 1) * sizeof(*slots));
	if (!slots) {
		memory_error(counter);
		return NULL;
	}
	counter->slots = slots;
	slots[i] = (struct slot){recording_id, layer_id, experts_of(counter, layer_id), NULL};
	n = (size_t)counter->n_values * (size_t)slots[i].n_experts;
	slots[i].tokens = calloc(n + 1, sizeof(*slots[i].tokens));
	if (!slots[i].tokens) {
		memory_error(counter);
		return NULL;
	}
	counter->n_slots++;
	return &slots[i];
}

#define SQL_ROWS                                                           \
	"SELECT recording_id, layer_id, expert, request_id FROM moe_topk " \
	"WHERE request_id IS NOT NULL AND state = 'computed'"
#define SQL_ROWS_RECORDING SQL_ROWS " AND recording_id = ?1"

static int row_count(struct counter *counter, sqlite3_stmt *stmt)
{
	int64_t expert = sqlite3_column_int64(stmt, 2);
	int64_t value = value_of(counter, sqlite3_column_int64(stmt, 3));
	struct slot *slot;

	if (value < 0)
		return MT_EXIT_OK;
	slot = slot_get(counter, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
	if (!slot)
		return MT_EXIT_FAILED;
	if (expert >= 0 && expert < slot->n_experts)
		slot->tokens[value * slot->n_experts + expert]++;
	return MT_EXIT_OK;
}

static int rows_count(struct counter *counter, uint64_t recording_id, const char *phase)
{
	char *sql;
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	sql = sqlite3_mprintf("%s%s", recording_id ? SQL_ROWS_RECORDING : SQL_ROWS,
			      phase ? " AND phase = ?2" : "");
	if (!sql)
		return memory_error(counter);
	stmt = mt_trace_prepare(counter->trace, sql);
	sqlite3_free(sql);
	if (!stmt)
		return MT_EXIT_FAILED;
	if (recording_id)
		sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	if (phase)
		sqlite3_bind_text(stmt, 2, phase, -1, SQLITE_STATIC);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = row_count(counter, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(counter->trace);
	sqlite3_finalize(stmt);
	return status;
}

static int cell_store(const struct counter *counter, const struct slot *slot, sqlite3_stmt *stmt,
		      int64_t cell)
{
	int rc;

	if (slot->tokens[cell] == 0)
		return MT_EXIT_OK;
	sqlite3_bind_int64(stmt, 1, slot->recording_id);
	sqlite3_bind_int64(stmt, 2, slot->layer_id);
	sqlite3_bind_int64(stmt, 3, cell % slot->n_experts);
	sqlite3_bind_int64(stmt, 4, cell / slot->n_experts);
	sqlite3_bind_int64(stmt, 5, (int64_t)slot->tokens[cell]);
	rc = sqlite3_step(stmt);
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(counter->trace);
}

static int counts_store(const struct counter *counter)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int64_t cell;
	size_t i;

	if (sqlite3_exec(counter->trace->db,
			 "CREATE TEMP TABLE lift_count (recording_id, layer_id, "
			 "expert, value, tokens)",
			 NULL, NULL, NULL) != SQLITE_OK)
		return mt_trace_error(counter->trace);
	stmt = mt_trace_prepare(counter->trace, "INSERT INTO temp.lift_count SELECT ?1, ?2, ?3, "
						"value, ?5 FROM temp.lift_value WHERE number = ?4");
	if (!stmt)
		return MT_EXIT_FAILED;
	for (i = 0; i < counter->n_slots && status == MT_EXIT_OK; i++)
		for (cell = 0;
		     cell < counter->n_values * counter->slots[i].n_experts && status == MT_EXIT_OK;
		     cell++)
			status = cell_store(counter, &counter->slots[i], stmt, cell);
	sqlite3_finalize(stmt);
	return status;
}

static void counter_free(struct counter *counter)
{
	size_t i;

	for (i = 0; i < counter->n_slots; i++)
		free(counter->slots[i].tokens);
	free(counter->slots);
	free(counter->members);
	sqlite3_finalize(counter->layer);
}

int mt_lift_count(const struct mt_trace *trace, const char *key, uint64_t recording_id,
		  const char *phase)
{
	struct counter counter = {.trace = trace};
	int status = MT_EXIT_FAILED;

	if (sqlite3_exec(trace->db,
			 "PRAGMA temp_store = memory; "
			 "DROP TABLE IF EXISTS temp.lift_count; "
			 "DROP TABLE IF EXISTS temp.lift_value",
			 NULL, NULL, NULL) != SQLITE_OK)
		return mt_trace_error(trace);
	counter.layer = mt_trace_prepare(trace, "SELECT n_experts FROM layer WHERE layer_id = ?1");
	if (counter.layer)
		status = members_read(&counter, key);
	if (status == MT_EXIT_OK)
		status = rows_count(&counter, recording_id, phase);
	if (status == MT_EXIT_OK)
		status = counts_store(&counter);
	counter_free(&counter);
	return status;
}

char *mt_lift_query(const char *key, uint64_t recording_id, const char *phase)
{
	char *recording = recording_id ? sqlite3_mprintf(" AND t.recording_id = %lld",
							 (long long)recording_id)
				       : sqlite3_mprintf("");
	char *of_phase = phase ? sqlite3_mprintf(" AND t.phase = %Q", phase) : sqlite3_mprintf("");
	char *sql = NULL;

	if (recording && of_phase)
		sql = sqlite3_mprintf(
			"SELECT t.recording_id, t.layer_id, t.expert, a.value, count(*) AS tokens "
			"FROM moe_topk AS t JOIN request_attribute AS a ON a.request_id = "
			"t.request_id JOIN layer AS n ON n.layer_id = t.layer_id WHERE a.key = %Q "
			"AND t.state = 'computed' AND t.expert < n.n_experts%s%s GROUP BY "
			"t.recording_id, t.layer_id, t.expert, a.value",
			key, recording, of_phase);
	sqlite3_free(recording);
	sqlite3_free(of_phase);
	return sql;
}
