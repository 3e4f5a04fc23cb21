# SPDX-License-Identifier: MIT
#
# What the shell tests share. A test begins with
#
#	. "$MOETRACE_SRCDIR/tests/support/lib.sh"
#
# and may then use $tmp, a folder of its own that vanishes at the end, and
# $moetrace, the command as it was built. The first assertion that does not hold
# ends the test. By hand: make check TESTS=tests/cli/NAME.sh

set -u

: "${MOETRACE_SRCDIR:?run the tests through make check}"
: "${MOETRACE_BUILDDIR:?run the tests through make check}"
: "${MOETRACE_SANITIZERS=}"

moetrace=$MOETRACE_BUILDDIR/cli/moetrace
tinymoe=$MOETRACE_SRCDIR/examples/tinymoe

tmp=$(mktemp -d "${TMPDIR:-/tmp}/moetrace-test.XXXXXX") || exit 99
trap clean_up EXIT
trap 'exit 99' HUP INT TERM

# clean_up: whatever happens, nothing stays behind, and no background job either, not one that is
# stopped. A job that is told to end when it has just begun is a copy of this shell, and leaves all of
# that to the shell itself.
clean_up() {
	read -r clean_up_pid clean_up_rest </proc/self/stat
	[ "$clean_up_pid" = $$ ] || return
	for clean_up_pid in /proc/[0-9]*; do
		clean_up_pid=${clean_up_pid#/proc/}
		! is_running "$clean_up_pid" || kill -KILL "$clean_up_pid" 2>/dev/null || :
	done
	wait
	rm -rf "$tmp"
}

# fail TEXT...: ends the test; the last run's output explains it.
fail() {
	echo "FAIL: $*" >&2
	for file in "$tmp/out" "$tmp/err"; do
		[ ! -s "$file" ] || {
			echo "--- ${file##*/} (first 40 lines)" >&2
			head -n 40 "$file" >&2
		}
	done
	exit 1
}

# skip TEXT...: this test cannot run here.
skip() {
	echo "skipped: $*" >&2
	exit 77
}

# need_command NAME...: skips the test where one of them is not installed.
need_command() {
	for name; do
		command -v "$name" >/dev/null 2>&1 || skip "$name is not installed"
	done
}

# need_plain_build: skips, in a build with sanitizers, a test that runs nothing
# which they could watch.
need_plain_build() {
	! is_sanitized || skip "it shows nothing more in a build with sanitizers"
}

# is_sanitized: whether each step takes ten times as long and shows how, not what.
is_sanitized() {
	[ -n "$MOETRACE_SANITIZERS" ]
}

# run COMMAND...: keeps its output in $tmp/out and $tmp/err, its exit in $status.
run() {
	status=0
	"$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
}

# expect_status N COMMAND...: run, and the exit status is N.
expect_status() {
	want=$1
	shift
	run "$@"
	[ "$status" -eq "$want" ] || fail "exit status $status instead of $want: $*"
}

# expect_ok COMMAND...: run, and it succeeds.
expect_ok() {
	expect_status 0 "$@"
}

# expect_error N REGEX COMMAND...: exit status N, nothing on stdout, and exactly
# one line on stderr, which matches REGEX (grep -E).
expect_error() {
	want=$1
	regex=$2
	shift 2
	expect_status "$want" "$@"
	[ ! -s "$tmp/out" ] || fail "output on stdout beside an error: $*"
	lines=$(wc -l <"$tmp/err")
	[ "$lines" -eq 1 ] || fail "$lines lines on stderr instead of one: $*"
	grep -Eq -e "$regex" "$tmp/err" || fail "the error does not match '$regex': $*"
}

# expect_eq WHAT GOT WANT: two strings are the same.
expect_eq() {
	[ "$2" = "$3" ] || fail "$1: got '$2', want '$3'"
}

# expect_out TEXT / expect_err TEXT: the whole output of the last run.
expect_out() {
	expect_eq "stdout" "$(cat "$tmp/out")" "$1"
}
expect_err() {
	expect_eq "stderr" "$(cat "$tmp/err")" "$1"
}

# expect_match FILE REGEX: a line of FILE matches (grep -E).
expect_match() {
	grep -Eq -e "$2" "$1" || {
		head -n 40 "$1" >&2
		fail "no line of ${1##*/} matches '$2'"
	}
}

# expect_no_match FILE REGEX
expect_no_match() {
	! grep -En -e "$2" "$1" >&2 || fail "a line of ${1##*/} matches '$2'"
}

# expect_same FILE FILE: the same bytes.
expect_same() {
	cmp "$1" "$2" >&2 || {
		diff "$1" "$2" 2>/dev/null | head -n 20 >&2
		fail "${1##*/} and ${2##*/} differ"
	}
}

# expect_absent PATH...: nothing was left behind there.
expect_absent() {
	for path; do
		[ ! -e "$path" ] || fail "$path exists"
	done
}

# expect_file PATH...: a file that is not empty.
expect_file() {
	for path; do
		[ -s "$path" ] || fail "$path is missing or empty"
	done
}

# is_running PID: a background job of this test that has not ended. (The number of one that was
# waited for may be another process' by now.)
is_running() {
	{ read -r is_running_stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	case ${is_running_stat##*) } in
	[ZX]*) return 1 ;;
	?" $$ "*) return 0 ;;
	*) return 1 ;;
	esac
}

