/* SPDX-License-Identifier: MIT */
/*
 * The part of CUPTI's activity interface that is used, declared from its documented interface, so that
 * neither its header nor the library is needed to build. Records only ever grew at their end: what is
 * declared of them is the beginning that versions from 11.1 on have in common.
 */
#ifndef MTC_CUPTI_API_H
#define MTC_CUPTI_API_H

#include <stddef.h>
#include <stdint.h>

/* Results. */
#define MTC_CUPTI_OK			0
#define MTC_CUPTI_MAX_LIMIT_REACHED	12 /* no further record; or, of old versions, another subscriber */
#define MTC_CUPTI_MULTIPLE_SUBSCRIBERS	39

/* Kinds of records. */
#define MTC_CUPTI_CONCURRENT_KERNEL 10u
#define MTC_CUPTI_OVERHEAD	    17u
#define MTC_CUPTI_GRAPH_TRACE	    51u

/* Callbacks: domains, and of each the ids that are used. */
#define MTC_CUPTI_DOMAIN_DRIVER	  1
#define MTC_CUPTI_DOMAIN_RESOURCE 3
#define MTC_CUPTI_LAUNCH_KERNEL	      307u
#define MTC_CUPTI_LAUNCH_KERNEL_PTSZ  442u
#define MTC_CUPTI_LAUNCH_COOPERATIVE  477u
#define MTC_CUPTI_LAUNCH_COOPERATIVE_PTSZ 478u
#define MTC_CUPTI_LAUNCH_GRAPH	      514u
#define MTC_CUPTI_LAUNCH_GRAPH_PTSZ   515u
#define MTC_CUPTI_LAUNCH_KERNEL_EX    652u
#define MTC_CUPTI_LAUNCH_KERNEL_EX_PTSZ 653u
#define MTC_CUPTI_NODE_CREATED	      13u
#define MTC_CUPTI_NODE_CLONED	      20u

/* Versions: from the first on a request for a buffer may be declined, from the other on records of
 * overhead name a launch and may own memory. */
#define MTC_CUPTI_MAY_DECLINE	27u
#define MTC_CUPTI_OVERHEAD_DATA 130000u

/* Attributes, each a size_t. */
#define MTC_CUPTI_POOL_LIMIT   2u /* buffers that it may make on a device */
#define MTC_CUPTI_ZEROED_OUT   5u /* buffers that it is given are zero, as a byte */

/* A flush that also returns what has not ended, with an end of 0; it is never delivered again. */
#define MTC_CUPTI_FLUSH_FORCED 1u

struct mtc_cupti_kernel {
	uint32_t kind;
	uint8_t cache_config;
	uint8_t shared_memory_config;
	uint16_t registers;
	uint32_t cache_requested;
	uint32_t cache_executed;
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t completed_ns;
	uint32_t device;
	uint32_t context;
	uint32_t stream;
	int32_t grid[3];
	int32_t block[3];
	int32_t static_shared_bytes;
	int32_t dynamic_shared_bytes;
	uint32_t local_thread_bytes;
	uint32_t local_bytes;
	uint32_t correlation;
	int64_t grid_id;
	const char *name;
	void *reserved;
	uint64_t queued_ns;
	uint64_t submitted_ns;
	uint8_t launch_type;
	uint8_t carveout[3];
	uint32_t shared_executed_bytes;
	uint64_t graph_node;
	uint32_t shared_limit_config;
	uint32_t graph;
};

struct mtc_cupti_graph {
	uint32_t kind;
	uint32_t correlation;
	uint64_t start_ns;
	uint64_t end_ns;
	uint32_t device;
	uint32_t graph;
	uint32_t context;
	uint32_t stream;
};

struct mtc_cupti_overhead {
	uint32_t kind;
	uint32_t overhead;
	uint32_t object;
	uint32_t object_id[3];
	uint64_t start_ns;
	uint64_t end_ns;
	/* Of versions that have it. */
	uint32_t correlation;
	uint32_t reserved;
	void *data; /* allocated: the client frees it */
};

/* What callbacks are given: of calls, of things that are made, and of the latter graphs. */
struct mtc_cupti_call {
	int32_t is_exit;
	const char *function;
	const void *parameters;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_id;
	uint64_t *own;
	uint32_t correlation;
};

struct mtc_cupti_resource {
	void *context;
	void *handle;
	const void *description;
};

struct mtc_cupti_node {
	void *graph;
	void *original_graph;
	void *node;
	void *original_node;
	int32_t type; /* 0: a kernel */
	void *dependency;
	void *executable;
};

/* Parameters of the launches. */
struct mtc_cupti_launch_kernel {
	void *function;
	uint32_t shape[7];
	void *stream;
};

struct mtc_cupti_launch_config {
	uint32_t shape[7];
	void *stream;
};

struct mtc_cupti_launch_ex {
	const struct mtc_cupti_launch_config *config;
};

struct mtc_cupti_launch_graph {
	void *executable;
	void *stream;
};

/* Who subscribes; where somebody else has, that one's name is written. */
struct mtc_cupti_subscriber {
	size_t struct_bytes;
	const char *name;
	char *ret_other;
	size_t other_bytes; /* 64 at least */
};

typedef void mtc_cupti_requested_fn(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_n_max);
typedef void mtc_cupti_completed_fn(void *context, uint32_t stream, uint8_t *buffer, size_t n_bytes,
				    size_t valid_bytes);
typedef void mtc_cupti_callback_fn(void *context, int domain, uint32_t id, const void *data);

struct mtc_cupti {
	void *library;
	int (*version)(uint32_t *ret_version);
	int (*result_string)(int result, const char **ret_text);
	int (*subscribe)(void **ret_subscriber, mtc_cupti_callback_fn *callback, void *context);
	int (*unsubscribe)(void *subscriber);
	int (*register_callbacks)(mtc_cupti_requested_fn *requested,
				  mtc_cupti_completed_fn *completed);
	int (*enable)(uint32_t kind);
	int (*disable)(uint32_t kind);
	int (*flush)(uint32_t flags);
	int (*next_record)(uint8_t *buffer, size_t valid_bytes, void **record);
	int (*dropped)(void *context, uint32_t stream, size_t *ret_n);
	int (*set_attribute)(uint32_t attribute, size_t *value_bytes, void *value);
	int (*timestamp)(uint64_t *ret_ns);
	int (*enable_callback)(uint32_t is_on, void *subscriber, int domain, uint32_t id);
	/* NULL: versions before 13.0 do not tell who else has subscribed. */
	int (*subscribe_named)(void **ret_subscriber, mtc_cupti_callback_fn *callback, void *context,
			       struct mtc_cupti_subscriber *subscriber);
	int (*node_id)(void *node, uint64_t *ret_id); /* NULL: versions before 11.1 have none */
	uint32_t version_number;
};

/*
 * Open the library: the one named, or with NULL the first of the usual names. 0, or -1 with what is
 * missing in @ret_error, of @error_bytes. It is never closed again, since CUPTI keeps pointers into us.
 */
int mtc_cupti_open(const char *path, struct mtc_cupti *ret_cupti, char *ret_error, int error_bytes);

#endif
