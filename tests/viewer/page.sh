# SPDX-License-Identifier: MIT
#
# The page in a real browser, over the traces that it has to deal with: see page.mjs.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
need_plain_build
need_server
need_json
need_command node timeout
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
	skip "no Chromium is installed"
[ -d "$MOETRACE_SRCDIR/viewer/page/node_modules/playwright-core" ] ||
	skip "no packages: 'npm ci' in viewer/page, or make check-viewer, gets them"

head -n 24 "$tinymoe/workload.jsonl" >"$tmp/workload.jsonl"
expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" --record-tokens \
	--kernels -o "$tmp/tinymoe.db"
make_empty "$tmp/empty.db"
make_sound "$tmp/ranks.db"
change "$tmp/ranks.db" "UPDATE process SET ep_rank = 0, ep_size = 2;
	INSERT INTO process (process_id, pid, ep_rank, ep_size) VALUES (2, 2, 1, 2);
	UPDATE recording SET process_id = 2 WHERE recording_id = 2;
	INSERT INTO dispatch (pass_id, layer_id, n_ranks, rank_tokens)
		SELECT max(pass_id), 1, 2, x'0300000005000000' FROM pass WHERE recording_id = 2"
cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql "$MOETRACE_SRCDIR/tests/viewer/big.sql" |
	sqlite3 -batch -bail "$tmp/big.db" || fail "cannot make big.db"
cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql "$MOETRACE_SRCDIR/tests/viewer/timeline.sql" |
	sqlite3 -batch -bail "$tmp/timeline.db" || fail "cannot make timeline.db"
"$MOETRACE_BUILDDIR/tests/schema/make_trace" mixed "$tmp/hostile.db" || fail "make_trace"
change "$tmp/hostile.db" "UPDATE request SET external_id = '<img src=x onerror=alert(1)>' || request_id;
	UPDATE request SET external_id = printf('%.*c', 65536, 'x') WHERE request_id = 3;
	UPDATE request SET external_id = 'safe' || char(8238) || 'live' || char(8203) || char(27) || '!' WHERE request_id = 2;
	UPDATE model SET name = '</script><script>alert(1)</script>';
	UPDATE request_attribute SET value = '\"><svg onload=alert(1)>' WHERE request_id = 1"

cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql "$MOETRACE_SRCDIR/tests/viewer/slow.sql" |
	sqlite3 -batch -bail "$tmp/slow.db" || fail "cannot make slow.db"
expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" --rule oea:k0=3 \
	-o "$tmp/ruled.db"
expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$MOETRACE_SRCDIR/tests/viewer/text.jsonl" \
	--record-tokens --prefix-reuse --batch 2 -o "$tmp/text.db"
# The same load in windows of 20 ms, with names that have no place to break.
cp "$tmp/tinymoe.db" "$tmp/windows.db"
change "$tmp/windows.db" "CREATE TEMP TABLE w AS SELECT r.recording_id, p.begin_ns / 20000000 * 20000000 AS start_ns,
		r.layer_id, r.expert, sum(r.phase = 'prefill') AS prefill, sum(r.phase = 'decode') AS decode
		FROM routed_expert AS r JOIN pass AS p USING (pass_id) GROUP BY 1, 2, 3, 4;
	DELETE FROM expert_load_window;
	INSERT INTO expert_load_window SELECT recording_id, start_ns, layer_id, expert, 20000000, prefill, decode, 0, 0, 0 FROM w;
	UPDATE model SET name = 'mixture_of_experts_235B_A22B_instructed_2507_FP8_dynamic_v2';
	UPDATE request_attribute SET key = 'conversation_identifier_of_the_originating_application'"

