/* SPDX-License-Identifier: MIT */
/*
 * A disk that stands still or refuses: SQLite's own hook for replacing system calls, in this
 * process and for every connection of it.
 */
#ifndef TEST_IO_FAULT_H
#define TEST_IO_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Before the first connection. */
void io_fault_install(void);

/* While true, writes wait. */
void io_fault_stall(bool is_stalled);

/* Until one does. */
void io_fault_wait_for_stalled(void);

/* After @n_writes more writes all writes fail with this errno; 0: they work again. */
void io_fault_fail(int error, uint32_t n_writes);

#endif
