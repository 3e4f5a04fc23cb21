/* SPDX-License-Identifier: MIT */
/*
 * The statements of `moetrace efficiency`. Parameters: ?1 recording or NULL, ?2 bits a weight or
 * NULL, ?3 peak TFLOP/s or NULL, ?4 peak GB/s or NULL, ?5 rows to print, ?6 and ?7 where the peaks are
 * from.
 *
 * A routed row costs an expert 2 operations a weight; a pass reads the weights of each active
 * expert, and of the fused shared ones, once. Activations are left out: at the rows of a decode
 * pass they are less than a hundredth of the weights.
 */
#ifndef MT_CLI_EFFICIENCY_SQL_H
#define MT_CLI_EFFICIENCY_SQL_H

/* How many bits a weight takes, of the model's quantization where nobody says. */
#define MT_SQL_BITS                                                                               \
	"coalesce(?2, CASE WHEN m.quantization GLOB '*fp4*' OR m.quantization GLOB '*int4*' OR "  \
	"m.quantization GLOB '*awq*' OR m.quantization GLOB '*gptq*' THEN 4 WHEN m.quantization " \
	"GLOB '*fp8*' OR m.quantization GLOB '*int8*' THEN 8 WHEN m.quantization IN ('bf16', "    \
	"'fp16', 'bfloat16', 'float16') THEN 16 WHEN m.quantization IN ('fp32', 'float32') THEN " \
	"32 END)"

/* What every layer of every pass did; known: its time, its work, its bytes. */
#define MT_SQL_WORK                                                                               \
	"WITH work AS (SELECT t.recording_id, t.pass_id, t.model_id, t.layer_id, t.layer, "       \
	"t.phase, t.n_rows, t.active_experts, coalesce(t.experts_ns, t.duration_ns) AS time_ns, " \
	"iif(t.experts_ns IS NULL, t.source, 'experts') AS source, 2.0 * l.expert_weight_bytes "  \
	"* 8 / " MT_SQL_BITS " * t.n_rows * l.top_k AS flops, 1.0 * (t.active_experts + "         \
	"l.n_shared_slots) * l.expert_weight_bytes AS bytes FROM layer_time AS t JOIN layer AS "  \
	"l ON l.layer_id = t.layer_id JOIN model AS m ON m.model_id = l.model_id WHERE (?1 IS "   \
	"NULL OR t.recording_id = ?1) AND t.n_rows > 0) "

#define MT_SQL_LAYERS                                                                            \
	MT_SQL_WORK                                                                              \
	"SELECT recording_id, model_id, layer, phase, count(*) AS passes, avg(n_rows) AS "       \
	"mean_rows, avg(active_experts) AS mean_active_experts, avg(flops) / 1e9 AS gflop, "     \
	"avg(bytes) / 1e6 AS weight_mb, sum(flops) / sum(bytes) AS flop_per_byte, avg(time_ns) " \
	"AS mean_duration_ns, source AS timed_by, sum(flops) / sum(time_ns) / 1e3 AS "      \
	"tflop_per_s, sum(bytes) / sum(time_ns) AS gb_per_s, CASE WHEN ?3 IS NULL OR ?4 IS "     \
	"NULL OR sum(flops) IS NULL THEN NULL WHEN sum(flops) / (?3 * 1e3) > sum(bytes) / ?4 "   \
	"THEN 'compute' ELSE 'memory' END AS bound_by, max(coalesce(sum(flops) / (?3 * 1e3), "   \
	"0), coalesce(sum(bytes) / ?4, 0)) / iif(?3 IS NULL AND ?4 IS NULL, NULL, "              \
	"nullif(sum(time_ns), 0)) AS share_of_peak FROM work GROUP BY recording_id, model_id, "  \
	"layer, phase, source ORDER BY sum(time_ns) DESC, recording_id, model_id, layer, phase LIMIT ?5"

#define MT_SQL_ROWS                                                                           \
	"SELECT recording_id, model_id, phase, rows_from, rows_to, sum(experts) AS experts, " \
	"1.0 * sum(experts) / sum(sum(experts)) OVER phases AS share_of_experts, sum(rows) "  \
	"AS rows, 1.0 * sum(rows) / sum(sum(rows)) OVER phases AS share_of_rows, "            \
	"1.0 * sum(padded_rows) / sum(rows) AS padding FROM moe_rows WHERE ?1 IS NULL OR "    \
	"recording_id = ?1 GROUP BY recording_id, model_id, phase, rows_from "                \
	"WINDOW phases AS (PARTITION BY recording_id, model_id, phase) "                      \
	"ORDER BY recording_id, model_id, phase, rows_from"

