/* SPDX-License-Identifier: MIT */
/*
 * What tests of collectors share: places of fakes, files of a powercap tree, and a CUPTI made for
 * tests.
 */
#ifndef TEST_FAKES_H
#define TEST_FAKES_H

#include <stdint.h>

#include "tests/collectors/fake/fake_cupti.h"

/* Set a variable of the environment. */
void fakes_set(const char *name, const char *value);

/*
 * Time for looks on a machine that stands still for seconds, unless the test has chosen another: before
 * the session is opened.
 */
void fakes_be_patient(void);

/* Let a variable name a library of tests/collectors in the build. */
void fakes_use(const char *variable, const char *library);

/* Write a line to a file of a folder. */
void fakes_put_file(const char *folder, const char *name, const char *text);

/* Make the folder of a domain of powercap, with the range that most have. */
void fakes_put_domain(const char *root, const char *folder, const char *name, const char *energy_uj);

/* Let sessions find the CUPTI made for tests. */
const struct fake_cupti_api *fakes_cupti(void);

/* CLOCK_REALTIME, which is CUPTI's clock. */
uint64_t fakes_realtime_ns(void);

#endif
