# SPDX-License-Identifier: MIT
#
# Control of sessions: the line protocol, the socket and its hostile peers, the environment.

if HAVE_CHECK
%C%_programs = \
	%D%/check_environment \
	%D%/check_flight \
	%D%/check_flight_twin \
	%D%/check_line \
	%D%/check_overhead \
	%D%/check_paired \
	%D%/check_rotate \
	%D%/check_rotate_modes \
	%D%/check_socket

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += \
	%D%/check_flight \
	%D%/check_flight_twin \
	%D%/check_overhead \
	%D%/check_rotate \
	%D%/check_socket

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_libs = tests/unit/libmt_test.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm
%C%_inner_libs = tests/unit/libmt_test.la libtrace/libmt_trace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm
%C%_peer = %D%/support/line_peer.c %D%/support/line_peer.h

%C%_check_environment_SOURCES = %D%/check_environment.c $(%C%_peer)
%C%_check_environment_CFLAGS = $(%C%_cflags)
%C%_check_environment_LDADD = $(%C%_libs)

%C%_flight = %D%/support/flight.c %D%/support/flight.h
%C%_check_flight_SOURCES = %D%/check_flight.c $(%C%_flight)
%C%_check_flight_CFLAGS = $(%C%_cflags)
%C%_check_flight_LDADD = $(%C%_libs)

%C%_check_flight_twin_SOURCES = %D%/check_flight_twin.c $(%C%_flight)
%C%_check_flight_twin_CFLAGS = $(%C%_cflags)
%C%_check_flight_twin_LDADD = $(%C%_libs)

%C%_check_line_SOURCES = %D%/check_line.c
%C%_check_line_CFLAGS = $(%C%_cflags)
%C%_check_line_LDADD = $(%C%_inner_libs)

%C%_check_overhead_SOURCES = %D%/check_overhead.c $(%C%_peer)
%C%_check_overhead_CFLAGS = $(%C%_cflags)
%C%_check_overhead_LDADD = $(%C%_inner_libs)

%C%_check_paired_SOURCES = %D%/check_paired.c cli/paired.c cli/paired.h
%C%_check_paired_CFLAGS = $(%C%_cflags)
%C%_check_paired_LDADD = $(%C%_libs)

%C%_check_rotate_SOURCES = %D%/check_rotate.c \
	tests/fault/support/io_fault.c tests/fault/support/io_fault.h
%C%_check_rotate_CFLAGS = $(%C%_cflags)
%C%_check_rotate_LDADD = $(%C%_libs)

%C%_check_rotate_modes_SOURCES = %D%/check_rotate_modes.c
%C%_check_rotate_modes_CFLAGS = $(%C%_cflags)
%C%_check_rotate_modes_LDADD = $(%C%_libs)

%C%_check_socket_SOURCES = %D%/check_socket.c $(%C%_peer)
%C%_check_socket_CFLAGS = $(%C%_cflags)
%C%_check_socket_LDADD = $(%C%_libs)
endif

# What the command's test of overhead measures.
check_PROGRAMS += %D%/steady_runtime
%C%_steady_runtime_SOURCES = %D%/support/steady_runtime.c
%C%_steady_runtime_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_steady_runtime_LDADD = libtrace/libmoetrace.la
