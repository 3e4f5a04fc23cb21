/* SPDX-License-Identifier: MIT */
/*
 * The kernels that the recorder launches itself: one that writes a value where the stream cannot,
 * one that reads the GPU's timer, and one that stores layers for runtimes whose own kernels do
 * not. kernels.ptx beside this file is made from it (`make ptx`) and committed, so that the
 * recorder is built without nvcc; the driver compiles it for the GPU that is there.
 */
#include <moetrace/cuda_device.cuh>

#include "libtrace/cuda/store_args.h"

extern "C" __global__ void mt_write(uint64_t address, uint64_t value)
{
	__threadfence_system();
	*reinterpret_cast<volatile uint64_t *>(address) = value;
}

static __device__ uint64_t timer(void)
{
	uint64_t timer_ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_ns));
	return timer_ns;
}

/* @to[1]: the smallest step of the timer that was seen; 0: none. @to[0]: the time, last. */
extern "C" __global__ void mt_timer(uint64_t to)
{
	volatile uint64_t *out = reinterpret_cast<volatile uint64_t *>(to);
	uint64_t last = timer();
	uint64_t step = ~0ull;
	int n_steps = 0;

	for (int i = 0; i < 100000 && n_steps < 16; i++) {
		const uint64_t now = timer();

		if (now == last)
			continue;
		step = now - last < step ? now - last : step;
		last = now;
		n_steps++;
	}
	out[1] = n_steps ? step : 0;
	out[0] = timer();
}

static __device__ int64_t read_id(uint64_t row, uint32_t type, uint32_t i)
{
	switch (type) {
	case MOETRACE_TYPE_I64:
		return reinterpret_cast<const int64_t *>(row)[i];
	case MOETRACE_TYPE_I16:
		return reinterpret_cast<const int16_t *>(row)[i];
	case MOETRACE_TYPE_U8:
		return reinterpret_cast<const uint8_t *>(row)[i];
	default:
		return reinterpret_cast<const int32_t *>(row)[i];
	}
}

/* Ids of more than 32 bits are none that a layer has: negative or too large they stay. */
static __device__ uint32_t clamp_id(int64_t id)
{
	const int64_t low = id < 0 ? -1 : id;

	return static_cast<uint32_t>(low > INT32_MAX ? INT32_MAX : low);
}

static __device__ float read_weight(uint64_t row, uint32_t type, uint32_t i)
{
	const uint16_t bits =
		type == MOETRACE_TYPE_F32 ? 0 : reinterpret_cast<const uint16_t *>(row)[i];
	float weight;

	if (type == MOETRACE_TYPE_F32)
		return reinterpret_cast<const float *>(row)[i];
	if (type == MOETRACE_TYPE_BF16)
		return __uint_as_float(static_cast<uint32_t>(bits) << 16);
	asm("cvt.f32.f16 %0, %1;" : "=f"(weight) : "h"(bits));
	return weight;
}

/* A row of a layer, of any types and width, by a warp. */
static __device__ void store_row(const struct mt_cuda_store_rows &rows,
				 const struct mt_cuda_store_layer &layer,
				 const struct moetrace_cuda_row &to)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint64_t at = moetrace_cuda_row_at(to);
	const uint64_t ids = layer.ids + to.row * rows.ids_bytes;
	const uint64_t weights = layer.weights + to.row * rows.weights_bytes;

	for (uint32_t i = lane; i < moetrace_cuda_k(to); i += 32) {
		const float weight =
			layer.weights ? read_weight(weights, rows.weight_type, i) : 0.0f;

		moetrace_cuda_put(at, i, clamp_id(read_id(ids, rows.id_type, i)),
				  __float_as_uint(weight));
	}
	if (lane == 0)
		moetrace_cuda_put(at, moetrace_cuda_k(to), moetrace_cuda_mark(to, 0), 0);
}

static __device__ __forceinline__ uint32_t find_row(void)
{
	return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

/* Block (x, y): rows of layer y, a warp a row. */
extern "C" __global__ void mt_store(const __grid_constant__ struct mt_cuda_store_args args)
{
	const struct mt_cuda_store_layer &layer = args.layers[blockIdx.y];
	const struct moetrace_cuda_row to = moetrace_cuda_open(layer.target, find_row());

	if (to.row >= args.rows.n_rows || !moetrace_cuda_is_on(to))
		return;
	store_row(args.rows, layer, to);
	if (to.row == 0 && threadIdx.x == 0)
		moetrace_cuda_store_head(to, args.rows.n_rows);
}

/* 32 bits of every lane that has some, else 0; no lane waits for them here. */
static __device__ __forceinline__ uint32_t load_if(bool is_there, uint64_t address)
{
	uint32_t bits;

	asm volatile("{\n\t"
		     ".reg .pred is_there;\n\t"
		     "setp.ne.u32 is_there, %2, 0;\n\t"
		     "mov.u32 %0, 0;\n\t"
		     "@is_there ld.global.u32 %0, [%1];\n\t"
		     "}"
		     : "=&r"(bits)
		     : "l"(address), "r"(static_cast<uint32_t>(is_there)));
	return bits;
}

/*
 * Block x: rows of the layer, a warp a row; the last block: the layer's head. In a graph this is on
 * the way of every layer, so that the entries are on their way before the lane's word has come.
 */
extern "C" __global__ void mt_store_one(const __grid_constant__ struct mt_cuda_store_one one)
{
	const struct mt_cuda_store_rows &rows = one.rows;
	const struct mt_cuda_store_layer &layer = one.layer;
	const uint32_t lane = threadIdx.x % 32;

	if (blockIdx.x == gridDim.x - 1) {
		if (threadIdx.x == 0)
			moetrace_cuda_store_layer(layer.target, rows.n_rows);
		return;
	}
	struct moetrace_cuda_row to = moetrace_cuda_open(layer.target, find_row());
	if (rows.id_type != MOETRACE_TYPE_I32 || moetrace_cuda_k(to) > 31 ||
	    (layer.weights && rows.weight_type != MOETRACE_TYPE_F32)) {
		if (to.row < rows.n_rows && moetrace_cuda_is_on(to))
			store_row(rows, layer, to);
		return;
	}
	const bool is_entry = to.is_entry && to.row < rows.n_rows;
	const uint32_t id = load_if(is_entry, layer.ids + to.row * rows.ids_bytes + lane * 4);
	const uint32_t weight = load_if(is_entry && layer.weights,
					layer.weights + to.row * rows.weights_bytes + lane * 4);
	moetrace_cuda_arrive(to);
	moetrace_cuda_store_entries(to, static_cast<int32_t>(id), __uint_as_float(weight), 0);
}
