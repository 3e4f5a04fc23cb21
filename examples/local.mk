# SPDX-License-Identifier: MIT
#
# The example model and its workload travel with the sources.

EXTRA_DIST += \
	%D%/tinymoe/tinymoe.safetensors \
	%D%/tinymoe/workload.jsonl \
	%D%/tinymoe/text/c.txt \
	%D%/tinymoe/text/js.txt \
	%D%/tinymoe/text/perl.txt \
	%D%/tinymoe/text/prose.txt \
	%D%/tinymoe/text/py.txt
