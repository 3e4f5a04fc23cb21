# SPDX-License-Identifier: MIT
#
# The PTX that is committed is what its source and headers make, with the same compiler.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

nvcc=$(sed -n 's/^NVCC = //p' "$MOETRACE_BUILDDIR/Makefile")
committed=$MOETRACE_SRCDIR/libtrace/cuda/kernels.ptx
made_by=$(sed -n 's/^\/\/ Made from .*, \(Cuda compilation tools, .*\)\.$/\1/p' "$committed")

[ -n "$made_by" ] || fail "$committed does not say which compiler made it"
[ -n "$nvcc" ] || skip "no nvcc"
here=$("$nvcc" --version | grep "^Cuda compilation tools") || skip "no nvcc that runs"
[ "$here" = "$made_by" ] || skip "another compiler made it: $made_by; this one is $here"
[ -x "$(dirname "$nvcc")/ptxas" ] || skip "no ptxas beside $nvcc"

expect_ok sh "$MOETRACE_SRCDIR/build-aux/make-ptx.sh" "$nvcc" "$MOETRACE_SRCDIR" \
	"$MOETRACE_BUILDDIR" "$tmp/kernels.ptx"
cmp -s "$committed" "$tmp/kernels.ptx" || {
	diff -u "$committed" "$tmp/kernels.ptx" >&2
	fail "libtrace/cuda/kernels.ptx is stale: run make ptx, and commit it"
}
