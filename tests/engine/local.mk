# SPDX-License-Identifier: MIT
#
# Test programs go into check_PROGRAMS and TESTS and link $(CHECK_LIBS); test
# scripts (*.sh) go into TESTS and EXTRA_DIST.
