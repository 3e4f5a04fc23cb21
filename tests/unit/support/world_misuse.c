/* SPDX-License-Identifier: MIT */
/*
 * Wrong calls in a running pass. Each is one misuse, a second call for a layer also one
 * duplicate, and changes nothing else.
 */
#include "tests/unit/support/world.h"

static int32_t some_ids[64];
static float some_weights[64];

/* A selection of one row that would be right in a pass of one row. */
static struct moetrace_selection right_selection(uint32_t layer, uint32_t n_rows)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = n_rows;
	selection.k = 1;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = some_ids;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = some_weights;
	return selection;
}

enum mistake {
	WRONG_LAYER,
	WRONG_N_ROWS,
	TOO_LARGE_K,
	NO_ID_TYPE,
	FLOAT_ID_TYPE,
	INTEGER_WEIGHT_TYPE,
	UNKNOWN_TYPE,
	UNKNOWN_ORDER,
	NO_SELECTION,
	N_MISTAKES,
};

static void make_mistake(struct moetrace_selection *selection, const struct want_pass *want,
			 enum mistake mistake)
{
	switch (mistake) {
	case WRONG_LAYER:
		selection->layer_index = want->model->n_layers;
		break;
	case WRONG_N_ROWS:
		selection->n_rows = want->n_rows + want->padding_rows + 1;
		break;
	case TOO_LARGE_K:
		selection->k = want->model->layers[0].top_k + 1;
		break;
	case NO_ID_TYPE:
		selection->id_type = MOETRACE_TYPE_NONE;
		break;
	case FLOAT_ID_TYPE:
		selection->id_type = MOETRACE_TYPE_F32;
		break;
	case INTEGER_WEIGHT_TYPE:
		selection->weight_type = MOETRACE_TYPE_I32;
		break;
	case UNKNOWN_TYPE:
		selection->id_type = MOETRACE_TYPE_BF16 + 1;
		break;
	default:
		selection->order = 99;
		break;
	}
}

void world_misuse(struct world_thread *thread, struct moetrace_pass *pass,
		  const struct want_pass *want)
{
	const uint32_t recording = world_recording(want->epoch);
	struct moetrace_selection selection;
	enum mistake mistake;

	if (want->model->n_layers == 0 || want->n_rows == 0 || want->n_rows > 64 || !pass)
		return;
	selection = right_selection(0, want->n_rows);
	if (want->layers[0].is_written && rng_chance(&thread->rng, 30)) {
		moetrace_select_experts(pass, &selection);
		thread->world->duplicates[recording]++;
		return;
	}
	mistake = rng_below(&thread->rng, N_MISTAKES);
	make_mistake(&selection, want, mistake);
	moetrace_select_experts(pass, mistake == NO_SELECTION ? NULL : &selection);
	thread->world->misuse[recording]++;
}