/* What holds clocks back: the driver's bits but the first, which says that the device is idle. */
#define MT_SQL_HELD "(s.throttle_reasons & ~1)"

/* A device's limit is of the device, not of a part of it or of the module around it. */
#define MT_SQL_LIMIT "iif(s.domain = 'gpu', d.power_limit_mw, NULL)"

/*
 * Why it draws what it draws, in words and from the figures above: what part of the time passes ran,
 * and operations in them; what bounds the experts; how much they compute for what they read; what
 * throttled. Devices that only wait draw little, however busy a counter calls them.
 */
#define MT_SQL_WHY                                                                                 \
	MT_SQL_WORK                                                                                \
	", ran AS (SELECT recording_id, sum(end_ns - begin_ns) AS pass_ns, max(end_ns) - "         \
	"min(begin_ns) AS span_ns FROM pass WHERE parent_pass_id IS NULL AND end_ns IS NOT NULL "  \
	"AND (?1 IS NULL OR recording_id = ?1) GROUP BY recording_id), "                           \
	"kernels AS (SELECT k.recording_id, sum(k.kernel_ns) AS kernel_ns, sum(p.end_ns - "         \
	"p.begin_ns) AS timed_ns FROM (SELECT e.recording_id, coalesce(c.parent_pass_id, "         \
	"c.pass_id) AS pass_id, sum(e.duration_ns) AS kernel_ns FROM kernel_event AS e JOIN pass " \
	"AS c ON c.pass_id = e.pass_id WHERE ?1 IS NULL OR e.recording_id = ?1 GROUP BY 1, 2) "    \
	"AS k JOIN pass AS p ON p.pass_id = k.pass_id WHERE p.end_ns IS NOT NULL GROUP BY "        \
	"k.recording_id), "                                                                        \
	"bound AS (SELECT recording_id, phase, sum(flops) AS flops, sum(bytes) AS bytes, "         \
	"sum(time_ns) AS ns, sum(source <> 'experts') AS n_whole, sum(flops) / (?3 * 1e3) AS "     \
	"compute_ns, sum(bytes) / ?4 AS memory_ns FROM work WHERE time_ns > 0 AND bytes > 0 "      \
	"GROUP BY recording_id, phase), "                                                          \
	"drawn AS (SELECT s.recording_id, coalesce(d.name, d.kind) AS device, s.domain, "          \
	"avg(coalesce(s.average_mw, s.instant_mw)) / 1000 AS mean_w, max(coalesce(s.limit_mw, "    \
	MT_SQL_LIMIT ")) / 1000.0 AS limit_w, avg(" MT_SQL_HELD " > 0) AS throttled, "           \
	"avg((s.throttle_reasons & 4) > 0) AS capped, "                                            \
	"max(s.throttle_reasons IS NOT NULL) AS tells FROM power_sample AS s JOIN device AS d "    \
	"USING (device_id) WHERE s.source = 'poll' AND (?1 IS NULL OR s.recording_id = ?1) GROUP " \
	"BY s.recording_id, s.device_id, s.domain) "                                               \
	"SELECT recording_id, says FROM ("                                                         \
	"SELECT recording_id, 1 AS place, printf('%s (%s) draws %.0f W', device, domain, mean_w) " \
	"|| iif(limit_w > 0, printf(' of %.0f W, %.0f %%', limit_w, 100 * mean_w / limit_w), '') " \
	"|| CASE WHEN NOT tells THEN '' WHEN capped > 0 THEN printf('; its power limit held its "  \
	"clocks back in %.0f %% of the readings', 100 * capped) WHEN throttled > 0 THEN printf('; something held its "     \
	"clocks back in %.0f %% of the readings', 100 * throttled) ELSE '; nothing holds its "     \
	"clocks back' END AS says FROM drawn UNION ALL "                                           \
	"SELECT recording_id, 2, printf('passes ran in %.0f %% of the time between the first and " \
	"the last', 100.0 * pass_ns / span_ns) || iif(pass_ns < 0.9 * span_ns, ': in the rest "    \
	"there was nothing to do, or the host was not ready', '') FROM ran WHERE span_ns > 0 AND " \
	"recording_id NOT IN (SELECT recording_id FROM stats WHERE value > 0 AND name IN "         \
	"('sampled_passes', 'disabled_passes', 'dropped_passes')) "                                \
	"UNION ALL SELECT recording_id, 3, printf('operations that were timed cover %.0f %% of "   \
	"the passes that they are of', 100.0 * kernel_ns / timed_ns) || iif(kernel_ns < 0.8 * "    \
	"timed_ns, ': in the rest the device waited for the host or for other ranks, or what ran " \
	"was not timed', '') FROM kernels WHERE timed_ns > 0 UNION ALL "                           \
	"SELECT recording_id, 4, printf('%s: experts compute %.1f operations for a byte of "       \
	"weights, at %.3g TFLOP/s and %.3g GB/s', phase, flops / bytes, flops / ns / 1e3, bytes "  \
	"/ ns) || iif(n_whole > 0, ', or more: their layers'' times hold other work', '') FROM "   \
	"bound WHERE flops IS NOT NULL UNION ALL "                                                 \
	"SELECT recording_id, 5, phase || CASE WHEN ns < max(compute_ns, memory_ns) THEN ': that " \
	"is faster than the peaks allow: weights come from a cache, or the peaks are not those "   \
	"of what ran it' WHEN compute_ns > memory_ns THEN "                  \
	"printf(': arithmetic bounds the experts, which take %.1f times what it needs at least', " \
	"ns / compute_ns) ELSE printf(': memory bounds the experts, which take %.1f times what "   \
	"it needs at least; arithmetic would take %.0f %% of that: its units wait, and what "      \
	"waits draws little. More rows for each active expert would use them', ns / memory_ns, "   \
	"100 * compute_ns / memory_ns) END FROM bound WHERE flops IS NOT NULL AND ?3 IS NOT NULL " \
	"AND ?4 IS NOT NULL) ORDER BY recording_id, place, says"

