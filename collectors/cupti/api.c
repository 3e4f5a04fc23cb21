/* SPDX-License-Identifier: MIT */
/*
 * CUPTI's functions by name.
 */
#include "collectors/cupti/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "common/library.h"

#define WHY_BYTES 160

_Static_assert(offsetof(struct mtc_cupti_kernel, start_ns) == 16, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_kernel, correlation) == 92, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_kernel, name) == 104, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_kernel, graph_node) == 144, "the library's layout");
_Static_assert(sizeof(struct mtc_cupti_kernel) == 160, "the library's layout");
_Static_assert(sizeof(struct mtc_cupti_graph) == 40, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_overhead, start_ns) == 24, "the library's layout");
_Static_assert(sizeof(struct mtc_cupti_overhead) == 56, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_call, correlation) == 64, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_node, type) == 32, "the library's layout");
_Static_assert(sizeof(struct mtc_cupti_subscriber) == 32, "the library's layout");
_Static_assert(offsetof(struct mtc_cupti_launch_kernel, stream) == 40, "the driver's layout");
_Static_assert(offsetof(struct mtc_cupti_launch_config, stream) == 32, "the driver's layout");

struct entry {
	size_t offset;
	const char *name;
	int is_optional;
};

#define ENTRY(member, name) { offsetof(struct mtc_cupti, member), name, 0 }

static const struct entry entries[] = {
	ENTRY(version, "cuptiGetVersion"),
	ENTRY(result_string, "cuptiGetResultString"),
	ENTRY(subscribe, "cuptiSubscribe"),
	ENTRY(unsubscribe, "cuptiUnsubscribe"),
	ENTRY(register_callbacks, "cuptiActivityRegisterCallbacks"),
	ENTRY(enable, "cuptiActivityEnable"),
	ENTRY(disable, "cuptiActivityDisable"),
	ENTRY(flush, "cuptiActivityFlushAll"),
	ENTRY(next_record, "cuptiActivityGetNextRecord"),
	ENTRY(dropped, "cuptiActivityGetNumDroppedRecords"),
	ENTRY(set_attribute, "cuptiActivitySetAttribute"),
	ENTRY(timestamp, "cuptiGetTimestamp"),
	ENTRY(enable_callback, "cuptiEnableCallback"),
	{ offsetof(struct mtc_cupti, subscribe_named), "cuptiSubscribe_v2", 1 },
	{ offsetof(struct mtc_cupti, node_id), "cuptiGetGraphNodeId", 1 },
};

/* The first of several that is to be had; what is wrong with one is said before that one is missing. */
static enum mt_library_state open_library(const char *path, void **ret_library, char *ret_why,
					  size_t why_bytes)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so",
					     "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so" };
	enum mt_library_state state, first = MT_LIBRARY_MISSING;
	char why[WHY_BYTES];

	if (path && *path)
		return mt_library_open(path, RTLD_NOW | RTLD_LOCAL, ret_library, ret_why, why_bytes);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		state = mt_library_open(names[i], RTLD_NOW | RTLD_LOCAL, ret_library, why,
					sizeof(why));
		if (state == MT_LIBRARY_FOUND)
			return state;
		if (first == MT_LIBRARY_MISSING) {
			first = state;
			snprintf(ret_why, why_bytes, "%s", why);
		}
	}
	return first;
}

int mtc_cupti_open(const char *path, struct mtc_cupti *ret_cupti, char *ret_error, int error_bytes)
{
	enum mt_library_state state;
	char why[WHY_BYTES];

	memset(ret_cupti, 0, sizeof(*ret_cupti));
	state = open_library(path, &ret_cupti->library, why, sizeof(why));
	if (state != MT_LIBRARY_FOUND) {
		snprintf(ret_error, (size_t)error_bytes, "%s: %s",
			 state == MT_LIBRARY_WRONG ? "CUPTI cannot be opened" : "no CUPTI", why);
		return -1;
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *symbol = dlsym(ret_cupti->library, entries[i].name);

		if (!symbol && !entries[i].is_optional) {
			snprintf(ret_error, (size_t)error_bytes, "no CUPTI: it has no %s",
				 entries[i].name);
			dlclose(ret_cupti->library);
			return -1;
		}
		/* A function's address as data, which POSIX allows and C does not spell. */
		memcpy((char *)ret_cupti + entries[i].offset, &symbol, sizeof(symbol));
	}
	if (ret_cupti->version(&ret_cupti->version_number) != MTC_CUPTI_OK)
		ret_cupti->version_number = 0;
	return 0;
}
