# SPDX-License-Identifier: MIT
#
# The views, the extension and the two pages of docs/ that speak of them.
# make_trace writes synthetic traces together with what they mean; sql_runner
# has the functions linked in; damage_sql reads damaged copies through them.

check_PROGRAMS += %D%/check_counts %D%/check_oea %D%/make_pairs %D%/make_trace %D%/sql_runner \
	%D%/damage_sql

%C%_check_counts_SOURCES = %D%/check_counts.c
%C%_check_counts_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_check_counts_LDADD = \
	schema/functions/libmt_sql.la tests/unit/libmt_test.la $(CHECK_LIBS) $(SQLITE3_LIBS)

%C%_check_oea_SOURCES = %D%/check_oea.c
%C%_check_oea_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_check_oea_LDADD = \
	schema/functions/libmt_sql.la tests/unit/libmt_test.la $(CHECK_LIBS) $(SQLITE3_LIBS) -lm

%C%_make_trace_SOURCES = %D%/make_trace.c %D%/trace_writer.c %D%/trace_writer.h
nodist_%C%_make_trace_SOURCES = libtrace/store/schema_sql.c
%C%_make_trace_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_make_trace_LDADD = $(SQLITE3_LIBS) -lm

%C%_make_pairs_SOURCES = %D%/make_pairs.c %D%/trace_writer.c %D%/trace_writer.h
nodist_%C%_make_pairs_SOURCES = libtrace/store/schema_sql.c
%C%_make_pairs_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_make_pairs_LDADD = $(SQLITE3_LIBS) -lm

%C%_sql_runner_SOURCES = %D%/sql_runner.c
%C%_sql_runner_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_sql_runner_LDADD = schema/functions/libmt_sql.la $(SQLITE3_LIBS)

%C%_damage_sql_SOURCES = %D%/damage_sql.c
%C%_damage_sql_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_damage_sql_LDADD = schema/functions/libmt_sql.la $(SQLITE3_LIBS)

TESTS += \
	%D%/check_counts \
	%D%/check_oea \
	%D%/analysis.sh \
	%D%/cookbook.sh \
	%D%/diff.sh \
	%D%/functions.sh \
	%D%/module.sh \
	%D%/nsight.sh \
	%D%/oea.sh \
	%D%/overlap.sh \
	%D%/schema-doc.sh \
	%D%/views.sh
long_tests += %D%/functions.sh

EXTRA_DIST += \
	%D%/analysis.sh \
	%D%/cookbook.sh \
	%D%/cookbook.txt \
	%D%/diff.sh \
	%D%/diff.sql \
	%D%/similar.sql \
	%D%/functions.sh \
	%D%/halves.py \
	%D%/module.sh \
	%D%/nsight.sh \
	%D%/oea.sh \
	%D%/overlap.sh \
	%D%/schema-doc.sh \
	%D%/views.sh
