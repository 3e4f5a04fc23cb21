/* SPDX-License-Identifier: MIT */
/*
 * The order of a stream. Of each one the last two readings are held back until a third one tells
 * whether the first can be true; nodes of a launch tell of each other when it is whole. The last two
 * have nobody to tell: they are taken for what the one before them was.
 *
 * An end that a later launch of the graph wrote lies behind all begins of this one, and is that of the
 * first nodes at least. Kernels that chain (programmatic dependent launch) may overlap by more than
 * one, but do not reach that far.
 *
 * Invariant: what is held is in order of its begin; times are never changed.
 */
#include "collectors/cupti/serial.h"

#include <stdlib.h>
#include <string.h>

#define N_STREAMS	256u
#define N_HELD		2u
/* So many that run on to the end of a launch are not branches of its graph. */
#define N_WRONG		3u
#define SETTLED_ROUNDS	3u
/* However late the end that it tells. */
#define MOST_ROUNDS	20u

struct stream {
	uint32_t device;
	int64_t stream;
	struct mt_kernel_reading held[N_HELD];
	uint32_t n_held;
	uint32_t n_rounds; /* since one was added */
	int is_overtaken;  /* the last one that was handed over */
};

struct mtc_cupti_serial {
	const struct mt_collector_out *out;
	struct stream streams[N_STREAMS]; /* each at its remainder; another one takes its place */
};

struct mtc_cupti_serial *mtc_cupti_serial_make(const struct mt_collector_out *out)
{
	struct mtc_cupti_serial *serial = calloc(1, sizeof(*serial));

	if (serial)
		serial->out = out;
	return serial;
}

void mtc_cupti_serial_free(struct mtc_cupti_serial *serial)
{
	if (!serial)
		return;
	for (uint32_t i = 0; i < N_STREAMS; i++)
		for (uint32_t j = 0; j < serial->streams[i].n_held; j++)
			free(serial->streams[i].held[j].node_times);
	free(serial);
}

/* ---- readings ---- */

static void hand_over(struct mtc_cupti_serial *serial, struct mt_kernel_reading *reading)
{
	/* The time for its pass to close runs from now on. */
	reading->time_ns = serial->out->now_ns(serial->out->context);
	serial->out->kernel(serial->out->context, reading);
}

/* What other flags say already needs no second reason. */
static void mark(struct mt_kernel_reading *reading, int is_overtaken)
{
	if (is_overtaken && reading->flags == 0)
		reading->flags = MT_TIME_OVERTAKEN;
}

static void empty(struct mtc_cupti_serial *serial, struct stream *stream)
{
	for (uint32_t i = 0; i < stream->n_held; i++) {
		mark(&stream->held[i], stream->is_overtaken);
		hand_over(serial, &stream->held[i]);
	}
	stream->n_held = 0;
	stream->is_overtaken = 0;
}

/* The place of a stream, which may have been another one's. */
static struct stream *stream_of(struct mtc_cupti_serial *serial,
				const struct mt_kernel_reading *reading)
{
	struct stream *stream =
		&serial->streams[((uint64_t)reading->stream + 31ul * reading->device) % N_STREAMS];

	if (stream->device != reading->device || stream->stream != reading->stream) {
		empty(serial, stream);
		stream->device = reading->device;
		stream->stream = reading->stream;
	}
	return stream;
}

/* The first one held goes, now that @last says what it was. */
static void hand_over_first(struct mtc_cupti_serial *serial, struct stream *stream,
			    const struct mt_kernel_reading *last)
{
	struct mt_kernel_reading *first = &stream->held[0];

	stream->is_overtaken = first->end_ns != MT_UNKNOWN && first->end_ns > last->start_ns;
	mark(first, stream->is_overtaken);
	hand_over(serial, first);
}

