# SPDX-License-Identifier: MIT
#
# moetrace models: every family in the four formats, unknown numbers as such, and one model with
# the reason for the code that routes it.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

cd "$tmp" || exit 99
for format in table json jsonl csv; do
	expect_ok "$moetrace" models --format $format
	for family in "$MOETRACE_SRCDIR"/tests/data/router-oracle/*/; do
		grep -qw "$(basename "$family")" "$tmp/out" || fail "$format lacks $(basename "$family")"
	done
done
expect_ok "$moetrace" models --format csv
expect_match "$tmp/out" '^name,n_experts,n_zero_experts,top_k,scoring,bias,n_groups,topk_groups,'
expect_match "$tmp/out" '^deepseek-v3,256,0,8,sigmoid,score,8,4,top2,epsilon,2\.5,renormalized\+scaled,1,61,58,3,0,7168,,2048,'
expect_match "$tmp/out" '^gemma-4-26b-a4b,128,0,8,,,,,,,,,'
expect_match "$tmp/out" '^kimi-k3,896,0,16,'
expect_match "$tmp/out" '^longcat-flash,512,256,12,'
expect_ok "$moetrace" models glm-5 --format jsonl
expect_match "$tmp/out" '"impl_reason":".*this layer has 256 in 1 group'
expect_match "$tmp/out" '"latent":null'
expect_error 3 "^moetrace models: no model is called 'glm'; 'moetrace models' lists them$" \
	"$moetrace" models glm
