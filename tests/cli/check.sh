# SPDX-License-Identifier: MIT
#
# check: a sound trace passes every proof; broken in one way, it violates the proof that is meant
# for it. Each line below fails without its part of the proof.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
: >"$tmp/violated"
# Where the proof is SQL, sanitizers see the same code in each of them; blobs are read by ours.
in_sql() {
	! is_sanitized || violates_at_most=5
}
in_code() {
	violates_at_most=
}
expect_ok "$moetrace" check "$tmp/sound.db"
expect_match "$tmp/out" "sound.db: sound\$"
expect_ok "$moetrace" check --strict "$tmp/sound.db"
expect_ok "$moetrace" check --format jsonl "$tmp/sound.db"
expect_eq "violations of a sound trace" "$(grep -vc '"n_violations":0,' "$tmp/out")" 0
cut -d'"' -f4 "$tmp/out" | LC_ALL=C sort >"$tmp/proofs"
# No proof is empty: each looked at something. (Counted layers are in modes.sh.)
grep -v '"proof":"layer_load"' "$tmp/out" >"$tmp/others"
expect_no_match "$tmp/others" '"n_checked":0,'

# A NULL where the schema forbids it.
violates integrity "INSERT INTO gap VALUES (1, 1, 'pass', 0, 1, 1, NULL, 'no_ring');
	PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql,
	'bytes_lost INTEGER,', 'bytes_lost INTEGER NOT NULL,') WHERE name = 'gap';"

# More of these two is in check-shape.sh.
violates schema "DROP VIEW loss;"
violates types "UPDATE pass SET n_rows = 'three' WHERE pass_id = 1;"

in_sql
violates foreign_keys "UPDATE pass SET model_id = 9 WHERE pass_id = 7;"
violates foreign_keys "UPDATE pass SET device_id = 9 WHERE pass_id = 5;"
violates foreign_keys "DELETE FROM request WHERE request_id = 2;"
violates foreign_keys "DELETE FROM topk WHERE topk_id = 3;"
violates foreign_keys "UPDATE pass_request SET request_id = 99 WHERE pass_id = 8;"
violates foreign_keys "DELETE FROM pass WHERE pass_id = 5;"

violates values "UPDATE model SET kind = 'other' WHERE model_id = 2;"
violates values "UPDATE layer SET kind = 'dense' WHERE layer_id = 3;"
violates values "UPDATE layer SET n_experts = 'four' WHERE layer_id = 3;"
violates values "UPDATE layer SET n_experts = 65537 WHERE layer_id = 3;"
violates values "UPDATE layer SET scoring = 'tanh' WHERE layer_id = 3;"
violates values "UPDATE layer SET weight_kind = 'scaled,renormalized' WHERE layer_id = 3;"
violates values "UPDATE layer SET scaling_owner = 'nobody' WHERE layer_id = 3;"
violates values "UPDATE layer SET renormalize = 2 WHERE layer_id = 3;"
violates values "UPDATE layer SET has_correction_bias = 7 WHERE layer_id = 3;"
violates values "UPDATE layer SET router_output = 'some' WHERE layer_id = 3;"
violates values "UPDATE layer SET group_top_n = 1 WHERE layer_id = 3;"
violates values "UPDATE layer SET n_groups = 2, group_top_n = 3 WHERE layer_id = 3;"
violates values "UPDATE layer SET layer = 0 WHERE layer_id = 2;"
violates values "UPDATE layer SET moe_ordinal = 0 WHERE layer_id = 2;"
violates values "UPDATE device SET kind = 'tpu';"
violates values "DELETE FROM meta WHERE key = 'session_uuid';"
violates values "UPDATE meta SET value = 'other' WHERE key = 'format';"
violates values "INSERT INTO diagnostic VALUES (1, 1, 5, 'fatal', 'store', 'a message', 1);"
violates values "INSERT INTO diagnostic VALUES (1, 1, 5, 'info', 'nowhere', 'a message', 1);"
violates values "INSERT INTO diagnostic VALUES (1, 1, 5, 'info', 'cuda.0', 'a message', 1);"
violates values "INSERT INTO diagnostic VALUES (1, 1, 5, 'info', 'cuda.16', 'a message', 1);"
holds "INSERT INTO diagnostic VALUES (1, 1, 5, 'info', 'cuda.1', 'of the second GPU', 1),
	(2, 1, 6, 'info', 'cuda.15', 'of the last one that there may be', 1);"
