# SPDX-License-Identifier: MIT

# MT_CHECK_CHECK
# The unit tests are written with Check. Without it the tree builds, and
# `make check` counts them as one skipped test.
AC_DEFUN([MT_CHECK_CHECK], [
	PKG_CHECK_MODULES([CHECK], [check >= 0.15.2], [mt_check_state=yes],
		[mt_check_state=no])
	AM_CONDITIONAL([HAVE_CHECK], [test "$mt_check_state" = yes])
])
