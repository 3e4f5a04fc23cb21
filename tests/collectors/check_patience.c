/* SPDX-License-Identifier: MIT */
/*
 * Sources whose looks fail: they are counted and made again, less and less often, and end only after
 * several in a row. Their tables of operations are driven by hand, in a time that passes by 100 ms a
 * look, so that nothing waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectors/registry.h"
#include "libtrace/collect_internal.h"
#include "tests/collectors/support/fakes.h"
#include "tests/unit/support/suite.h"

/* What a source delivered. */
static struct {
	uint64_t now_ns;
	int64_t n_dropped;
	uint32_t n_unknown; /* times that it did not know how many were dropped */
	uint32_t n_readings;
	int64_t energy_mj; /* of the last one */
	int64_t instant_mw;
	int64_t pcie_width, pcie_generation;
} got;

static uint64_t now_ns(void *context)
{
	(void)context;
	return got.now_ns;
}

static void take_power(void *context, const struct mt_power_reading *reading)
{
	(void)context;
	if (reading->is_buffer || strcmp(reading->domain, "memory") == 0 ||
	    strcmp(reading->domain, "module") == 0)
		return;
	got.n_readings++;
	got.energy_mj = reading->energy_mj;
	got.instant_mw = reading->instant_mw;
}

static void take_link(void *context, const struct mt_link_reading *reading)
{
	(void)context;
	got.pcie_width = reading->pcie_width;
	got.pcie_generation = reading->pcie_generation;
}

static void take_dropped(void *context, int64_t n)
{
	(void)context;
	if (n == MT_UNKNOWN)
		got.n_unknown++;
	else
		got.n_dropped += n;
}

static void take_version(void *context, const char *what, const char *version)
{
	(void)context;
	(void)what;
	(void)version;
}

static uint32_t number_gpu(void *context, const char *uuid, const char *name)
{
	(void)context;
	(void)name;
	return 1 + (uint32_t)(uuid[strlen(uuid) - 1] - '0');
}

static int want_gpu(void *context, const char *uuid)
{
	(void)context;
	(void)uuid;
	return 1;
}

static uint64_t no_time(void *context, uint64_t realtime_ns)
{
	(void)context;
	(void)realtime_ns;
	return 0;
}

static void take_comparison(void *context, uint32_t device, enum mt_clock_kind clock,
			    mt_clock_read_fn *read, void *reader)
{
	(void)context;
	(void)device;
	(void)clock;
	(void)read;
	(void)reader;
}

static void ask(void *context, int is_asked)
{
	(void)context;
	(void)is_asked;
}

static const struct mt_collector_out out = {
	.now_ns = now_ns,
	.from_realtime = no_time,
	.version = take_version,
	.gpu = number_gpu,
	.wants_gpu = want_gpu,
	.power = take_power,
	.link = take_link,
	.dropped = take_dropped,
	.compare_clock = take_comparison,
	.ask = ask,
};

static struct mt_collector_report report;

static void *open_source(const struct mt_collector_ops *ops, const char *powercap, const char *nvml)
{
	const struct mt_collector_places places = {
		.proc = "/proc", .powercap = powercap, .nvml = nvml, .cupti = "", .cupti_mode = "off",
		.kernel_roles = "",
	};
	void *collector = NULL;

	memset(&got, 0, sizeof(got));
	got.now_ns = 1000000000;
	memset(&report, 0, sizeof(report));
	ops->open(&places, &out, &collector, &report);
	if (collector)
		ops->begin(collector);
	return collector;
}

static void look(const struct mt_collector_ops *ops, void *collector, uint32_t n)
{
	while (n--) {
		got.now_ns += 100000000;
		ops->poll(collector, &report);
	}
}

static void expect_reason(const char *part)
{
	ck_assert_msg(strstr(report.reason, part) != NULL, "'%s' is not in: %s", part, report.reason);
}

/* ---- powercap ---- */

static void set_energy(const char *root, int domain, const char *energy_uj)
{
	char folder[2000];

	snprintf(folder, sizeof(folder), "%s/intel-rapl:%d", root, domain);
	fakes_put_file(folder, "energy_uj", energy_uj);
}

static void make_domain(const char *root, int domain)
{
	char folder[32], name[32];

	snprintf(folder, sizeof(folder), "intel-rapl:%d", domain);
	snprintf(name, sizeof(name), "package-%d", domain);
	fakes_put_domain(root, folder, name, "1000000");
}

