# SPDX-License-Identifier: MIT
#
# The rings under every interleaving, with a writer that looks once more.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

MOETRACE_TEST_TIER=long
export MOETRACE_TEST_TIER
"$MOETRACE_BUILDDIR/tests/interleave/check_ring"
