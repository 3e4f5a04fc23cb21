/* SPDX-License-Identifier: MIT */
/*
 * The heatmap of layers and experts. A row of characters is a layer; with colours, and where there
 * are more layers than rows, it is two, as upper and lower halves. Without colours a character of
 * the ramp is a level. Experts that do not fit are pooled, and the heading says how. The darkest
 * level is no token at all.
 */
#include "cli/top.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 6, RIGHT = 7, MOST_NAMED = 6 };

static const char *const order_names[MT_TOP_N_ORDERS] = {"id", "load", "rank"};
static const char *const pool_names[MT_TOP_N_POOLS] = {"mean", "max", "p95"};

struct map {
	const struct mt_top *top;
	const struct mt_top_frame *frame;
	struct mt_top_view *view;
	struct mt_canvas *canvas;
	uint32_t n_experts; /* of the layer that has most */
	uint32_t group;	    /* experts a column */
	uint32_t width;	    /* characters a column */
	size_t n_columns;
	size_t per_row; /* layers a row of characters */
	double *values; /* [layers][n_columns]; negative: no expert */
	uint32_t *order; /* [n_experts], of one layer */
	double full;
};

/* ---- values ---- */

struct keyed {
	double key;
	uint32_t expert;
};

static int compare_keyed(const void *a, const void *b)
{
	const struct keyed *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->expert > y->expert) - (x->expert < y->expert);
}

/* The experts of a layer in the order of the columns. */
static void layer_order(const struct map *map, size_t i, struct keyed *keyed)
{
	const struct mt_top_layer *layer = &map->top->layers[i];

	for (uint32_t j = 0; j < layer->n_experts; j++) {
		const size_t cell = layer->first_cell + j;

		keyed[j].expert = j;
		keyed[j].key = map->view->order == MT_TOP_BY_LOAD ?
				       -(double)map->frame->tokens[cell] :
			       map->view->order == MT_TOP_BY_RANK && map->top->ranks ?
				       map->top->ranks[cell] :
				       0;
	}
	if (map->view->order != MT_TOP_BY_ID)
		qsort(keyed, layer->n_experts, sizeof(*keyed), compare_keyed);
	for (uint32_t j = 0; j < layer->n_experts; j++)
		map->order[j] = keyed[j].expert;
}

