//! Parses message sizes: numbers, text with a unit, series.

use toml::{Table, Value};

use super::PlanError;
use super::at::{At, kind};

/// Maximum message size, bytes. With larger messages, a trial would measure memory instead of communication.
const LARGEST: u64 = 1 << 30;
const MOST_SIZES: usize = 100_000;
const ALLOWED: &str = "a number of bytes, 'N KiB', 'N kB', 'N MiB', 'N MB', { arithmetic = { from = N, to = N, step = N } }, \
                       { geometric = { from = N, to = N, per_octave = N } } or the same with factor instead of \
                       per_octave, { zoom = { around = N, radius = N } }";

/// Parses all sizes of an axis; returns them ascending, without duplicates.
pub(super) fn read(at: &At<'_>, value: &Value) -> Result<Vec<u64>, PlanError> {
    let parts = match value {
        Value::Array(values) if values.is_empty() => return Err(at.bad("the list is empty")),
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut sizes = Vec::new();
    for part in parts {
        match part {
            Value::Table(table) => sizes.extend(series(at, table)?),
            one => sizes.push(bytes(at, one, 0)?),
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// Parses a number of bytes, with or without a unit, from `least` to 1 GiB.
pub fn bytes(at: &At<'_>, value: &Value, least: u64) -> Result<u64, PlanError> {
    let number = match value {
        Value::Integer(_) => return at.number(value, least, LARGEST),
        Value::String(text) => with_unit(text),
        _ => None,
    };
    match number {
        Some(n) if (least..=LARGEST).contains(&n) => Ok(n),
        Some(n) => Err(at.bad(format!("{n} bytes is not between {least} and {LARGEST}"))),
        None => Err(at.bad(format!(
            "{} is not a size; write a number of bytes, '4 KiB' (4096 bytes) or '4 kB' (4000 bytes)",
            kind(value)
        ))),
    }
}

/// Parses a number of bytes with a unit of the SI (powers of 1000) or a binary one (powers of 1024), in any case.
fn with_unit(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(factor)
}

fn series(at: &At<'_>, table: &Table) -> Result<Vec<u64>, PlanError> {
    let entry = table.iter().next().filter(|_| table.len() == 1);
    let Some((name, arguments)) = entry else {
        return Err(at.bad(format!("expected a single series; allowed: {ALLOWED}")));
    };
    let here = at.key(name);
    let arguments = here.table(arguments)?;
    let required = |key: &str, least| match arguments.get(key) {
        Some(value) => bytes(&here.key(key), value, least),
        None => Err(here.bad(format!("'{key}' is missing"))),
    };
    let sizes: Vec<u64> = match name.as_str() {
        "arithmetic" => {
            here.only(arguments, &["from", "to", "step"])?;
            let (from, to) = (required("from", 0)?, required("to", 0)?);
            ordered(&here, from, to)?;
            (from..=to).step_by(required("step", 1)? as usize).take(MOST_SIZES + 1).collect()
        }
        "geometric" => {
            here.only(arguments, &["from", "to", "per_octave", "factor"])?;
            let (from, to) = (required("from", 1)?, required("to", 1)?);
            ordered(&here, from, to)?;
            geometric(from, to, factor(&here, arguments)?)
        }
        "zoom" => {
            here.only(arguments, &["around", "radius"])?;
            let (around, radius) = (required("around", 0)?, required("radius", 0)?);
            (around.saturating_sub(radius)..=around + radius).take(MOST_SIZES + 1).collect()
        }
        _ => return Err(here.bad(format!("unknown series; allowed: {ALLOWED}"))),
    };
    if sizes.len() > MOST_SIZES {
        return Err(here.bad(format!("more than {MOST_SIZES} sizes")));
    }
    Ok(sizes)
}

fn ordered(at: &At<'_>, from: u64, to: u64) -> Result<(), PlanError> {
    if from <= to { Ok(()) } else { Err(at.bad(format!("'from' {from} is above 'to' {to}"))) }
}

fn factor(at: &At<'_>, arguments: &Table) -> Result<f64, PlanError> {
    match (arguments.get("per_octave"), arguments.get("factor")) {
        (Some(value), None) => {
            let steps = at.key("per_octave").number(value, 1, 64)?;
            Ok(2f64.powf(1.0 / steps as f64))
        }
        (None, Some(value)) => value
            .as_float()
            .or_else(|| value.as_integer().map(|n| n as f64))
            .filter(|f| (1.001..=1e6).contains(f))
            .ok_or_else(|| at.key("factor").bad("expected a number from 1.001 to 1000000")),
        _ => Err(at.bad("expected either 'per_octave' or 'factor'")),
    }
}

/// A series of sizes that grow by a factor. The sizes are rounded, so that `from` times a power of two is exact. The
/// last size is always `to`.
fn geometric(from: u64, to: u64, factor: f64) -> Vec<u64> {
    let mut sizes: Vec<u64> = (0..)
        .map(|i| (from as f64 * factor.powi(i)).round() as u64)
        .take_while(|&size| size < to)
        .take(MOST_SIZES)
        .collect();
    sizes.push(to);
    sizes.dedup();
    sizes
}
