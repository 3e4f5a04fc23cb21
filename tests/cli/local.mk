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
