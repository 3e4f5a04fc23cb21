/* SPDX-License-Identifier: MIT */
/*
 * What a session is made of. The hot path reads what is fixed at open and the atomics; the
 * writer thread owns everything that reaches the file; callers reach it through the queue.
 *
 * Lock order: sessions' list -> control -> queue; errmsg is taken alone, and so are the
 * names' except under the collectors'.
 */
#ifndef MT_SESSION_H
#define MT_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <moetrace/moetrace.h>

#include "libtrace/narrow.h"
#include "libtrace/queue.h"
#include "libtrace/range_tool.h"
#include "libtrace/ring.h"
#include "libtrace/strings.h"
#include "libtrace/ties.h"

/* Ways to use the hot path wrongly: counted, named in table diagnostic, otherwise ignored. */
#define MT_MISUSE_MAP(X)                                                                      \
	X(MODEL, "pass", "a pass names a model that was not added; pass ignored")             \
	X(PHASE, "pass", "a pass or slice has no valid phase, a request's slice not that of its "  \
			"pass, or rows are idle; pass ignored")                               \
	X(SLICES, "pass", "the slices' rows do not add up to the pass's rows; pass ignored")  \
	X(RANGE, "pass", "more than MOETRACE_MAX_ROWS rows, or positions past 2^32; ignored")  \
	X(SIZE, "pass", "a struct's size member is not set; use MOETRACE_INIT()")             \
	X(LAYER, "pass", "a selection names a layer that the model does not have; ignored")   \
	X(ROWS, "pass", "a selection's rows are not those of its pass; ignored")              \
	X(TOP_K, "pass", "a selection has more entries a row than the layer's top_k; ignored")\
	X(TYPE, "pass", "a selection's type or row distance is not allowed; ignored")         \
	X(POINTER, "pass", "a selection's arrays are NULL or not aligned; ignored")           \
	X(ROW_MAP, "pass", "a row map does not ascend within its pass; ignored")              \
	X(DUPLICATE, "pass", "a layer was handed over twice in one pass; the first counts")   \
	X(RULE, "pass", "a selection names a rule that was not added, or base_ids without one, "     \
			"or of rows without all their experts; taken as the router's own")    \
	X(MAP, "pass", "physical ids without an expert map that explains them; ignored")      \
	X(CANDIDATES, "pass", "candidates of no type, or rows of them without all their "     \
			      "experts, or in a session that stores no weights; not stored")  \
	X(FACTS, "pass", "margins that are negative or NaN, flags that are not known, or a margin of 0 " \
			 "without a tie; margins and flags of the layer are not stored")      \
	X(COUNTS, "pass", "counts of another number than the layer has ids, or below 0; ignored") \
	X(DISPATCH, "pass", "a dispatch with too many ranks or negative counts, or the second of its " \
			    "layer; ignored")                                                 \
	X(KERNELS, "pass", "times of operations name no operation or layer, or end before they "       \
			   "begin; ignored")                                                  \
	X(COLLECTIVE, "pass", "a collective of no kind, of a name or layer that there is not, that " \
			      "ends before it begins or before its pass does, or is not over; ignored")       \
	X(RANGE_NAME, "session", "a range has no name that was added, or was never begun; ignored") \
	X(REGION, "session", "moetrace_region_enable() without a region to end")              \
	X(REQUEST, "request", "a call names a request that is not open; ignored")             \
	X(POSITION, "request", "a position of a request was computed or reused twice in one attempt")  \
	X(SLOTS, "pass", "KV slots are of no integer type of 4 or 8 bytes, or not aligned; ignored")  \
	X(PARENT, "pass", "a pass's parent is not open, or has rows, layers or a parent; ignored")    \
	X(ACCEPT, "pass", "acceptance was told of a slice that does not wait for it; ignored") \
	X(CUDA_LANE, "cuda", "a lane was used by two threads, begun twice, ended without a begin, " \
			     "or for another model; ignored, and what was open is lost") \
	X(CUDA_CAPTURING, "cuda", "a pass was begun or ended while its stream is captured; ignored: " \
				  "do it around the launch of the graph") \
	X(CUDA_STREAM, "cuda", "a pass was begun or ended in a stream that is none of the "    \
			       "device's, or by a thread in which no context is current; ignored") \
	X(CUDA_STORE, "cuda", "moetrace_cuda_target_get() or _store() was told of layers, "    \
			      "types or arrays that there are not; nothing is stored")        \
	X(CUDA_LAUNCH, "cuda", "the driver refused the kernel of moetrace_cuda_store(); its "  \
			       "layers are unwritten")                                        \
	X(CUDA_GROUP, "cuda", "moetrace_cuda_pass_layers() with a layer that there is not; ignored") \
	X(CUDA_NAN, "cuda", "a router kernel saw NaN among the scores of a row; what it chose is stored") \
	X(CUDA_ROWS, "cuda", "kernels stored some rows of a layer and not the others; the layer is " \
			     "unwritten")                                                     \
	X(CUDA_MARK, "cuda", "moetrace_cuda_mark() with a layer or role that there is not")

