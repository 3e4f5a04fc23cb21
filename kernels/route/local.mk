# SPDX-License-Identifier: MIT
#
# Routing: the setting and its check, the definition, the vector path (which
# cpu_avx2.c and cpu_avx512.c include), and what they share.

kernels_libmtk_la_SOURCES += \
	%D%/route.h \
	%D%/route_config.c \
	%D%/route_cpu.c \
	%D%/route_impl.h \
	%D%/route_row.c \
	%D%/route_variant.c %D%/route_variant.h \
	%D%/route_score_vec.h \
	%D%/route_take_vec.h \
	%D%/route_vec.h \
	%D%/route_work_vec.h \
	%D%/sigmoid_vec.h
