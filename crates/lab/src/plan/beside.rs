//! Parses `beside`: workloads that run concurrently with the measured one.

use toml::{Table, Value};

use super::at::{At, kind};
use super::axes::{placement, wait, whole_messages, workload};
use super::{BesideAxis, PlacementAxis, PlanError, mechanisms, repeat, sizes};
use crossway_records::inputs::Beside;

const ALLOWED: &str = "nothing; a table with workload, size_bytes and, optionally, mechanism, wait and placement; \
                       or a list of such tables for several at the same time";
const WORKLOADS: &str = "throughput, ping-pong, { paced = { burst_bytes = N, period_us = N } }";

/// Parses one value of the axis `beside`.
pub(super) fn read(at: &At<'_>, value: &Value) -> Result<Vec<BesideAxis>, PlanError> {
    match value {
        Value::String(word) if word == "nothing" => Ok(Vec::new()),
        Value::Table(table) => Ok(vec![one(at, table)?]),
        Value::Array(several) if !several.is_empty() => {
            several.iter().map(|value| one(at, at.table(value)?)).collect()
        }
        other => Err(at.bad(format!("{} is not allowed here; allowed: {ALLOWED}", kind(other)))),
    }
}

fn one(at: &At<'_>, table: &Table) -> Result<BesideAxis, PlanError> {
    at.only(table, &["mechanism", "workload", "size_bytes", "wait", "placement"])?;
    let get = |key: &str| table.get(key).map(|value| (at.key(key), value));
    let needed = |key: &str| get(key).ok_or_else(|| at.bad(format!("'{key}' is missing")));
    let mechanism = match get("mechanism") {
        None => None,
        Some((at, value)) => match mechanisms::select(&at, &[at.text(value)?.to_owned()])?[..] {
            [one] => Some(one),
            ref several => {
                return Err(at.bad(format!("expected one mechanism, not {}", several.len())));
            }
        },
    };
    let (here, value) = needed("workload")?;
    let workload = workload(&here, value)?;
    if !workload.facts().beside {
        let word = workload.word();
        let why = format!("the workload {word} is not supported in `beside`; allowed: {WORKLOADS}");
        return Err(here.bad(why));
    }
    let (at_size, value) = needed("size_bytes")?;
    let size_bytes = sizes::bytes(&at_size, value, 1)?;
    whole_messages(&here, workload, &[size_bytes])?;
    let wait = get("wait").map(|(at, value)| wait(&at, value)).transpose()?.flatten();
    let placement = match get("placement") {
        None => None,
        Some((at, value)) => match placement(&at, value)? {
            PlacementAxis::One(one) => Some(one),
            PlacementAxis::EveryPair | PlacementAxis::EveryPairAndSelf => {
                return Err(at.bad("expected one placement, not every pair"));
            }
        },
    };
    Ok(BesideAxis { mechanism, workload, size_bytes, wait, placement })
}

/// Writes resolved concurrent workloads as a value of the axis `beside`.
pub(super) fn written(beside: &[Beside]) -> Result<Value, PlanError> {
    let one = |b: &Beside| {
        Ok(repeat::table([
            ("mechanism", b.mechanism.clone().into()),
            ("workload", repeat::value(b.workload)?),
            ("size_bytes", repeat::number(b.size_bytes)),
            ("wait", repeat::value(b.wait)?),
            ("placement", repeat::value(b.placement)?),
        ]))
    };
    let all = beside.iter().map(one).collect::<Result<_, PlanError>>()?;
    // A nested list, so that it is one value of the axis whatever its length.
    Ok(Value::Array(vec![Value::Array(all)]))
}
