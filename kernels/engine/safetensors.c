/* SPDX-License-Identifier: MIT */
/*
 * Reading a safetensors file into memory and placing its tensors. The entries are sorted by range
 * to prove that they cover the data section exactly once, then by name for look-ups; both orders
 * are O(n log n) however the file was prepared.
 */
#include "kernels/engine/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <moetrace/status.h>

#include "kernels/engine/safetensors_impl.h"

#define LENGTH_BYTES 8

static uint64_t little_endian_u64(const unsigned char *bytes)
{
	uint64_t value = 0;
	int i;

	for (i = 7; i >= 0; i--)
		value = value << 8 | bytes[i];
	return value;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct mtk_safetensors_entry *left = a, *right = b;

	if (left->begin != right->begin)
		return left->begin < right->begin ? -1 : 1;
	if (left->end != right->end)
		return left->end < right->end ? -1 : 1;
	return strcmp(left->name, right->name);
}

static int compare_names(const void *a, const void *b)
{
	const struct mtk_safetensors_entry *left = a, *right = b;

	return strcmp(left->name, right->name);
}

/* Whether the length in the first eight bytes fits the file. */
static int length_check(const char *name, const unsigned char *bytes, uint64_t file_bytes,
			uint64_t *ret_header_bytes, struct mtk_error *error)
{
	uint64_t header_bytes;

	if (file_bytes < LENGTH_BYTES)
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     file_bytes == 0
					     ? "%s: the file is empty; fetch or convert it again"
					     : "%s: not a safetensors file: shorter than 8 bytes; "
					       "give the path of one",
				     name);
	header_bytes = little_endian_u64(bytes);
	if (header_bytes > MTK_SAFETENSORS_MAX_HEADER_BYTES)
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     "%s: not a safetensors file: a header of %llu bytes, the "
				     "format's limit is %u; give the path of one",
				     name, (unsigned long long)header_bytes,
				     MTK_SAFETENSORS_MAX_HEADER_BYTES);
	if (header_bytes > file_bytes - LENGTH_BYTES)
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     "%s: truncated: a header of %llu bytes is announced, %llu "
				     "bytes follow; fetch or convert it again",
				     name, (unsigned long long)header_bytes,
				     (unsigned long long)(file_bytes - LENGTH_BYTES));
	*ret_header_bytes = header_bytes;
	return MOETRACE_OK;
}

/* Prove that the tensors cover the data section exactly once, in order. */
static int ranges_check(struct mtk_safetensors *file, uint64_t data_bytes, struct mtk_error *error)
{
	uint64_t end = 0;
	size_t i;

	if (file->n_entries > 0)
		qsort(file->entries, file->n_entries, sizeof(*file->entries), compare_ranges);
	for (i = 0; i < file->n_entries; i++) {
		const struct mtk_safetensors_entry *entry = &file->entries[i];

		if (entry->end > data_bytes)
			return mtk_error_set(
				error, MOETRACE_E_FORMAT,
				"%s: tensor %s: data_offsets end at byte %llu of %llu; "
				"the file is truncated or damaged: fetch or convert it again",
				file->name, entry->name, (unsigned long long)entry->end,
				(unsigned long long)data_bytes);
		if (entry->begin != end)
			return mtk_error_set(
				error, MOETRACE_E_FORMAT,
				entry->begin < end
					? "%s: tensor %s: data_offsets overlap the tensor "
					  "before (begin at %llu, expected %llu); fetch or "
					  "convert the file again"
					: "%s: tensor %s: data_offsets leave a hole "
					  "(begin at %llu, expected %llu); fetch or convert the "
					  "file again",
				file->name, entry->name, (unsigned long long)entry->begin,
				(unsigned long long)end);
		end = entry->end;
	}
	if (end != data_bytes)
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     "%s: %llu bytes after the last tensor belong to none; fetch or "
				     "convert the file again",
				     file->name, (unsigned long long)(data_bytes - end));
	return MOETRACE_OK;
}

static void tensors_place(struct mtk_safetensors *file, const unsigned char *data)
{
	size_t i;

	for (i = 0; i < file->n_entries; i++) {
		struct mtk_safetensors_entry *entry = &file->entries[i];

		entry->tensor.data = data + entry->begin;
		entry->tensor.n_bytes = (size_t)(entry->end - entry->begin);
	}
	if (file->n_entries > 0)
		qsort(file->entries, file->n_entries, sizeof(*file->entries), compare_names);
}

/* Check @bytes, which the file object owns from here on, also when this fails. */
static int file_create(const char *name, unsigned char *bytes, size_t n_bytes,
		       struct mtk_safetensors **ret_file, struct mtk_error *error)
{
	struct mtk_safetensors *file = calloc(1, sizeof(*file));
	uint64_t header_bytes, data_bytes;
	int status;

	if (!file) {
		free(bytes);
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", name);
	}
	file->bytes = bytes;
	file->n_bytes = n_bytes;
	file->name = strdup(name);
	if (!file->name) {
		status = mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", name);
		goto err_file;
	}
	status = length_check(name, bytes, n_bytes, &header_bytes, error);
	if (status < 0)
		goto err_file;
	status = mtk_safetensors_header_read(file, (const char *)bytes + LENGTH_BYTES,
					     (size_t)header_bytes, error);
	if (status < 0)
		goto err_file;
	data_bytes = n_bytes - LENGTH_BYTES - header_bytes;
	status = ranges_check(file, data_bytes, error);
	if (status < 0)
		goto err_file;
	tensors_place(file, bytes + LENGTH_BYTES + header_bytes);
	*ret_file = file;
	return MOETRACE_OK;

err_file:
	mtk_safetensors_close(file);
	return status;
}

