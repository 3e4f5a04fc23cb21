#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The whole test command, on a tree that has its configure script. Its steps are
# those of check-step.sh, where it says what each proves; one make runs them, so
# that they share its jobs, and a step that waits for one processor leaves the
# others to the rest. A job more than there are processors runs while a test
# sleeps.
#
# A step that fails does not stop the others. What a step printed is shown when
# it is over. After the last one every test that failed is named once more, with
# the end of its log. The last line is `N passed, N failed, N skipped`, and the
# exit status is 0 only if none failed and every step came to its end.

set -u

cd -- "$(dirname -- "$0")/.." || exit 1
MOETRACE_CHECK_ROOT=$PWD/build-check
export MOETRACE_CHECK_ROOT
steps='tree release asan threads clang'

rm -rf "${MOETRACE_CHECK_ROOT:?}"
mkdir -p "$MOETRACE_CHECK_ROOT" || exit 1
make -s -k -j "$(($(getconf _NPROCESSORS_ONLN) + 1))" -f - <<END
.PHONY: all $steps
all: $steps
release: tree
$steps:
	+@sh build-aux/check-step.sh \$@
END

passed=0
failed=0
skipped=0
for step in $steps; do
	result=$MOETRACE_CHECK_ROOT/$step.result
	if [ -s "$result" ]; then
		read -r good bad left <"$result"
	else
		printf '\n== %s: FAILED\ncheck-all: %s did not come to its end\n' "$step" "$step"
		[ ! -f "$MOETRACE_CHECK_ROOT/$step.log" ] || tail -n 30 "$MOETRACE_CHECK_ROOT/$step.log" | cut -c 1-1000
		good=0 bad=1 left=0
	fi
	[ ! -f "$MOETRACE_CHECK_ROOT/$step.failed" ] || cat "$MOETRACE_CHECK_ROOT/$step.failed"
	passed=$((passed + good))
	failed=$((failed + bad))
	skipped=$((skipped + left))
done
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
