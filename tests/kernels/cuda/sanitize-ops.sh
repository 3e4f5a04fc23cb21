#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What sanitize.sh leaves: map, alignment, permutation, combination, the experts in 16 bits, the rule oea,
# the routers of model families, and the whole engine recording a small model, under compute-sanitizer.
# Every program is tried with every tool, and what was found is said at the end.

set -u
: "${MOETRACE_BUILDDIR:=.}"
folder=$MOETRACE_BUILDDIR/tests/kernels/cuda

sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
if [ ! -x "$sanitizer" ]; then
	echo 'skipped: there is no compute-sanitizer'
	exit 77
fi
"$folder/check_oracle_cuda"
status=$?
[ $status -eq 0 ] || exit $status

MOETRACE_TEST_SMALL=1
export MOETRACE_TEST_SMALL
found=
for program in check_moe_cuda check_experts_cuda check_oea_cuda check_oracle_cuda check_decode_cuda; do
	[ -x "$folder/$program" ] || continue
	for tool in memcheck racecheck initcheck; do
		echo "$program, $tool"
		"$sanitizer" --tool $tool --error-exitcode 9 "$folder/$program" ||
			found="$found $program:$tool"
	done
done
[ -z "$found" ] || echo "found something:$found"
[ -z "$found" ]
