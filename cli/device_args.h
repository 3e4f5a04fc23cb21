/* SPDX-License-Identifier: MIT */
/* Where the engine computes: the options that say so, for the verbs that run it. */
#ifndef MT_CLI_DEVICE_ARGS_H
#define MT_CLI_DEVICE_ARGS_H

#include <stdbool.h>

#include "cli/cli.h"
#include "kernels/engine/backend.h"

enum mt_device_kind {
	MT_DEVICE_CPU,
	MT_DEVICE_CUDA,
	MT_DEVICE_AUTO,
};

struct mt_device {
	enum mt_device_kind kind;
	bool is_given;
	bool is_16bit;
	bool without_graphs;
	bool has_threads; /* a number of the engine's was given */
	/* Once it is open. */
	struct mtk_backend *backend; /* NULL: the CPU */
	char text[2 * MTK_ERROR_BYTES]; /* what computes, and with auto why it is not a GPU */
};

#define MT_DEVICE_HELP                                                                         \
	"Where the model runs: cpu, cuda (an NVIDIA GPU, or the command fails) or auto (a GPU if " \
	"one can be used, else the CPU) [cpu]"
#define MT_PRECISION_HELP                                                                      \
	"On a GPU: what operations read, fp32 (the CPU's results within rounding) or 16bit "    \
	"(the weights' type, for the tensor cores) [fp32]"
#define MT_NO_GRAPH_HELP "On a GPU: launch kernel by kernel, without graphs and their padding"

error_t mt_device_parse(struct mt_args *args, const char *text, struct mt_device *device);
error_t mt_precision_parse(struct mt_args *args, const char *text, struct mt_device *device);

/* Refuse what has no effect on the device that was asked for. */
error_t mt_device_complete(struct mt_args *args, const struct mt_device *device);

/**
 * Bring the model to the device that was asked for.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error.
 */
int mt_device_open(struct mt_device *device, const struct mtk_model *model);

void mt_device_close(struct mt_device *device);

#endif