static int compare_tokens(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double pooled(enum mt_top_pool pool, uint64_t *tokens, uint32_t n)
{
	uint64_t sum = 0;

	qsort(tokens, n, sizeof(*tokens), compare_tokens);
	if (pool == MT_TOP_MAX)
		return (double)tokens[n - 1];
	if (pool == MT_TOP_P95)
		return (double)tokens[(size_t)ceil(0.95 * n) - 1];
	for (uint32_t i = 0; i < n; i++)
		sum += tokens[i];
	return (double)sum / n;
}

static void layer_fill(struct map *map, size_t i, struct keyed *keyed, uint64_t *group)
{
	const struct mt_top_layer *layer = &map->top->layers[i];
	double *values = map->values + i * map->n_columns;

	layer_order(map, i, keyed);
	for (size_t column = 0; column < map->n_columns; column++) {
		const size_t first = column * map->group;
		uint32_t n = 0;

		for (; n < map->group && first + n < layer->n_experts; n++)
			group[n] = map->frame->tokens[layer->first_cell + map->order[first + n]];
		values[column] = n ? pooled(map->view->pool, group, n) : -1;
		if (values[column] > map->full)
			map->full = values[column];
	}
}

static int values_make(struct map *map)
{
	struct keyed *keyed = calloc(map->n_experts, sizeof(*keyed));
	uint64_t *group = calloc(map->group, sizeof(*group));

	map->values = calloc(map->frame->n_layers * map->n_columns, sizeof(*map->values));
	map->order = calloc(map->n_experts, sizeof(*map->order));
	for (size_t i = 0; keyed && group && map->values && map->order && i < map->frame->n_layers;
	     i++)
		layer_fill(map, i, keyed, group);
	free(keyed);
	free(group);
	return keyed && group && map->values && map->order ? 0 : -1;
}

/* In [0, 1]. */
static double level_of(const struct map *map, size_t layer, size_t column)
{
	const double value =
		layer < map->frame->n_layers ? map->values[layer * map->n_columns + column] : 0;

	if (value <= 0 || map->full <= 0)
		return 0;
	return map->view->is_log ? log1p(value) / log1p(map->full) : value / map->full;
}

static uint8_t color_of(const struct map *map, size_t layer, size_t column)
{
	const double level = level_of(map, layer, column);

	return (uint8_t)(MT_COLOR_LEVEL +
			 (level <= 0 ? 0 : 1 + (int)(level * (MT_N_LEVELS - 1.001))));
}

/* ---- drawing ---- */

/* The half that the cursor is in, or the whole. */
static void cursor_draw(const struct map *map, struct mt_glyph *glyph, size_t column)
{
	const size_t layer = map->view->cursor_layer;

	glyph->attributes = MT_REVERSE;
	if (!map->canvas->is_colored)
		return;
	glyph->character = map->per_row == 1 ? L'+' : layer % 2 ? L'v' : L'^';
	glyph->ground = color_of(map, layer, column);
	glyph->color = glyph->ground > MT_COLOR_LEVEL + 8 ? MT_COLOR_LEVEL : MT_COLOR_WHITE;
	glyph->attributes = MT_BOLD;
}

static void cell_draw(const struct map *map, int row, size_t layer, size_t column)
{
	const int at = LEFT + (int)(column * map->width);
	const bool has_cursor = map->view->has_keys && column == map->view->cursor_column &&
				map->view->cursor_layer / map->per_row == layer / map->per_row;
	struct mt_glyph glyph = {.character = mt_canvas_ramp(level_of(map, layer, column))};

	if (map->canvas->is_colored) {
		glyph.character = map->per_row == 2 ? L'\u2580' : L' ';
		glyph.color = map->per_row == 2 ? color_of(map, layer, column) : MT_COLOR_NONE;
		glyph.ground = layer + map->per_row <= map->frame->n_layers ?
				       color_of(map, layer + map->per_row - 1, column) :
				       MT_COLOR_NONE;
	}
	if (has_cursor)
		cursor_draw(map, &glyph, column);
	for (uint32_t i = 0; i < map->width; i++)
		mt_canvas_put(map->canvas, row, at + (int)i, glyph);
}

static void row_draw(const struct map *map, int row, size_t layer)
{
	const int right = LEFT + (int)(map->n_columns * map->width);
	double worst = -1;
	char text[16];

	snprintf(text, sizeof(text), "L%" PRId64, map->top->layers[layer].layer);
	mt_canvas_text(map->canvas, row, 0, LEFT - 1, MT_COLOR_DIM, 0, text);
	for (size_t column = 0; column < map->n_columns; column++)
		cell_draw(map, row, layer, column);
	for (size_t i = layer; i < layer + map->per_row && i < map->frame->n_layers; i++)
		if (map->frame->layers[i].max_over_mean > worst)
			worst = map->frame->layers[i].max_over_mean;
	if (worst >= 0)
		mt_canvas_format(map->canvas, row, right + 1, worst > 3 ? MT_COLOR_WARN : 0,
				 worst > 3 ? MT_BOLD : 0, "%.1fx", worst);
}

static int heading_draw(const struct map *map, int row, size_t first, size_t last)
{
	const struct mt_top_view *view = map->view;
	const char *order = view->order == MT_TOP_BY_RANK && !map->top->ranks ?
				    "id: no expert map" :
				    order_names[view->order];
	char full[16], pool[64] = "";
	int column;

	if (map->group > 1)
		snprintf(pool, sizeof(pool), "%s of %" PRIu32 "  ", pool_names[view->pool],
			 map->group);
	column = mt_canvas_format(map->canvas, row, 0, 0, 0,
				  "tokens  layers %zu-%zu of %zu  %sby %s  %s  0 ", first + 1, last,
				  map->frame->n_layers, pool, order,
				  view->is_log ? "log" : "linear");
	for (int i = 0; i < 10; i++, column++) {
		/* The middle of the levels that the character stands for. */
		struct mt_glyph glyph = {.character = mt_canvas_ramp((i - 0.5) / 9)};

		if (map->canvas->is_colored) {
			glyph.character = L' ';
			glyph.ground = (uint8_t)(MT_COLOR_LEVEL + i * (MT_N_LEVELS - 1) / 9);
		}
		mt_canvas_put(map->canvas, row, column, glyph);
	}
	mt_canvas_format(map->canvas, row, column + 1, 0, 0, "%s",
			 mt_top_number(map->full, full));
	return 1;
}

/* Which experts a column has: by id they are one after the other, else the first ones by name. */
static int experts_write(const struct map *map, const uint32_t *experts, uint32_t n_experts,
			 char *text, size_t n_bytes)
{
	const uint32_t n_named = n_experts < MOST_NAMED ? n_experts : MOST_NAMED;
	int n = snprintf(text, n_bytes, "%" PRIu32, experts[0]);

	if (n_experts > 1 && experts[n_experts - 1] == experts[0] + n_experts - 1 &&
	    map->view->order == MT_TOP_BY_ID)
		return n + snprintf(text + n, n_bytes - (size_t)n, "..%" PRIu32,
				    experts[n_experts - 1]);
	for (uint32_t i = 1; i < n_named; i++)
		n += snprintf(text + n, n_bytes - (size_t)n, ", %" PRIu32, experts[i]);
	if (n_experts > n_named)
		n += snprintf(text + n, n_bytes - (size_t)n, " and %" PRIu32 " more",
			      n_experts - n_named);
	return n;
}

/* The rank of experts, or how many they are on; what is not known is not said. */
static void ranks_write(const struct map *map, const struct mt_top_layer *layer,
			const uint32_t *experts, uint32_t n_experts, char *text, size_t n_bytes)
{
	const int16_t *ranks = map->top->ranks ? map->top->ranks + layer->first_cell : NULL;
	uint32_t n_ranks = 0;

	for (uint32_t i = 0; ranks && i < n_experts; i++) {
		uint32_t j = 0;

		while (j < i && ranks[experts[j]] != ranks[experts[i]])
			j++;
		n_ranks += ranks[experts[i]] >= 0 && j == i;
	}
	if (n_ranks > 1)
		snprintf(text, n_bytes, ", %" PRIu32 " ranks", n_ranks);
	else if (n_ranks == 1 && ranks[experts[0]] >= 0)
		snprintf(text, n_bytes, ", rank %d", ranks[experts[0]]);
}

/* What is under the cursor, in words. */
static void readout_draw(const struct map *map, int row)
{
	const size_t i = map->view->cursor_layer, column = map->view->cursor_column;
	const struct mt_top_layer *layer = &map->top->layers[i];
	const double value = map->values[i * map->n_columns + column];
	const uint64_t tokens = map->frame->layers[i].tokens;
	struct keyed *keyed = calloc(map->n_experts, sizeof(*keyed));
	uint32_t n_pooled;
	char text[256];
	int n;

	if (!keyed || value < 0) {
		free(keyed);
		return;
	}
	layer_order(map, i, keyed);
	free(keyed);
	n_pooled = layer->n_experts - (uint32_t)(column * map->group);
	n_pooled = n_pooled < map->group ? n_pooled : map->group;
	n = snprintf(text, sizeof(text), "layer %" PRId64 ", expert%s ", layer->layer,
		     n_pooled > 1 ? "s" : "");
	n += experts_write(map, map->order + column * map->group, n_pooled, text + n,
			   sizeof(text) - (size_t)n);
	n += snprintf(text + n, sizeof(text) - (size_t)n, ": %s%s%.10g tokens",
		      n_pooled > 1 ? pool_names[map->view->pool] : "", n_pooled > 1 ? " " : "",
		      value);
	if (tokens > 0)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", %.2f times the layer's mean",
			      value * layer->n_experts / (double)tokens);
	ranks_write(map, layer, map->order + column * map->group, n_pooled, text + n,
		    sizeof(text) - (size_t)n);
	mt_canvas_text(map->canvas, row, 0, map->canvas->n_columns, MT_COLOR_NONE, MT_BOLD, text);
}

