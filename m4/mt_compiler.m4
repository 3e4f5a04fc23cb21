# SPDX-License-Identifier: MIT
#
# What the compiler and the linker can do: the language, the sanitizers, the
# warnings (each probed by itself) and the shape of the shared library.

# MT_CC_TRY(FLAG, IF-YES, IF-NO)
# Whether the compiler takes FLAG without a word. clang only warns about an
# option that it does not know, hence -Werror.
AC_DEFUN([MT_CC_TRY], [
	AS_VAR_PUSHDEF([mt_cache], [mt_cv_cc_flag_$1])
	AC_CACHE_CHECK([whether $CC accepts $1], [mt_cache], [
		mt_save_CFLAGS=$CFLAGS
		CFLAGS="$CFLAGS -Werror $1"
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
			[AS_VAR_SET([mt_cache], [yes])], [AS_VAR_SET([mt_cache], [no])])
		CFLAGS=$mt_save_CFLAGS
	])
	AS_VAR_IF([mt_cache], [yes], [$2], [$3])
	AS_VAR_POPDEF([mt_cache])
])

# MT_LD_TRY(FLAG, IF-YES, IF-NO)
# Whether a shared object links with FLAG.
AC_DEFUN([MT_LD_TRY], [
	AS_VAR_PUSHDEF([mt_cache], [mt_cv_ld_flag_$1])
	AC_CACHE_CHECK([whether a shared object links with $1], [mt_cache], [
		mt_save_CFLAGS=$CFLAGS
		mt_save_LDFLAGS=$LDFLAGS
		CFLAGS="$CFLAGS -fPIC"
		LDFLAGS="$LDFLAGS -shared $1"
		AC_LINK_IFELSE([AC_LANG_SOURCE([int mt_probe(void); int mt_probe(void) { return 0; }])],
			[AS_VAR_SET([mt_cache], [yes])], [AS_VAR_SET([mt_cache], [no])])
		CFLAGS=$mt_save_CFLAGS
		LDFLAGS=$mt_save_LDFLAGS
	])
	AS_VAR_IF([mt_cache], [yes], [$2], [$3])
	AS_VAR_POPDEF([mt_cache])
])

# MT_CC_STD
# The sources are C17 with the GNU extensions of the C library.
AC_DEFUN([MT_CC_STD], [
	MT_CC_TRY([-std=gnu17], [MT_STD_CFLAGS=-std=gnu17],
		[AC_MSG_ERROR([$CC does not know C17: use gcc 8, clang 7 or newer])])
	AC_SUBST([MT_STD_CFLAGS])
])

# MT_ARG_SANITIZERS
# --enable-asan, --enable-ubsan, --enable-tsan. Sets mt_sanitizers to the list
# in force, for the summary and for the tests.
AC_DEFUN([MT_ARG_SANITIZERS], [
	AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan],
		[build everything with AddressSanitizer])], [], [enable_asan=no])
	AC_ARG_ENABLE([ubsan], [AS_HELP_STRING([--enable-ubsan],
		[build everything with UndefinedBehaviorSanitizer])], [], [enable_ubsan=no])
	AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan],
		[build everything with ThreadSanitizer (not with asan)])], [], [enable_tsan=no])
	AS_IF([test "x$enable_tsan$enable_asan" = xyesyes],
		[AC_MSG_ERROR([--enable-tsan and --enable-asan exclude each other])])

	mt_sanitizers=
	AS_IF([test "x$enable_asan" = xyes], [mt_sanitizers="$mt_sanitizers,address"])
	AS_IF([test "x$enable_ubsan" = xyes], [mt_sanitizers="$mt_sanitizers,undefined"])
	AS_IF([test "x$enable_tsan" = xyes], [mt_sanitizers="$mt_sanitizers,thread"])
	mt_sanitizers=${mt_sanitizers#,}
	AS_IF([test -n "$mt_sanitizers"], [
		# A report of undefined behaviour has to fail the test that caused it.
		CC="$CC -fsanitize=$mt_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
		AC_MSG_CHECKING([whether a program with -fsanitize=$mt_sanitizers links])
		AC_LINK_IFELSE([AC_LANG_PROGRAM()], [AC_MSG_RESULT([yes])], [
			AC_MSG_RESULT([no])
			AC_MSG_ERROR([this compiler cannot link with -fsanitize=$mt_sanitizers;
	see config.log, or leave the switch out])])
	])
	AC_SUBST([MT_SANITIZERS], [$mt_sanitizers])
	AM_CONDITIONAL([SANITIZED], [test -n "$mt_sanitizers"])
])