/* The peaks that figures are held against. */
#define MT_SQL_PEAKS                                                                              \
	"SELECT * FROM (SELECT 'compute' AS what, ?3 * 1.0 AS peak, 'TFLOP/s' AS unit, ?6 AS "    \
	"source UNION ALL SELECT 'memory', ?4 * 1.0, 'GB/s', ?7) WHERE peak IS NOT NULL"

/* Readings that were asked for; those of the driver's buffer lie between them. */
#define MT_SQL_POWER                                                                              \
	"SELECT s.recording_id, s.device_id, d.name AS device, s.domain, count(*) AS readings, "  \
	"avg(coalesce(s.average_mw, s.instant_mw)) / 1000 AS mean_w, max(coalesce(s.average_mw, " \
	"s.instant_mw)) / 1000.0 AS most_w, max(coalesce(s.limit_mw, " MT_SQL_LIMIT ")) / "       \
	"1000.0 AS limit_w, avg(1.0 * coalesce(s.average_mw, s.instant_mw) / coalesce("           \
	"s.limit_mw, " MT_SQL_LIMIT ")) AS share_of_limit, avg(" MT_SQL_HELD " > 0) AS "           \
	"throttled FROM power_sample AS s JOIN device AS d USING (device_id) WHERE s.source = "   \
	"'poll' AND (?1 IS NULL OR s.recording_id = ?1) GROUP BY s.recording_id, s.device_id, "   \
	"s.domain ORDER BY 1, 2, 4"

/* Windows of at least a second, ten stretches of them at most; tokens where those of all are known. */
#define MT_SQL_ENERGY                                                                             \
	"WITH part AS (SELECT *, ntile(10) OVER (PARTITION BY recording_id, device_id, domain "   \
	"ORDER BY start_ns) AS tile FROM energy_window WHERE energy_mj IS NOT NULL AND (?1 IS "   \
	"NULL OR recording_id = ?1)) SELECT recording_id, device_id, domain, min(start_ns) AS "   \
	"from_ns, sum(length_ns) AS duration_ns, sum(energy_mj) / 1e3 AS joules, iif(count(*) = " \
	"count(tokens), sum(tokens), NULL) AS tokens, iif(count(*) = count(tokens), 1e3 * "       \
	"sum(tokens) / nullif(sum(energy_mj), 0), NULL) AS tokens_per_joule FROM part "           \
	"GROUP BY recording_id, device_id, domain, tile ORDER BY 1, 2, 3, 4"

/*
 * Slow passes: those that took more than twice what passes of the same recording, model, phase and
 * size (rows, to a power of two) take in the mean, and in what they differ from that mean.
 */
