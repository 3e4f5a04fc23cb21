/* SPDX-License-Identifier: MIT */
/* A rule on the command line. Whether it fits the model is found out when the model is known. */
#include "cli/rule_args.h"

#include <string.h>

#include <moetrace/status.h>

static error_t oea_take(struct mt_args *args, const char *option, const char *text, const char *oea,
			struct mt_rule *rule)
{
	struct mtk_error error;

	if (rule->oea.k0 != 0)
		return mt_args_error(args, "%s '%s': a rule was given already", option, text);
	if (mtk_oea_parse(oea, &rule->oea, &error) != MOETRACE_OK)
		return mt_args_error(args, "%s '%s': %s", option, text, error.text);
	return 0;
}

error_t mt_rule_parse(struct mt_args *args, const char *text, struct mt_rule *rule)
{
	size_t n_name = strcspn(text, ":");

	if (n_name != strlen("oea") || strncmp(text, "oea", n_name) != 0)
		return mt_args_error(args,
				     "--rule '%s': the engine has no rule '%.*s', it has oea, as "
				     "in oea:k0=3",
				     text, (int)n_name, text);
	return oea_take(args, "--rule", text, text + n_name + (text[n_name] == ':'), rule);
}

error_t mt_rule_parse_oea(struct mt_args *args, const char *text, struct mt_rule *rule)
{
	return oea_take(args, "--oea", text, text, rule);
}
