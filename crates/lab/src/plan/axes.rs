//! Parses single values of a plan's axes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crossway_mech::{Access, Wait};
use crossway_records::sorting::CollectTree;
use toml::{Table, Value};

use super::at::{At, kind};
use super::{PlacementAxis, PlanError, sizes};
use crate::replay::{AS_FAST_AS_POSSIBLE, Channels, MOST_CHANNELS, MOST_PERCENT, Replay};
use crossway_records::inputs::{Ends, Load, Placement, Workload};

const MOST_PEERS: u64 = 64;
/// Maximum number of requests that a client has in flight.
const MOST_IN_FLIGHT: u64 = 256;
/// Longest time between two requests, nanoseconds: an hour.
const LONGEST_PERIOD_NS: u64 = 3_600_000_000_000;

pub(super) fn ends(at: &At<'_>, value: &Value) -> Result<Ends, PlanError> {
    match at.text(value)? {
        "between" => Ok(Ends::Between),
        "within" => Ok(Ends::Within),
        word => Err(at.bad(format!("unknown ends '{word}'; allowed: between, within"))),
    }
}

/// Rejects a burst that is not a whole number of messages of every one of these sizes, because it would not send
/// exactly `burst_bytes`.
pub(super) fn whole_messages(
    at: &At<'_>,
    workload: Workload,
    sizes: &[u64],
) -> Result<(), PlanError> {
    let Workload::Paced { burst_bytes, .. } = workload else { return Ok(()) };
    let Some(size) = sizes.iter().find(|size| burst_bytes % (**size).max(1) != 0) else {
        return Ok(());
    };
    Err(at.bad(format!(
        "a burst of {burst_bytes} bytes is not a whole number of messages of {size} bytes; set burst_bytes to a \
         multiple of size_bytes, such as {}",
        burst_bytes.next_multiple_of(*size)
    )))
}

pub(super) fn workload(at: &At<'_>, value: &Value) -> Result<Workload, PlanError> {
    const ALLOWED: &str = "throughput, ping-pong, exchange, { paced = { burst_bytes = N, period_us = N } }, \
                           { requests = { period_ns = N } }, { pairs = { pairs = N } }, \
                           { fan-in = { senders = N, receiver_us = N, period_us = N } } (receiver_us and period_us may \
                           be omitted), \
                           { fan-out = { receivers = N, period_us = N } } (period_us may be omitted), \
                           { clients = { clients = N, in_flight = N, period_ns = N } } (in_flight and period_ns may be \
                           omitted), \
                           { replay = 'RECORDING', channel = N, speed = N } (channel, which may also be a list or \
                           'all', and speed may be omitted)";
    if let Some(word) = value.as_str() {
        return match word {
            "throughput" => Ok(Workload::Throughput),
            "ping-pong" => Ok(Workload::PingPong),
            "exchange" => Ok(Workload::Exchange),
            _ => Err(at.bad(format!("unknown workload '{word}'; allowed: {ALLOWED}"))),
        };
    }
    let (name, table, at) = one_entry(at, value, ALLOWED)?;
    let count = |key: &str| -> Result<u32, PlanError> {
        at.only(table, &[key])?;
        Ok(at.field(table, key, 2, MOST_PEERS)? as u32)
    };
    match name {
        "paced" => {
            at.only(table, &["burst_bytes", "period_us"])?;
            Ok(Workload::Paced {
                burst_bytes: at.field(table, "burst_bytes", 1, 1 << 30)?,
                period_us: at.field(table, "period_us", 10, 3_600_000_000)?,
            })
        }
        "requests" => {
            at.only(table, &["period_ns"])?;
            Ok(Workload::Requests {
                period_ns: at.field(table, "period_ns", 100, LONGEST_PERIOD_NS)?,
            })
        }
        "pairs" => Ok(Workload::Pairs { pairs: count("pairs")? }),
        "fan-in" => {
            at.only(table, &["senders", "receiver_us", "period_us"])?;
            let senders = at.field(table, "senders", 2, MOST_PEERS)? as u32;
            let receiver_us = match table.get("receiver_us") {
                Some(value) => at.key("receiver_us").number(value, 0, 1_000_000)? as u32,
                None => 0,
            };
            Ok(Workload::FanIn { senders, receiver_us, period_us: period_us(&at, table)? })
        }
        "fan-out" => {
            at.only(table, &["receivers", "period_us"])?;
            let receivers = at.field(table, "receivers", 2, MOST_PEERS)? as u32;
            Ok(Workload::FanOut { receivers, period_us: period_us(&at, table)? })
        }
        "clients" => {
            at.only(table, &["clients", "in_flight", "period_ns"])?;
            let clients = at.field(table, "clients", 1, MOST_PEERS)? as u32;
            let in_flight = match table.get("in_flight") {
                Some(value) => at.key("in_flight").number(value, 1, MOST_IN_FLIGHT)? as u32,
                None => 1,
            };
            let period_ns = match table.get("period_ns") {
                Some(value) => at.key("period_ns").number(value, 100, LONGEST_PERIOD_NS)?,
                None => 0,
            };
            Ok(Workload::Clients { clients, in_flight, period_ns })
        }
        _ => Err(at.bad(format!("unknown workload; allowed: {ALLOWED}"))),
    }
}

