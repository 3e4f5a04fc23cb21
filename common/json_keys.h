/* SPDX-License-Identifier: MIT */
/*
 * The keys seen so far in one JSON object, to find one that comes twice. A set is reused for the
 * next object of the same depth: mt_json_keys_reset() is O(1), because every slot carries the
 * generation that wrote it.
 */
#ifndef MT_COMMON_JSON_KEYS_H
#define MT_COMMON_JSON_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct mt_json_key_slot {
	uint64_t generation;
	uint64_t hash;
	size_t offset;
	size_t n_bytes;
};

struct mt_json_keys {
	struct mt_json_key_slot *slots; /* open addressing; a power of two of them, or none */
	size_t n_slots;
	size_t n_keys;
	char *bytes; /* the keys, one after the other */
	size_t n_bytes;
	size_t max_bytes;
	uint64_t generation;
};

/* A set of all zero bytes is valid and empty after its first reset. */
void mt_json_keys_reset(struct mt_json_keys *keys);

/**
 * Returns  MOETRACE_OK        the key is new and was added
 *          MOETRACE_E_FORMAT  it is in the set already
 *          MOETRACE_E_NOMEM
 */
int mt_json_keys_add(struct mt_json_keys *keys, const char *key, size_t n_bytes);

void mt_json_keys_release(struct mt_json_keys *keys);

#endif
