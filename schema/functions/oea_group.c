/* SPDX-License-Identifier: MIT */
/* Groups, their blocks, and the bootstrap over these. Equal files give equal intervals. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "oea_group.h"

#include <stdlib.h>
#include <string.h>

#include "common/compare.h"

#define MAX_BYTES    (UINT64_C(128) << 20)
#define N_REPLICATES 400

/* ---- the table of groups ---- */

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static uint64_t key_hash(const struct mt_oea_key *key)
{
	uint64_t hash = mix((uint64_t)key->recording_id + UINT64_C(0x9e3779b97f4a7c15));

	hash = mix(hash ^ (uint64_t)key->model_id << 32 ^ (uint64_t)key->layer_id);
	hash = mix(hash ^ (uint64_t)key->kind << 56 ^ (uint64_t)key->refusal << 48 ^ key->bucket);
	return mix(hash ^ key->k);
}

static bool key_equal(const struct mt_oea_key *a, const struct mt_oea_key *b)
{
	return a->recording_id == b->recording_id && a->model_id == b->model_id &&
	       a->layer_id == b->layer_id && a->kind == b->kind && a->bucket == b->bucket &&
	       a->k == b->k && a->refusal == b->refusal;
}

static void slots_fill(struct mt_oea_groups *groups)
{
	memset(groups->slots, 0, groups->n_slots * sizeof(*groups->slots));
	for (size_t i = 0; i < groups->n_groups; i++) {
		size_t at = key_hash(&groups->groups[i]->key) & (groups->n_slots - 1);

		while (groups->slots[at] != 0)
			at = (at + 1) & (groups->n_slots - 1);
		groups->slots[at] = (uint32_t)i + 1;
	}
}

static int groups_grow(struct mt_oea_groups *groups)
{
	size_t size = groups->size ? groups->size * 2 : 64;
	void *list = sqlite3_realloc64(groups->groups, size * sizeof(*groups->groups)), *slots;

	if (!list)
		return SQLITE_NOMEM;
	groups->groups = list;
	slots = sqlite3_realloc64(groups->slots, size * 2 * sizeof(*groups->slots));
	if (!slots)
		return SQLITE_NOMEM;
	groups->slots = slots;
	groups->size = size;
	groups->n_slots = size * 2;
	slots_fill(groups);
	return SQLITE_OK;
}

/* A group and its arrays are one allocation. */
static int group_make(struct mt_oea_groups *groups, const struct mt_oea_key *key, uint32_t n_params)
{
	const size_t n_block_params = (size_t)MT_OEA_N_BLOCKS * n_params;
	const size_t n_bytes = sizeof(struct mt_oea_group) +
			       (n_params + n_block_params) * sizeof(struct mt_oea_param) +
			       MT_OEA_N_BLOCKS * sizeof(struct mt_oea_sums) +
			       (size_t)n_params * MT_OEA_N_BINS * sizeof(uint32_t);
	struct mt_oea_group *group;
	size_t at;

	if (groups->n_bytes + n_bytes > MAX_BYTES)
		return SQLITE_TOOBIG;
	group = sqlite3_malloc64(n_bytes);
	if (!group)
		return SQLITE_NOMEM;
	memset(group, 0, n_bytes);
	group->key = *key;
	group->n_params = n_params;
	group->params = (struct mt_oea_param *)(group + 1);
	group->block_params = group->params + n_params;
	group->blocks = (struct mt_oea_sums *)(group->block_params + n_block_params);
	group->bins = (uint32_t *)(group->blocks + MT_OEA_N_BLOCKS);
	group->block_size = 1;
	groups->n_bytes += n_bytes;
	groups->groups[groups->n_groups++] = group;
	at = key_hash(key) & (groups->n_slots - 1);
	while (groups->slots[at] != 0)
		at = (at + 1) & (groups->n_slots - 1);
	groups->slots[at] = (uint32_t)groups->n_groups;
	return SQLITE_OK;
}

