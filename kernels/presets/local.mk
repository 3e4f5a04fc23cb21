# SPDX-License-Identifier: MIT
#
# Known models: their routing and their dimensions.

kernels_libmtk_la_SOURCES += \
	%D%/presets.c %D%/presets.h
