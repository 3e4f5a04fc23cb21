# SPDX-License-Identifier: MIT
#
# Tests of the build itself.