/// The time between two messages of a fan-in or fan-out, microseconds; 0 for as many as possible.
fn period_us(at: &At<'_>, table: &Table) -> Result<u32, PlanError> {
    let Some(value) = table.get("period_us") else { return Ok(0) };
    Ok(at.key("period_us").number(value, 10, 3_600_000_000)? as u32)
}

/// Reads the recording that `{ replay = "RECORDING", channel = N, speed = N }` names; `None` for any other workload.
pub(super) fn replay(at: &At<'_>, value: &Value) -> Result<Option<Arc<Replay>>, PlanError> {
    let Some(table) = value.as_table().filter(|table| table.contains_key("replay")) else {
        return Ok(None);
    };
    at.only(table, &["replay", "channel", "speed"])?;
    let file = at.key("replay").text(&table["replay"])?;
    let channels = match table.get("channel") {
        Some(value) => channels(&at.key("channel"), value)?,
        None => Channels::Busiest,
    };
    let speed_percent = match table.get("speed") {
        Some(value) => speed(&at.key("speed"), value)?,
        None => 100,
    };
    Replay::load(Path::new(file), &channels, speed_percent)
        .map(Some)
        .map_err(|e| at.bad(e.to_string()))
}

/// Parses the channels of a replay: a number, a list of numbers, or `all`.
fn channels(at: &At<'_>, value: &Value) -> Result<Channels, PlanError> {
    if value.as_str() == Some("all") {
        return Ok(Channels::All);
    }
    let one = |value| Ok(at.number(value, 0, u64::from(u32::MAX))? as u32);
    let Some(list) = value.as_array() else { return Ok(Channels::These(vec![one(value)?])) };
    let numbers: Vec<u32> = list.iter().map(one).collect::<Result<_, _>>()?;
    let distinct: BTreeSet<&u32> = numbers.iter().collect_tree();
    if numbers.is_empty() || distinct.len() < numbers.len() || numbers.len() > MOST_CHANNELS {
        return Err(at.bad(format!(
            "allowed: a number, a list of 1 to {MOST_CHANNELS} different numbers, or 'all'"
        )));
    }
    Ok(Channels::These(numbers))
}

/// Parses the speed of a replay; returns per cent of the recorded one.
fn speed(at: &At<'_>, value: &Value) -> Result<u32, PlanError> {
    if value.as_str() == Some("as-fast-as-possible") {
        return Ok(AS_FAST_AS_POSSIBLE);
    }
    let factor = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let percent = factor.map(|factor| (factor * 100.0).round());
    percent.filter(|p| (1.0..=f64::from(MOST_PERCENT)).contains(p)).map(|p| p as u32).ok_or_else(|| {
        at.bad(format!(
            "{} is not a valid speed; allowed: a factor from 0.01 to {}, where 1 is the recorded speed, or \
             as-fast-as-possible",
            kind(value),
            MOST_PERCENT / 100
        ))
    })
}

/// Parses a table with exactly one entry whose value is a table. Plans write a value with arguments in this form.
fn one_entry<'a, 'v>(
    at: &At<'a>,
    value: &'v Value,
    allowed: &str,
) -> Result<(&'v str, &'v Table, At<'a>), PlanError> {
    let entry = value.as_table().filter(|table| table.len() == 1).and_then(|t| t.iter().next());
    let Some((name, arguments)) = entry else {
        return Err(at.bad(format!("{} is not allowed here; allowed: {allowed}", kind(value))));
    };
    let here = at.key(name);
    Ok((name, here.table(arguments)?, here))
}

