# SPDX-License-Identifier: MIT
#
# check on what was timed and measured: each line below fails without its part of the proof.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
# The proofs are SQL: sanitizers see the same code in each of them.
if is_sanitized; then
	: >"$tmp/violated"
	violates_at_most=5
fi

violates values "UPDATE string SET role = 'gemm' WHERE string_id = 1;"
violates values "UPDATE string SET moves_data = NULL WHERE string_id = 1;"
violates values "UPDATE string SET moves_data = 2 WHERE string_id = 1;"
violates values "UPDATE string SET value = '' WHERE string_id = 3;"
violates values "INSERT INTO string VALUES (4, 'step', NULL, NULL);"
violates values "UPDATE kernel SET known_by = 5 WHERE kernel_id = 2;"
violates values "UPDATE kernel SET known_by = NULL WHERE kernel_id = 2;"
violates values "UPDATE kernel SET known_by = 1 WHERE kernel_id = 3;"
violates values "UPDATE graph_node SET known_by = NULL WHERE node = 0;"
violates values "UPDATE graph_node SET graph = 0;"
violates values "UPDATE graph_launch SET known_by = NULL WHERE graph_launch_id = 1;"
violates values "UPDATE collective SET kind = 'gossip' WHERE collective_id = 1;"
violates values "UPDATE collective SET n_ranks = 0 WHERE collective_id = 1;"
violates values "UPDATE collector_overhead SET kind = 'waiting' WHERE collector_overhead_id = 1;"
violates values "UPDATE power_sample SET domain = '' WHERE power_sample_id = 4;"
violates values "UPDATE power_sample SET source = 'guess' WHERE power_sample_id = 4;"
violates values "UPDATE device_clock SET clock = 'sundial';"
violates values "UPDATE device_clock SET device_id = NULL WHERE clock = 'gpu_timer';"
violates values "UPDATE device_clock SET device_id = 2 WHERE clock = 'cupti';"
violates values "UPDATE collector SET name = 'engine' WHERE name = 'nvtx';"
violates values "UPDATE collector SET state = 'off' WHERE name = 'nvtx';"
for mode in kernel:often kernel:every= kernel:every=0 kernel:every=1000001 kernel:every=5x \
	kernel:every=99999999999999999999 kernel:per_s=0 kernel:per_s=101 kernel:window=0+0 \
	kernel:window=1+ kernel:window=1+2+3 kernel:window=1000001+1 kernel:window=1x+1 ''; do
	violates values "UPDATE collector SET mode = '$mode' WHERE name = 'cupti' AND recording_id = 1;"
done
violates values "UPDATE collector SET mode = 'graph' WHERE name = 'host';"
violates values "UPDATE collector SET version = '1' WHERE name = 'rapl';"
violates values "UPDATE power_sample SET domain = 'package-0' WHERE power_sample_id = 1;"
for mode in kernel kernel:every=1000000 kernel:per_s=100 kernel:window=0+5; do
	holds "UPDATE collector SET mode = '$mode' WHERE name = 'cupti';
		UPDATE power_sample SET domain = 'memory', throttle_reasons = NULL, processor_mhz = NULL,
		memory_mhz = NULL, temperature_c = NULL, cost_ns = NULL WHERE power_sample_id = 2;"
done
violates values "UPDATE power_sample SET domain = 'gpu' WHERE power_sample_id = 4;"
violates values "UPDATE collector SET version = '' WHERE name = 'nvml';"
violates values "UPDATE collector SET reason = '' WHERE name = 'nvml';"
violates values "UPDATE device_clock SET device_id = 1 WHERE clock = 'gpu_timer';"
violates values "UPDATE device SET uuid = NULL WHERE device_id = 2;"
violates values "UPDATE device SET uuid = '' WHERE device_id = 2;"
violates values "UPDATE device SET uuid = 'HOST-1' WHERE device_id = 1;"
violates values "UPDATE device SET power_limit_mw = 1 WHERE device_id = 1;"
violates values "UPDATE device SET n_processors = 1 WHERE device_id = 2;"
violates values "INSERT INTO device (device_id, process_id, kind, uuid) VALUES (3, 1, 'cuda', 'GPU-1');"
violates values "INSERT INTO device (device_id, process_id, kind) VALUES (3, 1, 'host');"
another="INSERT INTO process (process_id, pid) VALUES (2, 2); INSERT INTO device (device_id, process_id, kind, uuid)
	VALUES (3, 2, 'host', NULL), (4, 2, 'cuda', 'GPU-1');"
