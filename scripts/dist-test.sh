#!/usr/bin/env bash
# Uses the published program in an empty root: scripts/dist-test.sh FILE
#
# The root contains the program, /proc, /dev, /sys and /tmp: no library, no shell, no compiler. Needs root, or the right
# to make user namespaces; otherwise it says SKIP.
set -euo pipefail

file=$(realpath "${1:?usage: scripts/dist-test.sh FILE}")
say() { printf 'dist-test: %s\n' "$*"; }
fail() { say "FAILED: $*"; exit 1; }

spaces=(unshare --mount --pid --fork --kill-child)
[ "$(id -u)" -eq 0 ] || spaces+=(--user --map-root-user)
"${spaces[@]}" true 2>/dev/null || { say "SKIP: namespaces cannot be made here; run it as root"; exit 0; }

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root"/{bin,proc,dev,sys,tmp,runs}
cp "$file" "$root/bin/crossway"

# Runs the program alone in the root: inside ARG...
inside() {
  "${spaces[@]}" bash -c '
    set -e
    root=$1; shift
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    cd "$root/runs"
    chroot=$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)
    exec env -i PATH=/bin "$chroot" "$root" /bin/crossway "$@"' - "$root" "$@"
}

began=$SECONDS
inside --version | tee "$root/version.txt"
grep -q ', static$' "$root/version.txt" || fail "the program is not static"
[ "$(inside list | wc -l)" -gt 20 ] || fail "list shows too few mechanisms"
inside doctor > "$root/doctor.txt" || fail "doctor"
inside measure quick --trials 1 --out /runs > "$root/measure.txt" || { tail -n 20 "$root/measure.txt"; fail "measure"; }
run=$(basename "$root"/runs/*-*)
[ -s "$root/runs/$run/report.html" ] || fail "measure left no report"
inside report "/runs/$run" --markdown > "$root/report.md" || fail "report"
[ "$(grep -c '^|' "$root/report.md")" -gt 10 ] || fail "the report has no table"

# The program contains the libraries for unmodified programs. It is alone in its folder, outside of the root.
if [ -x /usr/bin/python3 ]; then
  mkdir "$root/outside"
  cat > "$root/outside/talk.py" <<'END'
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
server = threading.Thread(target=lambda: listener.accept()[0].sendall(b"moved"))
server.start()
assert socket.create_connection(listener.getsockname()).recv(5) == b"moved"
server.join()
END
  env -u XDG_RUNTIME_DIR XDG_CACHE_HOME="$root/outside/cache" CROSSWAY_RUN_PATIENCE_MS=20000 \
    "$root/bin/crossway" run --explain="$root/outside/explained" -- /usr/bin/python3 "$root/outside/talk.py"
  [ "$(grep -c 'a UNIX stream pair in place of TCP' "$root/outside/explained")" -eq 2 ] ||
    { cat "$root/outside/explained"; fail "crossway run moved nothing"; }
else
  say "SKIP crossway run: /usr/bin/python3 is missing; install python3"
fi
say "passed: from the copied file to the report in $((SECONDS - began)) s, the file is $(stat -c %s "$file") bytes"
