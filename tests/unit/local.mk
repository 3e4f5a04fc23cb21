# SPDX-License-Identifier: MIT
#
# The recorder through its public API. The support library (a runtime for tests, a reader of
# traces, a checker of their consistency) also serves tests/contract and tests/fault.

if HAVE_CHECK
check_LTLIBRARIES += %D%/libmt_test.la

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_libs = %D%/libmt_test.la libtrace/libmoetrace.la $(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_libmt_test_la_SOURCES = \
	%D%/support/agree.c %D%/support/agree.h \
	%D%/support/agree_sql.c \
	%D%/support/db.c %D%/support/db.h \
	%D%/support/half.c %D%/support/half.h \
	%D%/support/one_layer.c %D%/support/one_layer.h \
	%D%/support/rng.h \
	%D%/support/said.c %D%/support/said.h \
	%D%/support/suite.c %D%/support/suite.h \
	%D%/support/toy.c %D%/support/toy.h \
	%D%/support/world.h \
	%D%/support/world_compare.c %D%/support/world_compare.h \
	%D%/support/world_counts.c \
	%D%/support/world_layers.c \
	%D%/support/world_misuse.c \
	%D%/support/world_requests.c \
	%D%/support/world_reuse.c \
	%D%/support/world_pass.c \
	%D%/support/world_run.c \
	%D%/support/world_select.c
%C%_libmt_test_la_CFLAGS = $(%C%_cflags)

%C%_programs = \
	%D%/check_abi \
	%D%/check_attempt \
	%D%/check_catalogue \
	%D%/check_experts \
	%D%/check_held \
	%D%/check_honest \
	%D%/check_library \
	%D%/check_narrow \
	%D%/check_misuse \
	%D%/check_models \
	%D%/check_modes \
	%D%/check_facts \
	%D%/check_order \
	%D%/check_pass \
	%D%/check_physical \
	%D%/check_recording \
	%D%/check_request \
	%D%/check_request_facts \
	%D%/check_request_order \
	%D%/check_reuse \
	%D%/check_rule \
	%D%/check_select \
	%D%/check_collective \
	%D%/check_timing \
	%D%/check_weights \
	%D%/check_world

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += \
	%D%/check_catalogue \
	%D%/check_held \
	%D%/check_recording \
	%D%/check_select \
	%D%/check_collective \
	%D%/check_timing \
	%D%/check_world

%C%_check_attempt_SOURCES = %D%/check_attempt.c
%C%_check_attempt_CFLAGS = $(%C%_cflags)
%C%_check_attempt_LDADD = $(%C%_libs)

%C%_check_abi_SOURCES = %D%/check_abi.c
%C%_check_abi_CFLAGS = $(%C%_cflags)
%C%_check_abi_LDADD = $(%C%_libs)

%C%_check_catalogue_SOURCES = %D%/check_catalogue.c
%C%_check_catalogue_CFLAGS = $(%C%_cflags)
%C%_check_catalogue_LDADD = $(%C%_libs)

%C%_check_experts_SOURCES = %D%/check_experts.c
%C%_check_experts_CFLAGS = $(%C%_cflags)
%C%_check_experts_LDADD = $(%C%_libs)

%C%_check_held_SOURCES = %D%/check_held.c \
	tests/fault/support/io_fault.c tests/fault/support/io_fault.h
%C%_check_held_CFLAGS = $(%C%_cflags)
%C%_check_held_LDADD = %D%/libmt_test.la libtrace/libmt_trace.la $(CHECK_LIBS) $(SQLITE3_LIBS) \
	$(PTHREAD_LIBS) -lm

%C%_check_honest_SOURCES = %D%/check_honest.c
%C%_check_honest_CFLAGS = $(%C%_cflags)
%C%_check_honest_LDADD = $(%C%_libs)

%C%_check_library_SOURCES = %D%/check_library.c
%C%_check_library_CFLAGS = $(%C%_cflags)
%C%_check_library_LDADD = %D%/libmt_test.la libtrace/libmt_trace.la $(CHECK_LIBS) $(SQLITE3_LIBS) \
	$(PTHREAD_LIBS) -lm

%C%_check_narrow_SOURCES = %D%/check_narrow.c
%C%_check_narrow_CFLAGS = $(%C%_cflags)
%C%_check_narrow_LDADD = %D%/libmt_test.la libtrace/libmt_trace.la $(CHECK_LIBS) $(SQLITE3_LIBS) \
	$(PTHREAD_LIBS) -lm

%C%_check_misuse_SOURCES = %D%/check_misuse.c
%C%_check_misuse_CFLAGS = $(%C%_cflags)
%C%_check_misuse_LDADD = $(%C%_libs)

%C%_check_models_SOURCES = %D%/check_models.c
%C%_check_models_CFLAGS = $(%C%_cflags)
%C%_check_models_LDADD = $(%C%_libs)

%C%_check_modes_SOURCES = %D%/check_modes.c
%C%_check_modes_CFLAGS = $(%C%_cflags)
%C%_check_modes_LDADD = $(%C%_libs)

%C%_check_facts_SOURCES = %D%/check_facts.c
%C%_check_facts_CFLAGS = $(%C%_cflags)
%C%_check_facts_LDADD = $(%C%_libs)

%C%_check_order_SOURCES = %D%/check_order.c
%C%_check_order_CFLAGS = $(%C%_cflags)
%C%_check_order_LDADD = $(%C%_libs)

%C%_check_physical_SOURCES = %D%/check_physical.c
%C%_check_physical_CFLAGS = $(%C%_cflags)
%C%_check_physical_LDADD = $(%C%_libs)

%C%_check_pass_SOURCES = %D%/check_pass.c
%C%_check_pass_CFLAGS = $(%C%_cflags)
%C%_check_pass_LDADD = $(%C%_libs)

%C%_check_recording_SOURCES = %D%/check_recording.c
%C%_check_recording_CFLAGS = $(%C%_cflags)
%C%_check_recording_LDADD = $(%C%_libs)

%C%_check_request_SOURCES = %D%/check_request.c
%C%_check_request_CFLAGS = $(%C%_cflags)
%C%_check_request_LDADD = $(%C%_libs)

%C%_check_request_facts_SOURCES = %D%/check_request_facts.c
%C%_check_request_facts_CFLAGS = $(%C%_cflags)
%C%_check_request_facts_LDADD = $(%C%_libs)

%C%_check_request_order_SOURCES = %D%/check_request_order.c
%C%_check_request_order_CFLAGS = $(%C%_cflags)
%C%_check_request_order_LDADD = %D%/libmt_test.la libtrace/libmt_trace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_reuse_SOURCES = %D%/check_reuse.c
%C%_check_reuse_CFLAGS = $(%C%_cflags)
%C%_check_reuse_LDADD = $(%C%_libs)

%C%_check_rule_SOURCES = %D%/check_rule.c
%C%_check_rule_CFLAGS = $(%C%_cflags)
%C%_check_rule_LDADD = $(%C%_libs)

%C%_check_select_SOURCES = %D%/check_select.c
%C%_check_select_CFLAGS = $(%C%_cflags)
%C%_check_select_LDADD = $(%C%_libs)

%C%_check_collective_SOURCES = %D%/check_collective.c
%C%_check_collective_CFLAGS = $(%C%_cflags)
%C%_check_collective_LDADD = $(%C%_libs)

%C%_check_timing_SOURCES = %D%/check_timing.c
%C%_check_timing_CFLAGS = $(%C%_cflags)
%C%_check_timing_LDADD = $(%C%_libs)

%C%_check_weights_SOURCES = %D%/check_weights.c
%C%_check_weights_CFLAGS = $(%C%_cflags)
%C%_check_weights_LDADD = $(%C%_libs)

%C%_check_world_SOURCES = %D%/check_world.c
%C%_check_world_CFLAGS = $(%C%_cflags)
%C%_check_world_LDADD = $(%C%_libs)
endif
