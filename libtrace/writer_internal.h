/* SPDX-License-Identifier: MIT */
/*
 * The writer's state and the parts of its work, each under the name of its source file.
 * Everything here is used by the writer thread alone.
 */
#ifndef MT_WRITER_INTERNAL_H
#define MT_WRITER_INTERNAL_H

#include <moetrace/cuda.h>

#include "libtrace/assembly.h"
#include "libtrace/clock.h"
#include "libtrace/collect.h"
#include "libtrace/cuda/wait.h"
#include "libtrace/flight.h"
#include "libtrace/ledger.h"
#include "libtrace/load.h"
#include "libtrace/session.h"
#include "libtrace/past.h"
#include "libtrace/store/store.h"
#include "libtrace/tied.h"

/* A gap that may still grow: its row is replaced while losses go on. */
struct mt_open_gap {
	int64_t gap_id; /* 0: none */
	uint64_t start_ns;
	uint64_t n_lost;
	uint64_t bytes_lost;
	uint64_t commit; /* the commit at which it last grew */
};

/* Losses and misuse since the recording started. */
struct mt_losses {
	uint64_t passes;
	uint64_t layers;
	uint64_t dispatches;
	uint64_t kernels;
	uint64_t ranges;
	uint64_t collectives;
	uint64_t bytes;
	uint64_t misuse;
};

struct mt_writer_gpu {
	char *name; /* NULL: unknown */
	char *uuid; /* NULL: unknown */
	int64_t limit_mw;
};

/* Where the counters stood when rates were last taken. */
struct mt_rate {
	uint32_t recording_id;
	uint64_t since_ns;
	uint64_t passes;
	uint64_t rows;
	uint64_t bytes;
};

/* A rotation that the writer began by itself and that waits for passes in flight. */
struct mt_rotation {
	uint32_t next_id; /* 0: none */
	uint64_t switch_ns; /* session clock: passes that begin later are of the next recording */
	struct mt_cuda_mark mark; /* what GPUs were given until then */
	uint64_t until_ns;
	uint64_t retry_ns; /* not before then, since the next file could not be made */
	struct mt_store *store; /* of the next file */
	char *path;
};

#define MT_MAX_SOURCES (MOETRACE_CUDA_MAX_DEVICES + 1)

/* A source of passes, and what was found of it. */
struct mt_writer_source {
	char *name;
	char *state;
	int is_written;
};

/* A GPU whose passes are recorded. */
struct mt_writer_attached {
	int64_t gpu_id;                /* key of its row; 0: none */
	struct mt_clock_reading clock; /* that is not stored yet; session_ns 0: none */
};

struct mt_writer {
	struct moetrace_session *session;
	struct mt_store *store;
	int status;      /* first failure: nothing is written any more */
	int is_closing;
	struct mt_message *close_message;
	int is_full;     /* the file limit is reached */
	struct mt_rotation rotation; /* under way */
	struct mt_flight flight;
	struct mt_message *held;     /* messages of requests, in order: see is_held() */
	struct mt_message *last_held;
	struct mt_message *start;    /* of the recording, or of the last one; NULL: none yet */
	uint32_t file_recording_id;  /* last one in this file; 0: none */
	uint32_t newest_id;          /* recordings above it have not started for the writer */
	uint8_t has_begun[MT_N_RINGS]; /* by ring: of its pass BEGIN was taken, and END not */
	uint64_t given_up[MT_MAX_STREAMS]; /* position + 1 of a record that was waited for in vain */
	uint32_t told_ids[MT_N_RINGS]; /* the recording that has counted its pass untold; 0: none */
	uint32_t file_ids[MT_N_LOSS_TURNS]; /* the last recordings in this file, in turn; 0: none */
	uint32_t n_file_ids;
	struct {
		uint32_t recording_id; /* 0: none */
		uint64_t start_ns;
		uint64_t end_ns;
	} ended;                     /* the last recording that has */
	uint64_t limit_bytes;        /* of this file and the parts before it */
	uint64_t parts_bytes;        /* of the parts that rotation by size or time has left behind */
	uint32_t n_parts;            /* files before this one */
	struct mt_past past;         /* the last of them */
	uint32_t n_models_written;   /* that the file defines */
	char **rules;                /* [n_rules] their names */
	uint32_t n_rules;
	uint32_t n_rules_written;
	uint32_t n_strings_written;
	struct mt_writer_source sources[MT_MAX_SOURCES]; /* [n_sources] whose states are known */
	uint32_t n_sources;
	struct mt_writer_gpu *gpus;  /* in the order of their keys, which follow the host's */
	uint32_t n_gpus;
	uint32_t n_gpus_written;
	struct mt_writer_attached attached[MOETRACE_CUDA_MAX_DEVICES];
	struct mt_versions versions;         /* that were found */
	struct mt_versions versions_written; /* the first of them, as this file has them */
	uint64_t n_readings[MT_MAX_COLLECTORS]; /* stored of the recording */
	uint64_t last_reading_ns[MT_MAX_COLLECTORS]; /* the latest of them */
	uint64_t n_invalid[MT_MAX_COLLECTORS];  /* of them, with flags */
	struct mt_shape_row *shapes; /* [n_shapes] that this file has */
	uint32_t n_shapes;
	uint8_t has_graph[MT_MAX_GRAPHS]; /* this file defines it */
	struct mt_tied tied;         /* kernels and their passes; empty without collectors */
	struct {
		uint64_t number;
		int is_open;
	} looked_for;                /* the last pass that was, in this look at those that wait */
	uint64_t n_untied;           /* rows of the recording whose pass is lacking */
	uint64_t n_ranges;           /* stored of the recording */
	uint64_t *threads;           /* [n_threads] that ended ranges */
	uint32_t n_threads;
	int open_status;
	char open_error[MT_STORE_ERROR_BYTES];

