# SPDX-License-Identifier: MIT
#
# Hostile input. check_mutations runs in every build; fuzz.sh builds the libFuzzer
# targets itself where a clang has libFuzzer.

if HAVE_CHECK
if HAVE_YAJL
check_PROGRAMS += %D%/check_mutations
TESTS += %D%/check_mutations

%C%_check_mutations_SOURCES = %D%/check_mutations.c \
	%D%/fuzz_input.c %D%/fuzz_input.h \
	tests/engine/support/model_file.c tests/engine/support/model_file.h
%C%_check_mutations_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_check_mutations_LDADD = kernels/libmtk.la common/libmt_json.la $(CHECK_LIBS) $(PTHREAD_LIBS) -lm
endif
endif

TESTS += %D%/fuzz.sh
long_tests += %D%/fuzz.sh

EXTRA_DIST += \
	%D%/fuzz.sh \
	%D%/fuzz_json.c \
	%D%/fuzz_safetensors.c \
	%D%/fuzz_workload.c \
	%D%/corpus/json/nested.json \
	%D%/corpus/json/strings.json \
	%D%/corpus/json/twice.json \
	%D%/corpus/safetensors/config.safetensors \
	%D%/corpus/safetensors/empty.safetensors \
	%D%/corpus/safetensors/overlap.safetensors \
	%D%/corpus/safetensors/settings.safetensors \
	%D%/corpus/safetensors/types.safetensors \
	%D%/corpus/workload/missing.jsonl \
	%D%/corpus/workload/three.jsonl
