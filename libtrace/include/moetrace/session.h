/* SPDX-License-Identifier: MIT */
/*
 * Sessions and recordings. A session is one trace file, the rings that the hot path writes
 * into and the thread that empties them. A recording is what lies between start and stop.
 *
 *   idle -> moetrace_start -> recording -> moetrace_stop -> idle ...
 *
 * Threads: every call may be made from any thread at any time, except that nothing may be
 * called on a session once moetrace_session_close() has begun. None of the calls of this
 * header but moetrace_region_disable() and moetrace_region_enable() belongs to the hot path: the
 * others may allocate, lock and wait for the disk, moetrace_flight_trigger() excepted.
 * After fork() the child's copy of a session records nothing; the child may only close it,
 * which then frees memory and leaves the parent's file alone.
 *
 * Points in time of a session, here and in its file (columns *_ns), are of the session's clock:
 * nanoseconds since the session was opened, by CLOCK_MONOTONIC.
 */
#ifndef MOETRACE_SESSION_H
#define MOETRACE_SESSION_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

struct moetrace_session; /* opaque */

/* A rank among ranks, e.g. 3 of 8. Part of the options: no MOETRACE_INIT() for it alone. */
struct moetrace_rank {
	uint32_t rank;    /* from 0, below n_ranks */
	uint32_t n_ranks; /* 0: the runtime does not say (stored as NULL), and rank is ignored */
};

/* How weights are narrowed for storage; see moetrace_selection.weights. */
enum moetrace_weight_format {
	MOETRACE_WEIGHT_FORMAT_FP16 = 0, /* the default: 11 bits, from 6e-8 to 65504 */
	MOETRACE_WEIGHT_FORMAT_BF16 = 1, /* 8 bits, the range of fp32 */
	MOETRACE_WEIGHT_FORMAT_NONE = 2, /* weights are not stored */
};

struct moetrace_session_opts {
	size_t size;                 /* set by MOETRACE_INIT() */
	const char *session_name;    /* shown by tools; NULL: the program's name */
	const char *engine_name;     /* e.g. "my-runtime"; NULL: unknown */
	const char *engine_version;  /* NULL: unknown */
	struct moetrace_rank tp;     /* tensor parallel */
	struct moetrace_rank pp;     /* pipeline parallel */
	struct moetrace_rank ep;     /* expert parallel */
	struct moetrace_rank dp;     /* data parallel */
	uint32_t weight_format;      /* enum moetrace_weight_format */
	uint32_t n_rings;            /* passes that can be in flight at once, 1 to 64; 0: 4 */
	uint64_t ring_bytes;         /* memory of each ring, a power of two from 64 KiB to 4 GiB;
	                                0: 32 MiB. A quarter more is made for passes that several
	                                threads hand layers to. All of it is touched at open. One
	                                ring more is touched when a GPU is attached: for passes
	                                that come late from it. */
	uint32_t commit_interval_ms; /* time between commits, 10 to 10000; 0: 200 */
	uint32_t stop_timeout_ms;    /* what moetrace_stop() waits for passes in flight; 0: 2000 */
	uint64_t file_limit_bytes;   /* the recording ends (end_reason 'file_limit') before file and
	                                journal grow past this, at least 1 MiB; 0: the smaller of
	                                10 GiB and half of the free space of its file system at open */
	uint64_t window_ns;          /* length of the windows of expert_load, at least 1 ms; it doubles
	                                whenever a recording would pass 500 000 rows of them; 0: 10 s */
	struct moetrace_rank world;  /* this process among all of the run; in the socket's name, and %r */
	const char *socket_dir;      /* existing folder for the control socket; "none": no socket;
	                                NULL: $XDG_RUNTIME_DIR/moetrace, else /tmp/moetrace-UID */
	uint64_t experts_window_bytes; /* memory that keeps the ids of the last passes for
	                                moetrace_request_routed_experts(); 0: none, it reads the file */
	uint64_t rotate_bytes;       /* go on in another file when this one is as large, at least
	                                1 MiB; 0: never. See moetrace_rotate(). */
	uint64_t rotate_ns;          /* or when it has been recorded into for so long; 0: never */
	const char *collectors;      /* sources of power and the like that are read while a recording
	                                runs, a list such as "host,rapl,nvml" (docs/collectors.md);
	                                NULL or "none": no sources. What is not there is no error:
	                                table collector says so. */
};