	struct mt_ledger ledger;
	struct mt_load load;
	struct mt_assembly assembly;

	uint32_t recording_id; /* as the writer sees it; 0: idle */
	uint64_t commit_interval_ns;
	uint64_t last_commit_ns;
	uint64_t last_load_ns;
	int is_load_due; /* whatever the time */
	uint64_t last_clock_ns;
	uint64_t n_commits; /* of the recording, with those before it */
	uint64_t first_commit;
	int64_t earlier_pass_id; /* the last pass of the recording before; 0: it had none */
	int64_t passes_before; /* the last pass of earlier recordings */
	uint64_t ring_peak_bytes;
	uint64_t start_ns; /* of the recording */
	uint64_t end_ns;   /* UINT64_MAX: it is not being ended */
	uint64_t start_cpu_ns;
	struct mt_rate rate;
	int64_t last_gap_id;
	int64_t last_diagnostic_id;
	struct {
		int64_t diagnostic_id; /* 0: none */
		int64_t time_ns;
		int64_t n_times;
		char text[640];
		char source[32];
	} said; /* last, by a message */
	uint64_t last_loss_ns;
	struct mt_open_gap gaps[MT_N_LOSS];
	struct mt_losses losses;
	struct mt_loss_counts losses_seen[MT_N_LOSS_TURNS];
	struct mt_loss_counts losses_at_start;
	struct mt_lost lost[MT_N_LOSS]; /* in flight mode, if has_lost: it waits until the rings */
	uint64_t lost_heads[MT_MAX_STREAMS]; /* were taken up to there */
	int has_lost;
	uint64_t discarded_passes;
	struct mt_assembly_counts committed; /* counters of the last commit */
	uint64_t committed_losses;  /* passes lost, as of the last commit */
	uint64_t committed_ns;
	int has_last_words; /* a failed recording's end is still to be written */
	struct mt_gap_row last_gap;
	uint64_t misuse_seen[MT_N_MISUSE];
	uint64_t misuse_first_ns[MT_N_MISUSE];
};

/* Now, on the session's clock. */
static inline uint64_t mt_writer_now_ns(const struct mt_writer *writer)
{
	return mt_session_ns(writer->session, mt_monotonic_ns());
}

/* definitions.c: facts of the process, and models. */
int mt_writer_define(struct mt_writer *writer);
/* All of the above, once more, into a file that has none of them; or what is missing. */
int mt_writer_define_all(struct mt_writer *writer);
int mt_writer_define_missing(struct mt_writer *writer);
/* Names that were given since the last time. */
int mt_writer_define_strings(struct mt_writer *writer);
int mt_writer_add_rule(struct mt_writer *writer, struct mt_message *message);
int mt_writer_add_model(struct mt_writer *writer, uint32_t model_index);
/* Takes the map out of the message. */
int mt_writer_add_map(struct mt_writer *writer, struct mt_message *message);
/* Each takes the texts out of the message. */
int mt_writer_add_source(struct mt_writer *writer, struct mt_message *message);
int mt_writer_add_gpu(struct mt_writer *writer, struct mt_message *message);
/* In flight mode the last one waits for the dump. */
int mt_writer_add_clock(struct mt_writer *writer, struct mt_message *message);
int mt_writer_write_kept_clocks(struct mt_writer *writer);
/* Versions of the driver and of the vendor's libraries, as far as they are known by now. */
int mt_writer_write_versions(struct mt_writer *writer);

