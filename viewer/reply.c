/* SPDX-License-Identifier: MIT */
/*
 * Replies: a JSON writer on a stream in memory, and arrays that grow. The last resort of a reply
 * without memory is a constant text.
 */
#include "viewer/reply.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const size_t item_bytes[] = {
	[MT_ARRAY_U8] = 1,  [MT_ARRAY_U16] = 2, [MT_ARRAY_U32] = 4,
	[MT_ARRAY_F32] = 4, [MT_ARRAY_F64] = 8,
};
static const char *const type_names[] = {
	[MT_ARRAY_U8] = "u8",	[MT_ARRAY_U16] = "u16", [MT_ARRAY_U32] = "u32",
	[MT_ARRAY_F32] = "f32", [MT_ARRAY_F64] = "f64",
};

static const char no_memory[] = "{\"error\":\"out of memory\"}\n";

static bool stream_open(struct mt_view_reply *reply)
{
	reply->out = open_memstream(&reply->bytes, &reply->n_bytes);
	if (reply->out)
		mt_jsonw_init(&reply->json, reply->out);
	return reply->out != NULL;
}

static void stream_drop(struct mt_view_reply *reply)
{
	if (reply->out)
		fclose(reply->out);
	reply->out = NULL;
	free(reply->bytes);
	reply->bytes = NULL;
	reply->n_bytes = 0;
}

static void arrays_drop(struct mt_view_reply *reply)
{
	for (size_t i = 0; i < reply->n_arrays; i++)
		free(reply->arrays[i].bytes);
	reply->n_arrays = 0;
}

bool mt_view_reply_begin(struct mt_view_reply *reply)
{
	memset(reply, 0, sizeof(*reply));
	reply->status = MT_REPLY_OK;
	reply->content_type = "application/json";
	return stream_open(reply);
}

size_t mt_view_reply_array(struct mt_view_reply *reply, const char *name, enum mt_array_type type)
{
	struct mt_array *array = &reply->arrays[reply->n_arrays];

	memset(array, 0, sizeof(*array));
	snprintf(array->name, sizeof(array->name), "%s", name);
	array->type = type;
	return reply->n_arrays++;
}

static bool array_grow(struct mt_array *array)
{
	size_t size = array->size ? array->size * 2 : 4096;
	unsigned char *bytes = realloc(array->bytes, size);

	if (!bytes)
		return false;
	array->bytes = bytes;
	array->size = size;
	return true;
}

static double clamp(double value, double most)
{
	if (!(value > 0)) /* NaN, too */
		return 0;
	return value < most ? floor(value) : most;
}

void mt_view_reply_item(struct mt_view_reply *reply, size_t array, double value)
{
	struct mt_array *to = &reply->arrays[array];
	uint8_t u8 = 0;
	uint16_t u16 = 0;
	uint32_t u32 = 0;
	float f32;
	const void *from;

	if (to->n_bytes + sizeof(double) > to->size && !array_grow(to)) {
		reply->has_failed = true;
		return;
	}
	switch (to->type) {
	case MT_ARRAY_U8:
		u8 = (uint8_t)clamp(value, UINT8_MAX);
		from = &u8;
		break;
	case MT_ARRAY_U16:
		u16 = (uint16_t)clamp(value, UINT16_MAX);
		from = &u16;
		break;
	case MT_ARRAY_U32:
		u32 = (uint32_t)clamp(value, UINT32_MAX);
		from = &u32;
		break;
	case MT_ARRAY_F32:
		f32 = fabs(value) <= 3.4e38 ? (float)value : NAN;
		from = &f32;
		break;
	default:
		from = &value;
	}
	memcpy(to->bytes + to->n_bytes, from, item_bytes[to->type]);
	to->n_bytes += item_bytes[to->type];
	to->n_items++;
}

size_t mt_view_reply_array_bytes(const struct mt_view_reply *reply)
{
	size_t n_bytes = 0;

	for (size_t i = 0; i < reply->n_arrays; i++)
		n_bytes += reply->arrays[i].n_bytes;
	return n_bytes;
}

void mt_view_reply_fail(struct mt_view_reply *reply, enum mt_view_status status, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	arrays_drop(reply);
	stream_drop(reply);
	reply->status = status;
	reply->content_type = "application/json";
	if (!stream_open(reply)) {
		reply->has_failed = true;
		return;
	}
	mt_jsonw_object_begin(&reply->json);
	mt_jsonw_key(&reply->json, "error");
	mt_jsonw_string(&reply->json, text);
	mt_jsonw_object_end(&reply->json);
}

static void arrays_list(struct mt_view_reply *reply)
{
	mt_jsonw_key(&reply->json, "arrays");
	mt_jsonw_array_begin(&reply->json);
	for (size_t i = 0; i < reply->n_arrays; i++) {
		mt_jsonw_array_begin(&reply->json);
		mt_jsonw_string(&reply->json, reply->arrays[i].name);
		mt_jsonw_string(&reply->json, type_names[reply->arrays[i].type]);
		mt_jsonw_uint64(&reply->json, reply->arrays[i].n_items);
		mt_jsonw_array_end(&reply->json);
	}
	mt_jsonw_array_end(&reply->json);
	mt_jsonw_object_end(&reply->json);
}

static size_t round_up(size_t n_bytes)
{
	return (n_bytes + 7) & ~(size_t)7;
}

/* The header is in bytes; it becomes the beginning of the whole. */
static bool arrays_join(struct mt_view_reply *reply)
{
	const size_t n_header = round_up(reply->n_bytes);
	size_t n_bytes = 8 + n_header;
	uint32_t n_header_u32 = (uint32_t)n_header;
	char *whole, *to;

	for (size_t i = 0; i < reply->n_arrays; i++)
		n_bytes += round_up(reply->arrays[i].n_bytes);
	whole = calloc(1, n_bytes);
	if (!whole)
		return false;
	memcpy(whole, "MTA1", 4);
	memcpy(whole + 4, &n_header_u32, 4);
	memset(whole + 8, ' ', n_header);
	memcpy(whole + 8, reply->bytes, reply->n_bytes);
	to = whole + 8 + n_header;
	for (size_t i = 0; i < reply->n_arrays; i++) {
		if (reply->arrays[i].n_bytes > 0)
			memcpy(to, reply->arrays[i].bytes, reply->arrays[i].n_bytes);
		to += round_up(reply->arrays[i].n_bytes);
	}
	free(reply->bytes);
	reply->bytes = whole;
	reply->n_bytes = n_bytes;
	reply->content_type = "application/octet-stream";
	return true;
}

void mt_view_reply_end(struct mt_view_reply *reply)
{
	bool has_arrays = reply->n_arrays > 0;

	if (reply->out) {
		if (has_arrays)
			arrays_list(reply);
		if (mt_jsonw_end_line(&reply->json) != 0)
			reply->has_failed = true;
		if (fclose(reply->out) != 0)
			reply->has_failed = true;
		reply->out = NULL;
	}
	if (has_arrays && !reply->has_failed && !arrays_join(reply))
		reply->has_failed = true;
	arrays_drop(reply);
	if (!reply->has_failed)
		return;
	free(reply->bytes);
	reply->status = MT_REPLY_FAILED;
	reply->content_type = "application/json";
	reply->bytes = strdup(no_memory);
	reply->n_bytes = reply->bytes ? strlen(no_memory) : 0;
}

void mt_view_reply_free(struct mt_view_reply *reply)
{
	arrays_drop(reply);
	stream_drop(reply);
}
