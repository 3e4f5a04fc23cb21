#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The routing kernels, those of the other layers and the capture under compute-sanitizer: no access out
# of bounds, no race for shared memory, nothing read that was never written. The tests are small, since
# each launch takes a thousand times as long, and that of the capture runs in one process, which the
# tool can follow.

set -u
: "${MOETRACE_BUILDDIR:=.}"
program=$MOETRACE_BUILDDIR/tests/kernels/cuda/check_route_cuda
layers=$MOETRACE_BUILDDIR/tests/kernels/cuda/check_layers_cuda
experts=$MOETRACE_BUILDDIR/tests/kernels/cuda/check_experts_f32_cuda
capture=$MOETRACE_BUILDDIR/tests/cuda/check_capture

sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
if [ ! -x "$sanitizer" ]; then
	echo 'skipped: there is no compute-sanitizer'
	exit 77
fi
"$program"
status=$?
[ $status -eq 0 ] || exit $status
for tool in memcheck racecheck initcheck; do
	echo "$tool"
	MOETRACE_TEST_SMALL=1 "$sanitizer" --tool $tool --error-exitcode 9 "$program" || exit 1
	"$sanitizer" --tool $tool --error-exitcode 9 "$layers" || exit 1
	"$sanitizer" --tool $tool --error-exitcode 9 "$experts" || exit 1
	[ -x "$capture" ] || continue
	CK_FORK=no MOETRACE_TEST_SMALL=1 "$sanitizer" --tool $tool --error-exitcode 9 "$capture" ||
		exit 1
done
