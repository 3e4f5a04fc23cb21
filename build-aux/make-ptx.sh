#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Makes the PTX that is committed from the recorder's kernels.
#
#   make-ptx.sh NVCC SRCDIR BUILDDIR [OUTPUT]
#
# The version is lowered to one that drivers since CUDA 11.8 read; ptxas then says
# whether the code is content with it. The first lines say which compiler made it.

set -eu
nvcc=$1
srcdir=$2
builddir=$3
source=libtrace/cuda/kernels.cu
output=${4:-$srcdir/libtrace/cuda/kernels.ptx}

trap 'rm -f "$output.tmp" "$output.raw"' EXIT
"$nvcc" -ptx -arch=compute_80 -std=c++17 -I"$srcdir" -I"$srcdir/libtrace/include" \
	-I"$builddir/libtrace/include" "$srcdir/$source" -o "$output.raw"
{
	echo '// SPDX-License-Identifier: MIT'
	echo '//'
	echo "// Made from $source by build-aux/make-ptx.sh, $("$nvcc" --version | grep '^Cuda compilation tools')."
	sed -e '/^\/\//d' -e '/^[[:blank:]]*\/\//d' -e '/used_bytes_mask/d' -e 's/^\.version .*/.version 7.8/' "$output.raw"
} >"$output.tmp"
"$(dirname "$nvcc")/ptxas" -arch=sm_80 -o /dev/null "$output.tmp"
mv "$output.tmp" "$output"
