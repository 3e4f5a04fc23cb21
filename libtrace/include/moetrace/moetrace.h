/* SPDX-License-Identifier: MIT */
/*
 * moetrace: a flight recorder for mixture-of-experts routing.
 *
 * The whole API; link with `pkg-config --cflags --libs moetrace`. In order of use:
 *
 *   moetrace_session_open()     once a process: opens the file, makes all memory
 *   moetrace_model_add()        once a model: its layers with experts
 *   moetrace_start()            recording begins
 *   moetrace_request_begin()    a request arrives
 *   moetrace_pass_begin()       a forward pass: which rows belong to which request
 *   moetrace_select_experts()   in each layer with experts: the router's choice
 *   moetrace_pass_end()
 *   moetrace_request_end()      the request is answered
 *   moetrace_stop()             recording ends; start may follow any number of times
 *   moetrace_session_close()    leaves one file that any sqlite3 reads
 *
 * What the traced program can rely on: the hot path (moetrace_pass_begin(),
 * moetrace_select_experts(), moetrace_expert_load(), moetrace_dispatch(), moetrace_pass_end(), and
 * what says at its declaration that it belongs to it) never allocates, locks, logs, makes a system call or waits; when memory is short it drops
 * and counts. No call ends the process or writes to its standard streams. A program whose
 * session did not open needs no other path: the handles are then NULL or 0, with which the
 * calls of the hot path do nothing and the others return MOETRACE_E_INVALID.
 *
 * Options and descriptions are structs whose first member is their size: set up each one (in
 * an array, each element) with MOETRACE_INIT() and then fill in what is known; a zero member
 * means the default named beside it. Fields are only ever appended: a program that was built with
 * earlier headers has shorter structs, and what they lack means 0, too. The small structs
 * moetrace_rank, moetrace_slice, moetrace_kernel_time and moetrace_range are fixed for ever and have
 * no size.
 *
 * Texts are UTF-8, of any length unless something else is said: names, external ids, attributes,
 * reasons. In the file U+FFFD takes the place of bytes that are none, so that it holds nothing but
 * well-formed text.
 *
 * Where ranks of one model compute the same routing (tensor parallel), record on one of them.
 */
#ifndef MOETRACE_MOETRACE_H
#define MOETRACE_MOETRACE_H

#define MOETRACE_IN_UMBRELLA 1

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define MOETRACE_BEGIN_DECLS extern "C" {
#define MOETRACE_END_DECLS }
#else
#define MOETRACE_BEGIN_DECLS
#define MOETRACE_END_DECLS
#endif

#if defined(__GNUC__)
#define MOETRACE_API __attribute__((visibility("default")))
#define MOETRACE_MUST_USE __attribute__((warn_unused_result))
#else
#define MOETRACE_API
#define MOETRACE_MUST_USE
#endif

/** Zero the struct at @p and set its size member: the start of every use of a struct. */
#define MOETRACE_INIT(p) ((void)memset((p), 0, sizeof(*(p))), (void)((p)->size = sizeof(*(p))))

#include <moetrace/version.h>
#include <moetrace/status.h>
#include <moetrace/session.h>
#include <moetrace/model.h>
#include <moetrace/request.h>
#include <moetrace/pass.h>
#include <moetrace/counters.h>
#include <moetrace/experts.h>
#include <moetrace/timing.h>

#undef MOETRACE_IN_UMBRELLA
#endif
