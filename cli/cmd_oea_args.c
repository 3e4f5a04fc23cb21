/* SPDX-License-Identifier: MIT */
/*
 * The command line of oea: what is asked for, checked as far as that goes without the trace.
 */
#include "cli/cmd_oea.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/functions/oea_general.h"

enum {
	OPT_K0 = MT_OPT_OWN,
	OPT_LAYERS,
	OPT_BATCH_BUCKETS,
	OPT_RULE,
	OPT_FIT,
	OPT_A,
	OPT_B,
	OPT_C,
	OPT_BANDWIDTH,
	OPT_VERIFY,
	OPT_RANKS,
	OPT_MAP,
};

static bool number_take(const char **text, unsigned *ret_number)
{
	char *end;
	const unsigned long number = strtoul(*text, &end, 10);

	if (**text < '0' || **text > '9' || number < 1 || number > MT_OEA_MAX_K0)
		return false;
	*ret_number = (unsigned)number;
	*text = end;
	return true;
}

/* "3", "3..7", "3,5,7" and mixtures. */
static error_t k0_parse(struct mt_oea_args *args, const char *list)
{
	const char *text = list;
	unsigned first, last;

	for (;;) {
		bool is_valid = number_take(&text, &first);

		last = first;
		if (is_valid && strncmp(text, "..", 2) == 0) {
			text += 2;
			is_valid = number_take(&text, &last) && last >= first;
		}
		if (!is_valid || (*text != ',' && *text != '\0'))
			return mt_args_error(&args->common,
					     "--k0 '%s': give numbers from 1 to %d, as in 3..7 or "
					     "3,5",
					     list, MT_OEA_MAX_K0);
		for (; first <= last; first++)
			args->has_k0[first] = true;
		args->has_k0[0] = true;
		if (*text++ == '\0')
			return 0;
	}
}

/* No layer takes a quarter of an hour; sums and products of such constants stay finite. */
#define MAX_CONSTANT 1e9

static error_t real_parse(struct mt_oea_args *args, const char *option, const char *text,
			  double min, double *ret_value)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(value) || value < min ||
	    fabs(value) > MAX_CONSTANT)
		return mt_args_error(&args->common, "%s '%s': give a number%s, and 1e9 at most", option,
				     text,
				     min > 0 ? " above 0" : min == 0 ? ", 0 or more" : ", -1e9 at least");
	*ret_value = value;
	return 0;
}

/* "margin=D[,kmax=N]" */
static error_t expand_parse(struct mt_oea_args *args, const char *text)
{
	static const char margin[] = "margin=", kmax[] = ",kmax=";
	char *end = NULL;

	args->expands = true;
	if (strncmp(text, margin, strlen(margin)) == 0)
		args->margin = strtod(text + strlen(margin), &end);
	if (!end || end == text + strlen(margin) || !isfinite(args->margin) || args->margin < 0 ||
	    (*end != '\0' && strncmp(end, kmax, strlen(kmax)) != 0))
		return mt_args_error(&args->common,
				     "--rule 'expand:%s': give margin=D, a distance of scores, and "
				     "perhaps ,kmax=N",
				     text);
	return *end == '\0' ? 0
			    : mt_args_uint(&args->common, "--rule expand: kmax", end + strlen(kmax),
					   1, 65536, &args->kmax);
}

/* Takes the k0 out of a rule's options, "NAME:k0=3,kmax=9", and leaves the others in args->form. */
static error_t options_take(struct mt_oea_args *args, const char *text)
{
	size_t n_form = strcspn(text, ":");
	struct mt_oea_form form;
	char k0[64];

	if (strlen(text) >= sizeof(args->form))
		return mt_args_error(&args->common, "--rule '%s' is too long", text);
	memcpy(args->form, text, n_form);
	for (text += n_form; *text != '\0';) {
		const size_t n = strcspn(++text, ",");

		if ((strncmp(text, "k0=", 3) == 0 || (*text >= '0' && *text <= '9')) &&
		    n < sizeof(k0)) {
			snprintf(k0, sizeof(k0), "%.*s", (int)n, text);
			if (k0_parse(args, *text == 'k' ? k0 + 3 : k0) != 0)
				return EINVAL;
		} else {
			args->form[n_form] = args->form[strcspn(args->rule, ":")] ? ',' : ':';
			memcpy(args->form + n_form + 1, text, n);
			n_form += n + 1;
		}
		text += n;
	}
	args->form[n_form] = '\0';
	if (!mt_oea_form_parse(args->form, &form))
		return mt_args_error(&args->common,
				     "--rule '%s': options are k0=N, kmax=N, p=X, maxp=N, groups=any "
				     "and order=weight; of pruned k0, p and order",
				     args->rule);
	args->rule = args->form;
	return 0;
}

/* With --verify it is the name of any rule. Else it is one that is analysed, as the engine writes it. */
static error_t rule_complete(struct mt_oea_args *args)
{
	const char *text = args->rule;
	uint64_t n_budget;
	size_t n_name;

	if (!text || args->verifies)
		return 0;
	n_name = strcspn(text, ":");
	if ((n_name == 3 && strncmp(text, "oea", 3) == 0) ||
	    (n_name == 6 && strncmp(text, "pruned", 6) == 0))
		return options_take(args, text);
	if (strncmp(text, "budget:", 7) == 0)
		return mt_args_uint(&args->common, "--rule budget", text + 7, 1, 65536, &n_budget);
	if (strncmp(text, "expand:", 7) == 0)
		return expand_parse(args, text + 7);
	return mt_args_error(&args->common,
			     "--rule '%s': give oea or pruned, with or without :k0=N, budget:N or "
			     "expand:margin=D[,kmax=N]",
			     text);
}

