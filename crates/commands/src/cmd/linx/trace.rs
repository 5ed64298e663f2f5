//! `crossway linx trace`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossway_linx::Error;
use crossway_linx::trace::{MOST_PAYLOAD, Trace};

use crate::pcap::{self, Capture, LinkType};
use crate::ui::{Interrupts, Ui};

/// Time limit, after the end of a trace, for writing the records that the node reported before the end.
const DRAINS_WITHIN: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(super) struct TraceTo {
    /// File to write, or - for standard output
    file: PathBuf,
    /// Exit after this many records
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Exit after this many seconds [default: run until interrupted]
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Keep at most this many bytes of each signal's payload
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = payload)]
    payload: usize,
    /// At the end, print the numbers of written, lost and invalid records as JSON, unless FILE is -
    #[arg(long)]
    json: bool,
}

fn payload(word: &str) -> Result<usize, String> {
    match word.parse() {
        Ok(bytes) if bytes <= MOST_PAYLOAD => Ok(bytes),
        _ => Err(format!("expected a number of bytes up to {MOST_PAYLOAD}")),
    }
}

impl TraceTo {
    pub(super) fn run(self, dir: &Path, ui: &Ui) -> anyhow::Result<ExitCode> {
        let interrupts = Interrupts::catch()?;
        let mut trace = Trace::start(dir, self.payload)?;
        let mut capture = Capture::create(&self.file, LinkType::User0, ["record", "records"])?;
        let end = self.seconds.and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
        let mut stops_at = None;
        while self.count.is_none_or(|count| capture.written < count) {
            if stops_at.is_none()
                && (interrupts.any() || end.is_some_and(|end| end <= Instant::now()))
            {
                // Records that were reported before are still written, but not for longer than this.
                stops_at = Some(Instant::now() + DRAINS_WITHIN);
            }
            if stops_at.is_some_and(|at| at <= Instant::now()) {
                break;
            }
            match trace.try_next() {
                Ok(Some(record)) => {
                    capture.take(|batch| {
                        pcap::append(record.at_ns, record.bytes, record.whole_len, batch);
                    })?;
                }
                Ok(None) if stops_at.is_some() => break,
                Ok(None) if capture.is_flushed() => {
                    // Wait only briefly, so that a signal that has just arrived is noticed soon.
                    let soon = Instant::now() + Duration::from_millis(100);
                    trace.wait(Some(end.map_or(soon, |end| end.min(soon))))?;
                }
                Ok(None) => capture.flush()?,
                Err(Error::NodeGone) => {
                    capture.flush()?;
                    anyhow::bail!("the LINX node at {} ended; {}", dir.display(), capture.so_far());
                }
                Err(error) => return Err(error.into()),
            }
        }
        capture.flush()?;
        self.report(ui, &trace, &capture)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, ui: &Ui, trace: &Trace, capture: &Capture<'_>) -> anyhow::Result<()> {
        let (lost, invalid) = (trace.lost(), trace.invalid());
        if self.json && !capture.is_on_stdout() {
            return ui.print_json(&serde_json::json!({
                "file": self.file, "records": capture.written, "lost_records": lost, "invalid_records": invalid,
            }));
        }
        capture.tell(lost);
        if invalid > 0 {
            eprintln!("{} left out: not well-formed", capture.counted(invalid));
        }
        Ok(())
    }
}
