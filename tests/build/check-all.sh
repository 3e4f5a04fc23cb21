# SPDX-License-Identifier: MIT
#
# The end of what the whole test command prints: whichever step fails, and however early, the sum is
# right and each failed test is named with its assertion. The tree here is a configure script that makes
# makefiles, whose targets do to each step what $deeds says.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

cd "$tmp" || exit 99
mkdir -p tree/build-aux bin
cp "$MOETRACE_SRCDIR/build-aux/check-all.sh" "$MOETRACE_SRCDIR/build-aux/check-step.sh" tree/build-aux
ln -s /bin/true bin/clang
PATH=$tmp/bin:$PATH

# A step is known by the folder that it builds in.
cat >tree/configure <<'END'
#!/bin/sh
step=$(basename "$PWD")
case " $deeds " in
# The step is the eldest of its shells.
*" $step-is-killed "*)
	shell=$PPID
	while parent=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$shell/status") &&
		tr '\0' ' ' <"/proc/$parent/cmdline" | grep -q "check-step.sh $step"; do
		shell=$parent
	done
	kill -KILL "$shell"
	;;
*" $step-does-not-build "*) echo "all check: ; @echo '$step.c: error: no such thing' && false" >Makefile ;;
*) printf 'all:\ncheck check-tree check-threads distcheck:; @sh %s/check %s $@\n' "$(dirname "$0")" "$step" >Makefile ;;
esac
END
# check STEP TARGET: a test that passes, one that is skipped, and one that passes or not.
cat >tree/check <<'END'
step=$1
folder=.
if [ "$2" = distcheck ]; then
	step=release
	folder=moetrace-1/_build/sub
fi
mkdir -p $folder/tests
result() {
	printf ':test-result: %s\n' "$2" >$folder/tests/$1.trs
	echo "# $2: 1"
}
result good PASS
result absent SKIP
case " $deeds " in
*" $step-has-a-failure "*)
	result last FAIL
	{
		echo "66%: Checks: 6, Failures: 2"
		echo "check_last.c:429:F:last:whole:0: Assertion 'a >= 1' failed"
		seq 200 | sed 's/^/    #0 of a report that is long /'
	} >$folder/tests/last.log
	cat $folder/tests/last.log
	exit 1 ;;
*" $step-is-odd "*)
	echo "make: *** no rule"
	exit 1 ;;
esac
result last PASS
END
chmod +x tree/configure

# whole DEEDS SUM: the whole command, and its last line.
whole() {
	deeds=$1
	export deeds
	status=0
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL sh tree/build-aux/check-all.sh >out 2>err || status=$?
	expect_eq "the last line ($1)" "$(tail -n 1 out)" "$2"
	tail -n 200 out >end
}

whole '' '9 passed, 0 failed, 4 skipped'
expect_eq 'exit status' "$status" 0
expect_no_match out FAILED

# Early: one does not build, one is killed, and a test of the third fails.
whole 'tree-does-not-build asan-is-killed threads-has-a-failure' '2 passed, 4 failed, 1 skipped'
expect_eq 'exit status' "$status" 1
expect_match end '^== tree: FAILED, and no test of it'
expect_match end '^tree.c: error: no such thing'
expect_match end '^== asan: FAILED$'
expect_match end '^check-all: asan did not come to its end'
expect_match end '^== threads: FAILED tests/last$'
expect_match end "^check_last.c:429:F:last:whole:0: Assertion 'a >= 1' failed"
expect_match end 'a report that is long 200$'
expect_match end '^== release: FAILED'

# Late: a test of the release, the compiler that comes last, and a harness without a failed test.
whole 'release-has-a-failure clang-does-not-build asan-is-odd' '6 passed, 3 failed, 4 skipped'
expect_eq 'exit status' "$status" 1
expect_match end '^== release: FAILED tests/last$'
expect_match end "^check_last.c:429:F:last:whole:0: Assertion 'a >= 1' failed"
expect_match end '^== clang: FAILED, and no test of it'
expect_match end '^clang.c: error: no such thing'
expect_match end '^== asan: FAILED, and no test of it'
expect_match end '^make: \*\*\* no rule'
expect_no_match end '^== (tree|threads): FAILED'
