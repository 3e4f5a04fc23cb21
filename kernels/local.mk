# SPDX-License-Identifier: MIT
#
# The routing engine.

noinst_LTLIBRARIES += %D%/libmtk.la

%C%_libmtk_la_SOURCES =
