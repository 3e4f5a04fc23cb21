/* SPDX-License-Identifier: MIT */
/*
 * What the parts that read a timeline share: the statements of a scan, and what it has looked up once.
 * A statement is reset before it is used again; what one part looks up another may need.
 */
#ifndef MT_VIEWER_TIMELINE_SCAN_INTERNAL_H
#define MT_VIEWER_TIMELINE_SCAN_INTERNAL_H

#include "viewer/timeline_scan.h"

#define N_KNOWN_NAMES	4096
#define MAX_LAYERS	4096 /* of a pass */
#define MAX_GRAPH_NODES 65536
#define MAX_DOMAINS	32

enum mt_scan_statement {
	S_PASS,
	S_PASS_LAYER,
	S_LAYER,
	S_POWER,
	S_RANGE,
	S_GRAPH,
	S_GRAPH_NODE,
	S_KERNEL,
	S_ROLE,
	S_STRING,
	S_MODEL,
	S_DEVICE,
	S_N,
};

/* What a name's bars are drawn as. */
struct mt_known_name {
	int64_t name_id; /* 0: none yet */
	uint8_t kind;
	bool moves_data;
};

struct mt_known_node {
	bool is_there;
	struct mt_known_name known;
	uint16_t layer;
};

struct mt_scan {
	struct mt_source_run *run;
	int64_t recording_id;
	sqlite3_stmt *statements[S_N];
	struct mt_known_name names[N_KNOWN_NAMES];
	uint16_t layers[MAX_LAYERS + 1]; /* the number of each layer_id, from 1; 0: not looked up */
	int64_t graph;			 /* whose nodes are below; 0: none */
	struct mt_known_node *nodes;		 /* [MAX_GRAPH_NODES] */
	struct {
		int64_t number;
		char text[64];
	} domains[MAX_DOMAINS];
	size_t n_domains;
};

/* ---- statements ---- */

static inline bool mt_scan_is_number(sqlite3_stmt *stmt, int column)
{
	return sqlite3_column_type(stmt, column) == SQLITE_INTEGER;
}

/* With its parameters bound, ready to be stepped. */
sqlite3_stmt *mt_scan_begin(struct mt_scan *scan, enum mt_scan_statement which, int64_t first,
			    int64_t last);
enum mt_scan_result mt_scan_end(sqlite3_stmt *stmt, int rc, enum mt_scan_result result);

/* ---- items ---- */

/* These return whether there was memory. */
bool mt_scan_item(struct mt_items *items, const struct mt_item *item);
bool mt_scan_point(struct mt_items *items, struct mt_lane lane, int64_t time_ns, double value,
		   double limit);

uint8_t mt_scan_kind(const char *name);
struct mt_known_name mt_scan_name_know(struct mt_scan *scan, int64_t name_id);
uint32_t mt_scan_name_number(int64_t name_id);

/* Of the layer_id in a column the layer's number, from 1; 0: none. */
uint16_t mt_scan_layer(struct mt_scan *scan, sqlite3_stmt *from, int column);

/* ---- the tables that are read elsewhere ---- */

enum mt_scan_result mt_scan_kernels(struct mt_scan *scan, int64_t first, int64_t last,
				    struct mt_items *items);
enum mt_scan_result mt_scan_graphs(struct mt_scan *scan, int64_t first, int64_t last,
				   struct mt_items *items);
enum mt_scan_result mt_scan_power(struct mt_scan *scan, int64_t first, int64_t last,
				  struct mt_items *items);

/* The text of a lane's domain. */
const char *mt_scan_domain(const struct mt_scan *scan, int64_t number);

#endif