violates values "INSERT INTO rule VALUES (1, '');"
violates values "UPDATE pass_layer SET selection_order = 3 WHERE pass_id = 7 AND layer_id = 1;"
violates values "UPDATE request SET handle = 1 WHERE request_id = 2;"
violates values "UPDATE layer SET top_k = 5 WHERE layer_id = 3;"
violates values "UPDATE recording SET mode = 'other' WHERE recording_id = 1;"
violates values "UPDATE recording SET mode = 'stat' WHERE recording_id = 1;"
violates values "UPDATE recording SET mode = 'per_pass' WHERE recording_id = 1;"
violates values "UPDATE recording SET sampling = 'all of it' WHERE recording_id = 1;"
violates values "UPDATE recording SET mode = 'per_pass', sampling = 'requests=2' WHERE recording_id = 1;"
violates values "UPDATE request SET verdict = 'fine' WHERE request_id = 1;"
violates values "UPDATE request SET end_state = 'done' WHERE request_id = 1;"
violates values "UPDATE request SET n_attempts = 0 WHERE request_id = 1;"
violates values "UPDATE request SET n_positions = -1 WHERE request_id = 1;"
violates values "UPDATE pass SET phase = 'warmup' WHERE pass_id = 7;"
violates values "UPDATE pass SET verdict = 'whole' WHERE pass_id = 7;"
violates values "UPDATE pass SET n_rows = 'three' WHERE pass_id = 1;"
violates values "UPDATE pass SET n_rows = 67108865 WHERE pass_id = 1;"
violates values "UPDATE pass SET padding_rows = -1 WHERE pass_id = 1;"
violates values "UPDATE pass SET device_id = 1 WHERE pass_id = 5;"
violates values "INSERT INTO process (process_id, pid) VALUES (2, 2);
	UPDATE device SET process_id = 2 WHERE device_id = 2;"
violates values "UPDATE pass_request SET phase = 'mixed' WHERE pass_id = 7;"
violates values "UPDATE pass_request SET attempt = NULL WHERE pass_id = 5;"
violates values "UPDATE pass_request SET first_position = NULL WHERE pass_id = 5;"
violates values "UPDATE pass_request SET attempt = 1 WHERE pass_id = 5;"
violates values "UPDATE pass_request SET attempt = 0, first_position = 0 WHERE pass_id = 7;"
violates values "UPDATE pass_request SET request_id = 3 WHERE pass_id = 8;"
violates values "UPDATE topk SET weight_format = 'fp32' WHERE topk_id = 1;"
violates values "INSERT INTO gap VALUES (1, 1, 'passes', 0, 1, 1, NULL, 'no_ring');"
violates values "INSERT INTO gap VALUES (1, 1, 'pass', 0, 1, 1, NULL, 'because');"
violates values "INSERT INTO gap VALUES (1, 1, 'pass', 0, 1, 0, NULL, 'no_ring');"
# More of these three is in check-timing.sh.
violates timing "UPDATE kernel SET end_ns = 5101 WHERE kernel_id = 1;"
violates power "UPDATE power_sample SET energy_mj = 4999 WHERE power_sample_id = 2;"
violates collectors "UPDATE collector SET reason = NULL WHERE name = 'nvtx';"

violates values "UPDATE byte SET value = 300 WHERE value = 7;"
violates values "DELETE FROM byte WHERE value = 255;"

violates times "UPDATE recording SET end_ns = -1 WHERE recording_id = 1;"
violates times "UPDATE request SET end_ns = 99 WHERE request_id = 1;"
violates times "UPDATE pass SET end_ns = 999 WHERE pass_id = 1;"
violates times "UPDATE pass_layer SET selected_ns = 1200 WHERE pass_id = 1 AND layer_id = 1;"
violates times "UPDATE pass_layer SET selected_ns = 900 WHERE pass_id = 1 AND layer_id = 1;"
violates times "UPDATE request SET begin_ns = 1001 WHERE request_id = 1;"
violates times "UPDATE request SET end_ns = 4999 WHERE request_id = 1;"
violates times "INSERT INTO gap VALUES (1, 1, 'pass', 5, 1, 1, NULL, 'no_ring');"

in_code
violates topk_blobs "UPDATE topk SET topk_ids = topk_ids || x'00' WHERE topk_id = 1;"
violates topk_blobs "UPDATE topk SET topk_ids = CAST(substr(topk_ids, 2) AS BLOB) WHERE topk_id = 1;"
violates topk_blobs "UPDATE topk SET topk_weights = CAST(substr(topk_weights, 2) AS BLOB) WHERE topk_id = 1;"
violates topk_blobs "UPDATE topk SET topk_weights = NULL WHERE topk_id = 1;"
violates topk_blobs "INSERT INTO rule VALUES (1, 'oea:k0=1');
	UPDATE topk SET rule_id = 1, base_k = 2, base_ids = x'0000' WHERE topk_id = 1;"
