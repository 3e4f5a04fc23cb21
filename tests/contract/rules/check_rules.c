/* SPDX-License-Identifier: MIT */
/* The program of the rules; rules.h lists them. */
#include "tests/contract/rules/rules.h"

#include "tests/unit/support/suite.h"

int main(void)
{
	Suite *suite = suite_create("rules");

	suite_add_tcase(suite, rules_of_passes());
	suite_add_tcase(suite, rules_of_requests());
	suite_add_tcase(suite, rules_of_files());
	suite_add_tcase(suite, rules_of_devices());
	suite_add_tcase(suite, rules_of_shapes());
	return suite_run(suite);
}