holds "$another"
violates values "$another UPDATE power_sample SET device_id = 4 WHERE device_id = 2;"
violates values "$another UPDATE device_link SET device_id = 4;"
violates values "$another UPDATE kernel SET device_id = 4 WHERE device_id = 2;"
violates values "$another UPDATE graph_launch SET device_id = 4;"
violates values "$another UPDATE device_clock SET device_id = 4 WHERE device_id = 2;"
violates values "UPDATE kernel SET known_by = 2 WHERE kernel_id = 2;"
violates values "UPDATE kernel SET known_by = 3 WHERE kernel_id = 2;"
violates values "UPDATE graph_node SET known_by = 0 WHERE node = 0;"
violates values "UPDATE graph_node SET known_by = 1 WHERE node = 0;"
violates values "UPDATE graph_launch SET known_by = 0 WHERE graph_launch_id = 1;"
violates values "UPDATE graph_launch SET known_by = 2 WHERE graph_launch_id = 1;"
violates values "UPDATE graph_launch SET known_by = 3 WHERE graph_launch_id = 1;"
violates values "INSERT INTO gap VALUES (1, 1, 'kernels', 0, 1, 1, NULL, 'ring_full');"
holds "INSERT INTO diagnostic VALUES (1, 1, 5, 'info', 'cupti', 'a message', 1);"

violates times "UPDATE kernel SET flags = 64 WHERE kernel_id = 3;"
violates times "UPDATE kernel SET end_ns = 5000 WHERE kernel_id = 1;"
violates times "UPDATE kernel SET flags = 2 WHERE kernel_id = 1;"
violates times "UPDATE kernel SET end_ns = NULL WHERE kernel_id = 1;"
violates times "UPDATE kernel SET flags = 8 WHERE kernel_id = 3;"
violates times "UPDATE graph_launch SET end_ns = 7000 WHERE graph_launch_id = 1;"
violates times "UPDATE collector_overhead SET end_ns = 6999 WHERE collector_overhead_id = 2;"
violates times "UPDATE collective SET end_ns = 5034 WHERE collective_id = 1;"
violates times "UPDATE range SET end_ns = 4000 WHERE range_id = 1;"
violates times "INSERT INTO device_clock VALUES (3, 1, 2, 'gpu_timer', 100, 777100, 40),
	(4, 1, 2, 'gpu_timer', 50, 777050, 40);"
violates times "INSERT INTO device_clock VALUES (3, 1, 2, 'gpu_timer', 1000000, 1778181, 40);"
violates times "UPDATE device_clock SET session_ns = 9500 WHERE clock = 'cupti';"
# A clock of the host is set back, which the snapshots around it say, or say not; without any after it
# nothing is known.
longer="UPDATE recording SET end_ns = 2000000 WHERE recording_id = 2;"
holds "$longer INSERT INTO device_clock VALUES (3, 1, 2, 'gpu_timer', 1000000, 1777900, 40),
	(4, 1, NULL, 'cupti', 1000000, 1600000000000000000, 30);"
holds "$longer INSERT INTO device_clock VALUES (4, 1, NULL, 'cupti', 1000000, 1600000000000000000, 30);
	INSERT INTO clock_snapshot VALUES (2, 1, 2000000, 2005000, 1600000000001000000, 10);"
violates times "$longer INSERT INTO device_clock VALUES (4, 1, NULL, 'cupti', 1000000, 1600000000000000000, 30);
	INSERT INTO clock_snapshot VALUES (2, 1, 2000000, 2005000, 1700000000002000000, 10);"
violates times "$longer INSERT INTO device_clock VALUES (4, 1, NULL, 'cupti', 1000000, 1700000000004000000, 30);
	INSERT INTO clock_snapshot VALUES (2, 1, 2000000, 2005000, 1700000000002000000, 10);"
holds "UPDATE kernel SET end_ns = 5000, flags = 2 WHERE kernel_id = 2;
	UPDATE collector SET n_invalid = 3 WHERE name = 'cupti' AND recording_id = 1;"

