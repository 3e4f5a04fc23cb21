# SPDX-License-Identifier: MIT
#
# The SQL files, in the order in which they are applied. libtrace/local.mk
# embeds them.

schema_sql_files =

EXTRA_DIST += $(schema_sql_files)
