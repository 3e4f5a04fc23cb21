# SPDX-License-Identifier: MIT
#
# Benchmarks: each is named in EXTRA_PROGRAMS and in bench_programs, is built
# and run by `make bench` only, and needs no arguments.

EXTRA_PROGRAMS += %D%/bench_experts
bench_programs += %D%/bench_experts

%C%_bench_experts_SOURCES = %D%/bench_experts.c
%C%_bench_experts_LDADD = kernels/libmtk.la -lm

EXTRA_PROGRAMS += %D%/bench_route
bench_programs += %D%/bench_route

%C%_bench_route_SOURCES = %D%/bench_route.c \
	%D%/sigmoid.h \
	%D%/sigmoid_avx2.c \
	%D%/sigmoid_avx512.c
%C%_bench_route_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
%C%_bench_route_LDADD = kernels/libmtk.la -lm
