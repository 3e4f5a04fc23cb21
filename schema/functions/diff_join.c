/* SPDX-License-Identifier: MIT */
/*
 * Which requests are compared: those of the same external id, the n-th of A with the n-th of B
 * where several have it; of the others those with equal tokens in the prompt, likewise the n-th with
 * the n-th. And how far: the first position at which both know a token and it is not the same.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "diff.h"

#include <stdlib.h>
#include <string.h>

int mt_diff_arguments(struct mt_diff *diff, sqlite3 *db, const struct mt_tvf *tvf,
		      sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		      enum mt_diff_join *ret_join)
{
	const char *schema = arguments[2] ? (const char *)sqlite3_value_text(arguments[2]) : NULL;
	const char *by = arguments[3] ? (const char *)sqlite3_value_text(arguments[3]) : NULL;
	int rc = mt_diff_open(diff, db, tvf->name, rows, arguments[0], arguments[1], schema);

	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, tvf, arguments, 4, "memory_bytes", 1, 1 << 30,
				 MT_DIFF_MEMORY_BYTES, &diff->memory_bytes);
	if (rc != SQLITE_OK)
		return rc;
	if (by && strcmp(by, "id") != 0 && strcmp(by, "tokens") != 0)
		return mt_tvf_fail(rows, "%s: join_by: give 'id' or 'tokens'", tvf->name);
	*ret_join = !by			    ? MT_JOIN_ANY
		    : strcmp(by, "id") == 0 ? MT_JOIN_ID
					    : MT_JOIN_TOKENS;
	return SQLITE_OK;
}

/* What B's request is joined to each of A's, and which of B's are taken. */
struct join {
	struct mt_diff *diff;
	sqlite3_int64 *partner;	 /* a request of A: B's; 0: none */
	const char **joined_by;	 /* a request of A */
	bool *is_taken;		 /* a request of B */
};

static size_t index_of(const struct mt_diff_side *side, sqlite3_int64 request_id)
{
	const struct mt_diff_request *request = mt_diff_request_find(side, request_id);

	return request ? (size_t)(request - side->requests) : side->n_requests;
}

static void join_two(struct join *join, sqlite3_int64 a, sqlite3_int64 b, const char *by)
{
	const struct mt_diff_side *sides = join->diff->sides;
	const size_t at_a = index_of(&sides[0], a), at_b = index_of(&sides[1], b);

	if (at_a == sides[0].n_requests || at_b == sides[1].n_requests)
		return;
	join->partner[at_a] = b;
	join->joined_by[at_a] = by;
	join->is_taken[at_b] = true;
}

/* ---- by external id ---- */

static int text_order(sqlite3_stmt *a, sqlite3_stmt *b)
{
	const unsigned char *text_a = sqlite3_column_text(a, 0), *text_b = sqlite3_column_text(b, 0);
	const int n_a = sqlite3_column_bytes(a, 0), n_b = sqlite3_column_bytes(b, 0);
	int order = text_a && text_b ? memcmp(text_a, text_b, (size_t)(n_a < n_b ? n_a : n_b)) : 0;

	return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

/* Both come in order of the id, then of the request. */
static int ids_merge(struct join *join, sqlite3_stmt *a, sqlite3_stmt *b)
{
	int rc_a = sqlite3_step(a), rc_b = sqlite3_step(b);

	while (rc_a == SQLITE_ROW && rc_b == SQLITE_ROW) {
		const int order = text_order(a, b);

		if (order == 0)
			join_two(join, sqlite3_column_int64(a, 1), sqlite3_column_int64(b, 1), "id");
		if (order <= 0)
			rc_a = sqlite3_step(a);
		if (order >= 0)
			rc_b = sqlite3_step(b);
	}
	return rc_a != SQLITE_ROW && rc_a != SQLITE_DONE ? rc_a : rc_b;
}

static int ids_join(struct join *join)
{
	static const char sql[] = "SELECT external_id, request_id FROM main.request WHERE recording_id "
				  "= ?1 AND typeof(external_id) = 'text' ORDER BY 1, 2";
	struct mt_diff *diff = join->diff;
	sqlite3_stmt *stmts[MT_N_SIDES] = {NULL};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < MT_N_SIDES; i++) {
		rc = mt_diff_prepare(diff, i, sql, &stmts[i]);
		if (rc == SQLITE_OK)
			sqlite3_bind_int64(stmts[i], 1, diff->sides[i].recording_id);
	}
	if (rc == SQLITE_OK)
		rc = mt_diff_finish(diff, NULL, ids_merge(join, stmts[0], stmts[1]));
	sqlite3_finalize(stmts[0]);
	sqlite3_finalize(stmts[1]);
	return rc;
}