# await WHAT PID LOG COMMAND...: until COMMAND succeeds, however slow the machine is: what has not
# come in some minutes never will. Nor does it when PID, a background job that is to bring it about,
# has ended: then LOG says why. Where there is no such job, PID and LOG are -.
await() {
	await_what=$1
	await_pid=$2
	await_log=$3
	shift 3
	await_tries=0
	until "$@"; do
		await_tries=$((await_tries + 1))
		[ "$await_tries" -lt 2400 ] || fail "$await_what: not in $await_tries looks$(await_told)"
		if [ "$await_pid" != - ] && ! is_running "$await_pid"; then
			# It may have come with the end.
			! "$@" || return 0
			status=0
			wait "$await_pid" || status=$?
			fail "$await_what: what was to bring it has ended with $status$(await_told)"
		fi
		sleep 0.05
	done
}

# await_told: what the log says so far.
await_told() {
	[ ! -s "$await_log" ] || printf ': %s' "$(tail -n 20 "$await_log")"
}

# need_json: skips the test where the command cannot read models.
need_json() {
	echo text >"$tmp/text"
	run "$moetrace" eval --model "$tinymoe/tinymoe.safetensors" --text "$tmp/text"
	! grep -q libyajl-dev "$tmp/err" || skip "built without a JSON parser"
}

# sql FILE SQL: what a stock sqlite3 prints, without the extension.
sql() {
	sqlite3 -batch -readonly "$1" "$2"
}

# sanitizer_preload: prints the runtime that a foreign program has to preload to
# load one of our sanitized objects, nothing when none is needed. clang puts its
# runtimes into programs only, so a module of its making cannot be loaded.
sanitizer_preload() {
	case $MOETRACE_SANITIZERS,$($MOETRACE_CC --version 2>&1) in
	,*) return 0 ;;
	*clang*) return 1 ;;
	esac
	case ,$MOETRACE_SANITIZERS, in
	*,address,*) set -- libasan.so ;;
	*,thread,*) set -- libtsan.so ;;
	*) return 0 ;;
	esac
	# shellcheck disable=SC2086 # the compiler with its options
	library=$($MOETRACE_CC -print-file-name="$1") || library=$1
	case $library in
	/*) readlink -f "$library" ;;
	*) return 1 ;;
	esac
}

# need_stock: skips the test where foreign programs cannot load our objects.
need_stock() {
	sanitizer_preload >/dev/null ||
		skip "no other program can load what this compiler sanitized"
}

# stock COMMAND...: runs a program that is not ours and loads objects of ours,
# after need_stock. Its own leaks are not our business.
stock() {
	preload=$(sanitizer_preload) || fail "a test that loads objects calls need_stock first"
	if [ -n "$preload" ]; then
		LD_PRELOAD=$preload ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" "$@"
	else
		"$@"
	fi
}

# quiet_make ARGUMENT...: make in the build folder, apart from the make that runs
# the tests.
quiet_make() {
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "${MAKE:-make}" -s -C "$MOETRACE_BUILDDIR" "$@"
}
