//! The workloads, and their properties.

use serde::{Deserialize, Serialize};

use super::Span;

/// The workload: what the two or more processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One process sends as fast as the other receives.
    Throughput,
    /// Request and reply, of the same size unless [`super::Inputs::reply_bytes`] says otherwise; the time from request to
    /// reply is reported as a round trip.
    PingPong,
    /// Open loop: a burst of `burst_bytes`, divided into messages of the case's size, is due every `period_us`, even if
    /// earlier bursts are late. Latency counts from the time at which a message was due. A message rate is expressed as
    /// bursts of one message.
    Paced {
        /// Bytes per burst.
        burst_bytes: u64,
        /// Microseconds between the starts of two bursts.
        period_us: u64,
    },
    /// Open loop: a request is due every `period_ns`. If the previous request is still unanswered, the next one is sent
    /// as soon as the reply arrives. The time from when a request is due to its reply is reported as a round trip.
    Requests {
        /// Nanoseconds between two requests.
        period_ns: u64,
    },
    /// Connect, one request, one reply, close; set-up, exchange and tear-down are timed separately (item C4 of the
    /// cluster study).
    Exchange,
    /// Several independent pairs at the same time, each in one direction.
    Pairs {
        /// Number of pairs.
        pairs: u32,
    },
    /// Several senders to one receiver (item T11 of Toshiba's study, item E25 of Enea's study): as
    /// fast as it receives or, with a period, open loop. Each sender then has a schedule of its
    /// own, and the latency of a message counts from the time at which it was due.
    FanIn {
        /// Number of senders.
        senders: u32,
        /// Simulated work of the receiver for each message, microseconds; 0 if the receiver only receives.
        #[serde(default, skip_serializing_if = "is_zero")]
        receiver_us: u32,
        /// Microseconds between two messages of a sender; 0 for as many as possible.
        #[serde(default, skip_serializing_if = "is_zero")]
        period_us: u32,
    },
    /// One sender to several receivers in turn: as fast as they receive or, with a period, open loop. The latency of each
    /// message to each receiver counts from the time at which it was due for all of them.
    FanOut {
        /// Number of receivers.
        receivers: u32,
        /// Microseconds between two messages to all receivers; 0 for as many as possible.
        #[serde(default, skip_serializing_if = "is_zero")]
        period_us: u32,
    },
    /// Several clients of one server, each with a channel of its own. Without a period, a client
    /// has as many requests in flight as it may: a reply is followed by the next request, and the
    /// time from each request to its reply is reported as a round trip. With a period, each client
    /// sends as in [`Workload::Requests`], but a request waits only for as many replies as it must
    /// for that number in flight.
    Clients {
        /// Number of clients.
        clients: u32,
        /// Number of requests that each client has in flight; with a period, the highest number.
        in_flight: u32,
        /// Nanoseconds between two requests of a client; 0 for as many as possible.
        #[serde(default, skip_serializing_if = "is_zero")]
        period_ns: u64,
    },
    /// The messages of recorded channels, with their sizes, pauses and causes.
    Replay {
        /// CRC-32 of what is replayed, so that two recordings are never taken for the same.
        recording: u32,
        /// The channel's number in the recording; of several, of the first one that was named or the busiest one.
        channel: u32,
        /// Number of channels.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        channels: u32,
        /// Speed in per cent of the recorded one; 0: as fast as possible, without any pause.
        speed_percent: u32,
        /// What the channel's messages are.
        shape: ReplayShape,
    },
}

/// What the messages of recorded channels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayShape {
    /// Messages in both directions: one end sends, then waits for what the other end answers.
    Exchanges,
    /// Messages in one direction, each sent at its time.
    Stream,
    /// Messages in one direction, sent as fast as they are received.
    Bulk,
}

