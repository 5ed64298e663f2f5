//! Lints for the source tree: rules that neither the compiler nor clippy checks.

mod speed;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of lines of a file; a longer one has more than one subject. Generated and vendored files do not
/// count.
const LINES_AT_MOST: usize = 600;

/// The only files that may allow the lint `unsafe_code`, which the workspace denies. They contain operating-system
/// calls, the shared rings and the code that model-checks them, and functions that C programs call.
const UNSAFE_HOMES: &[&str] = &[
    "crates/sys/src/lib.rs",
    "crates/ring/src/lib.rs",
    "crates/ring/tests/loom_ring.rs",
    "crates/ring/tests/loom_doorbell.rs",
    "crates/ring/tests/loom_handover.rs",
    "crates/ring/tests/heap.rs",
    "crates/tipc/capi/src/ffi.rs",
    "crates/channel/capi/src/ffi.rs",
    "crates/linx/capi/src/ffi/mod.rs",
    "crates/tipc/preload/src/ffi/mod.rs",
    "crates/preload/src/ffi/mod.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

/// Returns the files of the source tree, except those that git ignores: the path relative to the root, and the full
/// path.
fn tracked() -> Vec<(String, PathBuf)> {
    let out = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git ls-files runs");
    assert!(out.status.success(), "this is not a git checkout: {:?}", out);
    String::from_utf8(out.stdout)
        .expect("paths are UTF-8")
        .lines()
        .filter(|path| root().join(path).is_file())
        .map(|path| (path.to_owned(), root().join(path)))
        .collect()
}

fn rust_sources() -> Vec<(String, String)> {
    let sources: Vec<_> = tracked()
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, file)| (path, fs::read_to_string(file).expect("a source file is UTF-8")))
        .collect();
    assert!(sources.len() > 20, "only {} sources found", sources.len());
    sources
}

/// The names and endings of the files that may lie in the root.
const AT_THE_ROOT: &[&str] = &[
    "Makefile",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    ".gitignore",
    "action.yml",
    ".md",
    ".toml",
    ".cff",
    "Cargo.lock",
];

/// The tracked files that are no text, by their folders and endings: archives of a reference run's histograms, and
/// programs for the kernel, which a test compares with their source.
const BINARIES: &[(&str, &str)] =
    &[("records/", ".zip"), ("crates/observe/bpf/", ".bpf.o"), ("crates/mech/bpf/", ".bpf.o")];

fn complain(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn files_have_one_subject() {
    let found = rust_sources()
        .iter()
        .filter(|(_, text)| text.lines().count() > LINES_AT_MOST)
        .map(|(path, text)| format!("{path}: {} lines", text.lines().count()))
        .collect();
    complain("split these", found);
}

#[test]
fn every_source_says_what_it_is() {
    let found = rust_sources()
        .iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path.clone())
        .collect();
    complain("these start without a //! line", found);
}

#[test]
fn unsafe_stays_at_home() {
    let allows = concat!("allow(uns", "afe_code");
    let found = rust_sources()
        .into_iter()
        .filter(|(path, text)| text.contains(allows) && !UNSAFE_HOMES.contains(&path.as_str()))
        .map(|(path, _)| path)
        .collect();
    complain("these allow unsafe code", found);
    let members = tracked().into_iter().filter(|(path, _)| {
        path.ends_with("/Cargo.toml") && (path.starts_with("crates/") || path == "fuzz/Cargo.toml")
    });
    let found = members
        .filter(|(_, file)| {
            let text = fs::read_to_string(file).expect("a manifest is UTF-8");
            !text.contains("[lints]\nworkspace = true")
        })
        .map(|(path, _)| path)
        .collect();
    complain("these do not inherit the workspace's lints", found);
}

