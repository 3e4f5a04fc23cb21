# SPDX-License-Identifier: MIT
#
# What the headers promise, call by call and status by status, and the example that is the
# first thing a reader of the API tries.

if HAVE_CHECK
%C%_programs = \
	%D%/check_contract \
	%D%/check_llama \
	%D%/check_open \
	%D%/rules/check_rules

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += %D%/rules/check_rules

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_libs = tests/unit/libmt_test.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_contract_SOURCES = %D%/check_contract.c
%C%_check_contract_CFLAGS = $(%C%_cflags)
%C%_check_contract_LDADD = $(%C%_libs)

# The glue of examples/llama.cpp, with a stand-in for llama.cpp.
%C%_check_llama_SOURCES = %D%/check_llama.c \
	examples/llama.cpp/moetrace_llama.c \
	examples/llama.cpp/moetrace_llama.h \
	examples/llama.cpp/stand-in/ggml.h \
	examples/llama.cpp/stand-in/ggml-backend.h \
	examples/llama.cpp/stand-in/llama.h
%C%_check_llama_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/examples/llama.cpp/stand-in
%C%_check_llama_CFLAGS = $(%C%_cflags)
%C%_check_llama_LDADD = $(%C%_libs)

# Needs the fake driver of tests/cuda, a check_LTLIBRARIES.
%C%_rules_check_rules_SOURCES = \
	%D%/rules/check_rules.c \
	%D%/rules/rules.h \
	%D%/rules/rules_of_devices.c \
	%D%/rules/rules_of_files.c \
	%D%/rules/rules_of_passes.c \
	%D%/rules/rules_of_requests.c \
	%D%/rules/rules_of_shapes.c \
	tests/cuda/support/device.c tests/cuda/support/device.h \
	tests/cuda/support/gpu_toy.c tests/cuda/support/gpu_toy.h
%C%_rules_check_rules_CFLAGS = $(%C%_cflags)
%C%_rules_check_rules_LDADD = $(%C%_libs) -ldl

%C%_check_open_SOURCES = %D%/check_open.c
%C%_check_open_CFLAGS = $(%C%_cflags)
%C%_check_open_LDADD = $(%C%_libs)
endif

# Built with headers of its own, not with today's.
check_PROGRAMS += %D%/first_caller
%C%_first_caller_SOURCES = %D%/first_caller.c %D%/first/moetrace/moetrace.h
%C%_first_caller_CPPFLAGS = -D_GNU_SOURCE -I$(srcdir)/%D%/first
%C%_first_caller_LDADD = libtrace/libmoetrace.la

TESTS += \
	%D%/toy-runtime.sh \
	%D%/first-version.sh \
	%D%/llama-compile.sh \
	%D%/llama-convert.sh \
	%D%/llama-compare.sh
EXTRA_DIST += \
	%D%/llama-compile.sh \
	%D%/llama-convert.sh \
	%D%/llama-compare.sh \
	%D%/first-version.sh \
	%D%/toy-runtime.sh
