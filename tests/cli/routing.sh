# SPDX-License-Identifier: MIT
#
# check --routing: a recording of every known router gives no finding, by itself and against its
# preset; of each recording that is broken in one way, that way is found and nothing else.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

cd "$tmp" || exit 99
make_routing=$MOETRACE_BUILDDIR/tests/cli/make_routing

# ---- no false alarm ----
n=0
for first in 0 16 32; do
	expect_ok "$make_routing" clean $first "clean$first.db"
	cp "$tmp/out" models
	expect_ok "$moetrace" check "clean$first.db"
	expect_ok "$moetrace" check --routing "clean$first.db"
	expect_match "$tmp/out" "clean$first.db: no routing fault was found"
	while read -r model name _; do
		expect_ok "$moetrace" check --routing --preset "$name" --model "$model" "clean$first.db"
		n=$((n + 1))
	done <models
done
[ "$n" -ge 40 ] || fail "only $n presets were recorded"

# ---- no alarm missed ----
# A line a fault: its model's number, what is broken, and the one finding that says so.
for first in 0 16; do
	expect_ok "$make_routing" faults $first "faults$first.db"
	cp "$tmp/out" models
	expect_status 1 "$moetrace" check --routing --format csv "faults$first.db"
	cut -d, -f2,5 "$tmp/out" | sed 1d | sort -u >found
	while read -r model name finding; do
		expect_eq "findings of $name" "$(sed -n "s/,$model\$//p" found)" "${finding#-}"
	done <models
done
