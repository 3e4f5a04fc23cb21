/* SPDX-License-Identifier: MIT */
/*
 * A table of patterns over kernel names. The first one that matches decides; what none matches is
 * 'other'.
 */
#include "collectors/cupti/roles.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#define PATTERN_BYTES 256

struct role {
	const char *pattern;
	uint32_t role;
	uint32_t moves_data;
};

static const struct role table[] = {
	{ "*nccl*", MOETRACE_ROLE_COLLECTIVE, 1 },
	{ "*all_reduce*", MOETRACE_ROLE_COLLECTIVE, 1 },
	{ "*allreduce*", MOETRACE_ROLE_COLLECTIVE, 1 },
	{ "*deep_ep*dispatch*", MOETRACE_ROLE_DISPATCH, 1 },
	{ "*deep_ep*combine*", MOETRACE_ROLE_COMBINE, 1 },
	{ "*topk*", MOETRACE_ROLE_TOPK, 0 },
	{ "route_*", MOETRACE_ROLE_TOPK, 0 },
	{ "*router_gemm*", MOETRACE_ROLE_GATE, 0 },
	{ "*router*", MOETRACE_ROLE_GATE, 0 },
	{ "*align*", MOETRACE_ROLE_ALIGN, 0 },
	{ "*permute*", MOETRACE_ROLE_ALIGN, 0 },
	{ "*moe_sum*", MOETRACE_ROLE_COMBINE, 0 },
	{ "*combine*", MOETRACE_ROLE_COMBINE, 0 },
	{ "*fused_moe*", MOETRACE_ROLE_EXPERTS, 0 },
	{ "*grouped*gemm*", MOETRACE_ROLE_EXPERTS, 0 },
	{ "*group_gemm*", MOETRACE_ROLE_EXPERTS, 0 },
	{ "*shared_expert*", MOETRACE_ROLE_SHARED, 0 },
	{ "*expert*", MOETRACE_ROLE_EXPERTS, 0 },
	{ "*flash*", MOETRACE_ROLE_ATTENTION, 0 },
	{ "*fmha*", MOETRACE_ROLE_ATTENTION, 0 },
	{ "*attention*", MOETRACE_ROLE_ATTENTION, 0 },
	{ "*rope*", MOETRACE_ROLE_ATTENTION, 0 },
	{ "*norm*", MOETRACE_ROLE_NORM, 0 },
	{ "*embed*", MOETRACE_ROLE_EMBED, 0 },
};

static const char *const names[] = { "other",	"gate",	  "topk",   "align",	 "dispatch",
				     "experts", "combine", "shared", "attention", "norm",
				     "embed",	"head",	  "collective", "copy" };

static uint32_t role_of(const char *name, size_t n_bytes)
{
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == n_bytes && strncmp(names[i], name, n_bytes) == 0)
			return i;
	return UINT32_MAX;
}

uint32_t mtc_cupti_role_moves_data(uint32_t role)
{
	return role == MOETRACE_ROLE_DISPATCH || role == MOETRACE_ROLE_COLLECTIVE;
}

/*
 * The function's own name in a mangled one, with :: between its parts: what comes before its arguments,
 * which name types that say nothing of it. What is not mangled is taken whole.
 */
static const char *own_name(const char *name, char *room, size_t room_bytes)
{
	const char *at = name + 2;
	size_t used = 0;
	int is_nested;

	if (strncmp(name, "_Z", 2) != 0)
		return name;
	is_nested = *at == 'N';
	at += is_nested;
	while (*at >= '0' && *at <= '9') {
		char *end;
		unsigned long n = strtoul(at, &end, 10);

		if (n > strlen(end) || used + n + 3 > room_bytes)
			break;
		used += (size_t)snprintf(room + used, room_bytes - used, "%s%.*s",
					 used ? "::" : "", (int)n, end);
		at = end + n;
		if (!is_nested)
			break;
	}
	return used ? room : name;
}

/* Names of kernels neither begin nor end with one: such a pattern would match none of them. */
static int has_blank_ends(const char *pattern, size_t n_bytes)
{
	return pattern[0] == ' ' || pattern[n_bytes - 1] == ' ';
}

/*
 * An entry of the person's own table, which may be empty; where the next one begins, NULL: it was the last
 * one. Its role is UINT32_MAX if it is none.
 */
static const char *next_own(const char *at, char *ret_pattern, size_t pattern_bytes,
			    uint32_t *ret_role)
{
	size_t n_entry = strcspn(at, ",");
	const char *equals = memchr(at, '=', n_entry);
	size_t n_pattern = equals ? (size_t)(equals - at) : 0;

	*ret_role = UINT32_MAX;
	if (n_pattern && n_pattern < pattern_bytes && !has_blank_ends(at, n_pattern)) {
		snprintf(ret_pattern, pattern_bytes, "%.*s", (int)n_pattern, at);
		*ret_role = role_of(equals + 1, n_entry - n_pattern - 1);
	}
	return at[n_entry] ? at + n_entry + 1 : NULL;
}

/* Returns whether an entry of the person's own table matches. */
static int find_own(const char *at, const char *name, uint32_t *ret_role)
{
	char pattern[PATTERN_BYTES];
	uint32_t role;

	while (at) {
		at = next_own(at, pattern, sizeof(pattern), &role);
		if (role != UINT32_MAX && fnmatch(pattern, name, FNM_CASEFOLD) == 0) {
			*ret_role = role;
			return 1;
		}
	}
	return 0;
}

int mtc_cupti_roles_check(const char *own_table, char *ret_wrong, size_t wrong_bytes)
{
	const char *at = *own_table ? own_table : NULL;
	char pattern[PATTERN_BYTES];
	uint32_t role;

	while (at) {
		const char *entry = at;

		at = next_own(at, pattern, sizeof(pattern), &role);
		if (role != UINT32_MAX)
			continue;
		snprintf(ret_wrong, wrong_bytes, "%.*s", (int)strcspn(entry, ","), entry);
		return -1;
	}
	return 0;
}

void mtc_cupti_role(const char *own_table, const char *name, uint32_t *ret_role,
		    uint32_t *ret_moves_data)
{
	char room[1024];
	const char *own = own_name(name, room, sizeof(room));

	*ret_role = MOETRACE_ROLE_OTHER;
	*ret_moves_data = 0;
	if (find_own(own_table, name, ret_role) || find_own(own_table, own, ret_role)) {
		*ret_moves_data = mtc_cupti_role_moves_data(*ret_role);
		return;
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (fnmatch(table[i].pattern, own, FNM_CASEFOLD) != 0)
			continue;
		*ret_role = table[i].role;
		*ret_moves_data = table[i].moves_data;
		return;
	}
}