void mtc_cupti_serial_add(struct mtc_cupti_serial *serial, const struct mt_kernel_reading *reading)
{
	struct mt_kernel_reading sorted[N_HELD + 1];
	struct stream *stream;
	uint32_t at;

	if (reading->start_ns == MT_UNKNOWN || reading->flags & MT_TIME_OUTSIDE) {
		serial->out->kernel(serial->out->context, reading);
		return;
	}
	stream = stream_of(serial, reading);
	stream->n_rounds = 0;
	for (at = stream->n_held; at > 0 && stream->held[at - 1].start_ns > reading->start_ns; at--)
		sorted[at] = stream->held[at - 1];
	sorted[at] = *reading;
	memcpy(sorted, stream->held, at * sizeof(sorted[0]));
	if (stream->n_held < N_HELD) {
		stream->n_held++;
		memcpy(stream->held, sorted, stream->n_held * sizeof(sorted[0]));
		return;
	}
	stream->held[0] = sorted[0];
	hand_over_first(serial, stream, &sorted[N_HELD]);
	memcpy(stream->held, &sorted[1], N_HELD * sizeof(sorted[0]));
}

/* Until the ends that were told have passed one may begin before them. */
static int is_settled(const struct stream *stream, int64_t now_ns)
{
	if (stream->n_rounds > MOST_ROUNDS)
		return 1;
	for (uint32_t i = 0; i < stream->n_held; i++)
		if (stream->held[i].end_ns != MT_UNKNOWN && stream->held[i].end_ns >= now_ns)
			return 0;
	return stream->n_rounds > SETTLED_ROUNDS;
}

void mtc_cupti_serial_settle(struct mtc_cupti_serial *serial, int all)
{
	int64_t now_ns = (int64_t)serial->out->now_ns(serial->out->context);

	for (uint32_t i = 0; i < N_STREAMS; i++) {
		struct stream *stream = &serial->streams[i];

		stream->n_rounds++;
		if (all || is_settled(stream, now_ns))
			empty(serial, stream);
	}
}

/* ---- nodes ---- */

static int by_stream(const void *a, const void *b)
{
	const struct mtc_cupti_node_record *x = a, *y = b;

	if (x->stream != y->stream)
		return x->stream < y->stream ? -1 : 1;
	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return x->node_id < y->node_id ? -1 : x->node_id > y->node_id;
}

/* How many of the nodes of one stream, in order, are said to run still when the last one begins. */
static uint32_t count_behind(const struct mtc_cupti_node_record *nodes, uint32_t n_nodes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i + N_HELD < n_nodes; i++)
		n += nodes[i].end_ns > nodes[n_nodes - 1].start_ns;
	return n;
}

/* The nodes of one stream, in order; *is_forked is set where they seem to be of several branches. */
static uint32_t mark_stream(struct mtc_cupti_node_record *nodes, uint32_t n_nodes, int is_relaunched,
			    int *is_forked)
{
	uint32_t n_behind, n = 0;
	int last;

	/* What has no begin comes first, and tells nothing. */
	while (n_nodes > 0 && !nodes[0].start_ns) {
		nodes++;
		n_nodes--;
	}
	n_behind = count_behind(nodes, n_nodes);
	*is_forked |= n_behind > 0 && n_behind < N_WRONG && !is_relaunched;
	/* So few cannot tell. */
	last = n_nodes <= N_HELD && is_relaunched;
	for (uint32_t i = 0; i < n_nodes; i++) {
		if (i + N_HELD < n_nodes)
			last = nodes[i].end_ns > nodes[n_nodes - 1].start_ns &&
			       (n_behind >= N_WRONG || is_relaunched);
		nodes[i].is_overtaken = last;
		n += last != 0;
	}
	return n;
}

uint32_t mtc_cupti_serial_nodes(struct mtc_cupti_node_record *nodes, uint32_t n_nodes,
				int is_relaunched, int *ret_is_forked)
{
	uint32_t n = 0, i = 1;

	*ret_is_forked = 0;
	/* As a rule they come in order. */
	while (i < n_nodes && by_stream(&nodes[i - 1], &nodes[i]) < 0)
		i++;
	if (i < n_nodes)
		qsort(nodes, n_nodes, sizeof(*nodes), by_stream);
	for (uint32_t first = 0; first < n_nodes; first = i) {
		for (i = first + 1; i < n_nodes && nodes[i].stream == nodes[first].stream; i++)
			;
		n += mark_stream(&nodes[first], i - first, is_relaunched, ret_is_forked);
	}
	return n;
}
