#!/usr/bin/env bash
# Installs the Debian packages in dist/ into a new root, uses them, and removes them: scripts/deb-test.sh [SUITE]
#
# SUITE is a release of Debian [default: bookworm]. Needs root, debootstrap and Debian's archive.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm}
say() { printf 'deb-test: %s\n' "$*"; }
fail() { say "FAILED: $*"; exit 1; }
[ "$(id -u)" -eq 0 ] || { say "SKIP: debootstrap needs root; run it as root"; exit 0; }
command -v debootstrap >/dev/null || { say "SKIP: debootstrap is missing; apt-get install debootstrap"; exit 0; }
if [ -z "${DEB_TEST_INSIDE:-}" ]; then
  # What is mounted and started ends with it.
  export DEB_TEST_INSIDE=1
  exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi
root=$(mktemp -d)
trap 'umount -R "$root"/{proc,sys,dev} 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
# From where this machine has its packages; otherwise debootstrap's default.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
  sed -n 's/^URIs: *//p; s/^deb [^h]*\(http[^ ]*\) .*/\1/p' | head -n 1) || true
debootstrap --variant=minbase --include=python3 "$suite" "$root" ${mirror:+"$mirror"} > "$root.log" 2>&1 ||
  { tail -n 5 "$root.log"; fail "debootstrap"; }
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
files() { (cd "$root" && find . -xdev '(' -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./var ')' -prune \
  -o -not -name '*.pyc' -not -name __pycache__ -print | sort); }
files > "$root.before"
mkdir "$root/debs"
cp dist/*.deb "$root/debs"
inside sh -c 'dpkg -i /debs/*.deb' > "$root.log" 2>&1 || { tail -n 20 "$root.log"; fail "dpkg -i"; }
began=$SECONDS
inside crossway measure quick -f 'pipe/*|uds-stream/*' --trials 1 --out /tmp/runs > "$root.log" || { tail -n 20 "$root.log"; fail "measure"; }
run=$(basename "$root"/tmp/runs/*-*)
[ -s "$root/tmp/runs/$run/report.html" ] || fail "no report"
say "measured in $((SECONDS - began)) s"
inside python3 -c "import crossway; assert crossway.load('/tmp/runs/$run').figures()" || fail "the Python module"
inside sh -c 'tipcd --socket /tmp/tipcd.sock udp:127.0.0.1 > /tmp/tipcd.log 2>&1 & crossway tipc --socket /tmp/tipcd.sock wait && crossway tipc --socket /tmp/tipcd.sock node; status=$?; kill $!; exit $status' ||
  { cat "$root/tmp/tipcd.log"; fail "tipcd"; }
inside sh -c 'test -s /usr/share/man/man1/crossway.1.gz && test -s /usr/lib/systemd/system/tipcd.service' || fail "files are missing"
inside sh -c 'dpkg --purge $(cd /debs && for deb in *.deb; do echo "${deb%%_*}"; done)' > "$root.log" 2>&1 ||
  { tail -n 20 "$root.log"; fail "dpkg --purge"; }
rm -r "$root/debs"
files | diff "$root.before" - || fail "the removal left files"
rm -f "$root".{log,before}
say "passed: installed in $suite, used, removed"