violates topk_blobs "UPDATE topk SET base_k = 1, base_ids = zeroblob(n_rows * id_bytes) WHERE topk_id = 1;"
violates topk_blobs "UPDATE topk SET topk_weights = zeroblob(78) WHERE topk_id = 2;"
violates topk_blobs "UPDATE topk SET row_map = CAST(substr(row_map, 2) AS BLOB) WHERE topk_id = 2;"
violates topk_blobs "UPDATE topk SET n_valid = CAST(substr(n_valid, 2) AS BLOB) WHERE topk_id = 2;"
violates topk_blobs "UPDATE topk SET n_rows = 15 WHERE topk_id = 1;"
violates topk_blobs "UPDATE topk SET k = 0 WHERE topk_id = 1;"

violates slice_blobs "UPDATE pass_request SET positions = x'0500' WHERE pass_id = 4;"
violates slice_blobs "UPDATE pass_request SET positions = x'00000000' WHERE pass_id = 7;"
violates slice_blobs "UPDATE pass_request SET accepted = x'0101' WHERE pass_id = 3;"
violates slice_blobs "UPDATE pass_request SET accepted = x'010200' WHERE pass_id = 3;"
violates slice_blobs "UPDATE pass_request SET accepted = x'01' WHERE pass_id = 5;"

violates slices "UPDATE pass SET n_rows = 4 WHERE pass_id = 1;"
violates slices "UPDATE pass_request SET row_offset = 1 WHERE pass_id = 1 AND slice = 1;"
violates slices "UPDATE pass_request SET n_rows = 3 WHERE pass_id = 1 AND slice = 1;"
violates slices "UPDATE pass_request SET slice = 2 WHERE pass_id = 1 AND slice = 1;"
violates slices "DELETE FROM pass_request WHERE pass_id = 7;"
violates slices "UPDATE pass SET phase = 'decode' WHERE pass_id = 2;"
violates slices "UPDATE pass_request SET phase = 'prefill' WHERE pass_id = 5;"
holds "UPDATE pass SET phase = 'mixed';"

violates layers "DELETE FROM pass_layer WHERE pass_id = 7 AND layer_id = 2;"
violates layers "UPDATE pass_layer SET state = 3 WHERE pass_id = 7 AND layer_id = 2;"
violates layers "UPDATE pass_layer SET state = 1 WHERE pass_id = 7 AND layer_id = 2;"
violates layers "UPDATE pass_layer SET max_load = NULL WHERE pass_id = 7 AND layer_id = 2;"
violates layers "UPDATE pass_layer SET layer_id = 3 WHERE pass_id = 7 AND layer_id = 2;"

violates layer_rows "UPDATE pass_layer SET topk_id = 9 WHERE pass_id = 7 AND layer_id = 1;"
violates layer_rows "UPDATE pass_layer SET topk_row = 14 WHERE pass_id = 8 AND layer_id = 1;"
violates layer_rows "UPDATE pass_layer SET topk_row = -1 WHERE pass_id = 8 AND layer_id = 1;"
violates layer_rows "UPDATE pass_layer SET n_rows = 2 WHERE pass_id = 7 AND layer_id = 1;"
violates layer_rows "UPDATE pass_layer SET topk_id = 2 WHERE pass_id = 8 AND layer_id = 1;"
violates layer_rows "UPDATE topk SET row_map = CAST(x'03000000' || substr(row_map, 5) AS BLOB) WHERE topk_id = 2;"
violates layer_rows "UPDATE topk SET row_map = CAST(x'02000000' || substr(row_map, 5) AS BLOB) WHERE topk_id = 2;"
violates layers "UPDATE pass_layer SET state = 2, active_experts = NULL, max_load = NULL, selected_ns = NULL,
	selection_order = NULL, n_rows = NULL, topk_id = NULL, topk_row = NULL, padding_active_experts = 0
	WHERE pass_id = 7 AND layer_id = 2;"
violates layer_rows "INSERT INTO rule VALUES (1, 'oea:k0=1');
	UPDATE topk SET rule_id = 1, base_k = 2, base_ids = x'00010203' WHERE topk_id = 3;"
violates layer_rows "UPDATE layer SET top_k = 1 WHERE layer_id = 1;"
violates layer_rows "UPDATE layer SET n_experts = 300 WHERE layer_id = 1;"

violates run_overlap "UPDATE pass_layer SET topk_row = 13 WHERE pass_id = 7 AND layer_id = 1;"

violates ids "UPDATE topk SET topk_ids = CAST(x'04' || substr(topk_ids, 2) AS BLOB) WHERE topk_id = 1;"
violates ids "UPDATE topk SET topk_ids = CAST(x'01' || substr(topk_ids, 2) AS BLOB) WHERE topk_id = 1;"
violates ids "UPDATE topk SET n_valid = CAST(x'04' || substr(n_valid, 2) AS BLOB) WHERE topk_id = 2;"
violates ids "UPDATE topk SET n_valid = CAST(x'02' || substr(n_valid, 2) AS BLOB) WHERE topk_id = 2;"

