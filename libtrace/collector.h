/* SPDX-License-Identifier: MIT */
/*
 * The interface between the recorder and its sources of timings and power. A collector is a table
 * of operations. It runs on a thread of its own, which belongs to the recorder: opened when the
 * first recording starts that wants it, polled while a recording runs, closed with the session.
 * Nothing that it does or fails to do reaches the traced program: it may wait, allocate and make
 * system calls, it never prints, and when it does not come back it is cut off, so nothing that
 * it was given may be relied on after a call has lasted for seconds.
 */
#ifndef MT_COLLECTOR_H
#define MT_COLLECTOR_H

#include <stddef.h>
#include <stdint.h>

/* A number that the source does not tell. */
#define MT_UNKNOWN INT64_MIN

enum mt_collector_state {
	MT_COLLECTOR_ON = 0,
	MT_COLLECTOR_ABSENT = 1,      /* nothing of the kind on this machine */
	MT_COLLECTOR_DENIED = 2,      /* no permission */
	MT_COLLECTOR_BUSY = 3,        /* another tool has it */
	MT_COLLECTOR_UNSUPPORTED = 4, /* there, but it does not tell */
	MT_COLLECTOR_FAILED = 5,
	MT_COLLECTOR_HUNG = 6,        /* set by the recorder alone */
};

#define MT_MODE_BYTES 32u

/* What was found. */
struct mt_collector_report {
	enum mt_collector_state state;
	char version[64];  /* of the library behind it; "": none */
	char mode[MT_MODE_BYTES]; /* "": it has one way */
	char reason[256];  /* why it is not on, or what it lacks, and what to do; "": nothing */
};

/* A reading of power; what is not told is MT_UNKNOWN. */
struct mt_power_reading {
	uint32_t device;      /* of mt_collector_out.device() */
	uint8_t is_buffer;    /* a sample that the driver had kept: instant_mw alone */
	char domain[32];
	uint64_t time_ns;     /* session clock */
	int64_t instant_mw;
	int64_t average_mw;
	int64_t energy_mj;    /* never falls */
	int64_t limit_mw;
	int64_t throttle_reasons;
	int64_t processor_mhz;
	int64_t memory_mhz;
	int64_t temperature_c;
	int64_t cost_ns;
};

struct mt_link_reading {
	uint32_t device;
	uint64_t time_ns;
	int64_t pcie_generation;
	int64_t pcie_width;
	int64_t nvlinks;
	int64_t active_nvlinks;
};

struct mt_host_reading {
	uint64_t time_ns;
	int64_t process_cpu_ns;
	int64_t recorder_cpu_ns;
	int64_t n_threads;
	int64_t resident_bytes;
};

/* Clocks that are compared with the session's. */
enum mt_clock_kind { MT_CLOCK_CUPTI = 0, MT_CLOCK_GPU_TIMER = 1, MT_N_CLOCKS };

/* Reads a clock in ns; 0: it cannot be read. */
typedef uint64_t mt_clock_read_fn(void *reader);

struct mt_clock_reading {
	uint32_t device; /* whose clock it is; MT_NO_DEVICE: one of the host */
	uint32_t clock;  /* enum mt_clock_kind */
	uint64_t session_ns;
	uint64_t clock_ns;
	uint64_t uncertainty_ns; /* the two lie within this of each other */
};

/* What is wrong with the times of a kernel; as kernel.flags. */
#define MT_TIME_UNSTAMPED  1u
#define MT_TIME_REVERSED   2u
#define MT_TIME_OUTSIDE    4u
#define MT_TIME_UNLAUNCHED 8u
#define MT_TIME_UNENDED    16u
#define MT_TIME_OVERTAKEN  32u

/*
 * What a runtime said of what it launches, in a word: 1 << 63 if it said anything, the model's
 * number << 32, role << 16, layer index. Where it said nothing the model is that of the pass. 1 << 62
 * if the launch is tied to its pass by nothing but time.
 */
#define MT_MARK_SET	 (UINT64_C(1) << 63)
#define MT_MARK_BY_TIME	 (UINT64_C(1) << 62)
#define MT_MARK_NO_LAYER 0xffffu
#define MT_MARK_NO_ROLE	 0xffu /* what the name says */

static inline uint64_t mt_mark(uint64_t is_set, uint32_t model, uint32_t role, uint32_t layer_index)
{
	return is_set | (uint64_t)model << 32 | (uint64_t)role << 16 | layer_index;
}

static inline uint32_t mt_mark_model(uint64_t mark)
{
	return (uint32_t)(mark >> 32) & 0xffff;
}

