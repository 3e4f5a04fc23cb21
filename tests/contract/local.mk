# SPDX-License-Identifier: MIT
#
# What the headers promise, call by call and status by status, and the example that is the
# first thing a reader of the API tries.

if HAVE_CHECK
%C%_programs = \
	%D%/check_contract \
	%D%/check_open

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_libs = tests/unit/libmt_test.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_contract_SOURCES = %D%/check_contract.c
%C%_check_contract_CFLAGS = $(%C%_cflags)
%C%_check_contract_LDADD = $(%C%_libs)

%C%_check_open_SOURCES = %D%/check_open.c
%C%_check_open_CFLAGS = $(%C%_cflags)
%C%_check_open_LDADD = $(%C%_libs)
endif

TESTS += %D%/toy-runtime.sh
EXTRA_DIST += \
	%D%/toy-runtime.sh \
	examples/Makefile \
	examples/toy_runtime.c
