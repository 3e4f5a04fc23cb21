# SPDX-License-Identifier: MIT
#
# Stands in the results for the tests that are written with Check, where that
# library is missing.

echo "skipped: the unit tests need Check 0.15.2 or newer (check), found by configure"
exit 77