static inline uint32_t mt_mark_role(uint64_t mark)
{
	return (uint32_t)(mark >> 16) & 0xff;
}

static inline uint32_t mt_mark_layer(uint64_t mark)
{
	return (uint32_t)mark & 0xffff;
}

/* How pass and layer are known; as kernel.known_by. */
enum mt_known_by {
	MT_KNOWN_TOLD = 0,
	MT_KNOWN_CORRELATION = 1,
	MT_KNOWN_NODE = 2,
	MT_KNOWN_ORDER = 3,
	MT_KNOWN_TIME = 4,
};

#define MT_NO_BRANCH UINT32_MAX

/* A node of a graph of kernels. */
struct mt_graph_node {
	uint64_t source_node; /* the source's number */
	uint32_t name;        /* of mt_collector_out.name() */
	uint32_t known_by;    /* enum mt_known_by: how the mark's layer is known */
	uint64_t mark;
	uint32_t branch;      /* those of one run one after the other; MT_NO_BRANCH: not known */
	int32_t shape[9];     /* grid, block, registers, static and dynamic shared bytes */
};

/* A length of time that the source itself took from the program. */
struct mt_overhead_reading {
	uint64_t time_ns;  /* when it was read */
	int64_t start_ns;  /* session clock */
	int64_t end_ns;
	int64_t correlation; /* 0: of no launch */
	const char *kind;  /* as collector_overhead.kind; a literal */
};

/* A kernel, or a launch of a whole graph. */
struct mt_kernel_reading {
	uint32_t device;
	uint8_t is_graph;
	uint8_t is_sampled; /* it is left out if its pass was not seen as a whole */
	uint64_t time_ns;  /* when it was read */
	int64_t start_ns;  /* session clock; MT_UNKNOWN: not told */
	int64_t end_ns;
	uint32_t flags;
	uint32_t name;     /* of mt_collector_out.name(); not of a graph */
	int64_t stream;
	int64_t correlation;
	int32_t shape[9];  /* as mt_graph_node's; not of a graph */
	uint64_t pass;     /* number of the pass that it was launched in; 0: none, or not known */
	uint64_t n_begun;   /* writer: see mt_ties_pass_is_on_its_way() */
	uint64_t closed_ns; /* writer: when it was first seen that the pass is not open; 0: it was */
	uint64_t mark;     /* of the launch */
	uint32_t graph;    /* of mt_collector_out.graph(); 0: its nodes are not known */
	uint32_t n_nodes;
	uint32_t n_untimed;   /* nodes among them whose times are not known, or not true */
	uint32_t *node_times; /* [n_nodes][2] as graph_launch's; allocated, and handed over with it */
};

/* Passes that there ever were. */
struct mt_pass_counts {
	uint64_t n_begun;
	uint64_t n_ended;
	uint64_t n_whole; /* records were on from the begin to the end */
};

/* Passes that had begun on each GPU at some moment. */
#define MT_MAX_GPUS 16u
struct mt_gpu_passes {
	uint64_t n_begun[MT_MAX_GPUS];
};

/* The device that stands for the host's processors. */
#define MT_DEVICE_HOST 0u
#define MT_NO_DEVICE UINT32_MAX

