/* SPDX-License-Identifier: MIT */
/*
 * How far questions are. A slot belongs to the run that took it; its numbers are atomic, as others
 * read them meanwhile, and the rest of it is under the source's lock.
 */
#include "viewer/progress.h"

#include <string.h>
#include <time.h>

#include "schema/functions/mt_sql.h"

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The first and the last pass that a question may read; none: both stay 0. */
static void extent_read(struct mt_source_run *run, const struct mt_question *question,
			struct mt_progress *progress)
{
	static const char sql[] =
		"SELECT (SELECT pass_id FROM pass WHERE ?1 IS NULL OR recording_id = CAST(?1 AS INTEGER) "
		"ORDER BY pass_id LIMIT 1), (SELECT pass_id FROM pass WHERE ?1 IS NULL OR recording_id = "
		"CAST(?1 AS INTEGER) ORDER BY pass_id DESC LIMIT 1)";
	const char *recording = mt_question_text(question, "recording");
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(run->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		return;
	if (recording)
		sqlite3_bind_text(stmt, 1, recording, -1, SQLITE_STATIC);
	if (sqlite3_step(stmt) == SQLITE_ROW) {
		progress->first_pass_id = sqlite3_column_int64(stmt, 0);
		progress->last_pass_id = sqlite3_column_int64(stmt, 1);
	}
	sqlite3_finalize(stmt);
}

static struct mt_progress *slot_find(struct mt_source *source)
{
	for (size_t i = 0; i < MT_SOURCE_QUESTIONS; i++)
		if (!source->progress[i].question[0])
			return &source->progress[i];
	return NULL;
}

void mt_progress_begin(struct mt_source_run *run, const struct mt_question *question, int n_parts)
{
	struct mt_source *source = run->source;
	struct mt_progress own = {.begin_ns = now_ns(), .n_parts = n_parts};
	struct mt_progress *slot;

	extent_read(run, question, &own);
	snprintf(own.question, sizeof(own.question), "%s", question->name);
	pthread_mutex_lock(&source->lock);
	slot = slot_find(source);
	if (slot) {
		atomic_store(&slot->part, 0);
		atomic_store(&slot->pass_id, 0);
		slot->begin_ns = own.begin_ns;
		slot->n_parts = own.n_parts;
		slot->first_pass_id = own.first_pass_id;
		slot->last_pass_id = own.last_pass_id;
		memcpy(slot->question, own.question, sizeof(slot->question));
	}
	pthread_mutex_unlock(&source->lock);
	run->progress = slot;
}

void mt_progress_next(struct mt_source_run *run)
{
	if (!run->progress)
		return;
	mt_reader_pass_id = 0;
	atomic_store(&run->progress->pass_id, 0);
	atomic_fetch_add(&run->progress->part, 1);
}

void mt_progress_look(struct mt_source_run *run)
{
	if (run->progress)
		atomic_store_explicit(&run->progress->pass_id, mt_reader_pass_id, memory_order_relaxed);
}

void mt_progress_end(struct mt_source_run *run)
{
	struct mt_source *source = run->source;

	if (!run->progress)
		return;
	pthread_mutex_lock(&source->lock);
	run->progress->question[0] = '\0';
	pthread_mutex_unlock(&source->lock);
	run->progress = NULL;
}

static void slot_write(const struct mt_progress *slot, struct mt_jsonw *json)
{
	const int64_t pass_id = atomic_load(&slot->pass_id);

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "question");
	mt_jsonw_string(json, slot->question);
	mt_jsonw_key(json, "ms");
	mt_jsonw_int64(json, (now_ns() - slot->begin_ns) / 1000000);
	mt_jsonw_key(json, "part");
	mt_jsonw_int64(json, atomic_load(&slot->part));
	mt_jsonw_key(json, "n_parts");
	mt_jsonw_int64(json, slot->n_parts);
	mt_jsonw_key(json, "share");
	if (pass_id >= slot->first_pass_id && pass_id <= slot->last_pass_id && pass_id > 0)
		mt_jsonw_double(json, ((double)pass_id - (double)slot->first_pass_id) /
					      ((double)slot->last_pass_id - (double)slot->first_pass_id + 1));
	else
		mt_jsonw_null(json);
	mt_jsonw_object_end(json);
}

void mt_progress_answer(struct mt_source *source, struct mt_view_reply *reply)
{
	struct mt_jsonw *json = &reply->json;

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "running");
	mt_jsonw_array_begin(json);
	pthread_mutex_lock(&source->lock);
	for (size_t i = 0; i < MT_SOURCE_QUESTIONS; i++)
		if (source->progress[i].question[0])
			slot_write(&source->progress[i], json);
	pthread_mutex_unlock(&source->lock);
	mt_jsonw_array_end(json);
	mt_jsonw_object_end(json);
	mt_view_reply_end(reply);
}