/* How experts are put into columns, and columns into characters. */
static bool map_fit(struct map *map, size_t n_rows)
{
	const int room = map->canvas->n_columns - LEFT - RIGHT;

	for (size_t i = 0; i < map->frame->n_layers; i++)
		if (map->top->layers[i].n_experts > map->n_experts)
			map->n_experts = map->top->layers[i].n_experts;
	if (room < 1 || map->n_experts == 0)
		return false;
	map->group = (map->n_experts + (uint32_t)room - 1) / (uint32_t)room;
	map->n_columns = (map->n_experts + map->group - 1) / map->group;
	map->width = (uint32_t)room / (uint32_t)map->n_columns;
	map->width = map->width > 4 ? 4 : map->width;
	map->per_row = map->canvas->is_colored && map->canvas->is_utf8 &&
				       map->frame->n_layers > n_rows ?
			       2 :
			       1;
	return true;
}

/* The first layer that is drawn, so that the cursor is seen; @shown is a multiple of per_row. */
static size_t scroll_to(struct map *map, size_t shown)
{
	struct mt_top_view *view = map->view;

	if (view->cursor_layer >= map->frame->n_layers)
		view->cursor_layer = map->frame->n_layers - 1;
	if (view->cursor_column >= map->n_columns)
		view->cursor_column = map->n_columns - 1;
	view->n_columns = map->n_columns;
	if (view->cursor_layer < view->scroll)
		view->scroll = view->cursor_layer / map->per_row * map->per_row;
	if (view->cursor_layer >= view->scroll + shown)
		view->scroll = (view->cursor_layer / map->per_row + 1) * map->per_row - shown;
	if (view->scroll + shown > map->frame->n_layers + map->per_row - 1)
		view->scroll = map->frame->n_layers > shown ?
				       (map->frame->n_layers - shown + map->per_row - 1) /
					       map->per_row * map->per_row :
				       0;
	return view->scroll;
}

int mt_top_map_draw(const struct mt_top *top, const struct mt_top_frame *frame,
		    struct mt_top_view *view, struct mt_canvas *canvas, int row, int n_rows)
{
	struct map map = {.top = top, .frame = frame, .view = view, .canvas = canvas};
	const int end = row + n_rows - 1; /* the last row is the read-out */
	const int begin = row;
	size_t first, last, shown;

	if (n_rows < 3 || frame->n_layers == 0 || !map_fit(&map, (size_t)n_rows - 2) || values_make(&map) < 0) {
		mt_canvas_text(canvas, row, 0, canvas->n_columns, 0, 0,
			       frame->n_layers ? "no room" : "no layers yet");
		free(map.values);
		free(map.order);
		return 1;
	}
	shown = (size_t)(n_rows - 2) * map.per_row;
	first = scroll_to(&map, shown);
	last = first + shown < frame->n_layers ? first + shown : frame->n_layers;
	row += heading_draw(&map, row, first, last);
	for (size_t i = first; i < last && row < end; i += map.per_row)
		row_draw(&map, row++, i);
	if (view->has_keys)
		readout_draw(&map, row++);
	free(map.values);
	free(map.order);
	return row - begin;
}
