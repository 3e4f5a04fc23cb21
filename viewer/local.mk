# SPDX-License-Identifier: MIT
#
# The page: what answers its questions, and where libmicrohttpd is, the server. The page's sources
# are in page/, its bundle in dist/ is committed, so that a build needs no Node.

viewer_page_files = \
	viewer/dist/index.html \
	viewer/dist/app.js \
	viewer/dist/app.css

noinst_LTLIBRARIES += %D%/libmt_view.la

%C%_libmt_view_la_SOURCES = \
	%D%/answer.c %D%/answer.h \
	%D%/guard.c %D%/guard.h \
	%D%/page.h \
	%D%/query.c \
	%D%/reply.c %D%/reply.h \
	%D%/source.c %D%/source.h \
	%D%/view.h
nodist_%C%_libmt_view_la_SOURCES = %D%/page_data.c
%C%_libmt_view_la_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS) $(MICROHTTPD_CFLAGS)
%C%_libmt_view_la_LIBADD = $(MICROHTTPD_LIBS) $(PTHREAD_LIBS)

if HAVE_MICROHTTPD
%C%_libmt_view_la_SOURCES += %D%/server.c
EXTRA_DIST += %D%/no_server.c
else
%C%_libmt_view_la_SOURCES += %D%/no_server.c
EXTRA_DIST += %D%/server.c
endif

%D%/page_data.c: $(viewer_page_files) build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D% && \
	$(SHELL) $(srcdir)/build-aux/embed.sh -n page -i viewer/page.h $@ $(srcdir) $(viewer_page_files)
CLEANFILES += %D%/page_data.c

EXTRA_DIST += $(viewer_page_files)
