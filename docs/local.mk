# SPDX-License-Identifier: MIT
#
# The manual pages, made from what the built command says of itself: moetrace(1),
# and moetrace-VERB(1) for each verb of the list; and the documents beside them.

moetrace_verbs = run report dump requests experts balance query info check route eval models
moetrace_verbs += list status start stop
moetrace_pages = %D%/moetrace.1 $(moetrace_verbs:%=%D%/moetrace-%.1)

dist_doc_DATA += %D%/control.md %D%/cookbook.md %D%/schema.md
EXTRA_DIST += %D%/moetrace.h2m

if HAVE_HELP2MAN
man_MANS += $(moetrace_pages)
CLEANFILES += $(moetrace_pages)

$(moetrace_pages): cli/moetrace$(EXEEXT) %D%/moetrace.h2m build-aux/man-page.sh
	$(AM_V_GEN)$(MKDIR_P) %D% && HELP2MAN='$(HELP2MAN)' \
		$(SHELL) $(srcdir)/build-aux/man-page.sh ./cli/moetrace$(EXEEXT) $@ \
		$(srcdir)/%D%/moetrace.h2m
endif
