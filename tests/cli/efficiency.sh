# SPDX-License-Identifier: MIT
#
# moetrace efficiency on a file made by hand, every figure worked out by hand: ten decode passes a tenth of a
# second apart, of four rows that choose experts 0 and 1, or 0 and 2, of four; an expert has 500 weights of 16
# bits; its operations take 0.5 ms of a pass's 1 ms. One pass takes 5 ms, because of another operation.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
need_command sqlite3

cd "$tmp" || exit 99
make_empty hand.db
change hand.db "
	UPDATE process SET host = 'nowhere';
	INSERT INTO model VALUES (1, 'm', 'target', NULL, 1, 'bf16');
	INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k,
		expert_weight_bytes, gemm_block_rows) VALUES (1, 1, 0, 0, 'routed', 4, 0, 0, 2, 1000, 4);
	INSERT INTO recording VALUES (1, 1, 0, 3000000000, 'stopped', 'per_token', 'model', NULL);
	INSERT INTO request (request_id, recording_id, handle, n_attempts, n_pauses, paused_ns, begin_ns, verdict)
		VALUES (1, 1, 1, 1, 0, 0, 0, 'complete');
	INSERT INTO device (device_id, process_id, kind, name, power_limit_mw) VALUES (9, 1, 'cuda', 'card', 600000);
	INSERT INTO string (string_id, value, role, moves_data) VALUES (1001, 'experts', 'experts', 0), (1002, 'attention', 'attention', 0);
	INSERT INTO pass SELECT value, 1, 1, 'decode', value * 100000000, value * 100000000 + iif(value = 7, 5000000, 1000000), 4, 0, value,
		NULL, NULL, 'complete', NULL, 0, NULL FROM byte WHERE value BETWEEN 1 AND 10;
	INSERT INTO pass_request SELECT value, 0, 1, 0, 4 * value, NULL, 0, 4, 'decode', NULL FROM byte WHERE value BETWEEN 1 AND 10;
	INSERT INTO topk (topk_id, n_rows, k, id_bytes, weight_format, topk_ids) VALUES (1, 4, 2, 1, 'none', x'0001000100020002');
	INSERT INTO pass_layer SELECT value, 1, 3, NULL, 4, value * 100000000 + 1000, 0, NULL, 0, 4, 1, 0, NULL FROM byte
		WHERE value BETWEEN 1 AND 10;
	INSERT INTO kernel (recording_id, device_id, name_id, start_ns, end_ns, pass_id, layer_id, known_by, flags)
		SELECT 1, 9, 1001, value * 100000000 + 1000, value * 100000000 + 501000, value, 1, 0, 0 FROM byte WHERE value BETWEEN 1 AND 10;
	INSERT INTO kernel (recording_id, device_id, name_id, start_ns, end_ns, pass_id, layer_id, known_by, flags)
		SELECT 1, 9, 1002, value * 100000000 + 501000, value * 100000000 + 501000 + iif(value = 7, 3900000, 300000), value, 1, 0, 0
		FROM byte WHERE value BETWEEN 1 AND 10;
	INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, average_mw, energy_mj, limit_mw, throttle_reasons)
		SELECT 1, 9, 'gpu', 'poll', value * 100000000, 235000, value * 23500, 600000, 1 FROM byte WHERE value <= 30"

# figures SECTION EXPRESSION [OPTION...]: of the first row.
figures() {
	section=$1
	expression=$2
	shift 2
	expect_ok "$moetrace" efficiency hand.db --format json "$@"
	sqlite3 -batch :memory: "WITH r AS (SELECT value AS v FROM json_each(readfile('out'), '\$.$section')) SELECT group_concat(f, ';')
		FROM (SELECT $expression AS f FROM r)"
}
v() {
	echo "json_extract(v, '\$.$1')"
}

# ---- work, bytes and rates: 2 operations x 500 weights x 4 rows x 2; 3 experts x 1000 bytes; 0.5 ms ----
peaks="--peak-tflops 0.0001 --peak-gbps 0.01"
# shellcheck disable=SC2086
expect_eq "a layer" "$(figures layers "printf('%s %.9g %.9g %.9g %.9g %.9g %s %.9g', $(v passes), $(v gflop), $(v weight_mb), $(v flop_per_byte),
	$(v tflop_per_s), $(v gb_per_s), $(v bound_by), $(v share_of_peak))" $peaks)" \
	"10 8e-06 0.003 2.66666667 1.6e-05 0.006 memory 0.6"
expect_eq "with more arithmetic than it can do" "$(figures layers "$(v bound_by) || ' ' || $(v share_of_peak)" \
	--peak-tflops 0.00002 --peak-gbps 0.01)" "compute 0.8"
