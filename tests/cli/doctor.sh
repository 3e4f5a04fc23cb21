# SPDX-License-Identifier: MIT
#
# doctor: with nothing there, with fakes, and where others are off; its exit code is 0, and it leaves
# nothing behind.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

mkdir "$tmp/tmp" "$tmp/powercap" "$tmp/powercap/intel-rapl:0"
echo package-0 >"$tmp/powercap/intel-rapl:0/name"
echo 262143328850 >"$tmp/powercap/intel-rapl:0/max_energy_range_uj"
echo 5 >"$tmp/powercap/intel-rapl:0/energy_uj"
fake=$MOETRACE_BUILDDIR/tests/collectors/.libs/libfake_nvml.so

# doctor PATTERN...: each pattern is a line of its answer.
doctor() {
	expect_ok env TMPDIR="$tmp/tmp" "$moetrace" doctor --format csv
	expect_err ""
	for pattern in "$@"; do
		expect_match "$tmp/out" "$pattern"
	done
	expect_eq "what is left in TMPDIR" "$(ls -A "$tmp/tmp")" ""
}

# A machine that stands still for some seconds is no collector that hangs.
export MOETRACE_COLLECTOR_TIMEOUT_MS=60000
export MOETRACE_NVML=/nonexistent/libnvidia-ml.so.1 MOETRACE_POWERCAP=/nonexistent
export MOETRACE_CUPTI=/nonexistent/libcupti.so
doctor '^source,state,version,what_to_know' '^nvtx,(absent|unsupported),,' '^host,on,' '^rapl,absent,,.*does not count energy' \
	'^nvml,absent,,.*no NVML' '^cuda,(absent|on),' '^cupti,absent,,'
# What is set for recordings is none of its own.
MOETRACE_DISABLE=1 MOETRACE_COLLECTORS=none MOETRACE_MODE=stat MOETRACE_OUTPUT=/nonexistent/x.db doctor '^host,on,'
MOETRACE_START=1 MOETRACE_OUTPUT="$tmp/tmp/%h.db" MOETRACE_SOCKET_DIR="$tmp/tmp" MOETRACE_COLLECTORS=host,cupti=eager \
	MOETRACE_CUPTI_MODE=eager MOETRACE_KERNEL_ROLES='*a*=gate' MOETRACE_NVTX=0 doctor '^host,on,'

# wrong SETTING REGEX: a recording would be refused for it, and doctor says so in the same words.
wrong() {
	expect_error 2 "^moetrace doctor: $2" env "$1" "$moetrace" doctor
}
wrong MOETRACE_COLLECTORS=bogus "MOETRACE_COLLECTORS: there is no collector 'bogus': give some of host,"
wrong MOETRACE_COLLECTORS=host, 'MOETRACE_COLLECTORS: an entry has no name'
wrong MOETRACE_COLLECTORS=cupti=foo "MOETRACE_COLLECTORS: cupti has no mode 'foo'"
wrong MOETRACE_MODE=none "MOETRACE_MODE is 'none': set it to per_token"
wrong MOETRACE_START=yes "MOETRACE_START is 'yes': set it to 0 or 1"
wrong MOETRACE_NVTX=off "MOETRACE_NVTX is 'off': set it to 0 or 1"
wrong MOETRACE_CUPTI_MODE=foo "MOETRACE_CUPTI_MODE is 'foo': set it to off, graph"
wrong MOETRACE_KERNEL_ROLES='*a*=gate,' "MOETRACE_KERNEL_ROLES has '': write PATTERN=ROLE"
wrong MOETRACE_COLLECTOR_TIMEOUT_MS=soon "MOETRACE_COLLECTOR_TIMEOUT_MS is 'soon'"
wrong MOETRACE_OUTPUT=/tmp/%q.db "MOETRACE_OUTPUT '/tmp/%q.db' is too long, or has a letter"
wrong MOETRACE_PROC="/$(printf %01024d 0)" 'MOETRACE_PROC has 1025 bytes: set it to at most 1023'
# All that is wrong at once, also where nothing would be recorded.
expect_status 2 env MOETRACE_DISABLE=1 MOETRACE_MODE=none MOETRACE_COLLECTORS=bogus "$moetrace" doctor
expect_match "$tmp/err" 'MOETRACE_MODE is'
expect_match "$tmp/err" 'MOETRACE_COLLECTORS: '
expect_eq "lines of two settings" "$(wc -l <"$tmp/err")" 2

export MOETRACE_POWERCAP="$tmp/powercap"
doctor '^rapl,on,'
rm "$tmp/powercap/intel-rapl:0/energy_uj"
doctor '^rapl,unsupported,,.*No such file'

# A counter that others may not read: root puts on somebody else's shoes for it.
echo 5 >"$tmp/powercap/intel-rapl:0/energy_uj"
chmod 0400 "$tmp/powercap/intel-rapl:0/energy_uj"
if [ "$(id -u)" = 0 ]; then
	as_other='setpriv --reuid 65534 --clear-groups'
	chmod 0711 "$tmp"
	chmod 0777 "$tmp/tmp"
else
	as_other=env
	chmod 0 "$tmp/powercap/intel-rapl:0/energy_uj"
fi
if command -v setpriv >"$tmp/null" && $as_other test -x "$moetrace"; then
	expect_ok $as_other env TMPDIR="$tmp/tmp" "$moetrace" doctor --format csv
	expect_err ""
	expect_match "$tmp/out" '^rapl,denied,,.*run as root.*chmod a\+r'
	expect_match "$tmp/out" '^host,on,'
