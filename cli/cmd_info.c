/* SPDX-License-Identifier: MIT */
/*
 * info: what a trace holds and what recorded it, table by table.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"

static const struct argp_child children[] = {{&mt_args_sections_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = mt_args_pass_on,
	.args_doc = "FILE",
	.doc = "Print what a trace holds: the file, the program and options that recorded it, its "
	       "processes, devices, models, layers and recordings.",
	.children = children,
};

struct section {
	const char *name;
	const char *title;
	const char *sql;
	bool is_vertical;
};

static const struct section sections[] = {
	{"meta", "Session",
	 "SELECT key, value FROM meta WHERE key NOT LIKE 'opt.%' AND key NOT LIKE 'version.%' "
	 "ORDER BY key",
	 false},
	{"versions", "Versions of what was found in the process",
	 "SELECT column1 AS of, (SELECT value FROM meta WHERE key = 'version.' || column1) AS "
	 "version FROM (VALUES ('driver'), ('cuda_driver'), ('cuda_runtime'), ('cupti'), ('nvml'), "
	 "('nccl'))",
	 false},
	{"options", "Options",
	 "SELECT substr(key, 5) AS option, value FROM meta WHERE key LIKE 'opt.%' ORDER BY key",
	 false},
	{"processes", "Processes", "SELECT * FROM process ORDER BY process_id", true},
	{"devices", "Devices", "SELECT * FROM device ORDER BY device_id", true},
	{"models", "Models",
	 "SELECT model_id, name, kind, architecture, n_layers, (SELECT count(*) FROM layer AS l "
	 "WHERE l.model_id = m.model_id) AS n_moe_layers, quantization "
	 "FROM model AS m ORDER BY model_id",
	 false},
	{"layers", "Layers with experts",
	 "SELECT model_id, layer, kind, n_experts, n_zero_experts, n_shared_slots, top_k, scoring, "
	 "n_groups, topk_groups, has_correction_bias, renormalize, routed_scaling_factor, "
	 "scaling_owner, weight_kind, expert_weight_bytes, router_impl, runner_backend, impl_reason "
	 "FROM layer ORDER BY model_id, layer",
	 false},
	{"recordings", "Recordings",
	 "SELECT recording_id, process_id, start_ns, end_ns, end_ns - start_ns AS duration_ns, "
	 "end_reason, mode, sampling, routing_source, (SELECT count(*) FROM request AS q "
	 "WHERE q.recording_id = r.recording_id) AS n_requests, (SELECT count(*) FROM pass AS p "
	 "WHERE p.recording_id = r.recording_id) AS n_passes "
	 "FROM recording AS r ORDER BY recording_id",
	 true},
	{"diagnostics", "Diagnostics",
	 "SELECT time_ns, severity, source, message, n_times FROM diagnostic "
	 "ORDER BY diagnostic_id",
	 false},
};

/* ?1 path, ?2 and ?3 sizes, ?4 whether the journal was read, NULL: there is none. */
#define SQL_FILE                                                                               \
	"SELECT ?1 AS file, ?2 AS file_bytes, ?3 AS journal_bytes, ?4 AS journal_is_read, "    \
	"(user_version / 1000) || '.' || (user_version % 1000) AS schema_version, "            \
	"(SELECT strftime('%Y-%m-%dT%H:%M:%SZ', (c.realtime_ns - c.session_ns) / 1000000000, " \
	"'unixepoch') FROM clock_snapshot AS c ORDER BY c.clock_snapshot_id LIMIT 1) "         \
	"AS opened_at FROM pragma_user_version"

static int file_print(const struct mt_trace *trace, struct mt_output *output)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_FILE);
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_text(stmt, 1, trace->path, -1, SQLITE_STATIC);
	sqlite3_bind_int64(stmt, 2, trace->file_bytes);
	sqlite3_bind_int64(stmt, 3, trace->wal_bytes);
	if (trace->wal_bytes > 0)
		sqlite3_bind_int(stmt, 4, !trace->is_immutable);
	status = mt_trace_print(trace, output, stmt);
	sqlite3_finalize(stmt);
	return status;
}

static int sections_print(const struct mt_trace *trace, struct mt_output *output)
{
	int status;
	size_t i;

	mt_output_sections(output);
	mt_output_section(output, "file", "File");
	output->is_vertical = true;
	status = file_print(trace, output);
	for (i = 0; i < sizeof(sections) / sizeof(sections[0]) && status == MT_EXIT_OK; i++) {
		mt_output_section(output, sections[i].name, sections[i].title);
		output->is_vertical = sections[i].is_vertical;
		status = mt_trace_print_sql(trace, output, sections[i].sql);
	}
	if (status == MT_EXIT_OK)
		mt_output_end(output);
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	const struct mt_args *args = input;
	struct mt_output output;

	mt_output_begin(&output, stdout, args->format);
	output.is_scaled = true;
	return sections_print(trace, &output);
}

int mt_cmd_info(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {
		.argp = &argp, .takes_empty = true, .print = print};
	struct mt_args args = {.no_csv = true};

	return mt_trace_verb_run(&verb, argc, argv, &args, &args);
}
