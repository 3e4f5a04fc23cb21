# SPDX-License-Identifier: MIT
#
# The code of docs/integration.md is one program: its blocks, in order, compile as C99 and as C++
# without a warning, and what they record is what the guide says.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

guide=$MOETRACE_SRCDIR/docs/integration.md
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$guide" >"$tmp/blocks.c"
expect_file "$tmp/blocks.c"
expect_eq "blocks without a language" "$(grep -c '^```' "$guide")" \
	"$((2 * $(grep -c '^```c$' "$guide")))"
cat "$tmp/blocks.c" - >"$tmp/guide.c" <<'END'

/* A request of 9: its first 4 positions are @source's; retracted, and computed whole; then two
 * proposed tokens, the first of which is kept. */
static void serve_second(struct my_trace *trace, uint64_t source)
{
	static const uint8_t accepted[2] = {1, 0};
	const uint64_t request = my_trace_request(trace, "r-2", 6, "b");
	struct my_batch_part part = {0, 4, 2, 0};
	struct moetrace_slice verify = {0, NULL, 6, 2, MOETRACE_PHASE_VERIFY, 0};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	int32_t ids[6][2];
	float weights[6][2];
	uint64_t number;
	uint32_t i, layer;

	for (i = 0; i < 6; i++) {
		ids[i][0] = 2;
		ids[i][1] = 5;
		weights[i][0] = weights[i][1] = 0.5f;
	}
	part.request = verify.request = request;
	my_trace_prefix_hit(trace, request, 4, source);
	pass = my_trace_pass(trace, 10, &part, 1, 0);
	for (layer = 0; layer < 3; layer++)
		my_trace_layer(pass, layer, 2, &ids[0][0], &weights[0][0]);
	moetrace_pass_end(pass);

	my_trace_retract(trace, request);
	part.first_position = 0;
	part.n_rows = 6;
	pass = my_trace_pass(trace, 11, &part, 1, 0);
	for (layer = 0; layer < 3; layer++)
		my_trace_layer(pass, layer, 6, &ids[0][0], &weights[0][0]);
	moetrace_pass_end(pass);

	MOETRACE_INIT(&info);
	info.model = trace->model;
	info.phase = MOETRACE_PHASE_VERIFY;
	info.n_rows = 2;
	info.slices = &verify;
	info.n_slices = 1;
	pass = moetrace_pass_begin(trace->session, &info);
	for (layer = 0; layer < 3; layer++)
		my_trace_layer(pass, layer, 2, &ids[0][0], &weights[0][0]);
	number = moetrace_pass_number(pass);
	moetrace_pass_end(pass);
	my_trace_accepted(trace, number, 0, accepted, 2);
	my_trace_request_end(trace, request, 7, 0);
}

/* A prompt of 7 in chunks of 4 and 3, then 3 tokens; 2 rows of padding; layers 1 to 3. */
int main(int argc, char **argv)
{
	struct my_trace trace = {NULL, 0};
	struct my_batch_part part = {0, 0, 0, 0};
	struct moetrace_pass *pass;
	int32_t ids[6][2];
	float weights[6][2];
	char *experts;
	uint64_t step;
	uint32_t i, layer;

	if (argc != 2)
		return 2;
	my_trace_open(&trace, argv[1], 1, 4);
	my_trace_model(&trace, 4, 1, 8, 2);
	if (moetrace_start(trace.session, NULL) != MOETRACE_OK)
		return 1;
	part.request = my_trace_request(&trace, "r-1", 7, "a");
	for (step = 0; step < 5; step++) {
		part.n_rows = step < 2 ? 4 - (uint32_t)step : 1;
		part.is_decode = step >= 2;
		pass = my_trace_pass(&trace, step, &part, 1, 2);
		for (layer = 0; layer < 3; layer++) {
			for (i = 0; i < 6; i++) {
				ids[i][0] = (int32_t)((part.first_position + i + layer) % 8);
				ids[i][1] = (ids[i][0] + 1) % 8;
				weights[i][0] = 0.75f;
				weights[i][1] = 0.25f;
			}
			my_trace_layer(pass, layer, part.n_rows + 2, &ids[0][0], &weights[0][0]);
		}
		moetrace_pass_end(pass);
		part.first_position += part.n_rows;
	}
	serve_second(&trace, part.request);
	experts = my_trace_experts(&trace, part.request);
	my_trace_request_end(&trace, part.request, part.first_position, 0);
	if (experts)
		puts(experts);
	free(experts);
	my_trace_close(&trace);
	return 0;
}
END

