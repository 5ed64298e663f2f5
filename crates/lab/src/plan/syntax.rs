//! From TOML to a [`Plan`], key by key, so that each error can say where and what else.

use crossway_mech::{Access, Wait};
use toml::{Table, Value};

use super::{Group, PlacementAxis, Plan, PlanError, mechanisms, sizes, testbeds};
use crate::inputs::{Ends, Load, Placement, Workload};
use crate::testbed::Testbed;

const DEFAULT_SEED: u64 = 2026;
const GROUP_KEYS: &[&str] = &[
    "about",
    "mechanisms",
    "testbed",
    "ends",
    "workload",
    "size_bytes",
    "wait",
    "access",
    "placement",
    "load",
    "socket_buffer_bytes",
    "capacity_bytes",
    "messages",
    "packet_series_ms",
    "trials",
    "warmup_ms",
    "measure_ms",
];
const MOST_PEERS: u64 = 64;

/// A place in a plan, for errors.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    file: &'a str,
    key: String,
}

impl<'a> At<'a> {
    pub(super) fn key(&self, key: &str) -> At<'a> {
        let key = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        At { file: self.file, key }
    }

    pub(super) fn bad(&self, why: impl Into<String>) -> PlanError {
        PlanError::Bad { file: self.file.to_owned(), key: self.key.clone(), why: why.into() }
    }

    /// Refuses keys that are not in the list.
    pub(super) fn only(&self, table: &Table, allowed: &[&str]) -> Result<(), PlanError> {
        match table.keys().find(|key| !allowed.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                Err(self.key(key).bad(format!("unknown key; allowed: {}", allowed.join(", "))))
            }
        }
    }

    pub(super) fn table<'v>(&self, value: &'v Value) -> Result<&'v Table, PlanError> {
        value.as_table().ok_or_else(|| self.bad(format!("a table is needed, not {}", kind(value))))
    }

    pub(super) fn text<'v>(&self, value: &'v Value) -> Result<&'v str, PlanError> {
        value.as_str().ok_or_else(|| self.bad(format!("a string is needed, not {}", kind(value))))
    }

    /// A number within bounds.
    pub(super) fn number(&self, value: &Value, least: u64, most: u64) -> Result<u64, PlanError> {
        let number = value
            .as_integer()
            .ok_or_else(|| self.bad(format!("a whole number is needed, not {}", kind(value))))?;
        u64::try_from(number)
            .ok()
            .filter(|n| (least..=most).contains(n))
            .ok_or_else(|| self.bad(format!("{number} is not between {least} and {most}")))
    }

    /// A required number below this table.
    pub(super) fn field(
        &self,
        table: &Table,
        name: &str,
        least: u64,
        most: u64,
    ) -> Result<u64, PlanError> {
        let value = table.get(name).ok_or_else(|| self.bad(format!("'{name}' is missing")))?;
        self.key(name).number(value, least, most)
    }

    /// One value or a list of them; a list must not be empty.
    pub(super) fn axis<T>(
        &self,
        value: &Value,
        mut read: impl FnMut(&At<'a>, &Value) -> Result<T, PlanError>,
    ) -> Result<Vec<T>, PlanError> {
        match value {
            Value::Array(values) if values.is_empty() => Err(self.bad("the list is empty")),
            Value::Array(values) => values.iter().map(|v| read(self, v)).collect(),
            one => Ok(vec![read(self, one)?]),
        }
    }
}

