//! Helper program of the suite. In a guest, the suite tests mechanisms that this machine's kernel lacks; this program
//! is the guest's keeper, its first program and its exec command. It is also the `tipcd` for the mechanisms that need
//! one.

use std::process::ExitCode;

use crossway_netlab::run_guest_subcommand;
use crossway_tipc_node::{TipcdOptions, run_tipcd};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(exit) = run_guest_subcommand(&words) {
        return exit;
    }
    let parts: Vec<&str> = words.iter().map(String::as_str).collect();
    let why = match parts[..] {
        ["tipcd", ..] => match TipcdOptions::from_words(&words[1..]) {
            Ok(options) => match run_tipcd(&options) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => format!("{error:#}"),
            },
            Err(why) => why,
        },
        _ => "this program is a part of the conformance suite; run: cargo test -p crossway-conformance".to_owned(),
    };
    eprintln!("{why}");
    ExitCode::FAILURE
}
