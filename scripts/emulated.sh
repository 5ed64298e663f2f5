#!/usr/bin/env bash
# Runs Crossway on another processor, in a machine that QEMU emulates, and between that machine and this one:
# scripts/emulated.sh arm64|armv7|riscv64
#
# PARTS names what to try, of `limits tests run measure hosts`; all of it if nothing is said. FLAVOUR names another kernel of
# Debian's: arm64-16k has pages of 16 KiB, cloud-arm64 is small and has pages of 4 KiB. ONLY limits the mechanisms of
# `measure`: parts of their names, separated by |.
# Programs are those of `make dist` if there are some, and are built otherwise. Nothing is installed; the kernel, busybox
# and iproute2 are Debian's packages, below target/emulated. Needs root, or the right to make user namespaces; otherwise
# it says SKIP.
#
# An emulated processor is 10 to 50 times slower than this one, so no figure that comes from it means anything.
set -euo pipefail
cd "$(dirname "$0")/.."

processor=${1:-}
say() { printf '%s: %s\n' "$processor" "$*"; }
fail() { say "FAILED: $*"; exit 1; }
skip() { say "SKIP: $*"; exit 0; }

# For each processor: the target, the prefix of Debian's cross compiler, Debian's name of the processor, its kernel and the
# release that has it, the loader of programs, the emulated machine, and mechanisms that the kernel cannot offer: SMC needs a
# network card; cloud-arm64 and armmp lack Binder, armmp also large pages and memfd_secret(2).
case $processor in
  arm64)
    TARGET=aarch64-unknown-linux-gnu TOOLS=aarch64-linux-gnu- debian=arm64
    FLAVOUR=${FLAVOUR:-cloud-arm64} SUITE=${SUITE:-bookworm} loader=ld-linux-aarch64.so.1
    machine=(qemu-system-aarch64 -M virt -cpu max -m 2304) serial=ttyAMA0 emulator=qemu-system-arm
    MISSING='smc binder' ;;
  armv7)
    TARGET=armv7-unknown-linux-gnueabihf TOOLS=arm-linux-gnueabihf- debian=armhf
    FLAVOUR=${FLAVOUR:-armmp} SUITE=${SUITE:-trixie} loader=ld-linux-armhf.so.3
    # This kernel finds no PCI above 4 GiB.
    machine=(qemu-system-arm -M "virt,highmem=off" -cpu max -m 2304) serial=ttyAMA0 emulator=qemu-system-arm
    MISSING='smc binder shm-huge shm-secret' ;;
  riscv64)
    TARGET=riscv64gc-unknown-linux-gnu TOOLS=riscv64-linux-gnu- debian=riscv64
    FLAVOUR=${FLAVOUR:-riscv64} SUITE=${SUITE:-trixie} loader=ld-linux-riscv64-lp64d.so.1
    machine=(qemu-system-riscv64 -M virt -m 2304) serial=ttyS0 emulator='qemu-system-misc opensbi'
    MISSING='smc binder' ;;
  *) printf 'usage: scripts/emulated.sh arm64|armv7|riscv64\n' >&2; exit 2 ;;
esac
PARTS=${PARTS:-limits tests run measure hosts}
for word in $PARTS; do
  [[ ' limits tests run measure hosts ' == *" $word "* ]] || {
    say "PARTS names $word, which is none of: limits tests run measure hosts" >&2; exit 2; }
