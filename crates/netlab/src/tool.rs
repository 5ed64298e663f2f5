//! Runs the system's tools (`ip`, `tc`, `ethtool`, `taskset`), feeds them input, and quotes their errors.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use crossway_sys::{OsError, proc, program};

use crate::NetError;
use crate::registry::Making;

/// The tools that a network needs, with the Debian package of each.
const NEEDED: [(&str, &str); 4] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("ethtool", "ethtool"), ("taskset", "util-linux")];

/// Checks that all tools that a network needs are installed; the error names the missing one.
pub(crate) fn check_all() -> Result<(), NetError> {
    check_in(&program::search_path())
}

fn check_in(path: &OsStr) -> Result<(), NetError> {
    match NEEDED.into_iter().find(|(tool, _)| program::find_in(tool, path).is_none()) {
        None => Ok(()),
        Some((tool, package)) => Err(NetError::MissingTool { tool, package }),
    }
}

/// Runs a tool with `input` on its standard input and returns its output. `doing` names the purpose in errors. The tool
/// dies with the calling process.
pub(crate) fn run(doing: &str, argv: &[&str], input: &str) -> Result<String, NetError> {
    run_command(doing, argv, input, |_| ())
}

/// As [`run`], for a tool that creates the object of `making`: if this process is killed, the process that cleans up
/// waits for the tool.
pub(crate) fn run_making(
    making: &Making,
    doing: &str,
    argv: &[&str],
    input: &str,
) -> Result<String, NetError> {
    run_command(doing, argv, input, |command| making.share_with(command))
}

fn run_command(
    doing: &str,
    argv: &[&str],
    input: &str,
    prepare: impl FnOnce(&mut Command),
) -> Result<String, NetError> {
    let failed = |e| OsError::new("run", argv.join(" "), e);
    let mut command = Command::new(argv[0]);
    command
        .args(&argv[1..])
        .env("PATH", program::search_path())
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    proc::die_with_parent(&mut command);
    prepare(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    // Scripts are far smaller than a pipe's capacity, so writing everything before reading cannot block; a tool that
    // ended early shows that by its status.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let out = child.wait_with_output().map_err(failed)?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let mut said = one_line(&String::from_utf8_lossy(&out.stderr));
    if said.is_empty() {
        said = format!("{} ended with {}", argv[0], out.status);
    }
    Err(NetError::Refused { doing: doing.to_owned(), said })
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let error = check_in("/nowhere:/proc/self".as_ref()).unwrap_err().to_string();
        assert_eq!(error, "the program 'ip' was not found; install it: apt-get install iproute2");
    }

    #[test]
    fn a_refusal_quotes_the_tool() {
        let error = run("setting x", &["sh", "-c", "echo no >&2; echo never >&2; exit 3"], "");
        assert_eq!(error.unwrap_err().to_string(), "setting x: no; never");
        let error = run("setting x", &["sh", "-c", "exit 3"], "unread input").unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