int mt_oea_groups_find(struct mt_oea_groups *groups, const struct mt_oea_key *key,
		       uint32_t n_params, struct mt_oea_group **ret_group)
{
	size_t at = groups->n_slots ? key_hash(key) & (groups->n_slots - 1) : 0;
	int rc;

	for (; groups->n_slots && groups->slots[at] != 0; at = (at + 1) & (groups->n_slots - 1)) {
		struct mt_oea_group *group = groups->groups[groups->slots[at] - 1];

		if (key_equal(&group->key, key)) {
			*ret_group = group;
			return SQLITE_OK;
		}
	}
	rc = groups->n_groups == groups->size ? groups_grow(groups) : SQLITE_OK;
	if (rc == SQLITE_OK)
		rc = group_make(groups, key, n_params);
	if (rc == SQLITE_OK)
		*ret_group = groups->groups[groups->n_groups - 1];
	return rc;
}

void mt_oea_groups_free(struct mt_oea_groups *groups)
{
	for (size_t i = 0; i < groups->n_groups; i++)
		sqlite3_free(groups->groups[i]);
	sqlite3_free(groups->groups);
	sqlite3_free(groups->slots);
	memset(groups, 0, sizeof(*groups));
}

/* ---- sums ---- */

/* Two neighbouring blocks become one. */
static void blocks_halve(struct mt_oea_group *group)
{
	const uint32_t n = group->n_params;

	for (uint32_t i = 0; i < MT_OEA_N_BLOCKS / 2; i++) {
		const struct mt_oea_sums *a = &group->blocks[2 * i], *b = a + 1;
		const struct mt_oea_param *p = group->block_params + (size_t)2 * i * n, *q = p + n;

		group->blocks[i] = (struct mt_oea_sums){a->n_batches + b->n_batches,
							a->n_rated_rows + b->n_rated_rows,
							a->active_before + b->active_before};
		for (uint32_t j = 0; j < n; j++)
			group->block_params[(size_t)i * n + j] = (struct mt_oea_param){
				.active = p[j].active + q[j].active, .lost = p[j].lost + q[j].lost};
	}
	group->n_blocks = MT_OEA_N_BLOCKS / 2;
	group->block_passes = group->block_size * 2;
	group->block_size *= 2;
}

static void pass_begin(struct mt_oea_group *group, sqlite3_int64 pass_id)
{
	const uint32_t n = group->n_params;

	if (group->n_passes > 0 && group->pass_id == pass_id)
		return;
	group->pass_id = pass_id;
	group->n_passes++;
	if (group->n_blocks > 0 && group->block_passes < group->block_size) {
		group->block_passes++;
		return;
	}
	if (group->n_blocks == MT_OEA_N_BLOCKS)
		blocks_halve(group);
	memset(&group->blocks[group->n_blocks], 0, sizeof(*group->blocks));
	memset(group->block_params + (size_t)group->n_blocks * n, 0,
	       n * sizeof(*group->block_params));
	group->n_blocks++;
	group->block_passes = 1;
}

/*
 * What rows take instead: each fills up from the union, to a full row or to all of the union. Where
 * experts are grouped, only those of a row's groups could be taken, which the trace does not tell.
 */
static void add_swapped(struct mt_oea_param *param, const struct mt_oea_figures *figures, uint32_t i)
{
	const uint64_t n_union = (uint64_t)figures->active[i] + figures->n_zero_experts;
	const uint64_t fill = figures->fill_max < n_union ? figures->fill_max : n_union;
	const uint64_t n_filled = fill * figures->n_changed_rows;

	if (figures->n_below) {
		param->below_k += figures->n_below[i];
		param->swapped += figures->n_taken[i];
		return;
	}
	param->below_k += fill < figures->fill_max ? figures->n_changed_rows : 0;
	if (n_filled > figures->survivors[i])
		param->swapped += n_filled - figures->survivors[i];
}

static void param_add(struct mt_oea_group *group, const struct mt_oea_figures *figures, uint32_t i)
{
	struct mt_oea_param *param = &group->params[i];
	struct mt_oea_param *block =
		group->block_params + (size_t)(group->n_blocks - 1) * group->n_params + i;

	param->active += figures->active[i];
	param->survivors += figures->survivors[i];
	param->lost += figures->lost[i];
	param->uniform += figures->uniform[i];
	if (figures->rank_active)
		param->rank_active += figures->rank_active[i];
	if (figures->n_truncated) {
		param->n_truncated += figures->n_truncated[i];
		param->retained += figures->retained[i];
	}
	block->active += figures->active[i];
	block->lost += figures->lost[i];
	add_swapped(param, figures, i);
}

