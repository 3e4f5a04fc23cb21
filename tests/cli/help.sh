# SPDX-License-Identifier: MIT
#
# --help and --version of the command and of every verb, and that manual pages can be made of them.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

expect_ok "$moetrace" --version
expect_match "$tmp/out" '^moetrace [0-9]+\.[0-9]+\.[0-9]+$'
expect_eq "lines of --version" "$(wc -l <"$tmp/out")" 1
expect_ok "$moetrace" --help
cp "$tmp/out" "$tmp/help"
expect_match "$tmp/help" '^Usage: moetrace '
expect_ok "$moetrace" help
expect_same "$tmp/out" "$tmp/help"

# The verbs that have a manual page are those that the command lists, in its order.
verbs=$(sed -n '/^moetrace_verbs = /,/[^\\]$/p' "$MOETRACE_SRCDIR/docs/local.mk" | tr -d '\\\t' | sed 1d)
expect_eq "verbs" "$(echo $verbs)" \
	"$(echo $(sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\)  .*/\1/p' "$tmp/help" | grep -v '^help$'))"

for verb in $verbs; do
	expect_match "$tmp/help" "^  $verb "
	expect_ok "$moetrace" $verb --help
	[ ! -s "$tmp/err" ] || fail "$verb --help writes to stderr"
	expect_match "$tmp/out" "^Usage: moetrace $verb "
	expect_match "$tmp/out" '^      --help '
	awk 'length($0) > 80 { exit 1 }' "$tmp/out" || fail "$verb --help has lines above 80 columns"
	cp "$tmp/out" "$tmp/verb"
	expect_ok "$moetrace" help $verb
	expect_same "$tmp/out" "$tmp/verb"
	expect_ok "$moetrace" $verb --version
	expect_match "$tmp/out" '^moetrace [0-9]'
done

# The formats that a verb has, and no other.
formats() {
	expect_ok "$moetrace" "$1" --help
	expect_match "$tmp/out" "^      --format=FORMAT +table \(the default\), json$2\$"
}
formats report ', jsonl or markdown'
formats info ' or jsonl'
formats eval ' or jsonl'
for verb in requests experts balance kernels power doctor dump query check; do
	formats $verb ', jsonl or csv'
done

# The exit codes that scripts rely on, and the schema that the command knows.
for code in 0 1 2 3 4 5; do
	expect_match "$tmp/help" "^  $code  "
done
version=$(sed -n 's/^PRAGMA user_version = \([0-9]*\);.*/\1/p' "$MOETRACE_SRCDIR"/schema/[0-9]*.sql | tail -n 1)
expect_match "$MOETRACE_SRCDIR/cli/cli.h" "^#define MT_SCHEMA_VERSION $version\$"

need_command help2man
for verb in "" $verbs; do
	expect_ok help2man --no-info "$moetrace${verb:+ $verb}"
	expect_match "$tmp/out" '^\.SH SYNOPSIS'
	expect_match "$tmp/out" '^\.SH DESCRIPTION'
done