expect_eq "weights of 8 bits are twice as many" "$(figures layers "printf('%.9g', $(v gflop))" --weight-bits 8)" "1.6e-05"
# Of each pass two experts get 2 rows and one 4; blocks are of 4 rows.
expect_eq "rows of experts" "$(figures rows "printf('%s-%s %s %s %.9g', $(v rows_from), $(v rows_to), $(v experts), $(v rows), $(v padding))")" \
	"2-2 20 40 1;3-4 10 40 0"

# ---- power and energy: 235 W, 10 passes of 4 rows in the first two seconds ----
expect_eq power "$(figures power "printf('%s %.9g %.9g %.9g %.6f %.9g', $(v readings), $(v mean_w), $(v most_w), $(v limit_w),
	$(v share_of_limit), $(v throttled))")" "31 235 235 600 0.391667 0"
expect_eq "tokens per joule" "$(figures energy "printf('%s %.9g %s %.9g', $(v duration_ns), $(v joules), $(v tokens), $(v tokens_per_joule))")" \
	"1000000000 235 36 0.153191489;1000000000 235 4 0.0170212766;1000000000 235 0 0"
# shellcheck disable=SC2086
expect_ok "$moetrace" efficiency hand.db $peaks
for words in 'card .gpu. draws 235 W of 600 W, 39 %; nothing holds its clocks back' \
	'passes ran in 2 % of the time between the first and the last: in the rest there was nothing to do' \
	'operations that were timed cover 83 % of the passes' \
	'decode: experts compute 2.7 operations for a byte of weights, at 1.6e-05 TFLOP/s and 0.006 GB/s$' \
	'decode: memory bounds the experts, which take 1.7 times what it needs at least; arithmetic would take 27 % of that: its units wait'; do
	expect_match out "$words"
done
expect_ok "$moetrace" efficiency hand.db --peak-tflops 0.00002 --peak-gbps 0.01
expect_match out 'decode: arithmetic bounds the experts, which take 1.3 times what it needs at least'
expect_ok "$moetrace" efficiency hand.db --peak-tflops 0.00001 --peak-gbps 0.01
expect_match out 'decode: that is faster than the peaks allow'
change hand.db "UPDATE power_sample SET throttle_reasons = 4 WHERE time_ns < 1500000000"
expect_ok "$moetrace" efficiency hand.db
expect_match out '; its power limit held its clocks back in 48 % of the readings'
expect_match err 'what bounds a layer needs the peaks of the machine'

# ---- a slow pass: 5 ms where the mean is 1.4 ms, of which one operation took 3.9 instead of 0.66 ----
slow="printf('%s %.6f %s %s %.9g %s', $(v pass_id), $(v times), $(v longest_operation), $(v operation_ns), $(v operation_usual_ns), $(v differs_in))"
expect_eq "the slow pass" "$(figures slow_passes "$slow")" "7 3.571429 attention 3900000 660000 one operation"
why() {
	change hand.db "$1"
	expect_eq "slow because of $2" "$(figures slow_passes "$(v differs_in)")" "$2"
}
why "UPDATE pass SET padding_rows = 4 WHERE pass_id = 7" 'more padding'
why "UPDATE pass_layer SET max_load = 40 WHERE pass_id = 7" 'one expert has many rows'
why "UPDATE pass_layer SET active_experts = 4 WHERE pass_id = 7" 'more active experts'
why "UPDATE pass_layer SET active_experts = 3, max_load = 4; UPDATE pass SET padding_rows = 0; DELETE FROM kernel" \
	'nothing that was recorded: operations were not timed'
change hand.db "UPDATE pass SET end_ns = begin_ns + 1000000"
expect_eq "no slow pass" "$(figures slow_passes "$(v pass_id)")" ""

# ---- windows whose rows are not all known: no tokens, and a note why ----
# untold EXPECTED NOTE CHANGE: tokens, whether there is no quotient, and why, of a copy after the change.
untold() {
	cp hand.db untold.db
	change untold.db "$3"
	expect_eq "windows after $3" "$(sqlite3 -batch untold.db "SELECT group_concat(coalesce(tokens, '-') || ' '
		|| (tokens_per_joule IS NULL) || ' ' || coalesce(untold, 'told'), '; ') FROM energy_window")" "$1"
	expect_ok "$moetrace" power untold.db --format json
	expect_match err "note: recording 1: tokens of [0-9] of 3 windows of energy are not known: $2"
	expect_eq "power after $3" "$(sqlite3 -batch untold.db "SELECT group_concat(json_extract(value, '\$.tokens') IS w.tokens
		AND json_extract(value, '\$.tokens_per_joule') IS w.tokens_per_joule
		AND (json_extract(value, '\$.mj_per_token') IS NULL) = (coalesce(w.tokens, 0) = 0), '') FROM json_each(readfile('out')),
		energy_window AS w WHERE json_extract(value, '\$.start_ns') = w.start_ns")" 111
}
none() {
	printf -- '- 1 %s; - 1 %s; - 1 %s' "$1" "$1" "$1"
}
untold "$(none sampling)" 'passes were left out by sampling .passes=3.$' \
	"UPDATE recording SET sampling = 'passes=3'; REPLACE INTO stats VALUES (1, 'sampled_passes', 20)"
