#!/usr/bin/env bash
# Builds the wheel around a static program into dist/: scripts/wheel.sh FILE
#
# Needs python3 with venv, and PyPI for the build tool, hatchling.
set -euo pipefail
file=$(realpath "${1:?usage: scripts/wheel.sh FILE}")
cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-target}/wheel-tools
[ -x "$tools/bin/hatchling" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install -q 'hatchling>=1.27'; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CROSSWAY_PROGRAM=$file
out=$PWD/dist tools=$(realpath "$tools")
cd python
"$tools/bin/hatchling" build -t wheel -d "$out"
