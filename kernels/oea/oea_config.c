/* SPDX-License-Identifier: MIT */
/*
 * The settings of the rule: their text, their name, and whether they fit a router. 0 in a field
 * means that it was not given; no text gives it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/oea/oea.h"

#define DIGITS "0123456789"

/* "key=" before @text's value, which ends at @n_bytes. */
struct field {
	const char *name;
	size_t n_name;
	const char *value;
	size_t n_value;
};

static int count_parse(const struct field *field, uint32_t *ret_count, struct mtk_error *error)
{
	uint64_t count = 0;

	if (*ret_count != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "oea: %.*s is given twice",
				     (int)field->n_name, field->name);
	for (size_t i = 0; i < field->n_value && count <= UINT32_MAX; i++) {
		if (field->value[i] < '0' || field->value[i] > '9') {
			count = 0;
			break;
		}
		count = 10 * count + (uint64_t)(field->value[i] - '0');
	}
	if (count == 0 || count > UINT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: %.*s is '%.*s', expected a whole number from 1",
				     (int)field->n_name, field->name, (int)field->n_value,
				     field->value);
	*ret_count = (uint32_t)count;
	return MOETRACE_OK;
}

static int mass_parse(const struct field *field, double *ret_mass, struct mtk_error *error)
{
	const char *text = field->value;
	size_t n_whole, n;
	double mass = 0.0;

	if (*ret_mass != 0.0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "oea: p is given twice");
	n_whole = strspn(text, DIGITS);
	n = text[n_whole] == '.' ? n_whole + 1 + strspn(text + n_whole + 1, DIGITS) : n_whole;
	/* As mtk_oea_name() writes small ones: 1e-05. */
	if (text[n] == 'e' || text[n] == 'E') {
		size_t n_sign = text[n + 1] == '-' || text[n + 1] == '+';
		size_t n_digits = strspn(text + n + 1 + n_sign, DIGITS);

		n += n_digits > 0 ? 1 + n_sign + n_digits : 0;
	}
	if (n_whole > 0 && n == field->n_value)
		mass = strtod(text, NULL);
	if (!(mass > 0.0 && mass <= 1.0))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: p is '%.*s', expected a decimal number above 0, at most "
				     "1",
				     (int)field->n_value, field->value);
	*ret_mass = mass;
	return MOETRACE_OK;
}

static bool name_is(const struct field *field, const char *name)
{
	return field->n_name == strlen(name) && memcmp(field->name, name, field->n_name) == 0;
}

static int field_parse(const struct field *field, struct mtk_oea *oea, struct mtk_error *error)
{
	if (name_is(field, "k0"))
		return count_parse(field, &oea->k0, error);
	if (name_is(field, "kmax"))
		return count_parse(field, &oea->k_max, error);
	if (name_is(field, "maxp"))
		return count_parse(field, &oea->max_rank, error);
	if (name_is(field, "p"))
		return mass_parse(field, &oea->p, error);
	return mtk_error_set(error, MOETRACE_E_INVALID,
			     "oea: '%.*s' is not one of its fields: k0, kmax, p and maxp are",
			     (int)field->n_name, field->name);
}

int mtk_oea_parse(const char *text, struct mtk_oea *ret_oea, struct mtk_error *error)
{
	struct mtk_oea oea = {0};
	size_t n;

	for (; *text != '\0'; text += n + (text[n] == ',')) {
		struct field field = {.name = text};
		int status;

		n = strcspn(text, ",");
		field.n_name = strcspn(text, "=,");
		if (text[field.n_name] != '=')
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "oea: '%.*s' is not of the form key=value, as in k0=3",
					     (int)n, text);
		field.value = text + field.n_name + 1;
		field.n_value = n - field.n_name - 1;
		status = field_parse(&field, &oea, error);
		if (status)
			return status;
		if (text[n] == ',' && text[n + 1] == '\0')
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "oea: a field is missing behind the last comma");
	}
	if (oea.k0 == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: k0 is missing: give k0=N, the experts that each row "
				     "keeps in any case");
	*ret_oea = oea;
	return MOETRACE_OK;
}

void mtk_oea_name(const struct mtk_oea *oea, char *ret_name)
{
	int n = snprintf(ret_name, MTK_OEA_NAME_BYTES, "oea:k0=%u", oea->k0);

	if (oea->k_max != 0)
		n += snprintf(ret_name + n, MTK_OEA_NAME_BYTES - (size_t)n, ",kmax=%u", oea->k_max);
	if (oea->p != 0.0)
		n += snprintf(ret_name + n, MTK_OEA_NAME_BYTES - (size_t)n, ",p=%.15g", oea->p);
	if (oea->max_rank != 0)
		snprintf(ret_name + n, MTK_OEA_NAME_BYTES - (size_t)n, ",maxp=%u", oea->max_rank);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static int router_check(const struct mtk_route_config *route, struct mtk_error *error)
{
	if (route->hash_table)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "oea: the layer takes its ids from a hash table: no score "
				     "prefers one expert");
	if (route->scoring == MTK_ROUTE_SPARSEMIXER)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "oea: scoring sparsemixer weighs each expert by those taken "
				     "before it: it has no score of its own");
	if (route->output == MTK_ROUTE_OUTPUT_NONE)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "oea: output none: the code that runs the experts routes by "
				     "itself");
	return MOETRACE_OK;
}

int mtk_oea_resolve(const struct mtk_oea *given, const struct mtk_route_config *route,
		    struct mtk_oea *ret_oea, struct mtk_error *error)
{
	const uint32_t n_columns = mtk_route_columns(route);
	const uint32_t most = min_u32(n_columns, MTK_ROUTE_MAX_TOP_K);
	struct mtk_oea oea = *given;
	int status = router_check(route, error);

	if (status)
		return status;
	if (oea.k0 < 1 || oea.k0 > route->top_k)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: k0 is %u, expected 1 to %u, the experts that the model "
				     "chooses",
				     oea.k0, route->top_k);
	oea.k_max = oea.k_max != 0 ? oea.k_max : route->top_k;
	if (oea.k_max < oea.k0 || oea.k_max > most)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: kmax is %u, expected k0, which is %u, to %u", oea.k_max,
				     oea.k0, most);
	oea.p = oea.p != 0.0 ? oea.p : 1.0;
	if (!(oea.p > 0.0 && oea.p <= 1.0))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: p is %g, expected above 0, at most 1", oea.p);
	oea.max_rank = oea.max_rank != 0 ? oea.max_rank : n_columns;
	if (oea.max_rank > n_columns)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "oea: maxp is %u, expected 1 to %u, the experts of a layer",
				     oea.max_rank, n_columns);
	*ret_oea = oea;
	return MOETRACE_OK;
}
