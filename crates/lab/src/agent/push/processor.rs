//! Kinds of processors: what hosts call them, and for which one a file is.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A kind of processor for which Crossway is published.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Processor {
    /// The name in messages, and in Rust.
    pub(super) name: &'static str,
    /// The beginning of the names of its targets.
    pub(super) target: &'static str,
    /// What `uname -m` says, or how that begins.
    machine: &'static [&'static str],
    /// The number in the head of an ELF file.
    elf: u16,
}

const ALL: [Processor; 4] = [
    Processor { name: "x86_64", target: "x86_64-", machine: &["x86_64", "amd64"], elf: 62 },
    Processor { name: "aarch64", target: "aarch64-", machine: &["aarch64", "arm64"], elf: 183 },
    Processor { name: "arm", target: "armv7-", machine: &["armv7", "armv8l"], elf: 40 },
    Processor { name: "riscv64", target: "riscv64gc-", machine: &["riscv64"], elf: 243 },
];

impl Processor {
    /// The processor of which `uname -m` says `machine`.
    pub(super) fn of_machine(machine: &str) -> Option<&'static Processor> {
        ALL.iter().find(|p| p.machine.iter().any(|word| machine.starts_with(word)))
    }

    /// The processor for which this program was compiled.
    pub(super) fn own() -> Option<&'static Processor> {
        ALL.iter().find(|p| p.name == std::env::consts::ARCH)
    }
}

/// For which processor a file is, in words; `None` if it is not a program or cannot be read.
pub(super) fn of_file(path: &Path) -> Option<String> {
    let mut head = [0; 20];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    of_head(&head)
}

fn of_head(head: &[u8; 20]) -> Option<String> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = [head[18], head[19]];
    // 2: the most significant byte comes first.
    let elf = if head[5] == 2 { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    let known = ALL.iter().find(|p| p.elf == elf);
    Some(known.map_or_else(|| format!("ELF machine {elf}"), |p| p.name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_hosts_name_their_processor() {
        let own = of_file(&std::env::current_exe().unwrap());
        assert_eq!(own.as_deref(), Some(std::env::consts::ARCH));
        let mut head = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0";
        assert_eq!(of_head(&head).as_deref(), Some("aarch64"));
        // s390x, whose files begin with the most significant byte.
        (head[5], head[18], head[19]) = (2, 0, 22);
        assert_eq!(of_head(&head).as_deref(), Some("ELF machine 22"));
        assert_eq!(of_head(b"#!/bin/sh\nexec true\n"), None);
        let named = |machine| Processor::of_machine(machine).map(|p| p.name);
        assert_eq!(named("armv7l"), Some("arm"));
        assert_eq!(named("aarch64"), Some("aarch64"));
        assert_eq!(named("s390x"), None);
    }
}
