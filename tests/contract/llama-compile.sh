# SPDX-License-Identifier: MIT
#
# examples/llama.cpp without llama.cpp: everything compiles against the stand-in, with either
# result type of the callback and from C++.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

example=$MOETRACE_SRCDIR/examples/llama.cpp
includes="-I$example/stand-in -I$MOETRACE_BUILDDIR/libtrace/include -I$MOETRACE_SRCDIR/libtrace/include"
flags='-std=c17 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wundef -Werror -fsyntax-only'
for result in bool int; do
	for source in moetrace_llama.c llama_record.c; do
		# shellcheck disable=SC2086 # lists of options
		expect_ok $MOETRACE_CC $flags -DSTAND_IN_RESULT=$result $includes "$example/$source"
	done
done
if command -v "${CXX:-c++}" >/dev/null 2>&1; then
	printf '#include "moetrace_llama.h"\nint main() { return moetrace_llama_callback() == 0; }\n' \
		>"$tmp/host.cc"
	# shellcheck disable=SC2086 # lists of options
	expect_ok ${CXX:-c++} -std=c++11 -Wall -Wextra -Werror -fsyntax-only $includes -I"$example" \
		"$tmp/host.cc"
fi