pub(super) fn kind(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn parse(name: &str, file: &str, text: &str) -> Result<Plan, PlanError> {
    let top: Table = toml::from_str(text).map_err(|e| PlanError::NotToml {
        file: file.to_owned(),
        why: e.to_string().trim_end().replace('\n', "\n  "),
    })?;
    let at = At { file, key: String::new() };
    at.only(&top, &["about", "seed", "scale", "defaults", "testbed", "group"])?;
    let about = top.get("about").map(|v| at.key("about").text(v)).transpose()?;
    let seed = match top.get("seed") {
        Some(value) => at.key("seed").number(value, 0, i64::MAX as u64)?,
        None => DEFAULT_SEED,
    };
    let scale = top.get("scale").map(|v| share(&at.key("scale"), v)).transpose()?;
    let none = Table::new();
    let defaults = match top.get("defaults") {
        Some(value) => at.key("defaults").table(value)?,
        None => &none,
    };
    at.key("defaults").only(defaults, GROUP_KEYS)?;
    let testbeds = match top.get("testbed") {
        Some(value) => testbeds::read(&at.key("testbed"), value)?,
        None => Vec::new(),
    };
    let groups = top
        .get("group")
        .ok_or_else(|| at.key("group").bad("missing; a plan needs at least one [group.NAME]"))?;
    let groups = at.key("group").table(groups)?;
    let groups = groups
        .iter()
        .map(|(name, value)| {
            let here = at.key("group").key(name);
            let own = here.table(value)?;
            here.only(own, GROUP_KEYS)?;
            group(&at, name, own, defaults, &testbeds, scale)
        })
        .collect::<Result<Vec<_>, _>>()?;
    if groups.is_empty() {
        return Err(at.key("group").bad("empty; a plan needs at least one [group.NAME]"));
    }
    Ok(Plan {
        name: name.to_owned(),
        about: about.map(str::to_owned),
        seed,
        testbeds,
        groups,
        text: text.to_owned(),
    })
}

/// A group's key, else the default's; errors name the one that was written.
fn group(
    at: &At<'_>,
    name: &str,
    own: &Table,
    defaults: &Table,
    testbeds: &[Testbed],
    scale: Option<f64>,
) -> Result<Group, PlanError> {
    let here = at.key("group").key(name);
    let get = |key: &str| match own.get(key) {
        Some(value) => Some((here.key(key), value)),
        None => defaults.get(key).map(|value| (at.key("defaults").key(key), value)),
    };
    let number = |key: &str, least, most, default| match get(key) {
        Some((at, value)) => at.number(value, least, most),
        None => Ok(default),
    };
    let sizes = match get("size_bytes") {
        Some((at, value)) => sizes::read(&at, value)?,
        None => return Err(here.key("size_bytes").bad("missing")),
    };
    let (messages, study_messages) = match get("messages") {
        Some((at, value)) => messages(&at, value, scale)?,
        None => (None, None),
    };
    let mechanisms = match get("mechanisms") {
        Some((at, value)) => {
            let words = at.axis(value, |at, v| at.text(v).map(str::to_owned))?;
            mechanisms::select(&at, &words)?
        }
        None => return Err(here.key("mechanisms").bad("missing")),
    };
    let workloads = match get("workload") {
        Some((at, value)) => at.axis(value, workload)?,
        None => return Err(here.key("workload").bad("missing")),
    };
    let axis_or = |key: &str| get(key);
    Ok(Group {
        name: name.to_owned(),
        about: get("about").map(|(at, v)| at.text(v).map(str::to_owned)).transpose()?,
        mechanisms,
        testbeds: match get("testbed") {
            Some((at, value)) => at.axis(value, |at, v| testbeds::named(at, v, testbeds))?,
            None => vec![None],
        },
        ends: match get("ends") {
            Some((at, value)) => at.axis(value, ends)?,
            None => vec![Ends::Between],
        },
        workloads,
        sizes,
        waits: match axis_or("wait") {
            Some((at, value)) => at.axis(value, wait)?,
            None => vec![None],
        },
        accesses: match axis_or("access") {
            Some((at, value)) => at.axis(value, access)?,
            None => vec![Access::Copy],
        },
        placements: axis_or("placement")
            .map(|(at, value)| at.axis(value, placement))
            .transpose()?,
        loads: match axis_or("load") {
            Some((at, value)) => at.axis(value, load)?,
            None => vec![Load::default()],
        },
        socket_buffers: match axis_or("socket_buffer_bytes") {
            Some((at, value)) => at.axis(value, bytes_or_default)?,
            None => vec![None],
        },
        capacities: match axis_or("capacity_bytes") {
            Some((at, value)) => at.axis(value, bytes_or_default)?,
            None => vec![None],
        },
        messages,
        study_messages,
        packet_series_ms: get("packet_series_ms")
            .map(|(at, value)| at.number(value, 1, 60_000).map(|ms| ms as u32))
            .transpose()?,
        trials: number("trials", 1, 1_000, 5)? as u32,
        warmup_ms: number("warmup_ms", 0, 60_000, 100)?,
        measure_ms: number("measure_ms", 1, 600_000, 500)?,
    })
}

/// Messages per trial: a number, or a share of a study's. The whole plan's `scale` stands before a group's own.
fn messages(
    at: &At<'_>,
    value: &Value,
    scale: Option<f64>,
) -> Result<(Option<u64>, Option<u64>), PlanError> {
    const MOST: u64 = 1_000_000_000;
    let Some(table) = value.as_table() else {
        return Ok((Some(at.number(value, 1, MOST)?), None));
    };
    at.only(table, &["study", "scale"])?;
    let study = at.field(table, "study", 1, MOST)?;
    let own = table.get("scale").map(|v| share(&at.key("scale"), v)).transpose()?;
    let scaled = study as f64 * scale.or(own).unwrap_or(1.0);
    Ok((Some((scaled.round() as u64).clamp(1, MOST)), Some(study)))
}

/// A positive number that makes a number of messages smaller, or at most a hundred times as large.
fn share(at: &At<'_>, value: &Value) -> Result<f64, PlanError> {
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    number.filter(|n| *n > 0.0 && *n <= 100.0).ok_or_else(|| {
        at.bad(format!(
            "{} is no share; allowed: above 0, 1 for the study's own number, at most 100",
            kind(value)
        ))
    })
}

/// Whether a line of a plan sets the whole plan's `scale`: group's tables are inline or below a header, where a line cannot
/// begin so at the top.
pub(super) fn is_scale(line: &str) -> bool {
    line.strip_prefix("scale").is_some_and(|rest| rest.trim_start().starts_with('='))
}

fn ends(at: &At<'_>, value: &Value) -> Result<Ends, PlanError> {
    match at.text(value)? {
        "between" => Ok(Ends::Between),
        "within" => Ok(Ends::Within),
        word => Err(at.bad(format!("unknown ends '{word}'; allowed: between, within"))),
    }
}

fn workload(at: &At<'_>, value: &Value) -> Result<Workload, PlanError> {
    const ALLOWED: &str = "throughput, ping-pong, exchange, { paced = { burst_bytes, period_us } }, \
                           { pairs = { pairs } }, { fan-in = { senders, receiver_us? } }, { fan-out = { receivers } }";
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
        "pairs" => Ok(Workload::Pairs { pairs: count("pairs")? }),
        "fan-in" => {
            at.only(table, &["senders", "receiver_us"])?;
            let senders = at.field(table, "senders", 2, MOST_PEERS)? as u32;
            let receiver_us = match table.get("receiver_us") {
                Some(value) => at.key("receiver_us").number(value, 0, 1_000_000)? as u32,
                None => 0,
            };
            Ok(Workload::FanIn { senders, receiver_us })
        }
        "fan-out" => Ok(Workload::FanOut { receivers: count("receivers")? }),
        _ => Err(at.bad(format!("unknown workload; allowed: {ALLOWED}"))),
    }
}

