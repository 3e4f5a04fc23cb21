# SPDX-License-Identifier: MIT
#
# The readers under libFuzzer, ASan and UBSan, from the seeds in corpus/: five
# seconds each, or ten minutes in the long tier. Needs a clang with libFuzzer and
# yajl. A crashing input is copied beside the log, into the build folder.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

# It builds its own programs, with sanitizers in any case.
need_plain_build
need_command clang
cd "$MOETRACE_SRCDIR" || exit 99

if [ "${MOETRACE_TEST_TIER-}" = long ]; then
	seconds=600
else
	seconds=5
fi

sources="common/json.c common/json_keys.c common/json_text.c common/utf8.c
	kernels/engine/error.c kernels/engine/model_config.c
	kernels/engine/qwen3moe_config.c kernels/engine/safetensors.c
	kernels/engine/safetensors_header.c kernels/engine/workload.c
	kernels/engine/workload_line.c tests/fuzz/fuzz_input.c"
flags="-std=gnu17 -O1 -g -I. -Ilibtrace/include
	-I$MOETRACE_BUILDDIR/libtrace/include
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"

echo 'int LLVMFuzzerTestOneInput(const char *b, unsigned long n);
#include <yajl/yajl_parse.h>
int LLVMFuzzerTestOneInput(const char *b, unsigned long n)
{
	return b && n && yajl_alloc(0, 0, 0) ? 0 : 0;
}' >"$tmp/probe.c"
# shellcheck disable=SC2086 # lists of words
clang $flags -o "$tmp/probe" "$tmp/probe.c" -lyajl >"$tmp/out" 2>&1 ||
	skip "this clang cannot link a fuzzer with yajl"

objects=
for file in $sources; do
	object=$tmp/$(basename "$file" .c).o
	# shellcheck disable=SC2086
	clang $flags -c -o "$object" "$file" || fail "$file does not compile"
	objects="$objects $object"
done
for target in safetensors json workload; do
	# shellcheck disable=SC2086
	clang $flags -o "$tmp/fuzz_$target" "tests/fuzz/fuzz_$target.c" $objects -lyajl -lm ||
		fail "fuzz_$target does not build"
	mkdir "$tmp/corpus"
	status=0
	"$tmp/fuzz_$target" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 \
		-timeout=100 -seed=1 -print_final_stats=1 \
		-artifact_prefix="$tmp/$target-" "$tmp/corpus" "tests/fuzz/corpus/$target" \
		>"$tmp/out" 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		for input in "$tmp/$target"-*; do
			[ ! -f "$input" ] || cp "$input" "$MOETRACE_BUILDDIR/"
		done
		tail -n 40 "$tmp/out" >&2
		fail "fuzz_$target found an input, see $MOETRACE_BUILDDIR"
	fi
	grep 'number_of_executed_units' "$tmp/out" | sed "s/^/$target: /"
	rm -rf "$tmp/corpus"
done
