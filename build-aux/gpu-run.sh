#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs the tests beside it, as gpu-bundle.sh packed them:
#
#   run.sh [TEST...]    all of tests.list, else those
#
# MOETRACE_JOBS says how many at a time (1), MOETRACE_LIMIT_S how long each may take (600) and
# MOETRACE_LOGS where each leaves its output (logs). The exit status is 1 if one failed.

set -u
here=$(cd -- "$(dirname -- "$0")" && pwd)
logs=${MOETRACE_LOGS:-$here/logs}
jobs=${MOETRACE_JOBS:-1}
limit_s=${MOETRACE_LIMIT_S:-600}
MOETRACE_SRCDIR=$here
MOETRACE_BUILDDIR=$here
MOETRACE_SANITIZERS=
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MOETRACE_SRCDIR MOETRACE_BUILDDIR MOETRACE_SANITIZERS LD_LIBRARY_PATH
cd "$here" || exit 1
. "$here/tests/support/env.sh"
mkdir -p "$logs"
# shellcheck disable=SC2046 # names of tests
[ $# -gt 0 ] || set -- $(cat tests.list)

# log_of TEST: where its output goes.
log_of() {
	echo "$logs/$(echo "$1" | tr / -).log"
}

# run_one TEST: leaves its output in a log, whose last line is the result.
run_one() {
	log=$(log_of "$1")
	case $1 in
	*.sh) set -- "$1" sh "./$1" ;;
	*) set -- "$1" "./$1" ;;
	esac
	test=$1
	shift
	from=$(date +%s)
	timeout "$limit_s" "$@" >"$log" 2>&1 </dev/null
	status=$?
	case $status in
	0) result=PASS ;;
	77) result=SKIP ;;
	*) result="FAIL ($status)" ;;
	esac
	echo "$result $test, $(($(date +%s) - from)) s" | tee -a "$log"
}

running=0
for test; do
	if [ "$running" -ge "$jobs" ]; then
		wait
		running=0
	fi
	run_one "$test" &
	running=$((running + 1))
done
wait

failed=0
for test; do
	log=$(log_of "$test")
	tail -n 1 "$log" | grep -q '^FAIL' || continue
	failed=1
	echo "== $log"
	tail -n 40 "$log"
done
exit $failed
