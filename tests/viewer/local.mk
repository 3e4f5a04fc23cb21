# SPDX-License-Identifier: MIT
#
# The page's server, and the page.

check_PROGRAMS += %D%/ask
%C%_ask_SOURCES = %D%/ask.c
%C%_ask_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE

if HAVE_CHECK
check_PROGRAMS += %D%/check_timeline
TESTS += %D%/check_timeline
thread_tests += %D%/check_timeline
endif
%C%_check_timeline_SOURCES = %D%/check_timeline.c
nodist_%C%_check_timeline_SOURCES = libtrace/store/schema_sql.c
%C%_check_timeline_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE $(CHECK_CFLAGS) $(SQLITE3_CFLAGS)
%C%_check_timeline_LDADD = \
	viewer/libmt_view.la \
	schema/libmt_questions.la \
	schema/functions/libmt_sql.la \
	schema/libmt_reference.la \
	common/libmt_json.la \
	common/libmt_common.la \
	$(CHECK_LIBS) $(SQLITE3_LIBS) $(PTHREAD_LIBS) -lm

viewer_tests = \
	%D%/bundle.sh \
	%D%/busy.sh \
	%D%/changed.sh \
	%D%/file.sh \
	%D%/hostile.sh \
	%D%/live.sh \
	%D%/numbers.sh \
	%D%/page.sh \
	%D%/progress.sh \
	%D%/redact.sh \
	%D%/security.sh
TESTS += $(viewer_tests)

# Their packages are looked for in the source tree, where a release has none.
tree_tests += %D%/bundle.sh %D%/page.sh
tree_programs += %D%/ask tests/schema/make_trace

EXTRA_DIST += \
	%D%/bundle.sh \
	%D%/busy.sh \
	%D%/changed.sh \
	%D%/file.sh \
	%D%/hostile.sh \
	%D%/live.sh \
	%D%/numbers.sh \
	%D%/page.sh \
	%D%/progress.sh \
	%D%/redact.sh \
	%D%/security.sh \
	%D%/big.sql \
	%D%/page.mjs \
	%D%/page-address.mjs \
	%D%/page-browser.mjs \
	%D%/page-live.mjs \
	%D%/page-measure.mjs \
	%D%/page-timeline.mjs \
	%D%/page-views.mjs \
	%D%/slow.sql \
	%D%/text.jsonl \
	%D%/timeline.sql \
	%D%/picture.mjs \
	%D%/view.sh
