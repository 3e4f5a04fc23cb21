/* SPDX-License-Identifier: MIT */
/*
 * The server of a build without libmicrohttpd: it says so.
 */
#include "viewer/view.h"

#include <stdio.h>

static const char reason[] = "this build cannot serve pages: install libmicrohttpd-dev (libmicrohttpd-"
			     "devel) and build again";

bool mt_view_can_serve(const char **ret_reason)
{
	*ret_reason = reason;
	return false;
}

struct mt_view_server *mt_view_server_start(const struct mt_view_options *options, uint16_t port,
					    char *ret_error)
{
	(void)options;
	(void)port;
	snprintf(ret_error, MT_VIEW_ERROR_BYTES, "%s", reason);
	return NULL;
}

const char *mt_view_server_address(const struct mt_view_server *server)
{
	(void)server;
	return "";
}

void mt_view_server_stop(struct mt_view_server *server)
{
	(void)server;
}
