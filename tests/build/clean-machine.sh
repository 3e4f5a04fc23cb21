# SPDX-License-Identifier: MIT
#
# `./bootstrap demo` and `./bootstrap check` on a Debian 12 that holds nothing but
# its base packages: debootstrap makes it in a temporary folder, a clone of this
# tree goes into it. Needs root, and an archive in the host's own apt
# configuration. Part of `make check-long`; takes about half an hour.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

suite=${CLEAN_MACHINE_SUITE:-bookworm}

PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" -eq 0 ] || skip "needs root"
need_command debootstrap chroot mount umount unshare git apt-get
[ -e "$MOETRACE_SRCDIR/.git" ] || skip "not a git work tree"
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
	'Created-By: Packages' | awk -v suite="$suite" '$2 == suite && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || skip "the host's apt knows no archive of $suite"

# The one mount, /proc, lives in a mount namespace of its own: nothing is left of
# it, however this test ends. debootstrap makes the device nodes itself.
if [ "${CLEAN_MACHINE_INSIDE-}" != yes ]; then
	rm -rf "$tmp"
	CLEAN_MACHINE_INSIDE=yes
	export CLEAN_MACHINE_INSIDE
	unshare --mount true 2>/dev/null || skip "mount namespaces are not allowed here"
	exec unshare --mount --propagation private sh "$0"
fi

machine=$tmp/machine
debootstrap --variant=minbase "$suite" "$machine" "$mirror" >"$tmp/debootstrap.log" 2>&1 || {
	tail -n 20 "$tmp/debootstrap.log" >&2
	fail "debootstrap failed"
}
[ -c "$machine/dev/null" ] || skip "device nodes cannot be made here"
trap 'umount "$machine/proc" 2>/dev/null; rm -rf --one-file-system "$tmp"' EXIT
mount -t proc proc "$machine/proc" || fail "cannot mount /proc"
for file in /etc/resolv.conf /etc/hosts; do
	[ ! -f "$file" ] || cp -L "$file" "$machine$file"
done
apt-config dump Acquire::http::Proxy >"$machine/etc/apt/apt.conf.d/90proxy"

git -c safe.directory='*' clone -q --no-hardlinks "$MOETRACE_SRCDIR" "$machine/moetrace" ||
	fail "git clone failed"

# inside COMMAND: in the machine, from another folder, without a terminal.
inside() {
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		chroot "$machine" sh -c "cd /tmp && $1" </dev/null
}

# Without root it prints the one line and changes nothing.
status=0
inside "setpriv --reuid=65534 --regid=65534 --clear-groups /moetrace/bootstrap demo" \
	>"$tmp/out" 2>"$tmp/err" || status=$?
[ "$status" -ne 0 ] || fail "bootstrap demo without root and without a compiler succeeded"
expect_eq "lines to run" "$(grep -c 'apt-get install' "$tmp/err")" 1
expect_absent "$machine/moetrace/configure"

inside /moetrace/bootstrap\ demo >"$tmp/demo.log" 2>&1 || {
	tail -n 40 "$tmp/demo.log" >&2
	fail "bootstrap demo failed"
}
expect_file "$machine/moetrace/demo.db"
complete=$(inside "/moetrace/build/cli/moetrace query /moetrace/demo.db \
	\"select count(*) from request_summary where verdict = 'complete'\"")
expect_eq "complete requests" "$complete" 64
inside "/moetrace/build/cli/moetrace check /moetrace/demo.db" >"$tmp/out" 2>"$tmp/err" ||
	fail "moetrace check demo.db failed"

# A second time nothing is installed, and the demo's own file is replaced.
inside /moetrace/bootstrap\ demo >"$tmp/again.log" 2>&1 || {
	tail -n 40 "$tmp/again.log" >&2
	fail "bootstrap demo failed the second time"
}
expect_no_match "$tmp/again.log" '^bootstrap: (installing|making configure|configuring)'

inside /moetrace/bootstrap\ check >"$tmp/check.log" 2>&1 || {
	tail -n 60 "$tmp/check.log" >&2
	fail "bootstrap check failed"
}
tail -n 1 "$tmp/check.log"
tail -n 1 "$tmp/check.log" >"$tmp/last"
expect_match "$tmp/last" '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$'
