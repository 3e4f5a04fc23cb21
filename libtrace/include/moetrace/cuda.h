/* SPDX-License-Identifier: MIT */
/*
 * Recording routers that run on an NVIDIA GPU. The rows never visit the host before they are
 * recorded: kernels store them into a ring in device memory, one copy a pass brings them to
 * pinned host memory, and a thread of the session hands them to the recorder, where they are
 * what moetrace_select_experts() would have made of them.
 *
 *   moetrace_cuda_attach(session, NULL, &cuda);          once: memory, thread, probes
 *   moetrace_cuda_lane_add(cuda, &lane_info, &lane);     once a stream that runs passes
 *   moetrace_cuda_target_get(lane, layer, n_rows, &target);  when a kernel is launched or captured
 *   router_kernel<<<..., stream>>>(..., target);
 *
 *   moetrace_cuda_pass_begin(lane, &info);               before the pass is launched
 *   ... launch graphs and kernels into the lane's stream, as many as it takes ...
 *   moetrace_cuda_pass_end(lane);                        right behind its last launch; nobody waits
 *   ... wait for the results ...
 *
 * There are four ways for a layer's rows to get into the ring, cheapest first:
 *   - the router kernel stores them itself, with the functions of <moetrace/cuda_device.cuh>;
 *   - moetrace_cuda_adopt(): the runtime fills a buffer with all layers' ids anyway; it is copied
 *     once a pass, within the device, before the runtime reuses it. Ids alone, no layer times;
 *   - moetrace_cuda_store() for all layers at once: one launch a pass that gathers them;
 *   - moetrace_cuda_store() for one layer: one launch a layer, the last resort.
 *
 * A lane is a word in device memory and a stream. The word says where in the ring the pass that
 * the stream is in stores its rows, or that nothing is recorded, and that is all that a kernel
 * looks at. It changes in stream order, so graphs that were captured while idle record
 * as soon as a recording runs, stop when it stops, and may be replayed for ever, also after the
 * session was closed. Concurrent streams need a lane each. What belongs to a pass is what runs
 * in the lane's stream, or is ordered by events, between begin and end: any number of graph
 * launches with eager work between them. Work outside of begin and end is not recorded; only where
 * the driver refuses waits for values (moetrace_cuda_status.has_stream_waits is 0) it must not
 * come between a pass's end and the next begin, since it would store over what is being copied.
 *
 * What the traced program can rely on. moetrace_cuda_pass_begin(), _pass_layers() and _pass_end()
 * do not allocate, lock, log or wait, and issue at most five asynchronous driver calls a pass
 * together (for a pass that is split into groups of layers, see moetrace_cuda_pass_layers(), as
 * many a group; one more where the device's other lanes had 2^27 passes since the lane's last
 * one). A pass that does not fit into the ring is dropped and counted. Errors of the driver are
 * counted, never passed on to the program's own calls. The driver is opened at run time;
 * without it, attach says so and every other call accepts the NULL that attach left behind.
 *
 * No CUDA type is named here: a stream is its CUstream or cudaStream_t as void * (NULL: the legacy
 * default stream), device memory is its address. Threads: lanes are independent of each other;
 * one lane is used by one thread at a time (anything else is refused and counted). Calls are made
 * from threads in which the device's context is current, as for a launch.
 *
 * What goes wrong is told in three places: the status that a call returns, moetrace_errmsg() for
 * the calls that set something up, and table diagnostic for those of the hot path ("counted
 * misuse" below), each kind with a sentence and how often. A program that destroys the context
 * (cudaDeviceReset()) while the session is open loses the passes in flight and those after it,
 * counted as lost on the device; the session goes on, and is closed as ever.
 */
#ifndef MOETRACE_CUDA_H
#define MOETRACE_CUDA_H

#include <moetrace/moetrace.h>

MOETRACE_BEGIN_DECLS

#define MOETRACE_CUDA_MAX_LANES 16   /* an attached device */
#define MOETRACE_CUDA_MAX_DEVICES 16 /* a session */
#define MOETRACE_CUDA_MAX_ROWS 2080768 /* rows a pass, padding included: 127 << 14 */

/* They stay valid when the session is closed; calls are then refused (MOETRACE_E_STATE). */
struct moetrace_cuda;      /* an attached device */
struct moetrace_cuda_lane;

struct moetrace_cuda_opts {
	size_t size;             /* set by MOETRACE_INIT() */
	const uint32_t *ordinal; /* the device whose primary context is used; NULL: the context that
	                            is current in the calling thread */
	uint64_t ring_bytes;     /* of device memory, and as much of pinned host memory: a power of two
	                            from 1 MiB to 1 GiB; 0: 64 MiB */
};

