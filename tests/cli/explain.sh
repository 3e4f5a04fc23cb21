# SPDX-License-Identifier: MIT
#
# Every number that report, experts, balance, oea, efficiency, kernels, power and diff print is also what a
# stock sqlite3 gets by the query that --explain prints: all rows and columns of every section, with the
# extension loaded; those of load and balance without it, too, where no rows have to be decoded.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
need_command sqlite3
need_stock

module=$MOETRACE_BUILDDIR/schema/functions/.libs/moetrace_sql
cd "$tmp" || exit 99
expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_hard" hard.db
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_trace" domains domains.db
# Candidates as in tests/schema/oea.sh, what a fit needs, and a power counter.
change domains.db "UPDATE layer SET n_experts = 64, has_correction_bias = 0, weight_kind = 'raw', expert_weight_bytes = 1000,
		gemm_block_rows = 4 WHERE layer_id = 1;
	UPDATE model SET quantization = 'bf16';
	UPDATE topk SET n_candidates = 2, candidate_ids = CAST(replace(hex(zeroblob(n_rows)), '00', '<0') AS BLOB), score_format = 'fp16',
		candidate_scores = CAST(replace(hex(zeroblob(n_rows)), '00', 'A-A(') AS BLOB);
	INSERT INTO device (device_id, process_id, kind, name, power_limit_mw) VALUES (7, 1, 'cuda', 'card', 600000);
	INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, average_mw, energy_mj, limit_mw)
		SELECT 1, 7, 'module', 'poll', value * 100000000, 200000 + value, 200000, value * 20000, 600000 FROM byte WHERE value < 60"

# Sections of a verb, flattened, against those of its queries; a number may differ in its last digits.
cat >compare.sql <<'SQL'
CREATE TABLE said (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE got (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO said SELECT replace(fullkey, '"', ''), atom FROM json_tree(readfile('said.json')) WHERE fullkey NOT LIKE '$.queries%'
	AND type NOT IN ('array', 'object');
INSERT INTO got SELECT '$.' || s.section || replace(substr(t.fullkey, 2), '"', ''), t.atom FROM section AS s,
	json_tree(coalesce(nullif(CAST(readfile(s.file) AS TEXT), ''), '[]')) AS t WHERE t.type NOT IN ('array', 'object');
SELECT printf('%s: %s, by the query %s', key, said.value, got.value) FROM said LEFT JOIN got USING (key) WHERE got.key IS NULL
	OR said.value IS NOT got.value AND NOT coalesce(typeof(said.value) IN ('real', 'integer')
		AND typeof(got.value) IN ('real', 'integer') AND abs(said.value - got.value) <= 1e-12 * abs(got.value), 0)
UNION ALL SELECT key || ' is not said' FROM got WHERE key NOT IN (SELECT key FROM said) LIMIT 5;
SELECT count(*) || ' numbers' FROM got WHERE typeof(value) IN ('real', 'integer');
SQL

# same LOADS VERB FILE OPTION...: LOADS is 1 where the extension is needed; it is for the preferences
# of a report, which are left out without it.
same() {
	loads=$1
	shift
	expect_ok "$moetrace" "$@" --format json --explain
	sqlite3 -batch -bail :memory: "SELECT iif($loads, said, json_remove(said, '\$.preferences',
		(SELECT '\$.queries[' || key || ']' FROM json_each(said, '\$.queries')
		WHERE json_extract(value, '\$.section') = 'preferences' UNION ALL SELECT '\$.none')))
		FROM (SELECT CAST(readfile('out') AS TEXT) AS said)" >said.json || fail "no JSON: $*"
	sqlite3 -batch :memory: "SELECT 'CREATE TABLE section (section TEXT, file TEXT);';
		SELECT printf('INSERT INTO section VALUES (%Q, %Q);', json_extract(value, '\$.section'), key || '.json')
			FROM json_each(readfile('said.json'), '\$.queries')" >sections.sql
	{
		echo .bail on
		[ "$loads" = 0 ] || echo ".load $module sqlite3_moetracesql_init"
		[ "$1" != diff ] || echo "ATTACH '$3' AS b;"
		echo .mode json
		sqlite3 -batch :memory: "SELECT '.once ' || key || '.json' || char(10) || json_extract(value, '\$.sql') || ';'
			FROM json_each(readfile('said.json'), '\$.queries')"
	} >queries.sql
	rm -f ./[0-9]*.json
	for i in 0 1 2 3 4 5 6 7 8 9; do : >$i.json; done
	stock sqlite3 -batch -readonly "$2" <queries.sql >"$tmp/out" 2>"$tmp/err" || fail "the queries of: $*"
	cat sections.sql compare.sql >all.sql
	sqlite3 -batch -bail :memory: <all.sql >result 2>&1 || fail "comparison of $*: $(cat result)"
	[ "$(wc -l <result)" -eq 1 ] || fail "$*: $(cat result)"
	n_numbers=$((n_numbers + $(sed 's/ .*//' result)))
	n_verbs=$((n_verbs + 1))
}

