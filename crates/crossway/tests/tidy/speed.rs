//! What keeps measured code fast and everything else small.

use std::fs;

use super::{complain, root, rust_sources, tracked};

/// The loops that carry and check messages are optimised for speed in what users run. The level of the program itself counts
/// for all crates at link time, so the program is nothing but that level: what it does is in crates with levels of their own.
#[test]
fn what_is_measured_is_optimised_for_speed() {
    const MEASURED: [&str; 10] = [
        "crossway",
        "crossway-channel",
        "crossway-linx",
        "crossway-loops",
        "crossway-mech",
        "crossway-ring",
        "crossway-sys",
        "crossway-tipc-client",
        "crossway-tipc-node",
        "crossway-tipc-proto",
    ];
    // They carry the messages of programs, but within the published program no measured ones.
    const IN_LIBRARIES: [&str; 2] = ["crossway-channel", "crossway-run"];
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let manifest: toml::Table = text.parse().expect("a manifest");
    let mut found = Vec::new();
    let mut looked = 0;
    for profile in ["release", "dist", "dist-library", "bench"] {
        let Some(settings) = manifest["profile"].get(profile) else { continue };
        looked += 1;
        for name in MEASURED {
            let level = settings.get("package").and_then(|all| all.get(name)?.get("opt-level"));
            let elsewhere = profile == "dist" && IN_LIBRARIES.contains(&name);
            if !elsewhere && level.is_some_and(|level| level.as_integer() != Some(3)) {
                found.push(format!("profile {profile}: {name} has {level:?}"));
            }
        }
        // What dist optimises for size, dist-library inherits.
        for name in IN_LIBRARIES.iter().filter(|_| profile == "dist-library") {
            let level = settings.get("package").and_then(|all| all.get(name)?.get("opt-level"));
            if level.and_then(toml::Value::as_integer) != Some(3) {
                found.push(format!("profile {profile}: {name} has {level:?}"));
            }
        }
        if let Some(level) = settings.get("opt-level") {
            found.push(format!("profile {profile}: {level}"));
        }
    }
    assert!(looked >= 3, "only {looked} profiles found: the check looks at nothing");
    let own = tracked().into_iter().filter(|(path, _)| path.starts_with("crates/crossway/src/"));
    let surplus = own.map(|(path, _)| path).filter(|path| !path.ends_with("/main.rs"));
    found.extend(
        surplus.map(|path| format!("{path} is optimised for speed: move it to crates/commands")),
    );
    complain("what is measured is optimised for speed, and nothing else", found);
}

/// A function that is inlined is optimised like its caller, which for these is not for speed.
#[test]
fn what_others_call_to_measure_is_not_inlined() {
    let loops = ["crates/loops/src/calibrate.rs", "crates/loops/src/role.rs"];
    let mut found = Vec::new();
    let mut seen = 0;
    for (path, text) in rust_sources() {
        let yardstick = path.starts_with("crates/sys/src/yardstick/");
        if !yardstick && !loops.contains(&path.as_str()) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            // Of the methods of a role, these work with its channels.
            let of_role = ["begin(", "connect(", "accept(", "prepare(", "run("]
                .iter()
                .any(|name| !yardstick && line.starts_with(&format!("    pub fn {name}")));
            if !(of_role || line.starts_with("pub fn ")) {
                continue;
            }
            seen += 1;
            if at == 0 || lines[at - 1].trim() != "#[inline(never)]" {
                found.push(format!("{path}:{}", at + 1));
            }
        }
    }
    assert!(seen > 10, "only {seen} functions found: the check looks at nothing");
    complain("these lack #[inline(never)]", found);
}

/// With all that a mechanism sets up, opening would be compiled into every loop and probe.
#[test]
fn channels_are_opened_out_of_line() {
    let opening = "crates/mech/src/opening.rs";
    let (mut found, mut seen) = (Vec::new(), 0);
    for (path, text) in rust_sources() {
        let lines: Vec<&str> = text.lines().collect();
        if path == opening {
            for at in (0..lines.len()).filter(|at| lines[*at].starts_with("pub fn ")) {
                seen += 1;
                if at == 0 || lines[at - 1] != "#[inline(never)]" {
                    found.push(format!("{path}:{}: this lacks #[inline(never)]", at + 1));
                }
            }
        }
        if path == "crates/mech/src/self_test.rs" || path.starts_with("crates/loops/src/") {
            let calls = ["M::listen(", "M::connect(", "Listener::accept(", "self.accept(until"];
            let direct = |line: &str| calls.iter().any(|call| line.contains(call));
            found.extend(
                (0..lines.len())
                    .filter(|at| direct(lines[*at]))
                    .map(|at| format!("{path}:{}: call crossway_mech::opening", at + 1)),
            );
        }
    }
    assert!(seen >= 4, "only {seen} functions found in {opening}: the check looks at nothing");
    complain("what opens a channel exists once for each mechanism", found);
}