violates ids "INSERT INTO rule VALUES (1, 'oea:k0=1');
	UPDATE topk SET rule_id = 1, base_k = 1, base_ids = x'0004' WHERE topk_id = 3;"
violates ids "INSERT INTO rule VALUES (1, 'oea:k0=1'); UPDATE topk SET rule_id = 1, base_k = 2,
	base_ids = CAST(x'0101' || substr(topk_ids, 3) AS BLOB) WHERE topk_id = 1;"
holds "INSERT INTO rule VALUES (1, 'oea:k0=1');
	UPDATE topk SET rule_id = 1, base_k = 1, base_ids = x'0002' WHERE topk_id = 3;"

for weight in 007c 00fc 017e 00b8; do # infinity, minus infinity, NaN, -0.5 in fp16
	violates weights "UPDATE topk SET topk_weights = CAST(x'$weight' || substr(topk_weights, 3) AS BLOB) WHERE topk_id = 1;"
done
holds "UPDATE topk SET topk_weights = x'80ff80bf' WHERE topk_id = 3;" # raw weights may be anything
violates weights "UPDATE layer SET weight_kind = 'renormalized' WHERE layer_id = 3;
	UPDATE topk SET topk_weights = x'80ff803f' WHERE topk_id = 3;"
weights="UPDATE topk SET weight_format = 'fp16', topk_weights = zeroblob(n_rows * k * 2) WHERE topk_id = 2;"
holds "$weights"
violates weights "$weights UPDATE topk SET topk_weights = CAST(substr(topk_weights, 1, 10) || x'0100' ||
	substr(topk_weights, 13) AS BLOB) WHERE topk_id = 2;"

violates layer_load "INSERT INTO layer_load VALUES (7, 1, 1, x'01010000', NULL);"

violates dispatch "UPDATE dispatch SET rank_tokens = x'00';"
violates dispatch "UPDATE dispatch SET n_ranks = NULL;"
violates dispatch "UPDATE dispatch SET rank_bytes = zeroblob(8);"
violates dispatch "UPDATE dispatch SET received_tokens = zeroblob(5);"
violates dispatch "UPDATE dispatch SET received_alignment = 0;"
violates dispatch "UPDATE dispatch SET rdma_rank_tokens = zeroblob(3);"
violates dispatch "UPDATE dispatch SET layer_id = 3;"

violates expert_map "UPDATE expert_map SET n_slots = 5;"
violates expert_map "UPDATE expert_map SET n_ranks = 4;"
violates expert_map "UPDATE expert_map SET epoch = 0;"
violates expert_map "UPDATE pass_layer SET map_epoch = 2 WHERE pass_id = 1 AND layer_id = 1;"
holds "UPDATE pass_layer SET map_epoch = 1 WHERE layer_id = 1;"

holds "UPDATE topk SET physical_ids = CAST(x'04' || substr(physical_ids, 2) AS BLOB) WHERE topk_id = 1;"
violates physical_ids "UPDATE topk SET physical_ids = CAST(x'05' || substr(physical_ids, 2) AS BLOB) WHERE topk_id = 1;"
violates physical_ids "UPDATE topk SET physical_ids = CAST(x'ff' || substr(physical_ids, 2) AS BLOB) WHERE topk_id = 1;"
violates physical_ids "UPDATE pass_layer SET map_epoch = NULL WHERE pass_id = 2 AND layer_id = 1;"
violates physical_ids "UPDATE topk SET physical_id_bytes = 2, physical_ids = CAST(physical_ids || physical_ids AS BLOB) WHERE topk_id = 1;"
violates physical_ids "UPDATE expert_map SET slot_experts = CAST(x'01000000' || substr(slot_experts, 5) AS BLOB);"
violates topk_blobs "UPDATE topk SET physical_ids = NULL WHERE topk_id = 1;"
violates candidates "UPDATE topk SET candidate_ids = x'0404' WHERE topk_id = 3;"
violates candidates "UPDATE topk SET n_candidates = 2, candidate_ids = x'00010303', candidate_scores = zeroblob(8) WHERE topk_id = 3;"
violates topk_blobs "UPDATE topk SET candidate_scores = zeroblob(3) WHERE topk_id = 3;"
violates topk_blobs "UPDATE topk SET score_format = NULL WHERE topk_id = 3;"
violates row_facts "UPDATE topk SET margins = x'000080bf0000807f' WHERE topk_id = 3;"
violates row_facts "UPDATE topk SET margins = x'0000c07f0000807f' WHERE topk_id = 3;"
violates row_facts "UPDATE topk SET row_flags = x'0001' WHERE topk_id = 3;"
violates row_facts "UPDATE topk SET row_flags = x'0204' WHERE topk_id = 3;"
violates topk_blobs "UPDATE topk SET margins = zeroblob(4) WHERE topk_id = 3;"
violates topk_blobs "UPDATE topk SET row_flags = 'ab' WHERE topk_id = 3;"
violates orders "UPDATE topk SET topk_weights = CAST(x'0038003c' || substr(topk_weights, 5) AS BLOB) WHERE topk_id = 1;"
# Weights that are scores tell, with the bias, the order: of what was restored and of what the
# runtime says is in order, as far as 16 bits let it be seen, where the model's router chose.
bias() {
	echo "UPDATE layer SET has_correction_bias = 1, weight_kind = '$1', routed_scaling_factor = $2,
		bias_values = x'$3' WHERE layer_id = 1;"
}
told="UPDATE pass_layer SET selection_order = 0, tied_rows = NULL WHERE pass_id = 1 AND layer_id = 1;"
small=cdcccc3dcdcc4c3e000000009a99993e  # 0.1, 0.2, 0, 0.3
large=cdcccc3dcdcc4c3f000000009a99993e  # 0.1, 0.8, 0, 0.3
near=000000001b0d003f0000000000000000   # 0, 0.5002, 0, 0
beyond=00000000a54e003f0000000000000000 # 0, 0.5012, 0, 0
holds "$(bias raw NULL $small)"
violates orders "$(bias raw NULL $large)"
violates orders "$(bias raw NULL $large)" "$told"
holds "$(bias raw NULL $large)" "UPDATE recording SET routing_source = 'uniform';
	UPDATE pass_layer SET selection_order = 2, tied_rows = NULL WHERE pass_id = 1 AND layer_id = 1;"
