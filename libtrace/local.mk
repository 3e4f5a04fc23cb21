# SPDX-License-Identifier: MIT
#
# The recorder: libmoetrace, the only library that is installed for linking. Its sources are
# a convenience library, so that tests can reach what is inside.

noinst_LTLIBRARIES += %D%/libmt_trace.la
lib_LTLIBRARIES += %D%/libmoetrace.la

moetracedir = $(includedir)/moetrace
nodist_moetrace_HEADERS = %D%/include/moetrace/version.h
moetrace_HEADERS = \
	%D%/include/moetrace/counters.h \
	%D%/include/moetrace/cuda.h \
	%D%/include/moetrace/cuda_device.cuh \
	%D%/include/moetrace/experts.h \
	%D%/include/moetrace/model.h \
	%D%/include/moetrace/moetrace.h \
	%D%/include/moetrace/pass.h \
	%D%/include/moetrace/request.h \
	%D%/include/moetrace/session.h \
	%D%/include/moetrace/status.h \
	%D%/include/moetrace/timing.h

%C%_libmt_trace_la_SOURCES = \
	%D%/abi.h \
	%D%/answer.c \
	%D%/assembly.c %D%/assembly.h %D%/assembly_internal.h \
	%D%/assembly_begin.c \
	%D%/assembly_end.c \
	%D%/attempt.c \
	%D%/clock.h \
	%D%/clocks.c %D%/clocks.h \
	%D%/collect.c %D%/collect.h %D%/collect_internal.h \
	%D%/collect_calls.c \
	%D%/collect_graph.c \
	%D%/collect_out.c \
	%D%/collect_thread.c \
	%D%/collect_write.c \
	%D%/collector.h \
	%D%/control/commands.c %D%/control/commands.h \
	%D%/control/line.c %D%/control/line.h \
	%D%/control/peer.c %D%/control/peer.h \
	%D%/control/server.c %D%/control/server.h \
	%D%/count.c %D%/count.h \
	%D%/counters.c \
	%D%/coverage.c %D%/coverage.h \
	%D%/cuda/attach.c \
	%D%/cuda/capture.h \
	%D%/cuda/deliver.c \
	%D%/cuda/devices.c \
	%D%/cuda/drain.c \
	%D%/cuda/driver.c %D%/cuda/driver.h \
	%D%/cuda/gather.c \
	%D%/cuda/issue.c \
	%D%/cuda/kernels.h \
	%D%/cuda/lane.c \
	%D%/cuda/layout.h \
	%D%/cuda/memory.c \
	%D%/cuda/probe.c \
	%D%/cuda/store_args.h \
	%D%/cuda/timer.c \
	%D%/cuda/wait.h \
	%D%/definitions.c %D%/definitions.h \
	%D%/expert_map.c %D%/expert_map.h \
	%D%/experts.c %D%/experts.h \
	%D%/flight.c %D%/flight.h \
	%D%/flight_log.c \
	%D%/fork.c \
	%D%/hot.h \
	%D%/layer.c %D%/layer.h \
	%D%/kernel_write.c \
	%D%/collectives.c %D%/collectives.h \
	%D%/kernels.c %D%/kernels.h \
	%D%/host_ties.h \
	%D%/late.h \
	%D%/ledger.c %D%/ledger.h \
	%D%/load.c %D%/load.h \
	%D%/model.c \
	%D%/narrow.c %D%/narrow.h \
	%D%/narrow_avx2.c \
	%D%/narrow_avx512.c \
	%D%/options.c %D%/options.h \
	%D%/overhead.c %D%/overhead.h \
	%D%/parts.c %D%/parts.h \
	%D%/losses.c \
	%D%/pass.c \
	%D%/queue.c %D%/queue.h \
	%D%/range_tool.c %D%/range_tool.h \
	%D%/ranges.c %D%/ranges.h \
	%D%/past.c %D%/past.h \
	%D%/recent.c %D%/recent.h \
	%D%/record.h \
	%D%/recording.c \
	%D%/request.c \
	%D%/restore.c %D%/restore.h \
	%D%/reuse.c \
	%D%/ring.c %D%/ring.h \
	%D%/rotation.c \
	%D%/sampling.c %D%/sampling.h \
	%D%/select.c \
	%D%/select_wide.c \
	%D%/session.c %D%/session.h \
	%D%/session_flight.c \
	%D%/session_rotate.c \
	%D%/session_status.c \
	%D%/settle.c %D%/settle.h \
	%D%/slots.c %D%/slots.h \
	%D%/status.c \
	%D%/strings.c %D%/strings.h \
	%D%/tied.c %D%/tied.h \
	%D%/ties.h \
	%D%/timing.c \
	%D%/verify.c \
	%D%/versions.c %D%/versions.h \
	%D%/widen.c \
	%D%/writer.c %D%/writer.h %D%/writer_internal.h \
	%D%/writer_drain.c \
	%D%/writer_late.c \
	%D%/writer_losses.c \
	%D%/writer_messages.c \
	%D%/store/reader.c %D%/store/reader.h \
	%D%/store/rows.c \
	%D%/store/rows_layer.c \
	%D%/store/rows_timing.c \
	%D%/store/schema_sql.h \
	%D%/store/stmt.h \
	%D%/store/store.c %D%/store/store.h %D%/store/store_internal.h \
	%D%/store/store_file.c \
	%D%/store/topk.c
nodist_%C%_libmt_trace_la_SOURCES = %D%/store/schema_sql.c %D%/cuda/kernels_ptx.c
%C%_libmt_trace_la_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS)
%C%_libmt_trace_la_LIBADD = \
	collectors/libmt_collectors.la \
	common/libmt_common.la \
	$(SQLITE3_LIBS) \
	$(PTHREAD_LIBS)

%C%_libmoetrace_la_SOURCES =
%C%_libmoetrace_la_LIBADD = %D%/libmt_trace.la
%C%_libmoetrace_la_LDFLAGS = \
	$(AM_LDFLAGS) \
	-no-undefined \
	-version-info $(MOETRACE_LT_VERSION) \
	$(MT_NODELETE_LDFLAGS) $(MT_DEFS_LDFLAGS)

EXTRA_DIST += %D%/libmoetrace.map
if HAVE_VERSION_SCRIPT
%C%_libmoetrace_la_LDFLAGS += -Wl,--version-script=$(srcdir)/%D%/libmoetrace.map
%C%_libmoetrace_la_DEPENDENCIES = %D%/libmt_trace.la %D%/libmoetrace.map
else
%C%_libmoetrace_la_LDFLAGS += -export-symbols-regex '^moetrace_'
endif

# The schema's files as byte arrays, in the order in which they are applied.
%D%/store/schema_sql.c: $(schema_sql_files) build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D%/store && \
	$(SHELL) $(srcdir)/build-aux/embed.sh $@ $(srcdir) $(schema_sql_files)
CLEANFILES += %D%/store/schema_sql.c

# The kernels' code as text. It is committed; `make ptx` makes it again from its source.
%D%/cuda/kernels_ptx.c: %D%/cuda/kernels.ptx build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D%/cuda && \
	$(SHELL) $(srcdir)/build-aux/embed.sh -n kernels -i libtrace/cuda/kernels.h $@ $(srcdir) \
		libtrace/cuda/kernels.ptx
CLEANFILES += %D%/cuda/kernels_ptx.c
EXTRA_DIST += %D%/cuda/kernels.cu %D%/cuda/kernels.ptx

ptx:
	$(SHELL) $(srcdir)/build-aux/make-ptx.sh '$(NVCC)' $(srcdir) $(builddir)
.PHONY: ptx
