# SPDX-License-Identifier: MIT
#
# Collectors against fakes of what they read: libraries that are opened at run time, and files.

if HAVE_CHECK
check_LTLIBRARIES += %D%/libmt_fakes.la %D%/libfake_cupti.la %D%/libfake_gpus.la %D%/libfake_nvml.la \
	%D%/libfake_nvml_old.la

%C%_fake_ldflags = $(AM_LDFLAGS) -module -avoid-version -rpath /nowhere
%C%_libfake_cupti_la_SOURCES = %D%/fake/fake_cupti.c %D%/fake/fake_cupti.h
%C%_libfake_cupti_la_LDFLAGS = $(%C%_fake_ldflags)
%C%_libfake_cupti_la_LIBADD = $(PTHREAD_LIBS)
%C%_libfake_gpus_la_SOURCES = %D%/fake/fake_gpus.c
%C%_libfake_gpus_la_LDFLAGS = $(%C%_fake_ldflags)
%C%_libfake_nvml_la_SOURCES = %D%/fake/fake_nvml.c
%C%_libfake_nvml_la_LDFLAGS = $(%C%_fake_ldflags)
%C%_libfake_nvml_old_la_SOURCES = %D%/fake/fake_nvml.c
%C%_libfake_nvml_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_NVML_OLD
%C%_libfake_nvml_old_la_LDFLAGS = $(%C%_fake_ldflags)

%C%_programs = \
	%D%/check_clocks \
	%D%/check_collectors \
	%D%/check_cupti \
	%D%/check_cupti_order \
	%D%/check_cupti_sample \
	%D%/check_cupti_ties \
	%D%/check_hang \
	%D%/check_patience \
	%D%/check_rapl \
	%D%/check_sampler

check_PROGRAMS += $(%C%_programs)
TESTS += $(%C%_programs)
thread_tests += %D%/check_collectors %D%/check_cupti %D%/check_cupti_order %D%/check_cupti_sample \
	%D%/check_cupti_ties %D%/check_hang %D%/check_rapl %D%/check_sampler

%C%_cflags = $(AM_CFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)

%C%_libmt_fakes_la_SOURCES = %D%/support/fakes.c %D%/support/fakes.h %D%/fake/fake_cupti.h
%C%_libmt_fakes_la_CFLAGS = $(%C%_cflags)

%C%_check_clocks_SOURCES = %D%/check_clocks.c
%C%_check_clocks_CFLAGS = $(%C%_cflags)
%C%_check_clocks_LDADD = tests/unit/libmt_test.la libtrace/libmt_trace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_session_sources = %D%/support/sources.c %D%/support/sources.h

%C%_check_collectors_SOURCES = %D%/check_collectors.c $(%C%_session_sources)
%C%_check_collectors_CFLAGS = $(%C%_cflags)
%C%_check_collectors_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
%C%_check_collectors_LDADD = %D%/libmt_fakes.la tests/unit/libmt_test.la libtrace/libmoetrace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_hang_SOURCES = %D%/check_hang.c $(%C%_session_sources)
%C%_check_hang_CFLAGS = $(%C%_cflags)
%C%_check_hang_LDADD = %D%/libmt_fakes.la tests/unit/libmt_test.la libtrace/libmt_trace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_rapl_SOURCES = %D%/check_rapl.c $(%C%_session_sources)
%C%_check_rapl_CFLAGS = $(%C%_cflags)
%C%_check_rapl_LDADD = %D%/libmt_fakes.la tests/unit/libmt_test.la libtrace/libmoetrace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

%C%_check_sampler_SOURCES = %D%/check_sampler.c
%C%_check_sampler_CFLAGS = $(%C%_cflags)
%C%_check_sampler_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_create
%C%_check_sampler_LDADD = %D%/libmt_fakes.la tests/unit/libmt_test.la collectors/libmt_collectors.la libtrace/libmt_trace.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_check_patience_SOURCES = %D%/check_patience.c
%C%_check_patience_CFLAGS = $(%C%_cflags)
%C%_check_patience_LDADD = %D%/libmt_fakes.la tests/unit/libmt_test.la collectors/libmt_collectors.la \
	libtrace/libmt_trace.la $(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

if HAVE_NVTX
check_LTLIBRARIES += %D%/libfake_nvtx.la
%C%_libfake_nvtx_la_SOURCES = %D%/fake/fake_nvtx.c
%C%_libfake_nvtx_la_CPPFLAGS = $(AM_CPPFLAGS) $(NVTX_CPPFLAGS)
%C%_libfake_nvtx_la_CFLAGS = $(AM_CFLAGS) -D_GNU_SOURCE
%C%_libfake_nvtx_la_LDFLAGS = $(%C%_fake_ldflags)
%C%_libfake_nvtx_la_LIBADD = $(PTHREAD_LIBS)
check_PROGRAMS += %D%/check_nvtx
TESTS += %D%/check_nvtx
%C%_check_nvtx_SOURCES = %D%/check_nvtx.c
%C%_check_nvtx_CFLAGS = $(%C%_cflags)
%C%_check_nvtx_LDADD = tests/unit/libmt_test.la libtrace/libmoetrace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm
endif

%C%_toy_sources = %D%/support/cupti_toy.c %D%/support/cupti_toy.h
%C%_gpu_sources = $(%C%_toy_sources) %D%/support/cupti_lane.c %D%/support/cupti_lane.h \
	tests/cuda/support/device.c tests/cuda/support/device.h \
	tests/cuda/support/gpu_toy.c tests/cuda/support/gpu_toy.h
%C%_gpu_libs = %D%/libmt_fakes.la tests/unit/libmt_test.la libtrace/libmoetrace.la $(CHECK_LIBS) \
	$(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm -ldl

%C%_check_cupti_SOURCES = %D%/check_cupti.c $(%C%_gpu_sources)
%C%_check_cupti_CFLAGS = $(%C%_cflags)
%C%_check_cupti_LDADD = $(%C%_gpu_libs)

%C%_check_cupti_order_SOURCES = %D%/check_cupti_order.c $(%C%_toy_sources)
%C%_check_cupti_order_CFLAGS = $(%C%_cflags)
%C%_check_cupti_order_LDADD = $(%C%_gpu_libs)

%C%_check_cupti_sample_SOURCES = %D%/check_cupti_sample.c $(%C%_gpu_sources)
%C%_check_cupti_sample_CFLAGS = $(%C%_cflags)
%C%_check_cupti_sample_LDADD = $(%C%_gpu_libs)

%C%_check_cupti_ties_SOURCES = %D%/check_cupti_ties.c $(%C%_gpu_sources)
%C%_check_cupti_ties_CFLAGS = $(%C%_cflags)
%C%_check_cupti_ties_LDADD = $(%C%_gpu_libs)
endif
