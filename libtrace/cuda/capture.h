/* SPDX-License-Identifier: MIT */
/*
 * The parts of an attached device, and what the rest of the recorder asks of it.
 *
 * A pass goes through three hands. The thread that begins and ends it reserves a record in the
 * pinned ring, describes the pass in it, and commits it at its end. The GPU fills the device
 * ring at the same offset, the data is copied over, and the record's done word is written last.
 * The drain thread takes records in the order in which they were reserved, each when it is both
 * committed and done, hands it to the recorder and gives its memory back.
 *
 * Order: what ends something (a request's end, say) and is said after a pass has begun must reach
 * the writer after that pass. Such messages wait in a list until the passes before them are
 * delivered, on all devices of the session; see devices.c.
 *
 * Lock order: deliver -> messages -> those of the queue. Neither is taken on the hot path.
 */
#ifndef MT_CUDA_CAPTURE_H
#define MT_CUDA_CAPTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <moetrace/cuda.h>

#include "libtrace/cuda/driver.h"
#include "libtrace/cuda/layout.h"
#include "libtrace/cuda/wait.h"
#include "libtrace/late.h"
#include "libtrace/session.h"

/* A pass or a further group of its layers; slices, KV slots and positions follow, then the data. */
struct mt_cuda_record {
	struct mt_record record;  /* stamped when the host is done with it */
	_Atomic uint64_t is_done; /* written by the GPU, last: the rows are there */
	struct mt_pass_start start;
	uint64_t end_ns;
	uint64_t runtime_pass;
	uint64_t parent;
	uint64_t data_offset; /* from the record */
	uint64_t data_bytes;
	uint32_t stamp;
	uint32_t microbatch;
	uint32_t model;
	uint32_t phase;
	uint32_t n_rows;
	uint32_t padding_rows;
	uint32_t n_slices;
	uint32_t kv_slot_type;
	uint32_t first_layer;
	uint32_t end_layer;
	uint8_t lane;
	uint8_t has_runtime_pass;
	uint8_t has_microbatch;
	uint8_t is_first;
	uint8_t is_last;
	uint8_t is_lost;
	uint8_t has_data; /* the GPU has a part in it */
	uint8_t is_adopted;
	uint8_t is_after_long; /* until it ends, the lane's word may pass for a later one */
	struct moetrace_cuda_buffer buffer; /* if it is adopted */
};

struct moetrace_cuda_lane {
	struct moetrace_cuda *cuda;
	struct mt_cuda_layer *layers; /* [n_layers] */
	uint32_t n_layers;
	uint32_t number;
	uint32_t model;
	uint32_t order;
	uint32_t id_space;
	uint8_t weight_format; /* enum moetrace_weight_format; NONE: kernels store ids alone */
	uint8_t has_margins;   /* and flags: they are handed on */
	void *stream;
	void *side;          /* copies run here, after the pass */
	void *event;
	uint64_t word;       /* address of the word */
	uint64_t word_value; /* as last written */

	_Atomic int is_busy; /* a thread is in a call: others are refused */
	_Atomic uint64_t n_begun; /* passes that got a place in the ring; written under is_busy */
	int is_open;
	uint64_t number_of_pass;
	struct mt_tie *tie;            /* what its launches belong to; NULL: nobody asks */
	struct mt_cuda_record *record; /* of the open pass; NULL: it is not recorded */
	struct mt_reservation reservation;
	int has_buffer;
	struct moetrace_cuda_buffer buffer;
	uint64_t entries_bytes; /* of a row of the widest layer in it */

	/* Of the drain thread, under the lock deliver. */
	struct mt_tool_range tool;  /* of the open pass */
	struct moetrace_pass *pass; /* between groups of layers */
	uint32_t next_layer;        /* the layer after the last one that was handed over */
};

/* What is known of the GPU's timer; timer.c. */
struct mt_cuda_timer {
	int64_t offset_ns;  /* session clock minus timer, all bits of it, as far as is known */
	uint64_t seen_ns;   /* when it was last read, session clock; 0: never */
	uint64_t posted_ns; /* when the writer last heard of it */
	int has_bounds;
	int64_t least_ns;   /* session clock minus timer is not below */
	int64_t most_ns;    /* and not above */
};

/*
 * Recordings that may have open passes at a time: one that the writer ends, one that a caller ends and
 * the current one, and as many before them.
 */
#define MT_CUDA_N_TURNS 8u
#define MT_CUDA_N_LIVE	3u

