# SPDX-License-Identifier: MIT
#
# Tests of the command. The traces they read are made by a stock sqlite3.

TESTS += \
	%D%/check.sh

EXTRA_DIST += \
	%D%/check.sh \
	%D%/derived.sql \
	%D%/sound.sql \
	%D%/trace.sh
