#!/usr/bin/env bash
# Runs all tests, and beside them the checks of lints and documentation: tests wait most of their time. CARGO and MAKE name
# other programs than those on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# All that the tests use, the libraries included: a test that built a selection of packages by itself would compile most of
# the workspace again, with the features that this selection needs (crates/crossway/tests/built).
"$cargo" build --workspace --locked --lib --tests --examples
export CROSSWAY_TESTS_BUILT=1

notes=$(mktemp -d)
trap 'rm -rf "$notes"; kill -- "-$checks" 2>/dev/null || true' EXIT

# Waits for the first child of Cargo, which is this script's only other child: until it starts a test, Cargo locks its
# folder, and the tests would wait for what locks it first.
first_test() {
  local others
  until [ -e "$notes/tested" ]; do
    others=$(pgrep -d, -P $$ | sed "s/\b$BASHPID\b//; s/^,//; s/,$//; s/,,/,/")
    [ -z "$others" ] || ! pgrep -P "$others" >/dev/null || return 0
    sleep 0.2
  done
}

# The checks get only the time that the tests leave.
check() {
  local idle=(nice -n 19)
  if chrt --idle 0 true 2>/dev/null; then idle=(chrt --idle 0); fi
  first_test
  "${idle[@]}" "${MAKE:-make}" check
}

# In a group of its own, to end all of it with this script.
set -m
check </dev/null >"$notes/checks" 2>&1 &
checks=$!
set +m
failed=0
"$cargo" test --workspace --locked --no-fail-fast || failed=1
touch "$notes/tested"
wait "$checks" || failed=1
cat "$notes/checks"
exit "$failed"
