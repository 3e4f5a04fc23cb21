/* SPDX-License-Identifier: MIT */
/*
 * An open-addressing hash set over a byte arena. It is at most half full, so that probes are short;
 * the hash is mixed with the address of the set, so that a file cannot be prepared to make every
 * key collide.
 */
#include "common/json_keys.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#define FIRST_SLOTS 16
#define FIRST_BYTES 256

static uint64_t hash_bytes(const struct mt_json_keys *keys, const char *bytes, size_t n_bytes)
{
	uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)(uintptr_t)keys;
	size_t i;

	for (i = 0; i < n_bytes; i++) {
		hash ^= (unsigned char)bytes[i];
		hash *= 0x100000001b3u;
		hash ^= hash >> 29;
	}
	return hash;
}

void mt_json_keys_reset(struct mt_json_keys *keys)
{
	keys->generation++;
	keys->n_keys = 0;
	keys->n_bytes = 0;
}

/* The slot that holds the key, or the free one where it belongs. */
static struct mt_json_key_slot *slot_find(const struct mt_json_keys *keys, uint64_t hash,
					  const char *key, size_t n_bytes)
{
	size_t mask = keys->n_slots - 1;
	size_t i = (size_t)hash & mask;

	for (;; i = (i + 1) & mask) {
		struct mt_json_key_slot *slot = &keys->slots[i];

		if (slot->generation != keys->generation)
			return slot;
		if (slot->hash == hash && slot->n_bytes == n_bytes &&
		    memcmp(keys->bytes + slot->offset, key, n_bytes) == 0)
			return slot;
	}
}

static int slots_grow(struct mt_json_keys *keys)
{
	size_t n_slots = keys->n_slots ? keys->n_slots * 2 : FIRST_SLOTS;
	struct mt_json_key_slot *slots = calloc(n_slots, sizeof(*slots));
	size_t i, j;

	if (!slots)
		return MOETRACE_E_NOMEM;
	for (i = 0; i < keys->n_slots; i++) {
		if (keys->slots[i].generation != keys->generation)
			continue;
		j = (size_t)keys->slots[i].hash & (n_slots - 1);
		while (slots[j].generation == keys->generation)
			j = (j + 1) & (n_slots - 1);
		slots[j] = keys->slots[i];
	}
	free(keys->slots);
	keys->slots = slots;
	keys->n_slots = n_slots;
	return MOETRACE_OK;
}

static int bytes_reserve(struct mt_json_keys *keys, size_t n_more)
{
	size_t max_bytes = keys->max_bytes ? keys->max_bytes : FIRST_BYTES;
	char *bytes;

	/* One byte more than the keys need, so that the arena exists for an empty key too. */
	while (max_bytes - keys->n_bytes <= n_more) {
		if (max_bytes > SIZE_MAX / 2)
			return MOETRACE_E_NOMEM;
		max_bytes *= 2;
	}
	if (max_bytes == keys->max_bytes)
		return MOETRACE_OK;
	bytes = realloc(keys->bytes, max_bytes);
	if (!bytes)
		return MOETRACE_E_NOMEM;
	keys->bytes = bytes;
	keys->max_bytes = max_bytes;
	return MOETRACE_OK;
}

int mt_json_keys_add(struct mt_json_keys *keys, const char *key, size_t n_bytes)
{
	uint64_t hash = hash_bytes(keys, key, n_bytes);
	struct mt_json_key_slot *slot;
	int status;

	if (keys->n_keys >= keys->n_slots / 2) {
		status = slots_grow(keys);
		if (status < 0)
			return status;
	}
	status = bytes_reserve(keys, n_bytes);
	if (status < 0)
		return status;
	slot = slot_find(keys, hash, key, n_bytes);
	if (slot->generation == keys->generation)
		return MOETRACE_E_FORMAT;
	memcpy(keys->bytes + keys->n_bytes, key, n_bytes);
	*slot = (struct mt_json_key_slot){keys->generation, hash, keys->n_bytes, n_bytes};
	keys->n_bytes += n_bytes;
	keys->n_keys++;
	return MOETRACE_OK;
}

void mt_json_keys_release(struct mt_json_keys *keys)
{
	free(keys->slots);
	free(keys->bytes);
	memset(keys, 0, sizeof(*keys));
}
