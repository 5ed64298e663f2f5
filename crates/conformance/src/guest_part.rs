//! The keeper and the first program of the guest in which the suite tests mechanisms that this machine's kernel lacks, and
//! the way in. Also the `tipcd` for the mechanisms that need one.

use std::process::ExitCode;

use crossway_netlab::{GuestExit, exec_in_guest, run_guest_init, run_guest_keeper};
use crossway_tipc_node::{TipcdOptions, run_tipcd};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&str> = words.iter().map(String::as_str).collect();
    let why = match parts[..] {
        ["guest-keeper", name] => match run_guest_keeper(name) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error.to_string(),
        },
        ["guest-init", ..] => run_guest_init(),
        ["guest", "exec", name, "--", ..] => match exec_in_guest(name, &words[4..]) {
            Ok(GuestExit::Code(code)) => return ExitCode::from(code as u8),
            Ok(GuestExit::Signal(signal)) => return ExitCode::from(128 + signal as u8),
            Err(error) => error.to_string(),
        },
        ["tipcd", .., path] => match run_tipcd(&TipcdOptions::lone(path.into())) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => format!("{error:#}"),
        },
        _ => "a part of the conformance suite; run: cargo test -p crossway-conformance".to_owned(),
    };
    eprintln!("{why}");
    ExitCode::FAILURE
}
