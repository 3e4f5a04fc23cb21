/* SPDX-License-Identifier: MIT */
/* The options --rule NAME[:key=value,...] and --oea ARGS of the verbs that run the engine. */
#ifndef MT_CLI_RULE_ARGS_H
#define MT_CLI_RULE_ARGS_H

#include "cli/cli.h"
#include "kernels/oea/oea.h"

/* k0 is 0 until a rule was given. */
struct mt_rule {
	struct mtk_oea oea;
};

/* The descriptions of the two options. */
#define MT_RULE_HELP                                                                       \
	"Apply a rule between router and experts, on decode rows: oea:k0=N[,kmax=N][,p=X]" \
	"[,maxp=N]"
#define MT_RULE_OEA_HELP "The same as --rule oea:ARGS"

/* Take the value of --rule; 0, or EINVAL after one line on standard error. */
error_t mt_rule_parse(struct mt_args *args, const char *text, struct mt_rule *rule);

/* Take the value of --oea. */
error_t mt_rule_parse_oea(struct mt_args *args, const char *text, struct mt_rule *rule);

static inline const struct mtk_oea *mt_rule_oea(const struct mt_rule *rule)
{
	return rule->oea.k0 != 0 ? &rule->oea : NULL;
}

#endif
