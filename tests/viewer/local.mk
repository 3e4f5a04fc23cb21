# SPDX-License-Identifier: MIT
#
# The page's server, and the page.

check_PROGRAMS += %D%/ask
%C%_ask_SOURCES = %D%/ask.c
%C%_ask_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE

TESTS += \
	%D%/bundle.sh \
	%D%/hostile.sh \
	%D%/numbers.sh \
	%D%/security.sh

EXTRA_DIST += \
	%D%/bundle.sh \
	%D%/hostile.sh \
	%D%/numbers.sh \
	%D%/security.sh \
	%D%/view.sh
