/* SPDX-License-Identifier: MIT */
/*
 * The JSON header of a safetensors file. The events of the parser drive a machine whose place is
 * given by the depth and the key last seen: depth 1 holds tensor names and __metadata__, depth 2
 * the fields of one of them, depth 3 the numbers of shape and data_offsets. Anything that does not
 * fit that form is an error; nothing is skipped.
 */
#include "kernels/engine/safetensors_impl.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/json.h"

#define HEADER_MAX_DEPTH 3

enum field {
	FIELD_NONE,
	FIELD_DTYPE,
	FIELD_SHAPE,
	FIELD_OFFSETS,
};

struct header {
	struct mtk_safetensors *file;
	struct mtk_safetensors_entry entry; /* the tensor being read; owns its name */
	bool in_metadata;
	char *metadata_key;
	enum field field;
	bool has_dtype;
	bool has_shape;
	uint32_t n_offsets;
	bool has_offsets;
};

static const char *const known_refused[] = {
	"F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4",  "F6_E2M3", "F6_E3M2", "I64", "I32",
	"I16", "I8",	  "U64",     "U32",	"U16", "U8",	  "BOOL",    "C64",
};

static int refuse(struct mt_json_error *error, int status, const char *name, const char *what)
{
	if (name)
		snprintf(error->text, sizeof(error->text), "tensor %.120s: %s", name, what);
	else
		snprintf(error->text, sizeof(error->text), "%s", what);
	return status;
}

static int refuse_field(struct mt_json_error *error, const struct header *header, const char *what)
{
	return refuse(error, MOETRACE_E_FORMAT, header->entry.name, what);
}

/* Room for one more element of @bytes each in an array that doubles. */
static int array_reserve(void **array, size_t n, size_t *max, size_t bytes)
{
	size_t new_max = *max ? *max * 2 : 16;
	void *grown;

	if (n < *max)
		return MOETRACE_OK;
	if (new_max > SIZE_MAX / bytes)
		return MOETRACE_E_NOMEM;
	grown = realloc(*array, new_max * bytes);
	if (!grown)
		return MOETRACE_E_NOMEM;
	*array = grown;
	*max = new_max;
	return MOETRACE_OK;
}

/* A terminated copy of text; a zero byte within would cut it short and is refused. */
static int text_copy(const struct mt_json_event *event, const char *what, char **ret_text,
		     struct mt_json_error *error)
{
	char *copy;

	if (event->n_bytes > 0 && memchr(event->text, '\0', event->n_bytes)) {
		snprintf(error->text, sizeof(error->text), "%s holds a zero byte", what);
		return MOETRACE_E_FORMAT;
	}
	copy = malloc(event->n_bytes + 1);
	if (!copy)
		return refuse(error, MOETRACE_E_NOMEM, NULL, "out of memory");
	if (event->n_bytes > 0)
		memcpy(copy, event->text, event->n_bytes);
	copy[event->n_bytes] = '\0';
	*ret_text = copy;
	return MOETRACE_OK;
}

static int dtype_read(struct header *header, const struct mt_json_event *event,
		      struct mt_json_error *error)
{
	struct mtk_tensor *tensor = &header->entry.tensor;
	char what[96];
	size_t i;

	header->has_dtype = true;
	if (mt_json_text_is(event, "F32"))
		tensor->dtype = MTK_DTYPE_F32;
	else if (mt_json_text_is(event, "F16"))
		tensor->dtype = MTK_DTYPE_F16;
	else if (mt_json_text_is(event, "BF16"))
		tensor->dtype = MTK_DTYPE_BF16;
	else
		header->has_dtype = false;
	if (header->has_dtype)
		return MOETRACE_OK;

	for (i = 0; i < sizeof(known_refused) / sizeof(known_refused[0]); i++) {
		if (!mt_json_text_is(event, known_refused[i]))
			continue;
		snprintf(what, sizeof(what), "type %s is not supported; convert it to F32, F16 or BF16",
			 known_refused[i]);
		return refuse(error, MOETRACE_E_UNSUPPORTED, header->entry.name, what);
	}
	snprintf(what, sizeof(what), "\"%.*s\" is not a tensor type",
		 event->n_bytes > 32 ? 32 : (int)event->n_bytes, event->text);
	return refuse_field(error, header, what);
}

