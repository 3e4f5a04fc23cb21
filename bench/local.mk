# SPDX-License-Identifier: MIT
#
# Benchmarks: each is named in EXTRA_PROGRAMS and in bench_programs, is built
# and run by `make bench` only, and needs no arguments. README.md has the method.

%C%_c_programs = \
	%D%/bench_analysis \
	%D%/bench_hook \
	%D%/bench_producers \
	%D%/bench_writer \
	%D%/bench_size \
	%D%/bench_loss \
	%D%/bench_route \
	%D%/bench_experts \
	%D%/bench_oea

EXTRA_PROGRAMS += $(%C%_c_programs)
bench_programs += $(%C%_c_programs) $(srcdir)/%D%/bench_overhead.sh $(srcdir)/%D%/bench_oea_time.sh

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS)
%C%_libs = libtrace/libmoetrace.la $(SQLITE3_LIBS) $(PTHREAD_LIBS)
%C%_load = %D%/load.c %D%/load.h

# It runs the command, on a file that a program of the tests makes.
%C%_bench_analysis_SOURCES = %D%/bench_analysis.c
%C%_bench_analysis_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_bench_analysis_DEPENDENCIES = tests/schema/make_trace$(EXEEXT) cli/moetrace$(EXEEXT)

%C%_bench_hook_SOURCES = %D%/bench_hook.c $(%C%_load)
%C%_bench_hook_CFLAGS = $(%C%_cflags)
%C%_bench_hook_LDADD = $(%C%_libs)

%C%_bench_loss_SOURCES = %D%/bench_loss.c $(%C%_load)
%C%_bench_loss_CFLAGS = $(%C%_cflags)
%C%_bench_loss_LDADD = $(%C%_libs)

%C%_bench_producers_SOURCES = %D%/bench_producers.c $(%C%_load)
%C%_bench_producers_CFLAGS = $(%C%_cflags)
%C%_bench_producers_LDADD = libtrace/libmt_trace.la $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_bench_size_SOURCES = %D%/bench_size.c $(%C%_load)
%C%_bench_size_CFLAGS = $(%C%_cflags)
%C%_bench_size_LDADD = $(%C%_libs)

%C%_bench_writer_SOURCES = %D%/bench_writer.c $(%C%_load)
%C%_bench_writer_CFLAGS = $(%C%_cflags)
%C%_bench_writer_LDADD = $(%C%_libs)

%C%_bench_experts_SOURCES = %D%/bench_experts.c
%C%_bench_experts_LDADD = kernels/libmtk.la -lm

%C%_bench_oea_SOURCES = %D%/bench_oea.c
%C%_bench_oea_CFLAGS = $(%C%_cflags)
%C%_bench_oea_LDADD = schema/functions/libmt_sql.la schema/libmt_reference.la $(SQLITE3_LIBS)

%C%_bench_route_SOURCES = %D%/bench_route.c \
	%D%/sigmoid.h \
	%D%/sigmoid_avx2.c \
	%D%/sigmoid_avx512.c
%C%_bench_route_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
%C%_bench_route_LDADD = kernels/libmtk.la -lm

EXTRA_DIST += \
	%D%/README.md \
	%D%/bench_overhead.sh \
	%D%/bench_oea_time.sh \
	%D%/bench_viewer.mjs \
	%D%/bench_viewer.sh \
	%D%/bench_viewer.sql \
	%D%/turns.sh