/* What was found; see moetrace_cuda_query(). */
struct moetrace_cuda_status {
	size_t size;                  /* set by MOETRACE_INIT() */
	char name[128];               /* the device's */
	uint32_t driver_version;      /* 1000 * major + 10 * minor */
	uint32_t n_lanes;
	uint32_t has_stream_writes;   /* 1: the stream itself writes a lane's word; 0: a kernel of one
	                                 thread does, since the driver refused the former */
	uint32_t has_stream_waits;    /* 1: a stream waits for a word; 0: for an event */
	uint32_t has_kernels;         /* 1: moetrace_cuda_store() works; 0: its code was refused */
	uint64_t timer_resolution_ns; /* of the GPU's timer, measured; 0: unknown */
	uint64_t ring_bytes;
	uint64_t ring_peak_bytes;     /* most that was in use */
	uint64_t begun_passes;        /* that got a place in the ring */
	uint64_t delivered_passes;    /* of these, handed to the recorder */
	uint64_t lost_passes;         /* of these, lost: see table gap, reason 'device' */
	uint64_t refused_passes;      /* that found the ring full; reason 'device_ring_full' */
};

/**
 * Attach the session to a GPU: probe the driver, make the ring, start the thread that takes
 * passes out of it. May be called at any time, also while a stream is captured; waits for the
 * device. What was found, or why nothing was, is recorded (meta 'source.cuda', table device, and
 * what failed in table diagnostic).
 * A process that uses several GPUs attaches to each, and gives each lanes of its own; the further
 * ones are 'source.cuda.1' and so on. The passes of all of them are in one recording.
 *
 * @opts      NULL: all defaults.
 * @ret_cuda  The device; set to NULL on failure. It is used until the session is closed, which waits
 *            up to stop_timeout_ms for passes in flight. A few hundred bytes of device memory
 *            stay allocated for ever, because graphs still read the lanes' words; a primary
 *            context that was named by its ordinal stays retained with them.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID      session or ret_cuda is NULL, or an option is out of its range
 *          MOETRACE_E_UNSUPPORTED  no driver (libcuda.so.1), one that is too old, no such device,
 *                                  no context is current, or MOETRACE_DISABLE is set
 *          MOETRACE_E_NOMEM        the ring could not be made
 *          MOETRACE_E_IO           the device failed
 *          MOETRACE_E_LIMIT        the session is attached to this device already (to its
 *                                  context, to be exact), or to MOETRACE_CUDA_MAX_DEVICES
 *          MOETRACE_E_STATE        this is a forked child
 *          Why in words: moetrace_errmsg().
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_cuda_attach(struct moetrace_session *session, const struct moetrace_cuda_opts *opts,
			 struct moetrace_cuda **ret_cuda);

/**
 * Read what was found and what happened.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  NULL, or ret_status->size is not set
 */
MOETRACE_API
int moetrace_cuda_query(struct moetrace_cuda *cuda, struct moetrace_cuda_status *ret_status);

struct moetrace_cuda_lane_info {
	size_t size;    /* set by MOETRACE_INIT() */
	void *stream;   /* the stream that the passes run in; NULL: the legacy default stream */
	uint32_t model; /* from moetrace_model_add(): the model of the lane's passes */
	uint32_t order; /* enum moetrace_selection_order: of the rows that kernels store */
	uint32_t without_weights; /* 1: kernels store ids alone */
	uint32_t id_space; /* enum moetrace_id_space of the ids that kernels store and buffers hold.
	                      Physical ones are stored, and converted to logical ids by the map that is
	                      in force when the pass begins (moetrace_expert_map_set()). */
	uint32_t with_margins; /* 1: the margins and flags of rows are stored, of layers whose kernels
	                          know them; see MOETRACE_CUDA_FLAG_MARGIN */
};

/**
 * Add a lane. A stream may have several, for models that take turns in it.
 *
 * @ret_lane  Set to NULL on failure.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID      NULL, or no such model, order or id space; the stream is of another
 *                                  device or none, or no context is current in the calling thread
 *          MOETRACE_E_LIMIT        the device has MOETRACE_CUDA_MAX_LANES
 *          MOETRACE_E_UNSUPPORTED  a layer of the model has more than 65534 ids
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_IO           the driver refused
 *          MOETRACE_E_STATE        this is a forked child, the session is closed, or the stream is
 *                                  being captured
 *          Why in words: moetrace_errmsg().
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_cuda_lane_add(struct moetrace_cuda *cuda, const struct moetrace_cuda_lane_info *info,
			   struct moetrace_cuda_lane **ret_lane);

/*
 * What a kernel needs to store the rows of one layer: a parameter passed by value, and constant
 * in a captured graph. All zero: the kernel stores nothing. Its members are for
 * <moetrace/cuda_device.cuh>.
 */
