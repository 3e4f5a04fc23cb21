# SPDX-License-Identifier: MIT
#
# The SQLite extension: a module that any program can load, and the same
# sources as a convenience library for the command.

noinst_LTLIBRARIES += %D%/libmt_sql.la

%C%_libmt_sql_la_SOURCES =
