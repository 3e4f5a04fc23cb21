# SPDX-License-Identifier: MIT
#
# Device-side capture: the host's half against a fake driver, a libcuda.so.1 that the tests
# load before the recorder looks for one; on a GPU the whole of it, by `make check-gpu`.

if HAVE_CHECK
check_LTLIBRARIES += %D%/libcuda.la %D%/old/libcuda.la
%C%_libcuda_la_SOURCES = \
	%D%/fake/fake_cuda.c %D%/fake/fake_cuda.h \
	%D%/fake/fake_context.c \
	%D%/fake/fake_internal.h \
	%D%/fake/fake_memory.c \
	%D%/fake/fake_stream.c \
	%D%/support/device.c %D%/support/device.h \
	tests/unit/support/half.c tests/unit/support/half.h
%C%_libcuda_la_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 1:0:0
%C%_libcuda_la_LIBADD = $(PTHREAD_LIBS) -lm

%C%_old_libcuda_la_SOURCES = %D%/fake/old_cuda.c
%C%_old_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 1:0:0

%C%_programs = \
	%D%/check_adopt \
	%D%/check_attach \
	%D%/check_buffers \
	%D%/check_devices \
	%D%/check_lane \
	%D%/check_late \
	%D%/check_life \
	%D%/check_rows \
	%D%/check_stranger \
	%D%/check_switch

check_PROGRAMS += $(%C%_programs) %D%/attach_once
TESTS += $(%C%_programs) %D%/bad-drivers.sh
EXTRA_DIST += %D%/bad-drivers.sh
thread_tests += $(%C%_programs)
long_tests += %D%/check_life

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_libs = tests/unit/libmt_test.la libtrace/libmoetrace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl
%C%_support = \
	%D%/support/caller.c %D%/support/caller.h \
	%D%/support/device.c %D%/support/device.h \
	%D%/support/gpu_toy.c %D%/support/gpu_toy.h

%C%_attach_once_SOURCES = %D%/attach_once.c
%C%_attach_once_LDADD = libtrace/libmoetrace.la

%C%_check_adopt_SOURCES = %D%/check_adopt.c $(%C%_support)
%C%_check_adopt_CFLAGS = $(%C%_cflags)
%C%_check_adopt_LDADD = $(%C%_libs)

%C%_check_attach_SOURCES = %D%/check_attach.c $(%C%_support)
%C%_check_attach_CFLAGS = $(%C%_cflags)
%C%_check_attach_LDADD = $(%C%_libs)

%C%_check_buffers_SOURCES = %D%/check_buffers.c $(%C%_support)
%C%_check_buffers_CFLAGS = $(%C%_cflags)
%C%_check_buffers_LDADD = $(%C%_libs)

%C%_check_devices_SOURCES = %D%/check_devices.c $(%C%_support)
%C%_check_devices_CFLAGS = $(%C%_cflags)
%C%_check_devices_LDADD = $(%C%_libs)

%C%_check_lane_SOURCES = %D%/check_lane.c $(%C%_support)
%C%_check_lane_CFLAGS = $(%C%_cflags)
%C%_check_lane_LDADD = $(%C%_libs)

# With what the library does not export.
%C%_check_late_SOURCES = %D%/check_late.c $(%C%_support)
%C%_check_late_CFLAGS = $(%C%_cflags)
%C%_check_late_LDADD = tests/unit/libmt_test.la libtrace/libmt_trace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_check_life_SOURCES = %D%/check_life.c $(%C%_support)
%C%_check_life_CFLAGS = $(%C%_cflags)
%C%_check_life_LDADD = $(%C%_libs)

%C%_check_rows_SOURCES = %D%/check_rows.c $(%C%_support)
%C%_check_rows_CFLAGS = $(%C%_cflags)
%C%_check_rows_LDADD = $(%C%_libs)

%C%_check_stranger_SOURCES = %D%/check_stranger.c $(%C%_support)
%C%_check_stranger_CFLAGS = $(%C%_cflags)
%C%_check_stranger_LDADD = tests/unit/libmt_test.la libtrace/libmt_trace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_check_switch_SOURCES = %D%/check_switch.c $(%C%_support) \
	tests/fault/support/io_fault.c tests/fault/support/io_fault.h
%C%_check_switch_CFLAGS = $(%C%_cflags)
%C%_check_switch_LDADD = $(%C%_libs)

if HAVE_NVCC
%C%_gpu_programs = %D%/check_capture %D%/check_gpus %D%/check_replays
check_PROGRAMS += $(%C%_gpu_programs)
TESTS += $(%C%_gpu_programs)
gpu_tests += $(%C%_gpu_programs)
endif

%C%_gpu_support = \
	%D%/support/caller.c %D%/support/caller.h \
	%D%/support/gpu.c %D%/support/gpu.h \
	%D%/support/graph.cu %D%/support/graph.h \
	%D%/support/kept.c %D%/support/kept.h

%C%_check_capture_SOURCES = %D%/check_capture.c $(%C%_gpu_support)
%C%_check_capture_CFLAGS = $(%C%_cflags)
%C%_check_capture_LDADD = $(%C%_libs) $(CUDA_LIBS)

%C%_check_gpus_SOURCES = %D%/check_gpus.c $(%C%_gpu_support)
%C%_check_gpus_CFLAGS = $(%C%_cflags)
%C%_check_gpus_LDADD = $(%C%_libs) $(CUDA_LIBS)

%C%_check_replays_SOURCES = %D%/check_replays.c $(%C%_gpu_support)
%C%_check_replays_CFLAGS = $(%C%_cflags)
%C%_check_replays_LDADD = $(%C%_libs) $(CUDA_LIBS)
endif
