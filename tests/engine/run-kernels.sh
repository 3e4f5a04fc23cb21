# SPDX-License-Identifier: MIT
#
# moetrace run --kernels: the operations of every pass and layer are timed, they follow each other
# inside their pass, and nothing that the run says or stores of routing depends on it.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
cd "$tmp" || exit 99
need_json
head -n 4 "$tinymoe/workload.jsonl" >workload
set -- "$moetrace" run --model "$model" --workload workload --batch 4

expect_ok "$@" --text-output plain.jsonl -o plain.db
expect_ok "$@" --text-output timed.jsonl -o timed.db --kernels
expect_same plain.jsonl timed.jsonl
for db in plain timed; do
	sql $db.db "select request_id, position, layer, topk_rank, expert, weight from routed_expert
		order by 1, 2, 3, 4" >$db.experts
done
expect_same plain.experts timed.experts
expect_ok "$moetrace" check timed.db --strict
expect_eq "kernels of a plain run" "$(sql plain.db "select count(*) from kernel")" 0

# Ten operations a layer, and one before them; a pass whose rows nobody wants ends without a head.
expect_eq "operations" "$(sql timed.db "
	select count(*) from pass_layer as pl where 10 <> (select count(*) from kernel as k
		where k.pass_id = pl.pass_id and k.layer_id = pl.layer_id);
	select count(*) from pass as p where 1 <> (select count(*) from kernel_event as k
		where k.pass_id = p.pass_id and name = 'embed' and layer_id is null);
	select count(*) from kernel where flags <> 0;
	select count(*) from layer_time where source <> 'kernel' or experts_ns > duration_ns
		or busy_ns > duration_ns or experts_ns is null;
	select group_concat(role, ' ') from (select distinct role from kernel_event order by role)")" \
	"0
0
0
0
align attention combine embed experts gate head norm topk"

# One follows the other, except where the selection is handed over.
expect_eq "order" "$(sql timed.db "
	select count(*) > 100, sum(gap_ns < 0), sum(gap_ns > 0 and before <> 'route') from (
		select start_ns - lag(start_ns + duration_ns) over (partition by pass_id
			order by kernel_id) as gap_ns,
			lag(name) over (partition by pass_id order by kernel_id) as before
		from kernel_event) where gap_ns is not null")" "1|0|0"