static int number_read(struct header *header, const struct mt_json_event *event,
		       struct mt_json_error *error)
{
	struct mtk_safetensors_entry *entry = &header->entry;

	if (!event->is_int64 || event->int64 < 0)
		return refuse_field(error, header,
				    header->field == FIELD_SHAPE
					    ? "a dimension is not a non-negative integer"
					    : "a data offset is not a non-negative integer");
	if (header->field == FIELD_SHAPE) {
		if (entry->tensor.n_dims >= MTK_TENSOR_MAX_DIMS)
			return refuse_field(error, header, "more than 8 dimensions");
		entry->tensor.dims[entry->tensor.n_dims++] = (uint64_t)event->int64;
		return MOETRACE_OK;
	}
	if (header->n_offsets >= 2)
		return refuse_field(error, header, "data_offsets has more than two numbers");
	if (header->n_offsets++ == 0)
		entry->begin = (uint64_t)event->int64;
	else
		entry->end = (uint64_t)event->int64;
	return MOETRACE_OK;
}

static uint64_t dtype_bytes(enum mtk_dtype dtype)
{
	return dtype == MTK_DTYPE_F32 ? 4 : 2;
}

/* Whether the range of the tensor has exactly the bytes of its elements. */
static int sizes_check(const struct header *header, struct mt_json_error *error)
{
	const struct mtk_safetensors_entry *entry = &header->entry;
	uint64_t n_bytes = dtype_bytes(entry->tensor.dtype);
	char what[120];
	uint32_t i;

	if (entry->begin > entry->end)
		return refuse_field(error, header, "data_offsets end before they begin");
	for (i = 0; i < entry->tensor.n_dims; i++) {
		if (__builtin_mul_overflow(n_bytes, entry->tensor.dims[i], &n_bytes))
			return refuse_field(error, header, "the shape has more than 2^64 bytes");
	}
	if (entry->end - entry->begin != n_bytes) {
		snprintf(what, sizeof(what),
			 "shape and type need %llu bytes, data_offsets give %llu",
			 (unsigned long long)n_bytes,
			 (unsigned long long)(entry->end - entry->begin));
		return refuse_field(error, header, what);
	}
	return MOETRACE_OK;
}

static int tensor_end(struct header *header, struct mt_json_error *error)
{
	struct mtk_safetensors *file = header->file;
	int status;

	if (!header->has_dtype)
		return refuse_field(error, header, "dtype is missing");
	if (!header->has_shape)
		return refuse_field(error, header, "shape is missing");
	if (!header->has_offsets || header->n_offsets != 2)
		return refuse_field(error, header, "data_offsets are not two numbers");
	status = sizes_check(header, error);
	if (status < 0)
		return status;
	status = array_reserve((void **)&file->entries, file->n_entries, &file->max_entries,
			       sizeof(*file->entries));
	if (status < 0)
		return refuse(error, status, NULL, "out of memory");
	file->entries[file->n_entries++] = header->entry;
	memset(&header->entry, 0, sizeof(header->entry));
	return MOETRACE_OK;
}

static int metadata_add(struct header *header, const struct mt_json_event *event,
			struct mt_json_error *error)
{
	struct mtk_safetensors *file = header->file;
	char *value;
	int status = text_copy(event, "a __metadata__ value", &value, error);

	if (status < 0)
		return status;
	status = array_reserve((void **)&file->metadata, file->n_metadata, &file->max_metadata,
			       sizeof(*file->metadata));
	if (status < 0) {
		free(value);
		return refuse(error, status, NULL, "out of memory");
	}
	file->metadata[file->n_metadata++] =
		(struct mtk_safetensors_pair){header->metadata_key, value};
	header->metadata_key = NULL;
	return MOETRACE_OK;
}

static int name_begin(struct header *header, const struct mt_json_event *event,
		      struct mt_json_error *error)
{
	struct mtk_safetensors_entry *entry = &header->entry;

	header->in_metadata = mt_json_text_is(event, "__metadata__");
	header->field = FIELD_NONE;
	header->has_dtype = header->has_shape = header->has_offsets = false;
	header->n_offsets = 0;
	if (header->in_metadata)
		return MOETRACE_OK;
	if (event->n_bytes == 0)
		return refuse(error, MOETRACE_E_FORMAT, NULL, "a tensor's name is empty");
	return text_copy(event, "a tensor's name", &entry->name, error);
}

