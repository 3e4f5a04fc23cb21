/* SPDX-License-Identifier: MIT */
/*
 * Options of what is left out, off the hot path, and the two region calls, which are on it.
 */
#include "libtrace/sampling.h"

#include <stdio.h>
#include <string.h>

#define ALL_PHASES ((1u << (MOETRACE_PHASE_DUMMY + 1)) - (1u << MOETRACE_PHASE_PREFILL))

int mt_sampling_check(struct moetrace_session *session, const struct moetrace_recording_opts *opts)
{
	if (!opts)
		return MOETRACE_OK;
	if (opts->mode > MOETRACE_MODE_STAT)
		return mt_session_error(session, MOETRACE_E_INVALID, "start: there is no mode %u",
					opts->mode);
	if (opts->sample_phases & ~ALL_PHASES)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"start: sample_phases 0x%x has bits that are no phase's",
					opts->sample_phases);
	if (opts->sample_every_n_requests > 1 && opts->mode != MOETRACE_MODE_PER_TOKEN)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"start: requests are sampled in mode per_token alone, other "
					"modes keep no rows");
	return MOETRACE_OK;
}

void mt_sampling_set(struct moetrace_session *session, const struct moetrace_recording_opts *opts)
{
	uint32_t n_passes = opts ? opts->sample_every_n_passes : 0;
	uint32_t phases = opts ? opts->sample_phases : 0;

	uint32_t mode = opts ? opts->mode : MOETRACE_MODE_PER_TOKEN;

	atomic_store(&session->mode, mode);
	atomic_store(&session->weight_format, mode == MOETRACE_MODE_PER_TOKEN ?
						      session->opts.weight_format :
						      MOETRACE_WEIGHT_FORMAT_NONE);
	atomic_store(&session->sample_every_n_passes, n_passes);
	atomic_store(&session->sample_phases, phases);
	for (uint32_t i = 0; i < MOETRACE_MAX_MODELS; i++)
		atomic_store(&session->n_sampled[i], 0);
	atomic_store(&session->has_sampling, n_passes > 1 || phases);
}

const char *mt_sampling_text(const struct moetrace_recording_opts *opts, char *ret_text)
{
	static const char *const phases[] = { "", "prefill", "decode", "mixed",
					      "verify", "draft", "idle", "dummy" };
	const char *before = "phases=";
	char *at = ret_text;

	ret_text[0] = '\0';
	if (!opts)
		return NULL;
	if (opts->sample_every_n_passes > 1)
		at += sprintf(at, "passes=%u", opts->sample_every_n_passes);
	if (opts->sample_phases && at != ret_text)
		*at++ = ',';
	for (uint32_t i = MOETRACE_PHASE_PREFILL; i <= MOETRACE_PHASE_DUMMY; i++) {
		if (!(opts->sample_phases >> i & 1))
			continue;
		at += sprintf(at, "%s%s", before, phases[i]);
		before = "+";
	}
	if (opts->sample_every_n_requests > 1)
		at += sprintf(at, "%srequests=%u", at != ret_text ? "," : "",
			      opts->sample_every_n_requests);
	return at != ret_text ? ret_text : NULL;
}

void moetrace_region_disable(struct moetrace_session *session)
{
	if (session)
		atomic_fetch_add(&session->n_disabled, 1);
}

void moetrace_region_enable(struct moetrace_session *session)
{
	int64_t n = session ? atomic_load(&session->n_disabled) : 1;

	if (!session)
		return;
	while (n > 0 && !atomic_compare_exchange_weak(&session->n_disabled, &n, n - 1))
		continue;
	if (n <= 0)
		mt_misuse(session, MT_MISUSE_REGION);
}
