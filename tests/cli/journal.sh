# SPDX-License-Identifier: MIT
#
# Files that were not closed: the journal beside a trace is read, nothing is written to either,
# and a live writer is told from a killed one.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/killed.db"
cd "$tmp" || exit 99
change killed.db "PRAGMA journal_mode = WAL;" ".dbconfig no_ckpt_on_close on" \
	"UPDATE recording SET end_ns = NULL, end_reason = NULL WHERE recording_id = 2;" \
	"UPDATE request SET external_id = 'from the journal' WHERE request_id = 2;" >/dev/null
expect_file killed.db-wal
cp killed.db copy.db
cp killed.db-wal copy.db-wal

expect_ok "$moetrace" query killed.db "select external_id from request where request_id = 2"
expect_out "from the journal"
expect_ok "$moetrace" check killed.db
expect_match out '^recording 2: the end is missing: the writer was killed or could not write$'
expect_match out '^killed.db: sound$'
expect_status 4 "$moetrace" check --strict killed.db
expect_match err '^moetrace check: killed.db: 1 recordings have losses or no proper end'
expect_ok "$moetrace" report killed.db
expect_match out '^recording 2: the end is missing: the writer was killed or could not write$'
expect_ok "$moetrace" report killed.db --format markdown
expect_match out '^recording 2: the end is missing'
expect_same killed.db copy.db
expect_same killed.db-wal copy.db-wal

# A file whose journal was never folded back but is empty: nothing is left beside it.
make_sound quiet.db
change quiet.db "PRAGMA journal_mode = WAL;" >/dev/null
expect_absent quiet.db-wal
expect_ok "$moetrace" check quiet.db
expect_absent quiet.db-wal quiet.db-shm

# Odd names are names: nothing of them is read as a part of an address.
cp copy.db 'a?b%41#c d.db'
cp copy.db-wal 'a?b%41#c d.db-wal'
expect_ok "$moetrace" query 'a?b%41#c d.db' "select external_id from request where request_id = 2"
expect_out "from the journal"

# What SQLite would take for addresses or for no file at all.
for name in 'file:x.db' ':memory:' 'file:a?mode=memory' 'file::memory:?cache=shared' '-x.db' ' '; do
	cp copy.db "./$name"
	cp copy.db-wal "./$name-wal"
	for path in "$name" "./$name" "$PWD/$name" "//$PWD/$name"; do
		expect_ok "$moetrace" query -- "$path" "select external_id from request where request_id = 2"
		expect_out "from the journal"
	done
	expect_ok "$moetrace" check -- "$name"
	rm -f "./$name" "./$name-wal" "./$name-shm"
	expect_error 3 "no such file" "$moetrace" check -- "$name"
done

# In a folder that may not be written the file alone is read, with a warning. Permissions do not
# bind root, who becomes somebody else for it.
mkdir closed
cp copy.db copy.db-wal closed/
chmod 755 . closed
chmod 644 closed/*
as_user=
[ "$(id -u)" -ne 0 ] || as_user="setpriv --reuid=65534 --regid=65534 --clear-groups"
chmod 555 closed
if $as_user "$moetrace" --version >/dev/null 2>&1; then
	# shellcheck disable=SC2086 # a command with its options
	expect_ok $as_user "$moetrace" query closed/copy.db \
		"select external_id from request where request_id = 2"
	expect_out beta
	expect_match err '^moetrace query: warning: closed/copy.db: its journal closed/copy.db-wal'
else
	echo "not tried: a folder without permission to write"
fi
chmod 755 closed

# A live writer: the process of the recording runs, and somebody has the file open.
make_sound live.db
mkfifo commands
sqlite3 -batch live.db <commands >writer.out 2>&1 &
writer=$!
exec 3>commands
boot_id=$(cat /proc/sys/kernel/random/boot_id)
cat >&3 <<END
PRAGMA journal_mode = WAL;
UPDATE process SET pid = $writer, boot_id = '$boot_id';
UPDATE recording SET end_ns = NULL, end_reason = NULL WHERE recording_id = 2;
SELECT 'ready';
END
await "a writer that is ready" "$writer" writer.out grep -q ready writer.out
expect_ok "$moetrace" check live.db
expect_match out '^recording 2: is still being recorded, so it has no end yet'
expect_ok "$moetrace" report live.db
expect_match out '^recording 2: still being recorded; this is its state at the last commit'
expect_status 4 "$moetrace" check --strict live.db
exec 3>&-
wait "$writer"
expect_ok "$moetrace" report live.db
expect_match out '^recording 2: the end is missing: the writer was killed or could not write$'