holds "$(bias renormalized NULL $large)"
holds "$(bias scaled 0.5 $large)"
violates orders "$(bias scaled 2 $large)"
holds "$(bias scaled NULL $large)"
holds "$(bias raw NULL $near)"
violates orders "$(bias raw NULL $beyond)"
violates values "$(bias raw NULL ${small}00)"
violates values "$(bias raw NULL $small)" "UPDATE layer SET has_correction_bias = 0;"
later="UPDATE topk SET topk_weights = CAST(substr(topk_weights, 1, 12) || x'0038003c' ||
	substr(topk_weights, 17) AS BLOB) WHERE topk_id = 1;"
violates orders "$later"
holds "$later" "UPDATE recording SET routing_source = 'zipf:1.2';"
holds "$later" "INSERT INTO rule VALUES (1, 'oea:k0=1'); UPDATE topk SET rule_id = 1 WHERE topk_id = 1;
	UPDATE pass_layer SET selection_order = 0, tied_rows = NULL WHERE pass_id = 1 AND layer_id = 1;"
violates orders "UPDATE topk SET topk_ids = CAST(substr(topk_ids, 1, 24) || x'2e0101002a01' ||
	substr(topk_ids, 31) AS BLOB) WHERE topk_id = 2;"
# Shared slots are last whoever chose.
violates orders "UPDATE topk SET topk_ids = CAST(substr(topk_ids, 1, 24) || x'2e0101002a01' ||
	substr(topk_ids, 31) AS BLOB) WHERE topk_id = 2; UPDATE recording SET routing_source = 'uniform';"

violates orders "UPDATE pass_layer SET tied_rows = 4 WHERE pass_id = 1 AND layer_id = 1;"
violates layers "UPDATE pass_layer SET tied_rows = NULL WHERE pass_id = 1 AND layer_id = 1;"
violates layers "UPDATE pass_layer SET tied_rows = 0 WHERE pass_id = 1 AND layer_id = 2;"

in_sql
violates active_experts "UPDATE pass_layer SET padding_active_experts = 1 WHERE pass_id = 1 AND layer_id = 1;"
violates active_experts "UPDATE pass_layer SET padding_active_experts = 1 WHERE pass_id = 2 AND layer_id = 2;"
violates active_experts "UPDATE pass_layer SET padding_active_experts = 300 WHERE pass_id = 1 AND layer_id = 2;"
violates active_experts "UPDATE pass_layer SET active_experts = active_experts + 1 WHERE pass_id = 2 AND layer_id = 1;"
violates active_experts "UPDATE pass_layer SET max_load = max_load + 1 WHERE pass_id = 2 AND layer_id = 2;"
violates active_experts "UPDATE topk SET topk_ids = CAST(x'03' || substr(topk_ids, 2) AS BLOB) WHERE topk_id = 1;"

