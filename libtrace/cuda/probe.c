/* SPDX-License-Identifier: MIT */
/*
 * What the device can do is found out by doing it once: drivers, virtual GPUs and containers differ
 * in what they refuse. Everything here waits for the device; nothing of it is on the hot path.
 */
#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"
#include "libtrace/cuda/kernels.h"

#define PROBE_VALUE UINT64_C(0x5a17c0de)
#define N_TIMES 8

static void forget_kernels(struct moetrace_cuda *cuda)
{
	cuda->write_kernel = cuda->timer_kernel = NULL;
	cuda->store_kernel = cuda->store_one_kernel = NULL;
}

static void load_kernels(struct moetrace_cuda *cuda)
{
	const struct mt_cu *cu = cuda->cu;

	if (cu->module_load(&cuda->module, mt_kernels_files[0].text)) {
		cuda->module = NULL;
		return;
	}
	if (cu->module_function(&cuda->write_kernel, cuda->module, "mt_write") ||
	    cu->module_function(&cuda->timer_kernel, cuda->module, "mt_timer") ||
	    cu->module_function(&cuda->store_kernel, cuda->module, "mt_store") ||
	    cu->module_function(&cuda->store_one_kernel, cuda->module, "mt_store_one"))
		forget_kernels(cuda);
}

/* Did the value reach the word, which is cleared again? The ring is not in use yet. */
static int has_arrived(struct moetrace_cuda *cuda, void *stream)
{
	const struct mt_cu *cu = cuda->cu;
	volatile uint64_t *seen = (uint64_t *)(void *)cuda->ring.data;
	int is_there;

	*seen = 0;
	is_there = !cu->copy_to_host(cuda->ring.data, cuda->words, sizeof(*seen), stream) &&
		   !cu->stream_wait(stream) && *seen == PROBE_VALUE;
	return !cu->memset_async(cuda->words, 0, MT_CUDA_WORD_BYTES, stream) &&
	       !cu->stream_wait(stream) && is_there;
}

static int can_write(struct moetrace_cuda *cuda, void *stream)
{
	return !cuda->cu->write_value(stream, cuda->words, PROBE_VALUE, 0) &&
	       has_arrived(cuda, stream);
}

/* Waiting for a value that is there. */
static int can_wait(struct moetrace_cuda *cuda, void *stream)
{
	return !cuda->cu->write_value(stream, cuda->words, PROBE_VALUE, 0) &&
	       !cuda->cu->wait_value(stream, cuda->words, PROBE_VALUE, MT_CU_WAIT_GEQ) &&
	       has_arrived(cuda, stream);
}

static int can_launch(struct moetrace_cuda *cuda, void *stream)
{
	uint64_t address = cuda->words;
	uint64_t value = PROBE_VALUE;
	void *parameters[] = { &address, &value };

	return cuda->write_kernel &&
	       !cuda->cu->launch(cuda->write_kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters,
				 NULL) &&
	       has_arrived(cuda, stream);
}

/*
 * The offset between the clocks: of a few readings the one that took least, which lies between
 * the host's time before and after. Passes correct it later.
 */
static void read_timer(struct moetrace_cuda *cuda, void *stream)
{
	volatile uint64_t *out = (uint64_t *)(void *)cuda->ring.data;
	uint64_t address = (uint64_t)(uintptr_t)cuda->ring.data;
	void *parameters[] = { &address };
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < N_TIMES; i++) {
		uint64_t before_ns = mt_session_ns(cuda->session, mt_monotonic_ns());
		uint64_t after_ns;

		if (cuda->cu->launch(cuda->timer_kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters,
				     NULL) ||
		    cuda->cu->stream_wait(stream))
			return;
		after_ns = mt_session_ns(cuda->session, mt_monotonic_ns());
		if (after_ns - before_ns >= best_ns)
			continue;
		best_ns = after_ns - before_ns;
		/* The kernel reads it at its very end. */
		cuda->offset_ns = (uint32_t)(after_ns - out[0]);
		cuda->has_offset = 1;
		mt_cuda_timer_begin(cuda, out[0], before_ns, after_ns);
		cuda->resolution_ns = out[1];
	}
}

int mt_cuda_probe(struct moetrace_cuda *cuda, void *stream)
{
	load_kernels(cuda);
	if (!can_launch(cuda, stream))
		forget_kernels(cuda);
	cuda->has_write = can_write(cuda, stream);
	cuda->has_wait = cuda->has_write && can_wait(cuda, stream);
	if (cuda->timer_kernel)
		read_timer(cuda, stream);
	return cuda->has_write || cuda->write_kernel ? MOETRACE_OK : MOETRACE_E_UNSUPPORTED;
}
