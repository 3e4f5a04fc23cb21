# SPDX-License-Identifier: MIT
#
# check on the shape of a file: tables and views that are missing, replaced or more than the
# schema has, and in every column of every table a value that its declaration forbids.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"

violates schema "DROP VIEW loss; CREATE VIEW loss AS SELECT recording_id, end_reason, 0 AS dropped_passes,
	0 AS dropped_layers, 0 AS unwritten_layers, 0 AS sampled_passes, 0 AS disabled_passes, 0 AS dropped_bytes, 0 AS invalid_ids, 0 AS misuse, 0 AS n_gaps, 0 AS partial_passes,
	0 AS partial_requests, 0 AS unfinished_requests, 0 AS lag_passes FROM recording;"
violates schema "DROP VIEW layer_time; CREATE TABLE layer_time (a);"
violates schema "DROP VIEW routed_expert; CREATE VIEW routed_expert AS SELECT 1 AS a;"
violates schema "ALTER TABLE model RENAME COLUMN quantization TO quantisation;"
violates schema "ALTER TABLE model ADD COLUMN more TEXT;"
violates schema "PRAGMA writable_schema = 1;
	UPDATE sqlite_schema SET sql = replace(sql, '''draft''', '''drafts''') WHERE name = 'token_topk';"
violates schema "PRAGMA user_version = 1000;"
violates schema "PRAGMA user_version = -1;"

tables="meta process device model layer recording request request_attribute request_token \
	pass pass_request rule topk pass_layer layer_load dispatch expert_map expert_load_window clock_snapshot stats gap diagnostic byte \
	string launch_shape collector kernel graph_node graph_launch collector_overhead range power_sample device_link host_sample device_clock"
# Of those that are missing alike a few say all that a sanitizer can.
! is_sanitized || tables='meta topk kernel'
for table in $tables; do
	cp "$tmp/sound.db" "$tmp/broken.db"
	change "$tmp/broken.db" "DROP TABLE $table;"
	expect_status 1 "$moetrace" check "$tmp/broken.db"
	expect_err ""
	expect_match "$tmp/out" "^schema  table $table: is missing\$"
	expect_match "$tmp/out" '^the other proofs were not made: they need what is missing$'
	expect_match "$tmp/out" 'broken.db: not sound: 1 of [0-9]+ proofs are violated$'
done
views="expert_load layer_balance expert_coverage pass_summary request_summary stored_topk token_topk routed_expert layer_time pass_expert align_waste loss kernel_event kernel_summary power energy_window overlap CUPTI_ACTIVITY_KIND_KERNEL PROFILER_OVERHEAD NVTX_EVENTS"
! is_sanitized || views='loss power'
for view in $views; do
	cp "$tmp/sound.db" "$tmp/broken.db"
	change "$tmp/broken.db" "DROP VIEW $view;"
	expect_status 1 "$moetrace" check "$tmp/broken.db"
	expect_err ""
	expect_match "$tmp/out" "^schema  view $view: is missing\$"
	expect_match "$tmp/out" 'broken.db: not sound: 1 of [0-9]+ proofs are violated$'
done

# Comments and blanks of the schema are no part of it, and more objects are only told.
holds "PRAGMA writable_schema = 1;
	UPDATE sqlite_schema SET sql = replace(sql, '-- key', ' -- the key of the row');"
holds "CREATE TABLE notes (a); CREATE INDEX by_phase ON pass (phase);
	CREATE TRIGGER quiet AFTER DELETE ON pass BEGIN SELECT 1; END;"
expect_match "$tmp/out" '^note: table notes is not of the schema$'
expect_match "$tmp/out" '^note: index by_phase is not of the schema$'
expect_match "$tmp/out" '^note: trigger quiet is not of the schema$'

# Every column of every table: values of another type, and a number below 0.
cp "$tmp/sound.db" "$tmp/full.db"
change "$tmp/full.db" "INSERT INTO gap VALUES (1, 1, 'layer', 7000, 7100, 1, 9, 'ring_full');
	INSERT INTO rule VALUES (1, 'oea:k0=1');
	INSERT INTO request_reuse VALUES (2, 1, 0, 1, 2, 0);
	INSERT INTO layer_load VALUES (7, 1, 1, x'00000000', NULL);
	INSERT INTO diagnostic VALUES (1, 1, 5, 'info', 'store', 'a message', 1);"
sqlite3 -batch -separator ' ' "$tmp/full.db" "SELECT m.name, c.name, c.type,
	m.name = 'pass' AND c.name = 'runtime_pass'
	FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'
	AND NOT (c.pk = 1 AND c.type = 'INTEGER' AND m.sql NOT LIKE '%PRIMARY KEY (%')" >"$tmp/columns"
[ "$(wc -l <"$tmp/columns")" -gt 120 ] || fail "the list of columns is short"
# Each column gets one of the values, in turn: the proof is one for all columns, of which sanitizers
# see each fifth.
n=0
while read -r table column type has_sign; do
	n=$((n + 1))
	! is_sanitized || [ $((n % 5)) -eq 0 ] || continue
	case $type in
	INTEGER) values="'never' x'00' 1.5" ;;
	REAL) values="'never' x'00' 9e999" ;;
	TEXT) values="x'00'" ;;
	BLOB) values="'zzz' 7" ;;
	*) fail "$table.$column has type $type" ;;
	esac
	[ "$type$has_sign" != INTEGER0 ] || values="$values -9"
	# shellcheck disable=SC2086 # one word a value
	set -- $values
	shift $((n % $#))
	value=$1
	cp "$tmp/full.db" "$tmp/broken.db"
	change "$tmp/broken.db" "UPDATE OR IGNORE $table SET $column = $value;"
	expect_status 1 "$moetrace" check --format jsonl "$tmp/broken.db"
	grep '"proof":"types"' "$tmp/out" |
		grep -q "\"first_violation\":\"$table .*: $column: is " ||
		fail "types is not violated by $value in $table.$column"
done <"$tmp/columns"

# NULL where the schema forbids it: the declaration is taken away for a moment.
cp "$tmp/sound.db" "$tmp/broken.db"
declare_phase() {
	change "$tmp/broken.db" "PRAGMA writable_schema = 1;
		UPDATE sqlite_schema SET sql = replace(sql, '$1', '$2') WHERE name = 'pass';"
}
declare_phase 'phase TEXT NOT NULL, ' 'phase TEXT, '
change "$tmp/broken.db" "UPDATE pass SET phase = NULL WHERE pass_id = 3;"
declare_phase 'phase TEXT, ' 'phase TEXT NOT NULL, '
expect_status 1 "$moetrace" check --format jsonl "$tmp/broken.db"
expect_match "$tmp/out" '"proof":"types".*"first_violation":"pass 3: phase: is NULL'