/// A table with one entry that is a table: a value with arguments.
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

fn wait(at: &At<'_>, value: &Value) -> Result<Option<Wait>, PlanError> {
    const ALLOWED: &str = "natural, block, spin, { hybrid = { spin_us } }";
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

fn access(at: &At<'_>, value: &Value) -> Result<Access, PlanError> {
    match at.text(value)? {
        "copy" => Ok(Access::Copy),
        "in-place" => Ok(Access::InPlace),
        word => Err(at.bad(format!("unknown access '{word}'; allowed: copy, in-place"))),
    }
}

fn placement(at: &At<'_>, value: &Value) -> Result<PlacementAxis, PlanError> {
    const ALLOWED: &str = "same-core, smt-sibling, shared-cache, other-core, cross-socket, unpinned, \
                           every-pair, { cpus = { a, b } }";
    let one = |placement| Ok(PlacementAxis::One(placement));
    match value.as_str() {
        Some("same-core") => one(Placement::SameCore),
        Some("smt-sibling") => one(Placement::SmtSibling),
        Some("shared-cache") => one(Placement::SharedCache),
        Some("other-core") => one(Placement::OtherCore),
        Some("cross-socket") => one(Placement::CrossSocket),
        Some("unpinned") => one(Placement::Unpinned),
        Some("every-pair") => Ok(PlacementAxis::EveryPair),
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

fn load(at: &At<'_>, value: &Value) -> Result<Load, PlanError> {
    const ALLOWED: &str = "idle, { cpu, memory, io } (numbers of workers)";
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

fn bytes_or_default(at: &At<'_>, value: &Value) -> Result<Option<u64>, PlanError> {
    if value.as_str() == Some("default") {
        return Ok(None);
    }
    sizes::bytes(at, value, 1).map(Some)
}
