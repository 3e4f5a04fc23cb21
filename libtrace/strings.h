/* SPDX-License-Identifier: MIT */
/*
 * Names of operations and ranges: each text once, under a number that is its key in every file of
 * the session. They are only ever added. Adding takes a lock; whoever has a number may look the
 * name up, since its place is written before the number is given out.
 */
#ifndef MT_STRINGS_H
#define MT_STRINGS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* A name that no operation has: of ranges. */
#define MT_NO_ROLE UINT32_MAX

struct mt_string {
	char *value;
	uint32_t role; /* enum moetrace_kernel_role, or MT_NO_ROLE */
	uint32_t flags;
	uint32_t next; /* number of the next one with the same hash; 0: none */
	void *tool;    /* its handle for the tool that listens to ranges; NULL: none */
};

#define MT_STRING_BUCKETS 1024u
#define MT_STRING_BLOCK 1024u
#define MT_MAX_STRING_BLOCKS 1024u

struct mt_strings {
	pthread_mutex_t lock;    /* protects what follows from writers; the innermost one */
	uint32_t buckets[MT_STRING_BUCKETS];
	struct mt_string *blocks[MT_MAX_STRING_BLOCKS]; /* [MT_STRING_BLOCK] each, never moved */
	_Atomic uint32_t n; /* numbers 1 to n are in place */
};

void mt_strings_open(struct mt_strings *strings);
void mt_strings_close(struct mt_strings *strings);

/* The number of a name: MOETRACE_OK, MOETRACE_E_NOMEM or MOETRACE_E_LIMIT. */
int mt_strings_add(struct mt_strings *strings, const char *value, uint32_t role, uint32_t flags,
		   void *tool, uint32_t *ret_number);

/* A number that was given out. */
static inline const struct mt_string *mt_strings_at(const struct mt_strings *strings,
						    uint32_t number)
{
	return &strings->blocks[(number - 1) / MT_STRING_BLOCK][(number - 1) % MT_STRING_BLOCK];
}

static inline uint32_t mt_strings_count(struct mt_strings *strings)
{
	/* Pairs with mt_strings_add(). */
	return atomic_load_explicit(&strings->n, memory_order_acquire);
}

/* The name of a role, as the file has it; NULL: none. */
const char *mt_role_name(uint32_t role);

#endif
