/* SPDX-License-Identifier: MIT */
/* Launching the store kernels: for all layers of a pass in one launch, or for one. */
#include <moetrace/cuda.h>

#include <stddef.h>
#include <string.h>

#include "libtrace/abi.h"
#include "libtrace/cuda/capture.h"
#include "libtrace/cuda/store_args.h"

#define ROWS_A_BLOCK (MT_CUDA_STORE_THREADS / 32)

_Static_assert(offsetof(struct mt_cuda_store_one, layer) ==
		       offsetof(struct mt_cuda_store_args, layers),
	       "one is the begin of the other");

static int check_layers(const struct moetrace_cuda_lane *lane,
			const struct moetrace_cuda_layers *layers)
{
	int has_weights = layers->weight_type != MOETRACE_TYPE_NONE;

	if (!layers->n_layers || layers->first_layer >= lane->n_layers ||
	    layers->n_layers > lane->n_layers - layers->first_layer || !layers->ids ||
	    layers->reserved || (has_weights && !layers->weights))
		return -1;
	switch (layers->id_type) {
	case MOETRACE_TYPE_I32:
	case MOETRACE_TYPE_I64:
	case MOETRACE_TYPE_I16:
	case MOETRACE_TYPE_U8:
		break;
	default:
		return -1;
	}
	return has_weights && layers->weight_type != MOETRACE_TYPE_F32 &&
			       layers->weight_type != MOETRACE_TYPE_F16 &&
			       layers->weight_type != MOETRACE_TYPE_BF16 ?
		       -1 :
		       0;
}

/* Whether rows of so many bytes can lie so far apart; the kernel would read wherever it is told to. */
static int is_distance(uint64_t distance_bytes, uint64_t k, uint32_t type)
{
	const uint64_t entry_bytes = mt_type_bytes(type);

	return distance_bytes >= k * entry_bytes && distance_bytes <= INT32_MAX &&
	       distance_bytes % entry_bytes == 0;
}

/* Where numbers of the type may lie; elsewhere reading one ends the program's context. */
static int is_address(uint64_t address, uint32_t type)
{
	return address && address % mt_type_bytes(type) == 0;
}

/*
 * One layer of a launch; distances that are not given follow from its k, and are those of all its
 * layers.
 */
static int fill_layer(struct moetrace_cuda_lane *lane, const struct moetrace_cuda_layers *layers,
		      uint32_t i, struct mt_cuda_store_args *args, struct mt_cuda_store_layer *to)
{
	int status = moetrace_cuda_target_get(lane, layers->first_layer + i, layers->n_rows,
					  &to->target);
	uint64_t k = to->target.packed >> 16 & 0xff;
	uint64_t ids_bytes = layers->ids_row_bytes ? layers->ids_row_bytes :
						     k * mt_type_bytes(layers->id_type);
	uint64_t weights_bytes = layers->weights_row_bytes ?
					 layers->weights_row_bytes :
					 k * mt_type_bytes(layers->weight_type);

	if (status)
		return status;
	to->ids = layers->ids[i];
	to->weights = layers->weight_type ? layers->weights[i] : 0;
	if (!is_address(to->ids, layers->id_type) || !is_distance(ids_bytes, k, layers->id_type) ||
	    (layers->weight_type && (!is_address(to->weights, layers->weight_type) ||
				     !is_distance(weights_bytes, k, layers->weight_type))) ||
	    (args->rows.ids_bytes && (args->rows.ids_bytes != ids_bytes ||
				      args->rows.weights_bytes != weights_bytes)))
		return MOETRACE_E_INVALID;
	args->rows.ids_bytes = ids_bytes;
	args->rows.weights_bytes = weights_bytes;
	return MOETRACE_OK;
}

static int launch(struct moetrace_cuda_lane *lane, void *stream,
		  const struct moetrace_cuda_layers *layers, uint32_t first, uint32_t n)
{
	const struct moetrace_cuda *cuda = lane->cuda;
	/* The kernel of one layer has a block more, for what it says of the layer. */
	uint32_t n_blocks = (layers->n_rows + ROWS_A_BLOCK - 1) / ROWS_A_BLOCK + (n == 1);
	struct mt_cuda_store_args args;
	void *parameters[] = { &args };
	int status = MOETRACE_OK;

	memset(&args, 0, sizeof(args));
	args.rows.n_rows = layers->n_rows;
	args.rows.id_type = layers->id_type;
	args.rows.weight_type = layers->weight_type;
	for (uint32_t i = 0; !status && i < n; i++)
		status = fill_layer(lane, layers, first + i, &args, &args.layers[i]);
	if (status || !layers->n_rows)
		return status;
	if (!cuda->cu->launch(n == 1 ? cuda->store_one_kernel : cuda->store_kernel, n_blocks, n, 1,
			      MT_CUDA_STORE_THREADS, 1, 1, 0, stream, parameters, NULL))
		return MOETRACE_OK;
	mt_misuse(cuda->session, MT_MISUSE_CUDA_LAUNCH);
	return MOETRACE_E_IO;
}

static int store(struct moetrace_cuda_lane *lane, void *stream,
		 const struct moetrace_cuda_layers *layers)
{
	int status = MOETRACE_OK;

	if (!lane->cuda->store_kernel) {
		mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_LAUNCH);
		return MOETRACE_E_UNSUPPORTED;
	}
	for (uint32_t i = 0; !status && i < layers->n_layers; i += MT_CUDA_STORE_LAYERS)
		status = launch(lane, stream, layers, i,
				layers->n_layers - i < MT_CUDA_STORE_LAYERS ?
					layers->n_layers - i :
					MT_CUDA_STORE_LAYERS);
	return status;
}

int moetrace_cuda_store(struct moetrace_cuda_lane *lane, void *stream,
			const struct moetrace_cuda_layers *layers)
{
	struct moetrace_cuda_layers room;
	int status = MOETRACE_E_INVALID;

	if (!lane)
		return MOETRACE_E_INVALID;
	if (atomic_load_explicit(&lane->cuda->session->forked, memory_order_relaxed))
		return MOETRACE_E_STATE;
	if (layers && mt_abi_knows(layers->size, MT_FIRST_CUDA_LAYERS)) {
		layers = MT_ABI_WIDEN(layers, &room);
		if (!check_layers(lane, layers))
			status = store(lane, stream, layers);
	}
	if (status == MOETRACE_E_INVALID)
		mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_STORE);
	return status;
}
