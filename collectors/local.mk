# SPDX-License-Identifier: MIT
#
# The sources of timings and power, one folder each: a part of the recorder, which knows them as
# tables of operations (libtrace/collector.h). None links a vendor's library.

noinst_LTLIBRARIES += %D%/libmt_collectors.la

%C%_libmt_collectors_la_SOURCES = \
	%D%/cupti/api.c %D%/cupti/api.h \
	%D%/cupti/buffers.c %D%/cupti/buffers.h \
	%D%/cupti/cupti.c \
	%D%/cupti/graphs.c %D%/cupti/graphs.h \
	%D%/cupti/launches.c %D%/cupti/launches.h \
	%D%/cupti/mode.c %D%/cupti/mode.h \
	%D%/cupti/order.c %D%/cupti/order.h \
	%D%/cupti/records.c %D%/cupti/records.h \
	%D%/cupti/roles.c %D%/cupti/roles.h \
	%D%/cupti/sampler.c %D%/cupti/sampler.h \
	%D%/cupti/serial.c %D%/cupti/serial.h \
	%D%/cupti/times.c %D%/cupti/times.h \
	%D%/host/host.c \
	%D%/null/null.c \
	%D%/nvml/api.c %D%/nvml/api.h \
	%D%/nvml/look.c %D%/nvml/look.h \
	%D%/nvml/nvml.c \
	%D%/rapl/rapl.c \
	%D%/registry.c %D%/registry.h \
	%D%/report.c %D%/report.h
%C%_libmt_collectors_la_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE

# The header of NVTX is all that there is of it at build time.
if HAVE_NVTX
%C%_libmt_collectors_la_SOURCES += %D%/nvtx/nvtx.c
%C%_libmt_collectors_la_CPPFLAGS += $(NVTX_CPPFLAGS)
else
%C%_libmt_collectors_la_SOURCES += %D%/nvtx/no_nvtx.c
endif
EXTRA_DIST += %D%/nvtx/nvtx.c %D%/nvtx/no_nvtx.c
