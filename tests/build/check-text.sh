# SPDX-License-Identifier: MIT
#
# What no text of the tree may hold: a missing licence line, a path or a host of
# the place where somebody works, an unfinished spot. The patterns are written
# so that they do not match themselves.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

# tree_files TREE: its sources, relative to it. Without git these are all files but
# those of build folders and those that autoreconf and configure make.
tree_files() {
	(
		cd "$1" || exit 1
		if [ -e .git ] && git -c safe.directory='*' ls-files -co --exclude-standard 2>/dev/null; then
			exit
		fi
		find . -name config.status | sed 's|/config.status$||' | grep -v '^\.$' >"$tmp/builds"
		find . \( -name .git -o -name autom4te.cache -o -name .deps -o -name .libs \) -prune -o -type f -print |
			awk -v builds="$tmp/builds" '
				BEGIN { while ((getline line < builds) > 0) build[++n] = line "/" }
				{
					for (i = 1; i <= n; i++)
						if (index($0, build[i]) == 1)
							next
					print substr($0, 3)
				}' |
			grep -vE '^(configure~?|aclocal\.m4|config\.(h\.in|log|status|h)~?|Makefile(\.in)?|libtool|stamp-h1)$' |
			grep -vE '^m4/(libtool|lt[a-z~]*)\.m4$' |
			grep -vE '^build-aux/(ar-lib|compile|config\.(guess|sub)|depcomp|install-sh|ltmain\.sh|missing|test-driver)$' |
			grep -vE '\.(o|lo|la|a|so|log|trs)$|(^|/)\.dirstamp$'
	) | while read -r file; do
		[ ! -f "$1/$file" ] || echo "$file"
	done | LC_ALL=C sort
}

# violations TREE: prints them; succeeds when there is none.
violations() {
	tree_files "$1" >"$tmp/files"
	[ -s "$tmp/files" ] || fail "no file found in $1"
	(
		cd "$1" || exit 1
		result=0

		# Text only: -I passes over the model and the golden data.
		if xargs grep -nIE '/wor[k]/|/(root|home)/[a-z]' <"$tmp/files"; then
			echo "^ a path of somebody's machine"
			result=1
		fi
		if xargs grep -nIiE 'py[p]i\.org|pythonhost[e]d\.org|npm[j]s\.(org|com)|crat[e]s\.io|(deb|security|snapshot)\.debi[a]n\.org|(archive|ports|security)\.ubunt[u]\.com|proxy\.gol[a]ng\.org|anacond[a]\.(org|com)|node[s]ource\.com' <"$tmp/files"; then
			echo "^ a host of a package registry"
			result=1
		fi
		if xargs grep -nIE '(^|[^A-Za-z_])(TO[D]O|FIX[M]E|X[X]X|HA[C]K)([^A-Za-z_X]|$)' <"$tmp/files"; then
			echo "^ an unfinished spot"
			result=1
		fi
		if xargs grep -nI "$(printf '[^[:blank:]][[:blank:]]$')" /dev/null <"$tmp/sources"; then
			echo "^ blanks at the end of a line"
			result=1
		fi
		exit $result
	) || return 1
}

# unlicensed TREE: the sources whose first three lines name no licence.
unlicensed() {
	(
		cd "$1" || exit 1
		result=0
		while read -r file; do
			head -n 3 "$file" | grep -q 'SPDX-License-Identifier: MIT' || {
				echo "$file: no SPDX line"
				result=1
			}
		done <"$tmp/sources"
		exit $result
	)
}

check_tree() {
	tree_files "$1" | grep -E '(\.([chl]|cc|cu|cuh|sh|awk|m4|ac|am|mk|sql|py|pl|map|ts|tsx|js|css|in)|^bootstrap|^\.ci/run|^\.clang-format)$' |
		grep -vE '^(viewer/dist/|examples/tinymoe/text/|tests/.*/data/|tests/data/|tests/fuzz/corpus/)' >"$tmp/sources"
	violations "$1" && unlicensed "$1"
}

check_tree "$MOETRACE_SRCDIR" || fail "see the lines above"

# The check proves itself on a small tree with one fault in each file.
plant() {
	rm -rf "$tmp/tree"
	mkdir -p "$tmp/tree/common"
	printf '/* SPDX-License-Identifier: MIT */\nint ok;\n' >"$tmp/tree/common/sound.c"
	check_tree "$tmp/tree" >"$tmp/found" || fail "a sound tree was not passed: $(cat "$tmp/found")"
	printf '%s\n' "$2" >"$tmp/tree/$1"
	! check_tree "$tmp/tree" >"$tmp/found" || fail "not caught: $2"
}
mit='/* SPDX-License-Identifier: MIT */'
plant common/planted.c 'int no_licence;'
plant common/planted.c "$mit$(printf '\n/* see /%s/main */' work)"
plant README.md "$(printf 'fetch it from https://%s.org/simple' pypi)"
plant common/planted.c "$mit$(printf '\n/* %sDO: later */' TO)"
plant common/planted.c "$mit$(printf '\nint blank; \nint more;')"