violates timing "UPDATE kernel SET recording_id = 2 WHERE kernel_id = 2;"
violates timing "UPDATE kernel SET end_ns = 5101 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET start_ns = 4999 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET layer_id = 3 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET name_id = 3 WHERE kernel_id = 1;"
violates timing "UPDATE graph_node SET name_id = 3 WHERE node = 1;"
violates timing "UPDATE graph_launch SET recording_id = 2 WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET node_times = x'00' WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET node_times = NULL WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET graph = NULL WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET n_untimed = NULL WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET n_untimed = 1 WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET n_untimed = 0 WHERE graph_launch_id = 3;"
violates timing "UPDATE graph_launch SET end_ns = 7091 WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET node_times = x'010000001e0000002800000028000000' WHERE
	graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET node_times = x'000000001e00000028000000ffffffff' WHERE
	graph_launch_id = 1;"
violates timing "UPDATE graph_node SET layer_id = 3 WHERE node = 1;"
violates timing "DELETE FROM graph_node WHERE node = 1;"
violates timing "UPDATE graph_node SET node = 2 WHERE node = 0;"
violates timing "UPDATE collective SET recording_id = 2 WHERE collective_id = 1;"
violates timing "UPDATE collective SET layer_id = 3 WHERE collective_id = 1;"
violates timing "UPDATE collective SET end_ns = 5101 WHERE collective_id = 1;"
violates timing "UPDATE collective SET protocol_id = 1 WHERE collective_id = 1;"
violates timing "UPDATE collective SET end_ns = 4999 WHERE collective_id = 2;"
violates timing "UPDATE range SET name_id = 1 WHERE range_id = 1;"
violates timing "UPDATE range SET end_ns = 4995 WHERE range_id = 2; UPDATE range SET start_ns = 4900 WHERE
	range_id = 2;"
holds "UPDATE range SET end_ns = 4995, start_ns = 4900, thread = 2 WHERE range_id = 2;"
violates timing "UPDATE graph_launch SET graph = NULL, n_nodes = NULL, n_untimed = NULL, node_times = NULL;"
violates timing "INSERT INTO graph_node VALUES (2, 0, 1, NULL, NULL, NULL, 7, 0);"
violates timing "UPDATE graph_launch SET graph = 9, n_nodes = 0, n_untimed = 0, node_times = x'' WHERE
	graph_launch_id = 2;"
violates timing "UPDATE graph_node SET branch = NULL WHERE node = 1;"
violates timing "UPDATE graph_node SET branch = 2 WHERE node = 1;"
violates timing "UPDATE collector_overhead SET correlation = 0 WHERE collector_overhead_id = 2;"
violates timing "UPDATE range SET recording_id = 2 WHERE range_id = 1;"
violates timing "UPDATE range SET start_ns = 9001, end_ns = 9002 WHERE range_id = 2;"
violates timing "UPDATE range SET end_ns = 9001 WHERE range_id = 2;"
violates timing "UPDATE range SET thread = 0 WHERE range_id = 2;"
violates timing "UPDATE kernel SET pass_id = NULL WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET flags = 4 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET flags = 8 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET known_by = 1 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET device_id = 2 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET known_by = 0 WHERE kernel_id = 2;"
violates timing "UPDATE kernel SET stream = 1 WHERE kernel_id = 1;"
holds "UPDATE kernel SET end_ns = 5101, flags = 4 WHERE kernel_id = 1;"
violates timing "UPDATE kernel SET flags = 4 WHERE kernel_id = 2;"
violates timing "UPDATE kernel SET flags = 1 WHERE kernel_id = 2;"
violates timing "UPDATE kernel SET flags = 16 WHERE kernel_id = 2;"
violates timing "UPDATE kernel SET flags = 9 WHERE kernel_id = 3;"
violates timing "UPDATE kernel SET flags = 8 WHERE kernel_id = 2; UPDATE pass SET end_ns = 5039 WHERE
	pass_id = 5;"
violates timing "UPDATE kernel SET known_by = 4, pass_id = NULL WHERE kernel_id = 2;"
violates timing "UPDATE kernel SET start_ns = 1000010000, end_ns = 1000010001 WHERE kernel_id = 2;"
violates timing "UPDATE recording SET start_ns = 5121 WHERE recording_id = 1;"
violates timing "UPDATE pass SET begin_ns = 2000000, end_ns = 2000001 WHERE pass_id = 5;"
violates timing "UPDATE graph_launch SET known_by = 4 WHERE graph_launch_id = 1; UPDATE pass SET
	begin_ns = 2000000, end_ns = 2000001 WHERE pass_id = 7;"
violates timing "UPDATE graph_launch SET flags = 4 WHERE graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET device_id = 1 WHERE graph_launch_id = 2;"
violates timing "UPDATE graph_launch SET start_ns = 2000000000, end_ns = 2000000080 WHERE
	graph_launch_id = 1;"
