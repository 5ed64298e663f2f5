#!/usr/bin/env bash
# Installs a wheel into a new virtual environment, tests it and removes it again: scripts/wheel-test.sh WHEEL [PACKAGE...]
#
# With packages such as polars or pandas, tables are tested, too.
set -euo pipefail
wheel=$(realpath "${1:?usage: scripts/wheel-test.sh WHEEL [PACKAGE...]}")
shift
say() { printf 'wheel-test: %s\n' "$*"; }
cd "$(dirname "$0")/.."
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
python=${PYTHON:-python3}
"$python" -m venv "$where/venv" 2>/dev/null || { say "SKIP: $python has no venv; apt-get install python3-venv"; exit 0; }
before=$(cd "$where/venv" && find . -not -path '*__pycache__*' | sort)
"$where/venv/bin/pip" install -q --no-index "$wheel"
[ $# -eq 0 ] || "$where/venv/bin/pip" install -q "$@"
(cd "$where" && env -u PYTHONPATH venv/bin/crossway --version && venv/bin/python -B "$OLDPWD/python/tests/test_crossway.py" -v)
[ $# -eq 0 ] || exit 0
"$where/venv/bin/pip" uninstall -q -y crossway
after=$(cd "$where/venv" && find . -not -path '*__pycache__*' | sort)
[ "$before" = "$after" ] || { say "FAILED: the removal left files"; diff <(echo "$before") <(echo "$after"); exit 1; }
say "passed: $("$python" --version), $(stat -c %s "$wheel") bytes"