includes="-I$MOETRACE_BUILDDIR/libtrace/include -I$MOETRACE_SRCDIR/libtrace/include"
libs="-L$MOETRACE_BUILDDIR/libtrace/.libs -lmoetrace"
[ -f "$MOETRACE_BUILDDIR/libtrace/.libs/libmoetrace.so" ] || skip "built without a shared library"
LD_LIBRARY_PATH=$MOETRACE_BUILDDIR/libtrace/.libs
export LD_LIBRARY_PATH
# shellcheck disable=SC2086 # lists of options
expect_ok $MOETRACE_CC -std=c99 -pedantic -Wall -Wextra -Wshadow -Werror $includes -o "$tmp/guide" \
	"$tmp/guide.c" $libs
if command -v "${CXX:-c++}" >/dev/null 2>&1; then
	# shellcheck disable=SC2086 # lists of options
	expect_ok ${CXX:-c++} -x c++ -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only \
		$includes "$tmp/guide.c"
fi

expect_ok "$tmp/guide" "$tmp/guide.db"
expect_err ''
# [10 positions][4 layers][2], the first layer dense.
expect_eq "experts of the response" "$(base64 -d "$tmp/out" | od -An -v -td4 -w32 |
	awk '{ for (l = 1; l < 4; l++) wrong += $(2 * l + 1) != (NR + l - 2) % 8 ||
			$(2 * l + 2) != ($(2 * l + 1) + 1) % 8
		wrong += $1 != 0 || $2 != 0 } END { print NR, wrong + 0 }')" "10 0"
expect_eq "the request" "$(sql "$tmp/guide.db" \
	"SELECT verdict, n_positions, prefill_rows, decode_rows FROM request_summary
	 WHERE external_id = 'r-1'")" 'complete|10|7|3'
expect_eq "the experts" "$(sql "$tmp/guide.db" "SELECT count(*), sum(expert = (position + layer - 1
	+ topk_rank) % 8), min(layer), max(layer) FROM routed_expert WHERE request_id = 1")" '60|60|1|3'
expect_eq "padding" "$(sql "$tmp/guide.db" \
	"SELECT sum(n_rows), sum(padding_rows), min(runtime_pass), max(runtime_pass) FROM pass
	 WHERE runtime_pass < 10")" '10|10|0|4'
expect_eq "the second request" "$(sql "$tmp/guide.db" \
	"SELECT verdict, n_positions, n_attempts FROM request WHERE external_id = 'r-2'")" 'complete|7|2'
expect_eq "its positions" "$(sql "$tmp/guide.db" "SELECT attempt, state, count(*), min(position),
	max(position) FROM token_topk WHERE request_id = 2 AND layer = 2 GROUP BY attempt, state" |
	tr '\n' ' ')" '0|computed|2|4|5 0|reused|4|0|3 1|computed|7|0|6 1|rejected|1|7|7 '
expect_eq "refused calls" "$(sql "$tmp/guide.db" "SELECT count(*) FROM diagnostic")" 0
expect_ok "$moetrace" check "$tmp/guide.db"

# Every call and view that the guide names exists.
grep -oE '`?moetrace_[a-z_]+' "$guide" | tr -d '`' | grep -vE '_$' | LC_ALL=C sort -u |
	while read -r name; do
		cat "$MOETRACE_SRCDIR"/libtrace/include/moetrace/*.h | grep -qw "$name" || echo "$name"
	done >"$tmp/unknown"
[ ! -s "$tmp/unknown" ] || fail "not in the headers: $(tr '\n' ' ' <"$tmp/unknown")"
