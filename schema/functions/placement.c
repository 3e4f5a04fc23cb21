/* SPDX-License-Identifier: MIT */
/*
 * The three steps of a placement, and the swaps that spread replicas; see placement.h. A node is
 * placed on its own: its experts are numbered from 0 in the order in which step 1 put them there.
 */
#include "placement.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static bool refuse(char *message, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, MT_PLACEMENT_MESSAGE_BYTES, format, arguments);
	va_end(arguments);
	return false;
}

bool mt_placement_is_possible(const struct mt_placement_shape *s,
			      char message[MT_PLACEMENT_MESSAGE_BYTES])
{
	if (s->n_experts == 0 || s->n_experts > MT_PLACEMENT_MAX)
		return refuse(message, "%u experts: give 1 to %u", s->n_experts, MT_PLACEMENT_MAX);
	if (s->n_replicas > MT_PLACEMENT_MAX)
		return refuse(message, "%u replicas: give at most %u", s->n_replicas,
			      MT_PLACEMENT_MAX);
	if (s->n_replicas < s->n_experts)
		return refuse(message, "%u replicas are too few for %u experts", s->n_replicas,
			      s->n_experts);
	if (s->n_ranks == 0 || s->n_replicas % s->n_ranks != 0)
		return refuse(message, "%u replicas cannot be divided by %u ranks", s->n_replicas,
			      s->n_ranks);
	if (s->n_groups == 0 || s->n_experts % s->n_groups != 0)
		return refuse(message, "%u experts cannot be divided by %u groups", s->n_experts,
			      s->n_groups);
	if (s->n_nodes == 0 || s->n_ranks % s->n_nodes != 0)
		return refuse(message, "%u ranks cannot be divided by %u nodes", s->n_ranks,
			      s->n_nodes);
	return true;
}

/* Something to be packed; the order is total, so that qsort() is deterministic. */
struct item {
	float load;
	uint32_t number;
};