enum mt_misuse {
#define MT_MISUSE_ENUM(name, source, sentence) MT_MISUSE_##name,
	MT_MISUSE_MAP(MT_MISUSE_ENUM)
#undef MT_MISUSE_ENUM
	MT_N_MISUSE,
};
_Static_assert(MT_N_MISUSE <= 64, "some are told as bits");

/* What the hot path needs of a layer, and the writer beside it. */
struct mt_layer {
	uint32_t layer_id;  /* key in the file */
	uint32_t n_ids;     /* ids that the layer can emit */
	uint32_t n_experts; /* routed ones: ids below this */
	uint32_t top_k;
	uint8_t id_bytes;
	const float *bias_values; /* [n_experts and zero experts] or NULL; the model's */
};

struct mt_model {
	uint32_t model_id; /* key in the file */
	uint32_t kind;     /* enum moetrace_model_kind */
	uint32_t n_layers; /* MoE layers */
	struct mt_layer *layers;
	struct moetrace_model_info info; /* with copies of the strings, for the writer */
	struct moetrace_layer_info *layer_infos;
};

/*
 * Losses of one kind, of one recording and of those whose numbers are MT_N_LOSS_TURNS apart. The
 * counts only grow; the times are those since the writer last looked.
 */
struct mt_loss {
	_Atomic uint64_t n;
	_Atomic uint64_t n_bytes;
	_Atomic uint64_t first_ns; /* 0: none since then */
	_Atomic uint64_t last_ns;
};

enum mt_loss_kind {
	MT_LOSS_PASS_NO_RING,
	MT_LOSS_PASS_RING_FULL,
	MT_LOSS_LAYER_RING_FULL,
	MT_LOSS_DISPATCH_RING_FULL,
	MT_LOSS_PASS_DEVICE_FULL, /* the ring in device memory */
	MT_LOSS_PASS_DEVICE,      /* the rows did not come from the device */
	MT_LOSS_KERNEL_RING_FULL, /* times of operations */
	MT_LOSS_RANGE_RING_FULL,
	MT_LOSS_COLLECTIVE_RING_FULL,
	MT_LOSS_PASS_CUT, /* the writer alone: it came after the end of its recording */
	MT_LOSS_RANGE_CUT,
	MT_N_LOSS,
};

/*
 * While the writer ends a recording the next one may be on, or the one after it: a switch of its
 * own, and one of a caller. What is lost of them is not of the recording that it ends.
 */
#define MT_N_LOSS_TURNS 8u
#define MT_N_AHEAD	2u

/* Beside a pass's recording: that has ended, and has counted the pass as one that it did not get. */
#define MT_TOLD (UINT32_C(1) << 31)

/* The pass that holds a ring. Written by the thread that begins it, then the atomics by any. */
struct moetrace_pass {
	struct moetrace_session *session;
	struct mt_ring *ring;
	const struct mt_model *model;
	_Atomic uint32_t recording_id; /* with MT_TOLD; stop looks at it from another thread */
	_Atomic uint32_t last_id;      /* of the last pass that began in the ring: its recording */
	uint64_t number;               /* of the ring's passes: each MT_MAX_RINGS more than the last; a late
	                                  one was given its own */
	uint32_t n_rows;
	uint32_t padding_rows;
	uint32_t mode;          /* enum moetrace_mode of its recording */
	uint32_t weight_format; /* enum moetrace_weight_format; NONE where the mode keeps none */
	uint32_t map_epoch;     /* of the expert map in force when it began; 0: none */
	uint32_t is_special;    /* late, or its weights are not kept as fp16; see is_plain() */
	uint64_t time_ns; /* of a late pass: what follows happened then; 0: now */
	uint64_t begin_ns;
	struct mt_tool_range tool;
	_Atomic uintptr_t owner; /* thread that has the main stream; 0: nobody handed over yet */
	_Atomic uint32_t n_dropped;
	_Atomic uint64_t dropped[MT_LAYER_WORDS];
};

struct mt_collect;
struct mt_overhead;
struct mt_server;
struct mt_writer;
struct mt_cuda_set;

/* What the environment decided. */
struct mt_settings {
	int is_disabled;       /* MOETRACE_DISABLE: no file, no thread, every call succeeds */
	int start;             /* MOETRACE_START: 0 or 1; -1: not set */
	int mode;              /* MOETRACE_MODE: enum moetrace_mode; -1: not set */
	int has_default_limit; /* file_limit_bytes follows from the free space */
};

