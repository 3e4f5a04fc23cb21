/* SPDX-License-Identifier: MIT */
/*
 * What is done with one hostile input, shared by the fuzzers and by the deterministic mutation
 * test: it is parsed, and what was accepted is held to the promises of the reader. A promise that
 * does not hold aborts the process, which is how a fuzzer is told.
 */
#ifndef MTK_TESTS_FUZZ_INPUT_H
#define MTK_TESTS_FUZZ_INPUT_H

#include <stddef.h>

/* Each returns whether the input was accepted. */
int fuzz_safetensors_input(const unsigned char *bytes, size_t n_bytes);
int fuzz_json_input(const unsigned char *bytes, size_t n_bytes);
int fuzz_workload_input(const unsigned char *bytes, size_t n_bytes);

#endif
