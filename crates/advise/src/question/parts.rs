//! Parses the values of a question's keys.

use crossway_records::sorting::SortSmall;
use std::collections::BTreeMap;

use toml::Value;

use super::super::property::{Property, Wish};
use super::{Goals, Percentile, Share};
use crossway_lab::contender::is_language;
use crossway_lab::plan::{At, PlanError, size_bytes};

/// Maximum number of different message sizes that are measured per candidate. If a question has more, neighbouring
/// sizes are merged.
const MOST_SIZES: usize = 8;
/// Maximum number of sizes in a question.
const MOST_STATED: usize = 1_000;

pub(super) fn word<T: Copy>(
    at: &At<'_>,
    value: &Value,
    all: &[(&'static str, T)],
) -> Result<T, PlanError> {
    let text = at.text(value)?;
    all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let allowed: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        at.bad(format!("unknown value '{text}'; allowed: {}", allowed.join(", ")))
    })
}

pub(super) fn float(at: &At<'_>, value: &Value, least: f64, most: f64) -> Result<f64, PlanError> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|n| n as f64))
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| at.bad(format!("expected a number from {least} to {most}")))
}

/// Parses one size, or a mix of `{ bytes, share }`.
pub(super) fn sizes(at: &At<'_>, value: &Value) -> Result<Vec<Share>, PlanError> {
    let Value::Array(parts) = value else {
        return Ok(vec![Share { bytes: size_bytes(at, value, 1)?, share: 1.0 }]);
    };
    if parts.is_empty() || parts.len() > MOST_STATED {
        return Err(at.bad(format!("a mix has 1 to {MOST_STATED} sizes")));
    }
    let mut shares = Vec::new();
    for part in parts {
        let table = part.as_table().ok_or_else(|| at.bad("a mix is a list of { bytes, share }"))?;
        at.only(table, &["bytes", "share"])?;
        let (Some(bytes), Some(share)) = (table.get("bytes"), table.get("share")) else {
            return Err(at.bad("each part of a mix needs 'bytes' and 'share'"));
        };
        shares.push(Share {
            bytes: size_bytes(&at.key("bytes"), bytes, 1)?,
            share: float(&at.key("share"), share, 1e-6, 1e9)?,
        });
    }
    let total: f64 = shares.iter().map(|s| s.share).sum();
    shares.iter_mut().for_each(|s| s.share /= total);
    shares.sort_small_by_key(|s| s.bytes);
    put_together(&mut shares);
    shares.sort_small_by(|a, b| b.share.total_cmp(&a.share));
    Ok(shares)
}

/// Merges the sizes of a histogram until there are few enough to measure. In each step, the two neighbours whose
/// distance is smallest (the logarithm of their ratio, weighted by the harmonic mean of their shares) become one size
/// with the same total number of bytes. `shares` must be sorted by size.
fn put_together(shares: &mut Vec<Share>) {
    let apart = |a: &Share, b: &Share| {
        let ratio = (b.bytes.max(1) as f64 / a.bytes.max(1) as f64).ln();
        ratio * a.share * b.share / (a.share + b.share)
    };
    let closest = |shares: &[Share]| {
        let gap = |at: &usize| apart(&shares[*at], &shares[*at + 1]);
        (0..shares.len().saturating_sub(1)).min_by(|a, b| gap(a).total_cmp(&gap(b)))
    };
    while let Some(at) = closest(shares) {
        let (a, b) = (shares[at], shares[at + 1]);
        if a.bytes != b.bytes && shares.len() <= MOST_SIZES {
            return;
        }
        let share = a.share + b.share;
        let bytes = (a.bytes as f64 * a.share + b.bytes as f64 * b.share) / share;
        shares[at] = Share { bytes: bytes.round() as u64, share };
        shares.remove(at + 1);
    }
}

