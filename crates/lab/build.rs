//! Embeds the compiler's version, the profile and the source revision in this build. A figure can be reproduced only if
//! these are known.

use std::process::Command;

fn first_line(command: &mut Command) -> Option<String> {
    let out = command.output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.lines().next().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned)
}

fn main() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = first_line(Command::new(rustc).arg("--version")).unwrap_or("unknown".to_owned());
    let profile = std::env::var("PROFILE").unwrap_or_default();
    let target = std::env::var("TARGET").unwrap_or_default();
    let mut revision = "unknown".to_owned();
    if profile == "release" {
        // Any change below crates/ may turn a clean tree into a dirty one. Development builds omit the revision, since
        // otherwise every commit would recompile half of the workspace.
        println!("cargo::rerun-if-changed=..");
        if let Some(log) =
            first_line(Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]))
        {
            println!("cargo::rerun-if-changed={log}");
        }
        if let Some(described) =
            first_line(Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]))
        {
            revision = described;
        }
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
    for (name, value) in
        [("REVISION", revision), ("RUSTC", rustc), ("PROFILE", profile), ("TARGET", target)]
    {
        println!("cargo::rustc-env=CROSSWAY_BUILD_{name}={value}");
    }
}
