# SPDX-License-Identifier: MIT

# MT_ARG_WITH_NVTX
# The header of NVTX, which is all of it that is needed to build: who listens
# is found at run time. It comes with the CUDA toolkit, so MT_ARG_WITH_CUDA goes
# first. --with-nvtx=no|guess|yes|DIR; guess may fail quietly, the others may
# not. Sets mt_nvtx_state and mt_nvtx_reason for the summary.
AC_DEFUN([MT_ARG_WITH_NVTX], [
	AC_ARG_WITH([nvtx], [AS_HELP_STRING([--with-nvtx@<:@=DIR|no|guess@:>@],
		[hand ranges on to tools that listen to NVTX, with the header in
		DIR/include @<:@guess@:>@])], [], [with_nvtx=guess])

	mt_nvtx_state=no
	mt_nvtx_reason=
	NVTX_CPPFLAGS=
	AS_CASE([$with_nvtx],
		[no], [mt_nvtx_reason="switched off"],
		[yes|guess], [mt_nvtx_incs="none ${CUDA_CPPFLAGS:-none} -I/usr/local/cuda/include"],
		[mt_nvtx_incs="-I$with_nvtx/include"])
	AS_IF([test "x$with_nvtx" != xno], [
		AC_MSG_CHECKING([for nvtx3/nvToolsExt.h])
		for mt_inc in $mt_nvtx_incs; do
			AS_IF([test "$mt_inc" = none], [mt_inc=])
			mt_save_CPPFLAGS=$CPPFLAGS
			CPPFLAGS="$CPPFLAGS $mt_inc"
			AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
				#define NVTX_AS_SYSTEM_HEADER
				#include <nvtx3/nvToolsExt.h>]],
				[[return nvtxDomainCreateA("x") != 0;]])],
				[mt_nvtx_state=yes; NVTX_CPPFLAGS=$mt_inc])
			CPPFLAGS=$mt_save_CPPFLAGS
			AS_IF([test "$mt_nvtx_state" = yes], [break])
		done
		AC_MSG_RESULT([$mt_nvtx_state])
		AS_IF([test "$mt_nvtx_state" = no], [mt_nvtx_reason="nvtx3/nvToolsExt.h not found"])
		AS_CASE([$with_nvtx,$mt_nvtx_state], [guess,*|*,yes], [],
			[AC_MSG_ERROR([--with-nvtx=$with_nvtx was asked for, but: $mt_nvtx_reason])])
	])
	AC_SUBST([NVTX_CPPFLAGS])
	AM_CONDITIONAL([HAVE_NVTX], [test "$mt_nvtx_state" = yes])
])
