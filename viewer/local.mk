# SPDX-License-Identifier: MIT
#
# The page: what answers its questions, and where libmicrohttpd is, the server. The page's sources
# are in page/, its bundle in dist/ is committed, so that a build needs no Node.

viewer_page_files = \
	viewer/dist/index.html \
	viewer/dist/app.js \
	viewer/dist/app.css \
	viewer/dist/script.sha256 \
	docs/cookbook.md

noinst_LTLIBRARIES += %D%/libmt_view.la

%C%_libmt_view_la_SOURCES = \
	%D%/answer.c %D%/answer.h \
	%D%/export.c \
	%D%/guard.c %D%/guard.h \
	%D%/page.h \
	%D%/progress.c %D%/progress.h \
	%D%/query.c \
	%D%/redact.c %D%/redact.h \
	%D%/reply.c %D%/reply.h \
	%D%/source.c %D%/source.h \
	%D%/state.c %D%/state.h \
	%D%/timeline.c %D%/timeline.h \
	%D%/timeline_bins.c %D%/timeline_bins.h \
	%D%/timeline_depth.c \
	%D%/timeline_exact.c \
	%D%/timeline_read.c \
	%D%/timeline_scan.c %D%/timeline_scan.h \
	%D%/timeline_scan_internal.h \
	%D%/timeline_scan_kernel.c \
	%D%/timeline_scan_power.c \
	%D%/view.h
nodist_%C%_libmt_view_la_SOURCES = %D%/page_data.c
%C%_libmt_view_la_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE $(SQLITE3_CFLAGS) $(MICROHTTPD_CFLAGS)
%C%_libmt_view_la_LIBADD = $(MICROHTTPD_LIBS) $(PTHREAD_LIBS)

if HAVE_MICROHTTPD
%C%_libmt_view_la_SOURCES += %D%/server.c
EXTRA_DIST += %D%/no_server.c
else
%C%_libmt_view_la_SOURCES += %D%/no_server.c
EXTRA_DIST += %D%/server.c
endif

%D%/page_data.c: $(viewer_page_files) build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D% && \
	$(SHELL) $(srcdir)/build-aux/embed.sh -n page -i viewer/page.h $@ $(srcdir) $(viewer_page_files)
CLEANFILES += %D%/page_data.c

viewer_page_sources = \
	viewer/page/.npmrc \
	viewer/page/build.mjs \
	viewer/page/package-lock.json \
	viewer/page/package.json \
	viewer/page/tsconfig.json \
	viewer/page/src/address.ts \
	viewer/page/src/bars.ts \
	viewer/page/src/bars_draw.ts \
	viewer/page/src/chart.tsx \
	viewer/page/src/color.ts \
	viewer/page/src/data.ts \
	viewer/page/src/export.ts \
	viewer/page/src/feed.ts \
	viewer/page/src/format.ts \
	viewer/page/src/heat.ts \
	viewer/page/src/index.html \
	viewer/page/src/keys.ts \
	viewer/page/src/live.tsx \
	viewer/page/src/load.ts \
	viewer/page/src/main.tsx \
	viewer/page/src/parts.tsx \
	viewer/page/src/pinch.ts \
	viewer/page/src/plot.ts \
	viewer/page/src/search.tsx \
	viewer/page/src/state.ts \
	viewer/page/src/style.css \
	viewer/page/src/style.d.ts \
	viewer/page/src/svg.ts \
	viewer/page/src/table.tsx \
	viewer/page/src/tokens.ts \
	viewer/page/src/trouble.tsx \
	viewer/page/src/use.ts \
	viewer/page/src/view.ts \
	viewer/page/src/views/compare.tsx \
	viewer/page/src/views/heatmap.tsx \
	viewer/page/src/views/heatmap_frame.ts \
	viewer/page/src/views/heatmap_time.tsx \
	viewer/page/src/views/oea.tsx \
	viewer/page/src/views/oea_rule.tsx \
	viewer/page/src/views/oea_time.tsx \
	viewer/page/src/views/overview.tsx \
	viewer/page/src/views/query.tsx \
	viewer/page/src/views/ranks.tsx \
	viewer/page/src/views/request.tsx \
	viewer/page/src/views/request_tokens.tsx \
	viewer/page/src/views/timeline.tsx \
	viewer/page/src/views/timeline_behind.tsx \
	viewer/page/src/views/timeline_picture.tsx

# The bundle, after a change of the page's sources; needs Node and `npm ci` in viewer/page.
page:
	cd $(srcdir)/%D%/page && node_modules/.bin/tsc && node build.mjs
.PHONY: page

EXTRA_DIST += \
	viewer/dist/app.css \
	viewer/dist/app.js \
	viewer/dist/index.html \
	viewer/dist/script.sha256 \
	$(viewer_page_sources)
