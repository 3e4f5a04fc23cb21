# SPDX-License-Identifier: MIT
#
# The command: one file cmd_VERB.c a verb.

bin_PROGRAMS += %D%/moetrace

%C%_moetrace_SOURCES = \
	%D%/cli.c %D%/cli.h \
	%D%/cli_args.c \
	%D%/cli_open.c \
	%D%/cli_sql.c \
	%D%/cmd_dump.c \
	%D%/cmd_query.c \
	%D%/moetrace.c \
	%D%/output.c \
	%D%/table.c %D%/table.h
%C%_moetrace_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_moetrace_LDADD = \
	schema/functions/libmt_sql.la \
	kernels/libmtk.la \
	libtrace/libmoetrace.la \
	common/libmt_common.la \
	$(SQLITE3_LIBS) \
	$(PTHREAD_LIBS)