impl Workload {
    /// The workload's text in case ids and in exports.
    pub fn word(&self) -> String {
        match self {
            Self::Throughput => "throughput".to_owned(),
            Self::PingPong => "ping-pong".to_owned(),
            Self::Paced { burst_bytes, period_us } => format!("paced-{burst_bytes}B-{period_us}us"),
            Self::Requests { period_ns } => format!("requests-{period_ns}ns"),
            Self::Exchange => "exchange".to_owned(),
            Self::Pairs { pairs } => format!("pairs-{pairs}"),
            Self::FanIn { senders, receiver_us, period_us } => {
                let slow = match receiver_us {
                    0 => String::new(),
                    us => format!("-slow{us}us"),
                };
                let period = match period_us {
                    0 => String::new(),
                    us => format!("-{us}us"),
                };
                format!("fan-in-{senders}{slow}{period}")
            }
            Self::FanOut { receivers, period_us: 0 } => format!("fan-out-{receivers}"),
            Self::FanOut { receivers, period_us } => format!("fan-out-{receivers}-{period_us}us"),
            Self::Clients { clients, in_flight, period_ns: 0 } => {
                format!("clients-{clients}-in-flight-{in_flight}")
            }
            Self::Clients { clients, in_flight: 1, period_ns } => {
                format!("clients-{clients}-{period_ns}ns")
            }
            Self::Clients { clients, in_flight, period_ns } => {
                format!("clients-{clients}-in-flight-{in_flight}-{period_ns}ns")
            }
            Self::Replay { recording, channel, channels, speed_percent, .. } => {
                let speed = match speed_percent {
                    0 => "-as-fast-as-possible".to_owned(),
                    100 => String::new(),
                    percent => format!("-{percent}percent"),
                };
                match channels {
                    1 => format!("replay-{recording:08x}-{channel}{speed}"),
                    several => format!("replay-{recording:08x}-{several}-channels{speed}"),
                }
            }
        }
    }

    /// The properties of the workload that matter wherever it is planned, run, ranked or shown. New workloads are added
    /// here.
    pub fn facts(&self) -> WorkloadFacts {
        match *self {
            Self::Throughput => WorkloadFacts {
                measure: Measure::Rate,
                extent: Extent::Messages,
                has_replies: false,
                beside: true,
                contenders: true,
            },
            Self::PingPong => WorkloadFacts {
                measure: Measure::RoundTrip,
                extent: Extent::Messages,
                has_replies: true,
                beside: true,
                contenders: true,
            },
            Self::Paced { burst_bytes, period_us } => WorkloadFacts {
                measure: Measure::OneWay,
                extent: Extent::Instants {
                    period_ns: period_us.saturating_mul(1_000),
                    burst_bytes: Some(burst_bytes),
                },
                has_replies: false,
                beside: true,
                contenders: false,
            },
            Self::Requests { period_ns } | Self::Clients { period_ns: period_ns @ 1.., .. } => {
                WorkloadFacts {
                    measure: Measure::RoundTrip,
                    extent: Extent::Instants { period_ns, burst_bytes: None },
                    has_replies: true,
                    beside: false,
                    contenders: false,
                }
            }
            Self::Exchange => WorkloadFacts {
                measure: Measure::Exchange,
                extent: Extent::Messages,
                has_replies: true,
                beside: false,
                contenders: false,
            },
            Self::Replay { speed_percent, shape, .. } => WorkloadFacts {
                measure: match shape {
                    ReplayShape::Exchanges => Measure::RoundTrip,
                    ReplayShape::Stream => Measure::OneWay,
                    ReplayShape::Bulk => Measure::Rate,
                },
                extent: if speed_percent == 0 { Extent::Messages } else { Extent::Recorded },
                has_replies: shape == ReplayShape::Exchanges,
                beside: false,
                contenders: false,
            },
            Self::FanIn { period_us: period @ 1.., .. }
            | Self::FanOut { period_us: period @ 1.., .. } => WorkloadFacts {
                measure: Measure::OneWay,
                extent: Extent::Instants {
                    period_ns: u64::from(period) * 1_000,
                    burst_bytes: None,
                },
                has_replies: false,
                beside: false,
                contenders: false,
            },
            Self::Clients { .. } => WorkloadFacts {
                measure: Measure::RoundTrip,
                extent: Extent::Time,
                has_replies: true,
                beside: false,
                contenders: false,
            },
            Self::Pairs { .. } | Self::FanIn { .. } | Self::FanOut { .. } => WorkloadFacts {
                measure: Measure::Rate,
                extent: Extent::Time,
                has_replies: false,
                beside: false,
                contenders: false,
            },
        }
    }

