//! Converts TOML to a [`Plan`], key by key, so that each error can name its position and the alternatives.

use crossway_mech::Access;
use toml::{Table, Value};

use super::at::{At, kind};
use super::axes::{
    access, bytes_or_default, ends, load, placement, replay, wait, whole_messages, workload,
};
use super::{
    Group, MOST_TRIALS, OVERRIDES, Plan, PlanError, beside, mechanisms, require, sizes, testbeds,
};
use crossway_records::inputs::{Ends, Load};
use crossway_records::testbed::Testbed;

const DEFAULT_SEED: u64 = 2026;
const GROUP_KEYS: &[&str] = &[
    "about",
    "mechanisms",
    "testbed",
    "ends",
    "workload",
    "size_bytes",
    "reply_bytes",
    "wait",
    "access",
    "placement",
    "load",
    "beside",
    "socket_buffer_bytes",
    "capacity_bytes",
    "messages",
    "packet_series_ms",
    "trials",
    "warmup_ms",
    "measure_ms",
    "require",
];

pub(super) fn parse(name: &str, file: &str, text: &str) -> Result<Plan, PlanError> {
    let top: Table = toml::from_str(text).map_err(|e| PlanError::NotToml {
        file: file.to_owned(),
        why: e.to_string().trim_end().replace('\n', "\n  "),
    })?;
    let at = At::top(file);
    let own = ["about", "seed", "scale", "faults", "moves", "mpi", "defaults", "testbed", "group"];
    at.only(&top, &[&own[..], &OVERRIDES[..]].concat())?;
    let about = top.get("about").map(|v| at.key("about").text(v)).transpose()?;
    let seed = match top.get("seed") {
        Some(value) => at.key("seed").number(value, 0, i64::MAX as u64)?,
        None => DEFAULT_SEED,
    };
    let scale = top.get("scale").map(|v| share(&at.key("scale"), v)).transpose()?;
    let flag = |key: &str| match top.get(key) {
        Some(Value::Boolean(on)) => Ok(*on),
        Some(_) => Err(at.key(key).bad("expected true or false")),
        None => Ok(false),
    };
    let (faults, moves, mpi) = (flag("faults")?, flag("moves")?, flag("mpi")?);
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
            group(&at, name, own, &Above { top: &top, defaults, testbeds: &testbeds, scale })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if groups.is_empty() {
        return Err(at.key("group").bad("empty; a plan needs at least one [group.NAME]"));
    }
    Ok(Plan {
        name: name.to_owned(),
        about: about.map(str::to_owned),
        seed,
        faults,
        moves,
        mpi,
        testbeds,
        groups,
        text: text.to_owned(),
    })
}

/// What a plan contains outside of its groups.
struct Above<'a> {
    top: &'a Table,
    defaults: &'a Table,
    testbeds: &'a [Testbed],
    scale: Option<f64>,
}

/// Parses a group. For each key, an override at the top of the plan takes precedence over the group, and the group over
/// the defaults. Errors name the position of the value that was used.
fn group(at: &At<'_>, name: &str, own: &Table, above: &Above<'_>) -> Result<Group, PlanError> {
    let Above { top, defaults, testbeds, scale } = *above;
    let here = at.key("group").key(name);
    let get = |key: &str| {
        let over = top.get(key).filter(|_| OVERRIDES.contains(&key));
        over.map(|value| (at.key(key), value))
            .or_else(|| own.get(key).map(|value| (here.key(key), value)))
            .or_else(|| defaults.get(key).map(|value| (at.key("defaults").key(key), value)))
    };
    let number = |key: &str, least, most, default| match get(key) {
        Some((at, value)) => at.number(value, least, most),
        None => Ok(default),
    };
    let mut replays = Vec::new();
    let workloads = match get("workload") {
        Some((at, value)) => at.axis(value, |at, value| {
            let Some(replay) = replay(at, value)? else { return workload(at, value) };
            let workload = replay.workload;
            replays.push(replay);
            Ok(workload)
        })?,
        None => return Err(here.key("workload").bad("missing")),
    };
    let sizes = match get("size_bytes") {
        Some((at, _)) if replays.len() == workloads.len() => {
            return Err(at.bad("a replay has the sizes of its recording; omit it"));
        }
        Some((at, value)) => sizes::read(&at, value)?,
        None if replays.len() == workloads.len() => Vec::new(),
        None => return Err(here.key("size_bytes").bad("missing")),
    };
    if let Some((at, _)) = get("workload") {
        workloads.iter().try_for_each(|one| whole_messages(&at, *one, &sizes))?;
    }
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
    let require = get("require")
        .map(|(at, value)| require::read(&at, value, &workloads))
        .transpose()?
        .unwrap_or_default();
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
        replays,
        sizes,
        replies: match get("reply_bytes") {
            Some((at, value)) => at.axis(value, bytes_or_default)?,
            None => vec![None],
        },
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
        besides: match get("beside") {
            Some((at, value)) => at.axis(value, beside::read)?,
            None => vec![Vec::new()],
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
        trials: number("trials", 1, u64::from(MOST_TRIALS), 5)? as u32,
        warmup_ms: number("warmup_ms", 0, 60_000, 100)?,
        measure_ms: number("measure_ms", 1, 600_000, 500)?,
        require,
    })
}

/// Parses the number of messages per trial: a number, or a fraction of the number in a study. Returns the number of
/// messages and, for a fraction, the number in the study. A `scale` for the whole plan takes precedence over that of
/// the group.
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

/// Parses a positive factor of at most 100, by which a number of messages is scaled.
fn share(at: &At<'_>, value: &Value) -> Result<f64, PlanError> {
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    number.filter(|n| *n > 0.0 && *n <= 100.0).ok_or_else(|| {
        at.bad(format!(
            "{} is not a valid scale; allowed: above 0 and at most 100, where 1 is the study's own number of messages",
            kind(value)
        ))
    })
}

/// Whether a line of a plan sets this key. A line before the first table header sets the key for the whole plan.
pub(super) fn sets(key: &str, line: &str) -> bool {
    line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
}
