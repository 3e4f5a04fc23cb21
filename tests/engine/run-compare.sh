# SPDX-License-Identifier: MIT
#
# moetrace run --compare: plain and ruled runs in turns, each a sound recording, and changes that are
# those of what was recorded. Times are not looked at.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

cd "$tmp" || exit 99
need_json
printf '%s\n' '{"prompt":"Once upon a time","max_new_tokens":6}' '{"prompt":"int main(void)","max_new_tokens":9}' \
	'{"prompt":"It was the best","max_new_tokens":3}' >three
set -- "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload three --threads 1 --lockstep

expect_ok "$@" --compare oea:k0=3 --pairs 6 -o pairs.db --format json
cp out table
expect_match err 'note: paired_change_percent is the median over pairs'
[ "$(grep -c 'needs 6 pairs' err)" -eq 0 ] || fail 'six pairs are enough'
expect_ok "$moetrace" check pairs.db --strict
expect_eq "recordings, models, rules" "$(sql pairs.db "select (select count(*) from recording), (select count(*) from model),
	(select group_concat(name) from rule)")" "12|1|oea:k0=3"
expect_eq "the order of plain and ruled runs" "$(sql pairs.db "select group_concat(ruled, '') from (select max(rule_id is not null)
	as ruled from pass join pass_layer using (pass_id) join topk using (topk_id) group by recording_id order by recording_id)")" \
	011001100110
# value FIGURE FIELD: of the table.
value() {
	sqlite3 -batch :memory: "select round(json_extract(value, '\$.$2'), 4) from json_each(readfile('table'))
		where json_extract(value, '\$.figure') = '$1'"
}
active="select round(avg(active_experts), 4) from pass_layer join pass using (pass_id) where phase = 'decode' and recording_id"
expect_eq "plain" "$(value active_experts plain_median)" "$(sql pairs.db "$active = 1")"
expect_eq "ruled" "$(value active_experts ruled_median)" "$(sql pairs.db "$active = 2")"
expect_eq "change" "$(sqlite3 -batch :memory: "select abs($(value active_experts paired_change_percent) - 100.0 *
	($(value active_experts ruled_median) / $(value active_experts plain_median) - 1)) < 0.01, $(value active_experts low_percent) =
	$(value active_experts high_percent), $(value active_experts pairs)")" "1|1|6.0"
expect_eq "figures" "$(sqlite3 -batch :memory: "select group_concat(json_extract(value, '\$.figure'))
	from json_each(readfile('table'))")" decode_pass_us,layer_us,active_experts,same_token_share

# Two rules in one round, every other round the other way around; each against the plain run.
expect_ok "$@" --compare oea:k0=3 --compare oea:k0=8 --pairs 2 -o two.db --format json
expect_eq "figures of two rules" "$(sqlite3 -batch :memory: "select group_concat(distinct json_extract(value, '\$.rule')),
	count(*), sum(json_extract(value, '\$.rule') = 'oea:k0=8' and json_extract(value, '\$.figure') = 'active_experts'
	and json_extract(value, '\$.paired_change_percent') = 0) from json_each(readfile('out'))")" "oea:k0=3,oea:k0=8|8|1"
expect_eq "their order" "$(sql two.db "select group_concat(rule) from (select coalesce(max(rule_id), 0) as rule
	from pass join pass_layer using (pass_id) join topk using (topk_id) group by recording_id order by recording_id)")" 0,1,2,2,1,0

# A rule that changes nothing: the same experts and the same text.
expect_ok "$@" --compare oea:k0=8 --pairs 2 -o same.db --format json
cp out table
expect_eq "nothing changed" "$(value active_experts paired_change_percent) $(value same_token_share ruled_median)" "0.0 1.0"
expect_eq "two pairs give no interval" "$(value active_experts low_percent)" ""
expect_match err 'note: an interval of 95 % needs 6 pairs or more; there are 2'
if [ "$(sql same.db "select count(energy_mj) from power_sample")" -eq 0 ]; then
	expect_match err 'note: no energy_j: no power source'
fi
expect_eq "texts that differ" "$(sqlite3 -batch :memory: "select $(value same_token_share plain_median) = 1")" 1

expect_error 2 'leave --no-record' "$@" --compare oea:k0=3 --no-record
expect_error 2 'goes with neither --rule' "$@" --compare oea:k0=3 --rule oea:k0=4 -o bad.db
expect_error 2 'pairs is for --compare' "$@" --pairs 3 -o bad.db
expect_error 2 "the engine has no rule 'pruned'" "$@" --compare pruned -o bad.db
expect_error 2 'k0 is 9, expected 1 to 8' "$@" --compare oea:k0=9 -o bad.db
expect_absent bad.db
