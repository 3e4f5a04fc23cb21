/* SPDX-License-Identifier: MIT */
/*
 * power: what was drawn, in windows of a second and more, and what its sources say of themselves.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/energy_sql.h"
#include "cli/explain.h"

enum { OPT_READINGS = MT_OPT_OWN };

struct options {
	struct mt_args args;
	bool has_readings;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_READINGS:
		options->has_readings = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"readings", OPT_READINGS, NULL, 0, "Every reading instead of windows of a second", 1},
	{0},
};

static const struct argp_child children[] = {{&mt_args_explain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print what a recording drew, in windows of a second and more: a shorter one, or a "
	       "layer, has no power of its own that could be measured"
	       "\v"
	       "Columns of a window:\n"
	       "  energy_j         what the energy counter went on by\n"
	       "  integrated_j     the sum of power readings times their time\n"
	       "  counter_ratio    energy_j / integrated_j: how far the two sources differ\n"
	       "  mean_w           mean power by the counter\n"
	       "  limit_share      of the enforced limit when it began\n"
	       "  tokens           rows of target models' passes that began in it\n"
	       "  mj_per_token     energy divided by them\n"
	       "Tokens are not told where the recording does not know all of a window's: standard error "
	       "says why.\n",
	.children = children,
};

#define SQL_WINDOWS                                                                              \
	"SELECT w.recording_id, d.kind AS device, w.device_id, w.domain, w.start_ns, "          \
	"w.length_ns, w.energy_mj / 1000.0 AS energy_j, w.integrated_mj / 1000 AS "             \
	"integrated_j, w.counter_ratio, w.mean_w, w.limit_w, w.mean_w / w.limit_w AS "          \
	"limit_share, w.tokens, 1.0 * w.energy_mj / nullif(w.tokens, 0) AS mj_per_token, "      \
	"w.tokens_per_joule FROM energy_window AS w JOIN device AS d USING (device_id) "        \
	"WHERE ?1 IS NULL OR w.recording_id = ?1 "                                              \
	"ORDER BY w.recording_id, w.device_id, w.domain, w.start_ns"

#define SQL_READINGS                                                                           \
	"SELECT p.recording_id, d.kind AS device, p.device_id, p.domain, p.source, p.time_ns, " \
	"p.instant_w, p.average_w, p.counted_w, p.limit_w, p.limit_share, p.held_down_by "     \
	"FROM power AS p JOIN device AS d USING (device_id) "                                  \
	"WHERE ?1 IS NULL OR p.recording_id = ?1 "                                             \
	"ORDER BY p.recording_id, p.device_id, p.domain, p.time_ns, p.source"

/* ?1 recording. Samples that last for less than a second have no window. */
#define SQL_SHORT                                                                              \
	"SELECT s.recording_id, 'device ' || s.device_id || ', ' || s.domain || ': readings '" \
	"|| 'of ' || ((max(s.time_ns) - min(s.time_ns)) / 1000000) || ' ms: no energy is '"    \
	"|| 'given for less than a second' FROM power_sample AS s WHERE s.source = 'poll' AND "     \
	"(?1 IS NULL OR s.recording_id = ?1) GROUP BY s.recording_id, s.device_id, s.domain "  \
	"HAVING max(s.time_ns) - min(s.time_ns) < 1000000000 ORDER BY 1, s.device_id, s.domain"

/* ?1 recording. What a driver averages over a second or so adds up to nothing. */
#define SQL_AVERAGE                                                                            \
	"SELECT s.recording_id, 'device ' || s.device_id || ', ' || s.domain || ': its source '" \
	"|| 'tells average power alone, neither energy nor power now, so that windows have '"  \
	"|| 'none: --readings shows it' FROM power_sample AS s WHERE s.source = 'poll' AND "   \
	"(?1 IS NULL OR s.recording_id = ?1) GROUP BY s.recording_id, s.device_id, s.domain "  \
	"HAVING count(s.average_mw) > 0 AND count(s.energy_mj) = 0 AND count(s.instant_mw) = " \
	"0 ORDER BY 1, s.device_id, s.domain"

#define SQL_STATES                                                                              \
	"SELECT recording_id, name || ' is ' || state || ': ' || coalesce(reason, '') FROM "    \
	"collector WHERE name IN ('nvml', 'rapl') AND (state <> 'on' OR reason IS NOT NULL) "   \
	"AND (?1 IS NULL OR recording_id = ?1) ORDER BY recording_id, name"

/* What a source lacks is no row; so it is said. */
static int states_mention(const struct mt_trace *trace, uint64_t recording_id)
{
	int64_t n = 0;
	int status = mt_trace_print_notes(
		trace, mt_trace_prepare_recording(trace, SQL_STATES, recording_id));

	if (status == MT_EXIT_OK)
		status = mt_trace_int(trace, "SELECT count(*) FROM collector WHERE name IN "
					     "('nvml', 'rapl')", &n);
	if (status == MT_EXIT_OK && !n)
		mt_note("no source of power was asked for: 'moetrace run --collect rapl,nvml' does, "
			"or MOETRACE_COLLECTORS");
	return status;
}

/* What windows do not tell. */
static int windows_mention(const struct mt_trace *trace, uint64_t recording_id)
{
	static const char *const notes[] = {SQL_SHORT, SQL_AVERAGE, MT_SQL_UNTOLD};
	int status = MT_EXIT_OK;

	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && status == MT_EXIT_OK; i++)
		status = mt_trace_print_notes(
			trace, mt_trace_prepare_recording(trace, notes[i], recording_id));
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	const struct options *options = input;
	const uint64_t recording_id = options->args.recording_id;
	const char *sql = options->has_readings ? SQL_READINGS : SQL_WINDOWS;
	int status = mt_explain_print_only(trace, &options->args, MT_SCALE_TIMES, "power", NULL,
					   mt_trace_prepare_recording(trace, sql, recording_id));

	if (status == MT_EXIT_OK && !options->has_readings)
		status = windows_mention(trace, recording_id);
	return status == MT_EXIT_OK ? states_mention(trace, recording_id) : status;
}

int mt_cmd_power(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &argp, .print = print};
	struct options options = {.has_readings = false};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
