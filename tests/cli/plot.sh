# SPDX-License-Identifier: MIT
#
# Pictures: their figures are those of SQL and of the verbs, their colours those of the page, names of
# a trace are text, and a file is whole or not there.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
make_empty "$tmp/empty.db"
mkdir "$tmp/out.d"
cd "$tmp/out.d" || exit 99

# plot NAME ARGUMENT...: NAME.svg, well-formed and with nothing in it that runs or is fetched.
plot() {
	name=$1
	shift
	expect_ok "$moetrace" plot "$@" -f -o "$name.svg"
	expect_out ''
	expect_err ''
	! command -v xmllint >/dev/null || xmllint --noout --nonet "$name.svg" || fail "$name.svg is no XML"
	expect_eq "first of $name.svg" "$(head -c 5 "$name.svg")" '<svg '
	expect_eq "last of $name.svg" "$(tail -n 1 "$name.svg")" '</svg>'
	expect_no_match "$name.svg" '<script|<foreignObject|href=|@import|url\([^#]| on[a-z]*='
}

# cells NAME: what its cells tell, as layer|expert|tokens.
cells() {
	sed -n 's/.*<title>layer \([0-9]*\), expert \([0-9]*\): \([0-9]*\) tokens.*/\1|\2|\3/p' "$1.svg" |
		sort -t '|' -k 1,1n -k 2,2n
}

# expect_cells NAME SQL: they are the rows of SQL: layer, expert, tokens.
expect_cells() {
	cells "$1" >"$tmp/got"
	sql "$tmp/sound.db" "$2 ORDER BY 1, 2" >"$tmp/want"
	expect_file "$tmp/want"
	expect_same "$tmp/got" "$tmp/want"
}

load='FROM expert_load WHERE recording_id = 1 AND model_id = 1'
plot all heatmap "$tmp/sound.db"
expect_cells all "SELECT layer, expert, tokens $load"
plot decode heatmap --phase decode "$tmp/sound.db"
expect_cells decode "SELECT layer, expert, decode_tokens $load"
plot padding heatmap --phase padding "$tmp/sound.db"
expect_cells padding "SELECT layer, expert, padding_tokens $load"
plot second heatmap --recording 2 --layers 0 "$tmp/sound.db"
expect_cells second "SELECT layer, expert, tokens FROM expert_load WHERE recording_id = 2 AND layer = 0"
plot draft heatmap --model 2 "$tmp/sound.db"
expect_cells draft "SELECT layer, expert, tokens FROM expert_load WHERE recording_id = 1 AND model_id = 2"
plot window heatmap --window 1 --scale fixed "$tmp/sound.db"
expect_cells window "SELECT layer, expert, (SELECT coalesce(sum(prefill_tokens + decode_tokens + verify_tokens +
	other_tokens), 0) FROM expert_load_window AS w WHERE w.layer_id = e.layer_id AND w.expert = e.expert
	AND w.start_ns = (SELECT min(start_ns) FROM expert_load_window WHERE recording_id = 1))
	FROM expert_load AS e WHERE recording_id = 1 AND model_id = 1"

# Of one request and of those with an attribute, by the plain view.
rows='SELECT l.layer, e.value, (SELECT count(*) FROM routed_expert AS r WHERE r.model_id = 1 AND r.layer = l.layer
	AND r.expert = e.value AND r.recording_id = 1 AND r.request_id'
slots='FROM layer AS l JOIN byte AS e ON e.value < l.n_experts WHERE l.layer_id = 1'
request=$(sql "$tmp/sound.db" "SELECT request_id FROM request WHERE external_id = 'alpha'")
plot request heatmap --layers 0 --request alpha --value weight "$tmp/sound.db"
expect_cells request "$rows = $request) $slots"
sed -n 's/.*expert \([0-9]*\): .*, mean weight \([0-9.e-]*\)<.*/\1|\2/p' request.svg >"$tmp/got"
sql "$tmp/sound.db" "SELECT expert, printf('%.6g', avg(weight)) FROM routed_expert WHERE recording_id = 1 AND
	model_id = 1 AND layer = 0 AND request_id = $request GROUP BY expert ORDER BY expert" >"$tmp/want"
