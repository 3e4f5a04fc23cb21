# SPDX-License-Identifier: MIT
#
# No verb replaces what it reads, whatever -f says and by whatever name it is called: its own, one through
# a folder, a link, or one of those that SQLite keeps beside a trace.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

mkdir "$tmp/in" "$tmp/elsewhere"
make_sound "$tmp/in/x.db"
cp "$tmp/in/x.db" "$tmp/in/other.db"
sed 1q "$tinymoe/workload.jsonl" >"$tmp/in/w.jsonl"
cp "$tinymoe/tinymoe.safetensors" "$tmp/in/m.safetensors"
ln "$tmp/in/x.db" "$tmp/elsewhere/hard.db"
ln -s "$tmp/in/x.db" "$tmp/elsewhere/soft.db"
ln "$tmp/in/w.jsonl" "$tmp/elsewhere/w.hard"
ln -s "$tmp/in" "$tmp/elsewhere/in"
cp -r "$tmp/in" "$tmp/before"
cd "$tmp/in" || exit 99

# kept COMMAND...: refuses as wrong use, and everything is as it was.
kept() {
	expect_error 2 'is an input here and is never replaced; give another name' "$moetrace" "$@"
	diff -r "$tmp/before" "$tmp/in" >"$tmp/out" || fail "changed by $*"
	expect_eq "links" "$(cd "$tmp/elsewhere" && echo *)" "hard.db in soft.db w.hard"
}

# every COMMAND...: with each name of x.db behind it.
every() {
	for name in x.db ./x.db "$tmp/elsewhere/in/x.db" "$tmp/elsewhere/hard.db" "$tmp/elsewhere/soft.db" \
		x.db-wal "$tmp/elsewhere/in/x.db-shm" x.db-journal; do
		kept "$@" "$name"
	done
}

every view x.db -f --html
every recover x.db -f -o
for picture in heatmap balance oea power; do
	every plot $picture x.db -f -o
done
kept view x.db other.db -f --html other.db
kept view "$tmp/elsewhere/soft.db" -f --html x.db-wal
kept plot heatmap x.db -o x.db
kept recover x.db -o x.db-wal

for name in w.jsonl m.safetensors "$tmp/elsewhere/w.hard" "$tmp/elsewhere/in/w.jsonl" w.jsonl-wal; do
	kept run --model m.safetensors --workload w.jsonl -f -o "$name"
	kept run --model m.safetensors --workload w.jsonl -f -o "$tmp/new.db" --text-output "$name"
done
for name in x.db x.db-wal "$tmp/elsewhere/hard.db"; do
	kept run --model m.safetensors --workload w.jsonl --routing replay:x.db -f -o "$name"
	kept run --model m.safetensors --workload w.jsonl --routing replay:x.db --no-record -f --text-output "$name"
done
# A recording that is replaced takes its journals with it.
cp w.jsonl "$tmp/y.db-wal"
expect_error 2 'y.db-wal is the file .*, which is an input' "$moetrace" run --model m.safetensors \
	--workload "$tmp/y.db-wal" -f -o "$tmp/y.db"
expect_same "$tmp/y.db-wal" w.jsonl
expect_absent "$tmp/new.db" "$tmp/y.db"

# What a session records into is what dump reads.
live_begin "$tmp/live.db"
live_wait '^ *recorded_passes +[1-9]'
ln -s "$tmp/live.db" "$tmp/live-link.db"
for name in live.db live.db-wal live.db-shm; do
	expect_error 2 'is an input here and is never replaced' "$moetrace" dump "$live_pid" -f -o "$tmp/$name"
done
expect_error 2 'is an input here' "$moetrace" dump "$live_pid" -f -o "$tmp/live-link.db"
live_end
expect_ok "$moetrace" check "$tmp/live.db"

# Anything else is replaced as before.
echo old >"$tmp/old.svg"
expect_ok "$moetrace" plot heatmap x.db -f -o "$tmp/old.svg"
expect_eq "picture" "$(head -c 4 "$tmp/old.svg")" '<svg'
