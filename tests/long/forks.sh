# SPDX-License-Identifier: MIT
#
# 400 forks at any moment of a busy recording.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

MOETRACE_TEST_TIER=long
export MOETRACE_TEST_TIER
"$MOETRACE_BUILDDIR/tests/fault/check_fork"
