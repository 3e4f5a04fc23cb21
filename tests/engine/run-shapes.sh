# SPDX-License-Identifier: MIT
#
# `moetrace run --shape`: known models at their true sizes on a small pool of weights. What `layer`
# says of each, with the reason for the code that serves it; the same choices for every batch,
# chunk and thread count; the choices of --routing; and what is refused before a run begins.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

cd "$tmp" || exit 99
printf '{"prompt": "abc", "max_new_tokens": 2, "id": "a"}\n' >one.jsonl
cat >two.jsonl <<'END'
{"prompt": "The router", "max_new_tokens": 3, "id": "a"}
{"prompt": "int", "max_new_tokens": 4, "id": "b"}
END

# shape NAME LAYERS WORKLOAD OUTPUT OPTION...
shape() {
	name=$1
	layers=$2
	workload=$3
	output=$4
	shift 4
	run "$moetrace" run --shape "$name" --layers "$layers" --expert-pool 1000000 \
		--workload "$workload" -o "$output" "$@"
	if grep -q libyajl-dev err; then
		skip "built without a JSON parser"
	fi
	[ "$status" -eq 0 ] || fail "exit status $status: $name $*"
	cp out summary
	expect_ok "$moetrace" check "$output"
}

# layers FILE: a line a layer.
layers() {
	sql "$1" "SELECT layer, kind, n_experts, n_zero_experts, n_shared_slots, top_k, scoring,
		n_groups, topk_groups, renormalize, routed_scaling_factor, has_correction_bias,
		weight_kind, expert_weight_bytes FROM layer ORDER BY layer_id"
}

# known NAME LAYERS LINE...: run and recorded like that; the bytes are those of bf16.
known() {
	shape "$1" "$2" one.jsonl "$1.db"
	shift 2
	expect_eq "layers of $name" "$(layers "$name.db")" "$*"
	expect_eq "entries of $name" \
		"$("$moetrace" query "$name.db" "SELECT min(n) = max(n) AND max(n) = (SELECT max(top_k)
			FROM layer) FROM (SELECT count(DISTINCT expert) AS n FROM moe_topk
			GROUP BY layer, position)")" 1
}

known deepseek-v3 1 '3|routed|256|0|0|8|sigmoid|8|4|1|2.5|1|renormalized,scaled|88080384'
expect_eq 'reason' "$(sql deepseek-v3.db "SELECT instr(impl_reason, 'grouped') > 0 AND
	instr(impl_reason, 'dense layers left out') > 0 AND instr(impl_reason, 'MLA') > 0 AND
	instr(runner_backend, 'expert pool of 9') > 0 FROM layer")" 1
# What these have is in the others, too: code that sanitizers have seen.
if ! is_sanitized; then
	known kimi-k3 1 '1|routed|896|0|0|16|sigmoid|1|1|1||1|renormalized|66060288'
	known nemotron-3-super 2 '1|routed|512|0|0|22|sigmoid|1|1|1|5.0|1|renormalized,scaled|11010048
3|routed|512|0|0|22|sigmoid|1|1|1|5.0|1|renormalized,scaled|11010048'
	known gpt-oss-120b 1 '0|routed|128|0|0|4|softmax_selected|||0||0|raw|49766400'
	known mixtral-8x7b 1 '0|routed|8|0|0|2|softmax|||1||0|renormalized|352321536'
	known llama4-maverick 2 '1|routed|128|0|0|1|sigmoid|||0||0|raw|251658240
3|routed|128|0|0|1|sigmoid|||0||0|raw|251658240'
fi
known deepseek-v4 4 '0|hash|256|0|0|6|sqrtsoftplus|||1|1.5|0|renormalized,scaled|50331648
1|hash|256|0|0|6|sqrtsoftplus|||1|1.5|0|renormalized,scaled|50331648
2|hash|256|0|0|6|sqrtsoftplus|||1|1.5|0|renormalized,scaled|50331648
3|routed|256|0|0|6|sqrtsoftplus|||1|1.5|1|renormalized,scaled|50331648'
known glm-5 1 '3|routed|256|0|0|8|sigmoid|1|1|1|2.5|1|renormalized,scaled|75497472'
known longcat-flash 1 '0|routed|512|256|0|12|softmax|||0|6.0|1|scaled|75497472'
is_sanitized || known phi-3.5-moe 1 '0|routed|16|0|0|2|sparsemixer|||0||0|raw|157286400'

