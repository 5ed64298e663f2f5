//! The internal subcommands of a program that boots guests: they run the guests' keepers, first programs and commands.

use std::process::ExitCode;

use super::{GuestExit, exec_in_guest, run_guest_init, run_guest_keeper};

/// Runs the guest subcommand in a program's arguments: `guest-keeper NAME` keeps a guest on the host, `guest-init` is
/// the guest's first program, and `guest exec NAME -- COMMAND` runs a command in it. A program that boots guests
/// ([`GuestSpec::new`](super::GuestSpec::new)) calls this first. Errors are printed to standard error. Returns `None`
/// for all other arguments.
pub fn run_guest_subcommand(words: &[String]) -> Option<ExitCode> {
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
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{why}\n"));
    Some(ExitCode::FAILURE)
}

impl From<GuestExit> for ExitCode {
    /// The exit status as a shell would return it: 128 plus the signal's number for a command that was killed.
    fn from(exit: GuestExit) -> Self {
        match exit {
            GuestExit::Code(code) => Self::from(code as u8),
            GuestExit::Signal(signal) => Self::from(128 + signal as u8),
        }
    }
}
