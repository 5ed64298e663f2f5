#!/usr/bin/env bash
# Installs what Crossway needs on Debian or Ubuntu: scripts/setup.sh build|test|arm64|armv7|riscv64|bench|predict
#
#   build   the packages needed to compile and to measure
#   test    the programs that the tests use: namespaces, guests, tshark, Chromium, stress-ng ...
#   arm64, armv7, riscv64   the emulator and the cross compiler of scripts/emulated.sh
#   bench   the public tools that `make bench` compares with
#   predict the programs whose gain `make predict` predicts
#
# Installs with apt as root or through sudo. Without apt, or without the right to use it, it lists what is
# missing: as an error if compiling needs it, otherwise as a warning, and the tests concerned report that
# they are skipped.
set -euo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }

# command or file that shows that a package is installed : Debian package
build_needs=(cc:gcc make:make git:git /usr/include/stdio.h:libc6-dev)
build_wants=(stress-ng:stress-ng)
test_wants=(
  stress-ng:stress-ng perf:linux-perf ip:iproute2 tc:iproute2 ethtool:ethtool tshark:tshark
  chromium:chromium linux.uml:user-mode-linux insmod:kmod strace:strace python3:python3
  nginx:nginx-light unshare:util-linux pgrep:procps pkg-config:pkgconf
  /usr/include/liburing.h:liburing-dev /usr/include/zmq.h:libzmq3-dev /usr/include/nng/nng.h:libnng-dev go:golang-go
  /usr/include/dbus-1.0/dbus/dbus.h:libdbus-1-dev dbus-daemon:dbus-daemon
  /usr/lib/python3/dist-packages/grpc:python3-grpcio mpirun.openmpi:openmpi-bin mpicc.openmpi:libopenmpi-dev
  redis-server:redis-server redis-benchmark:redis-tools
  xz:xz-utils
)
# The emulator of guests with a kernel of Debian's.
case $(uname -m) in
  x86_64) test_wants+=(qemu-system-x86_64:qemu-system-x86) ;;
  aarch64) test_wants+=(qemu-system-aarch64:qemu-system-arm) ;;
esac
arm64_wants=(qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu
  /usr/aarch64-linux-gnu/lib/libc.a:libc6-dev-arm64-cross)
armv7_wants=(qemu-system-arm:qemu-system-arm arm-linux-gnueabihf-gcc:gcc-arm-linux-gnueabihf
  /usr/arm-linux-gnueabihf/lib/libc.a:libc6-dev-armhf-cross)
riscv64_wants=(qemu-system-riscv64:qemu-system-misc /usr/share/qemu/opensbi-riscv64-generic-fw_dynamic.bin:opensbi
  riscv64-linux-gnu-gcc:gcc-riscv64-linux-gnu /usr/riscv64-linux-gnu/lib/libc.a:libc6-dev-riscv64-cross)
emulated_wants=(
  cpio:cpio depmod:kmod xz:xz-utils ip:iproute2 unshare:util-linux
  python3:python3 /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
)
bench_wants=(sockperf:sockperf iperf3:iperf3 redis-server:redis-server redis-benchmark:redis-tools
  mpirun.mpich:mpich mpicc.mpich:libmpich-dev)

predict_wants=(
  strace:strace redis-server:redis-server redis-benchmark:redis-tools memcached:memcached nginx:nginx-light
  pgbench:postgresql setpriv:util-linux ss:iproute2 /usr/lib/python3/dist-packages/zmq:python3-zmq
  /usr/lib/python3/dist-packages/grpc:python3-grpcio /usr/lib/python3/dist-packages/dbus:python3-dbus
  mariadbd:mariadb-server /usr/lib/python3/dist-packages/pymysql:python3-pymysql dbus-daemon:dbus-daemon
  mpirun.openmpi:openmpi-bin mpicc.openmpi:libopenmpi-dev
)

have() {
  case $1 in
    /*) [ -e "$1" ] ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 ;;
  esac
}

missing() {
  local pair
  for pair in "$@"; do
    have "${pair%%:*}" || printf '%s\n' "${pair##*:}"
  done | sort -u
}

install() {
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || return 1
    sudo=(sudo)
  fi
  command -v apt-get >/dev/null 2>&1 || return 1
  say "installing $*"
  local quiet=(env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Dpkg::Use-Pty=0)
  "${sudo[@]}" "${quiet[@]}" update >/dev/null || say "apt-get update failed; trying with the existing lists"
  "${sudo[@]}" "${quiet[@]}" install --no-install-recommends "$@" >/dev/null
}

provide() { # needs|wants pair...
  local grade=$1 packages
  shift
  mapfile -t packages < <(missing "$@")
  [ ${#packages[@]} -eq 0 ] && return 0
  install "${packages[@]}" || true
  mapfile -t packages < <(missing "$@")
  [ ${#packages[@]} -eq 0 ] && return 0
  say "missing, and cannot be installed here: ${packages[*]}"
  if [ "$grade" = needs ]; then
    say "Crossway cannot be compiled without them. On Debian: sudo apt-get install ${packages[*]}"
    exit 1
  fi
  say "tests and comparisons that need them will be skipped with a message. On Debian: sudo apt-get install ${packages[*]}"
}

rust() {
  local want=1.89 version
  [ -r "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
  if ! command -v cargo >/dev/null 2>&1; then
    say "cargo is missing. Install it with rustup (https://rustup.rs), then run this again"
    exit 1
  fi
  version=$(cargo --version | sed 's/^cargo \([0-9.]*\).*/\1/')
  if [ "$(printf '%s\n%s\n' "$want" "$version" | sort -V | head -n 1)" != "$want" ]; then
    say "cargo $version is too old; Crossway needs $want or later: rustup update stable"
    exit 1
  fi
}

# A full disk makes compilers and linkers die of signals that do not name it.
room() { # folder of the build, GB that the first build there needs
  local target=${CARGO_TARGET_DIR:-target} need=$2 at free
  [ -d "$target/$1" ] && return 0
  at=$(realpath -m "$target")
  until [ -d "$at" ]; do at=$(dirname "$at"); done
  # Another df may not have these options.
  free=$(df --output=avail -B1G "$at" 2>/dev/null | tail -n 1) || return 0
  [ "$free" -ge "$need" ] && return 0
  say "the first build needs $need GB, and ${free// /} GB are free in $at. Free some space, or build on another disk:"
  say "CARGO_TARGET_DIR=/FOLDER make ..."
  exit 1
}

case ${1:-} in
  build) room release 2; provide needs "${build_needs[@]}"; provide wants "${build_wants[@]}"; rust ;;
  test)
    # Cargo keeps as much again for incremental builds.
    room debug "$([ "${CARGO_INCREMENTAL:-1}" = 0 ] && echo 6 || echo 10)"
    provide needs "${build_needs[@]}"; provide wants "${test_wants[@]}"; rust
    for part in clippy rustfmt; do
      cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$part" || {
        say "cargo $part is missing: rustup component add $part"; exit 1; }
    done ;;
  predict) provide needs "${build_needs[@]}"; provide wants "${predict_wants[@]}" ;;
  arm64 | armv7 | riscv64)
    declare -n machine_wants=$1_wants
    provide needs "${build_needs[@]}"; provide wants "${machine_wants[@]}" "${emulated_wants[@]}"; rust ;;
  bench) provide needs "${build_needs[@]}"; provide wants "${bench_wants[@]}"; rust ;;
  *) say "usage: scripts/setup.sh build|test|arm64|armv7|riscv64|bench|predict"; exit 2 ;;
esac
