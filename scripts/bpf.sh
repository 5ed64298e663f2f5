#!/usr/bin/env bash
# Compiles the eBPF recorder: scripts/bpf.sh [FILE]
#
# Writes crates/observe/bpf/recorder.bpf.o, or FILE. Needs clang and llvm-strip of version 14, so that the result is the
# same everywhere: sudo apt-get install clang-14 llvm-14 (Debian 12), or CLANG=... LLVM_STRIP=... for other names.
# Only for whoever changes recorder.bpf.c: building Crossway needs no compiler for BPF.
set -euo pipefail

cd "$(dirname "$0")/../crates/observe/bpf"
out=${1:-recorder.bpf.o}
"${CLANG:-clang-14}" -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -fdebug-compilation-dir=. -c recorder.bpf.c -o "$out"
# Without DWARF, which nobody reads; BTF stays, by which the loader adapts the programs to the running kernel.
"${LLVM_STRIP:-llvm-strip-14}" --strip-debug "$out"
