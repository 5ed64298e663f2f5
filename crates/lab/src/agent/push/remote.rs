//! A short command on a host: its input, its output, and how it ended.

use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossway_sys::{poll, proc, program};

use crate::agent::HostError;
use crate::agent::host::careful;
use crate::exit_report::exit_report;
use crossway_records::testbed::HostWords;

/// How often the end of the command is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// What a command printed on its standard output.
pub(super) struct Said(String);

impl Said {
    /// What follows the word `about` in the lines that `push` scripts print. Lines of others, such as greetings of
    /// shells, are not looked at.
    pub(super) fn about<'a>(&'a self, about: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix("crossway-push: "));
        lines.filter_map(move |line| Some(line.strip_prefix(about)?.trim()))
    }
}

/// Runs `command`, whose words must not need quotes, on the host, with `input` as its standard input.
///
/// # Errors
/// The command prefix cannot be run, the command fails or does not end within `limit`, or the run is interrupted.
pub(super) fn run(
    host: &HostWords,
    command: &[&str],
    input: impl Read + Send + 'static,
    limit: Duration,
    interrupt: Option<BorrowedFd<'_>>,
) -> Result<Said, HostError> {
    let words: Vec<String> =
        host.prefix.iter().cloned().chain(command.iter().map(|w| (*w).to_owned())).collect();
    let shown = words.join(" ");
    let name = || host.name.clone();
    let words = careful(words);
    let mut start = Command::new(&words[0]);
    start.args(&words[1..]).env("PATH", program::search_path());
    start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    proc::own_session(&mut start);
    proc::die_with_parent(&mut start);
    let mut child = start.spawn().map_err(|e| HostError::NoProgram {
        host: name(),
        program: words[0].clone(),
        why: e.to_string(),
    })?;
    let to = child.stdin.take();
    // Ends when everything was written, or the command reads no more.
    let writer = thread::spawn(move || to.map(|mut to| copy(input, &mut to)));
    let (out, errors) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Err(e) => break Err(e),
            Ok(None) if is_readable(interrupt) => {
                kill(&mut child);
                return Err(HostError::Interrupted);
            }
            Ok(None) if Instant::now() >= until => {
                kill(&mut child);
                return Err(HostError::Silent { host: name(), command: shown, limit });
            }
            Ok(None) => thread::sleep(LOOK),
        }
    };
    let (out, errors) = (text(out), text(errors));
    let _ = writer.join();
    match status {
        Ok(status) if status.success() => Ok(Said(out)),
        status => {
            let how = exit_report(status, &errors);
            Err(HostError::NotCopied { host: name(), command: shown, how })
        }
    }
}

fn copy(mut from: impl Read, to: &mut impl Write) -> std::io::Result<u64> {
    std::io::copy(&mut from, to)
}

fn is_readable(interrupt: Option<BorrowedFd<'_>>) -> bool {
    interrupt.is_some_and(|fd| {
        poll::any_readable(&[fd], Some(Instant::now())).is_ok_and(|ready| ready == [true])
    })
}

fn kill(child: &mut Child) {
    proc::kill_group(child.id());
    let _ = child.kill();
    let _ = child.wait();
}

fn collect(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut all);
        }
        all
    })
}

fn text(from: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&from.join().unwrap_or_default()).into_owned()
}
