# SPDX-License-Identifier: MIT
#
# The page's server, and the page.

check_PROGRAMS += %D%/ask
%C%_ask_SOURCES = %D%/ask.c
%C%_ask_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE

viewer_tests = \
	%D%/bundle.sh \
	%D%/file.sh \
	%D%/hostile.sh \
	%D%/numbers.sh \
	%D%/page.sh \
	%D%/redact.sh \
	%D%/security.sh
TESTS += $(viewer_tests)

EXTRA_DIST += \
	%D%/bundle.sh \
	%D%/file.sh \
	%D%/hostile.sh \
	%D%/numbers.sh \
	%D%/page.sh \
	%D%/redact.sh \
	%D%/security.sh \
	%D%/big.sql \
	%D%/page.mjs \
	%D%/page-browser.mjs \
	%D%/page-timeline.mjs \
	%D%/timeline.sql \
	%D%/view.sh
