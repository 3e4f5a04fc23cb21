# SPDX-License-Identifier: MIT
#
# Benchmarks: each is named in EXTRA_PROGRAMS and in bench_programs, is built
# and run by `make bench` only, and needs no arguments.
