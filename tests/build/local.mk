# SPDX-License-Identifier: MIT
#
# Tests of the build itself.

TESTS += \
	%D%/check-includes.sh \
	%D%/check-text.sh \
	%D%/doc-paths.sh \
	%D%/check-headers.sh \
	%D%/check-symbols.sh \
	%D%/check-all.sh \
	%D%/embed.sh \
	%D%/ptx.sh \
	%D%/man.sh \
	%D%/dist.sh \
	%D%/install.sh \
	%D%/installed.sh \
	%D%/integration-guide.sh

tree_tests += \
	%D%/check-includes.sh \
	%D%/check-text.sh \
	%D%/doc-paths.sh \
	%D%/check-headers.sh \
	%D%/check-symbols.sh \
	%D%/dist.sh \
	%D%/install.sh \
	%D%/man.sh \
	%D%/ptx.sh

long_tests += %D%/clean-machine.sh

# These run make in the build folder, one at a time.
%D%/install.log: %D%/dist.log
%D%/installed.log: %D%/install.log

EXTRA_DIST += \
	%D%/includes.awk \
	%D%/clean-machine.sh \
	%D%/check-all.sh \
	%D%/check-includes.sh \
	%D%/check-text.sh \
	%D%/doc-paths.sh \
	%D%/check-headers.sh \
	%D%/check-symbols.sh \
	%D%/embed.sh \
	%D%/ptx.sh \
	%D%/man.sh \
	%D%/dist.sh \
	%D%/install.sh \
	%D%/installed.sh \
	%D%/integration-guide.sh