static const char *make_powercap(int n_domains)
{
	const char *root = suite_path("powercap");

	ck_assert_int_eq(mkdir(root, 0755), 0);
	for (int i = 0; i < n_domains; i++)
		make_domain(root, i);
	return root;
}

/* What a counter may say once, what of it the reason names, and how it goes on; it began at 1 J. */
static const struct {
	const char *energy_uj, *reason, *later_uj;
	int64_t energy_mj;
} bad_energies[] = {
	{ "", "intel-rapl:0/energy_uj holds no number", "5000000", 4000 },
	{ "nonsense", "intel-rapl:0/energy_uj holds no number", "5000000", 4000 },
	{ "12 garbage", "intel-rapl:0/energy_uj holds no number", "5000000", 4000 },
	{ "0x10", "intel-rapl:0/energy_uj holds no number", "5000000", 4000 },
	{ "-5", "energy_uj is -5, its range 262143328850", "5000000", 4000 },
	{ "262143328851", "energy_uj is 262143328851, its range", "5000000", 4000 },
	/* What was drawn meanwhile is not known. */
	{ "200000000000", "energy_uj went on by 199999 J at once", "200003000000", 3000 },
};

START_TEST(test_rapl_once)
{
	const char *root = make_powercap(1);
	void *rapl = open_source(&mtc_rapl, root, "");

	look(&mtc_rapl, rapl, 2);
	set_energy(root, 0, bad_energies[_i].energy_uj);
	look(&mtc_rapl, rapl, 1);
	ck_assert_uint_eq(got.n_readings, 2);
	ck_assert_int_eq(got.n_dropped, 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_ON);
	expect_reason(bad_energies[_i].reason);
	expect_reason("1 readings failed and are missing");
	expect_reason("look at the kernel's log");
	/* One look is left out, then the counter goes on. */
	set_energy(root, 0, bad_energies[_i].later_uj);
	look(&mtc_rapl, rapl, 3);
	ck_assert_uint_eq(got.n_readings, 4);
	ck_assert_int_eq(got.n_dropped, 1);
	ck_assert_int_eq(got.energy_mj, bad_energies[_i].energy_mj);
	mtc_rapl.close(rapl);
}
END_TEST

/* A range as large as a number may be, whose counter begins anew. */
START_TEST(test_rapl_range)
{
	const char *root = make_powercap(1);
	char folder[2000];
	void *rapl;

	snprintf(folder, sizeof(folder), "%s/intel-rapl:0", root);
	fakes_put_file(folder, "max_energy_range_uj", "9223372036854775807");
	rapl = open_source(&mtc_rapl, root, "");
	set_energy(root, 0, "5");
	look(&mtc_rapl, rapl, 1);
	expect_reason("energy_uj went on by 9223372036853 J at once");
	ck_assert_int_eq(got.n_dropped, 1);
	set_energy(root, 0, "1000005");
	look(&mtc_rapl, rapl, 2);
	ck_assert_int_eq(got.energy_mj, 1000);
	mtc_rapl.close(rapl);
}
END_TEST

/* Looks at a domain that always fails: after 1, 2, 4 and 8 are left out, the fifth is the last one. */
enum { UNTIL_LAST = 1 + 2 + 3 + 5 + 9 };

START_TEST(test_rapl_one_of_two)
{
	const char *root = make_powercap(2);
	void *rapl = open_source(&mtc_rapl, root, "");

	set_energy(root, 1, "broken");
	look(&mtc_rapl, rapl, UNTIL_LAST - 1);
	ck_assert_int_eq(got.n_dropped, 4);
	expect_reason("4 readings failed");
	look(&mtc_rapl, rapl, 1);
	expect_reason("1 of 2 domains are no longer read, after 5 failures in a row");
	expect_reason("record again");
	look(&mtc_rapl, rapl, 20);
	ck_assert_int_eq(report.state, MT_COLLECTOR_ON);
	ck_assert_int_eq(got.n_dropped, 5);
	ck_assert_uint_eq(got.n_readings, UNTIL_LAST + 20);
	/* The next recording tries both. */
	set_energy(root, 1, "1000000");
	mtc_rapl.begin(rapl);
	look(&mtc_rapl, rapl, 1);
	ck_assert_str_eq(report.reason, "");
	ck_assert_uint_eq(got.n_readings, UNTIL_LAST + 22);
	mtc_rapl.close(rapl);
}
END_TEST