violates timing "UPDATE graph_launch SET graph = 1 WHERE graph_launch_id = 2;"
violates timing "UPDATE graph_launch SET node_times = x'000000001e00000028000000ffff0000' WHERE
	graph_launch_id = 1;"
violates timing "UPDATE graph_node SET source_node = 900;"
# A launch of a graph has ended when the second one after it on its stream begins; the next one may begin early.
two_more="INSERT INTO graph_launch SELECT graph_launch_id + 10, recording_id, device_id, stream, NULL, start_ns + 10,
	end_ns + 10, NULL, NULL, 0, NULL, NULL, NULL, NULL FROM graph_launch WHERE graph_launch_id = 1;
	INSERT INTO graph_launch SELECT graph_launch_id + 20, recording_id, device_id, stream, NULL, start_ns + 20,
	end_ns + 20, NULL, NULL, 0, NULL, NULL, NULL, NULL FROM graph_launch WHERE graph_launch_id = 1;
	UPDATE collector SET n_rows = n_rows + 2 WHERE name = 'cupti' AND recording_id = 1;"
violates timing "$two_more"
holds "$two_more UPDATE graph_launch SET start_ns = start_ns + 500, end_ns = end_ns + 500 WHERE graph_launch_id = 21;"
holds "$two_more UPDATE graph_launch SET stream = 8 WHERE graph_launch_id = 11;"
holds "$two_more UPDATE graph_launch SET flags = 32 WHERE graph_launch_id = 11;
	UPDATE collector SET n_invalid = n_invalid + 1 WHERE name = 'cupti' AND recording_id = 1;"
# A node has ended when the last one of its branch begins, but for the one before that.
third_node="INSERT INTO graph_node VALUES (1, 2, 1, 2, 2, NULL, 902, 0);
	UPDATE graph_launch SET n_nodes = 3, node_times = x'0000000046000000280000000a0000004500000001000000',
	end_ns = start_ns + 70 WHERE graph_launch_id = 1; UPDATE graph_launch SET n_nodes = 3, n_untimed = 3,
	node_times = x'ffffffffffffffffffffffffffffffffffffffffffffffff' WHERE graph_launch_id = 3;"
violates timing "$third_node"
holds "$third_node UPDATE graph_node SET branch = 1 WHERE node = 0;"
holds "$third_node UPDATE graph_node SET branch = NULL;"
violates timing "UPDATE launch_shape SET grid_y = 0;"
violates timing "UPDATE launch_shape SET grid_z = 65536;"
violates timing "UPDATE launch_shape SET block_x = 1025;"
violates timing "UPDATE launch_shape SET block_y = 9;"
violates timing "INSERT INTO launch_shape VALUES (2, 8, 1, 1, 128, 1, 1, 32, 1024, NULL);"
violates timing "UPDATE collector_overhead SET end_ns = 2000000000 WHERE collector_overhead_id = 1;"

violates power "UPDATE power_sample SET limit_mw = 1 WHERE power_sample_id = 3;"
violates power "UPDATE power_sample SET instant_mw = NULL WHERE power_sample_id = 3;"
violates power "UPDATE power_sample SET time_ns = 900 WHERE power_sample_id = 2;"
violates power "UPDATE power_sample SET energy_mj = 4999 WHERE power_sample_id = 2;"
violates power "UPDATE host_sample SET process_cpu_ns = 400 WHERE host_sample_id = 2;"
violates power "UPDATE host_sample SET time_ns = 400 WHERE host_sample_id = 2;"
violates power "UPDATE device_link SET active_nvlinks = 19;"
violates power "UPDATE power_sample SET temperature_c = 40 WHERE power_sample_id = 3;"
violates power "UPDATE power_sample SET instant_mw = NULL, average_mw = NULL, energy_mj = NULL WHERE
	power_sample_id = 2;"
violates power "UPDATE power_sample SET time_ns = 9001 WHERE power_sample_id = 2;"
violates power "UPDATE recording SET start_ns = 1001 WHERE recording_id = 1;"
violates power "UPDATE power_sample SET instant_mw = 9000000000000 WHERE power_sample_id = 2;"
violates power "UPDATE power_sample SET average_mw = 100000001 WHERE power_sample_id = 2;"
violates power "UPDATE power_sample SET processor_mhz = 1000001 WHERE power_sample_id = 2;"
violates power "UPDATE power_sample SET temperature_c = 1001 WHERE power_sample_id = 2;"
violates power "UPDATE power_sample SET cost_ns = 5000 WHERE power_sample_id = 1;"
violates power "UPDATE power_sample SET energy_mj = 100006001 WHERE power_sample_id = 2;"
violates power "INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, average_mw,
	energy_mj) VALUES (1, 2, 'gpu', 'poll', 3000, 1, NULL), (1, 2, 'gpu', 'poll', 4000, 1, 5309);"