#define MT_SQL_SLOW                                                                                \
	"WITH sized AS (SELECT s.*, (SELECT min(b.value) FROM byte AS b WHERE b.value < 40 AND "   \
	"(1 << b.value) >= s.n_rows) AS size FROM pass_summary AS s WHERE duration_ns > 0 AND "    \
	"n_rows > 0 AND (?1 IS NULL OR recording_id = ?1)), "                                      \
	"mean AS (SELECT *, avg(duration_ns) OVER alike AS usual_ns, avg(mean_active_experts) "    \
	"OVER alike AS usual_active, avg(max_load) OVER alike AS usual_load, avg(1.0 * "           \
	"padding_rows) OVER alike AS usual_padding, count(*) OVER alike AS n FROM sized WINDOW "   \
	"alike AS (PARTITION BY recording_id, model_id, phase, size)), "                           \
	"slow AS (SELECT *, duration_ns / usual_ns AS times FROM mean WHERE n >= 8 AND "           \
	"duration_ns > 2 * usual_ns ORDER BY times DESC, pass_id LIMIT ?5) "                       \
	"SELECT s.recording_id, s.pass_id, s.phase, s.n_rows, s.duration_ns, s.usual_ns, "         \
	"s.times, "                                                                                \
	"s.mean_active_experts, s.usual_active, s.max_load, s.padding_rows, k.name AS "            \
	"longest_operation, k.duration_ns AS operation_ns, k.usual_ns AS operation_usual_ns, "     \
	"CASE WHEN s.mean_active_experts > "     \
	"1.2 * s.usual_active THEN 'more active experts' WHEN s.max_load > 1.5 * s.usual_load "    \
	"THEN 'one expert has many rows' WHEN s.padding_rows > 1.5 * s.usual_padding + 1 THEN "    \
	"'more padding' WHEN k.duration_ns > 2 * k.usual_ns AND k.duration_ns - k.usual_ns > 0.3 " \
	"* (s.duration_ns - s.usual_ns) THEN 'one operation' WHEN "                                \
	"k.name IS NULL THEN 'nothing that was recorded: operations were not timed' ELSE "         \
	"'nothing that was recorded' END AS differs_in FROM slow AS s LEFT JOIN (SELECT pass_id, " \
	"name, duration_ns, usual_ns, max(duration_ns - usual_ns) FROM (SELECT e.pass_id, "        \
	"e.name, e.duration_ns, u.usual_ns FROM kernel_event AS e JOIN (SELECT recording_id, "     \
	"name, layer_id, avg(duration_ns) AS usual_ns FROM kernel_event GROUP BY recording_id, "   \
	"name, layer_id) AS u ON u.recording_id = e.recording_id AND u.name = e.name AND "         \
	"u.layer_id IS e.layer_id WHERE e.pass_id IN (SELECT pass_id FROM slow)) GROUP BY "        \
	"pass_id) AS k ON k.pass_id = s.pass_id ORDER BY s.times DESC, s.pass_id"

/* What is missing for the figures above. */
#define MT_SQL_MISSING                                                                            \
	"SELECT 'no expert_weight_bytes is known: neither work nor bytes can be told' WHERE NOT " \
	"EXISTS (SELECT 1 FROM layer WHERE expert_weight_bytes IS NOT NULL) UNION ALL SELECT "    \
	"'how many bits a weight takes is not known, so the work is not: give --weight-bits' "    \
	"WHERE EXISTS (SELECT 1 FROM model AS m JOIN layer AS l USING (model_id) WHERE "          \
	"l.expert_weight_bytes IS NOT NULL AND " MT_SQL_BITS " IS NULL) UNION ALL SELECT 'no "    \
	"layer was timed' WHERE NOT EXISTS (SELECT 1 FROM layer_time WHERE duration_ns IS NOT "   \
	"NULL) UNION ALL SELECT 'layers are timed from one selection to the next, attention "     \
	"included: rates are lower bounds' WHERE EXISTS (SELECT 1 FROM layer_time WHERE "         \
	"experts_ns IS NULL AND duration_ns IS NOT NULL) UNION ALL SELECT 'what bounds a layer "  \
	"needs the peaks of the machine: give --peak-tflops and --peak-gbps, or --measure where "  \
	"it was recorded' WHERE ?3 IS NULL "                                                      \
	"OR ?4 IS NULL UNION ALL SELECT 'gemm_block_rows is not known: what blocks add is not "   \
	"either' WHERE NOT EXISTS (SELECT 1 FROM layer WHERE gemm_block_rows > 0) UNION ALL "     \
	"SELECT 'no power was read' WHERE NOT EXISTS (SELECT 1 FROM power_sample)"

#endif
