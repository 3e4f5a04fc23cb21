# SPDX-License-Identifier: MIT

# MT_ARG_WITH_NCURSES
# ncurses, with wide characters, draws the screen of `moetrace top`.
# --with-ncurses=no|guess|yes; guess may fail quietly, yes may not.
# Sets mt_ncurses_state and mt_ncurses_reason for the summary.
AC_DEFUN([MT_ARG_WITH_NCURSES], [
	AC_ARG_WITH([ncurses], [AS_HELP_STRING([--with-ncurses@<:@=no|guess@:>@],
		[draw the screen of moetrace top through ncurses @<:@guess@:>@])], [],
		[with_ncurses=guess])

	mt_ncurses_state=no
	mt_ncurses_reason=
	AS_CASE([$with_ncurses],
		[no], [mt_ncurses_reason="switched off"],
		[PKG_CHECK_MODULES([NCURSES], [ncursesw >= 6.1],
			[mt_ncurses_state=yes],
			[mt_ncurses_reason="ncursesw 6.1 or newer not found (libncurses-dev)"])])

	AS_IF([test "$mt_ncurses_state" = no], [
		NCURSES_CFLAGS=
		NCURSES_LIBS=
		AS_CASE([$with_ncurses], [no|guess], [],
			[AC_MSG_ERROR([--with-ncurses=$with_ncurses was asked for, but: $mt_ncurses_reason])])
	])
	AC_SUBST([MT_NCURSES_STATE], [$mt_ncurses_state])
	AM_CONDITIONAL([HAVE_NCURSES], [test "$mt_ncurses_state" = yes])
])
