/* SPDX-License-Identifier: MIT */
/*
 * The greedy continuations of prompts that the reference implementation gave for the example model.
 */
#ifndef MTK_TESTS_GREEDY_H
#define MTK_TESTS_GREEDY_H

#include <stddef.h>
#include <stdint.h>

/* Below this gap another order of summation may choose another greedy byte. */
#define GREEDY_GAP   0.005
#define GREEDY_BYTES 64
#define GREEDY_MAX   32

struct greedy_case {
	char prompt[256];
	char text[512]; /* the prompt, and GREEDY_BYTES after it */
	size_t n_prompt;
	size_t n_text;
	double min_logit_gap; /* smallest distance between the two largest logits on the way */
};

struct greedy_cases {
	char key[32]; /* of the object in hand, while they are read */
	struct greedy_case cases[GREEDY_MAX];
	uint32_t n_cases;
};

/* Fails the calling test where they cannot be read. */
void greedy_read(struct greedy_cases *ret_cases);

#endif
