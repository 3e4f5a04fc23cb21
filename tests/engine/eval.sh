# SPDX-License-Identifier: MIT
#
# moetrace eval on the sequences that the reference implementation ran: its
# cross-entropy, and the active experts that follow from its router logits, plainly
# and under the rule. A row whose k0-th and k0+1-th largest logit are less than 1e-4
# apart may choose otherwise; each may move the count of its position by one.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
golden=$MOETRACE_SRCDIR/tests/data/tinymoe/golden
cd "$tmp" || exit 99
need_json
split -b 161 -d -a 1 "$golden/tokens.u8" seq-

# near has a line LAYER K0 N: N near ties at that cut, which are listed. The reference wrote the gap
# behind the 8th logit down; those before it are sought in layer 0.
{
	od -An -v -tf4 -w256 -N 409600 "$golden/router_logits.f32" | awk '{
		for (j = 1; j <= 64; j++)
			x[j] = $j
		for (j = 1; j <= 8; j++) {
			for (i = best = j; i <= 64; i++)
				if (x[i] > x[best])
					best = i
			y = x[j]; x[j] = x[best]; x[best] = y
			if (j > 1 && x[j - 1] - x[j] < 1e-4)
				print 0, j - 1, NR - 1, x[j - 1] - x[j]
		}
	}'
	od -An -v -tf4 -w4 "$golden/cut_gap.f32" |
		awk '$1 < 1e-4 { print int((NR - 1) / 1600), 8, (NR - 1) % 1600, $1 }'
} | awk '{
	printf "layer %d, sequence %d, position %d: logits %d and %d are %g apart\n",
		$1, $3 / 160, $3 % 160, $2, $2 + 1, $4
	n[$1, $2]++
}
END {
	for (layer = 0; layer < 6; layer++)
		for (k0 = 1; k0 <= 8; k0++)
			print layer, k0, n[layer, k0] + 0 >"near"
}' >near-ties
cat near-ties
expect_eq "near ties" "$(grep -c 'logits 8 and 9' near-ties)" 7

sqlite3 -batch oea.db "create table near (layer, k0, n)" ".separator ' '" ".import near near" \
	"create table want as select json_extract(value, '\$.layer') as layer,
		json_extract(value, '\$.k0') as k0, json_extract(value, '\$.mean_active') as active,
		json_extract(value, '\$.short_rows') as below_k
	from json_each(readfile('$golden/meta.json'), '\$.oea')"

# field PATH FILE: one number of the output.
field() {
	sqlite3 -batch :memory: "select json_extract(readfile('$2'), '\$.$1')"
}

# same_layers K0 FILE LAYERS: the output has the reference's numbers in layers below LAYERS.
same_layers() {
	sqlite3 -batch oea.db "
		select 'layer ' || w.layer || ', k0 ' || w.k0 || ': ' || json_extract(l.value,
			'\$.mean_active_experts') || ' instead of ' || w.active
		from want as w join near as n on n.layer = w.layer and n.k0 = w.k0
		join json_each(readfile('$2'), '\$.layers') as l
			on json_extract(l.value, '\$.layer') = w.layer
		where w.k0 = $1 and w.layer < $3
		and (abs(json_extract(l.value, '\$.mean_active_experts') - w.active) * 160 > n.n + 1e-6
			or (n.n = 0 and json_extract(l.value, '\$.tokens_below_k') <> w.below_k))" >differences
	[ ! -s differences ] || fail "$(cat differences)"
}

# Plainly.
expect_ok "$moetrace" eval --model "$model" --text seq-* --batch 10 --format json
mv out plain
expect_eq "layers" "$(field 'layers[#-1].layer' plain)" 5
same_layers 8 plain 6
expect_eq "cross-entropy" "$(sqlite3 -batch :memory: "select abs(json_extract(readfile('plain'),
	'\$.ce_nats') - json_extract(readfile('$golden/meta.json'), '\$.mean_ce')) < 1e-4")" 1
expect_eq "divergence" "$(field kl_nats plain)" 0
expect_match plain '^\{"ce_nats":[0-9.]+,"kl_nats":0,"mean_active_experts":[0-9.]+,"tokens_below_k":0,"layers":\[(\{"layer":[0-5],"mean_active_experts":[0-9.]+,"tokens_below_k":0\},?){6}\]\}$'
expect_eq "the mean over layers" "$(sqlite3 -batch :memory: "select abs(avg(json_extract(value,
	'\$.mean_active_experts')) - json_extract(readfile('plain'), '\$.mean_active_experts')) < 1e-9
	from json_each(readfile('plain'), '\$.layers')")" 1

# Live: later layers see what earlier ones changed, layer 0 does not.
before=0
cuts='1 2 3 4 5 6 7 8'
depths='1 7'
if is_sanitized; then
	cuts='1 3 8'
	depths=1
fi
for k0 in $cuts; do
	expect_ok "$moetrace" eval --model "$model" --text seq-* --batch 10 --oea k0=$k0 \
		--format json
	mv out live-$k0
	same_layers $k0 live-$k0 1
	expect_eq "k0 $k0: more experts are active" "$(sqlite3 -batch :memory: "select $before <
		json_extract(readfile('live-$k0'), '\$.mean_active_experts')")" 1
	before=$(field mean_active_experts live-$k0)
	expect_eq "k0 $k0: the divergence falls, the sum of rows is right" "$(sqlite3 -batch :memory: "
		select (json_extract(readfile('live-$k0'), '\$.kl_nats') > 0) = ($k0 < 8),
		sum(json_extract(value, '\$.tokens_below_k')) =
			json_extract(readfile('live-$k0'), '\$.tokens_below_k')
		from json_each(readfile('live-$k0'), '\$.layers')")" "1|1"
