#!/usr/bin/env bash
# Compiles the programs that run in the kernel (eBPF): scripts/bpf.sh [SOURCE FILE]
#
# Writes the object beside each source, or that of SOURCE to FILE. Needs clang and llvm-strip of version 14, so that the
# result is the same everywhere: sudo apt-get install clang-14 llvm-14 (Debian 12), or CLANG=... LLVM_STRIP=... for other
# names. Only for whoever changes a source: building Crossway needs no compiler for BPF.
set -euo pipefail

cd "$(dirname "$0")/.."

compile() {
    local source=$1 out=$2
    (cd "$(dirname "$source")" &&
        "${CLANG:-clang-14}" -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -fdebug-compilation-dir=. \
            -c "$(basename "$source")" -o "$out")
    # Without DWARF, which nobody reads; BTF stays, by which the loader adapts the programs to the running kernel.
    "${LLVM_STRIP:-llvm-strip-14}" --strip-debug "$out"
}

if [ $# -eq 2 ]; then
    compile "$1" "$(realpath "$2")"
else
    for source in crates/*/bpf/*.bpf.c; do
        compile "$source" "$PWD/${source%.c}.o"
    done
fi
