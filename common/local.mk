# SPDX-License-Identifier: MIT
#
# Code without a moetrace notion. libmt_common is linked into libmoetrace and
# needs the C library alone; what uses yajl is a library of its own, so that the
# recorder does not depend on it.

noinst_LTLIBRARIES += %D%/libmt_common.la %D%/libmt_json.la

%C%_libmt_common_la_SOURCES = \
	%D%/base64.h \
	%D%/bytes.h \
	%D%/compare.h \
	%D%/folder.c %D%/folder.h \
	%D%/library.c %D%/library.h \
	%D%/library_path.c \
	%D%/pattern.c %D%/pattern.h \
	%D%/utf8.c %D%/utf8.h

%C%_libmt_common_la_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE

%C%_libmt_json_la_SOURCES = \
	%D%/f16.h \
	%D%/json.h \
	%D%/json_keys.c %D%/json_keys.h \
	%D%/json_text.c \
	%D%/jsonw.c %D%/jsonw.h
%C%_libmt_json_la_CPPFLAGS = $(AM_CPPFLAGS) $(YAJL_CFLAGS)
%C%_libmt_json_la_LIBADD = %D%/libmt_common.la $(YAJL_LIBS)

if HAVE_YAJL
%C%_libmt_json_la_SOURCES += %D%/json.c
EXTRA_DIST += %D%/no_json.c
else
%C%_libmt_json_la_SOURCES += %D%/no_json.c
EXTRA_DIST += %D%/json.c
endif
