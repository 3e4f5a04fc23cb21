/* SPDX-License-Identifier: MIT */
/* The command line of `moetrace route`, parsed. */
#ifndef MT_CLI_CMD_ROUTE_H
#define MT_CLI_CMD_ROUTE_H

#include "cli/cli.h"
#include "kernels/route/route.h"

enum mt_route_format {
	MT_ROUTE_JSON,
	MT_ROUTE_CSV,
	MT_ROUTE_BINARY,
};

struct mt_route_options {
	struct mt_args args;
	const char *preset;
	const char *logits;
	const char *bias_file;
	const char *hash_file;
	const char *token_file;
	struct mtk_route_config config;
	uint64_t n_columns; /* 0: as the preset says */
	uint64_t n_valid_rows;
	uint64_t given; /* a bit an option: set by hand, the preset does not matter */
	enum mt_route_format format;
};

/* Returns MT_EXIT_OK, or MT_EXIT_USAGE after one line on standard error. */
int mt_route_options_parse(int argc, char **argv, struct mt_route_options *ret_options);

#endif
