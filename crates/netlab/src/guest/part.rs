//! The parts of a guest that the program which boots it plays itself.

use std::process::ExitCode;

use super::{GuestExit, exec_in_guest, run_guest_init, run_guest_keeper};

/// Plays a part of a guest if these words, a program's arguments, ask for one: `guest-keeper NAME` on the host, `guest-init` as the
/// guest's first program, `guest exec NAME -- COMMAND` as the way in. Every program that boots guests ([`GuestSpec::new`](super::GuestSpec::new))
/// begins with this; what fails is told on standard error. `None` for all other words.
pub fn play_guest_part(words: &[String]) -> Option<ExitCode> {
    let parts: Vec<&str> = words.iter().map(String::as_str).collect();
    let why = match parts[..] {
        ["guest-keeper", name] => match run_guest_keeper(name) {
            Ok(()) => return Some(ExitCode::SUCCESS),
            Err(error) => error.to_string(),
        },
        ["guest-init", ..] => run_guest_init(),
        ["guest", "exec", name, "--", ..] => match exec_in_guest(name, &words[4..]) {
            Ok(exit) => return Some(exit.into()),
            Err(error) => error.to_string(),
        },
        _ => return None,
    };
    eprintln!("{why}");
    Some(ExitCode::FAILURE)
}

impl From<GuestExit> for ExitCode {
    /// As a shell tells it: 128 and the number of the signal.
    fn from(exit: GuestExit) -> Self {
        match exit {
            GuestExit::Code(code) => Self::from(code as u8),
            GuestExit::Signal(signal) => Self::from(128 + signal as u8),
        }
    }
}
