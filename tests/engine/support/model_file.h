/* SPDX-License-Identifier: MIT */
/*
 * Bytes of model files for the tests: a header of one's own before data of a given size, or a
 * sound file that the tests damage. All memory is made by malloc() with its exact size, so that a
 * sanitizer sees every byte read past it.
 */
#ifndef MTK_TESTS_MODEL_FILE_H
#define MTK_TESTS_MODEL_FILE_H

#include <stddef.h>

struct model_file {
	unsigned char *bytes;
	size_t n_bytes;
	size_t header_bytes; /* of the JSON, after the eight bytes of its length */
};

/* A file of @header and @data_bytes counting bytes. */
struct model_file model_file_make(const char *header, size_t data_bytes);

/* A sound file of a few small tensors of every type, with the metadata of a small model. */
struct model_file model_file_sound(void);

/* The header of the latter. */
extern const char model_file_sound_header[];
#define MODEL_FILE_SOUND_DATA_BYTES 118

void model_file_release(struct model_file *file);

/* The path of the example model in the source tree, valid until the next call. */
const char *model_file_tinymoe_path(void);
const char *model_file_workload_path(void);

#endif
