# SPDX-License-Identifier: MIT
#
# The SQL files, in the order in which they are applied: a view comes after the
# views that it reads. libtrace/local.mk embeds them for the recorder, which makes
# traces; libmt_reference.la holds them for the command, which compares traces with them.

schema_sql_files = \
	schema/0001-core.sql \
	schema/0002-timing.sql \
	schema/views/expert_load.sql \
	schema/views/layer_balance.sql \
	schema/views/expert_coverage.sql \
	schema/views/pass_summary.sql \
	schema/views/request_summary.sql \
	schema/views/stored_topk.sql \
	schema/views/token_topk.sql \
	schema/views/routed_expert.sql \
	schema/views/kernel_event.sql \
	schema/views/layer_time.sql \
	schema/views/kernel_summary.sql \
	schema/views/power.sql \
	schema/views/energy_window.sql \
	schema/views/overlap.sql \
	schema/views/nsight.sql \
	schema/views/rule_effect.sql \
	schema/views/pass_expert.sql \
	schema/views/align_waste.sql \
	schema/views/loss.sql

noinst_LTLIBRARIES += %D%/libmt_reference.la
%C%_libmt_reference_la_SOURCES = %D%/reference.h
nodist_%C%_libmt_reference_la_SOURCES = %D%/schema_sql.c

%D%/schema_sql.c: $(schema_sql_files) build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D% && \
	$(SHELL) $(srcdir)/build-aux/embed.sh -n reference -i schema/reference.h \
		$@ $(srcdir) $(schema_sql_files)
CLEANFILES += %D%/schema_sql.c

# The questions that the command and the page ask alike.
question_sql_files = \
	schema/questions/attempts.sql \
	schema/questions/balance.sql \
	schema/questions/cell.sql \
	schema/questions/gaps.sql \
	schema/questions/graph_node.sql \
	schema/questions/info.sql \
	schema/questions/kernel.sql \
	schema/questions/kernels.sql \
	schema/questions/load.sql \
	schema/questions/load_attribute.sql \
	schema/questions/load_merged.sql \
	schema/questions/load_request.sql \
	schema/questions/load_weight.sql \
	schema/questions/load_windows.sql \
	schema/questions/load_windows_merged.sql \
	schema/questions/map.sql \
	schema/questions/oea.sql \
	schema/questions/oea_expand.sql \
	schema/questions/oea_fit.sql \
	schema/questions/oea_notes.sql \
	schema/questions/oea_verify.sql \
	schema/questions/pass.sql \
	schema/questions/ranks.sql \
	schema/questions/report.sql \
	schema/questions/request.sql \
	schema/questions/request_topk.sql \
	schema/questions/requests.sql \
	schema/questions/schema.sql \
	schema/questions/selection.sql \
	schema/questions/similarity.sql \
	schema/questions/sources.sql \
	schema/questions/throttles.sql

noinst_LTLIBRARIES += %D%/libmt_questions.la
%C%_libmt_questions_la_SOURCES = %D%/functions/questions.c %D%/functions/questions.h \
	%D%/functions/statement.h
nodist_%C%_libmt_questions_la_SOURCES = %D%/questions_sql.c

%D%/questions_sql.c: $(question_sql_files) build-aux/embed.sh
	$(AM_V_GEN)$(MKDIR_P) %D% && \
	$(SHELL) $(srcdir)/build-aux/embed.sh -n question -i schema/functions/questions.h \
		$@ $(srcdir) $(question_sql_files)
CLEANFILES += %D%/questions_sql.c

EXTRA_DIST += \
	$(question_sql_files) \
	$(schema_sql_files) \
	docs/cookbook.md \
	docs/schema.md \
	build-aux/schema-doc.sh

# docs/schema.md is committed, so that it can be read without a build; a test compares it.
schema-doc:
	$(SHELL) $(srcdir)/build-aux/schema-doc.sh $(srcdir) $(schema_sql_files) \
		>$(srcdir)/docs/schema.md.tmp
	mv $(srcdir)/docs/schema.md.tmp $(srcdir)/docs/schema.md
.PHONY: schema-doc
