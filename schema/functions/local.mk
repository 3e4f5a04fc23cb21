# SPDX-License-Identifier: MIT
#
# The SQLite extension: a module that any program can load, and the same
# sources as a convenience library for the command, which links SQLite itself.

mt_sql_sources = \
	%D%/array.c %D%/array.h \
	%D%/diff.h \
	%D%/diff_compare.c \
	%D%/diff_join.c \
	%D%/diff_part.c %D%/diff_part.h \
	%D%/diff_rows.c \
	%D%/diff_shift.c %D%/diff_shift.h \
	%D%/diff_side.c \
	%D%/layer_times.c %D%/layer_times.h \
	%D%/layer_times_internal.h \
	%D%/layer_times_read.c \
	%D%/load_count.c %D%/load_count.h \
	%D%/moe_balance.c \
	%D%/moe_balance_pass.c \
	%D%/moe_diff.c \
	%D%/moe_diff_request.c \
	%D%/moe_eplb.c \
	%D%/moe_expand.c \
	%D%/moe_fit.c \
	%D%/moe_layer_time.c \
	%D%/moe_load.c \
	%D%/moe_oea.c \
	%D%/moe_rule.c \
	%D%/moe_pairs.c \
	%D%/moe_outliers.c \
	%D%/moe_rows.c \
	%D%/moe_share.c \
	%D%/moe_similarity.c \
	%D%/moe_steps.c \
	%D%/moe_topk.c \
	%D%/mt_sql.c %D%/mt_sql.h \
	%D%/oea_batch.c %D%/oea_batch.h \
	%D%/oea_general.c %D%/oea_general.h \
	%D%/oea_group.c %D%/oea_group.h \
	%D%/oea_ranks.c %D%/oea_ranks.h \
	%D%/oea_rules.c %D%/oea_rules.h \
	%D%/oea_sweep.c %D%/oea_sweep.h \
	%D%/pass_load.c %D%/pass_load.h \
	%D%/placement.c %D%/placement.h \
	%D%/rank_load.c %D%/rank_load.h \
	%D%/rank_map.c %D%/rank_map.h \
	%D%/request_load.c %D%/request_load.h \
	%D%/trace_layer.c \
	%D%/trace_open.c \
	%D%/trace_reader.c %D%/trace_reader.h %D%/trace_reader_internal.h \
	%D%/trace_util.c \
	%D%/tvf.c %D%/tvf.h

noinst_LTLIBRARIES += %D%/libmt_sql.la
%C%_libmt_sql_la_SOURCES = $(mt_sql_sources)
%C%_libmt_sql_la_LIBADD = -lm
%C%_libmt_sql_la_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS) -DSQLITE_CORE

pkglib_LTLIBRARIES += %D%/moetrace_sql.la
%C%_moetrace_sql_la_SOURCES = $(mt_sql_sources)
%C%_moetrace_sql_la_LIBADD = -lm
%C%_moetrace_sql_la_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_moetrace_sql_la_LDFLAGS = \
	$(AM_LDFLAGS) \
	-module -avoid-version -shared -no-undefined \
	-export-symbols-regex '^sqlite3_moetracesql_init$$' \
	$(MT_DEFS_LDFLAGS)