violates sum_load "UPDATE expert_load_window SET prefill_tokens = prefill_tokens + 1 WHERE recording_id = 1 AND layer_id = 1 AND expert = 1;"
violates sum_load "UPDATE expert_load_window SET decode_tokens = decode_tokens + 1 WHERE recording_id = 1 AND layer_id = 1 AND expert = 1;"
violates sum_load "UPDATE expert_load_window SET verify_tokens = verify_tokens + 1 WHERE recording_id = 1 AND layer_id = 1 AND expert = 1;"
violates sum_load "UPDATE expert_load_window SET other_tokens = other_tokens + 1 WHERE recording_id = 1 AND layer_id = 1 AND expert = 1;"
violates sum_load "DELETE FROM expert_load_window WHERE recording_id = 1 AND layer_id = 3 AND expert = 1;"
# The same sums in other windows, a row of nothing, and padding where there was none.
violates sum_load "UPDATE OR IGNORE expert_load_window SET start_ns = 0 WHERE recording_id = 1 AND start_ns = 4000;"
violates sum_load "INSERT INTO expert_load_window VALUES (1, 0, 2, 77, 4000, 0, 0, 0, 0, 0);"
violates sum_load "INSERT INTO expert_load_window VALUES (1, 0, 2, 77, 4000, 0, 0, 0, 0, 256);"
violates sum_load "UPDATE expert_load_window SET padding_tokens = 1 WHERE recording_id = 1 AND start_ns = 4000;"
holds "INSERT INTO expert_load_window VALUES (1, 0, 2, 77, 4000, 0, 0, 0, 0, 1);"
violates windows "UPDATE expert_load_window SET length_ns = 4001;"
violates windows "UPDATE expert_load_window SET length_ns = 0 WHERE recording_id = 1 AND expert = 1;"
violates windows "UPDATE expert_load_window SET length_ns = 8000 WHERE recording_id = 1 AND start_ns = 0;"
violates windows "UPDATE expert_load_window SET start_ns = start_ns + 1 WHERE recording_id = 1;"
violates windows "UPDATE expert_load_window SET start_ns = start_ns - 4000 WHERE recording_id = 2;"
violates sum_load "INSERT INTO expert_load_window VALUES (1, 0, 2, 77, 10000000000, 1, 0, 0, 0, 0);"
violates sum_load "UPDATE stats SET value = 6 WHERE name = 'last_pass_id' AND recording_id = 1;"

# The request views refuse what they cannot decode, so their sum does not hold.
violates sum_requests "DELETE FROM topk WHERE topk_id = 3;"
violates sum_requests "DELETE FROM pass_request WHERE pass_id = 5;"
violates sum_requests "UPDATE topk SET topk_ids = zeroblob(1) WHERE topk_id = 2;"

violates computed_once "UPDATE pass_request SET first_position = 4 WHERE pass_id = 5;"
violates computed_once "UPDATE pass_request SET accepted = x'010101' WHERE pass_id = 3;"
violates computed_once "UPDATE pass_request SET attempt = 0 WHERE pass_id = 2 AND slice = 1;"

violates pass_verdicts "UPDATE pass SET verdict = 'partial' WHERE pass_id = 1;"
violates pass_verdicts "UPDATE pass SET reasons = 'lost' WHERE pass_id = 1;"
violates pass_verdicts "UPDATE pass SET verdict = 'partial', reasons = 'lost' WHERE pass_id = 1;"
violates pass_verdicts "UPDATE pass SET verdict = 'partial', reasons = 'unwritten' WHERE pass_id = 1;"
violates pass_verdicts "UPDATE pass SET verdict = 'partial', reasons = 'unlucky' WHERE pass_id = 1;"
violates pass_verdicts "UPDATE pass SET n_dropped = 1 WHERE pass_id = 1;"
drop_layer="UPDATE pass_layer SET state = 2, active_experts = NULL, padding_active_experts = NULL, max_load = NULL, selected_ns = NULL,
	selection_order = NULL, n_rows = NULL, topk_id = NULL, topk_row = NULL
	WHERE pass_id = 7 AND layer_id = 2;"
violates pass_verdicts "$drop_layer"
violates pass_verdicts "$drop_layer UPDATE pass SET verdict = 'partial', reasons = 'lost' WHERE pass_id = 7;"
violates pass_verdicts "$drop_layer UPDATE pass SET verdict = 'partial', reasons = 'unwritten', n_dropped = 1 WHERE pass_id = 7;"

violates request_verdicts "UPDATE request SET n_positions = 7 WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET verdict = 'partial', reasons = 'missing' WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET reasons = 'lost' WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET verdict = 'partial' WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET verdict = 'unfinished' WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET verdict = 'complete' WHERE request_id = 3;"
violates request_verdicts "UPDATE request SET end_state = NULL WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET n_positions = NULL WHERE request_id = 1;"
violates request_verdicts "UPDATE pass_request SET accepted = NULL WHERE pass_id = 3;"
violates request_verdicts "UPDATE pass_request SET accepted = x'000100' WHERE pass_id = 3;"
violates request_verdicts "UPDATE request SET n_attempts = 3 WHERE request_id = 2;"
violates request_verdicts "UPDATE request SET verdict = 'partial', reasons = 'unlucky', n_positions = 9 WHERE request_id = 1;"

