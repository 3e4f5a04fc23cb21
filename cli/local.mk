# SPDX-License-Identifier: MIT
#
# The command: one file cmd_VERB.c a verb.

bin_PROGRAMS += %D%/moetrace

%C%_moetrace_SOURCES = \
	%D%/check.h \
	%D%/check_counts.c \
	%D%/check_define.c \
	%D%/check_extra.c \
	%D%/check_order.c \
	%D%/check_layer.c \
	%D%/check_load.c \
	%D%/check_reuse.c \
	%D%/check_scan.c \
	%D%/check_schema.c \
	%D%/check_serial.c \
	%D%/check_source.c \
	%D%/check_span.c \
	%D%/check_sql.c \
	%D%/check_timing.c \
	%D%/check_window.c \
	%D%/clean.c %D%/clean.h \
	%D%/cli.c %D%/cli.h \
	%D%/cli_args.c \
	%D%/cli_open.c \
	%D%/cli_sql.c \
	%D%/cli_verb.c \
	%D%/cmd_balance.c \
	%D%/cmd_doctor.c \
	%D%/cmd_kernels.c \
	%D%/cmd_power.c \
	%D%/cmd_check.c \
	%D%/cmd_control.c \
	%D%/cmd_diff.c %D%/diff_sql.h \
	%D%/cmd_dump.c %D%/cmd_dump.h \
	%D%/cmd_dump_live.c \
	%D%/cmd_efficiency.c %D%/efficiency_sql.h %D%/energy_sql.h \
	%D%/cmd_eplb.c %D%/cmd_eplb.h \
	%D%/cmd_eplb_loads.c \
	%D%/eplb_export.c \
	%D%/cmd_eval.c \
	%D%/cmd_experts.c \
	%D%/experts_sql.h \
	%D%/explain.c %D%/explain.h \
	%D%/cmd_info.c \
	%D%/cmd_models.c \
	%D%/cmd_oea_args.c \
	%D%/cmd_oea.c %D%/cmd_oea.h \
	%D%/cmd_oea_verify.c \
	%D%/cmd_overhead.c \
	%D%/cmd_plot.c \
	%D%/cmd_query.c \
	%D%/cmd_recover.c \
	%D%/cmd_report.c \
	%D%/cmd_requests.c %D%/cmd_requests.h \
	%D%/cmd_requests_compare.c \
	%D%/cmd_requests_one.c \
	%D%/cmd_route.c %D%/cmd_route.h \
	%D%/cmd_route_args.c \
	%D%/cmd_run.c %D%/cmd_run.h \
	%D%/cmd_run_args.c \
	%D%/cmd_run_complete.c \
	%D%/cmd_run_compare.c \
	%D%/cmd_run_files.c \
	%D%/cmd_run_memory.c \
	%D%/cmd_run_print.c \
	%D%/cmd_run_replay.c \
	%D%/cmd_run_shape.c \
	%D%/cmd_run_signal.c \
	%D%/cmd_run_text.c \
	%D%/device_args.c %D%/device_args.h \
	%D%/file_read.c %D%/file_read.h \
	%D%/lift.c %D%/lift.h \
	%D%/model_load.c %D%/model_load.h \
	%D%/live.c %D%/live.h \
	%D%/moetrace.c \
	%D%/notes.c %D%/notes.h \
	%D%/out_file.c %D%/out_file.h \
	%D%/out_input.c \
	%D%/output.c \
	%D%/paired.c %D%/paired.h \
	%D%/plot.h \
	%D%/plot_axis.c \
	%D%/plot_balance.c \
	%D%/plot_color.c %D%/plot_color.h \
	%D%/plot_frame.c \
	%D%/plot_heat.c \
	%D%/plot_load.c \
	%D%/plot_oea.c \
	%D%/plot_order.c \
	%D%/plot_power.c \
	%D%/read_ahead.c %D%/read_ahead.h \
	%D%/request_find.c %D%/request_find.h \
	%D%/rule_args.c %D%/rule_args.h \
	%D%/routing.h \
	%D%/routing_bias.c \
	%D%/routing_define.c \
	%D%/routing_dispatch.c \
	%D%/routing_judge.c %D%/routing_judge.h \
	%D%/routing_judge_weights.c \
	%D%/routing_preset.c \
	%D%/routing_print.c \
	%D%/routing_rows.c \
	%D%/routing_scan.c \
	%D%/routing_scores.c \
	%D%/routing_tables.c \
	%D%/snapshot.c %D%/snapshot.h \
	%D%/svg.c %D%/svg.h \
	%D%/cmd_view.c \
	%D%/cmd_top.c %D%/top.h \
	%D%/top_canvas.c %D%/top_canvas.h \
	%D%/top_data.c \
	%D%/top_draw.c \
	%D%/top_facts.c \
	%D%/top_frame.c \
	%D%/top_kernels.c \
	%D%/top_layers.c \
	%D%/top_map.c \
	%D%/top_plain.c \
	%D%/top_power.c \
	%D%/top_read.c \
	%D%/top_source.c \
	%D%/top_state.c \
	%D%/top_text.c \
	%D%/top_totals.c \
	%D%/table.c %D%/table.h
if HAVE_NCURSES
%C%_moetrace_SOURCES += %D%/top_screen.c
else
%C%_moetrace_SOURCES += %D%/top_no_screen.c
endif
%C%_moetrace_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS) $(NCURSES_CFLAGS) $(%C%_cuda_flags)
if HAVE_NVCC
%C%_cuda_flags = -DMT_HAS_CUDA_ENGINE
%C%_cuda_libs = kernels/libmtk_cuda.a
%C%_cuda_runtime = $(CUDA_LIBS) -lm
endif
%C%_moetrace_LDADD = \
	viewer/libmt_view.la \
	schema/libmt_questions.la \
	schema/functions/libmt_sql.la \
	schema/libmt_reference.la \
	$(%C%_cuda_libs) \
	kernels/libmtk.la \
	libtrace/libmt_trace.la \
	common/libmt_json.la \
	common/libmt_common.la \
	$(SQLITE3_LIBS) \
	$(NCURSES_LIBS) \
	-lm \
	$(%C%_cuda_runtime) \
	$(PTHREAD_LIBS)
