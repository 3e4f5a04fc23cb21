/* SPDX-License-Identifier: MIT */
/*
 * Prefix hits. A link to a request that has itself reused the positions is followed to the
 * attempt that computed them, and split where that changes. What is not found waits, since the
 * pass that computes it may still run; when the request ends, it is unknown.
 *
 * Invariant: links of an attempt are sorted and apart; those that do not wait are in the file
 * and never change.
 */
#include "libtrace/ledger.h"

#include <stdlib.h>
#include <string.h>

/* Chains are as long as hits on hits that all still wait; a circle of them ends here. */
#define MAX_DEPTH 32

size_t mt_reuse_find(const struct mt_attempt *attempt, uint64_t position)
{
	size_t low = 0;
	size_t high = attempt->n_links;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (attempt->links[middle].end <= position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ---- links of an attempt ---- */

static int is_continued(const struct mt_link *link, const struct mt_link *next)
{
	return link->end == next->begin && link->is_waiting == next->is_waiting &&
	       link->source == next->source &&
	       link->source_request_id == next->source_request_id &&
	       link->source_attempt == next->source_attempt && link->flaws == next->flaws;
}

static int insert(struct mt_attempt *attempt, size_t at, const struct mt_link *link)
{
	struct mt_link *links = attempt->links;

	if (attempt->n_links == attempt->links_capacity) {
		size_t capacity = attempt->links_capacity ? attempt->links_capacity * 2 : 4;

		links = realloc(links, capacity * sizeof(*links));
		if (!links)
			return MOETRACE_E_NOMEM;
		attempt->links = links;
		attempt->links_capacity = capacity;
	}
	memmove(&links[at + 1], &links[at], (attempt->n_links - at) * sizeof(*links));
	links[at] = *link;
	attempt->n_links++;
	return MOETRACE_OK;
}

/* Add the parts of a link that no earlier one has; returns 1 if some of it was there. */
static int add(struct mt_attempt *attempt, struct mt_link link)
{
	uint64_t end = link.end;
	int overlaps = 0;

	while (link.begin < end) {
		size_t i = mt_reuse_find(attempt, link.begin);
		struct mt_link *next = i < attempt->n_links ? &attempt->links[i] : NULL;
		struct mt_link *last = i > 0 ? &attempt->links[i - 1] : NULL;

		link.end = end;
		if (next && next->begin <= link.begin) {
			overlaps = 1;
			link.begin = next->end;
			continue;
		}
		if (next && next->begin < end)
			link.end = next->begin;
		if (last && last->is_waiting && is_continued(last, &link))
			last->end = link.end;
		else if (insert(attempt, i, &link))
			return MOETRACE_E_NOMEM;
		link.begin = link.end;
	}
	return overlaps;
}

/* ---- sources ---- */

/* Parts of a link, as they are found. */
struct parts {
	struct mt_link *links;
	size_t n;
	size_t capacity;
};

static int put(struct parts *parts, const struct mt_link *link)
{
	struct mt_link *links = parts->links;

	if (parts->n && is_continued(&links[parts->n - 1], link)) {
		links[parts->n - 1].end = link->end;
		return MOETRACE_OK;
	}
	if (parts->n == parts->capacity) {
		parts->capacity = parts->capacity ? parts->capacity * 2 : 4;
		links = realloc(links, parts->capacity * sizeof(*links));
		if (!links)
			return MOETRACE_E_NOMEM;
		parts->links = links;
	}
	links[parts->n++] = *link;
	return MOETRACE_OK;
}

static int follow(struct mt_ledger *ledger, const struct mt_link *link, int depth,
		  struct parts *parts);

/* Positions that the source reused: from where, as far as it is known. */
static int follow_link(struct mt_ledger *ledger, const struct mt_link *from,
		       struct mt_link *part, int depth, struct parts *parts)
{
	if (part->end > from->end)
		part->end = from->end;
	part->source = from->source;
	part->source_request_id = from->source_request_id;
	part->source_attempt = from->source_attempt;
	part->flaws = from->flaws;
	part->is_waiting = from->is_waiting;
	return part->is_waiting ? follow(ledger, part, depth + 1, parts) : put(parts, part);
}

/* The longest part from part->begin on that the attempt has in one way, or has not. */
static int follow_part(struct mt_ledger *ledger, struct mt_request *source,
		       const struct mt_attempt *attempt, struct mt_link *part, int depth,
		       struct parts *parts)
{
	size_t i = mt_reuse_find(attempt, part->begin);
	const struct mt_link *next = i < attempt->n_links ? &attempt->links[i] : NULL;
	uint32_t flaws;

	if (mt_attempt_run(attempt, part->begin, part->end, &part->end, &flaws)) {
		part->source = source->handle;
		part->source_request_id = source->request_id;
		part->source_attempt = attempt->attempt;
		part->flaws = flaws;
		part->is_waiting = 0;
		return put(parts, part);
	}
	if (next && next->begin <= part->begin)
		return follow_link(ledger, next, part, depth, parts);
	if (next && next->begin < part->end)
		part->end = next->begin;
	return put(parts, part);
}

static int follow(struct mt_ledger *ledger, const struct mt_link *link, int depth,
		  struct parts *parts)
{
	struct mt_request *source = depth < MAX_DEPTH ? mt_ledger_known(ledger, link->source) : NULL;
	struct mt_attempt *attempt = source ? mt_attempt_find(source, link->source_attempt) : NULL;
	uint64_t begin = link->begin;
	int status = MOETRACE_OK;

	if (!attempt)
		return put(parts, link);
	mt_ledger_touch(ledger, source);
	while (!status && begin < link->end) {
		struct mt_link part = *link;

		part.begin = begin;
		status = follow_part(ledger, source, attempt, &part, depth, parts);
		begin = parts->n ? parts->links[parts->n - 1].end : link->end;
	}
	return status;
}

/* Put the parts of link @i in its place and write those that are found. */
static int replace(struct mt_ledger *ledger, const struct mt_request *request,
		   struct mt_attempt *attempt, size_t i, const struct parts *parts)
{
	int status = MOETRACE_OK;

	attempt->links[i] = parts->links[0];
	for (size_t p = 1; !status && p < parts->n; p++)
		status = insert(attempt, i + p, &parts->links[p]);
	for (size_t p = 0; !status && p < parts->n; p++) {
		const struct mt_link *link = &attempt->links[i + p];
		struct mt_reuse_row row = {
			.request_id = request->request_id,
			.attempt = attempt->attempt,
			.first_position = (int64_t)link->begin,
			.n_positions = (int64_t)(link->end - link->begin),
			.source_request_id = link->source_request_id,
			.source_attempt = link->source_request_id == MT_NULL ?
						  MT_NULL :
						  link->source_attempt,
		};

		if (!link->is_waiting)
			status = mt_store_reuse(ledger->store, &row);
	}
	return status;
}

/*
 * Requests that reuse each other may lead back to whom they started from: an attempt reuses
 * neither itself nor one that came after it.
 */
static int is_own(const struct mt_link *link, const struct mt_request *request,
		  const struct mt_attempt *attempt)
{
	return link->source_request_id == request->request_id &&
	       link->source_attempt >= attempt->attempt;
}

static int resolve_link(struct mt_ledger *ledger, const struct mt_request *request,
			struct mt_attempt *attempt, size_t i, int is_final, size_t *ret_n)
{
	struct parts parts = { NULL, 0, 0 };
	int status = follow(ledger, &attempt->links[i], 0, &parts);

	for (size_t p = 0; !status && p < parts.n; p++) {
		struct mt_link *link = &parts.links[p];

		if (link->is_waiting ? is_final || !attempt->links[i].source :
				       is_own(link, request, attempt)) {
			link->is_waiting = 0;
			link->source_request_id = MT_NULL;
		}
		/* What still waits does so for whom it was said to wait for. */
		if (link->is_waiting) {
			link->source = attempt->links[i].source;
			link->source_attempt = attempt->links[i].source_attempt;
		}
	}
	if (!status)
		status = replace(ledger, request, attempt, i, &parts);
	*ret_n = parts.n;
	free(parts.links);
	return status;
}

int mt_reuse_resolve(struct mt_ledger *ledger, struct mt_request *request, int is_final)
{
	int status = MOETRACE_OK;

	for (uint32_t a = 0; a < request->n_attempts; a++) {
		struct mt_attempt *attempt = &request->attempts[a];
		size_t n_parts = 1;

		for (size_t i = 0; !status && i < attempt->n_links; i += n_parts) {
			n_parts = 1;
			if (attempt->links[i].is_waiting)
				status = resolve_link(ledger, request, attempt, i, is_final,
						      &n_parts);
		}
	}
	return status;
}

/* ---- the call ---- */

/* A part of the hit from one source. Returns MOETRACE_OK or MOETRACE_E_NOMEM. */
static int add_hit(struct mt_ledger *ledger, struct mt_request *request, uint64_t begin,
		   uint64_t end, uint64_t source, uint32_t source_attempt)
{
	struct mt_attempt *attempt = &request->attempts[request->n_attempts - 1];
	struct mt_link link = {
		.begin = begin,
		.end = end,
		.source = source,
		.source_request_id = MT_NULL,
		.source_attempt = source_attempt,
		.is_waiting = 1,
	};
	int overlaps;

	if (mt_attempt_overlaps(attempt, begin, end)) {
		request->reasons |= MT_REASON_REPEATED;
		ledger->n_repeated++;
	}
	overlaps = add(attempt, link);
	if (overlaps < 0)
		return overlaps;
	ledger->n_repeated += (uint64_t)overlaps;
	return MOETRACE_OK;
}

static int add_slots(struct mt_ledger *ledger, struct mt_request *request,
		     const struct mt_message *message)
{
	const uint64_t *slots = message->data;
	struct mt_slot first = { .request = 0 };
	uint64_t position = message->number;
	uint64_t end = message->number + message->n_tokens;
	uint64_t begin = position;
	int status = MOETRACE_OK;

	for (; !status && position < end; position++) {
		struct mt_slot owner = mt_slots_get(&ledger->slots, slots[position - message->number]);

		/* A slot that holds another position was used anew behind the runtime's back. */
		if (owner.position != position ||
		    (owner.request == request->handle && owner.attempt >= request->attempt))
			owner.request = 0;
		if (!owner.request)
			owner.attempt = 0;
		if (position == begin)
			first = owner;
		if (owner.request == first.request && owner.attempt == first.attempt)
			continue;
		status = add_hit(ledger, request, begin, position, first.request, first.attempt);
		begin = position;
		first = owner;
	}
	return status ? status :
			add_hit(ledger, request, begin, end, first.request, first.attempt);
}

void mt_ledger_slots_lost(struct mt_ledger *ledger, uint64_t lost_ns)
{
	if (lost_ns <= ledger->slots_lost_ns)
		return;
	mt_slots_clear(&ledger->slots);
	ledger->slots_lost_ns = lost_ns;
}

static int add_source(struct mt_ledger *ledger, struct mt_request *request,
		      const struct mt_message *message)
{
	struct mt_request *source = mt_ledger_known(ledger, message->source);
	uint32_t attempt = message->state;
	uint64_t handle = message->source;

	if (attempt == MOETRACE_ATTEMPT_LAST && source)
		attempt = source == request ? request->attempt - 1 : source->attempt;
	/* An attempt does not reuse what it computes itself. */
	if (!source || (source == request && attempt >= request->attempt))
		handle = MOETRACE_NO_REQUEST;
	if (!handle)
		attempt = 0;
	return add_hit(ledger, request, message->number, message->number + message->n_tokens,
		       handle, attempt);
}

int mt_ledger_reuse(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);
	int status;

	if (!request)
		return MOETRACE_E_NOT_FOUND;
	if (!request->request_id)
		return MOETRACE_OK;
	status = message->data ? add_slots(ledger, request, message) :
				 add_source(ledger, request, message);
	return status ? status : mt_reuse_resolve(ledger, request, 0);
}
