/* SPDX-License-Identifier: MIT */
/*
 * The API as a table of functions, so that the same test runs on a linked library and on one
 * that was opened with dlopen(RTLD_NOW | RTLD_LOCAL), as a plugin's host would.
 */
#ifndef TEST_API_H
#define TEST_API_H

#include <moetrace/moetrace.h>

#define API_FUNCTIONS(X)  \
	X(session_open)   \
	X(open_errmsg)    \
	X(session_close)  \
	X(start)          \
	X(stop)           \
	X(flush)          \
	X(status)         \
	X(model_add)      \
	X(request_begin)  \
	X(request_end)    \
	X(request_reuse)  \
	X(request_retract) \
	X(expert_map_set) \
	X(region_disable) \
	X(region_enable)  \
	X(expert_load)    \
	X(dispatch)       \
	X(pass_accept)    \
	X(pass_number)    \
	X(pass_begin)     \
	X(select_experts) \
	X(kernel_name_add) \
	X(clock_ns)       \
	X(pass_kernels)   \
	X(range_name_add) \
	X(range_push)     \
	X(range_pop)      \
	X(pass_end)

struct api {
#define API_MEMBER(name) __typeof__(moetrace_##name) *name;
	API_FUNCTIONS(API_MEMBER)
#undef API_MEMBER
};

/*
 * The table. NULL: this program opens the library at run time and there is none (built without
 * a shared library).
 */
const struct api *api_get(void);

#endif
