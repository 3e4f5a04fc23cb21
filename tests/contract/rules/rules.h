/* SPDX-License-Identifier: MIT */
/*
 * The rules that a recorder of expert routing must keep, one test each, named after it. They look
 * from outside: at what calls return, at what a stock SQLite finds in the file, and at what the
 * command says; what must be there is computed from the toy runtime's own choice (toy.h).
 *
 *   r01  a layer of a model is declared once, before its passes, and models do not mix
 *   r02  a pass says whose its rows are, and how many only fill it up
 *   r03  a GPU's routers store their own rows: at most five driver calls a pass, none while idle
 *   r04  what was captured stays valid over start and stop, and costs nothing while idle
 *   r05  the hot path neither waits nor fails: what is wrong is counted
 *   r06  logical ids are primary; physical ones stand beside them, under the map of their time
 *   r07  a retract opens the next attempt, and the first is kept as it was
 *   r08  every row and position has a state; no state is an expert
 *   r09  counts leave out padding, and what padding alone touched has a column of its own
 *   r10  a layer has its number in the model and among those with experts; it may see fewer rows
 *   r11  start while recording and stop while idle are errors that lose nothing; dump resets nothing
 *   r12  every rank writes a file that says which of how many it is
 *   r13  SQLite that a stock sqlite3 reads: runs of blobs, not a row an expert
 *   r14  what does not fit is a counted drop, seen in the pass and its requests, and nobody waits
 *   r15  a path is never written over, and the file says where it comes from and when
 *
 * Below them, tests named s_: what shows that nothing is lost or invented at the edges.
 */
#ifndef TEST_RULES_H
#define TEST_RULES_H

#include <check.h>

TCase *rules_of_passes(void);   /* r01, r02, r05, r06, r09, r10, r14 */
TCase *rules_of_requests(void); /* r07, r08 */
TCase *rules_of_files(void);    /* r11, r12, r13, r15 */
TCase *rules_of_devices(void);  /* r03, r04 */
TCase *rules_of_shapes(void);   /* s_: sizes and orders */

#endif