# A position that was computed twice in one attempt: the request says so, or is still open.
again="UPDATE pass_request SET first_position = 4 WHERE pass_id = 5;
	UPDATE request SET n_positions = 5 WHERE request_id = 1;"
violates computed_once "$again"
violates computed_once "$again UPDATE request SET verdict = 'partial', reasons = 'missing' WHERE request_id = 1;"
holds "$again UPDATE request SET verdict = 'partial', reasons = 'repeated' WHERE request_id = 1;"
holds "$again UPDATE request SET verdict = 'unfinished', n_positions = NULL, end_ns = NULL, end_state = NULL
	WHERE request_id = 1;"
violates request_verdicts "UPDATE request SET verdict = 'partial', reasons = 'repeated' WHERE request_id = 1;"
violates request_verdicts "DELETE FROM request_reuse;"
violates request_verdicts "UPDATE request SET prompt_positions = 2 WHERE request_id = 5;"
violates request_verdicts "UPDATE request SET prompt_positions = 7 WHERE request_id = 1;"
violates request_verdicts "UPDATE request_reuse SET source_request_id = NULL, source_attempt = NULL;"
violates request_verdicts "UPDATE request SET verdict = 'partial', reasons = 'reuse_unknown' WHERE request_id = 5;"
holds "UPDATE request_reuse SET source_request_id = NULL, source_attempt = NULL;
	UPDATE request SET verdict = 'partial', reasons = 'reuse_unknown' WHERE request_id = 5;"

# Links point at computed rows of the same recording, and say what no pass of the attempt does.
violates reuse "UPDATE request_reuse SET n_positions = 2;"
violates reuse "UPDATE request_reuse SET n_positions = 0;"
violates reuse "UPDATE request_reuse SET first_position = 1;"
violates reuse "UPDATE request_reuse SET attempt = 1;"
violates reuse "UPDATE request_reuse SET source_attempt = 1;"
violates reuse "UPDATE request_reuse SET source_attempt = NULL;"
violates reuse "UPDATE request_reuse SET source_request_id = 5;"
violates reuse "UPDATE request_reuse SET source_request_id = 1;"
violates reuse "INSERT INTO request_reuse VALUES (4, 0, 0, 1, 5, 0);"
violates reuse "INSERT INTO request_reuse VALUES (1, 0, 1, 1, 2, 0);"
violates reuse "INSERT INTO request_reuse VALUES (2, 1, 0, 1, 2, 0);"
violates reuse "INSERT INTO request_reuse VALUES (5, 0, 1, 1, NULL, NULL);
	UPDATE request_reuse SET n_positions = 2 WHERE first_position = 0;"

violates parents "UPDATE pass SET parent_pass_id = 7 WHERE pass_id = 8;"
violates parents "UPDATE pass SET parent_pass_id = 8 WHERE pass_id = 9;"
violates parents "UPDATE pass SET begin_ns = 11001 WHERE pass_id = 9;"
violates parents "UPDATE pass SET parent_pass_id = 1 WHERE pass_id = 9;"
violates parents "UPDATE pass SET parent_pass_id = 9 WHERE pass_id = 9;"
violates foreign_keys "UPDATE pass SET parent_pass_id = 99 WHERE pass_id = 8;"

violates recordings "UPDATE recording SET end_reason = NULL WHERE recording_id = 2;"
violates recordings "UPDATE recording SET end_ns = NULL, end_reason = NULL WHERE recording_id = 1;"
violates recordings "UPDATE stats SET value = 7 WHERE name = 'last_pass_id' AND recording_id = 2;"

violates recordings "INSERT INTO stats VALUES (1, 'flight_let_go_passes', 0);"

violates stats "INSERT INTO stats VALUES (1, 'flight_let_go_passes', -1);"
violates stats "UPDATE stats SET value = value + 1 WHERE name = 'recorded_passes' AND recording_id = 1;"
violates stats "UPDATE stats SET value = value + 1 WHERE name = 'recorded_rows' AND recording_id = 1;"
violates stats "UPDATE stats SET value = value - 1 WHERE name = 'recorded_layers' AND recording_id = 1;"
violates stats "UPDATE stats SET value = value - 1 WHERE name = 'recorded_assignments' AND recording_id = 2;"
violates stats "DELETE FROM stats WHERE name = 'recorded_passes' AND recording_id = 1;"

for counter in recorded_layers dropped_passes dropped_layers dropped_bytes invalid_ids misuse duplicate_layers \
	last_pass_id writer_cpu_ns commits longest_commit_ns ring_peak_bytes dropped_dispatches \
	unwritten_layers sampled_passes disabled_passes load_passes load_assignments; do
	violates stats "DELETE FROM stats WHERE name = '$counter' AND recording_id = 2;"
