/* SPDX-License-Identifier: MIT */
/*
 * A trace as the viewer reads it: a few connections that can do nothing but read it. What SQL may
 * do is decided by an authorizer and by limits, not by looking at its text; how long it may take by
 * a deadline, which ends it also when whoever asked has gone, or the server ends. Names, ids and
 * texts that --redact leaves out read as NULL, whoever asks.
 */
#ifndef MT_VIEWER_SOURCE_H
#define MT_VIEWER_SOURCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/stat.h>

#include <sqlite3.h>

/* Questions at once; one connection more is there for how the trace is. */
#define MT_SOURCE_QUESTIONS 5
#define MT_SOURCE_CONNECTIONS (MT_SOURCE_QUESTIONS + 1)
#define MT_STATE_VERSION_BYTES 128

struct mt_redacted;
struct mt_source;
struct mt_timeline;

/* How far a question is that is being answered (progress.h). */
struct mt_progress {
	char question[32]; /* "": none; this and the plain numbers are under the source's lock */
	int64_t begin_ns, first_pass_id, last_pass_id;
	int n_parts;
	_Atomic int part; /* the statement that runs, from 1 */
	_Atomic int64_t pass_id; /* read last; 0: none */
};

/* A connection in use by one thread. */
struct mt_source_run {
	sqlite3 *db;
	struct mt_source *source;
	int64_t deadline_ns; /* CLOCK_MONOTONIC */
	int peer_fd;	     /* -1: nobody who could go away */
	bool is_of_user;     /* the statement was written by the user */
	struct mt_redacted *redacted; /* NULL: nothing is left out */
	struct mt_progress *progress; /* NULL: nobody would ask how far it is */
	enum { MT_RUN_GOES_ON, MT_RUN_TIMED_OUT, MT_RUN_PEER_GONE, MT_RUN_STOPPED } state;
};

struct mt_source {
	char *path, *name, *uri;
	bool is_live, is_redacted;
	int64_t writer_pid; /* 0: not known */
	dev_t device;	    /* of the file that was opened first, as is the inode */
	ino_t inode;	    /* every connection is to it */
	const atomic_bool *stops;
	pthread_mutex_t lock; /* protects the six below */
	char version[MT_STATE_VERSION_BYTES]; /* once nobody writes it any more; "": that is not yet so */
	pthread_cond_t is_free;
	struct mt_source_run *idle[MT_SOURCE_CONNECTIONS];
	size_t n_idle, n_open;
	struct mt_progress progress[MT_SOURCE_QUESTIONS];
	pthread_mutex_t timeline_lock; /* protects the one below, while it is read or answers */
	struct mt_timeline *timeline;  /* of the recording asked for last; NULL: none yet */
};

/* CLOCK_MONOTONIC, as deadlines are. */
int64_t mt_source_now_ns(void);

struct mt_view_file;

/* What of the file at the source's path is not as it was opened. */
enum mt_source_change {
	MT_SOURCE_SAME,
	MT_SOURCE_DELETED,
	MT_SOURCE_REPLACED, /* another file has its name */
	MT_SOURCE_CHANGED,  /* written into after its recorder had ended, or there was none */
};

/* *ret_version tells of all that a commit or a checkpoint changes; "" where there is no file. */
enum mt_source_change mt_source_look(struct mt_source *source, char ret_version[MT_STATE_VERSION_BYTES]);
/* What to tell whoever asks; NULL: it is the same. */
const char *mt_source_change_text(enum mt_source_change change);
/* Whether the one that wrote the file when it was opened lives. */
bool mt_source_has_writer(const struct mt_source *source);

/* @stops is looked at while SQL runs. Returns whether there was memory. */
bool mt_source_init(struct mt_source *source, const struct mt_view_file *file, bool is_redacted,
		    const atomic_bool *stops);
/* Nothing may be in use any more. */
void mt_source_destroy(struct mt_source *source);

/**
 * Take a connection, waiting until one is free.
 *
 * Returns NULL: it could not be opened, none became free in time, or the file is not the one that was
 * opened first, of which mt_source_look() tells.
 */
struct mt_source_run *mt_source_take(struct mt_source *source, uint32_t limit_ms, int peer_fd);
/* The same of the one that questions leave free, for what is over at once and must not wait for them. */
struct mt_source_run *mt_source_take_spare(struct mt_source *source, uint32_t limit_ms);
/*
 * Give it back. One to a trace that is being recorded is closed: the recorder ends without waiting for
 * readers that are there for nothing.
 */
void mt_source_return(struct mt_source_run *run);

#endif
