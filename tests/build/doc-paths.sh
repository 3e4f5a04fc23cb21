# SPDX-License-Identifier: MIT
#
# What the papers point at is there: files and headings behind relative links of
# every *.md, and the files and folders that ARCHITECTURE.md and CONTRIBUTING.md
# name. Every folder at the top has its line in ARCHITECTURE.md.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

cd "$MOETRACE_SRCDIR" || fail "no $MOETRACE_SRCDIR"
find . \( -name .git -o -name node_modules -o -name 'build*' ! -name build-aux ! -path ./tests/build \) \
	-prune -o -type f -print | sed 's|^\./||' | LC_ALL=C sort >"$tmp/files"
grep '\.md$' "$tmp/files" >"$tmp/papers"
[ -s "$tmp/papers" ] || fail "no *.md found"

# headings FILE: their anchors, one a line.
headings() {
	sed -n 's/^##*  *//p' "$1" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'
}

# dead FILE: its relative links that lead nowhere.
dead() {
	folder=$(dirname "$1")
	grep -oE '\]\([^) ]+\)' "$1" | sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' |
		while read -r link; do
			path=${link%%#*}
			anchor=${link#"$path"}
			file=$1
			[ -z "$path" ] || file=$folder/$path
			if [ ! -e "$file" ]; then
				echo "$1: $link leads to no file"
			elif [ -n "$anchor" ] && ! headings "$file" | grep -qxF -e "${anchor#\#}"; then
				echo "$1: $link leads to no heading"
			fi
		done
}

# unknown FILE: what it names in backquotes as a file or a folder of the tree, and is none. Made
# by the build, or a pattern: passed over.
unknown() {
	tr '\n' ' ' <"$1" | grep -oE '`[^` ]+`' | tr -d '`' | LC_ALL=C sort -u |
		grep -E '^[A-Za-z0-9_./-]+(\.(awk|c|cuh?|h|m4|md|mjs|mk|ptx|sh|sql|tsx?)|/)$' |
		grep -vE '^(version\.h|.*(_sql|kernels_ptx|page_data)\.c|run\.sh|build-check/)$|NAME|NNNN|VERB' |
		while read -r name; do
			case $name in
			*/) grep -qE "(^|/)${name%/}/" "$tmp/files" ;;
			*) grep -qE "(^|/)$name\$" "$tmp/files" ;;
			esac || echo "$1: there is no $name"
		done
}

while read -r paper; do
	dead "$paper"
done <"$tmp/papers" >"$tmp/found"
for paper in ARCHITECTURE.md CONTRIBUTING.md; do
	unknown "$paper"
done >>"$tmp/found"
sed -n 's|^\([a-z][a-z0-9_-]*\)/.*|\1|p' "$tmp/files" | sort -u |
	while read -r folder; do
		grep -qE "^\| .*\`$folder/\`.* \|" ARCHITECTURE.md ||
			echo "ARCHITECTURE.md: folder $folder/ has no line"
	done >>"$tmp/found"
[ ! -s "$tmp/found" ] || fail "$(cat "$tmp/found")"

# It sees what it should.
mkdir "$tmp/planted"
printf '# A heading\n[a](b.md) [c](#a-heading) [d](#none) [e](https://x.y/)\n' >"$tmp/planted/a.md"
expect_eq "dead links of a planted paper" "$(dead "$tmp/planted/a.md" | wc -l)" 2
printf 'See `nowhere.c`, `libtrace/store/`\nand `libtrace/no/`; `check_*.c`.\n' >"$tmp/planted/b.md"
expect_eq "unknown names of a planted paper" "$(unknown "$tmp/planted/b.md" | wc -l)" 2
echo "$(wc -l <"$tmp/papers") papers point at what is there"
