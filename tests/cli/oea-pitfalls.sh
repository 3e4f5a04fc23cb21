# SPDX-License-Identifier: MIT
#
# The ways in which an analysis of opportunistic expert activation goes wrong without a word, P1 to P17 of
# docs/oea.md: what moetrace oea makes of each. The traces are synthetic; each is changed to be the case.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
need_command sqlite3

cd "$tmp" || exit 99
for scenario in domains mixed; do
	expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_trace" $scenario $scenario.db
done

# changed FILE SQL: case.db is FILE, changed so.
changed() {
	cp "$1" case.db
	change case.db "$2"
}
# ask FILE SQL: one answer.
ask() {
	"$moetrace" query "$1" --format csv "$2" | tail -n 1 | tr -d '\r"'
}
# below FILE PATTERN: a line below the figures.
below() {
	expect_ok "$moetrace" oea "$1" --k0 1
	expect_match out "$2"
}
figures="SELECT group_concat(active_before || ' ' || active_after || ' ' || lost_entries, ';') FROM moe_oea"
# Every row of every pass has these ids: 6 characters, or with "row" as many as k entries.
alike() {
	echo "UPDATE topk SET topk_ids = CAST(replace(hex(zeroblob(n_rows)), '00', '$1') AS BLOB)"
}
plain=$(ask domains.db "$figures")

# P1: padding is in no figure but its own.
changed domains.db "UPDATE pass SET padding_rows = 7; UPDATE pass_layer SET padding_active_experts = 3"
expect_eq P1 "$(ask case.db "$figures")" "$plain"
expect_eq "P1, padding" "$(ask case.db "SELECT sum(padding_active_experts = 3 * n_batches) = count(*) FROM moe_oea")" 1

# P2: prefill alone is no batch, and said.
expect_eq P2 "$(ask domains.db "SELECT sum(n_batches) - (SELECT count(*) FROM pass_layer JOIN pass USING (pass_id)
	WHERE phase = 'decode') FROM moe_oea WHERE k0 = 1")" 0
below domains.db 'batches of prefill passes: the rule leaves them alone'

# P3: mixed passes are rows of their own, and none is among those of decode.
expect_eq P3 "$(ask mixed.db "SELECT count(*) > 0 FROM moe_oea WHERE phase = 'mixed' AND k0 = 1")" 1
changed domains.db "UPDATE pass_request SET phase = 'prefill' WHERE slice > 0 AND pass_id IN (SELECT pass_id FROM pass
	WHERE phase = 'decode'); UPDATE pass SET phase = 'mixed' WHERE phase = 'decode' AND n_rows > 1"
expect_eq "P3, rows that keep" "$(ask case.db "SELECT sum(rows - changed_rows) = sum(rows) - sum(n_batches) FROM moe_oea
	WHERE phase = 'mixed' AND k0 = 1")" 1
expect_eq "P3, rows that expand rates" "$(ask case.db "SELECT sum(e.rows <> o.changed_rows), sum(e.rows + e.kept_rows <> o.rows),
	sum(e.kept_rows) > 0 FROM moe_expand(1) AS e JOIN moe_oea AS o USING (layer_id, phase) WHERE phase = 'mixed' AND k0 = 1")" "0,0,1"
expect_ok "$moetrace" oea case.db --rule expand:margin=1
expect_match out 'note: [0-9]+ rows of prefill in mixed batches keep their experts, and are not in rows'

# P4: rows that were rejected load experts, and what they lose does not count.
changed domains.db "UPDATE pass SET phase = 'verify' WHERE phase = 'decode'; UPDATE pass_request SET phase = 'verify', accepted = x'00'
	WHERE phase = 'decode'; UPDATE pass_request SET accepted = x'01' WHERE phase = 'verify' AND slice = 0"
expect_eq "P4, experts" "$(ask case.db "$figures")" "$plain"
expect_eq "P4, rows" "$(ask case.db "SELECT sum(rated_rows <> n_batches) || ' ' || min(phase) FROM moe_oea")" "0 verify"

# P5: a pass is a batch, and other ranks' rows are not in it.
changed domains.db "UPDATE process SET dp_size = 2"
below case.db 'note: one of 2 data-parallel ranks: a layer that gathers their rows touches more experts'

# P6: experts are logical; on ranks the one with most counts.
expect_ok "$moetrace" oea domains.db --k0 1 --ranks 4 --format csv
expect_match out 'max_rank_before,max_rank_after'
expect_eq P6 "$(ask domains.db "SELECT sum(rank_active_before * 4 >= active_before AND rank_active_before < active_before) = count(*)
	FROM moe_oea(1, 0, 'oea', 4)")" 1

# P7: order is restored where nothing but weights chose, or refused.
changed domains.db "UPDATE layer SET has_correction_bias = 0;
	UPDATE topk SET topk_weights = CAST(replace(hex(zeroblob(n_rows)), '00', '!1!2!3!4!5!6') AS BLOB)"
expect_eq P7 "$(ask case.db "SELECT sum(restored_rows) = sum(rows) FROM moe_oea WHERE k0 = 1")" 1
changed domains.db "UPDATE pass_layer SET selection_order = 2"
below case.db 'the order of the choice is not known'
expect_eq "P7, refused" "$(ask case.db "SELECT count(k0) FROM moe_oea")" 0

