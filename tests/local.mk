# SPDX-License-Identifier: MIT
#
# `make check`: programs written with Check, and shell scripts that begin with
# `. "$MOETRACE_SRCDIR/tests/support/lib.sh"`. Both run with the build folder as
# their working directory; an exit status of 77 means that the test cannot run
# here.

TEST_EXTENSIONS = .sh
SH_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
	MOETRACE_SRCDIR='$(abs_top_srcdir)'; export MOETRACE_SRCDIR; \
	MOETRACE_BUILDDIR='$(abs_top_builddir)'; export MOETRACE_BUILDDIR; \
	MOETRACE_SANITIZERS='$(MT_SANITIZERS)'; export MOETRACE_SANITIZERS; \
	MOETRACE_HAS_SERVER='$(MT_MICROHTTPD_STATE)'; export MOETRACE_HAS_SERVER; \
	MOETRACE_CC='$(CC)'; export MOETRACE_CC; \
	SQLITE3_CFLAGS='$(SQLITE3_CFLAGS)'; export SQLITE3_CFLAGS; \
	MOETRACE_NODELETE='$(MT_NODELETE_LDFLAGS)'; export MOETRACE_NODELETE; \
	MOETRACE_VERSION_SCRIPT='$(MT_VERSION_SCRIPT)'; export MOETRACE_VERSION_SCRIPT; \
	MOETRACE_MAN='$(man_MANS)'; export MOETRACE_MAN; \
	MOETRACE_HELP2MAN='$(HELP2MAN)'; export MOETRACE_HELP2MAN; \
	. '$(abs_srcdir)/tests/support/env.sh';

EXTRA_DIST += \
	%D%/support/env.sh \
	%D%/support/lib.sh \
	%D%/support/live.sh \
	%D%/support/no-check.sh \
	%D%/support/run_suite.h

if !HAVE_CHECK
TESTS += %D%/support/no-check.sh
endif

# The harness begins the tests in this order: those that wait the longest come first, so that
# others run meanwhile.
include tests/fault/local.mk
include tests/fuzz/local.mk
include tests/build/local.mk
include tests/unit/local.mk
include tests/control/local.mk
include tests/contract/local.mk
include tests/collectors/local.mk
include tests/cuda/local.mk
include tests/kernels/local.mk
include tests/kernels/cuda/local.mk
include tests/moe_ops/local.mk
include tests/routing/local.mk
include tests/engine/local.mk
include tests/schema/local.mk
include tests/cli/local.mk
include tests/viewer/local.mk
include tests/demo/local.mk
include tests/interleave/local.mk
