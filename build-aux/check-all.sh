#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The whole test command, on a tree that has its configure script:
#
#   1. warnings as errors, CUDA where nvcc is: everything compiled, and the tests
#      that need a GPU or the whole tree
#   2. make distcheck: what a release holds, built with warnings as errors, and
#      every test on it
#   3. AddressSanitizer and UndefinedBehaviorSanitizer, make check
#   4. ThreadSanitizer, the tests of the code with threads
#   5. clang, everything compiled, where clang is installed
#
# A step that fails does not stop the later ones. Test results are counted from
# the harness's .trs files, those of distcheck, which removes its tree, from its
# summary; a build that fails, and a step without tests, count as one. The last
# line is `N passed, N failed, N skipped`, and the exit status is 0 only if none
# failed and every step came to its end.

set -u

cd -- "$(dirname -- "$0")/.." || exit 1
source=$PWD
root=$source/build-check
jobs=$(getconf _NPROCESSORS_ONLN)
passed=0
failed=0
skipped=0

say() {
	printf '\n== %s\n' "$*"
}

# The older sanitizer runtimes cannot live with every layout that the kernel
# may choose; where it is allowed, addresses are not randomised for them.
fixed_layout=
if setarch "$(uname -m)" -R true 2>/dev/null; then
	fixed_layout="setarch $(uname -m) -R"
fi

# results NAME KIND: how many tests of that build ended so.
results() {
	find "$root/$1" -name '*.trs' -exec grep -h '^:test-result:' {} + 2>/dev/null |
		awk -v kind="$2" '$2 ~ kind { n++ } END { print n + 0 }'
}

# count NAME STATUS: adds the results of a make check. A harness that failed
# without a failed test is a failure too.
count() {
	bad=$(results "$1" '^(FAIL|XPASS|ERROR)$')
	if [ "$2" -ne 0 ] && [ "$bad" -eq 0 ]; then
		bad=1
	fi
	good=$(results "$1" '^(PASS|XFAIL)$')
	passed=$((passed + good))
	skipped=$((skipped + $(results "$1" '^SKIP$')))
	failed=$((failed + bad))
	if [ "$2" -eq 0 ] && [ "$good" -eq 0 ]; then
		echo "check-all: $1: the tests ran without a single result" >&2
		failed=$((failed + 1))
	fi
}

# build NAME OPTION...: a fresh build in build-check/NAME.
build() {
	name=$1
	shift
	rm -rf "${root:?}/$name"
	mkdir -p "$root/$name" || return 1
	(cd "$root/$name" && "$source/configure" --quiet "$@" && make -s -j "$jobs") && return 0
	echo "check-all: $name: the build failed" >&2
	failed=$((failed + 1))
	return 1
}

# check NAME TARGET: make TARGET, one of the check targets, in build-check/NAME.
check() {
	name=$1
	result=0
	$fixed_layout make -s -C "$root/$name" -j "$jobs" "$2" || result=$?
	[ "$result" -eq 0 ] || find "$root/$name" -name test-suite.log -exec cat {} +
	count "$name" "$result"
}

# single STATUS: counts a step that is one result.
single() {
	if [ "$1" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
}

# summary LOG KIND: the results of that kind in the summaries of a harness.
summary() {
	awk -v kind="# $2:" 'index($0, kind) == 1 { n += $3 } END { print n + 0 }' "$1"
}

# distcheck: every test, on the tree that a release unpacks to.
distcheck() {
	log=$root/distcheck.log
	result=0
	$fixed_layout make -s -C "$root/werror" -j "$jobs" distcheck >"$log" 2>&1 || result=$?
	good=$(summary "$log" PASS)
	bad=$(($(summary "$log" FAIL) + $(summary "$log" ERROR)))
	if [ "$result" -ne 0 ]; then
		find "$root/werror" -path '*/_build/*' -name test-suite.log -exec cat {} +
		tail -n 300 "$log"
		[ "$bad" -gt 0 ] || bad=1
	elif [ "$good" -eq 0 ]; then
		echo "check-all: distcheck: the tests ran without a single result" >&2
		bad=1
	fi
	passed=$((passed + good))
	failed=$((failed + bad))
	skipped=$((skipped + $(summary "$log" SKIP)))
}

say "warnings as errors: everything compiled, make check-tree"
if build werror --enable-werror; then
	check werror check-tree
	say "make distcheck"
	distcheck
fi

say "AddressSanitizer and UndefinedBehaviorSanitizer, make check"
if build asan --enable-werror --enable-asan --enable-ubsan --without-cuda CFLAGS='-g -O1'; then
	check asan check
fi

say "ThreadSanitizer, make check-threads"
if build tsan --enable-werror --enable-tsan --without-cuda CFLAGS='-g -O1'; then
	check tsan check-threads
fi

say "clang, everything compiled"
if command -v clang >/dev/null 2>&1; then
	if build clang --enable-werror --without-cuda CC=clang; then
		result=0
		make -s -C "$root/clang" -j "$jobs" check TESTS= >/dev/null || result=$?
		single "$result"
	fi
else
	echo "clang is not installed: skipped"
	skipped=$((skipped + 1))
fi

printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