    /// Number of roles that send on a schedule of their own if the workload is paced.
    pub fn schedules(&self) -> u64 {
        match *self {
            Self::Clients { clients: roles, .. } | Self::FanIn { senders: roles, .. } => {
                roles.max(1).into()
            }
            _ => 1,
        }
    }

    /// Whether a message marks the end of a window, so that a lossy mechanism cannot carry the workload, and each message
    /// must have room for a sequence number.
    pub fn ends_with_mark(&self) -> bool {
        self.facts().timed() || matches!(self, Self::Clients { .. } | Self::FanIn { .. })
    }
}

/// Number of whole messages in a burst of a paced stream, at least one. Plans allow only bursts of whole messages; records
/// of earlier versions may have others.
pub fn messages_per_burst(burst_bytes: u64, size_bytes: u64) -> u64 {
    (burst_bytes / size_bytes.max(1)).max(1)
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

/// The figure that expresses how fast a workload was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Messages per second, for workloads whose messages are not timed one by one.
    Rate,
    /// The time from a request to its reply.
    RoundTrip,
    /// The time from when a message is due to its receipt.
    OneWay,
    /// The times of connecting, of one request with its reply, and of closing.
    Exchange,
}

impl Measure {
    /// The latency in a record that belongs to this figure; for an exchange, that of the request with its reply. `None`
    /// for a rate.
    pub fn span(self) -> Option<Span> {
        match self {
            Measure::Rate => None,
            Measure::RoundTrip => Some(Span::RoundTrip),
            Measure::OneWay => Some(Span::OneWay),
            Measure::Exchange => Some(Span::Exchange),
        }
    }

    /// What counts as one message in a record, for example in its CPU time per message.
    pub fn per(self) -> Per {
        match self {
            Measure::Rate | Measure::OneWay => Per::Message,
            Measure::RoundTrip => Per::RoundTrip,
            Measure::Exchange => Per::Exchange,
        }
    }
}

/// What counts as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    /// A message in one direction.
    Message,
    /// A request with its reply.
    RoundTrip,
    /// Connecting, a request with its reply, and closing.
    Exchange,
}

impl Per {
    /// The name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Per::Message => "message",
            Per::RoundTrip => "round trip",
            Per::Exchange => "exchange",
        }
    }
}

/// What ends a window of a workload, and when its messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A number of messages, each sent as soon as possible.
    Messages,
    /// A number of messages, sent at fixed times.
    Instants {
        /// Time between two send times, nanoseconds.
        period_ns: u64,
        /// Bytes due at each send time, divided into messages; `None`: one message.
        burst_bytes: Option<u64>,
    },
    /// A duration; messages are numbered and sent as soon as possible.
    Time,
    /// A number of messages, each sent as long after the previous message, or after the begin, as it was recorded.
    Recorded,
}

/// Properties of a workload that do not depend on the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// The figure that expresses how fast the workload was.
    pub measure: Measure,
    /// What ends a window, the timed part of a trial, and when its messages are sent.
    pub extent: Extent,
    /// Whether messages are answered.
    pub has_replies: bool,
    /// Whether the workload can run concurrently with a measured workload.
    pub beside: bool,
    /// Whether the protocol of contenders supports the workload.
    pub contenders: bool,
}

impl WorkloadFacts {
    /// Whether replies can have a different size from requests.
    pub fn sizes_replies(&self) -> bool {
        self.measure == Measure::RoundTrip
    }

    /// Whether the workload runs for a duration instead of for a number of messages.
    pub fn timed(&self) -> bool {
        self.extent == Extent::Time
    }

    /// Whether the workload's messages are sent at fixed times.
    pub fn paced(&self) -> bool {
        matches!(self.extent, Extent::Instants { .. })
    }
}
