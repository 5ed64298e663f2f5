//! `crossway channel check`.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use crossway_channel::check::{self, Checked, SHORTEST};

use super::Opening;
use super::talk::explain;
use crate::args;
use crate::ui::Ui;

/// Arguments of `check`.
#[derive(clap::Args)]
pub(super) struct Check {
    /// Name to connect to; its listener must echo messages (crossway channel listen NAME --echo)
    name: String,
    /// Seconds for which to send [default: until standard input ends]
    #[arg(long, value_name = "SECONDS", value_parser = args::number)]
    seconds: Option<f64>,
    /// Size of each message in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    size: usize,
    /// Seconds to wait for a listener
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait_s: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    opening: Opening,
}

impl Check {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let options = self.opening.options()?;
        let (most, lossy) = (options.max_message, options.policy.lossy);
        ensure!(
            (SHORTEST..=most).contains(&self.size),
            "--size {}: give a size from {SHORTEST} to {most} bytes",
            self.size
        );
        let length = self.seconds.map(Duration::try_from_secs_f64).transpose();
        let length = length.map_err(|_| {
            anyhow::anyhow!("--seconds: the number is too large; give a smaller number")
        })?;
        let until = Instant::now().checked_add(Duration::from_secs(self.wait_s));
        let channel = options.connect(&self.name, until)?;
        if self.opening.explain {
            explain(&channel);
        }
        let over = Arc::new(AtomicBool::new(false));
        let checked = match length {
            Some(length) => {
                let end = Instant::now().checked_add(length);
                check::run(channel, self.size, || end.is_some_and(|end| Instant::now() >= end))
            }
            None => {
                let ended = Arc::clone(&over);
                std::thread::spawn(move || {
                    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
                    ended.store(true, Ordering::Relaxed);
                });
                check::run(channel, self.size, || over.load(Ordering::Relaxed))
            }
        };
        if self.json {
            ui.print_json(&checked)?;
        } else {
            show(&checked);
        }
        let right = checked.is_exact() || (lossy && checked.is_in_order());
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn show(checked: &Checked) {
    let Checked { sent, received, lost, duplicated, reordered, damaged, seconds, .. } = checked;
    println!(
        "messages: {sent} sent, {received} came back in {seconds:.1} s; {lost} lost, {duplicated} duplicated, \
         {reordered} reordered, {damaged} damaged"
    );
    for leg in &checked.legs {
        println!("{:14} {:>10} messages in {:.3} s", leg.transport, leg.messages, leg.seconds);
    }
    for moved in &checked.moves {
        let pause_ms = moved.pause_ns as f64 / 1e6;
        println!(
            "the listener moved, {} -> {}: the longest pause was {pause_ms:.1} ms",
            moved.from, moved.to
        );
    }
    if let Some(error) = &checked.error {
        println!("the channel ended with an error: {error}");
    }
}