/* collect_write.c: GPUs, and what the collectors read since the last commit. */
int mt_writer_gpu(struct mt_writer *writer, const char *name, const char *uuid,
		  uint32_t *ret_index);
int mt_writer_write_gpus(struct mt_writer *writer);
void mt_writer_free_gpus(struct mt_writer *writer);
int mt_writer_write_readings(struct mt_writer *writer);
int mt_writer_write_collectors(struct mt_writer *writer);
/* At the end: in the last recording's rows, who did not come back from its own. */
int mt_writer_write_hung(struct mt_writer *writer);

/*
 * kernel_write.c: a reading of a kernel. Must it wait for its pass; is it none of the recording;
 * write it, MOETRACE_E_NOT_FOUND: it names nothing that is known.
 */
int mt_writer_kernel_waits(struct mt_writer *writer, struct mt_kernel_reading *reading);
int mt_writer_kernel_is_left_out(struct mt_writer *writer, const struct mt_kernel_reading *reading);
int mt_writer_write_kernel(struct mt_writer *writer, const struct mt_kernel_reading *reading,
			   int64_t device);

/* ranges.c: the ranges that ended since the last time; one that flight mode kept. */
int mt_writer_write_ranges(struct mt_writer *writer);
int mt_writer_write_range(struct mt_writer *writer, const struct mt_record_range *range);

/* answer.c: a request's experts, or where they are in the file. */
int mt_writer_experts(struct mt_writer *writer, const struct mt_message *message);

/* recording.c: start, end, commit. Each returns a status for the writer to check. */
int mt_writer_start_recording(struct mt_writer *writer, const struct mt_message *message);
int mt_writer_end_recording(struct mt_writer *writer, const char *reason, uint64_t end_ns);
int mt_writer_commit(struct mt_writer *writer);
int mt_writer_close_store(struct mt_writer *writer);
void mt_writer_end_full(struct mt_writer *writer);
void mt_writer_abandon_gpus(struct mt_writer *writer, uint32_t last_id);
void mt_writer_publish(struct mt_writer *writer);
int mt_writer_revive(struct mt_writer *writer);
/* Counters and load of a recording begin, as the message says. */
void mt_writer_begin_counting(struct mt_writer *writer, const struct mt_message *message);
uint64_t mt_writer_reserve_bytes(const struct mt_writer *writer);

/*
 * writer_losses.c: take what the hot path lost since the last look, into table gap, or into the
 * memory of flight mode; there it may wait, but not at the end.
 */
int mt_writer_collect_losses(struct mt_writer *writer, int is_end);
int mt_writer_lose(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost);
/* What was lost until now is of no recording. */
void mt_writer_forget_losses(struct mt_writer *writer);
/* All that was taken, or forgotten. */
void mt_writer_losses_seen(const struct mt_writer *writer, struct mt_loss_counts *ret_counts);
int mt_writer_collect_misuse(struct mt_writer *writer);
int mt_writer_write_cut_gap(struct mt_writer *writer, uint64_t end_ns, uint64_t n_lost,
			    const char *reason);
/* What a gap of the kind is of, and in which of the stats it is, too; NULL: in none. */
void mt_writer_gap_row(enum mt_loss_kind kind, struct mt_gap_row *ret_row);
const char *mt_writer_loss_counter(enum mt_loss_kind kind);
/* Add what a turn has lost since the last look to @lost [MT_N_LOSS], and to @counts (NULL: nowhere). */
void mt_writer_look_at_turn(struct mt_writer *writer, uint32_t turn, struct mt_lost *lost,
			    struct mt_loss_counts *counts);
/* Passes that were taken, or are in their threads' hands, and that no commit has. */
uint64_t mt_writer_count_unstored(struct mt_writer *writer);
/* Passes that wait in the rings and will not be stored. */
uint64_t mt_writer_discard_rings(struct mt_writer *writer);
/* The store failed: what since the last commit was taken, or waits, is not in the file. */
void mt_writer_count_failure(struct mt_writer *writer);

/*
 * flight.c: a record or a message of the recording that is kept in memory, or a loss. Each lets
 * the oldest go to make room.
 */
