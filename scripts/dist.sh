#!/usr/bin/env bash
# Builds what is published, below dist/: scripts/dist.sh [TARGET...]
#
# For each target (this machine's if none is named) an archive with the static program, man pages, completions and
# contenders in the layout of PREFIX, and the program alone; SHA256SUMS of all; and a bill of materials. Two builds of
# one commit have the same sums if they use the same toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'dist: %s\n' "$*" >&2; }

CARGO=${CARGO:-cargo}
# A program that is larger is not published.
PROGRAM_BYTES_MOST=${PROGRAM_BYTES_MOST:-15500000}
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
build=${CARGO_TARGET_DIR:-$PWD/target}
[ $# -gt 0 ] || set -- "$host"

# Files get the time of the commit, not of the build.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# What cargo keeps for incremental builds depends on earlier builds.
export CARGO_INCREMENTAL=0
# Paths of this machine must not be in the program.
remap="--remap-path-prefix=$PWD=/crossway --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
remap+=" --remap-path-prefix=$(rustc --print sysroot)=/rust"

# The toolchain's own linker, if it has one, folds functions of equal code and packs the relocations of a static program.
# "safe" folds nothing, as rustc does not mark the functions whose addresses are compared; no code of ours compares any.
lld=$(rustc --print sysroot)/lib/rustlib/$host/bin/gcc-ld
small=
[ ! -d "$lld" ] || small="-C link-arg=-B$lld -C link-arg=-fuse-ld=lld -C link-arg=-Wl,--icf=all -C link-arg=-Wl,--pack-dyn-relocs=relr"

# The linker of a target; cross compilers of Debian are named so.
linker_of() {
  case $1 in
    "$host") echo cc ;;
    aarch64-unknown-linux-gnu) echo aarch64-linux-gnu-gcc ;;
    armv7-unknown-linux-gnueabihf) echo arm-linux-gnueabihf-gcc ;;
    riscv64gc-unknown-linux-gnu) echo riscv64-linux-gnu-gcc ;;
    *) say "the target $1 has no linker here"; exit 2 ;;
  esac
}

rm -rf dist
mkdir dist
for target; do
  linker=$(linker_of "$target")
  command -v "$linker" >/dev/null || {
    say "$linker is missing. On Debian: apt-get install gcc-${linker%-gcc} libc6-dev-${target%%-*}-cross"; exit 1; }
  [ -d "$(rustc --print target-libdir --target "$target")" ] || {
    say "the toolchain lacks the standard library of $target: rustup target add $target"; exit 1; }
  variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")
  # With a target named, these flags do not reach build scripts and macros, which must be able to load libraries.
  export "${variable}_RUSTFLAGS=$remap" "${variable}_LINKER=$linker"
  say "building for $target the libraries for unmodified programs, which the program contains"
  libraries=$build/dist-libraries
  "$CARGO" build --profile dist-library --locked -p crossway-preload -p crossway-tipc-preload \
    --target "$target" --target-dir "$libraries"
  export CROSSWAY_LIBRARIES=$libraries/$target/dist-library
  # By flags and not by a variable of cargo's, which would also concern build scripts.
  unset "${variable}_LINKER"
  export "${variable}_RUSTFLAGS=-C target-feature=+crt-static -C linker=link-program.sh $small $remap"
  tools=${linker%gcc}
  [ "$linker" != cc ] || tools=
  say "building for $target"
  PATH=$PWD/scripts:$PATH CROSSWAY_LINKER=$linker CROSSWAY_OBJCOPY=${tools}objcopy \
    "$CARGO" build --profile dist --locked -p crossway --target "$target" --target-dir "$build"
  program=$build/$target/dist/crossway
  name=crossway-$version-$target
  # What rustc leaves of the symbols is a tenth of the program.
  "${tools}strip" --strip-all "$program"
  bytes=$(stat -c %s "$program")
  [ "$bytes" -le "$PROGRAM_BYTES_MOST" ] || {
    say "$program has $bytes bytes, more than $PROGRAM_BYTES_MOST: find what grew (docs/decisions/0179-openings-once.md and 0181-loops-shared.md say how), or raise PROGRAM_BYTES_MOST with the reason"; exit 1; }
  cp "$program" "dist/$name"
  # Man pages and completions come from the program, which may not run here.
  runs=$program
  "$runs" --version >/dev/null 2>&1 || runs=$build/$host/dist/crossway
  [ -x "$runs" ] || { say "build for $host first: the man pages of $target come from that program"; exit 1; }
  stage=$build/dist-stage/$name
  rm -rf "$stage"
  make --no-print-directory -s install-program PREFIX= DESTDIR="$stage" PROGRAM="$program" RUNS="$runs"
  install -Dm644 -t "$stage/share/doc/crossway" LICENSE-APACHE LICENSE-MIT
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$build/dist-stage" -c "$name" |
    xz -9 -T1 > "dist/$name.tar.xz"
done

if "$CARGO" cyclonedx --version >/dev/null 2>&1; then
  # Written beside each Cargo.toml; only the program's is published.
  "$CARGO" cyclonedx --format json --spec-version 1.5 --manifest-path crates/crossway/Cargo.toml --override-filename dist-bom
  mv crates/crossway/dist-bom.json "dist/crossway-$version.cdx.json"
  find crates fuzz -name dist-bom.json -delete
else
  say "no bill of materials: cargo install --locked cargo-cyclonedx"
fi
(cd dist && sha256sum -- * > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
ls -l dist >&2
