# SPDX-License-Identifier: MIT
#
# Who may include whom (the rule is in includes.awk), and that no C header
# speaks of a CUDA type. The check proves itself: it is run on copies of the
# tree with one violation planted in each.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

layers="common libtrace kernels collectors schema cli viewer examples"

# sources TREE: its C and CUDA sources, relative to it.
sources() {
	(
		cd "$1" || exit 1
		for folder in $layers; do
			[ ! -d "$folder" ] ||
				find "$folder" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'
		done | LC_ALL=C sort
	)
}

# violations TREE: prints what breaks a rule; succeeds when nothing does.
violations() {
	sources "$1" >"$tmp/files"
	[ -s "$tmp/files" ] || fail "no source found in $1"
	result=0
	(
		cd "$1" || exit 1
		# shellcheck disable=SC2046 # the project's paths hold no blanks
		grep -nE '^[[:blank:]]*#[[:blank:]]*include' /dev/null $(cat "$tmp/files")
	) | awk -v files="$tmp/files" -f "$MOETRACE_SRCDIR/tests/build/includes.awk" || result=1
	cuda_types "$1" || result=1
	return $result
}

# cuda_types TREE: CUDA's names in headers, comments aside. Headers for nvcc
# end in .cuh and may use them.
cuda_types() {
	grep '\.h$' "$tmp/files" | (
		result=0
		while read -r file; do
			grep -qE 'cuda[A-Z]|CU[a-z]|dim3|__half|nvml|nccl' "$1/$file" || continue
			sed -e 's://.*::' -e 's:/\*.*\*/::g' -e '/\/\*/,/\*\//d' "$1/$file" |
				grep -nE '(^|[^A-Za-z0-9_])(cuda[A-Z][A-Za-z]*_?t?|CU[a-z]+|dim3|__half2?|nvmlDevice_t|ncclComm_t)([^A-Za-z0-9_]|$)' |
				sed "s|^|$file: a CUDA type in a C header, near line |" | grep . && result=1
		done
		exit $result
	)
}

violations "$MOETRACE_SRCDIR" || fail "the tree breaks the dependency rule"

# A copy of the tree with nothing in its files but what the rule reads: the
# includes, and so no CUDA type that is not planted.
mkdir -p "$tmp/tree"
sources "$MOETRACE_SRCDIR" >"$tmp/files"
sed 's:/[^/]*$::' "$tmp/files" | sort -u | sed "s:^:$tmp/tree/:" | xargs mkdir -p
(cd "$MOETRACE_SRCDIR" && xargs awk -v tree="$tmp/tree" '
	FNR == 1 { close(out); out = tree "/" FILENAME; printf "" >out }
	/^[[:blank:]]*#[[:blank:]]*include/ { print >out }') <"$tmp/files" ||
	fail "cannot copy the tree"

# plant PATH LINE: the check must name PATH once LINE stands in it.
n_planted=0
plant() {
	[ ! -e "$tmp/tree/$1" ] || fail "there is a $1: plant elsewhere"
	mkdir -p "$tmp/tree/${1%/*}"
	echo "$2" >"$tmp/tree/$1"
	! violations "$tmp/tree" >"$tmp/found" || fail "not caught in $1: $2"
	grep -q "^$1:" "$tmp/found" || fail "caught elsewhere than in $1: $(cat "$tmp/found")"
	expect_eq "violations after planting one" "$(wc -l <"$tmp/found")" 1
	rm "$tmp/tree/$1"
	n_planted=$((n_planted + 1))
}

a_common=$(sources "$MOETRACE_SRCDIR" | grep '^common/.*\.h$' | head -n 1)
a_kernel=$(sources "$MOETRACE_SRCDIR" | grep '^kernels/.*\.h$' | head -n 1)

plant common/planted.c "#include \"$a_kernel\""
plant common/planted.c '#include <moetrace/moetrace.h>'
plant common/planted.c '#include <yajl/yajl_parse.h>'
plant kernels/planted.c '#include <sqlite3.h>'
plant kernels/planted.h '#include <cuda_runtime.h>'
plant kernels/planted.h 'int planted(cudaStream_t stream);'
plant kernels/planted.c '#include "common/no_such_header.h"'
plant libtrace/session/planted.c '#include <sqlite3.h>'
plant libtrace/session/planted.c "#include \"$a_kernel\""
plant libtrace/include/moetrace/planted.h "#include \"$a_common\""
plant libtrace/include/moetrace/planted.h '#include <config.h>'
plant schema/functions/planted.c "  #  include \"$a_kernel\""
plant cli/planted.c '#include <sqlite3ext.h>'
plant cli/planted.c '#include <moetrace/../../store/store.h>'
plant cli/planted.c "#include <$a_common>"
plant cli/planted.c '#include "viewer/source.h"'
plant cli/planted.c '#include <openssl/ssl.h>'
plant viewer/planted.c '#include <microhttpd.h>'
plant libtrace/cuda/planted.c '#include <cuda.h>'
plant collectors/nvml/planted.c '#include <cupti.h>'
plant examples/planted.c "#include \"$a_common\""
plant kernels/planted.c '#include PLANTED_HEADER'

echo "$n_planted planted violations were caught"
