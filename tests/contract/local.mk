# SPDX-License-Identifier: MIT
#
# What the headers promise, call by call and status by status, and the example that is the
# first thing a reader of the API tries.

if HAVE_CHECK
check_PROGRAMS += %D%/check_contract
TESTS += %D%/check_contract

%C%_check_contract_SOURCES = %D%/check_contract.c
%C%_check_contract_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_check_contract_LDADD = tests/unit/libmt_test.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm
endif

TESTS += %D%/toy-runtime.sh
EXTRA_DIST += \
	%D%/toy-runtime.sh \
	examples/Makefile \
	examples/toy_runtime.c