fi

[ -e "$fake" ] || exit 0

# The driver and NCCL: none, one that refuses, one GPU, several, and what they can do together.
doctor '^nvls,absent,,.*not possible: .* sees (one|none)|^nvls,(on|unsupported),,' '^nccl,(absent|on),'
mkdir "$tmp/gpus"
ln -s "${fake%/*}/libfake_gpus.so" "$tmp/gpus/libcuda.so.1"
ln -s "${fake%/*}/libfake_gpus.so" "$tmp/gpus/libnccl.so.2"
gpus() {
	LD_LIBRARY_PATH="$tmp/gpus${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" doctor "$@"
}
gpus '^cuda,absent,13\.1,.*CUDA_VISIBLE_DEVICES' '^nccl,on,2\.29\.3,' '^nvls,absent,,.*sees none'
FAKE_GPUS=0 gpus '^cuda,absent,13\.1,.*shows no GPU'
FAKE_GPUS=1 FAKE_MULTICAST=1 gpus '^cuda,on,13\.1,1 GPU' '^nvls,absent,,.*two GPUs of one host, .*sees one'
FAKE_GPUS=4 gpus '^cuda,on,13\.1,4 GPUs' '^nvls,unsupported,,.*no two of the 4 GPUs.*fabric manager'
FAKE_GPUS=8 FAKE_MULTICAST=8 gpus '^nvls,on,,possible between 8 GPUs'
NCCL_NVLS_ENABLE=0 FAKE_GPUS=8 FAKE_MULTICAST=8 gpus '^nvls,on,,.*keeps NCCL from'

# What is there and cannot be used is not called missing. Who reads a pipe waits for ever.
mkdir "$tmp/bad"
# bad WHAT REGEX: as the libraries of CUDA, NCCL, NVML and CUPTI.
bad() {
	what=$1
	LD_LIBRARY_PATH="$tmp/bad${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" MOETRACE_NVML='' MOETRACE_CUPTI=libcupti.so.13 doctor \
		"^cuda,absent,,.*the driver cannot be opened: $tmp/bad/libcuda.so.1: $what.*install it again" \
		"^nccl,absent,,.*NCCL cannot be opened: $tmp/bad/libnccl.so.2: $what" \
		"^nvml,absent,,.*NVML cannot be opened: $tmp/bad/libnvidia-ml.so.1: $what" \
		"^cupti,absent,,.*CUPTI cannot be opened: $tmp/bad/libcupti.so.13: $what"
	expect_no_match "$tmp/out" '^(cuda|nccl|nvml|cupti),.*(not|is) installed'
	rm -rf "$tmp/bad"/*
}
names='libcuda.so.1 libnccl.so.2 libnvidia-ml.so.1 libcupti.so.13'
for name in $names; do head -c 4096 "$fake" >"$tmp/bad/$name"; done
bad 'cut short: it has 4096 bytes and needs [0-9]+ or more'
for name in $names; do : >"$tmp/bad/$name"; done
bad 'an empty file'
for name in $names; do mkfifo "$tmp/bad/$name"; done
bad 'no regular file'
for name in $names; do mkdir "$tmp/bad/$name"; done
bad 'no regular file'
# CUPTI would open the driver's library by itself.
head -c 4096 "$fake" >"$tmp/bad/libcuda.so.1"
LD_LIBRARY_PATH="$tmp/bad${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
	MOETRACE_CUPTI="$MOETRACE_BUILDDIR/tests/collectors/.libs/libfake_cupti.so" doctor \
	"^cupti,absent,.*no driver: CUPTI is there, but $tmp/bad/libcuda.so.1: cut short"

export MOETRACE_NVML="$fake"
doctor '^nvml,on,999\.1,'
FAKE_NVML=no_permission doctor '^nvml,denied,,.*Insufficient Permissions'
FAKE_NVML=unsupported doctor '^nvml,unsupported,999\.1,.*unknown, not 0'
FAKE_NVML=hang MOETRACE_COLLECTOR_TIMEOUT_MS=50 doctor '^nvml,hung,999\.1,.*cut off'

export MOETRACE_CUPTI="$MOETRACE_BUILDDIR/tests/collectors/.libs/libfake_cupti.so"
doctor '^cupti,on,130001,'
FAKE_CUPTI=busy doctor '^cupti,busy,,.*another tool'

# What a recording learnt of versions, info shows.
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
make_sound "$tmp/versions.db"
change "$tmp/versions.db" "INSERT INTO meta VALUES ('version.cupti', '130001'), ('version.nccl', '2.28.9'),
	('version.driver', '999.1'), ('version.nvml', '13.999.1');"
expect_ok "$moetrace" info --format json "$tmp/versions.db"
for version in cupti:130001 nccl:2.28.9 driver:999.1 nvml:13.999.1; do
	expect_match "$tmp/out" "\"of\":\"${version%%:*}\",\"version\":\"${version#*:}\""
done

# Where it cannot write it looks further.
mkdir "$tmp/readonly"
chmod 0555 "$tmp/readonly"
for folder in /nonexistent "$tmp/readonly"; do
	expect_ok env TMPDIR="$folder" "$moetrace" doctor --format csv
	expect_match "$tmp/out" '^host,on,'
done
expect_eq "what is left in a read-only folder" "$(ls -A "$tmp/readonly")" ""
expect_status 2 "$moetrace" doctor file.db