done
for counter in dropped_passes dropped_layers dropped_bytes invalid_ids last_pass_id dropped_dispatches \
	sampled_passes load_passes load_assignments; do
	violates stats "UPDATE stats SET value = value + 1 WHERE name = '$counter' AND recording_id = 2;"
done
violates stats "INSERT INTO gap VALUES (1, 1, 'pass', 7000, 7100, 1, NULL, 'io_error');"
violates stats "INSERT INTO gap VALUES (1, 1, 'layer', 7000, 7100, 1, 9, 'ring_full');"
violates stats "UPDATE pass SET n_dropped = 1 WHERE pass_id = 1;"
violates stats "UPDATE pass SET verdict = 'partial', reasons = 'invalid' WHERE pass_id = 1;"
for reason in no_ring ring_full file_limit io_error; do
	holds "INSERT INTO gap VALUES (1, 1, 'pass', 7000, 7100, 3, NULL, '$reason');
		UPDATE stats SET value = 3 WHERE recording_id = 1 AND name = 'dropped_passes';"
done
holds "INSERT INTO gap VALUES (1, 1, 'pass', 7000, 7100, 3, NULL, 'stop_timeout');"

# Every proof was violated by something above.
LC_ALL=C sort -u "$tmp/violated" >"$tmp/violated.sorted"
expect_same "$tmp/violated.sorted" "$tmp/proofs"

# What is not wrong: losses that are told, an idle pass, with its layers or without.
holds "$drop_layer UPDATE pass SET verdict = 'partial', reasons = 'lost', n_dropped = 1 WHERE pass_id = 7;
	DELETE FROM expert_load_window WHERE recording_id = 1 AND layer_id = 2 AND other_tokens > 0 AND prefill_tokens + decode_tokens + verify_tokens = 0;
	UPDATE expert_load_window SET other_tokens = 0 WHERE recording_id = 1 AND layer_id = 2;
	UPDATE stats SET value = value - 1 WHERE recording_id = 1 AND name = 'recorded_layers';
	UPDATE stats SET value = value - 3 WHERE recording_id = 1 AND name IN ('recorded_assignments', 'load_assignments');
	UPDATE stats SET value = 1 WHERE recording_id = 1 AND name = 'dropped_layers';
	UPDATE stats SET value = 9 WHERE recording_id = 1 AND name = 'dropped_bytes';
	INSERT INTO gap VALUES (1, 1, 'layer', 7000, 7100, 1, 9, 'ring_full');"
expect_status 4 "$moetrace" check --strict "$tmp/other.db"
expect_match "$tmp/err" 'other.db: 1 recordings have losses or no proper end'
holds "INSERT INTO pass VALUES (10, 2, 1, 'idle', 12000, 12001, 0, 0, NULL, NULL, NULL, 'complete', NULL, 0, NULL);
	UPDATE stats SET value = 3 WHERE recording_id = 2 AND name IN ('recorded_passes', 'load_passes');
	UPDATE stats SET value = 10 WHERE recording_id = 2 AND name = 'last_pass_id';"

holds "INSERT INTO pass VALUES (10, 2, 1, 'idle', 12000, 12001, 0, 0, NULL, NULL, NULL, 'complete', NULL, 0, NULL);
	INSERT INTO pass_layer (pass_id, layer_id, state) VALUES (10, 1, 1), (10, 2, 1);
	UPDATE stats SET value = 3 WHERE recording_id = 2 AND name IN ('recorded_passes', 'load_passes');
	UPDATE stats SET value = 10 WHERE recording_id = 2 AND name = 'last_pass_id';"

# A pass with ids that no expert has: the slices beside them are whole all the same.
holds "UPDATE pass SET verdict = 'partial', reasons = 'invalid' WHERE pass_id = 1;
	UPDATE stats SET value = 1 WHERE recording_id = 1 AND name = 'invalid_ids';"

# The formats are what they say.
cp "$tmp/sound.db" "$tmp/broken.db"
change "$tmp/broken.db" "UPDATE pass SET verdict = 'partial';"
expect_status 1 "$moetrace" check "$tmp/broken.db"
expect_match "$tmp/out" '^pass_verdicts  pass 1: is partial without a reason'
expect_match "$tmp/out" 'broken.db: not sound: [0-9]+ of [0-9]+ proofs are violated'
expect_status 1 "$moetrace" check --format json "$tmp/broken.db"
expect_json "$tmp/out"
expect_eq "proof" "$(json "$tmp/out" '$.violations[0].proof')" pass_verdicts
expect_status 1 "$moetrace" check --format jsonl "$tmp/broken.db"
expect_jsonl "$tmp/out"
expect_status 1 "$moetrace" check --format csv "$tmp/broken.db"
expect_match "$tmp/out" '^pass_verdicts,9,9,pass 1: is partial without a reason'

echo "$(wc -l <"$tmp/violated") ways to break a trace were found"
