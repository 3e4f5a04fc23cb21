/* SPDX-License-Identifier: MIT */
/*
 * The server: a thread a connection (libmicrohttpd), some at once, on 127.0.0.1 alone. An address is
 * /TOKEN/ for the page, /TOKEN/NAME for its files, /TOKEN/api/traces, /TOKEN/api/I/NAME?parameters
 * for questions to trace I, and a POST to /TOKEN/api/I/query with SQL as its body. Nothing in an
 * address becomes the name of a file. What a request must be to be heard is in guard.c.
 */
#include <config.h>

#include "viewer/view.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "viewer/answer.h"
#include "viewer/guard.h"
#include "viewer/page.h"
#include "viewer/progress.h"
#include "viewer/state.h"

#define MAX_CONNECTIONS	  256
#define MIN_CONNECTIONS	  16
#define STRANGER_IDLE_S	  2  /* of a connection that has asked nothing with the token yet */
#define CONNECTION_IDLE_S 20 /* afterwards */
#define SPARE_FILES	  64
#define CONNECTION_FILES  3 /* of a connection to a trace: it and what is kept beside it */
#define CONNECTION_BYTES  (128 * 1024)
#define MAX_SQL_BYTES	  (100 * 1024)
#define HEAP_LIMIT_BYTES  ((sqlite3_int64)2 << 30)

struct mt_view_server {
	struct MHD_Daemon *daemon;
	char token[MT_TOKEN_BYTES];
	char address[128];
	char *version;
	uint32_t query_limit_ms;
	bool is_redacted;
	atomic_bool stops;
	struct mt_source sources[MT_VIEW_MAX_TRACES];
	size_t n_sources;
};

/* What a request's body became so far. */
struct body {
	bool is_answered;
	char *bytes;
	size_t n_bytes, size;
	bool is_too_large;
};

bool mt_view_can_serve(const char **ret_reason)
{
	*ret_reason = NULL;
	return true;
}

/* ---- responses ---- */

static const struct {
	const char *name, *value;
} headers[] = {
	{"Content-Security-Policy",
	 "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
	 "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cache-Control", "no-store"},
};

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status,
			       const char *content_type, const void *bytes, size_t n_bytes,
			       enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(n_bytes, (void *)(uintptr_t)bytes, mode);
	enum MHD_Result result;

	if (!response) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free((void *)(uintptr_t)bytes);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		MHD_add_response_header(response, headers[i].name, headers[i].value);
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status, const char *text)
{
	return respond(connection, status, "text/plain; charset=utf-8", text, strlen(text),
		       MHD_RESPMEM_PERSISTENT);
}

/* Takes the reply's bytes over. */
static enum MHD_Result reply_send(struct MHD_Connection *connection, struct mt_view_reply *reply)
{
	char *bytes = reply->bytes;

	reply->bytes = NULL;
	if (!bytes)
		return MHD_NO;
	return respond(connection, reply->status, reply->content_type, bytes, reply->n_bytes,
		       MHD_RESPMEM_MUST_FREE);
}

/* ---- the page ---- */

static const char *type_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	if (dot && strcmp(dot, ".js") == 0)
		return "text/javascript; charset=utf-8";
	if (dot && strcmp(dot, ".css") == 0)
		return "text/css; charset=utf-8";
	if (dot && strcmp(dot, ".md") == 0)
		return "text/plain; charset=utf-8";
	return "text/html; charset=utf-8";
}

static enum MHD_Result page_send(struct MHD_Connection *connection, const char *name)
{
	if (*name == '\0')
		name = "index.html";
	for (size_t i = 0; i < mt_n_page_files; i++) {
		const char *base = strrchr(mt_page_files[i].name, '/') + 1;

		if (strcmp(base, name) == 0)
			return respond(connection, MHD_HTTP_OK, type_of(name), mt_page_files[i].bytes,
				       mt_page_files[i].n_bytes, MHD_RESPMEM_PERSISTENT);
	}
	return refuse(connection, MHD_HTTP_NOT_FOUND, "there is nothing of that name\n");
}

/* ---- questions ---- */

static void traces_list(const struct mt_view_server *server, struct mt_view_reply *reply)
{
	struct mt_jsonw *json = &reply->json;

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "version");
	mt_jsonw_string(json, server->version);
	mt_jsonw_key(json, "is_redacted");
	mt_jsonw_boolean(json, server->is_redacted);
	mt_jsonw_key(json, "query_limit_ms");
	mt_jsonw_uint64(json, server->query_limit_ms);
	mt_jsonw_key(json, "traces");
	mt_jsonw_array_begin(json);
	for (size_t i = 0; i < server->n_sources; i++) {
		mt_jsonw_object_begin(json);
		mt_jsonw_key(json, "name");
		mt_jsonw_string(json, server->sources[i].name);
		mt_jsonw_key(json, "path");
		mt_jsonw_string(json, server->is_redacted ? server->sources[i].name
							  : server->sources[i].path);
		mt_jsonw_key(json, "is_live");
		mt_jsonw_boolean(json, server->sources[i].is_live);
		mt_jsonw_object_end(json);
	}
	mt_jsonw_array_end(json);
	mt_jsonw_object_end(json);
	mt_view_reply_end(reply);
}

