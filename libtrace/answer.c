/* SPDX-License-Identifier: MIT */
/*
 * The writer's part in moetrace_request_routed_experts(): out of memory when every pass that
 * matters is there, else everything is committed and the caller reads the files, so that a long
 * request does not keep the writer from the rings.
 */
#include <stdlib.h>
#include <string.h>

#include "libtrace/writer_internal.h"

static uint64_t length_of(const struct mt_request *request, const struct mt_attempt *attempt)
{
	uint64_t links_end = attempt->n_links ? attempt->links[attempt->n_links - 1].end : 0;

	if (request->has_ended && !request->n_running && attempt->attempt == request->attempt)
		return request->n_positions;
	return links_end > attempt->seen_end ? links_end : attempt->seen_end;
}

static int is_recent(const struct mt_recent *recent, const struct mt_attempt *attempt)
{
	return recent->max_bytes && attempt &&
	       (!attempt->first_pass_id || attempt->first_pass_id >= recent->first_pass_id);
}

/* A link that the answer needs. */
static int is_asked(const struct mt_experts_ask *ask, const struct mt_link *link)
{
	return link->source_request_id != MT_NULL && !link->is_waiting &&
	       link->end > ask->first_position &&
	       link->begin < ask->first_position + ask->n_positions;
}

/* Of the same recording as the link. */
static struct mt_request *find_source(struct mt_writer *writer, const struct mt_link *link)
{
	struct mt_request *source = mt_ledger_known(&writer->ledger, link->source);

	return source && source->request_id == link->source_request_id ?
		       source :
		       mt_ledger_past(&writer->ledger, link->source, link->source_request_id);
}

static int has_sources(struct mt_writer *writer, const struct mt_experts_ask *ask,
		       const struct mt_attempt *attempt)
{
	for (size_t i = 0; i < attempt->n_links; i++) {
		const struct mt_link *link = &attempt->links[i];
		struct mt_request *source = is_asked(ask, link) ? find_source(writer, link) : NULL;

		if (is_asked(ask, link) &&
		    (!source || !is_recent(&writer->assembly.recent,
					   mt_attempt_find(source, link->source_attempt))))
			return 0;
	}
	return 1;
}

static int collect(struct mt_writer *writer, const struct mt_request *request,
		   const struct mt_attempt *attempt, struct mt_experts_ask *ask)
{
	const struct mt_model *model = writer->session->models[ask->model - 1];
	struct mt_experts_part part = {
		.request_id = request->request_id,
		.attempt = attempt->attempt,
		.first = ask->first_position,
		.n = ask->n_positions,
	};
	int status = mt_experts_open(&ask->experts, ask->first_position, ask->n_positions,
				     model->n_layers, mt_model_top_k(model));

	for (size_t i = 0; !status && model->kind == MOETRACE_MODEL_TARGET && i < attempt->n_links;
	     i++) {
		const struct mt_link *link = &attempt->links[i];
		struct mt_experts_part source = {
			.request_id = link->source_request_id,
			.attempt = link->source_attempt,
			.is_reused = 1,
			.first = link->begin,
			.n = link->end - link->begin,
		};

		if (is_asked(ask, link))
			status = mt_recent_collect(&writer->assembly.recent, ask->model, &source,
						   &ask->experts);
	}
	if (!status)
		status = mt_recent_collect(&writer->assembly.recent, ask->model, &part,
					   &ask->experts);
	return status;
}

int mt_writer_experts(struct mt_writer *writer, const struct mt_message *message)
{
	struct mt_experts_ask *ask = message->ask;
	struct mt_request *request = mt_ledger_known(&writer->ledger, message->request);
	struct mt_attempt *attempt = NULL;
	uint32_t number = ask->attempt;
	uint64_t length;
	int status = MOETRACE_OK;

	if (request && request->request_id)
		status = mt_reuse_resolve(&writer->ledger, request, 0);
	else if (!request)
		request = mt_ledger_past(&writer->ledger, message->request, 0);
	if (status)
		return status;
	if (request && request->request_id) {
		number = number == MOETRACE_ATTEMPT_LAST ? request->attempt : number;
		attempt = mt_attempt_find(request, number);
	}
	if (attempt) {
		length = length_of(request, attempt);
		if (!ask->n_positions && length > ask->first_position)
			ask->n_positions = length - ask->first_position;
		ask->attempt = number;
		ask->is_done = is_recent(&writer->assembly.recent, attempt) &&
			       has_sources(writer, ask, attempt);
	}
	if (ask->is_done) {
		/* Want of memory for an answer is the caller's affair. */
		ask->status = collect(writer, request, attempt, ask);
		return MOETRACE_OK;
	}
	status = mt_writer_commit(writer);
	if (status)
		return status;
	ask->path = strdup(mt_store_path(writer->store));
	ask->past = mt_past_copy(&writer->past);
	ask->status = ask->path && ask->past ? MOETRACE_OK : MOETRACE_E_NOMEM;
	return MOETRACE_OK;
}
