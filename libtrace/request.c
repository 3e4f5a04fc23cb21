/* SPDX-License-Identifier: MIT */
/*
 * The calls of <moetrace/request.h>, and moetrace_pass_accept(): each becomes one message to the
 * writer.
 */
#include "libtrace/session.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/abi.h"

static int check_session(struct moetrace_session *session)
{
	if (!session)
		return MOETRACE_E_INVALID;
	return atomic_load(&session->forked) ? MOETRACE_E_STATE : MOETRACE_OK;
}

static void *copy_of(const void *from, size_t n_bytes)
{
	void *copy = malloc(n_bytes);

	return copy ? memcpy(copy, from, n_bytes) : NULL;
}

static int check_request(struct moetrace_session *session, uint64_t request)
{
	int status = check_session(session);

	if (status)
		return status;
	if (request == MOETRACE_NO_REQUEST || request > atomic_load(&session->n_requests))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"request: %llu is not a handle of this session",
					(unsigned long long)request);
	return MOETRACE_OK;
}

int moetrace_request_begin(struct moetrace_session *session,
			   const struct moetrace_request_info *info, uint64_t *ret_request)
{
	struct moetrace_request_info room;
	struct mt_message *message;
	uint64_t request;
	int status = check_session(session);

	if (ret_request)
		*ret_request = MOETRACE_NO_REQUEST;
	if (status)
		return status;
	if (!ret_request || (info && !mt_abi_knows(info->size, MT_FIRST_REQUEST_INFO)))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"request: size is not set, or nowhere to put the handle");
	if (info)
		info = MT_ABI_WIDEN(info, &room);
	message = mt_message_new(MT_MESSAGE_REQUEST, info ? info->external_id : NULL, NULL);
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	request = atomic_fetch_add(&session->n_requests, 1) + 1;
	message->request = request;
	message->number = info ? info->prompt_positions : 0;
	status = mt_session_post(session, message);
	*ret_request = request;
	return status;
}

int moetrace_request_attribute_set(struct moetrace_session *session, uint64_t request,
				   const char *key, const char *value)
{
	struct mt_message *message;
	int status = check_request(session, request);

	if (status)
		return status;
	if (!key || !*key)
		return mt_session_error(session, MOETRACE_E_INVALID, "attribute: no key");
	message = mt_message_new(MT_MESSAGE_ATTRIBUTE, key, value);
	if (message)
		message->request = request;
	return mt_session_post(session, message);
}

int moetrace_request_tokens(struct moetrace_session *session, uint64_t request,
			    uint32_t first_position, const uint32_t *token_ids, uint32_t n_tokens)
{
	struct mt_message *message;
	int status = check_request(session, request);

	if (status || !n_tokens)
		return status;
	if (!token_ids)
		return mt_session_error(session, MOETRACE_E_INVALID, "tokens: NULL");
	message = mt_message_new(MT_MESSAGE_TOKENS, NULL, NULL);
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	message->tokens = malloc((size_t)n_tokens * sizeof(*token_ids));
	if (!message->tokens) {
		mt_message_free(message);
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	}
	memcpy(message->tokens, token_ids, (size_t)n_tokens * sizeof(*token_ids));
	message->request = request;
	message->number = first_position;
	message->n_tokens = n_tokens;
	return mt_session_post(session, message);
}

/* A call that says no more than the request. */
static int post_request(struct moetrace_session *session, uint64_t request,
			enum mt_message_type type)
{
	struct mt_message *message;
	int status = check_request(session, request);

	if (status)
		return status;
	message = mt_message_new(type, NULL, NULL);
	if (message)
		message->request = request;
	return mt_session_post(session, message);
}

int moetrace_request_retract(struct moetrace_session *session, uint64_t request)
{
	return post_request(session, request, MT_MESSAGE_RETRACT);
}

int moetrace_request_pause(struct moetrace_session *session, uint64_t request)
{
	return post_request(session, request, MT_MESSAGE_PAUSE);
}

int moetrace_request_resume(struct moetrace_session *session, uint64_t request)
{
	return post_request(session, request, MT_MESSAGE_RESUME);
}

static int check_reuse(struct moetrace_session *session, const struct moetrace_reuse *reuse)
{
	if (!reuse || !mt_abi_knows(reuse->size, MT_FIRST_REUSE))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"reuse: size is not set; use MOETRACE_INIT()");
	if (!reuse->n_positions || reuse->first_position > UINT32_MAX - (reuse->n_positions - 1))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"reuse: no positions, or past 2^32");
	if (reuse->source_request > atomic_load(&session->n_requests))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"reuse: source %llu is not a handle of this session",
					(unsigned long long)reuse->source_request);
	return MOETRACE_OK;
}

int moetrace_request_reuse(struct moetrace_session *session, uint64_t request,
			   const struct moetrace_reuse *reuse)
{
	struct mt_message *message;
	int status = check_request(session, request);

	if (!status)
		status = check_reuse(session, reuse);
	if (status)
		return status;
	message = mt_message_new(MT_MESSAGE_REUSE, NULL, NULL);
	if (message && reuse->kv_slots && !reuse->source_request) {
		message->data = copy_of(reuse->kv_slots, (size_t)reuse->n_positions * 8);
		if (!message->data) {
			mt_message_free(message);
			message = NULL;
		}
	}
	if (message) {
		message->request = request;
		message->number = reuse->first_position;
		message->n_tokens = reuse->n_positions;
		message->source = reuse->source_request;
		message->state = reuse->source_attempt;
	}
	return mt_session_post(session, message);
}

int moetrace_pass_accept(struct moetrace_session *session, uint64_t pass_number, uint32_t slice,
			 const uint8_t *accepted, uint32_t n_rows)
{
	struct mt_message *message;
	uint8_t *rows;
	int status = check_session(session);

	if (status || !pass_number)
		return status;
	if (!accepted || !n_rows || n_rows > MOETRACE_MAX_ROWS)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"accept: no rows, or more than a pass can have");
	message = mt_message_new(MT_MESSAGE_ACCEPT, NULL, NULL);
	rows = malloc(n_rows);
	if (!message || !rows) {
		if (message)
			mt_message_free(message);
		free(rows);
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < n_rows; i++)
		rows[i] = accepted[i] != 0;
	message->data = rows;
	message->number = pass_number;
	message->state = slice;
	message->n_tokens = n_rows;
	return mt_session_post(session, message);
}

int moetrace_request_end(struct moetrace_session *session, uint64_t request,
			 enum moetrace_request_end_state end_state, uint64_t n_positions)
{
	struct mt_message *message;
	int status = check_request(session, request);

	if (status)
		return status;
	if (end_state < MOETRACE_REQUEST_FINISHED || end_state > MOETRACE_REQUEST_FAILED ||
	    (n_positions > UINT32_MAX && n_positions != MOETRACE_POSITIONS_UNKNOWN))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"request end: no such end state, or more than 2^32 positions");
	message = mt_message_new(MT_MESSAGE_REQUEST_END, NULL, NULL);
	if (message) {
		message->request = request;
		message->state = end_state;
		message->number = n_positions;
	}
	return mt_session_post(session, message);
}
