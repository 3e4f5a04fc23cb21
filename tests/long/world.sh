# SPDX-License-Identifier: MIT
#
# More and longer random runtimes, each compared row by row with the file.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

MOETRACE_TEST_TIER=long
export MOETRACE_TEST_TIER
"$MOETRACE_BUILDDIR/tests/unit/check_world"
