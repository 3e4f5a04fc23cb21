# SPDX-License-Identifier: MIT

# MT_ARG_WITH_MICROHTTPD
# libmicrohttpd serves the page of `moetrace view`.
# --with-microhttpd=no|guess|yes; guess may fail quietly, yes may not.
# Sets mt_microhttpd_state and mt_microhttpd_reason for the summary.
AC_DEFUN([MT_ARG_WITH_MICROHTTPD], [
	AC_ARG_WITH([microhttpd], [AS_HELP_STRING([--with-microhttpd@<:@=no|guess@:>@],
		[serve the page of moetrace view through libmicrohttpd @<:@guess@:>@])], [],
		[with_microhttpd=guess])

	mt_microhttpd_state=no
	mt_microhttpd_reason=
	AS_CASE([$with_microhttpd],
		[no], [mt_microhttpd_reason="switched off"],
		[PKG_CHECK_MODULES([MICROHTTPD], [libmicrohttpd >= 0.9.71],
			[mt_microhttpd_state=yes],
			[mt_microhttpd_reason="libmicrohttpd 0.9.71 or newer not found (libmicrohttpd-dev)"])])

	AS_IF([test "$mt_microhttpd_state" = no], [
		MICROHTTPD_CFLAGS=
		MICROHTTPD_LIBS=
		AS_CASE([$with_microhttpd], [no|guess], [],
			[AC_MSG_ERROR([--with-microhttpd=$with_microhttpd was asked for, but: $mt_microhttpd_reason])])
	])
	AC_SUBST([MT_MICROHTTPD_STATE], [$mt_microhttpd_state])
	AM_CONDITIONAL([HAVE_MICROHTTPD], [test "$mt_microhttpd_state" = yes])
])