done
expect_same live-8 plain
for deepest in $depths; do
	expect_ok "$moetrace" eval --model "$model" --text seq-* --batch 10 --format json \
		--oea k0=8,maxp=$deepest
	expect_same out plain
done
expect_eq "k0 3 costs less than k0 1" "$(sqlite3 -batch :memory: "select
	json_extract(readfile('live-3'), '\$.kl_nats') < json_extract(readfile('live-1'), '\$.kl_nats'),
	json_extract(readfile('live-3'), '\$.ce_nats') < json_extract(readfile('live-1'), '\$.ce_nats')")" "1|1"

# What does not matter: the order of the texts, how many threads there are, how the rule is given.
expect_ok "$moetrace" eval --oea k0=3 --model "$model" --threads 1 --batch 99 --format json \
	--text seq-9 seq-3 --text seq-5 seq-7 seq-0 seq-1 seq-2 seq-4 seq-8 seq-6
expect_same out live-3
expect_ok "$moetrace" eval --rule oea:kmax=8,k0=3,maxp=64,p=1.0 --model "$model" --threads 4 \
	--batch 10 --format json --text seq-*
expect_same out live-3

# Without a rule the batch changes what is active together, and no prediction.
expect_ok "$moetrace" eval --model "$model" --text seq-* --batch 3 --format json
expect_eq "cross-entropy of smaller batches" "$(field ce_nats out)" "$(field ce_nats plain)"
expect_ok "$moetrace" eval --model "$model" --text seq-* --batch 1 --format json
expect_eq "one row at a time" "$(field mean_active_experts out)" 8

# A text that has ended leaves its batch: 160 passes, of 10 rows, then of 1.
head -c 41 seq-1 >short
expect_ok "$moetrace" eval --model "$model" --text seq-0 short --oea k0=3 --format json
expect_match err '^moetrace eval: warning: 120 of 160 passes have one row'
mv out uneven
expect_eq "one row has three experts" "$(sqlite3 -batch :memory: "select
	json_extract(value, '\$.tokens_below_k') >= 120, json_extract(value,
	'\$.mean_active_experts') between (120 * 3 + 40 * 3) / 160.0 and (120 * 3 + 40 * 6) / 160.0
	from json_each(readfile('uneven'), '\$.layers') limit 1")" "1|1"
printf 'a' >one-byte
expect_ok "$moetrace" eval --model "$model" --text seq-0 one-byte short --oea k0=3 --format json
expect_same out uneven

# Tables.
expect_ok "$moetrace" eval --model "$model" --text seq-* --batch 10
expect_match out '^ *ce_nats +kl_nats +mean_active_experts +tokens_below_k$'
expect_match out '^ *0 +41\.8563 +0$'
expect_err ""

# Mistakes.
: >empty
base="--model $model --text seq-0"
expect_error 2 "^moetrace eval: --model FILE.safetensors is missing" "$moetrace" eval --text seq-0
expect_error 2 "--shape qwen3-moe: the weights of a shape are synthetic.*give a --model" \
	"$moetrace" eval --shape qwen3-moe --text seq-0
expect_error 2 "--text FILE is missing" "$moetrace" eval --model "$model"
expect_error 2 "--text is empty" "$moetrace" eval --model "$model" --text ''
expect_error 3 "^moetrace eval: nowhere: No such file" "$moetrace" eval --model "$model" --text nowhere
expect_error 3 "nowhere" "$moetrace" eval --model nowhere --text seq-0
expect_error 1 "empty is empty: there is nothing to predict" "$moetrace" eval --model "$model" --text empty
expect_error 1 "no text has two bytes" "$moetrace" eval --model "$model" --text one-byte
expect_error 1 "^moetrace eval: .: Is a directory" "$moetrace" eval --model "$model" --text .
expect_error 1 "seq-0" "$moetrace" eval --model seq-0 --text seq-0
expect_error 2 "--batch '0': give a whole number from 1" "$moetrace" eval $base --batch 0
expect_error 2 "--threads '0'" "$moetrace" eval $base --threads 0
expect_error 2 "--format csv holds one table" "$moetrace" eval $base --format csv
expect_error 2 "--oea 'k0=0': oea: k0 is '0', expected a whole number from 1" "$moetrace" eval $base --oea k0=0
expect_error 2 "oea: k0 is 9, expected 1 to 8" "$moetrace" eval $base --oea k0=9
expect_error 2 "oea: kmax is 2, expected k0, which is 3, to 32" "$moetrace" eval $base --oea k0=3,kmax=2
expect_error 2 "oea: a field is missing behind the last comma" "$moetrace" eval $base --oea k0=3,
expect_ok "$moetrace" eval $base --oea k0=3,p=0.500000000000000000000000000000000000001
expect_error 2 "--model is empty: give the path of a file" "$moetrace" eval --model= --text seq-0
expect_error 2 "oea: p is '2'" "$moetrace" eval $base --oea k0=3,p=2
expect_error 2 "oea: maxp is 65, expected 1 to 64" "$moetrace" eval $base --oea k0=3,maxp=65
expect_error 2 "k0 is missing" "$moetrace" eval $base --rule oea
expect_error 2 "--rule 'budget:4': the engine has no rule 'budget', it has oea" \
	"$moetrace" eval $base --rule budget:4
expect_error 2 "a rule was given already" "$moetrace" eval $base --oea k0=3 --rule oea:k0=3
