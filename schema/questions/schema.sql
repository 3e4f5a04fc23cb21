-- SPDX-License-Identifier: MIT
--
-- The tables and views of a trace with their columns.
-- @rows 5000
SELECT m.type, m.name, c.name AS column, c.type AS column_type
FROM sqlite_schema AS m, pragma_table_info(m.name) AS c
WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'
ORDER BY m.type, m.name, c.cid
