#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One step of check-all.sh, in a build folder of its own: check-step.sh STEP.
#
#   tree      warnings as errors, CUDA where nvcc is; the tests that need a GPU, a
#             browser or the whole tree
#   release   make distcheck: what a release holds, built with warnings as errors,
#             and every test on it
#   asan      AddressSanitizer and UndefinedBehaviorSanitizer, every test
#   threads   ThreadSanitizer, the tests of the code with threads
#   clang     everything compiled by clang, where clang is installed
#
# Test results are counted from the harness's .trs files, those of distcheck,
# which removes its tree, from its summary; a build that fails, and a step without
# tests, count as one. They go into STEP.result (passed, failed, skipped), what
# failed with the end of its log into STEP.failed, and the exit status is 0 if the
# step came to its end, however that was.

set -u

step=${1:?usage: check-step.sh STEP}
root=${MOETRACE_CHECK_ROOT:?run it through check-all.sh}
source=$PWD
log=$root/$step.log
began=$(date +%s)

# tell TEXT...: a line of progress.
tell() {
	printf 'check-all: %s: %s (after %d s)\n' "$step" "$*" "$(($(date +%s) - began))"
}

# tail_of FILE: its end, also where a line is very long.
tail_of() {
	tail -n 30 "$1" | tail -c 6000 | cut -c 1-1000
}

