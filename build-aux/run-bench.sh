#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs the benchmarks one after another: run-bench.sh PROGRAM...
# A benchmark prints its own figures; a failing one does not hide the others.

set -u
if [ $# -eq 0 ]; then
	echo "bench: this version has no benchmark" >&2
	exit 1
fi
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: ${cpu:-unknown cpu}, $(getconf _NPROCESSORS_ONLN) cpus, Linux $(uname -r)"
failed=0
for program; do
	echo "== $program"
	case $program in
	/*) "$program" ;;
	*) "./$program" ;;
	esac || {
		echo "bench: $program: exit status $?" >&2
		failed=1
	}
done
exit $failed