/* ---- by the tokens of the prompt ---- */

struct prompt {
	uint64_t hash;
	sqlite3_int64 request_id;
	sqlite3_int64 n_tokens, n_prompt; /* n_prompt -1: the length is not told */
	bool is_whole;			  /* tokens from 0 on, without a hole */
};

struct prompts {
	struct prompt *items;
	size_t n, size;
};

static void prompt_add(struct prompt *prompt, sqlite3_int64 position, sqlite3_int64 token)
{
	if (prompt->n_prompt >= 0 && position >= prompt->n_prompt)
		return;
	prompt->is_whole = prompt->is_whole && position == prompt->n_tokens;
	prompt->n_tokens++;
	/* FNV-1a over the token's bytes. */
	for (int i = 0; i < 8; i++)
		prompt->hash = (prompt->hash ^ ((uint64_t)token >> 8 * i & 255)) * 0x100000001b3u;
}

/* Requests whose prompt is not known whole are dropped. */
static void prompt_settle(struct prompts *prompts)
{
	const struct prompt *last = prompts->n > 0 ? &prompts->items[prompts->n - 1] : NULL;

	if (last && (!last->is_whole || last->n_tokens == 0 ||
		     (last->n_prompt >= 0 && last->n_tokens != last->n_prompt)))
		prompts->n--;
}

static int prompts_load(struct mt_diff *diff, size_t side, struct prompts *prompts)
{
	static const char sql[] =
		"SELECT q.request_id, t.position, t.token_id, coalesce(q.prompt_positions, -1) FROM "
		"main.request AS q CROSS JOIN main.request_token AS t ON t.request_id = q.request_id "
		"WHERE q.recording_id = ?1 ORDER BY q.request_id, t.position";
	sqlite3_int64 before = -1;
	sqlite3_stmt *stmt;
	int rc = mt_diff_prepare(diff, side, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, diff->sides[side].recording_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const sqlite3_int64 request_id = sqlite3_column_int64(stmt, 0);

		if (request_id != before) {
			prompt_settle(prompts);
			rc = mt_array_reserve(&prompts->items, &prompts->size, prompts->n + 1,
					      sizeof(*prompts->items));
			if (rc != SQLITE_OK)
				break;
			prompts->items[prompts->n++] = (struct prompt){
				.hash = 0xcbf29ce484222325u,
				.request_id = request_id,
				.n_prompt = sqlite3_column_int64(stmt, 3),
				.is_whole = true,
			};
			before = request_id;
		}
		prompt_add(&prompts->items[prompts->n - 1], sqlite3_column_int64(stmt, 1),
			   sqlite3_column_int64(stmt, 2));
	}
	prompt_settle(prompts);
	return mt_diff_finish(diff, stmt, rc);
}

static int prompt_order(const void *a, const void *b)
{
	const struct prompt *one = a, *other = b;

	if (one->hash != other->hash)
		return one->hash < other->hash ? -1 : 1;
	if (one->n_tokens != other->n_tokens)
		return one->n_tokens < other->n_tokens ? -1 : 1;
	return (one->request_id > other->request_id) - (one->request_id < other->request_id);
}

