//! Describes how a process ended, for error messages.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How many characters of a process's standard error are quoted.
const QUOTED: usize = 400;

/// Describes the exit status and the last part of the output in one sentence.
pub(crate) fn exit_report(status: std::io::Result<ExitStatus>, wrote: &str) -> String {
    let how = match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
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