pub(super) fn wait(at: &At<'_>, value: &Value) -> Result<Option<Wait>, PlanError> {
    const ALLOWED: &str = "natural, block, spin, { hybrid = { spin_us = N } }";
    match value.as_str() {
        Some("natural") => Ok(None),
        Some("block") => Ok(Some(Wait::Block)),
        Some("spin") => Ok(Some(Wait::Spin)),
        Some(word) => Err(at.bad(format!("unknown wait '{word}'; allowed: {ALLOWED}"))),
        None => {
            let (name, table, here) = one_entry(at, value, ALLOWED)?;
            if name != "hybrid" {
                return Err(here.bad(format!("unknown wait; allowed: {ALLOWED}")));
            }
            here.only(table, &["spin_us"])?;
            let spin_us = here.field(table, "spin_us", 1, 1_000_000)? as u32;
            Ok(Some(Wait::Hybrid { spin_us }))
        }
    }
}

pub(super) fn access(at: &At<'_>, value: &Value) -> Result<Access, PlanError> {
    match at.text(value)? {
        "copy" => Ok(Access::Copy),
        "in-place" => Ok(Access::InPlace),
        word => Err(at.bad(format!("unknown access '{word}'; allowed: copy, in-place"))),
    }
}

/// Parses a placement.
///
/// # Errors
/// There is no such placement.
pub fn placement(at: &At<'_>, value: &Value) -> Result<PlacementAxis, PlanError> {
    const ALLOWED: &str = "same-core, smt-sibling, shared-cache, other-core, cross-socket, unpinned, \
                           every-pair, every-pair-and-self, { cpus = { a = 0, b = 1 } }";
    let one = |placement| Ok(PlacementAxis::One(placement));
    match value.as_str() {
        Some("same-core") => one(Placement::SameCore),
        Some("smt-sibling") => one(Placement::SmtSibling),
        Some("shared-cache") => one(Placement::SharedCache),
        Some("other-core") => one(Placement::OtherCore),
        Some("cross-socket") => one(Placement::CrossSocket),
        Some("unpinned") => one(Placement::Unpinned),
        Some("every-pair") => Ok(PlacementAxis::EveryPair),
        Some("every-pair-and-self") => Ok(PlacementAxis::EveryPairAndSelf),
        Some(word) => Err(at.bad(format!("unknown placement '{word}'; allowed: {ALLOWED}"))),
        None => {
            let (name, table, here) = one_entry(at, value, ALLOWED)?;
            if name != "cpus" {
                return Err(here.bad(format!("unknown placement; allowed: {ALLOWED}")));
            }
            here.only(table, &["a", "b"])?;
            let cpu = |key| here.field(table, key, 0, 8191).map(|n| n as u32);
            one(Placement::Cpus { a: cpu("a")?, b: cpu("b")? })
        }
    }
}

/// Parses a background load.
///
/// # Errors
/// There is no such load.
pub fn load(at: &At<'_>, value: &Value) -> Result<Load, PlanError> {
    const ALLOWED: &str =
        "idle, { cpu = N, memory = N, io = N } (numbers of workers; each may be omitted)";
    match value.as_str() {
        Some("idle") => return Ok(Load::default()),
        Some(word) => return Err(at.bad(format!("unknown load '{word}'; allowed: {ALLOWED}"))),
        None => {}
    }
    let table = value.as_table().ok_or_else(|| {
        at.bad(format!("{} is not allowed here; allowed: {ALLOWED}", kind(value)))
    })?;
    at.only(table, &["cpu", "memory", "io"])?;
    let workers = |key: &str| match table.get(key) {
        Some(value) => at.key(key).number(value, 0, 1024).map(|n| n as u32),
        None => Ok(0),
    };
    Ok(Load { cpu: workers("cpu")?, memory: workers("memory")?, io: workers("io")? })
}

pub(super) fn bytes_or_default(at: &At<'_>, value: &Value) -> Result<Option<u64>, PlanError> {
    if value.as_str() == Some("default") {
        return Ok(None);
    }
    sizes::bytes(at, value, 1).map(Some)
}
