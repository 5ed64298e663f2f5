//! `crossway linx send`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use crossway_linx::signal::{ATTACH, USER_BASE};
use crossway_linx::{Endpoint, Error, Filter, Signal};

use crate::args;
use crate::ui::EXIT_NO;

#[derive(clap::Args)]
pub(super) struct Send {
    /// Receiver: the name of an endpoint, preceded by the names of the links that lead to it, if any, as in a/b/name
    path: String,
    /// Payload of the signal
    #[arg(default_value = "")]
    payload: String,
    /// Signal number, decimal or hexadecimal [default: 0x10000000]
    #[arg(long, value_name = "NUMBER", default_value_t = USER_BASE, hide_default_value = true, value_parser = number)]
    number: u32,
    /// Send the signal out of band, so that it overtakes signals in the receiver's queue
    #[arg(long)]
    out_of_band: bool,
    /// Number of signals to wait for as answers, and to print
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    answers: usize,
    /// Give up after this many seconds, with exit status 1 [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = args::number)]
    timeout: Option<f64>,
}

fn number(word: &str) -> Result<u32, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.map_err(|error| format!("{error}; expected a number up to 0xffffffff"))
}

impl Send {
    pub(super) fn run(self, dir: &Path) -> anyhow::Result<ExitCode> {
        let until = super::deadline(self.timeout)?;
        let mut endpoint = Endpoint::open(dir, "crossway-linx-send")?;
        let late = |what: &str| {
            eprintln!("crossway: {what}");
            Ok(ExitCode::from(EXIT_NO))
        };
        let to = match endpoint.hunt_and_wait(&self.path, until) {
            Err(Error::TimedOut) => {
                return late(&format!(
                    "endpoint '{}' did not appear before the timeout",
                    self.path
                ));
            }
            found => found?,
        };
        endpoint.attach(to, None)?;
        let signal = Signal::with_payload(self.number, self.payload.as_bytes())?;
        if self.out_of_band {
            endpoint.send_out_of_band(signal, to)?;
        } else {
            match endpoint.send_until(signal, to, until) {
                Err(Error::TimedOut) => {
                    return late("the receiver's queue was full until the timeout");
                }
                sent => sent?,
            }
        }
        let mut out = std::io::stdout().lock();
        for _ in 0..self.answers {
            match endpoint.receive(&Filter::ANY, until)? {
                None => return late("too few answers arrived before the timeout"),
                Some(signal) if signal.number() == ATTACH => {
                    return late(&format!("'{}' ended before it had sent all answers", self.path));
                }
                Some(signal) => {
                    let text = String::from_utf8_lossy(signal.payload());
                    writeln!(out, "{:#x} {} bytes: {text}", signal.number(), signal.size())
                        .context("cannot write to standard output")?;
                }
            }
        }
        endpoint.flush(until)?;
        Ok(ExitCode::SUCCESS)
    }
}