/* A look at the losses. */
struct mt_loss_counts {
	uint64_t n[MT_N_LOSS];
	uint64_t n_bytes[MT_N_LOSS];
};

#define MT_PATH_BYTES 4096u

/* Counters that the writer publishes at each commit. */
struct mt_published {
	uint64_t recorded_passes;
	uint64_t recorded_rows;
	uint64_t recorded_assignments;
	uint64_t discarded_passes;     /* taken from the rings and not stored: the file is full */
	struct mt_loss_counts at_start; /* losses of the recordings before it, and between them */
	uint64_t misuse;
	uint64_t file_bytes;
	uint64_t file_limit_bytes;
	uint64_t ring_peak_bytes;
	uint64_t writer_cpu_ns;
	uint64_t store_memory_bytes;
	uint64_t flight_bytes;
	uint64_t flight_fill_bytes;
	uint64_t flight_passes;
	char path[MT_PATH_BYTES]; /* of the file in force, and */
	uint32_t recording_id;    /* the last one in it; 0: none */
	uint64_t last_pass_id;
	uint64_t earlier_pass_id; /* of the recording before it */
	uint64_t commit_ns;
	uint64_t start_ns;      /* of the recording */
	uint64_t rate_ns;       /* length of the time that the next three are of; 0: too short yet */
	uint64_t rate_passes;
	uint64_t rate_rows;
	uint64_t rate_bytes;
};

/* Options of a recording, with room for the string. */
struct mt_recording_opts {
	struct moetrace_recording_opts opts;
	int has_source;
	char source[256];
};

struct moetrace_session {
	/* Fixed at open. */
	struct moetrace_session_opts opts; /* resolved; strings are copies */
	char *base_path;  /* of the first file; parts have a number in it */
	char uuid[40];
	char *path;       /* of the file in force: changed by the writer, under text */
	struct mt_settings settings;
	uint64_t start_monotonic_ns;
	mt_narrow_plain_fn narrow_plain;
	struct mt_ring_pool pool;
	struct moetrace_pass passes[MT_N_RINGS]; /* by ring */

	/* Hot path. First what every pass looks at as it begins, in as few lines as that takes. */
	_Alignas(MT_LINE_BYTES) _Atomic uint32_t recording_id; /* 0: idle */
	_Atomic uint32_t n_models;
	_Atomic uint32_t mode;       /* of the recording; set before recording_id */
	_Atomic uint32_t weight_format; /* to store; NONE where the mode keeps none */
	_Atomic int64_t n_disabled;  /* regions that are open */
	struct mt_overhead *_Atomic overhead; /* NULL: its cost is not being measured */
	struct mt_ties *ties;        /* what launches on a GPU belong to; NULL: nobody asks */
	_Atomic uint32_t has_sampling; /* passes are left out: the members below say which */
	_Atomic uint32_t sample_phases;
	_Atomic uint32_t sample_every_n_passes;
	struct mt_range_tool tool;   /* who also listens; set before the session is known */
	struct mt_model *models[MOETRACE_MAX_MODELS];
	_Atomic uint32_t map_epochs[MOETRACE_MAX_MODELS]; /* in force; 0: none */
	_Atomic uint64_t n_sampled[MOETRACE_MAX_MODELS]; /* passes of the phases in question */
	struct mt_ring *_Atomic ranges; /* NULL: no range has a name */
	_Alignas(MT_LINE_BYTES) struct mt_loss losses[MT_N_LOSS_TURNS][MT_N_LOSS];
	_Atomic uint64_t misuse[MT_N_MISUSE];
	_Atomic uint32_t n_measuring; /* threads that may look at what overhead points to */

	/* Control. */
	pthread_mutex_t control;      /* start, stop, model_add one at a time */
	_Atomic uint32_t last_recording_id; /* only grows; by control, or by the writer's rotation */
	uint32_t n_program_starts;    /* under control: of moetrace_start() */
	struct mt_recording_opts last_opts; /* under control: of the last moetrace_start() */
	uint32_t n_layers_added;      /* under control: keys of table layer */
	_Atomic uint64_t n_requests;  /* handles given out */
	_Atomic uint32_t n_rules;     /* handles given out */
	_Atomic int failed;           /* the writer cannot write any more: its status */
	_Atomic int is_flight;        /* the recording is kept in memory */
	_Atomic uint32_t trigger;     /* enum mt_trigger: of what is to be written of it */
	char trigger_reason[256];     /* of whoever made it BUSY, then of the writer */
	_Atomic int forked;           /* this is a child's copy */

