# SPDX-License-Identifier: MIT

# MT_ARG_WITH_CUDA
# --with-cuda=no|guess|yes|DIR; guess may fail quietly, yes and DIR may not.
# The headers (HAVE_CUDA) and the compiler (HAVE_NVCC) are two findings: a
# machine may have either without the other, and libcuda itself is opened at
# run time and never linked. Sets mt_cuda_state and mt_cuda_reason, and for the
# code in .cu files MT_NVCC_FLAGS and CUDA_LIBS.
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
	MT_CUDA_ARCHS
])

# MT_CUDA_ARCHS
# --with-cuda-archs=quick|all|LIST: for which GPUs nvcc makes machine code. An
# architecture that this nvcc does not know is left out, and said so. PTX, which
# the driver compiles for any later GPU, is made for compute_80, and with `all`
# for compute_90 too (without suffix: compute_90a PTX runs on nothing later).
AC_DEFUN([MT_CUDA_ARCHS], [
	AC_ARG_WITH([cuda-archs], [AS_HELP_STRING([--with-cuda-archs@<:@=quick|all|LIST@:>@],
		[GPUs to compile for: quick is 90 and PTX for the others, all is 80,90a,100,120;
		LIST is numbers with commas @<:@quick@:>@])],
		[], [with_cuda_archs=quick])
	MT_NVCC_FLAGS=
	CUDA_LIBS=
	mt_cuda_archs=
	AS_IF([test "$mt_have_nvcc" = yes], [
		mt_ptx=80
		AS_CASE([$with_cuda_archs],
			[quick|yes], [mt_want="90"],
			[all], [mt_want="80 90a 100 120"; mt_ptx="80 90"],
			[*@<:@!0-9a,@:>@*|no|''], [AC_MSG_ERROR([--with-cuda-archs=$with_cuda_archs: expected
	quick, all or numbers with commas, such as 80,90a])],
			[mt_want=`AS_ECHO(["$with_cuda_archs"]) | tr , ' '`])
		mt_known=`"$NVCC" --list-gpu-code 2>/dev/null | tr '\n' ' '`
		for mt_arch in $mt_want; do
			AS_CASE([" $mt_known "],
				[*" sm_${mt_arch%a} "*|"  "], [
					AS_VAR_APPEND([MT_NVCC_FLAGS],
						[" -gencode arch=compute_$mt_arch,code=sm_$mt_arch"])
					AS_VAR_APPEND([mt_cuda_archs], [" sm_$mt_arch"])],
				[AC_MSG_WARN([nvcc does not know sm_$mt_arch: left out])])
		done
		for mt_arch in $mt_ptx; do
			AS_VAR_APPEND([MT_NVCC_FLAGS],
				[" -gencode arch=compute_$mt_arch,code=compute_$mt_arch"])
			AS_VAR_APPEND([mt_cuda_archs], [" compute_$mt_arch"])
		done
		AS_VAR_APPEND([MT_NVCC_FLAGS], [" -std=c++17 -O3 -Xcompiler -fPIC,-Wall,-Wextra,-Wno-missing-field-initializers"])
		AS_IF([test "x$enable_werror" = xyes],
			[AS_VAR_APPEND([MT_NVCC_FLAGS], [" -Werror all-warnings -Xcompiler -Werror"])])
		mt_cuda_top=`AS_DIRNAME(["$NVCC"])`
		mt_cuda_top=`AS_DIRNAME(["$mt_cuda_top"])`
		for mt_dir in "$mt_cuda_top/lib64" "$mt_cuda_top/targets/$host_cpu-linux/lib" ""; do
			AS_IF([test -n "$mt_dir" && test -f "$mt_dir/libcudart_static.a"], [break])
		done
		CUDA_LIBS="${mt_dir:+-L$mt_dir }-lcudart_static -ldl -lrt -lpthread -lstdc++"
	])
	AC_SUBST([MT_NVCC_FLAGS])
	AC_SUBST([NVCCFLAGS])
	AC_SUBST([CUDA_LIBS])
])
