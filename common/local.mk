# SPDX-License-Identifier: MIT
#
# Code without a moetrace notion. libmt_common is linked into libmoetrace and
# needs the C library alone; what uses yajl is a library of its own, so that the
# recorder does not depend on it.

noinst_LTLIBRARIES += %D%/libmt_common.la

%C%_libmt_common_la_SOURCES = \
	%D%/utf8.c %D%/utf8.h
