/* SPDX-License-Identifier: MIT */
/*
 * Libraries that are opened at run time, looked at before the loader opens them. It holds its lock
 * meanwhile, so that a pipe without a writer would stop the whole program, and it maps what the
 * program headers tell of, so that a file that is cut short would end it. So whatever is opened at
 * run time is opened here, and what others open by themselves is looked at here before.
 */
#ifndef MT_COMMON_LIBRARY_H
#define MT_COMMON_LIBRARY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mt_library_state {
	MT_LIBRARY_FOUND,
	MT_LIBRARY_MISSING, /* it is nowhere */
	MT_LIBRARY_WRONG,   /* it is there, and cannot be opened */
};

/*
 * Look for a library as the loader would, without opening it: @name is a path, or a name without a
 * slash. Unless it is found, @ret_why says in one line which file is wrong and how; that is ""
 * where nothing is there. What is loaded already is found without a look at files.
 */
enum mt_library_state mt_library_look(const char *name, char *ret_why, size_t why_bytes);

/*
 * Open it with dlopen()'s @flags. Unless it is found, @ret_why says why not and @ret_library stays
 * as it is.
 */
enum mt_library_state mt_library_open(const char *name, int flags, void **ret_library,
				      char *ret_why, size_t why_bytes);

/*
 * The path by which a library is loaded whose file is called @name; returns whether one is. Opened
 * by that path, no file is read.
 */
int mt_library_loaded(const char *name, char *ret_path, size_t path_bytes);

/* ---- where the loader looks, for library.c and its test ---- */

/* Returns whether the walk ends here. */
typedef int mt_library_visit_fn(void *context, const char *path);

/* Each path at which the loader looks for @name, in its order, as far as it tells. */
void mt_library_walk(const char *name, mt_library_visit_fn *visit, void *context);

/* Those of a cache file of glibc's loader; returns whether the walk has ended. */
int mt_library_walk_cache(const char *cache_path, const char *name, mt_library_visit_fn *visit,
			  void *context);

#ifdef __cplusplus
}
#endif

#endif
