/* SPDX-License-Identifier: MIT */
/*
 * What tests of serving share: the example model, some requests of the example workload, and a run
 * of them.
 */
#ifndef MTK_TESTS_SERVED_H
#define MTK_TESTS_SERVED_H

#include <check.h>
#include <stdint.h>

#include "kernels/engine/serve.h"

/* Enough for mixed passes and several admissions, few enough for slow builds. */
#define SERVED_REQUESTS 12

/* Of the cases of served_tcase(). */
extern struct mtk_model *served_model;
extern struct mtk_workload *served_workload;
extern const struct mtk_serve_options served_usual;

/* What a run gave each request. */
struct served_texts {
	char bytes[SERVED_REQUESTS][128];
	uint32_t n_bytes[SERVED_REQUESTS];
};

/* Serve all requests, recorded into @session if that is not NULL. */
struct mtk_serve_stats served_run(const struct mtk_serve_options *options,
				  struct moetrace_session *session, struct served_texts *ret_texts);

/* The first @n requests have the same text. */
void served_compare(const struct served_texts *got, const struct served_texts *want, uint32_t n);

/* Cases that find the model and the workload, which each may change. */
TCase *served_tcase(Suite *suite);

#endif