static error_t complete(struct mt_oea_args *args)
{
	const int n_models = args->fits + (args->has_a || args->has_b || args->has_c) +
			     (args->bandwidth_gb_s > 0);

	if (args->has_k0[0] && args->rule &&
	    (strncmp(args->rule, "budget:", 7) == 0 || strncmp(args->rule, "expand:", 7) == 0))
		return mt_args_error(&args->common, "--k0 is for --rule oea and pruned alone");
	if (args->verifies && args->common.explains)
		return mt_args_error(&args->common, "--verify is no query, so --explain has none to "
						    "print: leave one out");
	if (n_models > 1)
		return mt_args_error(&args->common,
				     "give one of --fit, --a with --b, and --bandwidth");
	if ((args->has_a || args->has_c) && !args->has_b)
		return mt_args_error(&args->common, "--b is missing: microseconds an active expert");
	if (args->map && args->n_ranks == 0 && strcmp(args->map, "recorded") != 0)
		return mt_args_error(&args->common, "--ranks R is missing");
	return rule_complete(args);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct mt_oea_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case OPT_K0:
		return k0_parse(args, arg);
	case OPT_LAYERS:
		args->by_layer = true;
		return 0;
	case OPT_BATCH_BUCKETS:
		args->by_batch = true;
		return 0;
	case OPT_RULE:
		args->rule = arg;
		return 0;
	case OPT_FIT:
		args->fits = true;
		return 0;
	case OPT_A:
		args->has_a = true;
		return real_parse(args, "--a", arg, -HUGE_VAL, &args->a_us);
	case OPT_B:
		args->has_b = true;
		return real_parse(args, "--b", arg, 0, &args->b_us);
	case OPT_C:
		args->has_c = true;
		return real_parse(args, "--c", arg, -HUGE_VAL, &args->c_us);
	case OPT_BANDWIDTH:
		return real_parse(args, "--bandwidth", arg, 1e-9, &args->bandwidth_gb_s);
	case OPT_RANKS:
		return mt_args_uint(&args->common, "--ranks", arg, 1, 65536, &args->n_ranks);
	case OPT_MAP:
		return mt_args_path(&args->common, "--map", arg, &args->map);
	case OPT_VERIFY:
		args->verifies = true;
		return 0;
	case ARGP_KEY_END:
		return complete(args);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"k0", OPT_K0, "LIST", 0, "Only these k0, as in 3..7 or 3,5 [all]", 1},
	{"layers", OPT_LAYERS, NULL, 0, "A row a layer", 1},
	{"batch-buckets", OPT_BATCH_BUCKETS, NULL, 0, "A row a size of batches: 1, 2, 3-4, 5-8, ...",
	 1},
	{"rule", OPT_RULE, "RULE", 0,
	 "oea (the best k0 of all rows are loaded, rows fill up from these; with kmax=N entries, from "
	 "their first maxp=N places, and with fewer than k0 where these hold a share p=X of the "
	 "router's score), pruned (rows keep their best k0 alone), budget:N (N experts a batch) or expand:margin=D[,kmax=N] (further experts "
	 "whose score is within D of the least chosen one, from recorded candidates) [oea]",
	 1},
	{"ranks", OPT_RANKS, "R", 0,
	 "Also the experts of the rank that has most, of R ranks of expert parallelism", 1},
	{"map", OPT_MAP, "FILE|recorded", 0,
	 "Where experts are, as in moetrace balance: by default in order, the same number on each rank",
	 1},
	{"fit", OPT_FIT, NULL, 0, "Predict times by a fit of the recorded layer times", 2},
	{"a", OPT_A, "US", 0, "Or by this time of a layer without experts, in microseconds", 2},
	{"b", OPT_B, "US", 0, "this time an active expert", 2},
	{"c", OPT_C, "US", 0, "and this time a row [0]", 2},
	{"bandwidth", OPT_BANDWIDTH, "GB/S", 0,
	 "Or by the time that an expert's weights take at this bandwidth", 2},
	{"verify", OPT_VERIFY, NULL, 0,
	 "Say in one line what each rule that the recording ran under did, or why it did nothing; "
	 "exit status 1 if one did nothing. With --rule NAME: that rule",
	 3},
	{0},
};

static const struct argp_child children[] = {{&mt_args_explain_argp, 0, NULL, 0}, {0}};

const struct argp mt_oea_argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print what opportunistic expert activation would have saved in the recorded decode "
	       "batches, for every k0, and what it would have cost in router weight."
	       "\v"
	       "A batch is a layer of a pass. Columns, of the batches together:\n"
	       "  active_before, active_after  distinct routed experts a batch\n"
	       "  ratio, ratio_low, ratio_high after / before, and its 95 % interval\n"
	       "  uniform_before, ..._after    what evenly spread choices would have given\n"
	       "  lost_weight, p95             of a row: weight of its experts that were not loaded\n"
	       "                               / all of its weight; mean and 95th percentile\n"
	       "  swapped                      experts that rows take instead / all of their entries\n"
	       "  below_k                      rows that end with fewer than k experts\n"
	       "  padding_active               experts a batch that padding alone touched\n"
	       "  retained, truncated          with recorded candidates: score of a row's new set /\n"
	       "                               of its own; share of rows that needed more of them\n"
	       "  max_rank_before, ..._after   with --ranks: experts of the rank that has most\n"
	       "  time_before_us, ..._after_us a + b * active + c * rows\n"
	       "mixed batches have rows of prefill, too, which keep their experts. docs/oea.md has "
	       "the definitions, and what these figures cannot tell.",
	.children = children,
};
