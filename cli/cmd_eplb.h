/* SPDX-License-Identifier: MIT */
/* The parts of `moetrace eplb`: its matrix of loads (cmd_eplb_loads.c), and the verb. */
#ifndef MT_CLI_CMD_EPLB_H
#define MT_CLI_CMD_EPLB_H

#include <stdbool.h>
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

/* What the placement would have done to one layer. */
struct mt_plan_figures {
	int64_t layer;
	bool has_before;
	double balancedness[2]; /* before, after */
	double max_over_mean[2];
};

/* The placements of all layers with experts, and a row of figures each. */
struct mt_plan {
	uint32_t n_layers;
	uint32_t n_experts;
	uint32_t n_replicas;
	int64_t n_model_layers;		 /* dense ones included; 0: not known */
	uint32_t *experts;		 /* [n_layers][n_replicas] */
	uint32_t *replicas;		 /* [n_layers][n_experts] */
	struct mt_plan_figures *figures; /* [n_layers] */
};

enum mt_export { MT_EXPORT_NONE, MT_EXPORT_SGLANG, MT_EXPORT_VLLM, MT_EXPORT_TRTLLM };

/* The export called @name; MT_EXPORT_NONE: there is none. */
enum mt_export mt_export_parse(const char *name);

/* Print @plan in the form that an engine reads. Returns an enum mt_exit. */
int mt_plan_export(const struct mt_plan *plan, enum mt_export export);

#endif