struct moetrace_cuda {
	struct moetrace_session *session;
	struct mt_cuda_set *set;
	struct moetrace_cuda *left; /* another one whose session was closed */
	uint32_t index; /* in the set */
	const struct mt_cu *cu;
	void *context;
	int has_primary; /* retained by us */
	void *module;
	void *write_kernel; /* NULL: there are no kernels */
	void *timer_kernel;
	void *store_kernel;
	void *store_one_kernel; /* of one layer */
	int has_write;      /* the stream writes values */
	int has_wait;       /* it waits for values */
	int device;
	char name[128];
	uint32_t driver_version;
	uint64_t resolution_ns;

	uint64_t ring_bytes;
	uint64_t device_ring; /* address */
	uint64_t words;       /* address of [MOETRACE_CUDA_MAX_LANES][MT_CUDA_WORD_BYTES] */
	struct mt_ring ring;  /* the pinned memory */
	int is_own_memory;    /* of the process, which the device may use; else the driver's */

	_Atomic uint32_t n_lanes;
	struct moetrace_cuda_lane lanes[MOETRACE_CUDA_MAX_LANES];

	_Atomic uint32_t n_stamps;
	_Atomic uint64_t n_numbers; /* of passes */
	/*
	 * Passes that have begun, and are neither delivered nor lost yet, by their recording: low
	 * half. High half: those that are being refused, whose loss is about to be counted.
	 */
	_Atomic uint64_t n_open[MT_CUDA_N_TURNS];
	_Atomic uint64_t n_delivered;
	_Atomic uint64_t n_lost;
	_Atomic uint64_t n_refused;
	_Atomic uint64_t peak_bytes;
	_Atomic int error;          /* the driver's first error on the hot path: nothing is recorded */
	_Atomic(const char *) error_call; /* that failed with it; NULL: not known yet */

	pthread_t thread;
	_Atomic int is_closing;
	_Atomic uint32_t n_hurried; /* threads that want to abandon: nobody waits for room any more */
	int is_reported;            /* of the drain thread: error is in the file */
	pthread_mutex_t deliver;    /* protects lanes' passes, abandoned_id and offset_ns */
	uint32_t abandoned_id;      /* passes of recordings up to this one are not delivered any more */
	uint32_t offset_ns;         /* low half of: session clock minus the GPU's timer */
	int has_offset;
	struct mt_cuda_timer timer; /* protected by deliver, too */
	struct mt_cuda_scratch *scratch; /* of the drain thread */
};

/* The devices of a session, and the messages that are kept back for their passes. */
struct mt_cuda_set {
	struct moetrace_session *session;
	_Atomic uint32_t n_devices;
	struct moetrace_cuda *devices[MOETRACE_CUDA_MAX_DEVICES];
	pthread_mutex_t messages; /* protects first and last */
	struct mt_message *first; /* message->heads [n_devices]: positions of the devices' rings */
	struct mt_message **last;
	_Atomic uint64_t n_kept;   /* messages that were ever kept back */
	_Atomic uint64_t n_let_go; /* and that went on */
};

#define MT_CUDA_WORD_BYTES 64u

/* What a lane's word becomes when the record's pass or group is over. */
static inline uint64_t mt_cuda_closed_word(const struct mt_cuda_record *record)
{
	return mt_cuda_closed(mt_cuda_word(record->stamp, 0, 0));
}

/* Where the open passes of a recording are counted. */
static inline _Atomic uint64_t *mt_cuda_open_of(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	return &cuda->n_open[recording_id % MT_CUDA_N_TURNS];
}

#define MT_CUDA_OPEN_MASK   UINT64_C(0xffffffff)
#define MT_CUDA_REFUSED_ONE (UINT64_C(1) << 32)

static inline uint64_t mt_cuda_n_open(uint64_t word)
{
	return (word & MT_CUDA_OPEN_MASK) + word / MT_CUDA_REFUSED_ONE;
}

/* The count of open passes less one, and @more; 0: there was none. */
static inline int mt_cuda_leave_open(struct moetrace_cuda *cuda, uint32_t recording_id,
				     uint64_t more)
{
	_Atomic uint64_t *n_open = mt_cuda_open_of(cuda, recording_id);
	uint64_t word = atomic_load(n_open);

	while ((word & MT_CUDA_OPEN_MASK) &&
	       !atomic_compare_exchange_weak(n_open, &word, word - 1 + more))
		continue;
	return (word & MT_CUDA_OPEN_MASK) != 0;
}

/* A pass is open no more; 0: who gave up waiting for its recording has counted it as lost. */
static inline int mt_cuda_uncount(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	return mt_cuda_leave_open(cuda, recording_id, 0);
}

/*
 * The same of a pass whose loss its own thread counts, between the two: until then everybody waits
 * for it, but nobody else counts it.
 */
static inline int mt_cuda_refusal_begin(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	return mt_cuda_leave_open(cuda, recording_id, MT_CUDA_REFUSED_ONE);
}