START_TEST(test_rapl_gone)
{
	const char *root = make_powercap(1);
	void *rapl = open_source(&mtc_rapl, root, "");
	char path[2000];

	snprintf(path, sizeof(path), "%s/intel-rapl:0/energy_uj", root);
	ck_assert_int_eq(unlink(path), 0);
	look(&mtc_rapl, rapl, UNTIL_LAST - 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_ON);
	look(&mtc_rapl, rapl, 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_FAILED);
	expect_reason("1 of 1 domains are no longer read, after 5 failures in a row");
	expect_reason("No such file");
	expect_reason("start the program again");
	mtc_rapl.close(rapl);
}
END_TEST

/* Folders as long as places may be are read as they are. */
START_TEST(test_rapl_long_path)
{
	char root[1100], name[200];

	snprintf(root, sizeof(root), "%s", suite_path("long"));
	ck_assert_int_eq(mkdir(root, 0755), 0);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	while (strlen(root) + sizeof(name) + 1 < MT_PLACE_BYTES) {
		strcat(strcat(root, "/"), name);
		ck_assert_int_eq(mkdir(root, 0755), 0);
	}
	make_domain(root, 0);
	{
		void *rapl = open_source(&mtc_rapl, root, "");

		ck_assert_msg(rapl != NULL, "%s", report.reason);
		look(&mtc_rapl, rapl, 1);
		ck_assert_uint_eq(got.n_readings, 1);
		mtc_rapl.close(rapl);
	}
}
END_TEST

/* Nothing can be read from the start on: what, where, what to do. */
START_TEST(test_rapl_no_counter)
{
	const char *root = make_powercap(1);

	set_energy(root, 0, "a text");
	ck_assert_ptr_null(open_source(&mtc_rapl, root, ""));
	ck_assert_int_eq(report.state, MT_COLLECTOR_UNSUPPORTED);
	expect_reason("intel-rapl:0/energy_uj holds no number");
	expect_reason("MOETRACE_POWERCAP");
}
END_TEST

/* ---- NVML ---- */

static void *open_nvml(void)
{
	void *nvml;

	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	nvml = open_source(&mtc_nvml, "", getenv("MOETRACE_NVML"));
	ck_assert_msg(nvml != NULL, "%s", report.reason);
	return nvml;
}

START_TEST(test_nvml_once)
{
	void *nvml = open_nvml();

	look(&mtc_nvml, nvml, 2);
	ck_assert_uint_eq(got.n_readings, 4);
	ck_assert_int_eq(got.pcie_width, 16);
	ck_assert_int_eq(got.pcie_generation, 5);
	fakes_set("FAKE_NVML", "lost");
	look(&mtc_nvml, nvml, 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_ON);
	ck_assert_int_eq(got.n_dropped, 2);
	expect_reason("2 of 2 GPUs could not be read the last time: GPU is lost");
	expect_reason("nvidia-smi");
	ck_assert_int_eq(unsetenv("FAKE_NVML"), 0);
	look(&mtc_nvml, nvml, 2);
	ck_assert_uint_eq(got.n_readings, 6);
	/* What is left to say is what they do not tell. */
	expect_reason("power of the module by 1, of memory by 1 of 2 GPU(s) is not supported");
	mtc_nvml.close(nvml);
}
END_TEST

START_TEST(test_nvml_lost)
{
	void *nvml = open_nvml();

	fakes_set("FAKE_NVML", "lost");
	look(&mtc_nvml, nvml, UNTIL_LAST - 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_ON);
	look(&mtc_nvml, nvml, 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_FAILED);
	ck_assert_int_eq(got.n_dropped, 10);
	expect_reason("NVML failed 5 times in a row: GPU is lost");
	expect_reason("start the program again");
	mtc_nvml.close(nvml);
}
END_TEST

/* A figure that no GPU has is none. */
START_TEST(test_nvml_absurd)
{
	void *nvml;

	fakes_set("FAKE_NVML", "absurd");
	nvml = open_nvml();
	look(&mtc_nvml, nvml, 1);
	ck_assert_uint_eq(got.n_readings, 2);
	ck_assert_int_eq(got.instant_mw, MT_UNKNOWN);
	ck_assert_int_eq(got.pcie_width, MT_UNKNOWN);
	ck_assert_int_eq(got.pcie_generation, MT_UNKNOWN);
	mtc_nvml.close(nvml);
}
END_TEST

/* ---- CUPTI ---- */

