/* SPDX-License-Identifier: MIT */
/*
 * Text is taken apart into characters; a piece is one of them, or its escape, and is never cut.
 */
#include "cli/clean.h"

#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "common/utf8.h"

uint32_t mt_clean_decode(const unsigned char *bytes, size_t length)
{
	static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t character = bytes[0] & masks[length];
	size_t i;

	for (i = 1; i < length; i++)
		character = character << 6 | (bytes[i] & 0x3f);
	return character;
}

/* What drives a terminal, turns the direction of writing, breaks a line or is not seen. */
static bool is_hidden(uint32_t character)
{
	static const uint32_t ranges[][2] = {
		{0, 0x1f},	   {0x7f, 0x9f},     {0xad, 0xad},	 {0x61c, 0x61c},
		{0x180e, 0x180e},  {0x200b, 0x200f}, {0x2028, 0x202e},	 {0x2060, 0x206f},
		{0xfeff, 0xfeff},  {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
	};
	size_t i;

	for (i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (character >= ranges[i][0] && character <= ranges[i][1])
			return true;
	return false;
}

static bool is_shown_in_line(uint32_t character)
{
	return !is_hidden(character);
}

static bool is_shown_in_cells(uint32_t character)
{
	return !is_hidden(character) && wcwidth((wchar_t)character) > 0;
}

static bool is_shown_in_ascii(uint32_t character)
{
	return character >= 0x20 && character < 0x7f;
}

static size_t piece_clean(const char *text, size_t n_bytes, bool (*is_shown)(uint32_t character),
			  char *to)
{
	const unsigned char *bytes = (const unsigned char *)text;
	uint32_t character;
	size_t length = 1;

	if (bytes[0] == '\n' || bytes[0] == '\t' || bytes[0] == '\r') {
		sprintf(to, "\\%c", bytes[0] == '\n' ? 'n' : bytes[0] == '\t' ? 't' : 'r');
		return 1;
	}
	if (!mt_utf8_sequence(bytes, n_bytes, &length)) {
		sprintf(to, "\\x%02x", bytes[0]);
		return 1;
	}
	character = mt_clean_decode(bytes, length);
	if (is_shown_in_ascii(character) || is_shown(character)) {
		memcpy(to, text, length);
		to[length] = '\0';
	} else {
		snprintf(to, MT_CLEAN_PIECE_BYTES, character < 0x80 ? "\\x%02x" : "\\u{%x}",
			 character);
	}
	return length;
}

static const char *pieces_join(const char *text, bool (*is_shown)(uint32_t character), char *buffer,
			       size_t buffer_bytes)
{
	size_t n_bytes = strlen(text), used = 0, length;
	char piece[MT_CLEAN_PIECE_BYTES];

	while (n_bytes > 0) {
		length = piece_clean(text, n_bytes, is_shown, piece);
		if (used + strlen(piece) >= buffer_bytes)
			break;
		strcpy(buffer + used, piece);
		used += strlen(piece);
		text += length;
		n_bytes -= length;
	}
	buffer[used] = '\0';
	return buffer;
}

size_t mt_clean_piece(const char *text, size_t n_bytes, bool is_utf8, char *to)
{
	return piece_clean(text, n_bytes, is_utf8 ? is_shown_in_cells : is_shown_in_ascii, to);
}

const char *mt_clean_text(const char *text, bool is_utf8, char *buffer, size_t buffer_bytes)
{
	return pieces_join(text, is_utf8 ? is_shown_in_cells : is_shown_in_ascii, buffer,
			   buffer_bytes);
}

const char *mt_clean_line(const char *text, char *buffer, size_t buffer_bytes)
{
	return pieces_join(text, is_shown_in_line, buffer, buffer_bytes);
}
