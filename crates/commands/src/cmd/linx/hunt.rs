//! `crossway linx hunt`.

use std::path::Path;
use std::process::ExitCode;

use crossway_linx::{Endpoint, Error};

use crate::args;
use crate::ui::EXIT_NO;

#[derive(clap::Args)]
pub(super) struct Hunt {
    /// Name of the endpoint, preceded by the names of the links that lead to it, if any, as in a/b/name
    path: String,
    /// Give up after this many seconds, with exit status 1 [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = args::number)]
    timeout: Option<f64>,
}

impl Hunt {
    pub(super) fn run(self, dir: &Path) -> anyhow::Result<ExitCode> {
        let until = super::deadline(self.timeout)?;
        let mut endpoint = Endpoint::open(dir, "crossway-linx-hunt")?;
        let spid = match endpoint.hunt_and_wait(&self.path, until) {
            Ok(spid) => spid,
            Err(Error::TimedOut) => {
                eprintln!("crossway: endpoint '{}' did not appear before the timeout", self.path);
                return Ok(ExitCode::from(EXIT_NO));
            }
            Err(error) => return Err(error.into()),
        };
        match endpoint.info(spid) {
            Ok(info) if info.pid > 0 => println!("{spid} {} of process {}", info.name, info.pid),
            Ok(info) => println!("{spid} {}", info.name),
            // The endpoint has ended in the meantime.
            Err(_) => println!("{spid} {}", self.path),
        }
        Ok(ExitCode::SUCCESS)
    }
}