static inline void mt_cuda_refusal_end(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	atomic_fetch_sub(mt_cuda_open_of(cuda, recording_id), MT_CUDA_REFUSED_ONE);
}

/* driver calls of the hot path; see issue.c. */
int mt_cuda_write_word(struct moetrace_cuda_lane *lane, uint64_t value);
int mt_cuda_ship(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record);
enum mt_cuda_ask {
	MT_CUDA_STREAM_FREE,
	MT_CUDA_STREAM_CAPTURING,
	MT_CUDA_STREAM_STRANGE, /* none of the device's, or the calling thread has no context */
};
enum mt_cuda_ask mt_cuda_ask_stream(struct moetrace_cuda_lane *lane);
/* Remember the driver's error @result of @call: nothing is recorded any more. */
void mt_cuda_fail(struct moetrace_cuda *cuda, const char *call, int result);

/*
 * memory.c: the rings and the lanes' words, with the context current. What the device cannot give is
 * a status with the driver's call and result.
 */
int mt_cuda_memory_make(struct moetrace_cuda *cuda, void *stream, const char **ret_call,
			int *ret_result);
void mt_cuda_memory_free(struct moetrace_cuda *cuda); /* all but the words */
/* 0: the context still has what was made in it, else the driver's error. */
int mt_cuda_memory_check(const struct moetrace_cuda *cuda);

/* probe.c: what the device can do, and what time it has. */
int mt_cuda_probe(struct moetrace_cuda *cuda, void *stream);

/*
 * timer.c: all bits of a time of which the low half is known, and that it lies between two others. Where
 * these are further apart than 32 bits last, it is the one next to the later one.
 */
uint64_t mt_cuda_whole_ns(uint32_t low_ns, uint64_t begin_ns, uint64_t arrival_ns);
/* A reading of the timer between two of the session's clock, all bits or the low half. */
void mt_cuda_timer_begin(struct moetrace_cuda *cuda, uint64_t timer_ns, uint64_t before_ns,
			 uint64_t after_ns);
void mt_cuda_timer_note(struct moetrace_cuda *cuda, uint32_t low_ns, uint64_t begin_ns,
			uint64_t arrival_ns);
/* Tell the writer what is known so far, if anything is. */
void mt_cuda_timer_post(struct moetrace_cuda *cuda);

/* drain.c */
int mt_cuda_drain_start(struct moetrace_cuda *cuda);
void mt_cuda_drain_stop(struct moetrace_cuda *cuda);
/* deliver.c: hand one record to the recorder; under the lock deliver. */
struct mt_cuda_scratch;
void mt_cuda_deliver(struct moetrace_cuda *cuda, struct mt_cuda_record *record);
void mt_cuda_deliver_end(struct moetrace_cuda_lane *lane, uint64_t end_ns);
void mt_cuda_lose(struct moetrace_cuda *cuda, uint32_t recording_id, uint64_t n);
void mt_cuda_scratch_free(struct mt_cuda_scratch *scratch);

/* Where the parts of a description lie, behind its record. */
struct mt_cuda_parts {
	struct moetrace_slice *slices;
	void *kv_slots;
	uint32_t *positions;
};

static inline struct mt_cuda_parts mt_cuda_parts(struct mt_cuda_record *record)
{
	struct mt_cuda_parts parts;

	parts.slices = (struct moetrace_slice *)(record + 1);
	parts.kv_slots = parts.slices + record->n_slices;
	parts.positions = (uint32_t *)(void *)((uint8_t *)parts.kv_slots +
					       mt_slots_bytes(record->n_rows,
							      record->start.slot_bytes));
	return parts;
}

/* A moment between two looks at what another thread or the GPU does. */
void mt_cuda_rest(void);

static inline uint64_t mt_cuda_in_flight(struct moetrace_cuda *cuda)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < MT_CUDA_N_TURNS; i++)
		n += mt_cuda_n_open(atomic_load(&cuda->n_open[i]));
	return n;
}

/* attach.c: what was found of a device, or became of it; what is bad is a diagnostic, too. */
void mt_cuda_post_state(struct moetrace_session *session, uint32_t index, const char *state,
			int is_bad);
/* attach.c: leave a device whose thread has ended; in a forked child only memory is freed. */
void mt_cuda_release(struct moetrace_cuda *cuda, int is_forked);

/*
 * devices.c: of what is kept back, hand to the queue what waits for nothing any more; 1: nothing
 * that is left must be there before the record at @position of the device is delivered.
 */
int mt_cuda_post_messages(struct moetrace_cuda *cuda, uint64_t position);
/* A session's set, made when first asked for; NULL: out of memory. */
struct mt_cuda_set *mt_cuda_set_of(struct moetrace_session *session);

#endif
