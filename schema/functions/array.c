/* SPDX-License-Identifier: MIT */
/*
 * Arrays that grow; see array.h.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"

#include <string.h>

int mt_array_grow(void *array, size_t *size, size_t needed, size_t element_bytes)
{
	size_t bigger = *size ? *size : 64;
	void *old, *memory;

	while (bigger < needed)
		bigger *= 2;
	memcpy(&old, array, sizeof(old));
	memory = sqlite3_realloc64(old, (sqlite3_uint64)bigger * element_bytes);
	if (!memory)
		return SQLITE_NOMEM;
	memcpy(array, &memory, sizeof(memory));
	*size = bigger;
	return SQLITE_OK;
}