done
MIRROR=${MIRROR:-http://deb.debian.org}
CARGO=${CARGO:-cargo}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$build/emulated/$processor
boot=$work/$FLAVOUR
files=$work/files
PATH=$PATH:/usr/sbin:/sbin

HOST_ADDRESS=10.78.0.1
GUEST_ADDRESS=10.78.0.2
MODULES='virtio_net tipc sctp vsock_loopback virtio_rng veth unix_diag tcp_diag udp_diag netlink_diag'
# What is tested there, besides the program: test programs that need no other file.
CRATES=(crossway-conformance crossway-sys crossway-ring crossway-mech crossway-channel crossway-tipc-proto)
TESTS=(--lib --bin conformance-guest-part --test suite --test sockets --test rings --test heap)
# Tests that need a C compiler, another guest or a file of the source: none of that is in the emulated machine.
UNSUITABLE=()

part() { [[ " $PARTS " == *" $1 "* ]]; }

needs() { # command package: says SKIP if the command is missing
  command -v "$1" >/dev/null || skip "$1 is missing. On Debian: sudo apt-get install $2"
}

check_needs() {
  needs "${machine[0]}" "$emulator"
  needs "${TOOLS}gcc" "gcc-${TOOLS%-} libc6-dev-$debian-cross"
  needs cpio cpio
  needs depmod kmod
  needs xz xz-utils
  needs ip iproute2
  needs unshare util-linux
  needs python3 python3
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
    skip "Debian's keys are missing. On Debian and Ubuntu: sudo apt-get install debian-archive-keyring"
  [ -d "$(rustc --print target-libdir --target "$TARGET")" ] ||
    skip "the toolchain lacks the standard library of $TARGET: rustup target add $TARGET"
  [ -w /dev/net/tun ] || skip "/dev/net/tun is missing or must not be used; run it as root: modprobe tun"
  "${spaces[@]}" true 2>/dev/null || skip "namespaces cannot be made here; run it as root"
}

# apt for another processor and another release than this machine's, with folders of its own: apt get|cache WORD...
apt() {
  local kind=$1 user=()
  shift
  [ "$(id -u)" -ne 0 ] || user=(-oAPT::Sandbox::User=root)
  "apt-$kind" -qq "${user[@]}" -oAPT::Architecture="$debian" -oAPT::Architectures="$debian" \
    -oDir::State::Lists="$work/lists" -oDir::State::status="$work/status" -oDir::Cache="$work/cache" \
    -oDir::Etc::SourceList="$work/sources.list" -oDir::Etc::SourceParts=- -oAcquire::Languages=none \
    -oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# Downloads the kernel, busybox and iproute2 with the libraries that it needs, unless they are there.
fetch() {
  [ ! -e "$boot/fetched" ] || return 0
  say "fetching Debian's kernel $FLAVOUR, busybox and iproute2"
  mkdir -p "$work"/{lists,cache/archives}/partial "$work/packages"
  : > "$work/status"
  local signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  printf '%s\n' "deb $signed $MIRROR/debian $SUITE main" \
    "deb $signed $MIRROR/debian-security $SUITE-security main" > "$work/sources.list"
  apt get update || say "not all package lists of $MIRROR can be fetched; using the others"
  local kernel
  kernel=$(apt cache pkgnames linux-image- | grep -E "^linux-image-[0-9.]+[^-]*-$FLAVOUR(-unsigned)?$" | sort -V | tail -n 1)
  [ -n "$kernel" ] || fail "$MIRROR offers no kernel $FLAVOUR for Debian $SUITE; MIRROR=http://... names another server, SUITE=... another release"
  (cd "$work/packages" && apt get download "$kernel" busybox-static) || fail "$kernel and busybox cannot be fetched"
  apt get install --download-only -y --no-install-recommends iproute2 || fail "iproute2 cannot be fetched"
  rm -rf "$boot"
  mkdir -p "$boot/unpacked"
  dpkg-deb -x "$work/packages/$kernel"_*.deb "$boot/unpacked"
  dpkg-deb -x "$(ls -t "$work"/packages/busybox-static_*.deb | head -n 1)" "$boot/unpacked"
  local package
  for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$boot/unpacked"; done
  touch "$boot/fetched"
}

# Builds the programs for both processors and the tests; without optimisation where no message passes, because that takes a
# third of the time.
build_programs() {
  local variable
  variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$TARGET")
  export "${variable}_RUSTFLAGS=-C target-feature=+crt-static" "${variable}_LINKER=${TOOLS}gcc"
  export CARGO_INCREMENTAL=0
  rm -rf "$files"
  mkdir -p "$files"
  local published
  published=$(compgen -G "dist/crossway-$version-$TARGET" || true)
  if [ -n "$published" ]; then
    say "using $published"
    cp "$published" "$files/"
  else
    say "building the program for $TARGET"
    CARGO_PROFILE_DEV_OPT_LEVEL=1 "$CARGO" build --locked -p crossway --target "$TARGET"
    strip_to "$build/$TARGET/debug/crossway" "$files/crossway-$version-$TARGET"
  fi
  own=$(compgen -G "dist/crossway-$version-$(uname -m)-*-gnu" || true)
  if [ -z "$own" ] && part hosts; then
    say "building the program for this machine"
    "$CARGO" build --locked -p crossway
    own=$build/debug/crossway
  fi
  say "building programs in C"
  local source=crates/crossway/tests/data/run/talk.c
  "${TOOLS}gcc" -O1 -o "$work/talk" "$source"
  # What Debian compiles for ARM with 32 bits has times of 64 bits.
  "${TOOLS}gcc" -O1 -D_FILE_OFFSET_BITS=64 -D_TIME_BITS=64 -o "$work/talk-time64" "$source"
  "${TOOLS}gcc" -O1 -static -o "$work/talk-static" "$source"
  : > "$work/tests"
  part tests || return 0
  say "building the tests for $TARGET"
  local packages=()
  for crate in "${CRATES[@]}"; do packages+=(-p "$crate"); done
  CARGO_PROFILE_DEV_OPT_LEVEL=1 "$CARGO" test --no-run --locked --target "$TARGET" "${packages[@]}" "${TESTS[@]}" \
    --message-format=json > "$work/built.json"
  sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$work/built.json" | sort -u > "$work/tests"
}

# Copies a program of the packages, and the libraries that it needs.
add_program() { # root folder program
  local from name
  from=$(cd "$boot/unpacked" && find . -path "*/$3" -print -quit)
  [ -n "$from" ] || fail "the packages lack $3"
  install -D "$boot/unpacked/$from" "$1/$2/$(basename "$3")"
  for name in $("${TOOLS}readelf" -d "$boot/unpacked/$from" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [ -e "$1/lib/$name" ] || add_program "$1" lib "$name"
  done
}

strip_to() { "${TOOLS}strip" -o "$2" "$1"; }

# Packs the first file system of the machine: busybox, modules, the program and the tests, each at the path at which it was
# built, because tests start each other by it.
pack() {
  local root=$boot/root unpacked=$boot/unpacked release module file name
  # Later releases have all of it below usr.
  [ -e "$unpacked/lib/modules" ] || { mkdir -p "$unpacked/lib"; ln -s ../usr/lib/modules "$unpacked/lib/modules"; }
  release=$(ls "$unpacked/lib/modules")
  [ -e "$unpacked/lib/modules/$release/modules.dep" ] || depmod -b "$unpacked" "$release"
  rm -rf "$root"
  mkdir -p "$root"/{bin,etc,dev,proc,sys,tmp,run,root,modules,var/tmp,usr/bin}
  cp "$(find "$unpacked" -path '*/bin/busybox' -type f)" "$root/bin/"
  # Busybox leaves this one in place; its own cannot make the interfaces of af-xdp. The loader is named by programs.
  add_program "$root" bin bin/ip
  add_program "$root" lib "$loader"
  # What `crossway run` loads into programs needs it.
  add_program "$root" lib libgcc_s.so.1
  # The suite starts this one by its descriptor, and busybox would look for a program of the descriptor's name.
  printf '#!/bin/sh\n' > "$root/bin/true"
  chmod 755 "$root/bin/true"
  cp scripts/emulated/{init,serve,talks} "$work"/{talk,talk-time64,talk-static} "$root/"
  printf 'root:x:0:0:root:/root:/bin/sh\n' > "$root/etc/passwd"
  printf 'root:x:0:\n' > "$root/etc/group"
  printf '127.0.0.1 localhost emulated\n' > "$root/etc/hosts"
  for module in $MODULES; do
    modprobe -d "$unpacked" -S "$release" --show-depends "$module" || fail "the kernel has no module $module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
    name=$(basename "$file" .xz)
    case $file in *.xz) xz -dc "$file" > "$root/modules/$name" ;; *) cp "$file" "$root/modules/$name" ;; esac
    echo "$name" >> "$root/modules/order"
  done
  cp "$files/crossway-$version-$TARGET" "$root/bin/crossway"
  while read -r file; do
    mkdir -p "$root$(dirname "$file")"
    strip_to "$file" "$root$file"
  done < "$work/tests"
  (cd "$root" && find . -print0 | cpio --quiet -0 -o -H newc -R 0:0) > "$boot/initrd"
  cp "$unpacked/boot"/vmlinu[xz]-"$release" "$boot/kernel"
}

spaces=(unshare --net --pid --fork --kill-child --mount --mount-proc)
[ "$(id -u)" -eq 0 ] || spaces+=(--user --map-root-user)

if [ "${2:-}" != inside ]; then
  check_needs
  fetch
  build_programs
  pack
  # QEMU and everything else that is started ends with the namespaces, however this script ends.
  setpriv --pdeathsig KILL "${spaces[@]}" "$0" "$processor" inside "$own" <&0 &
  inside=$!
  trap 'kill -KILL "$inside" 2>/dev/null || true; exit 130' INT TERM HUP
  wait "$inside"
  exit
fi

# ---- In namespaces of its own, as their first process ----

own=$3
console=$boot/console
results=$work/results
rm -rf "$results" "$console"
mkdir -p "$results"

# Runs a command in the machine: guest SECONDS WORD...
guest() {
  local limit=$1
  shift
  timeout --foreground -k 10 "$limit" python3 scripts/emulated/exec.py "$GUEST_ADDRESS" "$@" < /dev/null
}

# Shows the end of a file and fails.
because() { # file why
  tail -n 30 "$1" | sed 's/^/    /'
  fail "$2"
}

ip link set lo up
ip tuntap add dev wire mode tap
ip address add "$HOST_ADDRESS/24" dev wire
ip link set wire up

began=$SECONDS
"${machine[@]}" -accel tcg,thread=multi -smp 2 -nodefaults -display none -no-reboot \
  -kernel "$boot/kernel" -initrd "$boot/initrd" -append "console=$serial quiet panic=-1 ADDRESS=$GUEST_ADDRESS" \
  -serial "file:$console" -netdev tap,id=wire,ifname=wire,script=no,downscript=no \
  -device virtio-net-pci,netdev=wire,romfile= -device virtio-rng-pci < /dev/null > "$results/qemu.txt" 2>&1 &
qemu=$!
until grep -q '^emulated: ready' "$console" 2>/dev/null; do
  kill -0 "$qemu" 2>/dev/null || because "$results/qemu.txt" "qemu ended"
  [ $((SECONDS - began)) -lt 600 ] || because "$console" "the machine did not boot within 600 s"
  sleep 1
done
kernel=$(guest 60 uname -srm) || because "$console" "the machine cannot be reached"
say "$kernel booted in $((SECONDS - began)) s"

# Runs a command in the machine, its output in a file, and fails if it fails: step NAME SECONDS WORD...
step() {
  local name=$1
  shift
  say "$name"
  guest "$@" > "$results/$name.txt" 2>&1 || because "$results/$name.txt" "$name: exit status $?"
}

# Reads the records of a run: every mechanism that must work has trials of which none failed.
judge() { # name records.jsonl mechanism...
  python3 - "$processor" "$@" <<'END' || fail "$1"
import collections, json, sys

processor, name, file, *expected = sys.argv[1:]
status, reasons = collections.defaultdict(collections.Counter), {}
for line in open(file):
    record = json.loads(line)
    status[record["mechanism"]][record["status"]] += 1
    if record["status"] in ("failed", "skipped"):
        reasons[record["mechanism"]] = f'{record["status"]}: {record["case"]}: {record["reason"]}'
total = sum(status.values(), collections.Counter())
print(f"{processor}: {name}:", ", ".join(f"{number} {word}" for word, number in sorted(total.items())))
wrong = [m for m in expected if status[m]["failed"] or not status[m]["ok"] + status[m]["degraded"]]
for mechanism in wrong:
    print(f'{processor}:   {mechanism}: {reasons.get(mechanism, "no trial")}')
sys.exit(bool(wrong or not expected))
END
}

# The mechanisms, but not programs to compare them with, of a list: all of them, those that work there, those of them that
# carry the plan's messages, of 64 bytes and more, or that reach another host. The kernel's TIPC, which linx-tipc prefers to a
# tipcd, gets no bearer here.
mechanisms() { # all|ready|carrying|between list.json
  python3 - "$@" <<'END'
import json, sys

kind, file = sys.argv[1:]
for entry in json.load(open(file)):
    caps, works = entry["caps"], entry["probe"]["state"] == "ready"
    wanted = {
        "all": True,
        "ready": works,
        "carrying": works and (caps["max_message"] is None or caps["max_message"] >= 64),
        "between": works and caps["crosses_hosts"] and not entry["id"].startswith(("tipc-kernel-", "linx-tipc")),
    }
    if entry["meets"] is not None and wanted[kind]:
        print(entry["id"])
END
}

step version 60 crossway --version
grep -q "^target: *$TARGET, static$" "$results/version.txt" || because "$results/version.txt" "the program is not static"
step doctor 300 crossway doctor
step list 300 crossway list --json
mapfile -t works < <(mechanisms ready "$results/list.txt")
for id in $(mechanisms all "$results/list.txt"); do
  [[ " ${works[*]} $MISSING " == *" $id "* ]] || because "$results/doctor.txt" "doctor: $id does not work"
done
say "doctor: ${#works[@]} mechanisms work"
step environment 300 crossway env
if part limits; then
  # Loops on two processors of which one is busy with something else do not end; `limits` then says so instead of measuring.
  say limits
  guest 900 crossway limits > "$results/limits.txt" 2>&1 || {
    grep -q 'is another process using one of the CPUs' "$results/limits.txt" ||
      because "$results/limits.txt" "limits: exit status $?"
    say "  not measured: this machine is busy"
  }
fi

# The tests. Each prints its number of tests; what is skipped is told by their output.
passed=0
while read -r program; do
  name=$(basename "$program" | sed 's/-[0-9a-f]\{16\}$//')
  [ "$name" != conformance-guest-part ] || continue
  words=()
  for test in "${UNSUITABLE[@]}"; do words+=(--skip "$test"); done
  step "test-$name" 3600 "$program" --show-output "${words[@]}"
  count=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$results/test-$name.txt" | tail -n 1)
  [ -n "$count" ] || because "$results/test-$name.txt" "test-$name has no result"
  passed=$((passed + count))
  grep -h '^SKIP' "$results/test-$name.txt" | sort | uniq -c | sed "s/^ */$processor:   /" || true
done < <(! part tests || cat "$work/tests")
! part tests || say "tests: $passed passed"

# Programs that know nothing of Crossway.
if part run; then
  for program in talk talk-time64 talk-static; do step "run-$program" 300 /talks "$program"; done
fi

# Every mechanism once more, in separate processes, as users measure.
if part measure; then
  step measure 3600 crossway measure quick --trials 1 --out /root/out ${ONLY:+--filter "$ONLY"}
  guest 60 sh -c 'cat /root/out/*/results.jsonl' > "$results/records.jsonl"
  mapfile -t carrying < <(mechanisms carrying "$results/list.txt")
  [ -z "${ONLY:-}" ] || mapfile -t carrying < <(printf '%s\n' "${carrying[@]}" | grep -E "$ONLY")
  judge measure "$results/records.jsonl" "${carrying[@]}"
  guest 60 sh -c 'test -s /root/out/*-*/report.html' || fail "measure left no report"
  step rank 300 sh -c 'crossway rank /root/out/*-*'
  step report 300 sh -c 'crossway report --markdown /root/out/*-*'
fi

part hosts || { say "passed in $((SECONDS - began)) s; all output is in $results"; exit; }

# A tipcd on each side, with a link between the two processors, and every mechanism between hosts, in both directions.
guest 60 sh -c "crossway tipcd udp:$GUEST_ADDRESS > /run/tipcd.log 2>&1 < /dev/null &"
export TIPCD_SOCKET=$results/tipcd.sock
"$own" tipcd --until-stdin-ends --socket "$TIPCD_SOCKET" "udp:$HOST_ADDRESS" < <(sleep infinity) > "$results/tipcd.txt" 2>&1 &
step tipcd 300 crossway tipc wait --peers 1
guest 60 crossway tipc link list | tee "$results/link.txt"

cat > "$results/hosts.toml" <<'END'
about = "Every mechanism between two kinds of processor."
[testbed.pair]
kind = "hosts"
[group.between]
testbed = "pair"
mechanisms = ["network", "!tipc-kernel-*", "!linx-tipc", "!smc"]
workload = ["throughput", "ping-pong"]
size_bytes = [64, "64 KiB"]
trials = 1
warmup_ms = 50
measure_ms = 200
END
mechanisms between "$results/list.txt" | sort > "$results/there"
"$own" list --json > "$results/own-list.json"
mechanisms between "$results/own-list.json" | sort > "$results/here"
mapfile -t between < <(comm -12 "$results/there" "$results/here")
remote="python3 $PWD/scripts/emulated/exec.py $GUEST_ADDRESS"
for hosts in "local,$remote" "$remote,local"; do
  name=from-$([ "${hosts%%,*}" = local ] && uname -m || echo "$processor")
  say "measure $name"
  timeout --foreground -k 10 1800 "$own" measure "$results/hosts.toml" --hosts "$hosts" --push="$files" \
    --out "$results/$name" > "$results/$name.txt" 2>&1 || because "$results/$name.txt" "$name: exit status $?"
  cat "$results/$name"/*/results.jsonl > "$results/$name.jsonl"
  judge "$name" "$results/$name.jsonl" "${between[@]}"
done
say "passed in $((SECONDS - began)) s; all output is in $results"