# MT_PTHREAD
AC_DEFUN([MT_PTHREAD], [
	AC_MSG_CHECKING([how to link POSIX threads])
	mt_save_LIBS=$LIBS
	mt_pthread=none
	for mt_lib in "" -lpthread; do
		LIBS="$mt_save_LIBS $mt_lib"
		AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <pthread.h>]],
			[[return pthread_create(0, 0, 0, 0) | pthread_atfork(0, 0, 0);]])],
			[mt_pthread=$mt_lib; break])
	done
	LIBS=$mt_save_LIBS
	AS_IF([test "x$mt_pthread" = xnone],
		[AC_MSG_ERROR([POSIX threads are required and no way to link them was found])])
	AC_MSG_RESULT([${mt_pthread:-part of the C library}])
	AC_SUBST([PTHREAD_LIBS], [$mt_pthread])
])

# MT_ARG_WERROR
AC_DEFUN([MT_ARG_WERROR], [
	AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror],
		[make every compiler warning an error])], [], [enable_werror=no])
])

# MT_WARNING_FLAGS
# Sets MT_WARN_CFLAGS to those of the project's warnings that $CC knows.
AC_DEFUN([MT_WARNING_FLAGS], [
	MT_WARN_CFLAGS=
	m4_foreach_w([mt_flag], [-Wall -Wextra -Wshadow -Wstrict-prototypes
		-Wmissing-prototypes -Wold-style-definition -Wvla -Wpointer-arith
		-Wundef -Wformat=2 -Wwrite-strings -Wnested-externs
		-Wlogical-op -Wduplicated-cond],
		[MT_CC_TRY(mt_flag, [AS_VAR_APPEND([MT_WARN_CFLAGS], [" mt_flag"])])])
	AS_IF([test "x$enable_werror" = xyes], [AS_VAR_APPEND([MT_WARN_CFLAGS], [" -Werror"])])
	AC_SUBST([MT_WARN_CFLAGS])
])

# MT_LINK_FLAGS
# The shape of libmoetrace.so and of the loadable module.
AC_DEFUN([MT_LINK_FLAGS], [
	MT_CC_TRY([-fvisibility=hidden], [MT_VISIBILITY_CFLAGS=-fvisibility=hidden])
	AC_SUBST([MT_VISIBILITY_CFLAGS])

	# The map names every exported symbol and the release that added it. Where
	# the linker has no version scripts, libtool's expression hides the rest.
	AC_CACHE_CHECK([whether the linker takes version scripts], [mt_cv_ld_version_script], [
		mt_save_CFLAGS=$CFLAGS
		mt_save_LDFLAGS=$LDFLAGS
		CFLAGS="$CFLAGS -fPIC"
		echo 'MT_PROBE_0 { global: mt_probe; local: *; };' > conftest.map
		LDFLAGS="$LDFLAGS -shared -Wl,--version-script=conftest.map"
		AC_LINK_IFELSE([AC_LANG_SOURCE([int mt_probe(void); int mt_probe(void) { return 0; }])],
			[mt_cv_ld_version_script=yes], [mt_cv_ld_version_script=no])
		rm -f conftest.map
		CFLAGS=$mt_save_CFLAGS
		LDFLAGS=$mt_save_LDFLAGS
	])
	AM_CONDITIONAL([HAVE_VERSION_SCRIPT], [test "x$mt_cv_ld_version_script" = xyes])
	AC_SUBST([MT_VERSION_SCRIPT], [${mt_cv_ld_version_script#no}])

	# The recorder owns a writer thread, fork handlers and thread-specific data
	# with a destructor. Code that some of them may still run must not be
	# unmapped by a host's dlclose, and a host may close us at any moment.
	MT_NODELETE_LDFLAGS=
	MT_LD_TRY([-Wl,-z,nodelete], [MT_NODELETE_LDFLAGS=-Wl,-z,nodelete])
	AC_SUBST([MT_NODELETE_LDFLAGS])

	# An unresolved symbol is found at the link and not in the host's dlopen.
	# Sanitizer runtimes may stay unresolved in a shared object.
	MT_DEFS_LDFLAGS=
	AS_IF([test -z "$mt_sanitizers"],
		[MT_LD_TRY([-Wl,-z,defs], [MT_DEFS_LDFLAGS=-Wl,-z,defs])])
	AC_SUBST([MT_DEFS_LDFLAGS])
])