# Why the code for small groups does not serve GLM-5, or none of the vectors a hash layer.
expect_ok "$moetrace" info glm-5.db
grep -q 'vectors' out &&
	expect_match out 'fast grouped: at most 32 experts a group; this layer has 256 in 1 group'
expect_ok "$moetrace" info deepseek-v4.db
expect_match out 'plain serves: '

# A token of a hash layer has one choice wherever it stands: "aa" begins with two of them.
printf '{"prompt": "aab", "max_new_tokens": 1, "id": "a"}\n' >aab.jsonl
shape deepseek-v4 1 aab.jsonl hash.db
expect_eq 'choices of a token' "$("$moetrace" query hash.db "SELECT count(DISTINCT ids) FROM
	(SELECT group_concat(expert) AS ids FROM (SELECT * FROM moe_topk ORDER BY position, topk_rank)
	WHERE position < 2 GROUP BY position)")" 1

# Shared experts as slots of the choice, with weight 1.
shape deepseek-v3 1 one.jsonl slots.db --shared-slots
expect_eq 'layer' "$(layers slots.db)" \
	'3|routed|256|0|1|9|sigmoid|8|4|1|2.5|1|renormalized,scaled|88080384'
expect_eq 'shared slot' "$("$moetrace" query slots.db "SELECT min(expert) || ' ' || max(expert)
	|| ' ' || min(weight) || ' ' || max(weight) FROM moe_topk WHERE topk_rank = 8")" '256 256 1.0 1.0'

# ---- one result for every batch, chunk and thread count; another seed is another model ----

choices="SELECT external_id, position, layer, topk_rank, expert, weight FROM moe_topk
	JOIN request USING (request_id) ORDER BY 1, 2, 3, 4"
listed() {
	expect_ok "$moetrace" query "$1.db" --format csv "$choices"
	cp out "$1.csv"
}
shape nemotron-3-super 1 two.jsonl wide.db --threads 2 --text-output wide.jsonl
expect_match summary '^pool +9[0-9]{5} bytes'
expect_no_match summary 'tokens/s'
listed wide
shape nemotron-3-super 1 two.jsonl narrow.db --threads 1 --batch 1 --chunk 3 \
	--text-output narrow.jsonl
listed narrow
expect_same wide.csv narrow.csv
expect_same wide.jsonl narrow.jsonl
shape nemotron-3-super 1 two.jsonl other.db --seed 1
listed other
! cmp -s wide.csv other.csv || fail "another seed gave the same choices"

# ---- who chooses ----

routings='uniform round-robin zipf:1.5'
! is_sanitized || routings=zipf:1.5
for routing in $routings; do
	for batch in 1 2; do
		shape nemotron-3-super 1 two.jsonl "r$batch.db" -f --routing $routing --batch $batch
		listed "r$batch"
	done
	expect_same r1.csv r2.csv
	expect_eq source "$(sql r1.db "SELECT routing_source || ' ' || kind || ' ' ||
		(impl_reason LIKE '%--routing%') FROM recording, layer")" "$routing routed 1"
	expect_eq "rows of $routing" "$("$moetrace" query r1.db "SELECT count(*) FROM (SELECT 1
		FROM moe_topk GROUP BY request_id, position HAVING count(DISTINCT expert) != 22
		OR abs(sum(weight) - 5) > 0.02 OR min(weight) < 0)")" 0
done
expect_eq 'experts of zipf' "$("$moetrace" query r1.db "SELECT count(DISTINCT expert) < 150
	FROM moe_topk")" 1
