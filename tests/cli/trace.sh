# SPDX-License-Identifier: MIT
#
# Traces for the tests of the command, made by a stock sqlite3. Sourced after
# tests/support/lib.sh.

need_command sqlite3

# make_sound FILE: a small sound trace, see sound.sql.
make_sound() {
	rm -f "$1"
	cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql \
		"$MOETRACE_SRCDIR/tests/cli/sound.sql" "$MOETRACE_SRCDIR/tests/cli/derived.sql" |
		sqlite3 -batch -bail "$1" || fail "cannot make $1"
}

# make_empty FILE: a trace without a recording, as the recorder makes it when it is opened.
make_empty() {
	rm -f "$1"
	cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql |
		sqlite3 -batch -bail "$1" || fail "cannot make $1"
	change "$1" "INSERT INTO meta VALUES ('format', 'moetrace'), ('moetrace_version', '0.1.0');
		INSERT INTO process (process_id, pid) VALUES (1, 1);"
}

# violates PROOF SQL...: $tmp/sound.db broken so exits 1, and PROOF is among what is violated. Where
# $violates_at_most is set, so many times a proof.
violates() {
	proof=$1
	shift
	[ -z "${violates_at_most:-}" ] ||
		[ "$(grep -cx "$proof" "$tmp/violated" 2>/dev/null)" -lt "$violates_at_most" ] || return 0
	cp "$tmp/sound.db" "$tmp/broken.db"
	change "$tmp/broken.db" "$@"
	expect_status 1 "$moetrace" check --format jsonl "$tmp/broken.db"
	grep "\"proof\":\"$proof\"" "$tmp/out" | grep -vq '"n_violations":0,' ||
		fail "$proof is not violated by: $*"
	grep "\"proof\":\"$proof\"" "$tmp/out" | grep -q '"first_violation":"' ||
		fail "$proof does not say what is violated by: $*"
	echo "$proof" >>"$tmp/violated"
}

# holds SQL...: $tmp/sound.db changed so is still sound.
holds() {
	cp "$tmp/sound.db" "$tmp/other.db"
	change "$tmp/other.db" "$@"
	expect_ok "$moetrace" check "$tmp/other.db"
}

# change FILE SQL...: changes a trace behind the recorder's back.
change() {
	file=$1
	shift
	printf '%s\n' "$@" | sqlite3 -batch -bail "$file" || fail "cannot change $file: $*"
}

# derive FILE: computes again what follows from the ids.
derive() {
	sqlite3 -batch -bail "$1" <"$MOETRACE_SRCDIR/tests/cli/derived.sql" ||
		fail "cannot derive in $1"
}

# expect_json FILE: FILE is one JSON document.
expect_json() {
	expect_eq "json_valid of ${1##*/}" "$(sqlite3 -batch :memory: \
		"SELECT json_valid(readfile('$1'))")" 1
}

# expect_jsonl FILE: every line of FILE is a JSON document.
expect_jsonl() {
	expect_file "$1"
	while IFS= read -r line; do
		printf '%s' "$line" >"$tmp/line"
		expect_json "$tmp/line"
	done <"$1"
}

# json FILE PATH: the value at PATH of a JSON document.
json() {
	sqlite3 -batch :memory: "SELECT json_extract(readfile('$1'), '$2')"
}