expect_file "$tmp/want"
expect_same "$tmp/got" "$tmp/want"
plot span heatmap --layers 0 --request alpha --window 1 "$tmp/sound.db"
expect_cells span "$rows = $request AND r.pass_id IN (SELECT pass_id FROM pass WHERE begin_ns >= (SELECT min(start_ns)
	FROM expert_load_window WHERE recording_id = 1) AND begin_ns < (SELECT start_ns + length_ns FROM expert_load_window
	WHERE recording_id = 1 ORDER BY start_ns LIMIT 1))) $slots"
change "$tmp/sound.db" "DELETE FROM request_attribute;
	INSERT INTO request_attribute VALUES (1, 'domain', 'a=b<c>'), (2, 'domain', NULL)"
plot attribute heatmap --layers 0 --attribute 'domain=a=b<c>' "$tmp/sound.db"
expect_cells attribute "$rows = 1) $slots"
plot bare heatmap --layers 0 --attribute domain "$tmp/sound.db"
expect_cells bare "$rows = 2) $slots"

# Colours: the page's points, and its formulas written once more.
points() {
	sed -n "/^const $1: Rgb/,/^];/p" "$MOETRACE_SRCDIR/viewer/page/src/color.ts" | grep -o '\[[0-9][0-9, ]*\]' | tr -d '[] ' |
		tr ',' ' '
}
# expect_colors NAME POINTS INDEX: INDEX is awk's expression of n (tokens), s (the layer's), m (the most).
expect_colors() {
	sed -n 's/.*fill="#\([0-9a-f]*\)"><title>layer 0, expert [0-9]*: \([0-9]*\) tokens.*/\2 \1/p' "$1.svg" >"$tmp/fills"
	expect_file "$tmp/fills"
	points "$2" >"$tmp/points"
	awk "BEGIN { k = 0; while ((getline p < \"$tmp/points\") > 0) { split(p, c, \" \"); for (j = 1; j <= 3; j++) v[k, j] = c[j]; k++ }
		while ((getline p < \"$tmp/fills\") > 0) { split(p, c, \" \"); s += c[1]; if (c[1] > m) m = c[1] } }
		{ n = \$1; at = int(($3) + 0.5) / 255 * (k - 1); f = int(at); if (f > k - 2) f = k - 2; printf \"%s \", n
		for (j = 1; j <= 3; j++) printf \"%02x\", int(v[f, j] + (v[f + 1, j] - v[f, j]) * (at - f) + 0.5); print \"\" }" \
		"$tmp/fills" >"$tmp/want"
	expect_same "$tmp/fills" "$tmp/want"
}
plot linear heatmap --layers 0 "$tmp/sound.db"
expect_colors linear cividis '255 * n / m'
plot log heatmap --layers 0 --log --scale 100 "$tmp/sound.db"
least=$(sql "$tmp/sound.db" "SELECT min(tokens) $load AND layer = 0 AND tokens > 0")
expect_colors log cividis "n ? 254 * log(n / $least) / log(100 / $least) + 1 : 0"
plot times heatmap --layers 0 --value times --scale 4 "$tmp/sound.db"
expect_colors times difference '127.5 * (1 + (n ? log(n * 4 / s) / log(4) : -1))'

# Order: of a layer the busiest first; by rank those of the first rank before the others.
plot load heatmap --layers 0 --sort load "$tmp/sound.db"
sed -n 's/.*<title>layer 0, expert \([0-9]*\):.*/\1/p' load.svg >"$tmp/got"
sql "$tmp/sound.db" "SELECT expert $load AND layer = 0 ORDER BY tokens DESC, expert" >"$tmp/want"
expect_same "$tmp/got" "$tmp/want"
plot rank heatmap --layers 0 --sort rank --ranks 2 "$tmp/sound.db"
sed -n 's/.*<title>layer 0, expert \([0-9]*\):.*, rank \([0-9]*\)<.*/\1|\2/p' rank.svg >"$tmp/got"
sql "$tmp/sound.db" "SELECT expert, expert / 2 $load AND layer = 0 ORDER BY expert / 2, tokens DESC, expert" >"$tmp/want"
expect_same "$tmp/got" "$tmp/want"

# What stands out is marked, what is left out is said.
expect_match all.svg '<circle .*stroke="#000"'
expect_match all.svg '> !</text>|[0-9] !</text>'
expect_no_match all.svg 'padding rows'
change "$tmp/sound.db" "UPDATE stats SET value = 7 WHERE recording_id = 1 AND name = 'dropped_passes';
	UPDATE expert_load_window SET padding_tokens = 4 WHERE recording_id = 1 AND layer_id = 1 AND expert = 1"
plot lossy heatmap "$tmp/sound.db"
expect_match lossy.svg '7 passes and [0-9]* layers of others were lost'
n=$(sql "$tmp/sound.db" "SELECT sum(padding_tokens) $load")
[ "$n" -gt 0 ] || fail "no padding"
expect_match lossy.svg "Selections by padding rows, $n, are not counted"

# Figures of the other pictures are those of their verbs.
plot balance balance "$tmp/sound.db"
sed -n 's/.*<title>layer \([0-9]*\): max_over_mean \([^,]*\), balancedness \([^,]*\), hottest_expert \([0-9]*\), tokens \([0-9]*\), dead_experts \([0-9]*\).*/\1|\2|\3|\4|\5|\6/p' \
	balance.svg >"$tmp/got"
expect_ok "$moetrace" balance "$tmp/sound.db" --recording 1 --format csv
tr -d '\r' <"$tmp/out" | awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next } $c["model_id"] == 1 {
	printf "%d|%.6g|%.6g|%d|%d|%d\n", $c["layer"], $c["max_over_mean"], $c["balancedness"], $c["hottest_expert"],
		$c["tokens"], $c["dead_experts"] }' >"$tmp/want"
expect_file "$tmp/want"
expect_same "$tmp/got" "$tmp/want"
grep -o '<title>layer [0-9]*: max_over_mean [^,]*, balancedness [^,]*' all.svg >"$tmp/got"
grep -o '<title>layer [0-9]*: max_over_mean [^,]*, balancedness [^,]*' balance.svg >"$tmp/want"
expect_same "$tmp/got" "$tmp/want"

plot oea oea --rule oea:kmax=2 "$tmp/sound.db"
sed -n 's/.*<title>.*, phase \([a-z]*\), .*k0 \([0-9]*\), batches \([0-9]*\), .*active_before \([0-9.]*\), active_after \([0-9.]*\),.*/\1|\2|\3|\4|\5/p' \
	oea.svg | sed 's/\.0*|/|/g; s/\.0*$//' >"$tmp/got"
expect_ok "$moetrace" oea "$tmp/sound.db" --rule oea:kmax=2 --recording 1 --format csv
awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next } $c["model_id"] == 1 && $c["phase"] == "decode" {
	print $c["phase"] "|" $c["k0"] "|" $c["batches"] "|" $c["active_before"] "|" $c["active_after"] }' "$tmp/out" >"$tmp/want"
expect_file "$tmp/want"
expect_same "$tmp/got" "$tmp/want"

plot power power "$tmp/sound.db"
sed -n 's/.*<title>cuda [0-9]*, gpu: time_ns \([0-9]*\), \([0-9.]*\) W, limit_w \([0-9.]*\)<.*/\1,\2,\3/p' power.svg >"$tmp/got"
expect_ok "$moetrace" power --readings "$tmp/sound.db" --recording 1 --format csv
awk -F , '$2 == "cuda" { print $6 "," $7 "," $10 }' "$tmp/out" >"$tmp/want"
expect_file "$tmp/want"
expect_same "$tmp/got" "$tmp/want"

# Light, dark, or as who looks at it prefers.
expect_match all.svg '\.page\{fill:#ffffff\}.*prefers-color-scheme: dark\)\{\.page\{fill:#14171c\}'
plot light heatmap --theme light "$tmp/sound.db"
plot dark heatmap --theme dark "$tmp/sound.db"
expect_no_match light.svg 'prefers-color-scheme|#14171c'
expect_no_match dark.svg 'prefers-color-scheme|page\{fill:#ffffff'

# Names are text, and bytes that XML cannot hold are replaced.
change "$tmp/sound.db" "UPDATE model SET name = '</desc><script>alert(1)</script>' || char(1, 65535, 27) || '&amp;'"
cp "$tmp/sound.db" "$tmp/a<b>&\"'.db"
for picture in heatmap balance power oea; do
	plot hostile "$picture" "$tmp/a<b>&\"'.db" --title "$(printf '<img> & \001 \377 "end"')"
	expect_match hostile.svg '&#60;img&#62; &#38; '
	expect_match hostile.svg 'model &#60;/desc&#62;&#60;script&#62;'
	! LC_ALL=C grep -q "$(printf '[\001\033\377]')" hostile.svg || fail "bytes that are not XML's"
done

# The file is whole or not there; what is wrong is said.
rm -f -- *.svg
expect_ok "$moetrace" plot heatmap -o - "$tmp/sound.db"
cp "$tmp/out" "$tmp/stdout.svg"
expect_ok "$moetrace" plot heatmap -o new.svg "$tmp/sound.db"
expect_same new.svg "$tmp/stdout.svg"
expect_error 1 'new.svg exists already' "$moetrace" plot heatmap -o new.svg "$tmp/sound.db"
expect_error 1 'no/new.svg cannot be written: No such file' "$moetrace" plot heatmap -o no/new.svg "$tmp/sound.db"
expect_error 1 'is not a regular file' "$moetrace" plot heatmap -f -o /dev/null "$tmp/sound.db"
status=0
(
	trap '' XFSZ
	ulimit -f 8
	exec "$moetrace" plot heatmap -f -o new.svg "$tmp/sound.db" 2>"$tmp/err"
) || status=$?
expect_eq "exit status without room" "$status" 1
expect_match "$tmp/err" 'new.svg cannot be written: File too large; nothing of it is left'
expect_same new.svg "$tmp/stdout.svg"
expect_error 3 'has no recording' "$moetrace" plot heatmap -o x.svg "$tmp/empty.db"
expect_error 3 'no such file' "$moetrace" plot heatmap -o x.svg nothing.db
expect_error 3 "no request with attribute 'domain=zzz'" "$moetrace" plot heatmap -o x.svg --attribute domain=zzz "$tmp/sound.db"
expect_error 3 "no request with attribute 'x' without a value; give KEY=VALUE" "$moetrace" plot heatmap -o x.svg --attribute x "$tmp/sound.db"
expect_error 3 "no request 'nobody'" "$moetrace" plot heatmap -o x.svg --request nobody "$tmp/sound.db"
expect_error 3 'no window 99' "$moetrace" plot heatmap -o x.svg --window 1-99 "$tmp/sound.db"
expect_error 3 'no model 9' "$moetrace" plot heatmap -o x.svg --model 9 "$tmp/sound.db"
expect_error 3 'recording 9' "$moetrace" plot heatmap -o x.svg --recording 9 "$tmp/sound.db"
expect_error 3 'no such layer' "$moetrace" plot heatmap -o x.svg --layers 7-9 "$tmp/sound.db"
expect_error 3 'no readings of power' "$moetrace" plot power -o x.svg --recording 2 "$tmp/sound.db"
expect_error 3 'no batch' "$moetrace" plot oea -o x.svg --phase prefill "$tmp/sound.db"
expect_error 1 'moe_oea: rule' "$moetrace" plot oea -o x.svg --rule nonsense "$tmp/sound.db"
expect_error 2 "did you mean 'heatmap'" "$moetrace" plot heatmaps -o x.svg "$tmp/sound.db"
expect_error 2 'which PICTURE|which FILE' "$moetrace" plot
expect_error 2 '-o FILE is missing' "$moetrace" plot heatmap "$tmp/sound.db"
for wrong in '--value speed' '--sort name' '--theme blue' '--phase all-of-it' '--window 0' '--window 3-2' '--layers x' \
	'--scale 0' '--scale nan' '--scale fixed' '--ranks 0' '--request a --attribute b' '--request a --window 1 --scale fixed' \
	'--value weight --phase padding'; do
	# shellcheck disable=SC2086 # an option and its value
	expect_error 2 'list' "$moetrace" plot heatmap -o x.svg $wrong "$tmp/sound.db"
done
expect_eq "files" "$(ls -A)" new.svg
