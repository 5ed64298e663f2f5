//! `crossway tipc trace`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossway_report::units::count;
use crossway_sys::Errno;
use crossway_tipc_client::admin::Station;

use super::{Site, capture};
use crate::pcap::{self, LinkType, Output};
use crate::ui::Interrupts;

/// The UDP port that tshark decodes as TIPC.
const UDP_PORT: u16 = 6118;
/// Size in bytes at which a batch of frames is written to the file. A batch contains only whole frames.
const BATCH_BYTES: usize = 1 << 20;

#[derive(clap::Args)]
pub(super) struct Trace {
    /// File to write, or - for standard output
    file: PathBuf,
    /// Exit after this many frames
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Exit after this many seconds [default: run until interrupted]
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
}

impl Trace {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        let mut out = Output::create(&self.file)?;
        let interrupts = Interrupts::catch()?;
        let mut frames = site.tipcd.trace()?;
        let end = self.seconds.and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
        out.write(&pcap::file_header(LinkType::Ethernet), 0)?;
        let (mut written, mut lost, mut odd_port) = (0, 0, None);
        let mut batch = Vec::new();
        let over = |written| self.count.is_some_and(|count| written >= count);
        while !over(written) && !interrupts.any() && end.is_none_or(|end| Instant::now() < end) {
            match frames.try_next() {
                Ok(Some(frame)) => {
                    if let (Station::Udp(from), Station::Udp(to)) = (frame.from, frame.to)
                        && from.port() != UDP_PORT
                        && to.port() != UDP_PORT
                    {
                        odd_port = Some(from.port());
                    }
                    lost = frame.lost;
                    capture::append(&frame, &mut batch);
                    written += 1;
                    if batch.len() < BATCH_BYTES {
                        continue;
                    }
                }
                Ok(None) if batch.is_empty() => {
                    // Wait only briefly, so that a signal that has just arrived is noticed soon.
                    let soon = Instant::now() + Duration::from_millis(100);
                    frames.wait(Some(end.map_or(soon, |end| end.min(soon))))?;
                    continue;
                }
                Ok(None) => {}
                Err(Errno::PIPE) => {
                    out.write(&batch, written)?;
                    anyhow::bail!(
                        "the tipcd at {} ended; {} written to {}",
                        site.tipcd.path().display(),
                        counted(written),
                        self.file.display()
                    );
                }
                Err(errno) => return Err(errno).context("cannot read frames from the tipcd"),
            }
            out.write(&batch, written)?;
            batch.clear();
        }
        out.write(&batch, written)?;
        report(site, &self.file, written, lost, odd_port)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn counted(frames: u64) -> String {
    count(frames as usize, "frame", "frames")
}

fn report(
    site: &Site<'_>,
    file: &Path,
    written: u64,
    lost: u64,
    odd_port: Option<u16>,
) -> anyhow::Result<()> {
    if site.json && file != Path::new("-") {
        site.ui.print_json(&serde_json::json!({
            "file": file, "frames": written, "lost_frames": lost, "udp_port": odd_port,
        }))?;
        return Ok(());
    }
    if file == Path::new("-") {
        eprintln!("{} written to standard output", counted(written));
    } else {
        eprintln!("{} written to {}", counted(written), file.display());
    }
    if lost > 0 {
        eprintln!("{} lost: the output could not be written fast enough", counted(lost));
    }
    if let Some(port) = odd_port {
        eprintln!(
            "tshark decodes only UDP port {UDP_PORT} as TIPC; read this capture with: tshark -d udp.port=={port},tipc -r FILE"
        );
    }
    Ok(())
}
