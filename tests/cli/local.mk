# SPDX-License-Identifier: MIT
#
# Tests of the command. The traces they read are made by a stock sqlite3.

cli_tests = \
	%D%/check-ends.sh \
	%D%/check-shape.sh \
	%D%/check-timing.sh \
	%D%/check.sh \
	%D%/control-basic.sh \
	%D%/control-files.sh \
	%D%/device.sh \
	%D%/diff.sh \
	%D%/doctor.sh \
	%D%/efficiency.sh \
	%D%/eplb.sh \
	%D%/errors.sh \
	%D%/explain.sh \
	%D%/flight.sh \
	%D%/golden.sh \
	%D%/hard.sh \
	%D%/help.sh \
	%D%/inputs.sh \
	%D%/journal.sh \
	%D%/modes.sh \
	%D%/oea.sh \
	%D%/oea-pitfalls.sh \
	%D%/overhead.sh \
	%D%/plot.sh \
	%D%/routing.sh \
	%D%/top.sh \
	%D%/top-screen.sh

check_PROGRAMS += %D%/make_hard %D%/make_live %D%/make_routing

%C%_make_hard_SOURCES = %D%/make_hard.c
%C%_make_hard_LDADD = libtrace/libmoetrace.la

%C%_make_live_SOURCES = %D%/make_live.c
%C%_make_live_LDADD = libtrace/libmoetrace.la

%C%_make_routing_SOURCES = %D%/make_routing.c %D%/make_routing.h %D%/routing_router.c
%C%_make_routing_LDADD = kernels/libmtk.la libtrace/libmoetrace.la -lm

if HAVE_CHECK
check_PROGRAMS += %D%/check_read_ahead
TESTS += %D%/check_read_ahead
endif

%C%_check_read_ahead_SOURCES = %D%/check_read_ahead.c cli/read_ahead.c
%C%_check_read_ahead_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_check_read_ahead_LDADD = tests/unit/libmt_test.la $(CHECK_LIBS) $(SQLITE3_LIBS) \
	$(PTHREAD_LIBS) -lm -ldl

TESTS += $(cli_tests)

EXTRA_DIST += \
	$(cli_tests) \
	%D%/derived.sql \
	tests/data/eplb/cases.json \
	%D%/golden \
	%D%/sound.sql \
	%D%/top.sql \
	%D%/trace.sh

# A folder: make's own rule for scripts would make a file of that name from golden.sh.
%D%/golden:
	@:
