//! The log of a channel, which explains every switch.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::transport::Transport;

/// The reason why a channel changes its transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The channel has just been established, and this is the best transport that both ends allow and can open.
    Upgrade,
    /// The program asked for this transport.
    Asked,
    /// The policy now forbids the transport in use, or pins another one.
    Policy,
    /// Both ends were spinning on this CPU.
    SameCpu(u32),
    /// More threads are runnable than there are CPUs.
    Load {
        /// Number of runnable threads.
        runnable: u32,
        /// Number of CPUs that are online on this machine.
        cpus: u32,
    },
    /// Waiting by spinning would exceed the CPU budget ([`Policy::cpu_budget`](crate::Policy)).
    CpuBudget {
        /// CPU time that spinning would take, in thousandths of a CPU.
        needed_permille: u32,
        /// The budget, in thousandths of a CPU.
        allowed_permille: u32,
    },
    /// For the measured traffic, a message is expected to cost less on the new transport.
    Traffic {
        /// Messages per second, both directions.
        rate_msgs_per_s: u64,
        /// Mean length of these messages in bytes.
        mean_bytes: u64,
        /// Expected cost of a message on the old transport, according to the profile, in nanoseconds.
        before_ns: u64,
        /// Expected cost of a message on the new transport, according to the profile, in nanoseconds.
        after_ns: u64,
    },
    /// The policy prefers this transport.
    Preferred,
    /// Both ends allow loss.
    LossAllowed,
    /// The channel is being handed to another process.
    HandOver,
    /// One end has moved to another process.
    PeerMoved {
        /// Whether the two ends are on different hosts now.
        far: bool,
    },
}

impl Reason {
    /// Whether the spinning ends disturb each other or other threads until the switch is complete.
    pub(crate) const fn is_urgent(&self) -> bool {
        matches!(self, Reason::SameCpu(_) | Reason::Load { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Upgrade => f.write_str("it is the best transport that both ends allow"),
            Reason::Asked => f.write_str("the program asked for it"),
            Reason::Policy => f.write_str("the allowed transports have changed"),
            Reason::SameCpu(cpu) => write!(f, "both ends were spinning on CPU {cpu}"),
            Reason::Load { runnable, cpus } => {
                let unit = if *cpus == 1 { "CPU" } else { "CPUs" };
                write!(f, "{runnable} threads are runnable on {cpus} {unit}")
            }
            Reason::CpuBudget { needed_permille, allowed_permille } => write!(
                f,
                "waiting would take {:.1} % of a CPU, but only {:.1} % is allowed",
                f64::from(*needed_permille) / 10.0,
                f64::from(*allowed_permille) / 10.0
            ),
            Reason::Traffic { rate_msgs_per_s: 0, before_ns, after_ns, .. } => write!(
                f,
                "no message now; expected time per small message: {} -> {}",
                Nanos(*before_ns),
                Nanos(*after_ns)
            ),
            Reason::Traffic { rate_msgs_per_s, mean_bytes, before_ns, after_ns } => write!(
                f,
                "{rate_msgs_per_s} messages/s of {mean_bytes} bytes; expected time per message: {} -> {}",
                Nanos(*before_ns),
                Nanos(*after_ns)
            ),
            Reason::Preferred => f.write_str("the program prefers it"),
            Reason::LossAllowed => f.write_str("both ends allow loss"),
            Reason::HandOver => f.write_str("handed to another process"),
            Reason::PeerMoved { far: true } => {
                f.write_str("one end has moved, and the other is on another host")
            }
            Reason::PeerMoved { far: false } => {
                f.write_str("one end has moved, and both are on one host")
            }
        }
    }
}

/// A duration in nanoseconds that is displayed in a suitable unit.
struct Nanos(u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns @ ..1_000 => write!(f, "{ns} ns"),
            ns @ 1_000..1_000_000 => write!(f, "{:.1} us", ns as f64 / 1e3),
            ns => write!(f, "{:.1} ms", ns as f64 / 1e6),
        }
    }
}

/// What happened to a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The channel was established.
    Connected {
        /// The transport on which the channel began.
        on: Transport,
    },
    /// Both directions use a new transport, and nothing is left on the old one.
    Switched {
        /// The transport that was in use.
        from: Transport,
        /// The new transport.
        to: Transport,
        /// Why the channel switched.
        why: Reason,
        /// Duration of the switch in microseconds. Messages continue to flow during this time.
        took_us: u64,
    },
    /// The policy would have switched, but is only watching (a dry run).
    WouldSwitch {
        /// The transport in use.
        from: Transport,
        /// The transport to which the channel would switch.
        to: Transport,
        /// Why it would switch.
        why: Reason,
    },
    /// The new transport could not be created or opened; the channel keeps the one in use.
    Refused {
        /// The transport in use.
        from: Transport,
        /// The transport that could not be opened.
        to: Transport,
        /// The error, as text.
        because: String,
    },
    /// The connection to another host broke; the ends try to connect again.
    Interrupted,
    /// The ends connected again and continue where they stopped.
    Resumed {
        /// Time without a connection, in microseconds.
        took_us: u64,
    },
    /// The peer closed the channel.
    PeerClosed,
    /// The peer died, or its connection broke, before it closed the channel.
    PeerDied,
    /// The peer violated the protocol; the channel is closed.
    Violated(String),
}

impl EventKind {
    /// Whether the channel has ended with this event.
    pub fn is_end(&self) -> bool {
        matches!(self, EventKind::PeerClosed | EventKind::PeerDied | EventKind::Violated(_))
    }
}

/// An entry of a channel's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event, in milliseconds since 1970 (UTC).
    pub at_unix_ms: u64,
    /// The channel's name.
    pub channel: String,
    /// The channel's id, the same at both ends.
    pub id: u64,
    /// What happened.
    pub what: EventKind,
}

impl Event {
    pub(crate) fn now(channel: &str, id: u64, what: EventKind) -> Event {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Event { at_unix_ms, channel: channel.to_owned(), id, what }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.at_unix_ms / 1000, self.at_unix_ms % 1000);
        let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{h:02}:{m:02}:{s:02}.{ms:03}Z {} ", self.channel)?;
        match &self.what {
            EventKind::Connected { on } => write!(f, "connected on {on}"),
            EventKind::Switched { from, to, why, took_us } => {
                write!(f, "{from} -> {to} in {}: {why}", Nanos(took_us * 1000))
            }
            EventKind::WouldSwitch { from, to, why } => {
                write!(f, "would switch {from} -> {to}: {why}")
            }
            EventKind::Refused { from, to, because } => {
                write!(f, "stays on {from}, because {to} could not be opened: {because}")
            }
            EventKind::Interrupted => f.write_str("connection lost, looking for the peer"),
            EventKind::Resumed { took_us } => {
                write!(f, "found the peer again in {}", Nanos(took_us * 1000))
            }
            EventKind::PeerClosed => f.write_str("the peer closed"),
            EventKind::PeerDied => f.write_str("the peer died or its connection broke"),
            EventKind::Violated(why) => {
                write!(f, "closed, because the peer violated the protocol: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_that_says_what_and_why() {
        let what = EventKind::Switched {
            from: Transport::ShmSpin,
            to: Transport::ShmFutex,
            why: Reason::SameCpu(3),
            took_us: 412,
        };
        let event = Event { at_unix_ms: 3_723_004, channel: "camera/left".to_owned(), id: 7, what };
        assert_eq!(
            event.to_string(),
            "01:02:03.004Z camera/left shm-spin -> shm-futex in 412.0 us: both ends were spinning on CPU 3"
        );
    }
}
