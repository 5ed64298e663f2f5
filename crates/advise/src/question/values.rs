//! The values of a question's keys: pattern, site, goals and sizes.

use crossway_records::percentile::Percentile;

/// The communication pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One process sends a request and waits for the reply.
    RequestReply,
    /// Messages flow in one direction.
    Stream,
    /// One sender, several receivers.
    FanOut,
    /// Several senders, one receiver.
    FanIn,
    /// Connect, send a request, receive the reply, close.
    ConnectPerExchange,
}

impl Pattern {
    pub(super) const ALL: [(&'static str, Pattern); 5] = [
        ("request-reply", Pattern::RequestReply),
        ("stream", Pattern::Stream),
        ("fan-out", Pattern::FanOut),
        ("fan-in", Pattern::FanIn),
        ("connect-per-exchange", Pattern::ConnectPerExchange),
    ];

    /// The pattern's name in questions.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, p)| *p == self).map_or("", |(word, _)| word)
    }
}

/// Location of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// On this host.
    SameHost,
    /// In another container of this host's kernel.
    OtherContainer,
    /// On another host.
    OtherHost,
}

impl Site {
    pub(super) const ALL: [(&'static str, Site); 3] = [
        ("same-host", Site::SameHost),
        ("other-container", Site::OtherContainer),
        ("other-host", Site::OtherHost),
    ];

    /// The site's name in questions.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, s)| *s == self).map_or("", |(word, _)| word)
    }
}

/// The goals of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goals {
    /// Maximum latency in microseconds, by percentile.
    pub latency_us: Vec<(Percentile, f64)>,
    /// Maximum CPU time of all ends and of servers between them, in percent of one CPU.
    pub cpu_percent: Option<f64>,
    /// Maximum memory in bytes for the channel's buffers, both directions together.
    pub memory_bytes: Option<u64>,
}

impl Goals {
    /// The percentile by which latency is judged: the highest that has a goal, or the median if
    /// none has.
    pub(super) fn percentile(&self) -> Percentile {
        self.latency_us.iter().map(|(p, _)| *p).max().unwrap_or(Percentile::P50)
    }

    /// The goals in words, such as `p99 at most 500 us`.
    pub fn words(&self) -> Vec<String> {
        let latency = self.latency_us.iter().map(|(p, most)| goal(p.name(), *most, "us"));
        let cpu = self.cpu_percent.map(|most| goal("CPU", most, "%"));
        let memory = self.memory_bytes.map(|most| goal("buffers", most as f64, "bytes"));
        latency.chain(cpu).chain(memory).collect()
    }
}

/// A goal in words.
pub(crate) fn goal(what: &str, most: f64, unit: &str) -> String {
    let unit = if unit == "bytes" && most == 1.0 { "byte" } else { unit };
    format!("{what} at most {most} {unit}")
}

/// A message size and how often it occurs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Message size in bytes.
    pub bytes: u64,
    /// Fraction of all messages; the fractions add up to 1.
    pub share: f64,
}