START_TEST(test_cupti_fails)
{
	struct mt_collector_places places = { .cupti_mode = "graph", .kernel_roles = "" };
	void *cupti = NULL;

	fakes_use("MOETRACE_CUPTI", "libfake_cupti.so");
	places.cupti = getenv("MOETRACE_CUPTI");
	got.now_ns = 1000000000;
	mtc_cupti.open(&places, &out, &cupti, &report);
	ck_assert_msg(cupti != NULL, "%s", report.reason);
	mtc_cupti.begin(cupti);
	look(&mtc_cupti, cupti, 1);
	ck_assert_uint_eq(got.n_unknown, 0);
	fakes_set("FAKE_CUPTI", "fails");
	look(&mtc_cupti, cupti, UNTIL_LAST - 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_ON);
	ck_assert_uint_eq(got.n_unknown, 4);
	expect_reason("CUPTI failed: CUPTI_ERROR_OF_A_TEST (error 999); how many records were lost is not known");
	look(&mtc_cupti, cupti, 1);
	ck_assert_int_eq(report.state, MT_COLLECTOR_FAILED);
	expect_reason("CUPTI failed 5 times in a row: CUPTI_ERROR_OF_A_TEST (error 999); end what else profiles");
	mtc_cupti.close(cupti);
}
END_TEST

/* ---- calls that are remembered ---- */

static struct mt_collect_status recounted(struct mt_collect *collect, uint64_t start_ns)
{
	struct mt_collect_status status;

	mt_collect_recount(collect, start_ns);
	mt_collect_status_get(collect, 0, 1, &status);
	return status;
}

/* Flight mode learns afterwards when its recording began: calls since then, or that they are not known. */
START_TEST(test_recount)
{
	struct mt_collect *collect = calloc(1, sizeof(*collect));
	struct mt_source *source;
	struct mt_collect_status status;

	ck_assert_ptr_nonnull(collect);
	ck_assert_int_eq(pthread_mutex_init(&collect->lock, NULL), 0);
	collect->n_sources = 1;
	source = &collect->sources[0];
	source->collect = collect;
	source->status.is_known = 1;
	/* The call of number i lasts for i ns, and drops i records. */
	for (uint64_t i = 1; i <= MT_MAX_CALLS; i++) {
		source->n_dropped = i;
		mt_collect_call_note(source, i);
		source->calls[i - 1].end_ns = i * 100;
	}
	status = recounted(collect, (MT_MAX_CALLS - 2) * UINT64_C(100));
	ck_assert_uint_eq(status.n_calls, 3);
	ck_assert_uint_eq(status.calls_ns, 3 * MT_MAX_CALLS - 3);
	ck_assert_uint_eq(status.longest_call_ns, MT_MAX_CALLS);
	ck_assert_uint_eq(status.n_dropped, 3 * MT_MAX_CALLS - 3);
	ck_assert(!status.is_calls_unknown && !status.is_dropped_unknown);
	status = recounted(collect, 1);
	ck_assert_uint_eq(status.n_calls, MT_MAX_CALLS);
	ck_assert(!status.is_calls_unknown && !status.is_dropped_unknown);
	/* What was pushed out before is none of the recording's. */
	source->pushed_out_ns = 4000;
	status = recounted(collect, 4001);
	ck_assert(!status.is_calls_unknown && !status.is_dropped_unknown);
	status = recounted(collect, 4000);
	ck_assert(!status.is_calls_unknown && status.is_dropped_unknown);
	/* One more, and the first one is forgotten. */
	mt_collect_reset(collect);
	mt_collect_call_note(source, 1);
	source->calls[0].end_ns = (MT_MAX_CALLS + 1) * UINT64_C(100);
	status = recounted(collect, 1);
	ck_assert(status.is_calls_unknown && status.is_dropped_unknown);
	pthread_mutex_destroy(&collect->lock);
	free(collect);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("patience");
	TCase *tests = tcase_create("patience");

	tcase_add_loop_test(tests, test_rapl_once, 0,
			    sizeof(bad_energies) / sizeof(bad_energies[0]));
	tcase_add_test(tests, test_rapl_range);
	tcase_add_test(tests, test_rapl_one_of_two);
	tcase_add_test(tests, test_rapl_gone);
	tcase_add_test(tests, test_rapl_long_path);
	tcase_add_test(tests, test_rapl_no_counter);
	tcase_add_test(tests, test_nvml_once);
	tcase_add_test(tests, test_nvml_lost);
	tcase_add_test(tests, test_nvml_absurd);
	tcase_add_test(tests, test_cupti_fails);
	tcase_add_test(tests, test_recount);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
