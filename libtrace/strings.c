/* SPDX-License-Identifier: MIT */
/*
 * Names, hashed by their text. A text may be there more than once, with another role each time;
 * a name that is there is found without memory.
 */
#include "libtrace/strings.h"

#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

void mt_strings_open(struct mt_strings *strings)
{
	pthread_mutex_init(&strings->lock, NULL);
}

void mt_strings_close(struct mt_strings *strings)
{
	for (uint32_t i = 1; i <= mt_strings_count(strings); i++)
		free(mt_strings_at(strings, i)->value);
	for (uint32_t i = 0; i < MT_MAX_STRING_BLOCKS; i++)
		free(strings->blocks[i]);
}

/* FNV-1a. */
static uint32_t bucket_of(const char *value)
{
	uint32_t hash = 2166136261u;

	for (; *value; value++)
		hash = (hash ^ (uint8_t)*value) * 16777619u;
	return hash % MT_STRING_BUCKETS;
}

static uint32_t find(const struct mt_strings *strings, uint32_t bucket, const char *value,
		     uint32_t role, uint32_t flags)
{
	uint32_t number = strings->buckets[bucket];

	while (number) {
		const struct mt_string *string = mt_strings_at(strings, number);

		if (string->role == role && string->flags == flags &&
		    strcmp(string->value, value) == 0)
			break;
		number = string->next;
	}
	return number;
}

static int add(struct mt_strings *strings, uint32_t bucket, const struct mt_string *string,
	       uint32_t *ret_number)
{
	uint32_t n = mt_strings_count(strings);
	struct mt_string **block = &strings->blocks[n / MT_STRING_BLOCK % MT_MAX_STRING_BLOCKS];

	if (n >= MT_STRING_BLOCK * MT_MAX_STRING_BLOCKS)
		return MOETRACE_E_LIMIT;
	if (!*block)
		*block = calloc(MT_STRING_BLOCK, sizeof(**block));
	if (!*block)
		return MOETRACE_E_NOMEM;
	(*block)[n % MT_STRING_BLOCK] = *string;
	(*block)[n % MT_STRING_BLOCK].value = strdup(string->value);
	if (!(*block)[n % MT_STRING_BLOCK].value)
		return MOETRACE_E_NOMEM;
	strings->buckets[bucket] = *ret_number = n + 1;
	/* Pairs with mt_strings_count(). */
	atomic_store_explicit(&strings->n, n + 1, memory_order_release);
	return MOETRACE_OK;
}

int mt_strings_add(struct mt_strings *strings, const char *value, uint32_t role, uint32_t flags,
		   void *tool, uint32_t *ret_number)
{
	uint32_t bucket = bucket_of(value);
	int status = MOETRACE_OK;

	pthread_mutex_lock(&strings->lock);
	*ret_number = find(strings, bucket, value, role, flags);
	if (!*ret_number) {
		struct mt_string string = { (char *)value, role, flags, strings->buckets[bucket],
					    tool };

		status = add(strings, bucket, &string, ret_number);
	}
	pthread_mutex_unlock(&strings->lock);
	return status;
}

const char *mt_role_name(uint32_t role)
{
	static const char *const names[] = {
		[MOETRACE_ROLE_OTHER] = "other",
		[MOETRACE_ROLE_GATE] = "gate",
		[MOETRACE_ROLE_TOPK] = "topk",
		[MOETRACE_ROLE_ALIGN] = "align",
		[MOETRACE_ROLE_DISPATCH] = "dispatch",
		[MOETRACE_ROLE_EXPERTS] = "experts",
		[MOETRACE_ROLE_COMBINE] = "combine",
		[MOETRACE_ROLE_SHARED] = "shared",
		[MOETRACE_ROLE_ATTENTION] = "attention",
		[MOETRACE_ROLE_NORM] = "norm",
		[MOETRACE_ROLE_EMBED] = "embed",
		[MOETRACE_ROLE_HEAD] = "head",
		[MOETRACE_ROLE_COLLECTIVE] = "collective",
		[MOETRACE_ROLE_COPY] = "copy",
	};

	return role < sizeof(names) / sizeof(names[0]) ? names[role] : NULL;
}