violates power "UPDATE device SET power_limit_mw = 650000 WHERE device_id = 2;"
violates power "UPDATE host_sample SET time_ns = 900000000000 WHERE host_sample_id = 2;"
violates power "UPDATE host_sample SET recorder_cpu_ns = 901 WHERE host_sample_id = 2;"
violates power "UPDATE host_sample SET n_threads = 0 WHERE host_sample_id = 2;"
violates power "UPDATE host_sample SET n_threads = 4194305 WHERE host_sample_id = 2;"
violates power "UPDATE device_link SET time_ns = 9001;"
violates power "UPDATE device_link SET device_id = 1;"
violates power "UPDATE device_link SET nvlinks = NULL;"
violates power "UPDATE device_link SET pcie_width = 65;"
violates power "UPDATE device_link SET pcie_width = 3;"
violates power "UPDATE device_link SET pcie_generation = 0;"
violates power "UPDATE device_link SET pcie_generation = 16;"
violates power "UPDATE device_link SET nvlinks = 65;"
violates power "UPDATE power_sample SET limit_mw = 1 WHERE power_sample_id = 4;"
violates power "UPDATE power_sample SET instant_mw = 1 WHERE power_sample_id = 4;"
violates power "UPDATE power_sample SET cost_ns = NULL WHERE power_sample_id = 4;"
violates power "UPDATE power_sample SET energy_mj = NULL, average_mw = 1 WHERE power_sample_id = 4;"
violates power "UPDATE power_sample SET source = 'buffer' WHERE power_sample_id = 4;"
violates power "UPDATE power_sample SET domain = 'module' WHERE power_sample_id = 2;"
violates power "UPDATE power_sample SET domain = 'module' WHERE power_sample_id = 3;"
violates power "UPDATE power_sample SET cost_ns = NULL WHERE power_sample_id = 2;"
violates power "UPDATE host_sample SET n_threads = NULL WHERE host_sample_id = 2;"
violates power "UPDATE host_sample SET resident_bytes = 0 WHERE host_sample_id = 2;"
violates power "INSERT INTO device_link VALUES (2, 1, 2, 2000, 5, 16, 18, 18);"
holds "UPDATE power_sample SET energy_mj = NULL WHERE power_sample_id = 2;"

violates collectors "DELETE FROM power_sample WHERE power_sample_id = 3;"
violates collectors "DELETE FROM power_sample WHERE power_sample_id = 4;"
violates collectors "DELETE FROM host_sample WHERE host_sample_id = 2;"
violates collectors "DELETE FROM device_link;"
violates collectors "DELETE FROM kernel WHERE kernel_id = 3;"
violates collectors "UPDATE collector SET reason = NULL WHERE name = 'nvtx';"
violates collectors "UPDATE collector SET longest_call_ns = 101 WHERE name = 'host';"
violates collectors "UPDATE collector SET n_calls = 0 WHERE name = 'rapl';"
violates collectors "UPDATE collector SET n_calls = 11 WHERE name = 'rapl';"
violates collectors "UPDATE collector SET state = 'hung', reason = 'why' WHERE name = 'rapl';"
holds "UPDATE collector SET state = 'hung', reason = 'why', n_dropped = NULL WHERE name = 'rapl';"
asked="UPDATE collector SET n_calls = 0, calls_ns = 0, longest_call_ns = 0"
violates collectors "$asked WHERE name = 'rapl';"
violates collectors "$asked, reason = 'why' WHERE name = 'rapl';"
violates collectors "$asked, n_dropped = NULL WHERE name = 'rapl';"
holds "$asked, reason = 'why', n_dropped = NULL WHERE name = 'rapl';"
for name in host:host_sample 'rapl:power_sample WHERE power_sample_id = 4'; do
	violates collectors "UPDATE collector SET n_rows = 0 WHERE name = '${name%%:*}'; DELETE FROM ${name#*:};"
	holds "UPDATE collector SET n_rows = 0, reason = 'why' WHERE name = '${name%%:*}'; DELETE FROM ${name#*:};"