pub(super) fn goals(at: &At<'_>, value: &Value) -> Result<Goals, PlanError> {
    let table = at.table(value)?;
    let mut allowed = Percentile::ALL.map(Percentile::key).to_vec();
    allowed.extend(["cpu_percent", "memory_bytes"]);
    at.only(table, &allowed)?;
    let mut goals = Goals::default();
    for percentile in Percentile::ALL {
        let key = percentile.key();
        if let Some(value) = table.get(key) {
            goals.latency_us.push((percentile, float(&at.key(key), value, 0.001, 1e9)?));
        }
    }
    let mut former: Option<(Percentile, f64)> = None;
    for &(percentile, us) in &goals.latency_us {
        if let Some((lower, most)) = former.filter(|(_, most)| us < *most) {
            return Err(at.bad(format!(
                "{0} of {us} us contradicts {1} of {most} us, because {1} is never larger than {0}: \
                 raise the limit of {0} or lower that of {1}",
                percentile.name(),
                lower.name()
            )));
        }
        former = Some((percentile, us));
    }
    goals.cpu_percent = table
        .get("cpu_percent")
        .map(|v| float(&at.key("cpu_percent"), v, 0.001, 1e5))
        .transpose()?;
    goals.memory_bytes =
        table.get("memory_bytes").map(|v| size_bytes(&at.key("memory_bytes"), v, 1)).transpose()?;
    Ok(goals)
}

/// The wishes for properties in a question.
#[derive(Default)]
pub(super) struct Wishes {
    pub(super) wishes: BTreeMap<Property, Wish>,
    pub(super) detect_within_ms: Option<f64>,
    pub(super) languages: Vec<String>,
    pub(super) all_languages: bool,
    pub(super) licences: Vec<String>,
}

/// Parses `property = "require"`, `crash-detection = { wish = "require", within_ms = 100 }`, `language` and `licence`
/// with `{ wish, any_of }`, and `language` also with `{ wish, all_of }`.
pub(super) fn wishes(at: &At<'_>, value: &Value) -> Result<Wishes, PlanError> {
    let table = at.table(value)?;
    let names: Vec<&str> = Property::ALL.iter().map(|p| p.name()).collect();
    at.only(table, &names)?;
    let all_wishes = Wish::ALL.map(|wish| (wish.word(), wish));
    let mut said = Wishes::default();
    for property in Property::ALL {
        let Some(value) = table.get(property.name()) else { continue };
        let here = at.key(property.name());
        let key = match property {
            Property::CrashDetection => Some("within_ms"),
            Property::Language if value.get("all_of").is_some() => Some("all_of"),
            p if p.has_values() => Some("any_of"),
            _ => None,
        };
        said.all_languages |= key == Some("all_of");
        let wish = match (value.as_table(), key) {
            (Some(inner), Some(key)) => {
                here.only(inner, &["wish", key])?;
                let (Some(wish), Some(value)) = (inner.get("wish"), inner.get(key)) else {
                    return Err(here.bad(format!("both 'wish' and '{key}' are needed")));
                };
                let at = here.key(key);
                match property {
                    Property::Language => said.languages = languages(&at, value)?,
                    Property::Licence => said.licences = texts(&at, value)?,
                    _ => said.detect_within_ms = Some(float(&at, value, 0.001, 1e7)?),
                }
                word(&here.key("wish"), wish, &all_wishes)?
            }
            _ if property.has_values() => {
                return Err(here.bad(format!(
                    "list the values: {} = {{ wish = \"require\", any_of = [\"{}\"] }}",
                    property.name(),
                    if property == Property::Language { "c" } else { "MIT" }
                )));
            }
            _ => word(&here, value, &all_wishes)?,
        };
        said.wishes.insert(property, wish);
    }
    Ok(said)
}

fn texts(at: &At<'_>, value: &Value) -> Result<Vec<String>, PlanError> {
    let all: Option<Vec<String>> = value.as_array().and_then(|all| {
        all.iter()
            .map(|v| v.as_str().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()))
            .collect()
    });
    all.filter(|all| !all.is_empty()).ok_or_else(|| at.bad("expected a list of names"))
}

fn languages(at: &At<'_>, value: &Value) -> Result<Vec<String>, PlanError> {
    let all: Vec<String> = texts(at, value)?.iter().map(|l| l.to_lowercase()).collect();
    match all.iter().find(|l| !is_language(l)) {
        Some(odd) => {
            Err(at.bad(format!("'{odd}' is not the name of a language such as c, c++ or python")))
        }
        None => Ok(all),
    }
}
