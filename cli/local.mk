# SPDX-License-Identifier: MIT
#
# The command.

bin_PROGRAMS += %D%/moetrace

%C%_moetrace_SOURCES =
%C%_moetrace_LDADD = \
	schema/functions/libmt_sql.la \
	kernels/libmtk.la \
	libtrace/libmoetrace.la \
	common/libmt_common.la