/* Without those that are joined already. */
static void prompts_sort(const struct join *join, size_t side, struct prompts *prompts)
{
	size_t n = 0;

	for (size_t i = 0; i < prompts->n; i++) {
		const size_t at = index_of(&join->diff->sides[side], prompts->items[i].request_id);

		if (side == 0 ? join->partner[at] == 0 : !join->is_taken[at])
			prompts->items[n++] = prompts->items[i];
	}
	prompts->n = n;
	if (n > 1)
		qsort(prompts->items, n, sizeof(*prompts->items), prompt_order);
}

static int tokens_join(struct join *join)
{
	struct prompts prompts[MT_N_SIDES] = {{0}};
	const struct prompt *a, *b;
	int rc = SQLITE_OK;

	for (size_t side = 0; rc == SQLITE_OK && side < MT_N_SIDES; side++) {
		rc = prompts_load(join->diff, side, &prompts[side]);
		if (rc == SQLITE_OK)
			prompts_sort(join, side, &prompts[side]);
	}
	for (size_t i = 0, j = 0; rc == SQLITE_OK && i < prompts[0].n && j < prompts[1].n;) {
		a = &prompts[0].items[i];
		b = &prompts[1].items[j];
		if (a->hash == b->hash && a->n_tokens == b->n_tokens) {
			join_two(join, a->request_id, b->request_id, "tokens");
			i++, j++;
		} else if (a->hash != b->hash ? a->hash < b->hash : a->n_tokens < b->n_tokens) {
			i++;
		} else {
			j++;
		}
	}
	sqlite3_free(prompts[0].items);
	sqlite3_free(prompts[1].items);
	return rc;
}

/* ---- the first token that differs ---- */

/* Tokens of both in order of position; those that one of them does not know say nothing. */
static int tokens_compare(sqlite3_stmt *a, sqlite3_stmt *b, struct mt_diff_pair *pair)
{
	int rc_a = sqlite3_step(a), rc_b = sqlite3_step(b);

	while (rc_a == SQLITE_ROW && rc_b == SQLITE_ROW) {
		const sqlite3_int64 at_a = sqlite3_column_int64(a, 0);
		const sqlite3_int64 at_b = sqlite3_column_int64(b, 0);

		pair->has_tokens = pair->has_tokens || at_a == at_b;
		if (at_a == at_b && sqlite3_column_int64(a, 1) != sqlite3_column_int64(b, 1)) {
			pair->token_position = at_a;
			return SQLITE_DONE;
		}
		if (at_a <= at_b)
			rc_a = sqlite3_step(a);
		if (at_a >= at_b)
			rc_b = sqlite3_step(b);
	}
	return rc_a != SQLITE_ROW && rc_a != SQLITE_DONE ? rc_a : rc_b;
}

static int divergences_find(struct mt_diff *diff)
{
	static const char sql[] = "SELECT position, token_id FROM main.request_token WHERE request_id = "
				  "?1 AND position >= 0 ORDER BY position";
	sqlite3_stmt *stmts[MT_N_SIDES] = {NULL};
	int rc = mt_diff_prepare(diff, 0, sql, &stmts[0]);

	if (rc == SQLITE_OK)
		rc = mt_diff_prepare(diff, 1, sql, &stmts[1]);
	for (size_t i = 0; rc == SQLITE_OK && i < diff->n_pairs; i++) {
		struct mt_diff_pair *pair = &diff->pairs[i];

		if (pair->request_id[0] == 0 || pair->request_id[1] == 0)
			continue;
		for (size_t side = 0; side < MT_N_SIDES; side++) {
			sqlite3_reset(stmts[side]);
			sqlite3_bind_int64(stmts[side], 1, pair->request_id[side]);
		}
		rc = mt_diff_finish(diff, NULL, tokens_compare(stmts[0], stmts[1], pair));
	}
	sqlite3_finalize(stmts[0]);
	sqlite3_finalize(stmts[1]);
	return rc;
}

/* ---- pairs ---- */