done
for name in host nvml rapl; do
	violates collectors "UPDATE recording SET end_ns = 2600000000 WHERE recording_id = 1;
		UPDATE collector SET n_dropped = NULL WHERE name IN ('host', 'nvml', 'rapl') AND name <> '$name';"
done
violates collectors "UPDATE collector SET calls_ns = NULL WHERE name = 'rapl';"
violates collectors "UPDATE collector SET n_calls = NULL, calls_ns = NULL, longest_call_ns = NULL WHERE name = 'rapl';"
violates collectors "DELETE FROM collector_overhead WHERE collector_overhead_id = 1;"
violates collectors "UPDATE collector SET n_invalid = 3 WHERE name = 'cupti' AND recording_id = 1;"
violates collectors "UPDATE collector SET n_invalid = 1 WHERE name = 'host';"
violates collectors "UPDATE collector SET state = 'absent', reason = 'none' WHERE name = 'rapl';"
violates collectors "UPDATE collector SET calls_ns = 130 WHERE name = 'host';"
violates collectors "UPDATE collector SET interval_ns = 250000000 WHERE name = 'nvml';"
violates collectors "UPDATE collector SET interval_ns = 1000000000 WHERE name = 'nvml';"
violates collectors "UPDATE collector SET interval_ns = NULL WHERE name = 'nvml';"
violates collectors "UPDATE collector SET interval_ns = 12800000000 WHERE name = 'nvml';"
violates collectors "UPDATE collector SET mode = 'off' WHERE name = 'cupti' AND recording_id = 1;"
violates collectors "UPDATE collector SET mode = 'off' WHERE name = 'cupti' AND recording_id = 2;"
violates collectors "UPDATE collector SET mode = NULL WHERE name = 'cupti' AND recording_id = 2;"
violates collectors "UPDATE collector SET mode = 'graph' WHERE name = 'cupti' AND recording_id = 1;"
violates collectors "DELETE FROM graph_launch WHERE recording_id = 2; UPDATE collector SET mode = NULL, n_rows = 0
	WHERE name = 'cupti' AND recording_id = 2;"
for state in failed hung; do
	holds "DELETE FROM graph_launch WHERE recording_id = 2; UPDATE collector SET mode = NULL, n_rows = 0,
		state = '$state', reason = 'why', n_dropped = NULL WHERE name = 'cupti' AND recording_id = 2;"
done
holds "DELETE FROM graph_launch WHERE recording_id = 2; UPDATE collector SET mode = 'off', n_rows = 0,
	state = 'absent', reason = 'mode off was asked for' WHERE name = 'cupti' AND recording_id = 2;"
violates collectors "$another INSERT INTO device_clock VALUES (3, 2, NULL, 'cupti', 0, 1, 30);"
violates collectors "DELETE FROM collector WHERE name = 'host';"
violates collectors "DELETE FROM collector WHERE name = 'rapl';"
violates collectors "DELETE FROM collector WHERE name = 'nvml';"
violates collectors "DELETE FROM collector WHERE name = 'cupti' AND recording_id = 2;"

violates stats "UPDATE stats SET value = 2 WHERE name = 'recorded_kernels' AND recording_id = 1;"
violates stats "UPDATE stats SET value = 1 WHERE name = 'dropped_kernels' AND recording_id = 1;"
violates stats "UPDATE stats SET value = 3 WHERE name = 'recorded_ranges' AND recording_id = 1;"
violates stats "UPDATE stats SET value = 1 WHERE name = 'dropped_ranges' AND recording_id = 1;"
violates stats "DELETE FROM stats WHERE name = 'recorded_ranges' AND recording_id = 2;"
violates stats "DELETE FROM stats WHERE name = 'recorded_kernels' AND recording_id = 2;"
violates stats "UPDATE stats SET value = 1 WHERE name = 'recorded_collectives' AND recording_id = 1;"
violates stats "UPDATE stats SET value = 1 WHERE name = 'dropped_collectives' AND recording_id = 1;"
violates stats "UPDATE stats SET value = 2 WHERE name = 'untied_kernels' AND recording_id = 1;"
holds "UPDATE stats SET value = 1 WHERE name = 'untied_kernels' AND recording_id = 1;"
violates foreign_keys "UPDATE collective SET name_id = 9 WHERE collective_id = 1;"
violates foreign_keys "UPDATE kernel SET launch_shape_id = 2 WHERE kernel_id = 2;"
violates foreign_keys "UPDATE range SET name_id = 9 WHERE range_id = 1;"
