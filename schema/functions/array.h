/* SPDX-License-Identifier: MIT */
/*
 * Arrays that grow, in SQLite's memory.
 */
#ifndef MT_SCHEMA_FUNCTIONS_ARRAY_H
#define MT_SCHEMA_FUNCTIONS_ARRAY_H

#include <sqlite3.h>
#include <stddef.h>

/* The part of mt_array_reserve() that is not done for each element. */
int mt_array_grow(void *array, size_t *size, size_t needed, size_t element_bytes);

/**
 * Make room for @needed elements.
 *
 * @array  The address of the pointer to the elements, which are sqlite3_malloc'ed, or none (NULL).
 * @size   For how many there is room.
 *
 * Returns SQLITE_OK, or SQLITE_NOMEM: then all is as before.
 */
static inline int mt_array_reserve(void *array, size_t *size, size_t needed, size_t element_bytes)
{
	return needed <= *size ? SQLITE_OK : mt_array_grow(array, size, needed, element_bytes);
}

#endif