# failed_tests FOLDER: each test below it that failed, and the end of its log. What it
# says of assertions comes first, since a sanitizer's report may follow it.
failed_tests() {
	find "$1" -name '*.trs' -exec grep -lE '^:test-result: (FAIL|XPASS|ERROR)' {} + 2>/dev/null |
		sort | while IFS= read -r trs; do
			name=${trs#"$1/"}
			printf '\n== %s: FAILED %s\n' "$step" "${name%.trs}"
			[ -f "${trs%.trs}.log" ] || continue
			grep -aE '^FAIL: |:[EF]:[^:]*:[^:]*:[0-9]+: |^SUMMARY: ' "${trs%.trs}.log" |
				cut -c 1-1000 | head -n 20
			echo '-- the end of its log:'
			tail_of "${trs%.trs}.log"
		done
}

# failures: what failed in this step, for the end of all output.
failures() {
	if [ "$step" = release ]; then
		for folder in "$root"/tree/*/_build/sub; do
			[ ! -d "$folder" ] || failed_tests "$folder"
		done
	else
		failed_tests "$root/$step"
	fi >"$root/$step.failed"
	[ ! -s "$root/$step.failed" ] || return 0
	{
		printf '\n== %s: FAILED, and no test of it; the end of its log:\n' "$step"
		tail_of "$log"
	} >"$root/$step.failed"
}

# finish PASSED FAILED SKIPPED: ends the step. Of distcheck, which says what it
# copies and installs, only the results are shown, and the end if it failed. All of
# it is one write, so that the steps' words do not mix.
finish() {
	[ "$2" -eq 0 ] || failures
	echo "$1 $2 $3" >"$root/$step.result"
	{
		printf '\n== %s\n' "$step"
		if [ "$step" = release ]; then
			grep -E '^(PASS|SKIP|XFAIL|FAIL|XPASS|ERROR): ' "$log"
			[ "$2" -eq 0 ] || tail -n 300 "$log"
			[ ! -f "$root/suite" ] || cat "$root/suite"
		else
			cat "$log"
		fi
		tell "$1 passed, $2 failed, $3 skipped"
	} >"$root/$step.shown"
	cat "$root/$step.shown"
	exit 0
}

# The older sanitizer runtimes cannot live with every layout that the kernel
# may choose; where it is allowed, addresses are not randomised for them.
fixed_layout=
if setarch "$(uname -m)" -R true 2>/dev/null; then
	fixed_layout="setarch $(uname -m) -R"
fi

# configure OPTION...: for a fresh build in build-check/STEP.
configure() {
	mkdir -p "$root/$step" &&
		(cd "$root/$step" && "$source/configure" --quiet "$@") >>"$log" 2>&1
}

# build TARGET...: of the step's build folder. The jobs are those of check-all.sh.
build() {
	$fixed_layout make -s -C "$root/$step" "$@" >>"$log" 2>&1
}

# done_or_failed STATUS: ends the step if its build failed.
done_or_failed() {
	[ "$1" -eq 0 ] || {
		echo "check-step: $step: the build failed" >>"$log"
		finish 0 1 0
	}
	tell 'built'
}

# results KIND: how many tests of the step ended so.
results() {
	find "$root/$step" -name '*.trs' -exec grep -h '^:test-result:' {} + 2>/dev/null |
		awk -v kind="$1" '$2 ~ kind { n++ } END { print n + 0 }'
}

# check TARGET: one of the check targets, and the end of the step. A harness that
# failed without a failed test is a failure too.
check() {
	status=0
	build "$1" || status=$?
	[ "$status" -eq 0 ] ||
		find "$root/$step" -name test-suite.log -exec cat {} + >>"$log"
	good=$(results '^(PASS|XFAIL)$')
	bad=$(results '^(FAIL|XPASS|ERROR)$')
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		bad=1
	elif [ "$status" -eq 0 ] && [ "$good" -eq 0 ]; then
		echo "check-step: $step: the tests ran without a single result" >>"$log"
		bad=1
	fi
	finish "$good" "$bad" "$(results '^SKIP$')"
}

# summary KIND: the results of that kind in the summaries of a harness.
summary() {
	awk -v kind="# $1:" 'index($0, kind) == 1 { n += $3 } END { print n + 0 }' "$log"
}

# Static objects are a matter of the release.
step_tree() {
	status=0
	configure --enable-werror --disable-static CFLAGS=-O2 && build all || status=$?
	done_or_failed "$status"
	check check-tree
}

# How small the tarball is does not matter here, nor what a debugger would know.
step_release() {
	if [ ! -f "$root/tree/Makefile" ]; then
		echo "check-step: $step: there is no build to make the tarball from" >"$log"
		finish 0 1 0
	fi
	status=0
	XZ_OPT=-0 DISTCHECK_CONFIGURE_FLAGS=CFLAGS=-O2 $fixed_layout make -s -C "$root/tree" distcheck >"$log" 2>&1 || status=$?
	good=$(summary PASS)
	bad=$(($(summary FAIL) + $(summary ERROR)))
	if [ "$status" -ne 0 ]; then
		find "$root/tree" -path '*/_build/*' -name test-suite.log -exec cat {} + >"$root/suite"
		[ "$bad" -gt 0 ] || bad=1
	elif [ "$good" -eq 0 ]; then
		echo "check-step: $step: the tests ran without a single result" >>"$log"
		bad=1
	fi
	finish "$good" "$bad" "$(summary SKIP)"
}

# A stack trace needs the numbers of the lines, and no more of the debugger's.
step_asan() {
	status=0
	configure --enable-werror --enable-asan --enable-ubsan --without-cuda --disable-static \
		CFLAGS='-g1 -O1' && build all || status=$?
	done_or_failed "$status"
	check check
}

step_threads() {
	status=0
	configure --enable-werror --enable-tsan --without-cuda --disable-static CFLAGS='-g1 -O1' ||
		status=$?
	done_or_failed "$status"
	check check-threads
}

# What clang says of a source does not depend on how it is optimised.
step_clang() {
	if ! command -v clang >/dev/null 2>&1; then
		echo 'clang is not installed: skipped' >"$log"
		finish 0 0 1
	fi
	status=0
	configure --enable-werror --without-cuda --disable-static CC=clang CFLAGS=-O0 &&
		build check TESTS= || status=$?
	done_or_failed "$status"
	finish 1 0 0
}

: >"$log"
tell 'begins'
case $step in
tree | release | asan | threads | clang) "step_$step" ;;
*)
	echo "check-step: no step $step" >&2
	exit 2
	;;
esac
