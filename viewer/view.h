/* SPDX-License-Identifier: MIT */
/*
 * The page for looking at traces, for the command: as a server on the loopback interface, or as one
 * file. Both answer the page from the same statements (answer.h), so that a number is the same
 * wherever it is shown. Nothing here prints; errors are one line in a buffer of the caller's.
 */
#ifndef MT_VIEWER_VIEW_H
#define MT_VIEWER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MT_VIEW_ERROR_BYTES 512
#define MT_VIEW_MAX_TRACES  32

/* A trace to be shown. It was looked at before: that it is one, and of a known schema. */
struct mt_view_file {
	const char *path; /* as the user gave it; shown */
	const char *uri;  /* for SQLite, read-only */
	bool is_live;	  /* somebody writes it at this moment */
	int64_t writer_pid; /* who, 0: not known */
};

struct mt_view_options {
	const struct mt_view_file *files; /* [n_files], at most MT_VIEW_MAX_TRACES */
	size_t n_files;
	const char *version; /* of moetrace; shown */
	bool is_redacted;    /* leave out what may tell of people or machines, see redact.h */
	uint32_t query_limit_ms; /* how long a query of the user's may run */
	/* Told by an export what is written next, and how much of that is done (0 to 1); NULL: nobody is. */
	void (*progress)(const char *trace, const char *what, double part);
};

/* Whether this build can serve; if not, *ret_reason says what to do. */
bool mt_view_can_serve(const char **ret_reason);

struct mt_view_server;

/**
 * Serve the page on 127.0.0.1 by threads of its own, which block every signal.
 *
 * @options    Copied, with what it points to.
 * @port       0: one that is free.
 * @ret_error  [MT_VIEW_ERROR_BYTES] why it failed.
 *
 * Returns the server, to be ended by mt_view_server_stop(); NULL: it could not start.
 */
struct mt_view_server *mt_view_server_start(const struct mt_view_options *options, uint16_t port,
					    char *ret_error);

/* Its address, with the token; valid until the server is stopped. */
const char *mt_view_server_address(const struct mt_view_server *server);

/* Cut off what is running, and end. */
void mt_view_server_stop(struct mt_view_server *server);

/**
 * Write the page with what it asks first as one file that needs no server. What is left out is said
 * in it.
 *
 * Returns whether it is whole as far as was written; the caller looks for errors of @out.
 */
bool mt_view_export(const struct mt_view_options *options, FILE *out, char *ret_error);

#endif
