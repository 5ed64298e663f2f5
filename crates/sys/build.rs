//! Compiles the library that moves extended CPU state for guests (`src/xstate_relay.c`), with the C compiler that Rust
//! uses as its linker. If that compiler cannot compile C, the library is an empty file and guests run without it. For
//! other processors than x86-64 it is always empty: user-mode Linux does not run on them.

use std::path::Path;
use std::process::Command;

/// Size in bytes of the extended state of a CPU with tile registers (AMX). Tests emulate such a CPU.
const EMULATED_BYTES: u32 = 11008;

fn main() {
    const SOURCE: &str = "src/xstate_relay.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let target = std::env::var("TARGET").unwrap_or_default();
    let wanted = target.starts_with("x86_64-") && target.contains("linux");
    let native = std::env::var("HOST").is_ok_and(|host| host == target);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let emulated = format!("-DEMULATED_BYTES={EMULATED_BYTES}");
    for (name, variant) in
        [("xstate_relay.so", None), ("xstate_relay_emulated.so", Some(&emulated))]
    {
        let library = Path::new(&out).join(name);
        let compiled = wanted
            && native
            && Command::new(&compiler)
                .args(["-O2", "-fPIC", "-shared", "-Wall", "-s", SOURCE, "-o"])
                .arg(&library)
                .args(variant)
                .status()
                .is_ok_and(|status| status.success());
        if !compiled {
            if wanted {
                println!(
                    "cargo::warning=no C compiler for {SOURCE}, so guests cannot preserve AVX registers on CPUs with \
                     AMX; install a C compiler"
                );
            }
            std::fs::write(&library, []).expect("cargo's OUT_DIR is writable");
        }
    }
}
