# SPDX-License-Identifier: MIT
#
# A program that attaches where the file that the loader finds as the driver would end or stop it: it goes
# on without, and says which file is wrong. A file that the loader passes over is passed over.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

attach=$MOETRACE_BUILDDIR/tests/cuda/attach_once
driver=$MOETRACE_BUILDDIR/tests/cuda/.libs/libcuda.so.1
[ -f "$driver" ] || skip 'the driver of the tests was not built'

# attached FOLDER REGEX: what it says with that folder's libcuda.so.1. Who reads a pipe waits for ever.
attached() {
	rm -f "$tmp/trace.db"
	expect_ok env LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout -k 5 100 \
		"$attach" "$tmp/trace.db"
	expect_err ""
	expect_match "$tmp/out" "$2"
}

# bad NAME REGEX: the folder's libcuda.so.1 is named, with what is wrong.
bad() {
	attached "$tmp/$1" "^cuda: the CUDA driver cannot be opened: $tmp/$1/libcuda.so.1: $2"
}

for what in cut empty text pipe folder link class; do
	mkdir "$tmp/$what"
done
for n_bytes in 100 4096 8192; do
	head -c "$n_bytes" "$driver" >"$tmp/cut/libcuda.so.1"
	bad cut "cut short: it has $n_bytes bytes and needs [0-9]+ or more\$"
done
: >"$tmp/empty/libcuda.so.1"
bad empty 'an empty file$'
echo 'INPUT(-lcuda)' >"$tmp/text/libcuda.so.1"
bad text 'no ELF file$'
mkfifo "$tmp/pipe/libcuda.so.1"
bad pipe 'no regular file$'
mkdir "$tmp/folder/libcuda.so.1"
bad folder 'no regular file$'
attached "${driver%/*}" '^attached$'

# A link that leads nowhere and another machine's library are passed over, and said where nothing else is.
ln -s libcuda.so.999 "$tmp/link/libcuda.so.1"
cp "$driver" "$tmp/class/libcuda.so.1"
class=$(od -An -tu1 -j4 -N1 "$driver")
printf "\\$(printf %03o $((3 - class)))" |
	dd of="$tmp/class/libcuda.so.1" bs=1 seek=4 conv=notrunc 2>/dev/null
for what in link class; do
	attached "$tmp/$what:${driver%/*}" '^attached$'
done
attached "$tmp/link" "^attached\$|^cuda: the CUDA driver cannot be opened: $tmp/link/.* a link that leads nowhere\$"
attached "$tmp/class" "^attached\$|^cuda: the CUDA driver cannot be opened: $tmp/class/.* no shared object for this machine\$"