/* Where a collector puts what it reads. Valid as long as the collector is open. */
struct mt_collector_out {
	void *context;
	uint64_t (*now_ns)(void *context); /* session clock */
	/* When on the session's clock CLOCK_REALTIME had this value; 0: not known. */
	uint64_t (*from_realtime)(void *context, uint64_t realtime_ns);
	/*
	 * Compare a clock with the session's now; about once a second that becomes a row of
	 * device_clock. Times that lie between two comparisons are converted best.
	 */
	void (*compare_clock)(void *context, uint32_t device, enum mt_clock_kind clock,
			      mt_clock_read_fn *read, void *reader);
	/* When on the session's clock a clock that was compared had this value; 0: not known. */
	uint64_t (*from_clock)(void *context, enum mt_clock_kind clock, uint64_t clock_ns);
	/* The version of something, such as the driver; it is stored with the file. */
	void (*version)(void *context, const char *what, const char *version);
	/* The number of a GPU by the vendor's unique id; MT_NO_DEVICE: there are too many. */
	uint32_t (*gpu)(void *context, const char *uuid, const char *name);
	/* Whether the program uses the GPU, or is not known to use one. */
	int (*wants_gpu)(void *context, const char *uuid);
	void (*power)(void *context, const struct mt_power_reading *reading);
	void (*link)(void *context, const struct mt_link_reading *reading);
	void (*host)(void *context, const struct mt_host_reading *reading);
	/* Waits a while where the list is full. */
	void (*kernel)(void *context, const struct mt_kernel_reading *reading);
	void (*overhead)(void *context, const struct mt_overhead_reading *reading);
	/* The number of a graph's nodes, which are copied; 0: there are too many, or no memory. */
	uint32_t (*graph)(void *context, const struct mt_graph_node *nodes, uint32_t n_nodes);
	/* From now on it is noted what launches belong to, or no longer. */
	void (*ask)(void *context, int is_asked);
	/*
	 * Of a thread of the program, called on it in the middle of a launch into @stream, or while a
	 * node is made: its pass and what was said of it. Plain loads. 0: none, or nothing.
	 */
	uint64_t (*pass_of)(void *context, uintptr_t stream, uint64_t *ret_mark);
	uint64_t (*mark_of)(void *context);
	/* Layers with experts of a model; 0: there is no such model. */
	uint32_t (*n_layers)(void *context, uint32_t model);
	/* Records are on, or are about to be off: passes that lie between are whole. */
	void (*set_on)(void *context, int is_on);
	void (*count_passes)(void *context, struct mt_pass_counts *ret_counts);
	/*
	 * What has begun on GPUs by now; and whether all of that has come to its end there, and its rows to
	 * the host. A pass that the host has ended may run on its GPU for long.
	 */
	void (*gpu_passes)(void *context, struct mt_gpu_passes *ret_passes);
	int (*gpu_passes_are_through)(void *context, const struct mt_gpu_passes *passes);
	/* The number of an operation's name, with a role (enum moetrace_kernel_role); 0: no memory. */
	uint32_t (*name)(void *context, const char *name, uint32_t role, uint32_t moves_data);
	/* Records that the source itself lost; MT_UNKNOWN: it cannot say, from now on. */
	void (*dropped)(void *context, int64_t n);
};

/* A place of a collector with its end: longer ones are refused, never cut. */
#define MT_PLACE_BYTES 1024u

/* Where a collector looks; never NULL. Tests and unusual systems set others. */
struct mt_collector_places {
	const char *proc;     /* /proc */
	const char *powercap; /* /sys/class/powercap */
	const char *nvml;     /* libnvidia-ml.so.1 */
	const char *cupti;    /* "": where it usually is */
	const char *cupti_mode; /* see docs/collectors.md */
	const char *kernel_roles; /* the same; "": none */
};

struct mt_collector_ops {
	const char *name;
	uint64_t interval_ns; /* time between two polls, at least 100 ms */
	int is_early;         /* opened with the session, which waits for it */
	/* Whether a text behind NAME= in a list is a way to ask it. NULL: it has one way. */
	int (*is_mode)(const char *mode);
	const char *modes; /* these, for people; NULL: it has one way */
	/*
	 * Whether it can follow what its own places are set to: before it is opened, also where nobody
	 * asks for it. 0: no, and which variable it is, and what to do. NULL: it has none.
	 */
	int (*check)(const struct mt_collector_places *places, char *ret_why, size_t why_bytes);
	/*
	 * Look for the source and get ready. The report is filled whatever comes of it; with
	 * another state than ON nothing is open. @out and @places outlive the collector.
	 */
	void (*open)(const struct mt_collector_places *places, const struct mt_collector_out *out,
		     void **ret_collector, struct mt_collector_report *ret_report);
	/* A recording begins: what is said once a recording is to be said again. NULL: nothing. */
	void (*begin)(void *collector);
	/* A recording has ended: take what is still on its way. NULL: nothing. */
	void (*rest)(void *collector);
	/* Read once. Another state than ON ends it, for the reason in the report. */
	void (*poll)(void *collector, struct mt_collector_report *report);
	void (*close)(void *collector);
};

/* A tool of the user's that also gets ranges; collectors/nvtx. */
struct mt_range_tool_ops {
	/* Off the hot path: does one listen? Everything else is called only if so. */
	int (*open)(void);
	/* Off the hot path: the handle of a name. */
	void *(*name)(const char *name);
	/* On it, from any thread; a range may end on another one. */
	uint64_t (*begin)(void *name, uint64_t payload);
	void (*end)(uint64_t range);
	void (*mark)(void *name, uint64_t payload);
};
extern const struct mt_range_tool_ops mtc_range_tool;

/* All collectors that this library has, ending with NULL; collectors/registry.c. */
extern const struct mt_collector_ops *const mtc_registry[];

#endif
