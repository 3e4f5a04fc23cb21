# SPDX-License-Identifier: MIT
#
# The examples are built by their own Makefile, as a reader builds them: tests/build/installed.sh.
# The example model and its workload travel with the sources.

EXTRA_DIST += \
	%D%/Makefile \
	%D%/toy_runtime.c \
	%D%/threaded_server.c \
	%D%/request_experts.c \
	%D%/llama.cpp/Makefile \
	%D%/llama.cpp/compare.sql \
	%D%/llama.cpp/convert.py \
	%D%/llama.cpp/llama_record.c \
	%D%/llama.cpp/moetrace_llama.c \
	%D%/llama.cpp/moetrace_llama.h \
	%D%/llama.cpp/stand-in/ggml.h \
	%D%/llama.cpp/stand-in/ggml-backend.h \
	%D%/llama.cpp/stand-in/llama.h \
	%D%/tinymoe/tinymoe.safetensors \
	%D%/tinymoe/workload.jsonl \
	%D%/tinymoe/text/c.txt \
	%D%/tinymoe/text/js.txt \
	%D%/tinymoe/text/perl.txt \
	%D%/tinymoe/text/prose.txt \
	%D%/tinymoe/text/py.txt
