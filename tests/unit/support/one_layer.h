/* SPDX-License-Identifier: MIT */
/*
 * What a single selection leaves in the file: a pass of a model with one layer, and the bytes
 * that are stored of it.
 */
#ifndef TEST_ONE_LAYER_H
#define TEST_ONE_LAYER_H

#include <stdint.h>

#include <moetrace/moetrace.h>
#include <sqlite3.h>

#include "tests/unit/support/toy.h"

/* A selection of these ids, without weights. */
struct moetrace_selection one_layer_selection(uint32_t id_type, const void *ids);

/* Begin a pass of rows of no request. */
struct moetrace_pass *one_layer_begin(const struct toy *toy, uint32_t n_rows);

/*
 * Record one pass of a new file, whose layer is @selection (its n_rows is set to @n_rows where
 * it is 0); returns the closed file, which agrees with itself.
 */
sqlite3 *one_layer_record(uint32_t n_experts, uint32_t top_k, uint32_t n_rows,
			  struct moetrace_selection *selection);

/* What is stored of the only layer of the only pass, in hexadecimal; "none": NULL. */
const char *one_layer_stored(sqlite3 *db, const char *column);

#endif
