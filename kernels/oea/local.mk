# SPDX-License-Identifier: MIT
#
# Opportunistic expert activation: its settings, and the rule.

kernels_libmtk_la_SOURCES += \
	%D%/oea.h \
	%D%/oea_config.c \
	%D%/oea_cpu.c
