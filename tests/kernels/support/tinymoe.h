/* SPDX-License-Identifier: MIT */
/*
 * The example model for the tests of the engine: loaded from the source tree, with a cache, a
 * workspace and a thread pool around it. Every failure fails the calling test.
 */
#ifndef MTK_TESTS_TINYMOE_H
#define MTK_TESTS_TINYMOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/kv_cache.h"
#include "kernels/engine/model.h"
#include "kernels/threads.h"

struct tinymoe {
	struct mtk_model_config config;
	struct mtk_model *model;
	struct mtk_workspace *workspace;
	struct mtk_kv_cache *kv;
	struct mtk_threads *threads;
};

/*
 * Whether this build can read models; if not, a line says so, and the program is to exit with
 * TINYMOE_SKIPPED.
 */
#define TINYMOE_SKIPPED 77
bool tinymoe_is_readable(void);

struct tinymoe tinymoe_open(uint32_t n_slots, uint32_t n_rows_max, uint32_t n_threads);
void tinymoe_close(struct tinymoe *tiny);

/* The bytes of a file of the source tree, to be freed; exactly n_bytes unless that is 0. */
void *tinymoe_read_file(const char *path, size_t n_bytes, size_t *ret_bytes);

/* The level of the models opened from here on, an enum mtk_cpu_level. */
void tinymoe_use_level(int level);

#endif
