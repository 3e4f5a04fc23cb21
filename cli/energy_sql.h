/* SPDX-License-Identifier: MIT */
/*
 * Why windows of energy have no tokens, in words: view energy_window has the words that they are made of.
 */
#ifndef MT_CLI_ENERGY_SQL_H
#define MT_CLI_ENERGY_SQL_H

/* ?1 recording or NULL. A row a recording and reason. */
#define MT_SQL_UNTOLD                                                                             \
	"SELECT w.recording_id, printf('tokens of %d of %d windows of energy are not known: ', "  \
	"count(*), (SELECT count(*) FROM energy_window AS a WHERE a.recording_id = "             \
	"w.recording_id)) || CASE w.untold WHEN 'mode' THEN 'mode stat keeps no passes' WHEN "    \
	"'sampling' THEN 'passes were left out by sampling (' || r.sampling || ')' WHEN "         \
	"'disabled' THEN 'passes ran while recording was off in the runtime' WHEN 'lost' THEN "   \
	"'passes were lost in them, or ran when one was lost' WHEN 'let go' THEN 'passes as old " \
	"were let go' ELSE 'passes that ran when the file was cut are not in it' END FROM "       \
	"energy_window AS w JOIN recording AS r USING (recording_id) WHERE w.untold IS NOT NULL " \
	"AND (?1 IS NULL OR w.recording_id = ?1) GROUP BY w.recording_id, w.untold ORDER BY 1, 2"

#endif