n_numbers=0
n_verbs=0
while read -r loads line; do
	for file in hard domains; do
		case $file:$line in
		hard:*' --request'* | hard:*' --map'*) [ "${line#*HARD}" != "$line" ] || continue ;;
		domains:*HARD*) continue ;;
		domains:*) ! is_sanitized || continue ;;
		esac
		# shellcheck disable=SC2046,SC2086
		same "$loads" $(echo "$line" | sed "s/HARD//; s/FILE/$file.db/")
	done
done <<'END'
1 report FILE
1 report HARD FILE --recording 1
0 experts FILE --recording 1
1 experts FILE
1 experts FILE --phase decode --layer 1 --top 5
0 experts FILE --coverage
0 experts FILE --coverage --phase prefill
0 experts FILE --by-window --top 3
1 experts FILE --pairs
1 experts FILE --steps
1 experts FILE --by-request --top 2
1 experts FILE --by-attribute domain --top 9
1 experts HARD FILE --by-attribute domain --min-tokens 1
1 experts HARD FILE --by-attribute domain --phase decode --recording 1 --min-tokens 1
1 experts FILE --from 0 --until 1
1 experts HARD FILE --request gamma
1 experts HARD FILE --attribute domain=c --phase decode
0 balance FILE
0 balance FILE --model 1
1 balance FILE --ranks 1,2
1 balance FILE --ranks 2 --by-pass
1 balance FILE --ranks 2 --phase decode --shared waterfill
1 balance FILE --ranks 4 --replicas 64 --model 1
1 balance HARD FILE --map recorded
1 oea FILE
1 oea FILE --layers --batch-buckets
1 oea FILE --k0 1,2 --a 30 --b 3 --c 1
1 oea FILE --k0 1,2 --bandwidth 100 --layers
1 oea FILE --k0 2 --ranks 2
1 oea FILE --rule pruned
1 oea FILE --rule budget:9
1 oea FILE --rule expand:margin=0.1
1 efficiency FILE
1 efficiency HARD FILE --peak-gbps 3 --peak-tflops 0.01
1 requests FILE --outliers
1 requests FILE --attempts
1 requests FILE @1 --similar @2
0 kernels FILE
0 power FILE
0 power FILE --readings
END
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_pairs" a.db 0
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_pairs" b.db 1
same 1 diff a.db b.db --top 100
# A build with sanitizers takes ten times as long and sees what it can in the smaller file.
is_sanitized || [ "$n_verbs" -ge 60 ] || fail "only $n_verbs command lines were compared"
is_sanitized || [ "$n_numbers" -ge 5000 ] || fail "only $n_numbers numbers were compared"
[ "$n_numbers" -ge 1000 ] || fail "only $n_numbers numbers were compared"
echo "$n_numbers numbers of $n_verbs command lines"

# ---- load and balance by the cookbook's queries in plain SQL: each row is one that the verb prints ----
# plain TITLE NUMBER N_ROWS VERB OPTION...: the NUMBERth query below the title.
plain() {
	awk -v title="## $1" -v number="$2" '$0 == title { on = 1; next } /^## / { on = 0 }
		on && /^```sql$/ { n++; copies = n == number; next } /^```$/ { copies = 0 } copies { print }' \
		"$MOETRACE_SRCDIR/docs/cookbook.md" >plain.sql
	n_rows=$3
	shift 3
	expect_ok sqlite3 -batch -readonly -json domains.db ".read plain.sql"
	cp out plain.json
	expect_ok "$moetrace" "$@" --format json
	cp out said.json
	expect_eq "rows by plain SQL that $* has" "$(sqlite3 -batch :memory: "
		SELECT count(*) || ' of ' || (SELECT count(*) FROM json_each(readfile('plain.json'))) FROM json_each(readfile('plain.json')) AS p
		WHERE EXISTS (SELECT 1 FROM json_each(readfile('said.json')) AS s WHERE NOT EXISTS (SELECT 1 FROM json_each(p.value) AS a
			JOIN json_each(s.value) AS b ON b.key = a.key WHERE a.value IS NOT b.value AND NOT coalesce(abs(a.value - b.value) < 1e-6, 0)))
		AND (SELECT count(*) FROM json_each(p.value) AS a JOIN json_each((SELECT value FROM json_each(readfile('said.json')) LIMIT 1)) AS b
			ON b.key = a.key) >= 3")" "$n_rows of $n_rows"
}
plain 'The balance of four ranks, in plain SQL' 1 3 balance domains.db --ranks 4 --model 1
plain 'The load of a time, in plain SQL' 1 9 experts domains.db --from 0 --until 60000 --top 3
plain 'Pairs of experts and consecutive tokens, in plain SQL' 1 3 experts domains.db --pairs --top 3
plain 'Pairs of experts and consecutive tokens, in plain SQL' 2 2 experts domains.db --steps
