# SPDX-License-Identifier: MIT
#
# --redact: a secret lies in every text column of every table but those named here, which hold words
# of the recorder alone; neither the single file nor any answer of the server has one of them. A
# column that a schema adds is planted, too, and a question that is added is asked.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"

# Not planted: keys, enumerations, versions; names of devices, models' forms, code and rules.
harmless="'meta.key', 'device.kind', 'device.name', 'model.kind', 'model.architecture',
	'model.quantization', 'layer.kind', 'layer.scoring', 'layer.scaling_owner', 'layer.weight_kind',
	'layer.router_impl', 'layer.runner_backend', 'layer.router_output', 'recording.mode',
	'recording.sampling', 'request.end_state', 'request.verdict', 'request.reasons', 'pass.phase',
	'pass.verdict', 'pass.reasons', 'pass_request.phase', 'rule.name', 'topk.weight_format',
	'topk.score_format', 'stats.name', 'gap.stream', 'gap.reason', 'diagnostic.severity',
	'diagnostic.source', 'string.role', 'collector.name', 'collector.state', 'collector.mode',
	'collector.version', 'collector_overhead.kind', 'power_sample.domain', 'power_sample.source',
	'device_clock.clock', 'collective.kind'"

# Planted by hand: some of their values are harmless, and shown.
mixed="'meta.value', 'model.name', 'string.value', 'recording.end_reason', 'recording.routing_source'"

make_sound "$tmp/sound.db"
change "$tmp/sound.db" "
	INSERT OR REPLACE INTO meta VALUES ('engine_name', 'known engine'), ('session_name', 'secret.session'),
		('opt.socket_dir', '/run/secret.dir'), ('newer_fact', 'secret.fact');
	UPDATE model SET name = '/srv/secret.user/model' WHERE model_id = 1;
	UPDATE recording SET end_reason = 'secret.reason', routing_source = 'replay:/srv/secret.file'
		WHERE recording_id = 1;
	UPDATE recording SET routing_source = 'secret.source' WHERE recording_id > 1;
	INSERT INTO string (string_id, value, role, moves_data) VALUES (901, 'known_kernel', 'experts', 0),
		(902, 'secret.range', NULL, NULL);
	INSERT INTO range (recording_id, name_id, thread, start_ns, end_ns) VALUES (1, 902, 1, 10, 20);
	INSERT INTO kernel (recording_id, device_id, name_id, start_ns, end_ns, pass_id, known_by, flags)
		SELECT 1, min(device_id), 901, 12, 15, 1, 0, 0 FROM device;
	DELETE FROM request_attribute;
	INSERT INTO request_attribute SELECT request_id, 'k', 'v' FROM request;
	INSERT OR REPLACE INTO request_token SELECT request_id, 0, 424242 FROM request"

columns_sql="SELECT m.name AS t, c.name AS c, c.type AS y FROM sqlite_schema AS m,
	pragma_table_xinfo(m.name) AS c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'"
# A row where a table has none, so that nothing stays untried.
sql "$tmp/sound.db" "SELECT printf('INSERT INTO %s (%s) SELECT %s WHERE NOT EXISTS (SELECT 1 FROM %s);', t,
	group_concat(c), group_concat(CASE WHEN y LIKE '%INT%' THEN '1' WHEN y = 'REAL' THEN '1.0'
	WHEN y = 'TEXT' THEN '''x''' ELSE 'x''00''' END), t) FROM ($columns_sql) GROUP BY t" >"$tmp/plant.sql"
sql "$tmp/sound.db" "SELECT printf('UPDATE %s SET %s = ''secret.%s.%s'';', t, c, t, c) FROM ($columns_sql)
	WHERE y NOT IN ('INTEGER', 'REAL', 'BLOB') AND t || '.' || c NOT IN ($harmless, $mixed)" >>"$tmp/plant.sql"
[ "$(grep -c UPDATE "$tmp/plant.sql")" -ge 9 ] || fail "hardly a column is planted"
change "$tmp/sound.db" "$(cat "$tmp/plant.sql")"

secret='secret|424242'
expect_ok "$moetrace" view --html "$tmp/plain.html" "$tmp/sound.db"
for text in secret.request.external_id secret.request_attribute.key secret.process.host secret.session \
	secret.diagnostic.message secret.layer.impl_reason secret.reason secret.user 424242; do
	grep -q "$text" "$tmp/plain.html" || fail "$text is not planted where the page shows it"
done
expect_ok "$moetrace" view --redact --html "$tmp/page.html" "$tmp/sound.db"
! grep -Eo ".{60}($secret).{20}" "$tmp/page.html" || fail "the single file tells what is redacted"
for text in '"known engine"' '"redacted"' '"replay"' '"model 1"'; do
	grep -q "$text" "$tmp/page.html" || fail "the single file lacks $text"
done

need_server

# questions_ask FOLDER: asks every question, and keeps the answers.
questions_ask() {
	mkdir "$1"
	for file in "$MOETRACE_SRCDIR"/schema/questions/*.sql timeline; do
		name=$(basename "$file" .sql)
		parameters=$(grep -oE '[^:]:[a-z_]+' "$file" 2>/dev/null | sed 's/^.://' | sort -u |
			sed 's/$/=1/; s/^rule=1/rule=oea/; s/^phase=1/phase=decode/; /^placement=/d' | tr '\n' '&')
		answered 200 GET "${base}api/0/$name?${parameters:-recording=1&width=100}"
		mv "$tmp/body" "$1/$name"
	done
}

# quiet_about FILE: tells nothing.
quiet_about() {
	! grep -Eao ".{0,60}($secret).{0,20}" "$1" || fail "${1##*/} tells what is redacted"
}

view_start "$tmp/sound.db"
questions_ask "$tmp/plain"
view_end
view_start --redact "$tmp/sound.db"
questions_ask "$tmp/asked"
for file in "$tmp"/asked/*; do
	quiet_about "$file"
	expect_eq "columns of ${file##*/}" "$(grep -ao '"columns":\[[^]]*\]' "$file")" \
		"$(grep -ao '"columns":\[[^]]*\]' "$tmp/plain/${file##*/}")"
done
grep -q secret.reason "$tmp/plain/info" || fail "nothing is planted"
for question in traces 0/state; do
	answered 200 GET "${base}api/$question"
	quiet_about "$tmp/body"
done
for text in 'known engine' '"redacted"' '"replay"' '"model 1"'; do
	grep -q "$text" "$tmp/asked/info" || fail "question info lacks $text"
done
grep -q known_kernel "$tmp/asked/kernels" || fail "question kernels lacks the name of a kernel"

for object in $(sql "$tmp/sound.db" "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"); do
	query 200 "SELECT * FROM main.$object LIMIT 50"
	quiet_about "$tmp/body"
	query 200 "SELECT * FROM $object LIMIT 50"
	quiet_about "$tmp/body"
done
for text in 'WITH kernel_event AS (SELECT value FROM main.string) SELECT * FROM kernel_event' \
	'WITH recording AS (SELECT end_reason, routing_source FROM main.recording) SELECT * FROM recording' \
	'WITH meta AS (SELECT * FROM main.meta) SELECT m.value FROM meta AS m' \
	'SELECT (SELECT max(value) FROM main.meta AS meta)' \
	"SELECT group_concat(quote(external_id)) FROM (SELECT external_id FROM request ORDER BY 1)"; do
	query 200 "$text"
	quiet_about "$tmp/body"
done
query 400 'SELECT data FROM sqlite_dbpage'
quiet_about "$tmp/body"
view_end
