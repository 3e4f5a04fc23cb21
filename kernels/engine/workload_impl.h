/* SPDX-License-Identifier: MIT */
/*
 * The seam inside the workload reader: workload.c has the file and the list, workload_line.c one
 * line of it.
 */
#ifndef MTK_ENGINE_WORKLOAD_IMPL_H
#define MTK_ENGINE_WORKLOAD_IMPL_H

#include <stddef.h>

#include "kernels/engine/workload.h"

/**
 * Read one line, which is not blank, into @ret_request. On failure nothing is left to release.
 *
 * @name  The file and @line its number from 1, for errors and for the default id.
 */
int mtk_workload_line_read(const char *name, size_t line, const char *text, size_t n_bytes,
			   struct mtk_workload_request *ret_request, struct mtk_error *error);

void mtk_workload_request_release(struct mtk_workload_request *request);

#endif
