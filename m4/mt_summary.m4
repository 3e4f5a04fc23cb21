# SPDX-License-Identifier: MIT

# MT_SUMMARY
# What was found, why the rest was not, and the switch that changes it.
AC_DEFUN([MT_SUMMARY], [
	AS_IF([test "$mt_yajl_state" = yes], [mt_sum_yajl="yes, `$PKG_CONFIG --modversion yajl 2>/dev/null`"],
		[mt_sum_yajl="no: $mt_yajl_reason"])
	AS_IF([test "$mt_microhttpd_state" = yes],
		[mt_sum_microhttpd="yes, `$PKG_CONFIG --modversion libmicrohttpd 2>/dev/null`"],
		[mt_sum_microhttpd="no: $mt_microhttpd_reason"])
	AS_IF([test "$mt_ncurses_state" = yes],
		[mt_sum_ncurses="yes, `$PKG_CONFIG --modversion ncursesw 2>/dev/null`"],
		[mt_sum_ncurses="no: $mt_ncurses_reason"])
	AS_IF([test "$mt_have_nvcc" = yes],
		[mt_sum_cuda="$mt_cuda_reason, for$mt_cuda_archs"],
		[mt_sum_cuda="no: $mt_cuda_reason"])
	AS_IF([test "$mt_nvtx_state" = yes], [mt_sum_nvtx=yes], [mt_sum_nvtx="no: $mt_nvtx_reason"])
	AS_IF([test "$mt_check_state" = yes], [mt_sum_check=yes],
		[mt_sum_check="no, make check skips them: Check 0.15.2 or newer not found (check)"])
	AM_COND_IF([HAVE_HELP2MAN], [mt_sum_man=yes],
		[mt_sum_man="no: help2man not found, or cross-compiling"])
	AM_COND_IF([HAVE_VERSION_SCRIPT], [mt_sum_map="version script"],
		[mt_sum_map="name pattern: the linker takes no version script"])
	AS_IF([test "x$silent" != xyes], [AS_ECHO(["
moetrace $PACKAGE_VERSION

  compiler                 $CC
  CFLAGS                   $CFLAGS
  prefix                   $prefix
  exported symbols         $mt_sum_map
  SQLite                   `$PKG_CONFIG --modversion sqlite3 2>/dev/null`

  optional part            state
  JSON input (yajl)        $mt_sum_yajl
                           (--with-yajl=DIR|no|guess, now $with_yajl)
  page (libmicrohttpd)     $mt_sum_microhttpd
                           (--with-microhttpd=no|guess, now $with_microhttpd)
  screen of top (ncurses)  $mt_sum_ncurses
                           (--with-ncurses=no|guess, now $with_ncurses)
  CUDA                     $mt_sum_cuda
                           (--with-cuda=DIR|no|guess, now $with_cuda;
                           --with-cuda-archs=quick|all|LIST, now $with_cuda_archs)
  ranges for NVTX          $mt_sum_nvtx
                           (--with-nvtx=DIR|no|guess, now $with_nvtx)
  unit tests (Check)       $mt_sum_check
  man pages (help2man)     $mt_sum_man

  warnings are errors      $enable_werror (--enable-werror)
  sanitizers               ${mt_sanitizers:-none} (--enable-asan, --enable-ubsan, --enable-tsan)
"])])
])
