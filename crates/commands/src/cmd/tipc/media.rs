//! `crossway tipc media`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;

use super::Site;
use super::words::{Media as Medium, Words, check_media};

/// Default tolerance of links on every medium, as in the kernel.
const TOLERANCE_MS: u32 = 1_500;
const PRIORITY: u32 = 10;
/// Default maximum send windows of links in packets, by medium.
const WINDOW_ETHERNET: u32 = 8_191;
const WINDOW_UDP: u32 = 1_024;

#[derive(clap::Args)]
pub(super) struct Media {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the media that a tipcd can use
    List,
    /// Show a medium's defaults for bearers
    Get {
        /// In iproute2's syntax: { priority | tolerance | window } media MEDIA, where MEDIA is eth or udp
        #[arg(required = true, value_name = "KEYWORDS")]
        words: Vec<String>,
    },
    /// Not supported by tipcd; use `tipc bearer set` instead
    Set {
        /// In iproute2's syntax: { priority | tolerance | window } VALUE media MEDIA
        #[arg(required = true, value_name = "KEYWORDS")]
        words: Vec<String>,
    },
}

impl Media {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List => site.show(&["eth", "udp"], |media| {
                media.iter().for_each(|name| println!("{name}"));
            }),
            What::Get { words } => {
                const USAGE: &str = "{ priority | tolerance | window } media MEDIA";
                let mut words = Words::new(words);
                let media = words.text("media")?.with_context(|| format!("expected {USAGE}"))?;
                let media = check_media(&media)?;
                let property = words.property(&["priority", "tolerance", "window"]);
                words.end(USAGE)?;
                let value = match property.with_context(|| format!("expected {USAGE}"))? {
                    "priority" => PRIORITY,
                    "tolerance" => TOLERANCE_MS,
                    _ if media == Medium::Udp => WINDOW_UDP,
                    _ => WINDOW_ETHERNET,
                };
                site.show(&json!({ property.unwrap_or_default(): value }), |_| println!("{value}"))
            }
            What::Set { words } => {
                let bearer = if words.last().is_some_and(|w| w == "udp") {
                    "name NAME"
                } else {
                    "device DEVICE"
                };
                bail!(
                    "a tipcd has no settings for a whole medium; set each bearer: crossway tipc bearer set {} {bearer}",
                    words.join(" ")
                )
            }
        }
    }
}
