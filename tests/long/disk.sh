# SPDX-License-Identifier: MIT
#
# Every one of the first 300 writes fails once.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

MOETRACE_TEST_TIER=long
export MOETRACE_TEST_TIER
"$MOETRACE_BUILDDIR/tests/fault/check_disk"