/* Fill @bytes from the start of the file; a file that is shorter by now is an error. */
static int bytes_read(const char *path, int fd, unsigned char *bytes, size_t n_bytes,
		      struct mtk_error *error)
{
	size_t done = 0;

	while (done < n_bytes) {
		ssize_t n = pread(fd, bytes + done, n_bytes - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return mtk_error_set(error, MOETRACE_E_IO, "%s: cannot read: %s", path,
					     strerror(errno));
		if (n == 0)
			return mtk_error_set(error, MOETRACE_E_IO,
					     "%s: the file became shorter while it was read; wait "
					     "until it is written",
					     path);
		done += (size_t)n;
	}
	return MOETRACE_OK;
}

/* Only a sound length is worth the memory of the whole file. */
static int file_read(const char *path, int fd, uint64_t file_bytes, unsigned char **ret_bytes,
		     struct mtk_error *error)
{
	unsigned char length[LENGTH_BYTES] = {0};
	unsigned char *bytes;
	uint64_t header_bytes;
	int status;

	if (file_bytes >= LENGTH_BYTES) {
		status = bytes_read(path, fd, length, sizeof(length), error);
		if (status < 0)
			return status;
	}
	status = length_check(path, length, file_bytes, &header_bytes, error);
	if (status < 0)
		return status;
	bytes = file_bytes > SIZE_MAX ? NULL : malloc((size_t)file_bytes);
	if (!bytes)
		return mtk_error_set(error, MOETRACE_E_NOMEM,
				     "%s: %llu bytes do not fit into memory; use a smaller model", path,
				     (unsigned long long)file_bytes);
	status = bytes_read(path, fd, bytes, (size_t)file_bytes, error);
	if (status < 0) {
		free(bytes);
		return status;
	}
	*ret_bytes = bytes;
	return MOETRACE_OK;
}

int mtk_safetensors_open(const char *path, struct mtk_safetensors **ret_file,
			 struct mtk_error *error)
{
	unsigned char *bytes = NULL;
	struct stat info;
	int status;
	/* O_NONBLOCK: a FIFO must be refused below, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return mtk_error_set(error, errno == ENOENT ? MOETRACE_E_NOT_FOUND : MOETRACE_E_IO,
				     "%s: cannot open: %s", path, strerror(errno));
	if (fstat(fd, &info) < 0)
		status = mtk_error_set(error, MOETRACE_E_IO, "%s: cannot read: %s", path,
				       strerror(errno));
	else if (!S_ISREG(info.st_mode))
		status = mtk_error_set(error, MOETRACE_E_IO, "%s: not a regular file; give the path of one", path);
	else
		status = file_read(path, fd, (uint64_t)info.st_size, &bytes, error);
	close(fd);
	if (status < 0)
		return status;
	return file_create(path, bytes, (size_t)info.st_size, ret_file, error);
}

int mtk_safetensors_parse(const char *name, const void *bytes, size_t n_bytes,
			  struct mtk_safetensors **ret_file, struct mtk_error *error)
{
	unsigned char *copy = malloc(n_bytes ? n_bytes : 1);

	if (!copy)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "%s: out of memory", name);
	if (n_bytes > 0)
		memcpy(copy, bytes, n_bytes);
	return file_create(name, copy, n_bytes, ret_file, error);
}

void mtk_safetensors_close(struct mtk_safetensors *file)
{
	size_t i;

	if (!file)
		return;
	for (i = 0; i < file->n_entries; i++)
		free(file->entries[i].name);
	for (i = 0; i < file->n_metadata; i++) {
		free(file->metadata[i].key);
		free(file->metadata[i].value);
	}
	free(file->entries);
	free(file->metadata);
	free(file->bytes);
	free(file->name);
	free(file);
}

const char *mtk_safetensors_name(const struct mtk_safetensors *file)
{
	return file->name;
}

size_t mtk_safetensors_n_tensors(const struct mtk_safetensors *file)
{
	return file->n_entries;
}

const char *mtk_safetensors_tensor_at(const struct mtk_safetensors *file, size_t index,
				      struct mtk_tensor *ret_tensor)
{
	*ret_tensor = file->entries[index].tensor;
	return file->entries[index].name;
}

static int source_find(void *ctx, const char *name, struct mtk_tensor *ret_tensor)
{
	const struct mtk_safetensors *file = ctx;
	size_t low = 0, high = file->n_entries;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, file->entries[middle].name);

		if (order == 0) {
			*ret_tensor = file->entries[middle].tensor;
			return MOETRACE_OK;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return MOETRACE_E_NOT_FOUND;
}

struct mtk_tensor_source mtk_safetensors_source(struct mtk_safetensors *file)
{
	return (struct mtk_tensor_source){.ctx = file, .find = source_find};
}

const char *mtk_safetensors_metadata(const struct mtk_safetensors *file, const char *key)
{
	size_t i;

	for (i = 0; i < file->n_metadata; i++) {
		if (strcmp(file->metadata[i].key, key) == 0)
			return file->metadata[i].value;
	}
	return NULL;
}