static int field_begin(struct header *header, const struct mt_json_event *event,
		       struct mt_json_error *error)
{
	if (header->in_metadata)
		return text_copy(event, "a key of __metadata__", &header->metadata_key, error);
	if (mt_json_text_is(event, "dtype"))
		header->field = FIELD_DTYPE;
	else if (mt_json_text_is(event, "shape"))
		header->field = FIELD_SHAPE;
	else if (mt_json_text_is(event, "data_offsets"))
		header->field = FIELD_OFFSETS;
	else
		return refuse_field(error, header,
				    "a field that is not dtype, shape or data_offsets");
	return MOETRACE_OK;
}

/* Depth 2: the value of a tensor's field or of a metadata key. */
static int value_receive(struct header *header, const struct mt_json_event *event,
			 struct mt_json_error *error)
{
	if (header->in_metadata) {
		if (event->kind == MT_JSON_STRING)
			return metadata_add(header, event, error);
		return refuse(error, MOETRACE_E_FORMAT, NULL,
			      "a __metadata__ value is not a string");
	}
	if (header->field == FIELD_DTYPE && event->kind == MT_JSON_STRING)
		return dtype_read(header, event, error);
	if (event->kind == MT_JSON_ARRAY_BEGIN && header->field != FIELD_DTYPE)
		return MOETRACE_OK;
	if (event->kind == MT_JSON_ARRAY_END) {
		if (header->field == FIELD_SHAPE)
			header->has_shape = true;
		else
			header->has_offsets = true;
		return MOETRACE_OK;
	}
	return refuse_field(error, header,
			    header->field == FIELD_DTYPE   ? "dtype is not a string"
			    : header->field == FIELD_SHAPE ? "shape is not an array"
							   : "data_offsets is not an array");
}

static int receive(void *context, const struct mt_json_event *event, struct mt_json_error *error)
{
	struct header *header = context;

	switch (event->depth) {
	case 0:
		if (event->kind == MT_JSON_OBJECT_BEGIN || event->kind == MT_JSON_OBJECT_END)
			return MOETRACE_OK;
		return refuse(error, MOETRACE_E_FORMAT, NULL, "the header is not a JSON object");
	case 1:
		if (event->kind == MT_JSON_KEY)
			return name_begin(header, event, error);
		if (event->kind == MT_JSON_OBJECT_BEGIN)
			return MOETRACE_OK;
		if (event->kind == MT_JSON_OBJECT_END)
			return header->in_metadata ? MOETRACE_OK : tensor_end(header, error);
		return refuse_field(error, header, "the entry is not a JSON object");
	case 2:
		if (event->kind == MT_JSON_KEY)
			return field_begin(header, event, error);
		return value_receive(header, event, error);
	default:
		if (event->kind == MT_JSON_NUMBER)
			return number_read(header, event, error);
		return refuse_field(error, header, "an array holds something that is not a number");
	}
}

int mtk_safetensors_header_read(struct mtk_safetensors *file, const char *text, size_t n_bytes,
				struct mtk_error *error)
{
	struct mt_json_limits limits = {MTK_SAFETENSORS_MAX_HEADER_BYTES, HEADER_MAX_DEPTH};
	struct header header = {.file = file};
	struct mt_json_error json_error;
	int status;

	if (n_bytes == 0 || text[0] != '{')
		return mtk_error_set(error, MOETRACE_E_FORMAT,
				     "%s: not a safetensors file: the header does not begin with {; "
				     "give the path of one",
				     file->name);
	status = mt_json_parse(text, n_bytes, &limits, receive, &header, &json_error);
	free(header.entry.name);
	free(header.metadata_key);
	if (status == MOETRACE_E_FORMAT)
		return mtk_error_set(error, status,
				     "%s: header byte %zu: %s; fetch or convert the file again",
				     file->name, json_error.byte, json_error.text);
	if (status < 0)
		return mtk_error_set(error, status, "%s: %s", file->name, json_error.text);
	return MOETRACE_OK;
}
