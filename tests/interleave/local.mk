# SPDX-License-Identifier: MIT
#
# Lock-free code under every interleaving: the code itself is compiled into the test, with its
# atomic operations replaced.

if HAVE_CHECK
check_PROGRAMS += %D%/check_ring
TESTS += %D%/check_ring

%C%_check_ring_SOURCES = %D%/check_ring.c %D%/explore.c %D%/explore.h
%C%_check_ring_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS)
%C%_check_ring_LDADD = $(CHECK_LIBS)
endif

long_tests += tests/long/interleave.sh
EXTRA_DIST += tests/long/interleave.sh
