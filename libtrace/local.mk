# SPDX-License-Identifier: MIT
#
# The recorder: libmoetrace, the only library that is installed for linking.

lib_LTLIBRARIES += %D%/libmoetrace.la

moetracedir = $(includedir)/moetrace
nodist_moetrace_HEADERS = %D%/include/moetrace/version.h
moetrace_HEADERS =

%C%_libmoetrace_la_SOURCES =
nodist_%C%_libmoetrace_la_SOURCES = %D%/store/schema_sql.c
%C%_libmoetrace_la_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
%C%_libmoetrace_la_LIBADD = \
	common/libmt_common.la \
	$(SQLITE3_LIBS) \
	$(PTHREAD_LIBS)
%C%_libmoetrace_la_LDFLAGS = \
	$(AM_LDFLAGS) \
	-no-undefined \
	-version-info $(MOETRACE_LT_VERSION) \
	$(MT_NODELETE_LDFLAGS) $(MT_DEFS_LDFLAGS)

EXTRA_DIST += %D%/libmoetrace.map
if HAVE_VERSION_SCRIPT
%C%_libmoetrace_la_LDFLAGS += -Wl,--version-script=$(srcdir)/%D%/libmoetrace.map
%C%_libmoetrace_la_DEPENDENCIES = common/libmt_common.la %D%/libmoetrace.map
else
%C%_libmoetrace_la_LDFLAGS += -export-symbols-regex '^moetrace_'
endif

# The schema's files as byte arrays, in the order in which they are applied.
%D%/store/schema_sql.c: $(schema_sql_files) build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D%/store && \
	$(SHELL) $(srcdir)/build-aux/embed.sh $@ $(srcdir) $(schema_sql_files)
CLEANFILES += %D%/store/schema_sql.c