void mt_oea_group_add(struct mt_oea_group *group, sqlite3_int64 pass_id, size_t n_rows,
		      const struct mt_oea_figures *figures)
{
	struct mt_oea_sums *block;

	pass_begin(group, pass_id);
	group->n_rows += n_rows;
	group->sums.n_batches++;
	if (!figures)
		return;
	block = &group->blocks[group->n_blocks - 1];
	block->n_batches++;
	block->n_rated_rows += figures->n_rated_rows;
	block->active_before += figures->active_before;
	group->sums.n_rated_rows += figures->n_rated_rows;
	group->sums.active_before += figures->active_before;
	group->n_changed_rows += figures->n_changed_rows;
	group->n_entries += figures->n_entries;
	group->n_candidate_rows += figures->n_candidate_rows;
	group->takes_unknown |= figures->takes_unknown;
	group->uniform_before += figures->uniform_before;
	group->no_map |= figures->no_map;
	group->has_ranks |= figures->rank_active != NULL;
	if (figures->rank_active)
		group->rank_active_before += figures->rank_active_before;
	for (uint32_t i = 0; i < group->n_params; i++)
		param_add(group, figures, i);
}

/* ---- the bootstrap ---- */

static uint64_t draw(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*state);
}

static void bounds(double *values, double *ret_low, double *ret_high)
{
	qsort(values, N_REPLICATES, sizeof(*values), mt_compare_doubles);
	*ret_low = values[N_REPLICATES / 40];
	*ret_high = values[N_REPLICATES - 1 - N_REPLICATES / 40];
}

bool mt_oea_group_interval(const struct mt_oea_group *group, uint32_t param,
			   struct mt_oea_interval *ret_interval)
{
	double ratio[N_REPLICATES], saved[N_REPLICATES], lost[N_REPLICATES];
	uint64_t state = 1;

	if (group->n_blocks < MT_OEA_MIN_BLOCKS || group->sums.active_before == 0)
		return false;
	for (int i = 0; i < N_REPLICATES; i++) {
		struct mt_oea_sums sums = {0, 0, 0};
		double active = 0, weight = 0;

		for (uint32_t j = 0; j < group->n_blocks; j++) {
			const size_t at = draw(&state) % group->n_blocks;
			const struct mt_oea_param *block =
				&group->block_params[at * group->n_params + param];

			sums.n_batches += group->blocks[at].n_batches;
			sums.n_rated_rows += group->blocks[at].n_rated_rows;
			sums.active_before += group->blocks[at].active_before;
			active += (double)block->active;
			weight += block->lost;
		}
		ratio[i] = sums.active_before ? active / (double)sums.active_before : 1;
		saved[i] = sums.n_batches ? ((double)sums.active_before - active) /
						    (double)sums.n_batches
					  : 0;
		lost[i] = sums.n_rated_rows ? weight / (double)sums.n_rated_rows : 0;
	}
	bounds(ratio, &ret_interval->ratio_low, &ret_interval->ratio_high);
	bounds(saved, &ret_interval->saved_low, &ret_interval->saved_high);
	bounds(lost, &ret_interval->lost_low, &ret_interval->lost_high);
	return true;
}

double mt_oea_group_lost_quantile(const struct mt_oea_group *group, uint32_t param, double q)
{
	const uint32_t *bins = group->bins + (size_t)param * MT_OEA_N_BINS;
	double before = 0, wanted, total = 0;

	for (size_t i = 0; i < MT_OEA_N_BINS; i++)
		total += bins[i];
	wanted = q * total;
	for (size_t i = 0; i < MT_OEA_N_BINS; i++) {
		if (bins[i] > 0 && before + bins[i] >= wanted)
			return ((double)i + (wanted - before) / bins[i]) / MT_OEA_N_BINS;
		before += bins[i];
	}
	return 0;
}