static int compare_heaviest(const void *left, const void *right)
{
	const struct item *a = left, *b = right;

	if (a->load != b->load)
		return a->load > b->load ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* The pack with the least load that is not full; the first of equal ones. */
static uint32_t lightest(const float *pack_loads, const uint32_t *n_in_pack, uint32_t n_packs,
			 uint32_t pack_size)
{
	uint32_t best = n_packs;

	for (uint32_t i = 0; i < n_packs; i++)
		if (n_in_pack[i] < pack_size &&
		    (best == n_packs || pack_loads[i] < pack_loads[best]))
			best = i;
	return best;
}

/*
 * Pack @n items into @n_packs packs of equal size. ret_slots[i]: where item i lies, pack by pack.
 * With one item a pack they stay in their order.
 */
static bool pack(const float *loads, uint32_t n, uint32_t n_packs, uint32_t *ret_slots)
{
	const uint32_t pack_size = n / n_packs;
	struct item *items = malloc(n * sizeof(*items));
	float *pack_loads = calloc(n_packs, sizeof(*pack_loads));
	uint32_t *n_in_pack = calloc(n_packs, sizeof(*n_in_pack));
	const bool has_memory = items && pack_loads && n_in_pack;

	for (uint32_t i = 0; has_memory && i < n; i++)
		items[i] = (struct item){loads[i], i};
	if (has_memory && pack_size > 1)
		qsort(items, n, sizeof(*items), compare_heaviest);
	for (uint32_t i = 0; has_memory && i < n; i++) {
		uint32_t to =
			pack_size > 1 ? lightest(pack_loads, n_in_pack, n_packs, pack_size) : i;

		ret_slots[items[i].number] = to * pack_size + n_in_pack[to]++;
		pack_loads[to] += items[i].load;
	}
	free(items);
	free(pack_loads);
	free(n_in_pack);
	return has_memory;
}

/* Step 2: which expert each of @n_replicas replicas is of; the first n are the experts. */
static void replicate(const float *loads, uint32_t n, uint32_t n_replicas, uint32_t *ret_experts,
		      uint32_t *ret_replicas)
{
	for (uint32_t i = 0; i < n; i++) {
		ret_experts[i] = i;
		ret_replicas[i] = 1;
	}
	for (uint32_t i = n; i < n_replicas; i++) {
		uint32_t heaviest = 0;

		for (uint32_t e = 1; e < n; e++)
			if (loads[e] / (float)ret_replicas[e] >
			    loads[heaviest] / (float)ret_replicas[heaviest])
				heaviest = e;
		ret_experts[i] = heaviest;
		ret_replicas[heaviest]++;
	}
}

/* ---- spreading ---- */

/* The slots of a node: @n of them, @rank_size on each rank; what each holds, and its load. */
struct node {
	uint32_t *experts;
	float *loads;
	uint32_t n;
	uint32_t rank_size;
};

/* Whether slot @skipped aside the rank of @slot holds @expert. */
static bool rank_holds(const struct node *node, uint32_t slot, uint32_t skipped, uint32_t expert)
{
	const uint32_t first = slot - slot % node->rank_size;

	for (uint32_t i = first; i < first + node->rank_size; i++)
		if (i != skipped && node->experts[i] == expert)
			return true;
	return false;
}

static float rank_load(const struct node *node, uint32_t slot)
{
	const uint32_t first = slot - slot % node->rank_size;
	float load = 0;

	for (uint32_t i = first; i < first + node->rank_size; i++)
		load += node->loads[i];
	return load;
}

/* The larger load of the two ranks if slots @a and @b changed places. */
static float load_after_swap(const struct node *node, uint32_t a, uint32_t b)
{
	const float change = node->loads[b] - node->loads[a];
	const float load_a = rank_load(node, a) + change;
	const float load_b = rank_load(node, b) - change;

	return load_a > load_b ? load_a : load_b;
}

/* Swap @slot with the slot of another rank that leaves neither with a new double. */
static void spread_slot(struct node *node, uint32_t slot)
{
	uint32_t best = slot, expert = node->experts[slot];
	float load = node->loads[slot], best_load = 0;

	for (uint32_t i = 0; i < node->n; i++) {
		float after;

		if (i / node->rank_size == slot / node->rank_size ||
		    rank_holds(node, i, i, expert) ||
		    rank_holds(node, slot, slot, node->experts[i]))
			continue;
		after = load_after_swap(node, slot, i);
		if (best == slot || after < best_load) {
			best = i;
			best_load = after;
		}
	}
	node->experts[slot] = node->experts[best];
	node->loads[slot] = node->loads[best];
	node->experts[best] = expert;
	node->loads[best] = load;
}

static void spread(struct node *node)
{
	for (uint32_t i = 0; i < node->n; i++)
		if (rank_holds(node, i, i, node->experts[i]))
			spread_slot(node, i);
}

static float highest_load(const struct node *node)
{
	float highest = 0;

	for (uint32_t i = 0; i < node->n; i += node->rank_size) {
		const float load = rank_load(node, i);

		highest = load > highest ? load : highest;
	}
	return highest;
}

/* ---- one node, and all of them ---- */

struct work {
	float *expert_loads;	/* [experts of a node] */
	float *replica_loads;	/* [replicas of a node] */
	float *slot_loads;	/* [replicas of a node] */
	float *turn_loads;	/* [replicas of a node] */
	uint32_t *turn_experts; /* [replicas of a node] */
	uint32_t *replicas_of;	/* [experts of a node] */
	uint32_t *expert_of;	/* [replicas of a node] */
	uint32_t *slots;	/* [replicas of a node] */
	uint32_t *order;	/* [experts]: by node, the experts in it */
	uint32_t *group_slots;	/* [groups] */
	float *group_loads;	/* [groups] */
};

/*
 * The heaviest first is not always best: where replicas that are dealt out to the ranks in turn
 * come out lower, they are taken.
 */
static void take_turns(struct work *w, const uint32_t *order, struct node *node)
{
	struct node turn = {w->turn_experts, w->turn_loads, node->n, node->rank_size};
	const uint32_t n_ranks = node->n / node->rank_size;

	for (uint32_t i = 0; i < node->n; i++) {
		const uint32_t slot = i % n_ranks * node->rank_size + i / n_ranks;

		turn.experts[slot] = order[w->expert_of[i]];
		turn.loads[slot] = w->replica_loads[i];
	}
	spread(&turn);
	if (highest_load(&turn) >= highest_load(node))
		return;
	memcpy(node->experts, turn.experts, node->n * sizeof(*node->experts));
	memcpy(node->loads, turn.loads, node->n * sizeof(*node->loads));
}

/* Steps 2 and 3 for the @n experts @order of a node. */
static bool place_node(struct work *w, const float *loads, const uint32_t *order, uint32_t n,
		       uint32_t n_replicas, uint32_t n_ranks, bool spreads, uint32_t *ret_experts,
		       uint32_t *ret_replicas)
{
	struct node node = {ret_experts, w->slot_loads, n_replicas, n_replicas / n_ranks};

	for (uint32_t i = 0; i < n; i++)
		w->expert_loads[i] = loads[order[i]];
	replicate(w->expert_loads, n, n_replicas, w->expert_of, w->replicas_of);
	for (uint32_t i = 0; i < n_replicas; i++)
		w->replica_loads[i] =
			w->expert_loads[w->expert_of[i]] / (float)w->replicas_of[w->expert_of[i]];
	if (!pack(w->replica_loads, n_replicas, n_ranks, w->slots))
		return false;
	for (uint32_t i = 0; i < n_replicas; i++) {
		ret_experts[w->slots[i]] = order[w->expert_of[i]];
		w->slot_loads[w->slots[i]] = w->replica_loads[i];
	}
	if (spreads) {
		spread(&node);
		take_turns(w, order, &node);
	}
	for (uint32_t i = 0; i < n; i++)
		ret_replicas[order[i]] = w->replicas_of[i];
	return true;
}

/* Step 1: the experts by node. */
static bool order_groups(struct work *w, const struct mt_placement_shape *shape, const float *loads)
{
	const uint32_t group_size = shape->n_experts / shape->n_groups;

	for (uint32_t g = 0; g < shape->n_groups; g++) {
		w->group_loads[g] = 0;
		for (uint32_t i = 0; i < group_size; i++)
			w->group_loads[g] += loads[g * group_size + i];
	}
	if (!pack(w->group_loads, shape->n_groups, shape->n_nodes, w->group_slots))
		return false;
	for (uint32_t g = 0; g < shape->n_groups; g++)
		for (uint32_t i = 0; i < group_size; i++)
			w->order[w->group_slots[g] * group_size + i] = g * group_size + i;
	return true;
}

static bool place_all(struct work *w, const struct mt_placement_shape *shape, const float *loads,
		      bool spreads, uint32_t *ret_experts, uint32_t *ret_replicas)
{
	const uint32_t n = shape->n_experts / shape->n_nodes;
	const uint32_t n_replicas = shape->n_replicas / shape->n_nodes;
	bool is_placed = order_groups(w, shape, loads);

	for (uint32_t i = 0; is_placed && i < shape->n_nodes; i++)
		is_placed = place_node(w, loads, w->order + i * n, n, n_replicas,
				       shape->n_ranks / shape->n_nodes, spreads,
				       ret_experts + i * n_replicas, ret_replicas);
	return is_placed;
}

static void *array(uint32_t n)
{
	return calloc(n, sizeof(uint32_t));
}

_Static_assert(sizeof(float) == sizeof(uint32_t), "array() serves both");

bool mt_placement_make(const struct mt_placement_shape *given, const float *loads, bool spreads,
		       uint32_t *ret_experts, uint32_t *ret_replicas)
{
	struct mt_placement_shape shape = *given;
	struct work w;
	bool is_placed;

	if (shape.n_groups % shape.n_nodes != 0)
		shape.n_groups = shape.n_nodes = 1;
	w = (struct work){
		.expert_loads = array(shape.n_experts),
		.replica_loads = array(shape.n_replicas),
		.slot_loads = array(shape.n_replicas),
		.turn_loads = array(shape.n_replicas),
		.turn_experts = array(shape.n_replicas),
		.replicas_of = array(shape.n_experts),
		.expert_of = array(shape.n_replicas),
		.slots = array(shape.n_replicas),
		.order = array(shape.n_experts),
		.group_slots = array(shape.n_groups),
		.group_loads = array(shape.n_groups),
	};
	is_placed = w.expert_loads && w.replica_loads && w.slot_loads && w.turn_loads &&
		    w.turn_experts && w.replicas_of && w.expert_of && w.slots && w.order &&
		    w.group_slots && w.group_loads &&
		    place_all(&w, &shape, loads, spreads, ret_experts, ret_replicas);
	free(w.expert_loads);
	free(w.replica_loads);
	free(w.slot_loads);
	free(w.turn_loads);
	free(w.turn_experts);
	free(w.replicas_of);
	free(w.expert_of);
	free(w.slots);
	free(w.order);
	free(w.group_slots);
	free(w.group_loads);
	return is_placed;
}
