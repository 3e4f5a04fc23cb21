# SPDX-License-Identifier: MIT
#
# Ten minutes of recording in which nothing is lost and no memory grows, and ten of calls at random.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

MOETRACE_TEST_TIER=long
export MOETRACE_TEST_TIER
"$MOETRACE_BUILDDIR/tests/fault/check_soak"
