# SPDX-License-Identifier: MIT

# MT_ARG_WITH_CUDA
# --with-cuda=no|guess|yes|DIR; guess may fail quietly, yes and DIR may not.
# The headers (HAVE_CUDA) and the compiler (HAVE_NVCC) are two findings: a
# machine may have either without the other, and libcuda itself is opened at
# run time and never linked. Sets mt_cuda_state and mt_cuda_reason.
AC_DEFUN([MT_ARG_WITH_CUDA], [
	AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR|no|guess@:>@],
		[look for the CUDA toolkit, in DIR if given @<:@guess@:>@])],
		[], [with_cuda=guess])
	AC_ARG_VAR([NVCC], [CUDA compiler])

	mt_have_cuda=no
	mt_have_nvcc=no
	mt_cuda_version=
	CUDA_CPPFLAGS=
	AS_IF([test "x$with_cuda" != xno], [
		AS_CASE([$with_cuda],
			[yes|guess], [mt_cuda_dirs="${CUDA_HOME:-/usr/local/cuda} /usr/local/cuda"],
			[mt_cuda_dirs=$with_cuda])
		AS_IF([test -z "$NVCC"], [
			mt_path=
			for mt_dir in $mt_cuda_dirs; do
				AS_VAR_APPEND([mt_path], ["$mt_dir/bin$PATH_SEPARATOR"])
			done
			AS_CASE([$with_cuda], [yes|guess], [AS_VAR_APPEND([mt_path], ["$PATH"])])
			AC_PATH_PROG([NVCC], [nvcc], [], [$mt_path])
		])
		AC_MSG_CHECKING([whether nvcc runs])
		AS_IF([test -n "$NVCC" && mt_out=`"$NVCC" --version 2>&AS_MESSAGE_LOG_FD`], [
			mt_have_nvcc=yes
			mt_cuda_version=`AS_ECHO(["$mt_out"]) | "$SED" -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
			AC_MSG_RESULT([yes, release $mt_cuda_version])], [AC_MSG_RESULT([no])])

		for mt_dir in "" $mt_cuda_dirs; do
			AS_CASE([$with_cuda,$mt_dir], [yes,|guess,], [], [*,], [continue])
			AS_IF([test -n "$mt_dir"], [mt_inc="-I$mt_dir/include"], [mt_inc=])
			AC_MSG_CHECKING([for cuda.h in ${mt_dir:-the default include path}])
			mt_save_CPPFLAGS=$CPPFLAGS
			CPPFLAGS="$CPPFLAGS $mt_inc"
			AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <cuda.h>]])],
				[mt_have_cuda=yes; CUDA_CPPFLAGS=$mt_inc])
			CPPFLAGS=$mt_save_CPPFLAGS
			AC_MSG_RESULT([$mt_have_cuda])
			AS_IF([test "$mt_have_cuda" = yes], [break])
		done
	])

	mt_cuda_state=no
	AS_CASE([$with_cuda,$mt_have_cuda,$mt_have_nvcc],
		[no,*], [mt_cuda_reason="switched off"],
		[*,yes,yes], [mt_cuda_state=yes; mt_cuda_reason="toolkit $mt_cuda_version"],
		[*,yes,no], [mt_cuda_reason="cuda.h found, but no nvcc that runs"],
		[*,no,yes], [mt_cuda_reason="nvcc found, but no cuda.h"],
		[mt_cuda_reason="neither cuda.h nor nvcc found"])
	AS_CASE([$with_cuda,$mt_cuda_state], [no,*|guess,*|*,yes], [],
		[AC_MSG_ERROR([--with-cuda=$with_cuda was asked for, but: $mt_cuda_reason])])

	AS_IF([test "$mt_have_cuda" = yes],
		[AC_DEFINE([HAVE_CUDA], [1], [Define to 1 if the CUDA headers were found.])])
	AS_IF([test "$mt_have_nvcc" = yes],
		[AC_DEFINE([HAVE_NVCC], [1], [Define to 1 if nvcc runs.])])
	AM_CONDITIONAL([HAVE_CUDA], [test "$mt_have_cuda" = yes])
	AM_CONDITIONAL([HAVE_NVCC], [test "$mt_have_nvcc" = yes])
	AC_SUBST([CUDA_CPPFLAGS])
])
