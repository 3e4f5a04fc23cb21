/* SPDX-License-Identifier: MIT */
/* What the files of the verb oea share. */
#ifndef MT_CLI_CMD_OEA_H
#define MT_CLI_CMD_OEA_H

#include "cli/cli.h"

#define MT_OEA_MAX_K0 64

struct mt_oea_args {
	struct mt_args common;
	bool has_k0[MT_OEA_MAX_K0 + 1]; /* [0]: a list was given */
	bool by_layer, by_batch;
	const char *rule; /* NULL: oea, or with --verify every rule of the trace */
	char form[128];	  /* rule without its k0 */
	bool fits, verifies;
	bool expands; /* --rule expand */
	double margin;
	uint64_t kmax; /* 0: not bounded */
	uint64_t n_ranks; /* 0: not given */
	const char *map;  /* 'recorded', or a file; NULL: experts in order */
	bool has_a, has_b, has_c;
	double a_us, b_us, c_us;
	double bandwidth_gb_s; /* 0: not given */
};

extern const struct argp mt_oea_argp;

/* --verify: says whether each rule of the trace did anything, and if not, why. */
int mt_oea_verify(const struct mt_trace *trace, const struct mt_oea_args *args);

#endif