shape deepseek-v4 1 one.jsonl hashed.db --routing round-robin
expect_eq 'kind without its table' "$(sql hashed.db 'SELECT kind FROM layer')" routed
shape nemotron-3-super 1 two.jsonl replay.db --routing replay:wide.db --batch 1
listed replay
expect_same replay.csv wide.csv
expect_eq source "$(sql replay.db 'SELECT routing_source FROM recording')" replay:wide.db
sed 's/"id": "a"/"id": "c"/; s/"id": "b"/"id": "d"/' two.jsonl >renamed.jsonl
shape nemotron-3-super 1 renamed.jsonl order.db --routing replay:wide.db
listed order
sed 's/^c,/a,/; s/^d,/b,/' order.csv >renamed.csv
expect_same renamed.csv wide.csv
head -n 3 "$tinymoe/workload.jsonl" >tiny.jsonl
expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload tiny.jsonl -o tiny.db
expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload tiny.jsonl -o again.db \
	--routing replay:tiny.db
expect_ok "$moetrace" check again.db
listed tiny
listed again
cut -d , -f 1-5 tiny.csv >tiny.ids
cut -d , -f 1-5 again.csv >again.ids
expect_same tiny.ids again.ids
expect_eq 'layers of a file' "$(sql tiny.db "SELECT DISTINCT kind || ' ' || scoring || ' ' ||
	renormalize || ' ' || has_correction_bias || ' ' || weight_kind || ' ' ||
	(impl_reason LIKE '%serves%') FROM layer")" 'routed softmax 1 0 renormalized 1'

# ---- what is refused, before anything is recorded ----

# refused CODE REGEX OPTION...
refused() {
	code=$1
	words=$2
	shift 2
	expect_error "$code" "$words" "$moetrace" run -o never.db --workload one.jsonl "$@"
	expect_absent never.db
}
pool='--expert-pool 1000000'

refused 3 "no model is called 'gtp'; 'moetrace models' lists them" --shape gtp
refused 2 "--shape is empty: 'moetrace models' lists the names" --shape=
refused 2 '--model and --shape exclude each other' --shape glm-5 --model x
refused 2 '--model FILE.safetensors is missing \(or --shape NAME\)'
refused 2 '--layers is for a --shape' --model x --layers 2
refused 2 '--expert-pool is for a --shape' --model x --expert-pool 1000000
refused 1 'the routing of gemma-4-26b-a4b is not known' --shape gemma-4-26b-a4b
refused 1 'the dimensions of afmoe are not known' --shape afmoe
refused 1 'layers is 59, deepseek-v3 has 58' --shape deepseek-v3 --layers 59
refused 1 'mixtral-8x7b has no shared experts' --shape mixtral-8x7b --shared-slots
refused 1 'kimi-k3 with 92 layers needs [0-9]{13} bytes of memory, [0-9]+ are available; .*--expert-pool BYTES' \
	--shape kimi-k3
for value in 0 -1 x '' 4097; do
	refused 2 '--layers' --shape glm-5 "--layers=$value"
done
for value in 0 -1 65535 x ''; do
	refused 2 '--expert-pool' --shape glm-5 "--expert-pool=$value"
done
for value in '' x uniform: zipf zipf: zipf:nan zipf:inf zipf:-1 zipf:101 zipf:1e1 replay:; do
	refused 2 "--routing '$value'" --shape glm-5 "--routing=$value"
done
refused 2 "a rule changes the router's choice" --shape glm-5 --routing uniform --oea k0=3

# shellcheck disable=SC2086 # two words
{
	refused 3 'absent.db' --shape nemotron-3-super --layers 1 $pool --routing replay:absent.db
	refused 1 'one.jsonl' --shape nemotron-3-super --layers 1 $pool --routing replay:one.jsonl
	refused 1 'n_experts of its layer 0 is 512, that of this run 256' --shape glm-5 --layers 1 \
		$pool --routing replay:wide.db
	refused 1 'n_layers is 1, this run has 2' --shape nemotron-3-super --layers 2 $pool \
		--routing replay:wide.db
	printf '{"prompt": "The router and", "max_new_tokens": 3, "id": "a"}\n' >one.jsonl
	refused 1 'request a may take 16 positions, the replay has 12' --shape nemotron-3-super \
		--layers 1 $pool --routing replay:wide.db
	printf '{"prompt": "x", "max_new_tokens": 1, "id": "%s"}\n' a z >one.jsonl
	refused 1 'wide.db has no request z' --shape nemotron-3-super --layers 1 $pool \
		--routing replay:wide.db
}
