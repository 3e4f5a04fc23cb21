# SPDX-License-Identifier: MIT
#
# The serving half of the engine: files, workloads, the batch scheduler.

%C%_sources = \
	%D%/backend.h %D%/backend_cpu.c \
	%D%/error.c %D%/error.h \
	%D%/eval.c %D%/eval.h \
	%D%/safetensors.c %D%/safetensors.h \
	%D%/safetensors_header.c %D%/safetensors_impl.h \
	%D%/qwen3moe_config.c %D%/qwen3moe_config.h \
	%D%/workload.c %D%/workload.h \
	%D%/workload_line.c %D%/workload_impl.h \
	%D%/prefix.c %D%/prefix.h \
	%D%/scheduler.c %D%/scheduler.h \
	%D%/serve.c %D%/serve.h \
	%D%/serve_record.c %D%/serve_record.h \
	%D%/serve_record_model.c

kernels_libmtk_la_SOURCES += $(%C%_sources)
