/* SPDX-License-Identifier: MIT */
/*
 * What the tests on a GPU share: they are programs of their own, without a framework, end with 77
 * where there is no GPU, and with 1 at the first fault. Device memory lives until the process ends.
 */
#ifndef MTK_TESTS_GPU_H
#define MTK_TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens GPU 0, or ends the program with 77; prints which it is. */
void gpu_open_or_skip(void);

/* The stream of all launches. */
void *gpu_stream(void);

/* Ends the program with the text where the condition does not hold. */
void gpu_check(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The status of a call, which must be MOETRACE_OK; error may be NULL. */
struct mtk_error;
void gpu_must(int status, const struct mtk_error *error, const char *what);

/* Device memory that holds a copy of n_bytes; NULL for NULL. Freed by gpu_free_all(). */
void *gpu_copy_of(const void *from, size_t n_bytes);

/* Device memory, every byte 0xa5. */
void *gpu_memory(size_t n_bytes);

/* Waits, then copies back. */
void gpu_read(void *to, const void *from_device, size_t n_bytes);

/* What gpu_copy_of() and gpu_memory() gave out. */
void gpu_free_all(void);

/* With MOETRACE_TEST_SMALL set: for tools that make each launch take a thousand times as long. */
bool gpu_is_small(void);

/* malloc() that cannot fail. */
void *gpu_host(size_t n_bytes);

#endif
