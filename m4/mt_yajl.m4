# SPDX-License-Identifier: MIT

# MT_ARG_WITH_YAJL
# yajl reads JSON: workloads, and the headers of model files.
# --with-yajl=no|guess|yes|DIR; guess may fail quietly, yes and DIR may not.
# Sets mt_yajl_state and mt_yajl_reason for the summary.
AC_DEFUN([MT_ARG_WITH_YAJL], [
	AC_ARG_WITH([yajl], [AS_HELP_STRING([--with-yajl@<:@=DIR|no|guess@:>@],
		[JSON input through yajl 2 @<:@guess@:>@])], [], [with_yajl=guess])

	mt_yajl_state=no
	mt_yajl_reason=
	AS_CASE([$with_yajl],
		[no], [mt_yajl_reason="switched off"],
		[guess|yes], [
			PKG_CHECK_MODULES([YAJL], [yajl >= 2.0.4], [mt_yajl_state=yes],
				[mt_yajl_reason="yajl 2.0.4 or newer not found (libyajl-dev)"])],
		[	YAJL_CFLAGS="-I$with_yajl/include"
			YAJL_LIBS="-L$with_yajl/lib -lyajl"
			mt_save_CPPFLAGS=$CPPFLAGS
			mt_save_LIBS=$LIBS
			CPPFLAGS="$CPPFLAGS $YAJL_CFLAGS"
			LIBS="$LIBS $YAJL_LIBS"
			AC_MSG_CHECKING([for yajl in $with_yajl])
			AS_IF([test -f "$with_yajl/include/yajl/yajl_parse.h"], [
				AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <yajl/yajl_parse.h>]],
					[[yajl_handle h = yajl_alloc(0, 0, 0); yajl_free(h);]])],
					[mt_yajl_state=yes])])
			AS_IF([test "$mt_yajl_state" = no],
				[mt_yajl_reason="no usable yajl in $with_yajl"])
			AC_MSG_RESULT([$mt_yajl_state])
			CPPFLAGS=$mt_save_CPPFLAGS
			LIBS=$mt_save_LIBS])

	AS_IF([test "$mt_yajl_state" = no], [
		YAJL_CFLAGS=
		YAJL_LIBS=
		AS_CASE([$with_yajl], [no|guess], [],
			[AC_MSG_ERROR([--with-yajl=$with_yajl was asked for, but: $mt_yajl_reason])])
	])
	AS_IF([test "$mt_yajl_state" = yes],
		[AC_DEFINE([HAVE_YAJL], [1], [Define to 1 if yajl 2 reads JSON input.])])
	AM_CONDITIONAL([HAVE_YAJL], [test "$mt_yajl_state" = yes])
])