#[test]
fn nothing_is_left_to_do_or_tied_to_one_machine() {
    let banned = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
    ];
    let texts = [".rs", ".md", ".toml", ".sh", ".c", ".h", "Makefile"];
    let mut found = Vec::new();
    for (path, file) in tracked() {
        if path.contains("/vendor/") || !texts.iter().any(|ending| path.ends_with(ending)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = banned.iter().find(|word| line.contains(**word)) {
                found.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    complain("banned words", found);
}

#[test]
fn the_root_holds_only_what_belongs_there() {
    let known = |path: &str| {
        AT_THE_ROOT
            .iter()
            .any(|name| path == *name || (name.starts_with('.') && path.ends_with(name)))
    };
    let found = tracked()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| !path.contains('/') && !known(path))
        .collect();
    complain("these are not of a kind that belongs in the root", found);
}

#[test]
fn no_binary_is_tracked() {
    let is_binary = |file: &Path| fs::read(file).is_ok_and(|bytes| bytes.contains(&0));
    let allowed = |path: &str| {
        BINARIES.iter().any(|(folder, ending)| path.starts_with(folder) && path.ends_with(ending))
    };
    let found = tracked()
        .into_iter()
        .filter(|(path, file)| !allowed(path) && is_binary(file))
        .map(|(path, _)| path)
        .collect();
    complain("these contain NUL bytes, so they are no text", found);
}

#[test]
fn the_table_of_contents_lists_every_document() {
    let contents = fs::read_to_string(root().join("docs/README.md")).expect("docs/README.md");
    let found = tracked()
        .into_iter()
        .filter_map(|(path, _)| Some(path.strip_prefix("docs/")?.to_owned()))
        .filter(|name| name.ends_with(".md") && !name.contains('/') && name != "README.md")
        .filter(|name| !contents.contains(&format!("]({name})")))
        .collect();
    complain("docs/README.md does not list these", found);
}

#[test]
fn no_module_is_a_drawer() {
    let drawers = ["util", "utils", "helper", "helpers", "manager", "misc", "common"];
    let found = rust_sources()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| {
            let stem = Path::new(path).file_stem().and_then(|s| s.to_str()).unwrap_or("");
            drawers.contains(&stem)
        })
        .collect();
    complain("name these after what they hold", found);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut found = Vec::new();
    let mut seen = 0;
    for (path, file) in tracked().into_iter().filter(|(path, _)| path.ends_with(".md")) {
        let text = fs::read_to_string(&file).expect("a document is UTF-8");
        for piece in text.split("](").skip(1) {
            let target = piece.split([')', '#', ' ']).next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let base = file.parent().expect("a file has a folder");
            if !base.join(target).exists() {
                found.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(seen > 0, "no links found: the check looks at nothing");
    complain("dead links", found);
}

/// A number of spin-loop hints is not a time: a hint takes 1 to 70 ns, depending on the processor.
#[test]
fn the_readme_can_be_read_in_a_terminal() {
    let text = fs::read_to_string(root().join("README.md")).expect("the README is there");
    // A row of a table cannot be wrapped.
    let prose = text.lines().enumerate().filter(|(_, line)| !line.starts_with('|'));
    let long = prose.filter(|(_, line)| line.chars().count() > 120);
    let found = long.map(|(at, line)| format!("README.md:{}: {line}", at + 1));
    complain("lines of the README wider than 120 columns", found.collect());
}

#[test]
fn waits_are_times_and_not_counts_of_hints() {
    const HOME: &str = "crates/sys/src/spin.rs";
    let instructions =
        [concat!("spin_", "loop"), "_mm_pause", "asm!(\"pause", "__builtin_ia32_pause"];
    let calls = ["spin::hint(", "sync::hint(", " hint(", "yield_now("];
    let counts = ["SPINS", "PAUSES", "YIELDS", "HINTS"];
    let mut found = Vec::new();
    let mut uses = 0;
    for (path, text) in rust_sources() {
        let product = path.starts_with("crates/") && path.contains("/src/");
        // The profile names the functions of other programs, too.
        if !product || path == HOME || path.ends_with("profile/part.rs") {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let say = |what: &str| format!("{path}:{}: {what}", at + 1);
            if instructions.iter().any(|word| line.contains(word)) {
                found.push(say("call crossway_sys::spin instead"));
            }
            let name =
                line.trim_start().split_once("const ").and_then(|(_, rest)| rest.split_once(": "));
            if name.is_some_and(|(name, kind)| {
                kind.starts_with(['u', 'i'])
                    && name.split('_').any(|word| counts.contains(&word))
                    // A flag of the doorbell's word.
                    && path != "crates/ring/src/doorbell.rs"
            }) {
                found.push(say("state the wait as a time"));
            }
            if calls.iter().any(|call| line.contains(call)) {
                uses += 1;
                let before = &lines[at.saturating_sub(3)..=at];
                if before.iter().any(|line| line.contains("for _ in 0..")) {
                    found.push(say(
                        "a loop over a count of hints; use spin::idle_for or spin::Attempts",
                    ));
                }
            }
        }
    }
    assert!(uses > 5, "only {uses} waits found: the check looks at nothing");
    complain("a wait that depends on the processor", found);
}

/// ARCHITECTURE's table says which crates a crate uses; its manifest is the truth.
#[test]
fn the_table_of_crates_says_what_each_uses() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut found = Vec::new();
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let link = cells[0].split_once("](").and_then(|(_, rest)| rest.split_once(')'));
        let (folder, _) = link.expect("a row begins with the link to its crate");
        let uses = cells.last().expect("a row has cells").split('(').next().unwrap_or_default();
        let said: BTreeSet<String> = uses
            .split(',')
            .map(|name| name.trim().trim_end_matches('|').trim().replace('/', "-"))
            .filter(|name| !name.is_empty() && !name.starts_with("no other crate"))
            .collect();
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml"));
        let manifest = manifest.unwrap_or_else(|e| panic!("{folder}Cargo.toml: {e}"));
        let used: BTreeSet<String> = manifest
            .lines()
            .skip_while(|line| *line != "[dependencies]")
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| line.strip_prefix("crossway-"))
            .filter_map(|rest| rest.split(['.', ' ']).next().map(str::to_owned))
            .collect();
        rows += 1;
        if said != used {
            found.push(format!("{folder} uses {used:?}, the table says {said:?}"));
        }
    }
    assert!(rows > 10, "only {rows} rows found: the check looks at nothing");
    complain("ARCHITECTURE.md and the manifests differ", found);
}
