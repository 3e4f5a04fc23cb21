#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The whole test command, on a tree that has its configure script:
#
#   1. warnings as errors, make check
#   2. AddressSanitizer and UndefinedBehaviorSanitizer, make check
#   3. ThreadSanitizer, the tests of the code with threads
#   4. clang, everything compiled, where clang is installed
#   5. make distcheck
#
# A step that fails does not stop the later ones. Test results are counted from
# the harness's .trs files; a build that fails, and distcheck, count as one. The
# last line is `N passed, N failed, N skipped`, and the exit status is 0 only if
# none failed and every step came to its end.

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

say "warnings as errors, make check"
if build werror --enable-werror; then
	check werror check
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

say "make distcheck"
mkdir -p "$root"
result=0
make -s -C "$root/werror" -j "$jobs" distcheck >"$root/distcheck.log" 2>&1 || result=$?
[ "$result" -eq 0 ] || tail -n 300 "$root/distcheck.log"
single "$result"

printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
