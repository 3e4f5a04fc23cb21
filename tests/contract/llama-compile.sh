# SPDX-License-Identifier: MIT
#
# examples/llama.cpp without llama.cpp: everything compiles against the stand-in, with either
# result type of the callback and from C++; so does the code of docs/llama.cpp.md.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

example=$MOETRACE_SRCDIR/examples/llama.cpp
includes="-I$example/stand-in -I$MOETRACE_BUILDDIR/libtrace/include -I$MOETRACE_SRCDIR/libtrace/include"
flags='-std=c17 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wundef -Werror -fsyntax-only'
{
	echo '#include <stdio.h>'
	awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
		"$MOETRACE_SRCDIR/docs/llama.cpp.md"
	echo 'int main(void) { struct host host = {0}; struct llama_batch batch = {0};'
	echo 'return host_open(&host, NULL, batch) || host_serve(&host, "1", batch); }'
} >"$tmp/guide.c"
for result in bool int; do
	for source in "$example/moetrace_llama.c" "$example/llama_record.c" "$tmp/guide.c"; do
		# shellcheck disable=SC2086 # lists of options
		expect_ok $MOETRACE_CC $flags -DSTAND_IN_RESULT=$result $includes -I"$example" "$source"
	done
done
if command -v "${CXX:-c++}" >/dev/null 2>&1; then
	printf '#include "moetrace_llama.h"\nint main() { return moetrace_llama_callback() == 0; }\n' \
		>"$tmp/host.cc"
	# shellcheck disable=SC2086 # lists of options
	expect_ok ${CXX:-c++} -std=c++11 -Wall -Wextra -Werror -fsyntax-only $includes -I"$example" \
		"$tmp/host.cc"
fi
