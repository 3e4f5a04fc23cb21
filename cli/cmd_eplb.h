/* SPDX-License-Identifier: MIT */
/* The parts of `moetrace eplb`: its matrix of loads (cmd_eplb_loads.c), and the verb. */
#ifndef MT_CLI_CMD_EPLB_H
#define MT_CLI_CMD_EPLB_H

#include <stdint.h>

/* Loads by layer and expert. */
struct mt_loads {
	uint32_t n_layers;
	uint32_t n_experts;
	float *loads; /* [n_layers][n_experts], finite and not negative; free() it */
};

/**
 * Read a matrix, layers x experts, as JSON: an array of arrays of numbers.
 *
 * Returns MT_EXIT_OK, or another code after one line on standard error.
 */
int mt_loads_read(const char *path, struct mt_loads *ret_loads);

#endif
