/* SPDX-License-Identifier: MIT */
/*
 * The libFuzzer target of the JSON reader.
 */
#include <stdint.h>

#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
	(void)fuzz_json_input(bytes, n_bytes);
	return 0;
}
