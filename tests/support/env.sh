# SPDX-License-Identifier: MIT
#
# Sourced by the test harness before every test: the same world for all of them.

LC_ALL=C
TZ=UTC
export LC_ALL TZ

# A test sets what it needs; what the caller's shell happens to hold is no input.
unset MOETRACE_OUTPUT MOETRACE_START MOETRACE_MODE MOETRACE_DISABLE
# A test that wants a control socket names a folder of its own.
MOETRACE_SOCKET_DIR=none
export MOETRACE_SOCKET_DIR

ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:strict_string_checks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
export ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS

# Check: every test case in a process of its own, with time for slow builds and for machines that
# have much else to do.
CK_FORK=${CK_FORK:-yes}
CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-60}
case $MOETRACE_SANITIZERS in
?*) CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-5} ;;
*) CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-3} ;;
esac
export CK_FORK CK_DEFAULT_TIMEOUT CK_TIMEOUT_MULTIPLIER