	struct mt_strings strings;    /* names of operations and ranges */
	struct mt_queue queue;
	struct mt_writer *writer;
	pthread_t thread;
	struct mt_server *server;     /* NULL: no control socket */
	_Atomic(struct mt_collect *) collect; /* NULL: no collectors; set before the first recording */
	_Atomic(struct mt_cuda_set *) cuda; /* attached devices; NULL: none ever was */

	pthread_mutex_t text;         /* protects errmsg and published */
	char errmsg[512];
	struct mt_published published;

	struct moetrace_session *next; /* in the list of open sessions, see fork.c */
	struct moetrace_session **link;
};

static inline uint64_t mt_session_ns(const struct moetrace_session *session, uint64_t monotonic_ns)
{
	return monotonic_ns - session->start_monotonic_ns;
}

/* Read the losses, of one turn or of all; the times are left alone. */
void mt_losses_read_turn(struct moetrace_session *session, uint32_t turn,
			 struct mt_loss_counts *ret_counts);
void mt_losses_read(struct moetrace_session *session, struct mt_loss_counts *ret_counts);
void mt_losses_add(struct mt_loss_counts *to, const struct mt_loss_counts *counts);
int mt_is_lost_pass(enum mt_loss_kind kind);
uint64_t mt_lost_passes(const struct mt_loss_counts *counts);
/* When the last pass was lost whole, on the session's clock; 0: none was. */
uint64_t mt_lost_passes_ns(struct moetrace_session *session);

/* Set the text that moetrace_errmsg() gives; returns @status. */
int mt_session_error(struct moetrace_session *session, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void mt_misuse(struct moetrace_session *session, enum mt_misuse misuse);

/* Set the text that moetrace_open_errmsg() gives; returns @status. */
int mt_open_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Post a message; NULL is answered with MOETRACE_E_NOMEM. */
int mt_session_post(struct moetrace_session *session, struct mt_message *message);

/* The same, and wait until the writer has done it: MOETRACE_OK or MOETRACE_E_IO. */
int mt_session_post_and_wait(struct moetrace_session *session, struct mt_message *message);

/* Passes of a recording that have not ended, or may be about to be of it. */
uint32_t mt_session_in_flight(struct moetrace_session *session, uint32_t recording_id);
/* Wait for them as long as stop does; how many are left. */
uint32_t mt_session_wait_for_passes(struct moetrace_session *session, uint32_t recording_id);

/*
 * Let passes that begin from now on belong to the next recording, in place of @recording_id.
 * Returns its number; 0: @recording_id is not the current one any more.
 */
uint32_t mt_session_next_recording(struct moetrace_session *session, uint32_t recording_id);

/* The writer ends what is recorded, whoever switches at this moment; returns the last recording. */
uint32_t mt_session_end_now(struct moetrace_session *session);

/* What moetrace_start() does, for whoever is not the program; @opts of the library's version. */
int mt_session_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts);

/* The options of the program's last start; they point into @ret_opts. */
void mt_session_last_opts(struct moetrace_session *session, struct mt_recording_opts *ret_opts);

/* session_flight.c: is a trigger set? The writer takes it; 0: none is. */
int mt_session_has_trigger(struct moetrace_session *session);
int mt_session_take_trigger(struct moetrace_session *session, char *ret_reason);
/* Write what flight mode kept, and go on; under control. The recording that is written. */
int mt_session_flight_dump(struct moetrace_session *session, const char *reason,
			   uint32_t *ret_recording_id);
/* Bytes and ns that a recording keeps in memory; 0 bytes: it is written at once. */
int mt_session_flight_opts(struct moetrace_session *session,
			   const struct moetrace_recording_opts *opts, struct mt_message *message);

/* Let passes that begin from now on be of the next recording. 0: nothing is recorded. */
uint32_t mt_session_switch(struct moetrace_session *session, uint32_t *ret_old);

/* What was committed last: the file, its last recording and that one's last pass. */
void mt_session_watermark(struct moetrace_session *session, uint32_t flight_id,
			  struct moetrace_dump_result *ret_result);

/* The path of the file in force, absolute where the current folder is known. */
void mt_session_path(struct moetrace_session *session, char *ret_path, size_t path_bytes);

/* The number of a mode by its name; -1: there is none. */
int mt_mode_parse(const char *name);
/* The name of a mode; NULL: none. */
const char *mt_mode_name(int mode);

void mt_model_free(struct mt_model *model);

/* Post a message as it is: what it says was so is in it. */
void mt_session_post_stamped(struct moetrace_session *session, struct mt_message *message);

/* fork.c: keep the list of open sessions that a forked child must leave alone. */
void mt_fork_enlist(struct moetrace_session *session);
void mt_fork_delist(struct moetrace_session *session);

#endif
