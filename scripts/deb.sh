#!/usr/bin/env bash
# Builds Debian packages around a static program into dist/: scripts/deb.sh FILE
#
# Needs debhelper, dh-python and a Rust toolchain for the C libraries. The packager is DEBFULLNAME <DEBEMAIL>, or the user
# whom git knows.
set -euo pipefail
file=$(realpath "${1:?usage: scripts/deb.sh FILE}")
cd "$(dirname "$0")/.."
say() { printf 'deb: %s\n' "$*" >&2; }

CARGO=${CARGO:-cargo}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
packager="${DEBFULLNAME:-$(git config user.name)} <${DEBEMAIL:-$(git config user.email)}>"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
command -v dh >/dev/null && command -v dh_python3 >/dev/null ||
  { say "debhelper is missing. On Debian: apt-get install debhelper dh-python"; exit 1; }
kind=$(dpkg-architecture -qDEB_HOST_MULTIARCH)

# BUILT names a folder in which the libraries are already.
[ -n "${BUILT:-}" ] || "$CARGO" build --profile dist-library --locked --target-dir "$build" -p crossway-tipc-preload \
  -p crossway-tipc-capi -p crossway-linx-capi -p crossway-channel-capi
built=${BUILT:-$build/dist-library}
stage=$build/deb/crossway-$version
root=$stage/installed
rm -rf "$build/deb"
mkdir -p "$stage"
cp -r packaging/debian "$stage/debian"
sed "s|@MAINTAINER@|$packager|" packaging/debian/control.in > "$stage/debian/control"
printf 'crossway (%s) unstable; urgency=medium\n\n  * Release %s.\n\n -- %s  %s\n' "$version" "$version" "$packager" \
  "$(date -uRd "@$SOURCE_DATE_EPOCH")" > "$stage/debian/changelog"

install() { make --no-print-directory -s PREFIX=/usr DESTDIR="$root" BUILT="$built" "$@"; }
install install-program PROGRAM="$file" RUNS="$file"
install install-tipc install-linx install-channel
# Libraries of this kind of processor, beside those of others.
mkdir "$root/usr/lib/$kind"
mv "$root"/usr/lib/{libcrossway_*,pkgconfig} "$root/usr/lib/$kind"
sed -i "s|^libdir=.*|libdir=\${prefix}/lib/$kind|" "$root/usr/lib/$kind"/pkgconfig/*.pc
mv "$root/usr/share/doc/crossway" "$root/usr/share/doc/libcrossway-dev"
command install -m644 "$built/libcrossway_tipc_preload.so" "$root/usr/lib"
command install -d "$root/usr/lib/systemd/system" "$root/usr/lib/python3/dist-packages"
sed 's|@PREFIX@|/usr|' crates/tipc/node/tipcd.service.in > "$root/usr/lib/systemd/system/tipcd.service"
printf '#!/bin/sh\nexec /usr/bin/crossway tipcd "$@"\n' > "$root/usr/bin/tipcd"
chmod 755 "$root/usr/bin/tipcd"
cp -r python/src/crossway "$root/usr/lib/python3/dist-packages/"
find "$root/usr/lib/python3" -name __pycache__ -prune -exec rm -r '{}' +
(cd "$stage" && dpkg-buildpackage -b -us -uc -d > "$build/deb/log.txt" 2>&1) || { tail -n 20 "$build/deb/log.txt"; exit 1; }
mv "$build"/deb/*.deb dist/
ls -l dist/*.deb >&2