int mt_flight_record(struct mt_writer *writer, uint32_t ring, const struct mt_record *record);
int mt_flight_message(struct mt_writer *writer, struct mt_message *message);
int mt_flight_lose(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost);
/* Let go what is older than is kept. */
int mt_flight_trim(struct mt_writer *writer, uint64_t until_ns);
/* The memory for a recording that starts, if it is one of flight mode; its start. */
int mt_flight_reserve(struct mt_writer *writer, const struct mt_message *start);
void mt_flight_start(struct mt_writer *writer, const struct mt_message *start);
/* End the recording with what is kept of it up to @until_ns in the file, or with nothing. */
int mt_flight_write(struct mt_writer *writer, const char *reason, uint64_t until_ns);
int mt_flight_end(struct mt_writer *writer, const char *reason, uint64_t end_ns);
/* Nothing can be written any more: passes that are let go. The ledger gets to know the rest. */
uint64_t mt_flight_abandon(struct mt_writer *writer);

/* The recording that passes are of, in the file or in memory; 0: idle. */
static inline uint32_t mt_writer_current_id(const struct mt_writer *writer)
{
	return writer->recording_id ? writer->recording_id : writer->flight.recording_id;
}

/*
 * writer_late.c: a record of a pass is taken out of its ring, whatever becomes of it. 1: it is the BEGIN
 * of one of the recording, or of one that was switched to; that of an ended one is counted here.
 */
int mt_writer_note_taken(struct mt_writer *writer, uint32_t ring, const struct mt_record *record);
/* Passes of the recording that their threads had not told when it was to end: they are not taken. */
uint64_t mt_writer_count_untold(struct mt_writer *writer);
/* The last recording of a turn of losses that has started for the writer; 0: none has. */
uint32_t mt_writer_id_of_turn(const struct mt_writer *writer, uint32_t turn);
/* A recording is in this file. */
void mt_writer_note_file_id(struct mt_writer *writer, uint32_t recording_id);
/* The recording of this file that losses of an ended one are told in; 0: it runs, or is in none. */
uint32_t mt_writer_ended_here(const struct mt_writer *writer, uint32_t recording_id);
/* What was lost of recordings that have ended, as far as none that runs takes it over. */
int mt_writer_collect_late(struct mt_writer *writer);
/* A range that ended in a recording that has: it is counted. */
int mt_writer_is_late_range(struct mt_writer *writer, const struct mt_record *record);

/* rotation.c */
/* The message of moetrace_dump() in flight mode: write what is kept, and go on. */
int mt_writer_flight_dump(struct mt_writer *writer, const struct mt_message *message);
/* The message of moetrace_rotate(): the caller has switched recordings and waited already. */
int mt_writer_rotate(struct mt_writer *writer, const struct mt_message *message);
/* Rotation by size or time: begin one if it is due; can the one under way be ended? */
void mt_writer_rotation_begin(struct mt_writer *writer);
int mt_writer_rotation_is_ready(struct mt_writer *writer);
/* End the one under way: all records of the old recording have been taken. */
int mt_writer_rotation_end(struct mt_writer *writer);
/* The recording has ended: there will be no rotation of it. */
void mt_writer_rotation_cancel(struct mt_writer *writer);

/*
 * writer.c: a transaction, begun unless one is open; MOETRACE_E_STATE: another program holds the
 * write lock. Nobody waits for it unless they must, or somebody waits for a message.
 */
int mt_writer_begin(struct mt_writer *writer, int must_wait);
/* Commit, and open the next transaction. */
int mt_writer_commit_and_go_on(struct mt_writer *writer);
/* Remember a failure of a step, and end the recording; returns the writer's status. */
int mt_writer_check(struct mt_writer *writer, int status);

/* writer_drain.c: take the records before these positions, those of later recordings excepted. */
void mt_writer_drain(struct mt_writer *writer, const uint64_t *heads, int must_wait);
/* Count positions that the ledger found computed or reused twice. */
void mt_writer_count_repeated(struct mt_writer *writer);
int mt_writer_is_over_limit(const struct mt_writer *writer);

/* writer_messages.c: all that are in the queue; those that waited for a recording to start. */
void mt_writer_do_messages(struct mt_writer *writer);
void mt_writer_do_held(struct mt_writer *writer);
/* A message about a request, told to the ledger. */
int mt_writer_do_request(struct mt_writer *writer, struct mt_message *message);

#endif