static int pair_add(struct mt_diff *diff, const struct mt_diff_request *a,
		    const struct mt_diff_request *b, const char *joined_by)
{
	int rc = mt_array_reserve(&diff->pairs, &diff->pairs_size, diff->n_pairs + 1,
				  sizeof(*diff->pairs));

	if (rc == SQLITE_OK)
		diff->pairs[diff->n_pairs++] = (struct mt_diff_pair){
			.request_id = {a ? a->request_id : 0, b ? b->request_id : 0},
			.attempt = {a ? a->attempt : 0, b ? b->attempt : 0},
			.joined_by = joined_by,
			.token_position = -1,
		};
	return rc;
}

static int pairs_add(const struct join *join)
{
	struct mt_diff *diff = join->diff;
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < diff->sides[0].n_requests; i++)
		rc = pair_add(diff, &diff->sides[0].requests[i],
			      mt_diff_request_find(&diff->sides[1], join->partner[i]),
			      join->joined_by[i]);
	for (size_t i = 0; rc == SQLITE_OK && i < diff->sides[1].n_requests; i++)
		if (!join->is_taken[i])
			rc = pair_add(diff, NULL, &diff->sides[1].requests[i], NULL);
	return rc;
}

int mt_diff_join(struct mt_diff *diff, enum mt_diff_join how)
{
	const size_t n_a = diff->sides[0].n_requests, n_b = diff->sides[1].n_requests;
	struct join join = {
		.diff = diff,
		.partner = mt_diff_zeroed(n_a, sizeof(*join.partner)),
		.joined_by = mt_diff_zeroed(n_a, sizeof(*join.joined_by)),
		.is_taken = mt_diff_zeroed(n_b, sizeof(*join.is_taken)),
	};
	int rc = join.partner && join.joined_by && join.is_taken ? SQLITE_OK : SQLITE_NOMEM;

	diff->n_pairs = 0;
	if (rc == SQLITE_OK && how != MT_JOIN_TOKENS)
		rc = ids_join(&join);
	if (rc == SQLITE_OK && how != MT_JOIN_ID)
		rc = tokens_join(&join);
	if (rc == SQLITE_OK)
		rc = pairs_add(&join);
	if (rc == SQLITE_OK)
		rc = divergences_find(diff);
	sqlite3_free(join.partner);
	sqlite3_free(join.joined_by);
	sqlite3_free(join.is_taken);
	return rc;
}

int mt_diff_join_single(struct mt_diff *diff, sqlite3_int64 request_id)
{
	const struct mt_diff_side *side = &diff->sides[0];
	int rc = SQLITE_OK;

	diff->n_pairs = 0;
	for (size_t i = 0; rc == SQLITE_OK && i < side->n_requests; i++)
		if (request_id == 0 || side->requests[i].request_id == request_id)
			rc = pair_add(diff, &side->requests[i], &side->requests[i], NULL);
	return rc;
}

int mt_diff_join_attempts(struct mt_diff *diff)
{
	static const char sql[] =
		"SELECT DISTINCT pr.request_id, pr.attempt FROM main.pass AS p CROSS JOIN "
		"main.pass_request AS pr ON pr.pass_id = p.pass_id WHERE p.recording_id = ?1 AND "
		"p.model_id = ?2 AND pr.attempt IS NOT NULL ORDER BY 1, 2";
	const struct mt_diff_side *side = &diff->sides[0];
	sqlite3_stmt *stmt;
	int rc = mt_diff_prepare(diff, 0, sql, &stmt);

	diff->n_pairs = 0;
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, side->recording_id);
	sqlite3_bind_int64(stmt, 2, side->model_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const struct mt_diff_request *last =
			mt_diff_request_find(side, sqlite3_column_int64(stmt, 0));
		struct mt_diff_request earlier;

		if (!last || sqlite3_column_int64(stmt, 1) >= last->attempt)
			continue;
		earlier = *last;
		earlier.attempt = sqlite3_column_int64(stmt, 1);
		rc = pair_add(diff, &earlier, last, "attempt");
		if (rc != SQLITE_OK)
			break;
	}
	return mt_diff_finish(diff, stmt, rc);
}
