//! What flowed between two maps of the same processes.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::map::Map;

/// The rates of a channel, where the kernel counts its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChannelRate {
    /// Bytes per second from `from` to `to`.
    pub forward_bytes_per_s: f64,
    /// Bytes per second from `to` to `from`.
    pub backward_bytes_per_s: f64,
}

/// The rates between two maps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rates {
    /// By the channels' identifiers; channels that began meanwhile, or whose bytes the kernel does not count, are left
    /// out.
    pub channels: HashMap<String, ChannelRate>,
    /// CPUs that each process used on average, by its number.
    pub cpus: HashMap<u32, f64>,
}

/// The rates between an earlier and a later map, `apart` from each other.
pub fn between(earlier: &Map, later: &Map, apart: Duration) -> Rates {
    let seconds = apart.as_secs_f64();
    let mut rates = Rates::default();
    if seconds <= 0.0 {
        return rates;
    }
    let before: HashMap<&str, _> = earlier.channels.iter().map(|c| (c.id.as_str(), c)).collect();
    for channel in &later.channels {
        let Some(old) = before.get(channel.id.as_str()) else { continue };
        // A number may be given to a new object as soon as the old one is gone.
        if old.carrier != channel.carrier || old.from != channel.from || old.to != channel.to {
            continue;
        }
        let per_s =
            |now: Option<u64>, then: Option<u64>| Some(now?.checked_sub(then?)? as f64 / seconds);
        let forward = per_s(channel.forward_bytes, old.forward_bytes);
        let backward = per_s(channel.backward_bytes, old.backward_bytes);
        if let (Some(forward_bytes_per_s), Some(backward_bytes_per_s)) = (forward, backward) {
            let rate = ChannelRate { forward_bytes_per_s, backward_bytes_per_s };
            rates.channels.insert(channel.id.clone(), rate);
        }
    }
    let before: HashMap<u32, _> = earlier.processes.iter().map(|p| (p.pid, p)).collect();
    for process in &later.processes {
        let old = before.get(&process.pid).filter(|o| o.started_ticks == process.started_ticks);
        if let Some(spent_ns) = old.and_then(|old| process.cpu_ns.checked_sub(old.cpu_ns)) {
            rates.cpus.insert(process.pid, spent_ns as f64 / 1e9 / seconds);
        }
    }
    rates
}
