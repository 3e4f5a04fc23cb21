/* SPDX-License-Identifier: MIT */
/*
 * The inside of a safetensors file object, shared by the file half (safetensors.c: bytes, ranges,
 * look-ups) and the header half (safetensors_header.c: JSON to entries).
 */
#ifndef MTK_ENGINE_SAFETENSORS_IMPL_H
#define MTK_ENGINE_SAFETENSORS_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/safetensors.h"

struct mtk_safetensors_entry {
	char *name;
	uint64_t begin; /* bytes from the start of the data section */
	uint64_t end;
	struct mtk_tensor tensor; /* data and n_bytes are set once the range is checked */
};

struct mtk_safetensors_pair {
	char *key;
	char *value;
};

struct mtk_safetensors {
	char *name;
	unsigned char *bytes; /* the whole file */
	size_t n_bytes;
	struct mtk_safetensors_entry *entries;
	size_t n_entries;
	size_t max_entries;
	struct mtk_safetensors_pair *metadata;
	size_t n_metadata;
	size_t max_metadata;
};

/**
 * Read the JSON header @text into @file->entries and @file->metadata. Types, shapes and ranges are
 * well-formed afterwards and each range has the size of its tensor; where the ranges lie in the
 * data section is not checked here.
 */
int mtk_safetensors_header_read(struct mtk_safetensors *file, const char *text, size_t n_bytes,
				struct mtk_error *error);

#endif
