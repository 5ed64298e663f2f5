//! `crossway tipc trace`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossway_sys::Errno;
use crossway_tipc_client::admin::Station;

use super::{Site, capture};
use crate::pcap::{Capture, LinkType};
use crate::ui::Interrupts;

/// The UDP port that tshark decodes as TIPC.
const UDP_PORT: u16 = 6118;

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
        let interrupts = Interrupts::catch()?;
        let mut frames = site.tipcd.trace()?;
        let mut capture = Capture::create(&self.file, LinkType::Ethernet, ["frame", "frames"])?;
        let end = self.seconds.and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
        let (mut lost, mut odd_port) = (0, None);
        let over = |written| self.count.is_some_and(|count| written >= count);
        while !over(capture.written)
            && !interrupts.any()
            && end.is_none_or(|end| Instant::now() < end)
        {
            match frames.try_next() {
                Ok(Some(frame)) => {
                    if let (Station::Udp(from), Station::Udp(to)) = (frame.from, frame.to)
                        && from.port() != UDP_PORT
                        && to.port() != UDP_PORT
                    {
                        odd_port = Some(from.port());
                    }
                    lost = frame.lost;
                    capture.take(|batch| capture::append(&frame, batch))?;
                }
                Ok(None) if capture.is_flushed() => {
                    // Wait only briefly, so that a signal that has just arrived is noticed soon.
                    let soon = Instant::now() + Duration::from_millis(100);
                    frames.wait(Some(end.map_or(soon, |end| end.min(soon))))?;
                }
                Ok(None) => capture.flush()?,
                Err(Errno::PIPE) => {
                    capture.flush()?;
                    let at = site.tipcd.path().display();
                    anyhow::bail!("the tipcd at {at} ended; {}", capture.so_far());
                }
                Err(errno) => return Err(errno).context("cannot read frames from the tipcd"),
            }
        }
        capture.flush()?;
        self.report(site, &capture, lost, odd_port)?;
        Ok(ExitCode::SUCCESS)
    }
    fn report(
        &self,
        site: &Site<'_>,
        capture: &Capture<'_>,
        lost: u64,
        odd_port: Option<u16>,
    ) -> anyhow::Result<()> {
        if site.json && !capture.is_on_stdout() {
            return site.ui.print_json(&serde_json::json!({
                "file": self.file, "frames": capture.written, "lost_frames": lost, "udp_port": odd_port,
            }));
        }
        capture.tell(lost);
        if let Some(port) = odd_port {
            eprintln!(
                "tshark decodes only UDP port {UDP_PORT} as TIPC; read this capture with: tshark -d udp.port=={port},tipc -r FILE"
            );
        }
        Ok(())
    }
}
