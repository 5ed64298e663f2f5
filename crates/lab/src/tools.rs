//! External programs that Crossway uses: their location, version, and the package that provides them.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::{Obstacle, program};
use serde::Serialize;

/// Time limit for a version query; a program that takes longer counts as broken.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// An external program.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// The command's name.
    pub name: &'static str,
    /// What Crossway uses the program for.
    pub purpose: &'static str,
    /// The Debian package that contains the program.
    pub package: &'static str,
    /// Arguments that make the program print its version and exit; empty if it has none.
    version_args: &'static [&'static str],
}

const fn tool(
    name: &'static str,
    package: &'static str,
    version_args: &'static [&'static str],
    purpose: &'static str,
) -> Tool {
    Tool { name, purpose, package, version_args }
}

/// All external programs. None of them is needed for cases on this machine alone without background load.
pub const TOOLS: &[Tool] = &[
    tool("stress-ng", "stress-ng", &["--version"], "background load for plans that request it"),
    tool("perf", "linux-perf", &["--version"], "flame graphs of a case"),
    tool("ip", "iproute2", &["-V"], "network namespaces and links between hosts"),
    tool("tc", "iproute2", &["-V"], "shaping of links: delay, loss, rate"),
    tool("ethtool", "ethtool", &["--version"], "offloads of interfaces"),
    tool("tshark", "tshark", &["--version"], "dissecting protocol frames"),
    tool("tcpdump", "tcpdump", &["--version"], "capturing frames"),
    tool("linux.uml", "user-mode-linux", &["--version"], "a guest kernel that has TIPC"),
    tool(crossway_netlab::QEMU.0, crossway_netlab::QEMU.1, &["--version"], "guests of any kernel"),
    tool("chromium", "chromium", &["--version"], "testing the report"),
    tool("sockperf", "sockperf", &["--version"], "reference figures of sockets"),
    tool("iperf3", "iperf3", &["--version"], "reference figures of TCP and UDP"),
    tool("strace", "strace", &["--version"], "counting system calls in tests"),
    tool("numactl", "numactl", &[], "manual memory placement"),
    tool("git", "git", &["--version"], "recording the revision when Crossway is built"),
    tool("cc", "gcc", &["--version"], "the reference loops of the benchmarks"),
];

/// Result of looking for a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Found {
    /// The program is installed, and its version could be queried.
    Ready {
        /// First line of the version output; `unknown` if the program cannot report a version.
        version: String,
        /// Path of the program.
        path: PathBuf,
    },
    /// The program is not installed, or it did not answer.
    Missing(Obstacle),
}

impl Tool {
    /// Looks for the tool and queries its version.
    pub fn find(&self) -> Found {
        let remedy = format!("sudo apt-get install {}", self.package);
        let Some(path) = program::find(self.name) else {
            if self.name == "linux.uml" && cfg!(not(target_arch = "x86_64")) {
                return Found::Missing(Obstacle::new(
                    "user-mode Linux runs on x86-64 only",
                    "none; for TIPC on another machine's kernel: crossway measure --hosts",
                ));
            }
            let why = format!("{} is not in PATH", self.name);
            return Found::Missing(Obstacle::new(why, remedy));
        };
        if self.version_args.is_empty() {
            return Found::Ready { version: "unknown".to_owned(), path };
        }
        match output(Command::new(&path).args(self.version_args), ANSWER_WITHIN) {
            Ok(text) => {
                let line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("unknown");
                Found::Ready { version: line.to_owned(), path }
            }
            Err(why) => Found::Missing(Obstacle::new(
                format!("{} does not report its version: {why}", path.display()),
                format!("sudo apt-get install --reinstall {}", self.package),
            )),
        }
    }
}

/// The tool with this name.
pub fn tool_named(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|t| t.name == name)
}

/// Runs a command until it exits and returns its standard output followed by its standard error. The command is killed
/// after the time limit.
fn output(command: &mut Command, within: Duration) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    crossway_sys::proc::die_with_parent(command);
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let mut pipes: Vec<Box<dyn Read + Send>> = Vec::new();
    pipes.extend(child.stdout.take().map(|p| Box::new(p) as Box<dyn Read + Send>));
    pipes.extend(child.stderr.take().map(|p| Box::new(p) as Box<dyn Read + Send>));
    // Read each pipe in a separate thread: a program that fills one while we read the other would hang.
    let readers: Vec<_> = pipes
        .into_iter()
        .map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        })
        .collect();
    let deadline = Instant::now() + within;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", within.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    };
    let text: String = readers.into_iter().map(|r| r.join().unwrap_or_default()).collect();
    if status.success() { Ok(text) } else { Err(format!("it failed ({status})")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_there_says_its_version() {
        let git = tool_named("git").expect("in the table").find();
        let Found::Ready { version, path } = git else {
            eprintln!("SKIP: no git; sudo apt-get install git");
            return;
        };
        assert!(version.contains("git version"), "{version}");
        assert!(path.is_absolute());
    }

    #[test]
    fn a_program_that_is_not_there_has_a_remedy() {
        let none = tool("crossway-has-no-such-tool", "no-such-package", &["-V"], "nothing");
        let Found::Missing(Obstacle { why, remedy }) = none.find() else { panic!("found") };
        assert!(why.contains("crossway-has-no-such-tool"), "{why}");
        assert_eq!(remedy, "sudo apt-get install no-such-package");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let error = output(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert!(error.expect_err("killed").contains("no answer"));
    }

    #[test]
    fn a_program_that_fails_says_how() {
        let error = output(&mut Command::new("false"), ANSWER_WITHIN).expect_err("exit status 1");
        assert!(error.contains("exit status: 1"), "{error}");
    }
}
