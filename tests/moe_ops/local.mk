# SPDX-License-Identifier: MIT
#
# The operations around the experts, each against brute force that shares no
# code with it, and the faults that are known of other implementations by name.

if HAVE_CHECK
%C%_programs = \
	%D%/check_align \
	%D%/check_combine \
	%D%/check_experts \
	%D%/check_map

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += %D%/check_align %D%/check_experts

%C%_cflags = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_libs = kernels/libmtk.la $(CHECK_LIBS) -lm
%C%_support = \
	%D%/support/draw.h \
	%D%/support/suite.h \
	tests/kernels/support/levels.h

%C%_check_align_SOURCES = %D%/check_align.c $(%C%_support)
%C%_check_align_CFLAGS = $(%C%_cflags)
%C%_check_align_LDADD = $(%C%_libs)

%C%_check_combine_SOURCES = %D%/check_combine.c $(%C%_support)
%C%_check_combine_CFLAGS = $(%C%_cflags)
%C%_check_combine_LDADD = $(%C%_libs)

%C%_check_experts_SOURCES = %D%/check_experts.c $(%C%_support) \
	%D%/support/layer.c %D%/support/layer.h
%C%_check_experts_CFLAGS = $(%C%_cflags)
%C%_check_experts_LDADD = $(%C%_libs)

%C%_check_map_SOURCES = %D%/check_map.c $(%C%_support)
%C%_check_map_CFLAGS = $(%C%_cflags)
%C%_check_map_LDADD = $(%C%_libs)
endif