/**
 * Open a session that records into a new file, and its control socket (docs/control.md), through
 * which `moetrace list|status|start|stop` reach it. Why there is no socket, if it could not be
 * made, is in table diagnostic; the session works without.
 *
 * The environment wins over @path and @opts:
 *   MOETRACE_OUTPUT      the file; %h is the host's name, %p the process id, %r the rank in the
 *                        world, %t the time, %% a per cent sign
 *   MOETRACE_START       1: a recording begins at once; 0: none does. Either takes the place of
 *                        the program's first moetrace_start(), which then succeeds without effect.
 *   MOETRACE_MODE        per_token, per_pass or stat: what recordings keep
 *   MOETRACE_COLLECTORS  list of collectors; none: no collectors
 *   MOETRACE_SOCKET_DIR  folder of the control socket; none: no socket
 *   MOETRACE_DISABLE     1: the session opens without a file, a thread or a socket, and every
 *                        call succeeds as if nothing were recording
 *
 * @path         File to create, taken literally; an existing path is refused. SQLite keeps PATH-wal and
 *               PATH-shm beside it until the session is closed.
 * @opts         NULL: all defaults. Strings are copied.
 * @ret_session  The session, idle; set to NULL on failure.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  a NULL path or ret_session, or an option out of its range
 *          MOETRACE_E_EXISTS   path exists (a directory, too)
 *          MOETRACE_E_IO       the file could not be made; nothing is left behind
 *          MOETRACE_E_NOMEM    the rings could not be made; nothing is left behind
 *          Why in words: moetrace_open_errmsg().
 * Owner    caller; release with moetrace_session_close().
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_session_open(const char *path, const struct moetrace_session_opts *opts,
			  struct moetrace_session **ret_session);

/**
 * Why the calling thread's last moetrace_session_open() failed, as one line without newline.
 *
 * Returns a string that stays valid until this thread calls moetrace_session_open() again;
 * "" if it did not fail.
 */
MOETRACE_API
const char *moetrace_open_errmsg(void);

/**
 * Stop a running recording (end_reason 'closed'), write everything, fold the journal into
 * the file and free the session. Requests still open are stored as unfinished. NULL is fine.
 *
 * If other programs have the file open, it waits up to two seconds for them, then leaves
 * PATH-wal and PATH-shm beside the file, which any reader can still open.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_IO  something could not be written; what was committed is in the file
 *          In either case the session is gone.
 */
MOETRACE_API
int moetrace_session_close(struct moetrace_session *session);

/* What a recording keeps. */
enum moetrace_mode {
	MOETRACE_MODE_PER_TOKEN = 0, /* the experts of every row, with weights */
	MOETRACE_MODE_PER_PASS = 1,  /* how many rows each expert of a layer got, by pass */
	MOETRACE_MODE_STAT = 2,      /* the same by window of time alone: no passes and no requests.
	                                The one to leave on for a month. */
};

/*
 * Sampling: a pass that is left out is in no table and no count, and the positions that it
 * carried make their requests partial ('sampled'). With sample_every_n_requests passes keep their
 * rows of the chosen requests alone and are partial; what pass_layer and expert_load_window say is of
 * all rows still.
 */
struct moetrace_recording_opts {
	size_t size;                /* set by MOETRACE_INIT() */
	const char *routing_source; /* where choices come from: "model", "uniform", ...; NULL: unknown */
	uint32_t mode;              /* enum moetrace_mode */
	uint32_t sample_every_n_passes; /* record the first of every N passes of a model, of those that
	                                sample_phases leaves; 0 or 1: all */
	uint32_t sample_phases;     /* a bit (1u << phase) an enum moetrace_phase of passes to record;
	                               0: all */
	uint32_t sample_every_n_requests; /* keep the rows of every Nth request of the session, from its
	                                first; 0 or 1: all. With mode PER_TOKEN alone. */
	uint64_t flight_bytes;      /* flight mode: keep the last records in so much memory, 1 MiB to
	                                1 TiB, made and touched at start; 0: 256 MiB if flight_seconds is
	                                given, else no flight mode. See moetrace_flight_trigger(). */
	uint32_t flight_seconds;    /* flight mode: and of these only passes that began in the last N
	                                seconds; 0: as many as the memory holds */
};

/**
 * Start a recording. Passes that begin from now on are recorded; requests already open get
 * a row in this recording, too, and their earlier positions count as began_before.
 *
 * @opts  NULL: all defaults.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session is NULL, or an option out of its range
 *          MOETRACE_E_STATE    already recording (nothing is lost or reset), or this is a
 *                              forked child
 *          MOETRACE_E_NOMEM    no memory, that of flight mode included; nothing was started
 *          MOETRACE_E_IO       the session cannot write any more (file limit, disk)
 *          MOETRACE_E_UNSUPPORTED  this version does not have the mode
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts);

/**
 * Stop the recording, wait up to stop_timeout_ms for passes in flight, and commit. Passes
 * still running then are stored as far as they came, as partial ('unended'), and counted as
 * lost (table gap, 'stop_timeout'). One whose thread is held so early in moetrace_pass_begin() that
 * the recording does not know of it yet is counted when that thread goes on: in its recording
 * while the file is the one in force, else in the recording that runs, else by a diagnostic.
 * What is not told before moetrace_session_close() is counted nowhere.
 *
 * @reason  Stored as end_reason; NULL: "stopped".
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session is NULL
 *          MOETRACE_E_STATE    not recording, or this is a forked child
 *          MOETRACE_E_TIMEOUT  stopped, but passes in flight were cut off
 *          MOETRACE_E_IO       stopped, but not everything could be written
 *          MOETRACE_E_NOMEM    stopped, but the writing thread does not know yet
 */
