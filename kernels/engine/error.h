/* SPDX-License-Identifier: MIT */
/*
 * The text of an engine error: one line, without a newline, that names the file, the part of it
 * and what was wrong. Functions that take a struct mtk_error fill it exactly when they return a
 * negative status; NULL is allowed where the caller wants the status alone.
 */
#ifndef MTK_ENGINE_ERROR_H
#define MTK_ENGINE_ERROR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MTK_ERROR_BYTES 512

struct mtk_error {
	char text[MTK_ERROR_BYTES];
};

/**
 * Format @format into @error, with every control byte replaced by '?', so that hostile names in a
 * file cannot break the line or drive a terminal.
 *
 * @error   May be NULL.
 * @status  Returned unchanged, so that a caller can write `return mtk_error_set(...)`.
 */
int mtk_error_set(struct mtk_error *error, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

#endif