static enum MHD_Result parameter_take(void *context, enum MHD_ValueKind kind, const char *name,
				      const char *value)
{
	struct mt_question *question = context;

	(void)kind;
	if (question->n_parameters == MT_QUESTION_MAX_PARAMETERS)
		return MHD_NO;
	if (value)
		question->parameters[question->n_parameters++] =
			(struct mt_parameter){.name = name, .value = value};
	return MHD_YES;
}

static int peer_fd(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

/* "I/NAME": the trace and the question. */
static void question_answer(struct mt_view_server *server, struct MHD_Connection *connection,
			    const char *path, const struct body *body, struct mt_view_reply *reply)
{
	struct mt_question question = {.peer_fd = peer_fd(connection),
				       .query_limit_ms = server->query_limit_ms};
	char *end;
	const unsigned long i = strtoul(path, &end, 10);

	if (*path < '0' || *path > '9' || *end != '/' || i >= server->n_sources) {
		mt_view_reply_fail(reply, MT_REPLY_NOT_FOUND, "there is no trace of that number");
		mt_view_reply_end(reply);
		return;
	}
	question.name = end + 1;
	if (strcmp(question.name, "state") == 0) {
		mt_state_answer(&server->sources[i], reply);
		return;
	}
	if (strcmp(question.name, "progress") == 0) {
		mt_progress_answer(&server->sources[i], reply);
		return;
	}
	if (strcmp(question.name, "query") == 0)
		question.sql = body->bytes ? body->bytes : "";
	MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, parameter_take, &question);
	mt_answer(&question, &server->sources[i], reply);
}

static enum MHD_Result api_send(struct mt_view_server *server, struct MHD_Connection *connection,
				const char *path, const struct body *body)
{
	struct mt_view_reply reply;
	enum MHD_Result result;

	if (!mt_view_reply_begin(&reply))
		return MHD_NO;
	if (strcmp(path, "traces") == 0)
		traces_list(server, &reply);
	else
		question_answer(server, connection, path, body, &reply);
	result = reply_send(connection, &reply);
	mt_view_reply_free(&reply);
	return result;
}

/* ---- requests ---- */

static bool body_take(struct body *body, const char *bytes, size_t n_bytes)
{
	if (body->is_too_large || n_bytes > MAX_SQL_BYTES - body->n_bytes) {
		body->is_too_large = true;
		return true;
	}
	if (!body->bytes)
		body->bytes = malloc(MAX_SQL_BYTES + 1);
	if (!body->bytes)
		return false;
	memcpy(body->bytes + body->n_bytes, bytes, n_bytes);
	body->n_bytes += n_bytes;
	body->bytes[body->n_bytes] = '\0';
	return true;
}

static const char *header_of(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* What follows the token; the refusal otherwise. */
static enum mt_guard guard_ask(const struct mt_view_server *server,
			       struct MHD_Connection *connection, const char *url,
			       const char **ret_path)
{
	const struct mt_guard_request request = {
		.url = url,
		.host = header_of(connection, MHD_HTTP_HEADER_HOST),
		.origin = header_of(connection, MHD_HTTP_HEADER_ORIGIN),
		.fetch_site = header_of(connection, "Sec-Fetch-Site"),
	};

	return mt_guard_check(&request, server->token, ret_path);
}

static enum MHD_Result route(struct mt_view_server *server, struct MHD_Connection *connection,
			     const char *url, const char *method, struct body *body)
{
	const bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
	const size_t n_url = strlen(url);
	const char *path = NULL;
	enum mt_guard guard = guard_ask(server, connection, url, &path);

	if (guard != MT_GUARD_PASSES)
		return refuse(connection, MHD_HTTP_FORBIDDEN, mt_guard_text(guard));
	if (is_post != (n_url > 6 && strcmp(url + n_url - 6, "/query") == 0) ||
	    (!is_post && strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
	     strcmp(method, MHD_HTTP_METHOD_HEAD) != 0))
		return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
			      "GET reads; POST is for a query alone\n");
	if (body->is_too_large || (body->bytes && strlen(body->bytes) != body->n_bytes))
		return refuse(connection, MT_REPLY_TOO_LARGE,
			      "the SQL is too long, or has a zero byte in it\n");
	if (strncmp(path, "api/", 4) == 0)
		return api_send(server, connection, path + 4, body);
	return page_send(connection, path);
}

