# SPDX-License-Identifier: MIT
#
# The manual pages, made from what the built command says of itself: moetrace(1),
# and moetrace-VERB(1) for each verb of the list; and the documents beside them.

# One a line, in the order of the command's own list.
moetrace_verbs = \
	run \
	report \
	requests \
	experts \
	balance \
	efficiency \
	eplb \
	oea \
	kernels \
	power \
	diff \
	info \
	dump \
	query \
	plot \
	view \
	top \
	route \
	eval \
	models \
	list \
	status \
	start \
	stop \
	rotate \
	overhead \
	recover \
	doctor \
	check

moetrace_pages = %D%/moetrace.1 $(moetrace_verbs:%=%D%/moetrace-%.1)

dist_doc_DATA += %D%/collectors.md %D%/control.md %D%/cookbook.md %D%/integration.md %D%/llama.cpp.md %D%/oea.md %D%/routing-faults.md %D%/schema.md %D%/top.md %D%/viewer.md
dist_doc_DATA += %D%/viewer-heatmap.png %D%/viewer-oea.png %D%/viewer-timeline.png
dist_doc_DATA += %D%/performance.md %D%/performance-engine.md
EXTRA_DIST += %D%/moetrace.h2m

if HAVE_HELP2MAN
man_MANS += $(moetrace_pages)
CLEANFILES += $(moetrace_pages)

$(moetrace_pages): cli/moetrace$(EXEEXT) %D%/moetrace.h2m build-aux/man-page.sh
	$(AM_V_GEN)$(MKDIR_P) %D% && HELP2MAN='$(HELP2MAN)' \
		$(SHELL) $(srcdir)/build-aux/man-page.sh ./cli/moetrace$(EXEEXT) $@ \
		$(srcdir)/%D%/moetrace.h2m
endif