MOETRACE_API
int moetrace_stop(struct moetrace_session *session, const char *reason);

/**
 * Leave out the passes that begin from now on, e.g. during warm-up: they are in no table and no
 * count, and positions that they carried make their requests partial ('disabled'). Nests:
 * recording goes on when as many enables as disables were called. It belongs to the session
 * and outlives start and stop. Belongs to the hot path: it never waits.
 *
 * @session  NULL: nothing happens.
 */
MOETRACE_API
void moetrace_region_disable(struct moetrace_session *session);

/** End a region begun by moetrace_region_disable(). One too many is counted as misuse. */
MOETRACE_API
void moetrace_region_enable(struct moetrace_session *session);

/**
 * Go on in another file: stop and start at one boundary between passes, so that every pass is in
 * one of the two files, whole. The new one has all definitions; requests that are open get a row
 * in it, too, and what was before counts as began_before. The recording in the old file ends with
 * end_reason 'rotated', and that file is closed like at moetrace_session_close().
 *
 * Without a recording the files are changed all the same, and nothing is started. It is also what
 * lets a session record again after its file limit, which is then taken from what is free now
 * unless the options stated one. (With rotate_bytes or rotate_ns, the limit is for all parts
 * together.) And it is what helps after the old file was removed, moved or replaced, which each
 * commit looks for and which ends the recording: a diagnostic of the new file says what that one
 * lacks.
 *
 * @path  The new file, which must not exist; NULL: the first one's with the next free number
 *        before its suffix, as in trace.1.db.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session is NULL, or the path is empty or too long
 *          MOETRACE_E_STATE    this is a forked child
 *          MOETRACE_E_EXISTS   path exists; recording goes on in the old file, in a recording
 *                              of its own, as with each of the following
 *          MOETRACE_E_IO       the new file could not be made
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_TIMEOUT  rotated, but passes in flight were cut off, as by moetrace_stop()
 */
MOETRACE_API
int moetrace_rotate(struct moetrace_session *session, const char *path);

/* Where a snapshot can be read. */
struct moetrace_dump_result {
	size_t size;           /* set by MOETRACE_INIT() */
	uint32_t recording_id; /* the current recording, or the last one */
	uint64_t last_pass_id; /* its last pass in the file; 0: none yet */
	uint64_t commit_ns;    /* the session's clock at that commit */
	char path[4096];       /* the file, absolute */
};

/**
 * Flight mode: have what is kept in memory written.
 *
 * A recording with flight_bytes or flight_seconds keeps the last records in memory, and nothing of
 * them reaches the file before this trigger, moetrace_dump() or moetrace_rotate(). Each of these
 * ends the recording at one boundary between passes: its start_ns is then the begin of the oldest
 * pass that was kept, its end_reason says why it was written, and how many passes were let go
 * before is in table stats (flight_let_go_passes) and in table diagnostic; they are no loss and
 * in no gap. Passes in flight are waited for up to stop_timeout_ms, then cut off as by
 * moetrace_stop(), which is no error here. Requests that began before the kept part are in it as
 * after moetrace_start(). The next recording begins at once, in memory again. moetrace_stop() and
 * moetrace_session_close() let go what was not written: the recording's row alone is left of it.
 *
 * While what was kept is written, the rings hold what comes, and what they cannot hold is counted as
 * lost. rotate_bytes and rotate_ns do nothing in flight mode, and moetrace_request_routed_experts()
 * knows what was written alone.
 *
 * The trigger only leaves a note for the writing thread, which looks every 20 ms: it never waits
 * and may be called from any thread, in the middle of a pass, too; it is not for signal handlers.
 * A trigger before the last one was noticed is one with it. If the recording is stopped before it
 * is noticed, what was kept is written all the same.
 *
 * @reason  Stored as end_reason, cut after 255 bytes; NULL: "trigger".
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session is NULL
 *          MOETRACE_E_STATE    no recording in flight mode is running, or this is a forked child
 */