expect_ok "$moetrace" efficiency untold.db --format json
expect_match err "note: recording 1: tokens of 3 of 3 windows of energy are not known: passes were left out by sampling"
expect_eq "energy of samples" "$(sqlite3 -batch :memory: "SELECT group_concat(json_extract(value, '\$.joules') || ' '
	|| (json_extract(value, '\$.tokens') IS NULL) || ' ' || (json_extract(value, '\$.tokens_per_joule') IS NULL), ';')
	FROM json_each(readfile('out'), '\$.energy')" | sed 's/\.0 / /g')" "235 1 1;235 1 1;235 1 1"
! grep -q 'passes ran in' out || fail "a share of the time, of passes that are a sample"
untold "$(none disabled)" 'passes ran while recording was off' "REPLACE INTO stats VALUES (1, 'disabled_passes', 1)"
untold "$(none mode)" 'mode stat keeps no passes' "DELETE FROM pass; UPDATE recording SET mode = 'stat'"
# A pass that was lost as it began; one that was missed later began in the window before, at the earliest.
gap="INSERT INTO gap (recording_id, stream, start_ns, end_ns, n_lost, reason) VALUES (1"
untold "36 0 told; 4 0 told; - 1 lost" 'passes were lost in them' "$gap, 'pass', 2500000000, 2500000000, 1, 'ring_full')"
untold "36 0 told; - 1 lost; - 1 lost" 'passes were lost in them' "$gap, 'pass', 2500000000, 2500000000, 1, 'device')"
# Flight mode that kept the passes from 0.2 s on; a file that was cut while it goes on.
untold "- 1 let go; 4 0 told; 0 0 told" 'passes as old were let go' \
	"REPLACE INTO stats VALUES (1, 'flight_let_go_passes', 1); DELETE FROM pass WHERE pass_id = 1"
untold "36 0 told; - 1 open; - 1 open" 'passes that ran when the file was cut' "UPDATE recording SET end_reason = 'killed'"
# Operations of one pass of ten are a share of that pass: 0.8 of 1 ms.
cp hand.db told.db
change told.db "INSERT INTO kernel (recording_id, device_id, name_id, start_ns, end_ns, pass_id, layer_id, known_by, flags)
	VALUES (1, 9, 1001, 100001000, 100801000, 1, 1, 0, 0)"
expect_ok "$moetrace" efficiency told.db
expect_match out 'operations that were timed cover 80 % of the passes that they are of'
cp hand.db told.db
change told.db "$gap, 'layer', 2500000000, 2500000000, 1, 'ring_full'); UPDATE recording SET sampling = 'requests=2'"
expect_ok "$moetrace" power told.db
[ ! -s err ] || ! grep -q 'not known' err || fail "rows that are known are said not to be"
# A driver that tells an average alone.
change told.db "UPDATE power_sample SET energy_mj = NULL"
expect_ok "$moetrace" power told.db
expect_match err 'device 9, gpu: its source tells average power alone, .*: --readings shows it'

# ---- peaks that are measured: of this machine, which is not the one that recorded ----
expect_ok "$moetrace" efficiency hand.db --measure=cpu --format json
expect_match err 'note: peaks were measured on this machine, .*, and process [0-9]+ ran on nowhere'
expect_match err 'note: peaks were measured on the CPU, and passes ran on a GPU'
expect_eq "measured peaks" "$(sqlite3 -batch :memory: "SELECT group_concat(json_extract(value, '\$.what') || ' '
	|| (json_extract(value, '\$.peak') > 1e-5) || ' ' || (json_extract(value, '\$.source') GLOB 'measured: *, * threads'), ';')
	FROM json_each(readfile('out'), '\$.peaks')")" "compute 1 1;memory 1 1"
expect_eq "a given one stays" "$(figures peaks "$(v peak) || ' ' || substr($(v source), 1, 8)" --measure=cpu --peak-gbps 7 | tr ';' '\n' |
	grep -c '^7 given$')" 1
expect_error 2 "measure 'tpu': give cpu or cuda" "$moetrace" efficiency hand.db --measure=tpu
# Where there is no GPU, or no code for one, that is said.
run "$moetrace" efficiency hand.db --measure=cuda --format json
[ "$status" -eq 0 ] || expect_match err 'efficiency: --measure=cuda: '
export MOETRACE_CPU=pdp11
expect_error 1 'MOETRACE_CPU names an instruction set' "$moetrace" efficiency hand.db --measure=cpu
