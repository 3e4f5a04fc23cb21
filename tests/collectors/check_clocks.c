/* SPDX-License-Identifier: MIT */
/*
 * Clocks that drift, step and are read late. The expected times are those of the clock that the
 * fake ones are made from.
 */
#include <stdlib.h>

#include "libtrace/clocks.h"
#include "tests/unit/support/suite.h"

#define S UINT64_C(1000000000)

/* A clock that gains @ppb of the time since the session began, and lies @offset ahead. */
static uint64_t other_at(uint64_t session_ns, int64_t ppb, uint64_t offset_ns)
{
	return offset_ns + session_ns + (uint64_t)((int64_t)(session_ns / 1000) * ppb / 1000000);
}

static uint64_t error_of(uint64_t got_ns, uint64_t want_ns)
{
	return got_ns > want_ns ? got_ns - want_ns : want_ns - got_ns;
}

START_TEST(test_drift)
{
	static const int64_t drifts_ppb[] = { 0, 100000, -100000, 500000, 20 };
	int64_t ppb = drifts_ppb[_i];
	struct mt_clock_map map = { 0 };

	ck_assert_uint_eq(mt_clock_map_to_session(&map, 17), 0);
	for (uint64_t s = 1; s <= 100; s++) {
		const struct mt_clock_pair pair = { s * S, other_at(s * S, ppb, 1700 * S), 40 };

		mt_clock_map_add(&map, &pair);
	}
	/* Between pairs that are kept the drift is followed exactly. */
	for (uint64_t at = 40 * S + 123456789; at < 99 * S; at += 777777777)
		ck_assert_uint_le(error_of(mt_clock_map_to_session(&map, other_at(at, ppb, 1700 * S)),
					   at),
				  2000);
	/* Behind the last one it is off by what the clock drifts in the meantime. */
	ck_assert_uint_le(error_of(mt_clock_map_to_session(
					   &map, other_at(100 * S + S / 2, ppb, 1700 * S)),
				   100 * S + S / 2),
			  (uint64_t)llabs(ppb) / 2 + 2);
}
END_TEST

/* What lies before a step is seen by the pairs before it, what lies behind by those behind. */
START_TEST(test_step)
{
	static const int64_t steps_ns[] = { 3600 * (int64_t)S, -(int64_t)S / 2, -3600 * (int64_t)S,
					    5000000 };
	int64_t step_ns = steps_ns[_i];
	struct mt_clock_map map = { 0 };

	for (uint64_t s = 1; s <= 20; s++) {
		const struct mt_clock_pair pair = {
			s * S, s * S + 9000 * S + (uint64_t)(s > 10 ? step_ns : 0), 40
		};

		mt_clock_map_add(&map, &pair);
	}
	for (uint64_t at = S; at <= 10 * S; at += S / 4)
		if (step_ns > 0 || at < 9 * S)
			ck_assert_uint_le(error_of(mt_clock_map_to_session(&map, at + 9000 * S), at),
					  2);
	for (uint64_t at = 11 * S; at <= 20 * S; at += S / 4)
		if (step_ns < -(int64_t)S || step_ns > 0 || at > 12 * S)
			ck_assert_uint_le(error_of(mt_clock_map_to_session(
							   &map, at + 9000 * S + (uint64_t)step_ns),
						   at),
					  2);
}
END_TEST

/*
 * The machine sleeps for an hour, in which the session's clock stands still and the other one does
 * not, is set back by ten minutes later, and drifts all the while: each stretch is placed by its own
 * pairs.
 */
START_TEST(test_suspended)
{
	static const int64_t drifts_ppb[] = { 0, 100000, -100000 };
	const int64_t ppb = drifts_ppb[_i];
	static const struct {
		uint64_t from_s, until_s, offset_s;
	} stretches[] = { { 1, 15, 1000 }, { 16, 30, 4600 }, { 31, 45, 4000 } };
	struct mt_clock_map map = { 0 };

	for (int i = 0; i < 3; i++)
		for (uint64_t s = stretches[i].from_s; s <= stretches[i].until_s; s++) {
			const struct mt_clock_pair pair = {
				s * S, other_at(s * S, ppb, stretches[i].offset_s * S), 40
			};

			mt_clock_map_add(&map, &pair);
		}
	for (int i = 0; i < 3; i++)
		for (uint64_t at = stretches[i].from_s * S; at <= stretches[i].until_s * S;
		     at += S / 8)
			ck_assert_uint_le(error_of(mt_clock_map_to_session(
							   &map, other_at(at, ppb,
									  stretches[i].offset_s * S)),
						   at),
					  2000);
	/* Half a second after it fell asleep nothing was compared yet: the pair before holds. */
	ck_assert_uint_le(error_of(mt_clock_map_to_session(&map, other_at(15 * S + S / 2, ppb,
									  1000 * S)),
				   15 * S + S / 2),
			  (uint64_t)llabs(ppb) / 2 + 2000);
}
END_TEST

/* A reader that is interrupted now and then. */
struct late {
	uint64_t now_ns;
	uint32_t n_reads;
};

static uint64_t read_session(void *context)
{
	struct late *late = context;

	/* Every other try is held up for a millisecond. */
	late->now_ns += late->n_reads++ % 4 == 1 ? 1000000 : 30;
	return late->now_ns;
}

static uint64_t read_other(void *context)
{
	return ((struct late *)context)->now_ns + 5 * S;
}

START_TEST(test_bracket)
{
	struct late late = { 1000, 0 };
	struct mt_clock_pair pair = mt_clock_read_pair(read_session, read_other, &late);

	ck_assert_uint_eq(pair.uncertainty_ns, 30);
	ck_assert_uint_le(error_of(pair.other_ns, pair.session_ns + 5 * S), 30);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clocks");
	TCase *tests = tcase_create("clocks");

	tcase_add_loop_test(tests, test_drift, 0, 5);
	tcase_add_loop_test(tests, test_step, 0, 4);
	tcase_add_loop_test(tests, test_suspended, 0, 3);
	tcase_add_test(tests, test_bracket);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