expect_ok "$moetrace" report "$tmp/tinymoe.db" --format json
cp "$tmp/out" "$tmp/report.json"
expect_ok "$moetrace" oea "$tmp/tinymoe.db" --format json
cp "$tmp/out" "$tmp/oea.json"
# ask NAME ARGUMENT...: what a verb says as JSON.
ask() {
	name=$1
	shift
	expect_ok "$moetrace" "$@" --format json
	cp "$tmp/out" "$tmp/$name.json"
}
ask oea-pruned oea "$tmp/tinymoe.db" --rule pruned
ask oea-general oea "$tmp/tinymoe.db" --rule oea:kmax=9,maxp=12 --ranks 4
ask oea-budget oea "$tmp/tinymoe.db" --rule budget:20
ask oea-expand oea "$tmp/tinymoe.db" --rule expand:margin=0.05
ask oea-share oea "$tmp/tinymoe.db" --rule oea:p=0.7
ask eplb eplb "$tmp/tinymoe.db" --ranks 4 --replicas 68
ask verify oea --verify "$tmp/ruled.db"
expect_ok "$moetrace" requests "$tmp/tinymoe.db" 2 --format json
cp "$tmp/out" "$tmp/request.json"
expect_ok "$moetrace" query "$tmp/tinymoe.db" "SELECT layer, expert, tokens, decode_tokens FROM expert_load" --format json
cp "$tmp/out" "$tmp/load.json"

# The rows themselves, for who recomputes their figures.
for table in pass pass_layer kernel graph_node string range power_sample; do
	sqlite3 -json "$tmp/timeline.db" "SELECT * FROM $table" >"$tmp/timeline-$table.json"
done
sqlite3 -json "$tmp/timeline.db" "SELECT graph, start_ns, hex(node_times) AS node_times FROM graph_launch" \
	>"$tmp/timeline-graph_launch.json"

expect_ok "$moetrace" view --html "$tmp/page.html" "$tmp/tinymoe.db" "$tmp/ranks.db" "$tmp/hostile.db" "$tmp/empty.db"
expect_ok "$moetrace" view --html "$tmp/big.html" "$tmp/big.db"
bytes=$(wc -c <"$tmp/big.html")
[ "$bytes" -lt 20000000 ] || fail "a large trace gives a file of $bytes bytes"

set -- "$tmp/tinymoe.db" "$tmp/ranks.db" "$tmp/big.db" "$tmp/hostile.db" "$tmp/empty.db" "$tmp/timeline.db" \
	"$tmp/slow.db" "$tmp/ruled.db" "$tmp/text.db" "$tmp/windows.db"
for file; do
	printf '%s"%s"' "${separator=}" "${file##*/}"
	separator=,
done >"$tmp/names"
echo "[$(cat "$tmp/names")]" >"$tmp/traces.json"
view_start "$@"
# The programs wait for what they need, however busy the machine is; a second try is for a browser that ends,
# and says that it was needed.
for program in page page-address page-timeline page-views; do
	run timeout 1800 node "$MOETRACE_SRCDIR/tests/viewer/$program.mjs" "$chromium" "$address" "$tmp"
	cat "$tmp/out"
	if [ "$status" -ne 0 ]; then
		echo "once more: $program"
		run timeout 1800 node "$MOETRACE_SRCDIR/tests/viewer/$program.mjs" "$chromium" "$address" "$tmp"
		cat "$tmp/out"
	fi
	[ "$status" -eq 0 ] || fail "the page does not pass $program"
done
view_end

# Pictures without a browser, seen by one.
for name in tinymoe big; do
	expect_ok "$moetrace" plot heatmap -o "$tmp/$name.svg" "$tmp/$name.db"
	expect_ok "$moetrace" query "$tmp/$name.db" "SELECT layer, expert, tokens FROM expert_load WHERE recording_id = 1" \
		--format json
	cp "$tmp/out" "$tmp/$name.json"
done
run node "$MOETRACE_SRCDIR/tests/viewer/picture.mjs" "$chromium" "$tmp" tinymoe big
cat "$tmp/out"
[ "$status" -eq 0 ] || fail "the pictures do not pass"

# A trace that is being recorded.
. "$MOETRACE_SRCDIR/tests/support/live.sh"
live_begin "$tmp/live.db"
live_wait '^ *recorded_passes +[1-9][0-9]'
view_start "$tmp/live.db"
MOETRACE_TEST_PID=$live_pid
export MOETRACE_TEST_PID
run node "$MOETRACE_SRCDIR/tests/viewer/page-live.mjs" "$chromium" "$address" "$tmp"
cat "$tmp/out"
[ "$status" -eq 0 ] || fail "the page does not pass page-live"
view_end
