#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Packs tests that were built here for a machine that has a GPU and no build:
#
#   gpu-bundle.sh SRCDIR BUILDDIR ARCHIVE TEST...
#
# A TEST is a program of the build folder, or a shell script (*.sh) of the source folder. The
# archive (tar, compressed by its name's ending) holds a folder moetrace-gpu with them, the command,
# the data that they read, the shared libraries that they need but for those of the C and C++
# compiler's runtime, and run.sh, which runs them all: see there.

set -eu
[ $# -ge 4 ] || {
	echo "usage: gpu-bundle.sh SRCDIR BUILDDIR ARCHIVE TEST..." >&2
	exit 2
}
source=$1
build=$(cd -- "$2" && pwd)
archive=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/moetrace-gpu
mkdir -p "$root/lib"

# program PATH: the program itself, not the script that libtool puts in its place, with its libraries.
program() {
	real=$build/$1
	hidden=$build/${1%/*}/.libs/${1##*/}
	[ ! -f "$hidden" ] || real=$hidden
	mkdir -p "$root/${1%/*}"
	cp "$real" "$root/$1"
	strip "$root/$1"
	LD_LIBRARY_PATH=$build/libtrace/.libs ldd "$real" |
		awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
		while read -r library; do
			case ${library##*/} in
			libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | \
				libstdc++.so.* | libgcc_s.so.*) ;;
			*) [ -f "$root/lib/${library##*/}" ] || cp -L "$library" "$root/lib/" ;;
			esac
		done
}

program cli/moetrace
: >"$root/tests.list"
for test; do
	case $test in
	*.sh)
		mkdir -p "$root/${test%/*}"
		cp "$source/$test" "$root/$test"
		;;
	*) program "$test" ;;
	esac
	echo "$test" >>"$root/tests.list"
done
mkdir -p "$root/tests/support" "$root/tests/data" "$root/examples"
cp "$source/tests/support/"*.sh "$root/tests/support/"
cp -R "$source/tests/data/router-oracle" "$source/tests/data/tinymoe" "$root/tests/data/"
cp -R "$source/examples/tinymoe" "$root/examples/"
cp "$source/build-aux/gpu-run.sh" "$root/run.sh"
# Programs share much of their code: a window that holds them all pays.
XZ_OPT=${XZ_OPT:--9}
export XZ_OPT
tar -C "$work" -caf "$archive" moetrace-gpu
ls -l "$archive"