struct moetrace_cuda_target {
	uint64_t word;    /* address of the lane's word; 0: none */
	uint64_t base;    /* address of the layer's rows for a pass at the ring's begin */
	uint32_t n_rows;  /* rows that fit */
	uint32_t packed;  /* what the low 14 bits of the word must be; k << 16 */
	uint32_t indices; /* ids that the layer can emit; layer index << 16 */
	uint32_t reserved;
};

/**
 * The target of a layer for passes of @n_rows rows, padding included. A pass stores the layers
 * whose kernels were launched with targets for exactly its number of rows (n_rows plus
 * padding_rows of its moetrace_pass_info): other kernels store nothing, so a graph that was
 * captured for another size cannot write past its place. Kernels may handle fewer rows.
 *
 * @layer_index  Index into moetrace_model_info.layers.
 * @ret_target   Filled on success, else all zero, which is safe to launch with.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  NULL, or no such layer (counted misuse)
 *          MOETRACE_E_STATE    this is a forked child, or the session is closed
 *          MOETRACE_E_LIMIT    so many rows of a single layer do not fit into a quarter of the
 *                              ring, or more than MOETRACE_CUDA_MAX_ROWS
 * Makes no driver call: may be called while the stream is being captured.
 */
MOETRACE_API
int moetrace_cuda_target_get(struct moetrace_cuda_lane *lane, uint32_t layer_index, uint32_t n_rows,
			     struct moetrace_cuda_target *ret_target);

/**
 * Begin a pass in the lane's stream. All of @info is copied. Idle sessions: returns at once.
 *
 * Parts of a pass (two-batch overlap) run on lanes of their own, between the begin and the end of
 * their parent on a further lane, which has no rows and thus costs no driver call:
 * moetrace_pass_info.parent is then the parent's moetrace_cuda_pass_number().
 *
 * @lane  NULL: nothing happens and the result is MOETRACE_OK.
 *
 * Returns  MOETRACE_OK          recorded, or the session is idle
 *          MOETRACE_E_INVALID   the description is inconsistent (counted misuse); not recorded
 *          MOETRACE_E_LIMIT     the ring is full, or a layer too large; not recorded, counted
 *          MOETRACE_E_STATE     the stream is being captured (nothing was done: call it around
 *                               the launch of the graph, not within), it is none of the device's
 *                               or no context is current in the calling thread (nothing was done),
 *                               the lane is in use by another thread (each counted misuse), this
 *                               is a forked child, or the session is closed
 *          MOETRACE_E_IO        the driver refused; not recorded, counted
 *          The result may be ignored: moetrace_cuda_pass_end() is right in every case.
 *          A pass that is still open in the lane is lost (counted misuse).
 */
MOETRACE_API
int moetrace_cuda_pass_begin(struct moetrace_cuda_lane *lane,
			     const struct moetrace_pass_info *info);

/**
 * The recorder's number of the lane's open pass, for moetrace_pass_accept(); 0: none is open, or
 * it is not recorded. Only of the thread that uses the lane: here another one is not found out.
 *
 * @lane  NULL: the result is 0.
 */
MOETRACE_API
uint64_t moetrace_cuda_pass_number(const struct moetrace_cuda_lane *lane);

/**
 * Say that the layers from @layer_index on come next. A pass that needs more than a quarter of
 * the ring is recorded in groups of layers; this call, made in the lane's stream before the
 * kernels of each layer (between graphs of a piecewise captured model, or in eager prefill), moves
 * on to the next group where one begins, and does nothing else. Passes that fit need no such
 * call. Without it, the layers beyond the first group of a large pass are stored as dropped.
 *
 * @lane  NULL: nothing happens.
 *
 * Returns what moetrace_cuda_pass_begin() returns; MOETRACE_E_INVALID: there is no such layer
 * (counted misuse; the pass goes on).
 */
MOETRACE_API
int moetrace_cuda_pass_layers(struct moetrace_cuda_lane *lane, uint32_t layer_index);

/**
 * Say what the calling thread launches from here on, or adds to a graph that it captures, until the
 * next mark: which layer it belongs to, and what it is for. Kernels that the collector cupti records
 * then carry both, in replays of the graph too. A launch belongs to the pass that its thread has
 * open in the launch's stream, or to its only open pass. Begin and end of a pass take the mark back;
 * a thread that captures outside of a pass ends with MOETRACE_NO_LAYER and MOETRACE_ROLE_BY_NAME.
 * Belongs to the hot path: a few plain stores, and nothing where no such collector is on.
 *
 * @lane         NULL: nothing happens. Its model is the one whose layers are meant.
 * @layer_index  Index into moetrace_model_info.layers, or MOETRACE_NO_LAYER. Another one is counted
 *               as misuse, and nothing changes.
 * @role         enum moetrace_kernel_role, or MOETRACE_ROLE_BY_NAME
 */