/* The first call of a request has no body, the last one neither. */
static enum MHD_Result take(void *context, struct MHD_Connection *connection, const char *url,
			    const char *method, const char *version, const char *bytes,
			    size_t *n_bytes, void **request)
{
	struct mt_view_server *server = context;
	struct body *body = *request;
	const char *path;

	(void)version;
	if (!body) {
		*request = calloc(1, sizeof(*body));
		if (!*request)
			return MHD_NO;
		/* Nobody who is refused may send a body first. */
		if (guard_ask(server, connection, url, &path) != MT_GUARD_PASSES)
			return route(server, connection, url, method, *request);
		MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
					  (unsigned)CONNECTION_IDLE_S);
		return MHD_YES;
	}
	if (*n_bytes > 0) {
		bool is_taken = body_take(body, bytes, *n_bytes);

		*n_bytes = 0;
		return is_taken ? MHD_YES : MHD_NO;
	}
	return route(server, connection, url, method, body);
}

static void completed(void *context, struct MHD_Connection *connection, void **request,
		      enum MHD_RequestTerminationCode code)
{
	struct body *body = *request;

	(void)context;
	(void)connection;
	(void)code;
	if (body)
		free(body->bytes);
	free(body);
	*request = NULL;
}

/* ---- life ---- */

static void server_free(struct mt_view_server *server)
{
	for (size_t i = 0; i < server->n_sources; i++)
		mt_source_destroy(&server->sources[i]);
	free(server->version);
	free(server);
}

static struct mt_view_server *server_new(const struct mt_view_options *options)
{
	struct mt_view_server *server = calloc(1, sizeof(*server));

	if (!server)
		return NULL;
	server->query_limit_ms = options->query_limit_ms;
	server->is_redacted = options->is_redacted;
	server->version = strdup(options->version);
	if (!server->version)
		goto err_server;
	for (size_t i = 0; i < options->n_files; i++) {
		if (!mt_source_init(&server->sources[i], &options->files[i], options->is_redacted,
				    &server->stops))
			goto err_server;
		server->n_sources++;
	}
	return server;

err_server:
	server_free(server);
	return NULL;
}

static void silent_log(void *context, const char *format, va_list args)
{
	(void)context;
	(void)format;
	(void)args;
}

/* As many as there are files for, beside those of the traces; the limit is raised as far as it may be. */
static unsigned connections_max(size_t n_sources)
{
	const rlim_t others = SPARE_FILES + n_sources * MT_SOURCE_CONNECTIONS * CONNECTION_FILES;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return MIN_CONNECTIONS;
	if (limit.rlim_cur < others + MAX_CONNECTIONS && limit.rlim_cur < limit.rlim_max) {
		struct rlimit more = limit;

		more.rlim_cur = limit.rlim_max < others + MAX_CONNECTIONS ? limit.rlim_max
									  : others + MAX_CONNECTIONS;
		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			limit = more;
	}
	if (limit.rlim_cur >= others + MAX_CONNECTIONS)
		return MAX_CONNECTIONS;
	return limit.rlim_cur > others + MIN_CONNECTIONS ? (unsigned)(limit.rlim_cur - others)
							 : MIN_CONNECTIONS;
}

/* Threads inherit the mask of the one that makes them. */
static struct MHD_Daemon *daemon_start(struct mt_view_server *server, uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct MHD_Daemon *daemon;
	sigset_t all, before;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
			MHD_USE_ERROR_LOG,
		port, NULL, NULL, take, server, MHD_OPTION_EXTERNAL_LOGGER, silent_log, NULL,
		MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT,
		connections_max(server->n_sources), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STRANGER_IDLE_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
		MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return daemon;
}

struct mt_view_server *mt_view_server_start(const struct mt_view_options *options, uint16_t port,
					    char *ret_error)
{
	struct mt_view_server *server = server_new(options);
	const union MHD_DaemonInfo *info;

	if (!server || !mt_token_make(server->token)) {
		snprintf(ret_error, MT_VIEW_ERROR_BYTES, "%s",
			 server ? "no random numbers for the address" : "out of memory");
		goto err_server;
	}
	sqlite3_hard_heap_limit64(HEAP_LIMIT_BYTES);
	server->daemon = daemon_start(server, port);
	if (!server->daemon) {
		snprintf(ret_error, MT_VIEW_ERROR_BYTES,
			 "cannot listen on 127.0.0.1, port %u%s; try another --port", port,
			 port ? ": somebody else may have it" : "");
		goto err_server;
	}
	info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
	snprintf(server->address, sizeof(server->address), "http://127.0.0.1:%u/%s/",
		 info ? info->port : port, server->token);
	return server;

err_server:
	if (server)
		server_free(server);
	return NULL;
}

const char *mt_view_server_address(const struct mt_view_server *server)
{
	return server->address;
}

void mt_view_server_stop(struct mt_view_server *server)
{
	atomic_store(&server->stops, true);
	MHD_stop_daemon(server->daemon);
	server_free(server);
}
