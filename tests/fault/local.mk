# SPDX-License-Identifier: MIT
#
# What may go wrong around the recorder, and the promise that the traced program does not
# notice. The programs named *_dlopen open the library at run time instead of linking it; in
# `make check-long` some of them do more, see tests/long.

if HAVE_CHECK
%C%_programs = \
	%D%/check_calls \
	%D%/check_calls_dlopen \
	%D%/check_disk \
	%D%/check_fork \
	%D%/check_kill \
	%D%/check_out_file \
	%D%/check_overflow \
	%D%/check_process \
	%D%/check_readers \
	%D%/check_replaced \
	%D%/check_size \
	%D%/check_soak \
	%D%/check_syscalls \
	%D%/check_syscalls_dlopen \
	%D%/check_unload

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += \
	%D%/check_fork \
	%D%/check_overflow

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_dlopen_cflags = $(%C%_cflags) -DTEST_DLOPEN
%C%_dlopen_libs = tests/unit/libmt_test.la $(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl
%C%_libs = tests/unit/libmt_test.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl
%C%_hot = \
	%D%/support/api.c %D%/support/api.h \
	%D%/support/hot.c %D%/support/hot.h %D%/support/hot_kinds.c \
	tests/control/support/line_peer.c tests/control/support/line_peer.h

# Its own malloc() and pthread_mutex_lock() have to be seen by the libraries.
%C%_check_calls_SOURCES = %D%/check_calls.c $(%C%_hot)
%C%_check_calls_CFLAGS = $(%C%_cflags)
%C%_check_calls_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
%C%_check_calls_LDADD = $(%C%_libs)

%C%_check_calls_dlopen_SOURCES = %D%/check_calls.c $(%C%_hot)
%C%_check_calls_dlopen_CFLAGS = $(%C%_dlopen_cflags)
%C%_check_calls_dlopen_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
%C%_check_calls_dlopen_LDADD = $(%C%_dlopen_libs)

%C%_check_disk_SOURCES = %D%/check_disk.c %D%/support/io_fault.c %D%/support/io_fault.h
%C%_check_disk_CFLAGS = $(%C%_cflags)
%C%_check_disk_LDADD = $(%C%_libs)

%C%_check_fork_SOURCES = %D%/check_fork.c
%C%_check_fork_CFLAGS = $(%C%_cflags)
%C%_check_fork_LDADD = $(%C%_libs)

%C%_check_kill_SOURCES = %D%/check_kill.c
%C%_check_kill_CFLAGS = $(%C%_cflags)
%C%_check_kill_LDADD = $(%C%_libs)

# Its own fdopen() and rename() go before those of the C library.
%C%_check_out_file_SOURCES = %D%/check_out_file.c cli/out_file.c cli/out_input.c
%C%_check_out_file_CFLAGS = $(%C%_cflags)
%C%_check_out_file_LDADD = tests/unit/libmt_test.la $(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_check_overflow_SOURCES = %D%/check_overflow.c \
	%D%/support/io_fault.c %D%/support/io_fault.h \
	%D%/support/peer.c %D%/support/peer.h
%C%_check_overflow_CFLAGS = $(%C%_cflags)
%C%_check_overflow_LDADD = $(%C%_libs)

%C%_check_readers_SOURCES = %D%/check_readers.c %D%/support/peer.c %D%/support/peer.h
%C%_check_readers_CFLAGS = $(%C%_cflags)
%C%_check_readers_LDADD = $(%C%_libs)

# Its own clock_gettime() has to be seen by the libraries.
%C%_check_process_SOURCES = %D%/check_process.c
%C%_check_process_CFLAGS = $(%C%_cflags)
%C%_check_process_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
%C%_check_process_LDADD = $(%C%_libs)

%C%_check_unload_SOURCES = %D%/check_unload.c $(%C%_hot)
%C%_check_unload_CFLAGS = $(%C%_dlopen_cflags)
%C%_check_unload_LDADD = $(%C%_dlopen_libs)

%C%_check_replaced_SOURCES = %D%/check_replaced.c
%C%_check_replaced_CFLAGS = $(%C%_cflags)
%C%_check_replaced_LDADD = $(%C%_libs)

%C%_check_size_SOURCES = %D%/check_size.c
%C%_check_size_CFLAGS = $(%C%_cflags)
%C%_check_size_LDADD = $(%C%_libs)

%C%_check_soak_SOURCES = %D%/check_soak.c
%C%_check_soak_CFLAGS = $(%C%_cflags)
%C%_check_soak_LDADD = $(%C%_libs)

%C%_check_syscalls_SOURCES = %D%/check_syscalls.c $(%C%_hot)
%C%_check_syscalls_CFLAGS = $(%C%_cflags)
%C%_check_syscalls_LDADD = $(%C%_libs)

%C%_check_syscalls_dlopen_SOURCES = %D%/check_syscalls.c $(%C%_hot)
%C%_check_syscalls_dlopen_CFLAGS = $(%C%_dlopen_cflags)
%C%_check_syscalls_dlopen_LDADD = $(%C%_dlopen_libs)

long_tests += \
	tests/long/disk.sh \
	tests/long/forks.sh \
	tests/long/kills.sh \
	tests/long/soak.sh \
	tests/long/world.sh
endif

EXTRA_DIST += \
	tests/long/disk.sh \
	tests/long/forks.sh \
	tests/long/kills.sh \
	tests/long/soak.sh \
	tests/long/world.sh