# P8: with a bias the order is that of the choice, or on demand that of the weights, and it is said which.
changed domains.db "UPDATE layer SET has_correction_bias = 1;
	UPDATE topk SET topk_weights = CAST(replace(hex(zeroblob(n_rows)), '00', '!1!2!3!4!5!6') AS BLOB)"
expect_eq P8 "$(ask case.db "$figures")" "$plain"
below case.db 'note: a bias acts on the choice: the order is that of the choice'
expect_eq "P8, weights" "$(ask case.db "SELECT sum(active_after) = (SELECT count(*) FROM (SELECT DISTINCT pass_id, layer_id, expert
	FROM moe_topk WHERE topk_rank = 5 AND phase = 'decode')) FROM moe_oea(1, 0, 'oea:order=weight') WHERE k0 = 1")" 1
expect_ok "$moetrace" oea case.db --rule oea:k0=1,order=weight
expect_match out 'note: a bias acts on the choice: the order is that of the weights'

# P9: what rows of grouped experts take is not known without candidates; outside of their groups it is no
# longer the model.
changed domains.db "UPDATE layer SET n_groups = 4, topk_groups = 2"
expect_eq P9 "$(ask case.db "SELECT count(swapped_entries) || ' ' || count(tokens_below_k) FROM moe_oea")" "0 0"
below case.db 'note: experts are grouped'
expect_ok "$moetrace" oea case.db --k0 1 --rule oea:groups=any
expect_match out 'note: rows take experts outside of the groups that they had kept'

# P10: fused shared experts are neither entries nor active.
expect_eq P10 "$(ask mixed.db "SELECT count(*) > 0 AND sum(o.k <> l.top_k - l.n_shared_slots) = 0 AND max(o.k0 = o.k
	AND o.active_before > o.n_batches * l.n_experts) = 0 FROM moe_oea AS o JOIN layer AS l USING (layer_id)
	WHERE l.n_shared_slots > 0 AND o.k0 IS NOT NULL")" 1

# P11: lost weight is a share of a row's own weight, whatever scale it is on; p needs the whole.
changed domains.db "UPDATE layer SET weight_kind = 'renormalized,scaled', routed_scaling_factor = 2.5, scaling_owner = 'router',
	scoring = 'softmax'"
expect_eq P11 "$(ask case.db "SELECT sum(a.lost_weight) / sum(a.rated_rows) BETWEEN 0.01 AND 1 FROM moe_oea AS a WHERE k0 = 1")" 1
expect_ok "$moetrace" oea case.db --rule oea:k0=1,p=0.5
expect_match out 'p is a share of the router.s whole score'

# P12: hash layers are refused; an id twice in a row is one expert.
changed domains.db "UPDATE layer SET kind = 'hash'"
below case.db 'experts chosen by token id: no row prefers one'
changed domains.db "$(alike '!!"#$%')"
expect_eq P12 "$(ask case.db "SELECT sum(active_before <> 5 * n_batches), sum(active_after <> max(k0 - 1, 1) * n_batches) FROM moe_oea")" "0,0"

# P13: a layer that nobody wrote is missing, and said.
changed domains.db "UPDATE pass_layer SET state = 1, topk_id = NULL, topk_row = NULL, active_experts = NULL, max_load = NULL,
	selection_order = NULL WHERE layer_id = 2"
below case.db 'layers that nobody wrote'

# P14: the expectation of the batches lies below that of the mean batch.
expect_eq P14 "$(ask domains.db "SELECT min(uniform_before / n_batches < 60 * (1 - pow(1 - k / 60.0, 1.0 * rows / n_batches)))
	FROM moe_oea WHERE k0 = 1")" 1

# P15: of experts with hundreds of rows the time is no line.
make_empty many.db
change many.db "
	INSERT INTO model VALUES (1, 'm', 'target', NULL, 1, NULL);
	INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k)
		VALUES (1, 1, 0, 0, 'routed', 64, 0, 0, 2);
	INSERT INTO recording VALUES (1, 1, 0, 1, 'stopped', 'per_token', 'model', NULL);
	INSERT INTO request (request_id, recording_id, handle, n_attempts, n_pauses, paused_ns, begin_ns, verdict)
		VALUES (1, 1, 1, 1, 0, 0, 0, 'complete');
	INSERT INTO pass VALUES (1, 1, 1, 'decode', 1, 2, 500, 0, NULL, NULL, NULL, 'complete', NULL, 0, NULL);
	INSERT INTO pass_request VALUES (1, 0, 1, 0, 0, NULL, 0, 500, 'decode', NULL);
	INSERT INTO topk (topk_id, n_rows, k, id_bytes, weight_format, topk_ids)
		VALUES (1, 500, 2, 1, 'none', CAST(replace(hex(zeroblob(500)), '00', '!#') AS BLOB));
	INSERT INTO pass_layer VALUES (1, 1, 2, NULL, 500, 1, 0, NULL, 0, 500, 1, 0, NULL)"
below many.db 'note: an active expert has 500 rows in the mean'

# P16, P17: what no figure can know is said.
expect_match "$MOETRACE_SRCDIR/docs/oea.md" 'The batch sizes are those of the speed that was recorded'
expect_match "$MOETRACE_SRCDIR/docs/oea.md" 'depend on who shares the batch'

# A row that shares nothing looks like the largest gain, and is only pruned.
changed domains.db "$(alike '!"#$%&')"
expect_eq "identical rows" "$(ask case.db "SELECT sum(active_after <> k0 * n_batches), sum(tokens_below_k <> iif(k0 < k, changed_rows, 0)) FROM moe_oea")" "0,0"
