# SPDX-License-Identifier: MIT
#
# moetrace route: the reference choices of every family through the command, the three formats, and
# one clear line for each mistake.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

oracle=$MOETRACE_SRCDIR/tests/data/router-oracle
cd "$tmp" || exit 99


# same_rows FAMILY K: out.bin holds the same sets of (id, weight) as the reference.
same_rows() {
	od -An -v -td4 -w$(($2 * 8)) out.bin | awk -v k="$2" '{ for (j = 1; j <= k; j++) print NR, $j }' >ids
	od -An -v -tf4 -w$(($2 * 8)) out.bin | awk -v k="$2" '{ for (j = k + 1; j <= 2 * k; j++) print $j }' >weights
	paste -d ' ' ids weights | sort -k 1,1n -k 2,2n >found
	od -An -v -td4 -w$(($2 * 4)) "$oracle/$1/ids_sorted.i32" |
		awk '{ for (j = 1; j <= NF; j++) print NR, $j }' >ids
	od -An -v -tf4 -w4 "$oracle/$1/weights_by_id.f32" | awk '{ print $1 }' >weights
	paste -d ' ' ids weights >expected
	expect_eq "entries of $1" "$(wc -l <found)" $((48 * $2))
	paste -d ' ' found expected | awk '
		$1 != $4 || $2 != $5 || $3 - $6 > 2e-6 || $6 - $3 > 2e-6 { print; bad = 1 }
		END { exit bad }' >differences || fail "$1: $(head -n 3 differences)"
}

n_families=0
for case in "$oracle"/*/case.json; do
	family=$(basename "$(dirname "$case")")
	experts=$(($(wc -c <"$oracle/$family/logits.f32") / 4 / 48))
	k=$(sed -n 's/.*"top_k": *\([0-9]*\).*/\1/p' "$case" | head -n 1)
	set -- --preset "$family" --logits "$oracle/$family/logits.f32" --experts "$experts"
	[ ! -f "$oracle/$family/correction_bias.f32" ] ||
		set -- "$@" --correction-bias "$oracle/$family/correction_bias.f32"
	"$moetrace" route "$@" --format binary >out.bin || fail "$family: exit status $?"
	same_rows "$family" "$k"
	n_families=$((n_families + 1))
done
expect_eq "families" $n_families 22

# The same rule, put together from options; on every level.
for level in plain avx2 avx512; do
	MOETRACE_CPU=$level "$moetrace" route --scoring sigmoid --top-k 8 --experts 256 \
		--logits "$oracle/deepseek-v3/logits.f32" \
		--correction-bias "$oracle/deepseek-v3/correction_bias.f32" \
		--groups 8 --keep-groups 4 --renormalize epsilon --scale 2.5 \
		--format binary >out.bin 2>err || {
		grep -q 'MOETRACE_CPU names a level' err && continue
		fail "$level: $(cat err)"
	}
	same_rows deepseek-v3 8
done

# Two rows of three experts: 0, ln 2, ln 3 and NaN, 0, 0.
printf '\0\0\0\0\030\162\061\077\124\237\214\077\0\0\300\177\0\0\0\0\0\0\0\0' >logits
expect_ok "$moetrace" route --scoring softmax --top-k 2 --experts 3 --logits logits
expect_match "$tmp/out" '^\{"rows":\[\{"ids":\[2,1\],"weights":\[0\.5[0-9]*,0\.33[0-9]*\]\},\{"ids":\[1,2\],"weights":\[0\.5,0\.5\]\}\]\}$'
expect_match "$tmp/err" '^moetrace route: warning: 1 row with NaN among the logits or biases$'
expect_ok "$moetrace" route --scoring softmax --top-k 2 --experts 3 --logits logits --format csv \
	--valid-rows 1
expect_eq "CSV" "$(sed 's/\(0\.[0-9]\).*/\1/' "$tmp/out")" "row,topk_rank,expert,weight
0,0,2,0.5
0,1,1,0.3
1,0,-1,0
1,1,-1,0"
: >empty
expect_ok "$moetrace" route --scoring softmax --top-k 2 --experts 3 --logits empty
expect_eq "no rows" "$(cat "$tmp/out")" '{"rows":[]}'

soft="--scoring softmax --experts 3 --logits logits"
expect_error 2 "^moetrace route: --logits FILE.f32 is missing" "$moetrace" route
expect_error 2 "give --preset NAME or --scoring NAME" "$moetrace" route --logits logits
expect_error 2 "--experts N is missing" "$moetrace" route --scoring softmax --logits logits
expect_error 2 "--top-k K is missing" "$moetrace" route $soft
expect_error 2 "--scoring 'softmix' is unknown: give one of softmax, sigmoid" \
	"$moetrace" route --scoring softmix
expect_error 2 "top_k is 4, expected at most the experts, which are 3" \
	"$moetrace" route $soft --top-k 4
expect_error 2 "top_k is 0, expected 1 to 32" "$moetrace" route $soft --top-k 0
expect_error 2 "n_groups is 2, which does not divide the 3 experts" \
	"$moetrace" route $soft --top-k 1 --groups 2 --keep-groups 1
expect_error 2 "n_keep_groups is 4, expected 1 to n_groups, which is 3" \
	"$moetrace" route $soft --top-k 1 --groups 3 --keep-groups 4 --group-score max
expect_error 2 "top_k is 2, but the kept groups hold 1 experts" \
	"$moetrace" route $soft --top-k 2 --groups 3 --keep-groups 1 --group-score max
expect_error 2 "scale is nan, expected a finite number above 0" \
	"$moetrace" route $soft --top-k 1 --scale nan
expect_error 2 "scale is 1e\+39, expected a finite number above 0, from 1e-12 to 1e\+12" \
	"$moetrace" route $soft --top-k 1 --scale 1e39
expect_error 2 "--zero-experts '4294967295': give a whole number from 0 to 8191" \
	"$moetrace" route --preset deepseek-v3 --logits logits --zero-experts 4294967295
for option in logits correction-bias hash-table token-ids; do
	expect_error 2 "--$option is empty: give the path of a file" "$moetrace" route "--$option="
done
expect_error 2 "--top-k '-1': give a whole number" "$moetrace" route $soft --top-k=-1
expect_error 2 "--preset 'gpt' is unknown; 'moetrace models' lists them" \
	"$moetrace" route --preset gpt
expect_error 2 "this rule has a bias: give --correction-bias" \
	"$moetrace" route --preset deepseek-v3 --logits logits
expect_error 2 "--format 'xml' is unknown: give one of json, csv, binary" \
	"$moetrace" route $soft --format xml
expect_error 1 "^moetrace route: logits: 6 numbers are not rows of 4 experts" \
	"$moetrace" route --scoring softmax --top-k 1 --experts 4 --logits logits
expect_error 3 "^moetrace route: nowhere: No such file" \
	"$moetrace" route --scoring softmax --top-k 1 --experts 3 --logits nowhere
printf '123' >odd
expect_error 1 "odd: 3 bytes are not a whole number of four-byte items" \
	"$moetrace" route --scoring softmax --top-k 1 --experts 3 --logits odd