MOETRACE_API
int moetrace_flight_trigger(struct moetrace_session *session, const char *reason);

/**
 * Commit everything that was handed over before this call, and say where it is. Whoever then reads
 * the file in one transaction sees at least that much, and all of it in step; `moetrace dump
 * SESSION -o FILE` makes a file of one recording this way. Nothing is stopped or reset.
 * In flight mode it first writes what memory holds, as a recording that ends with end_reason
 * 'dump', and says where that is; see moetrace_flight_trigger().
 *
 * @ret_result  Set up with MOETRACE_INIT(); filled on success.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID    NULL, or ret_result->size is not set
 *          MOETRACE_E_NOT_FOUND  nothing was recorded into the file in force yet
 *          MOETRACE_E_STATE      this is a forked child
 *          MOETRACE_E_IO         not everything could be written
 *          MOETRACE_E_TIMEOUT    as moetrace_flush()
 *          MOETRACE_E_NOMEM
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_dump(struct moetrace_session *session, struct moetrace_dump_result *ret_result);

/**
 * Write and commit everything that passes and requests handed over before this call, so
 * that a reader of the file sees it.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session is NULL
 *          MOETRACE_E_STATE    this is a forked child
 *          MOETRACE_E_IO       not everything could be written
 *          MOETRACE_E_TIMEOUT  passes that still run on a GPU are not among it, after waiting
 *                              for them up to stop_timeout_ms
 *          MOETRACE_E_NOMEM
 */
MOETRACE_API
int moetrace_flush(struct moetrace_session *session);

/* What a session is doing. Counters are of the current recording, or of the last one. */
struct moetrace_session_status {
	size_t size;                   /* set by MOETRACE_INIT() */
	uint32_t is_recording;         /* 1: between start and stop */
	uint32_t recording_id;         /* current or last; 0: none yet */
	uint64_t recorded_passes;
	uint64_t recorded_rows;        /* rows without padding */
	uint64_t recorded_assignments; /* rows x layers x experts stored */
	uint64_t dropped_passes;       /* passes lost whole */
	uint64_t dropped_layers;       /* layers lost of recorded passes */
	uint64_t dropped_bytes;
	uint64_t misuse;               /* calls refused as inconsistent; table diagnostic says which */
	uint64_t file_bytes;           /* file and journal */
	uint64_t file_limit_bytes;
	uint64_t ring_bytes;           /* n_rings of them */
	uint64_t ring_peak_bytes;      /* most that was waiting in one ring */
	uint64_t writer_cpu_ns;        /* CPU time of the writing thread in that recording */
	uint64_t ring_fill_bytes;      /* waiting in all rings now */
	uint64_t memory_bytes;         /* rings, and what the store keeps */
	uint64_t recording_ns;         /* since the current recording started; 0: idle */
	uint64_t control_cpu_ns;       /* CPU time of the control socket's thread */
	double passes_per_s;           /* over the last second or two; 0 while idle */
	double rows_per_s;
	double file_bytes_per_s;
	uint32_t is_failed;            /* 1: nothing can be written any more (disk, file
	                                  limit, or the file was removed, moved or replaced) */
	double limit_in_s;             /* until the file limit at that rate; negative: unknown */
	uint64_t flight_bytes;         /* memory of flight mode; 0: none. It is in memory_bytes, too. */
	uint64_t flight_fill_bytes;    /* of which hold records */
	uint64_t flight_passes;        /* kept there now, not yet in the file */
};

/**
 * Read what the session is doing, as of its last commit (drops: as of now).
 *
 * @ret_status  Set up with MOETRACE_INIT(); filled on success. Members that a newer header has
 *              and this library does not know are set to 0.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  NULL, or ret_status->size is not set
 *          MOETRACE_E_STATE    this is a forked child
 */
MOETRACE_API
int moetrace_status(struct moetrace_session *session, struct moetrace_session_status *ret_status);

/**
 * Why the last call that returned an error did, of this session and of any header, as one line
 * without newline; "" if none did, or session is NULL. With several threads: the last of any
 * thread. What the hot path refused is in table diagnostic, and counted in
 * moetrace_session_status.misuse.
 *
 * @buffer        Where to copy it, always ended by a zero byte.
 * @buffer_bytes  Its size; a longer text is cut.
 */
MOETRACE_API
void moetrace_errmsg(struct moetrace_session *session, char *buffer, size_t buffer_bytes);

/** The sentence for a status code; "unknown status" for a number that is none. */
MOETRACE_API
const char *moetrace_status_string(int status);

/** The library's version, e.g. "0.1.0"; MOETRACE_VERSION_STRING is that of the headers. */
MOETRACE_API
const char *moetrace_version(void);

MOETRACE_END_DECLS

#endif