MOETRACE_API
void moetrace_cuda_mark(struct moetrace_cuda_lane *lane, uint32_t layer_index, uint32_t role);

/**
 * End the pass: what was launched into the stream so far belongs to it. Nobody waits: the rows are
 * recorded once the GPU has got there. So it is said as soon as all is launched, before the host waits
 * for the results: the calls of the driver take their time while the GPU computes, where behind the
 * wait the GPU has nothing to do meanwhile (15 us of a step on an H200).
 *
 * @lane  NULL: nothing happens.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_STATE  as moetrace_cuda_pass_begin(): where nothing was done the pass is still
 *                            open, and may be ended rightly; or no pass was begun (counted misuse)
 *          MOETRACE_E_IO     the driver refused; the pass is lost and counted
 */
MOETRACE_API
int moetrace_cuda_pass_end(struct moetrace_cuda_lane *lane);

/* A buffer that the runtime's own kernels fill with the ids of all layers in each pass. */
struct moetrace_cuda_buffer {
	size_t size;             /* set by MOETRACE_INIT() */
	uint64_t ids;            /* address of the first row's first id of layer index 0 */
	uint32_t id_type;        /* enum moetrace_type, an integer type; as moetrace_selection.id_type */
	uint32_t order;          /* enum moetrace_selection_order */
	uint32_t max_rows;       /* rows that the buffer holds */
	uint32_t padding_is_valid; /* 1: ids of padding rows are in it, too, after the others */
	uint64_t row_bytes;      /* from row to row, e.g. layers x k x 4; k is the largest top_k of the
	                            lane's layers */
	uint64_t layer_bytes;    /* from layer index to layer index, e.g. k x 4, or max_rows x k x 4;
	                            the larger of the two spans all of the smaller ones (of one row
	                            they may be equal); both at most 2 GiB */
};

/**
 * Adopt a buffer: from the next pass on, moetrace_cuda_pass_end() copies the pass's rows out of it
 * in the lane's stream (one copy within the device), so that the runtime may reuse it for the next
 * pass. Layers that the runtime did not fill look as it left them: it should clear them to -1.
 *
 * @buffer  NULL: adopt nothing any more. Else copied; its memory must outlive its use.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  NULL lane, or an inconsistent description
 *          MOETRACE_E_STATE    a pass is open in the lane, another thread uses it, its session is closed,
 *                              or this is a forked child
 *          Why in words: moetrace_errmsg().
 */
MOETRACE_API
int moetrace_cuda_adopt(struct moetrace_cuda_lane *lane, const struct moetrace_cuda_buffer *buffer);

/* Layers whose ids and weights lie in device memory. The arrays of addresses are host memory. */
struct moetrace_cuda_layers {
	size_t size;              /* set by MOETRACE_INIT() */
	uint32_t first_layer;     /* layer index of the first of them */
	uint32_t n_layers;        /* 1: a launch a layer; all: a gather launch a pass */
	uint32_t n_rows;          /* of the pass, padding included; see moetrace_cuda_target_get() */
	uint32_t id_type;         /* enum moetrace_type: I32, I64, I16 or U8 */
	const uint64_t *ids;      /* [n_layers] addresses of [n_rows][k] ids, aligned to their type; k is
	                             the layer's top_k */
	uint64_t ids_row_bytes;   /* from row to row, at most 2 GiB, the same in all layers of a call; 0:
	                             rows follow each other, where all of them have the same k */
	uint32_t weight_type;     /* enum moetrace_type: F32, F16, BF16, or NONE without weights */
	uint32_t reserved;        /* 0 */
	const uint64_t *weights;  /* [n_layers] the same of the weights; NULL with NONE */
	uint64_t weights_row_bytes; /* the same of the weights */
};

/**
 * Launch a kernel into @stream that stores these layers, if a pass is recorded when it runs. May
 * be captured. One launch for each 32 layers.
 *
 * @stream  The lane's, or one that is ordered before the lane's by an event before pass_end.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID      NULL, or an inconsistent description (counted misuse)
 *          MOETRACE_E_LIMIT        as moetrace_cuda_target_get()
 *          MOETRACE_E_UNSUPPORTED  the driver refused the kernel's code (counted misuse)
 *          MOETRACE_E_IO           the driver refused the launch (counted misuse)
 *          MOETRACE_E_STATE        this is a forked child, or the session is closed
 *          What is not stored leaves its layers unwritten in the pass.
 */
MOETRACE_API
int moetrace_cuda_store(struct moetrace_cuda_lane *lane, void *stream,
			const struct moetrace_cuda_layers *layers);

MOETRACE_END_DECLS

#endif
