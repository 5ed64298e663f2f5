//! Describes how a process ended, for error messages.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::OnceLock;

use crossway_sys::{cgroup, proc};
use signal_hook::consts::{SIGKILL, SIGXCPU};

/// How many characters of a process's standard error are quoted.
const QUOTED: usize = 400;

/// Describes the exit status and the last part of the output in one sentence.
pub(crate) fn exit_report(status: std::io::Result<ExitStatus>, wrote: &str) -> String {
    let how = match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was killed by signal {signal}{}", limit_behind(signal)),
            (None, Some(code)) => format!("ended with code {code}"),
            (None, None) => "ended".to_owned(),
        },
        Err(e) => format!("ended with an unknown status ({e})"),
    };
    let text = wrote.trim();
    if text.is_empty() {
        return how;
    }
    let from = text.char_indices().rev().take(QUOTED).last().map_or(0, |(at, _)| at);
    let words: Vec<&str> = text[from..].split_whitespace().collect();
    format!("{how} (output: {})", words.join(" "))
}

/// Of which cgroup the kernel had ended how many processes for lack of memory before this program started any.
static ENDED_BEFORE: OnceLock<Option<(PathBuf, u64)>> = OnceLock::new();

/// To be called before a process is started whose end [`exit_report`] may have to explain.
pub(crate) fn before_start() {
    ENDED_BEFORE.get_or_init(cgroup::memory_kills);
}

/// The limit by which the system may have ended the process, and what helps; empty if there is none.
fn limit_behind(signal: i32) -> String {
    let may_be_limit = [SIGXCPU, SIGKILL].contains(&signal);
    if let Some(limit) = proc::cpu_time_limit().filter(|_| may_be_limit) {
        return format!(
            " (RLIMIT_CPU, the limit of CPU time, is {} s; raise it: ulimit -t unlimited)",
            limit.as_secs()
        );
    }
    let ended = ENDED_BEFORE.get().filter(|_| signal == SIGKILL);
    match ended.map(|before| (before, cgroup::memory_kills())) {
        Some((before, Some(now))) if before.as_ref() != Some(&now) => format!(
            " (the kernel ended processes of the cgroup {} for lack of memory; raise its memory.max, or `docker run \
             --memory`)",
            now.0.display()
        ),
        _ => String::new(),
    }
}
