# SPDX-License-Identifier: MIT
#
# 200 kills at random moments.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

MOETRACE_TEST_TIER=long
export MOETRACE_TEST_TIER
"$MOETRACE_BUILDDIR/tests/fault/check_kill"
