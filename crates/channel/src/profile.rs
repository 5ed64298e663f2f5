//! The cost of a message on each transport, on which the policy's choice is based.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::transport::Transport;

/// The cost of a message on one transport.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Time per message in a stream of messages of length 0, in nanoseconds.
    pub message_ns: f64,
    /// Additional time per byte of a message, in nanoseconds.
    pub byte_ns: f64,
    /// Additional time when the receiver has to be woken for the message, in nanoseconds.
    pub wake_ns: f64,
}

/// What messages cost on each transport of a machine: read from a JSON file, or the built-in defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The cost of a message by transport.
    pub costs: BTreeMap<Transport, Cost>,
}

/// A profile file that cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("profile {}: {why}", path.display())]
pub struct BadProfile {
    path: PathBuf,
    why: String,
}

impl Default for Profile {
    /// Rounded figures of a machine of 2025, used for transports that were not measured. Only their order of magnitude
    /// matters: a message costs tens of nanoseconds on a ring and a microsecond on a socket; waking a sleeping receiver
    /// costs several microseconds, and tens of them on another host.
    fn default() -> Self {
        let cost = |message_ns, byte_ns, wake_ns| Cost { message_ns, byte_ns, wake_ns };
        Profile {
            costs: BTreeMap::from([
                (Transport::ShmSpin, cost(40.0, 0.06, 100.0)),
                (Transport::ShmFutex, cost(45.0, 0.06, 5_000.0)),
                (Transport::ShmEventfd, cost(60.0, 0.06, 5_500.0)),
                (Transport::UdsSeqpacket, cost(900.0, 0.15, 5_500.0)),
                (Transport::Tcp, cost(1_500.0, 0.30, 20_000.0)),
                (Transport::Tipc, cost(1_000.0, 0.60, 30_000.0)),
            ]),
        }
    }
}

impl Profile {
    /// Reads a profile from a file. Transports that it does not mention keep their default costs.
    ///
    /// # Errors
    /// The file cannot be read, or is not a profile.
    pub fn read(path: &Path) -> Result<Profile, BadProfile> {
        let bad = |why: String| BadProfile { path: path.to_owned(), why };
        let text = crossway_sys::text_file::read(path).map_err(|error| bad(error.to_string()))?;
        let read: Profile =
            serde_json::from_slice(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
        for (transport, cost) in &read.costs {
            let figures = [cost.message_ns, cost.byte_ns, cost.wake_ns];
            if figures.iter().any(|ns| !ns.is_finite() || *ns < 0.0) {
                return Err(bad(format!("{transport}: costs must be at least 0 ns")));
            }
        }
        let mut profile = Profile::default();
        profile.costs.extend(read.costs);
        Ok(profile)
    }

    /// Returns the expected cost of a message under this load, in nanoseconds, and the CPU time that one end spends
    /// waiting, as a share of one CPU. The cost is infinite if the profile lacks the transport.
    pub(crate) fn expect(&self, transport: Transport, load: Load) -> (f64, f64) {
        let Some(cost) = self.costs.get(&transport) else { return (f64::INFINITY, 0.0) };
        let Load { traffic, wakes_per_msg } = load;
        let waiting_cpu = if transport.spins() {
            self.expect_idle(transport, traffic)
        } else {
            (wakes_per_msg * traffic.rate_msgs_per_s * cost.wake_ns / 1e9).min(1.0)
        };
        (cost.busy_ns(traffic) + wakes_per_msg * cost.wake_ns, waiting_cpu)
    }

    /// Returns the share of time during which a transport carries nothing. If messages arrive at random times and the
    /// receiver does nothing else, this share of the messages finds the receiver waiting. In a stream without gaps,
    /// none does.
    pub(crate) fn expect_idle(&self, transport: Transport, traffic: Traffic) -> f64 {
        let busy_ns = self.costs.get(&transport).map_or(0.0, |cost| cost.busy_ns(traffic));
        (1.0 - traffic.rate_msgs_per_s * busy_ns / 1e9).clamp(0.0, 1.0)
    }
}

impl Cost {
    /// Returns the time that a message of mean length takes if its receiver need not be woken, in nanoseconds.
    fn busy_ns(self, traffic: Traffic) -> f64 {
        self.message_ns + self.byte_ns * traffic.mean_bytes
    }
}

/// The traffic of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    /// Messages per second, in both directions together.
    pub(crate) rate_msgs_per_s: f64,
    /// Their mean length in bytes.
    pub(crate) mean_bytes: f64,
}

/// The traffic of a channel, and how often its receivers are woken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) traffic: Traffic,
    /// Wake-ups of receivers per message, 0 to 1.
    pub(crate) wakes_per_msg: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_file_replaces_what_it_names_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write(r#"{"costs":{"shm-futex":{"message_ns":1.5,"byte_ns":0,"wake_ns":2}}}"#);
        let profile = Profile::read(file.path()).unwrap();
        assert_eq!(profile.costs[&Transport::ShmFutex].message_ns, 1.5);
        let default = Profile::default();
        assert_eq!(profile.costs[&Transport::ShmSpin], default.costs[&Transport::ShmSpin]);
        for (text, why) in [
            (r#"{"costs":{"smoke":{"message_ns":1,"byte_ns":0,"wake_ns":2}}}"#, "smoke"),
            (r#"{"costs":{"shm-spin":{"message_ns":-1,"byte_ns":0,"wake_ns":2}}}"#, "at least 0"),
            (r#"{"cost":{}}"#, "cost"),
        ] {
            write(text);
            let error = Profile::read(file.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.contains(file.path().to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn waiting_costs_a_spinning_end_its_cpu_and_a_sleeping_end_its_wakes() {
        let profile = Profile::default();
        let load = |rate_msgs_per_s, wakes_per_msg| Load {
            traffic: Traffic { rate_msgs_per_s, mean_bytes: 64.0 },
            wakes_per_msg,
        };
        let seldom = load(100.0, 1.0);
        let (_, spinning) = profile.expect(Transport::ShmSpin, seldom);
        let (_, sleeping) = profile.expect(Transport::ShmFutex, seldom);
        assert!(spinning > 0.99 && sleeping < 0.001, "{spinning} {sleeping}");
        let flood = load(1e9, 0.0);
        assert_eq!(profile.expect(Transport::ShmSpin, flood).1, 0.0);
        assert_eq!(profile.expect(Transport::ShmFutex, flood), (45.0 + 64.0 * 0.06, 0.0));
        assert_eq!(profile.expect_idle(Transport::ShmFutex, flood.traffic), 0.0);
        // Half of the messages wake their receivers.
        let batches = load(1000.0, 0.5);
        assert_eq!(profile.expect(Transport::ShmFutex, batches).0, 45.0 + 64.0 * 0.06 + 2_500.0);
    }
}
