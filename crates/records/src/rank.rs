//! Ranks mechanisms against each other, but only those that are comparable.
//!
//! A ranking covers one workload, size, placement, load, access and wait class: a mechanism that occupies a core is
//! never ranked against one that sleeps. A mechanism that works in one of two ways has no rank ([`crate::regimes`]). There are two rankings, by speed and by CPU time (item E10 of Enea's study),
//! because they often disagree. Rankings that differ only in load are searched for reversals (item E9).

use std::collections::BTreeMap;

use crossway_mech::Wait;
use serde::Serialize;

use crate::awake;
use crate::cases::{self, Case, CaseKey};
use crate::compare::durations;
use crate::figure::Figure;
use crate::inputs::Measure;
use crate::limits::{MOVED_FACTOR, bound};
use crate::percentile::Percentile;
use crate::record::{Rates, Record, Status};
use crate::regimes::Regimes;
use crate::stats::{self, Summary};
use crate::ties;

/// The wait class of the ends. Mechanisms of different classes never share a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitClass {
    /// Sleeps when there is nothing to do.
    Blocking,
    /// Occupies a core while it waits.
    Spinning,
    /// Spins for a limited time, then sleeps.
    Hybrid,
    /// May sleep, but hardly did ([`crate::awake`]), so that it occupied a core, too.
    Busy,
}

impl WaitClass {
    /// All classes, in display order.
    pub const ALL: [WaitClass; 4] =
        [WaitClass::Blocking, WaitClass::Hybrid, WaitClass::Busy, WaitClass::Spinning];

    /// The name used in sentences.
    pub fn name(self) -> &'static str {
        match self {
            WaitClass::Blocking => "blocking",
            WaitClass::Spinning => "spinning",
            WaitClass::Hybrid => "hybrid",
            WaitClass::Busy => "busy",
        }
    }

    /// The class of these trials of one case; `None` without trials.
    pub fn of_trials(trials: &[&Record]) -> Option<WaitClass> {
        let class = WaitClass::of(&trials.first()?.inputs.wait);
        Some(if awake::is_busy(trials) { WaitClass::Busy } else { class })
    }

    /// The class of a way of waiting, if the ends slept where they may.
    pub fn of(wait: &Wait) -> WaitClass {
        match wait {
            Wait::Block => WaitClass::Blocking,
            Wait::Spin => WaitClass::Spinning,
            Wait::Hybrid { .. } => WaitClass::Hybrid,
        }
    }
}

/// The figure by which trials of one workload are ranked by speed: the median or, for messages that
/// are due at fixed times, the 99th percentile if all trials have it.
fn speed(trials: &[&Record]) -> Option<Figure> {
    let measure = trials.first()?.inputs.workload.facts().measure;
    let p99 = Figure::speed(measure, Percentile::P99);
    let has_p99 = measure == Measure::OneWay && trials.iter().all(|r| p99.of(r).is_some());
    Some(if has_p99 { p99 } else { Figure::speed(measure, Percentile::P50) })
}

/// A mechanism's entry in a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The mechanism's rank, from 1. A rank is shared by all entries whose intervals overlap that of the first entry
    /// with this rank, which has the best median of them. Null for a mechanism with fewer than five trials, which is
    /// listed after the ranked ones.
    pub rank: Option<usize>,
    /// The mechanism's id.
    pub mechanism: String,
    /// How the mechanism's ends waited, e.g. `hybrid-20us`.
    pub wait: String,
    /// The figure by which the mechanism is ranked.
    pub figure: Summary,
    /// Whether the cache-line round trip changed during the mechanism's trials or differs from that of its competitors.
    /// The machine may then be the reason for the mechanism's rank.
    pub cores_moved: bool,
    /// Whether the speed lies beyond the physical limit that was measured between the trials
    /// ([`crate::limits::bound::beyond`]): either it is wrong, or the mechanism avoids a cost that the limit includes.
    pub beyond_limit: bool,
    /// Offered rate, and the median of the achieved ones; null unless messages are sent at a fixed rate.
    pub rates: Option<Rates>,
    /// Number of the trials that missed the offered rate; the figures include them.
    pub below_rate: usize,
    /// Fraction of the sent messages that were lost, for mechanisms that may lose messages; null if none was lost.
    pub lost_share: Option<f64>,
}

/// A ranking of the mechanisms measured in one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    /// What all entries have in common, in readable form.
    pub setting: String,
    /// The inputs that all entries have in common, as text by name.
    pub inputs: BTreeMap<String, String>,
    /// The wait class of all entries.
    pub wait_class: WaitClass,
    /// The figure by which speed is ranked.
    pub speed: Figure,
    /// Mechanisms without trials that count in this setting (all are degraded, or most missed their rate), each with its
    /// way of waiting; they have no entry.
    pub degraded: Vec<String>,
    /// The entries by rank; within a rank, by median speed.
    pub by_speed: Vec<Entry>,
    /// The entries by rank in payload bits per CPU-second of all roles and servers; empty if messages have no payload.
    pub by_bits_per_cpu_s: Vec<Entry>,
}

/// Two mechanisms whose order is reversed under load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reversal {
    /// What both rankings have in common, in readable form.
    pub setting: String,
    /// The load that reverses the order.
    pub load: String,
    /// The mechanism that ranks higher without load.
    pub better_idle: String,
    /// The mechanism that ranks higher under load.
    pub better_loaded: String,
    /// The figure by which both rankings are made.
    pub by: By,
}

/// Which of the two figures a ranking uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Speed.
    Speed,
    /// Bits per CPU-second.
    BitsPerCpuS,
}

/// All rankings of a set of records.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rankings {
    /// The rankings, in the order in which their cases first appear.
    pub rankings: Vec<Ranking>,
    /// Reversals of the order under load.
    pub reversals: Vec<Reversal>,
    /// Settings in which a single mechanism was measured; they have no ranking.
    pub alone: Vec<Alone>,
    /// Settings without trials that count, in readable form; they have no ranking.
    pub degraded: Vec<String>,
    /// Settings in which no trial has a figure by which it could be ranked; they have no ranking.
    pub without_figures: Vec<WithoutFigures>,
    /// Mechanisms that work in one of two ways in a setting; they have no rank there.
    pub two_regimes: Vec<TwoRegimes>,
    /// What a reader of all rankings should know, in whole sentences.
    pub warnings: Vec<String>,
}

/// A mechanism whose trials in a setting fall into two groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TwoRegimes {
    /// The setting, in readable form.
    pub setting: String,
    /// The mechanism, with its way of waiting if that is hybrid.
    pub mechanism: String,
    /// The two groups.
    #[serde(flatten)]
    pub regimes: Regimes,
}

/// A setting in which no trial has a figure by which it could be ranked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithoutFigures {
    /// The setting, in readable form.
    pub setting: String,
    /// Why a trial has none, from its record; null if the record does not say.
    pub why: Option<String>,
}

/// A setting in which a single mechanism was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alone {
    /// The setting, in readable form.
    pub setting: String,
    /// The mechanism.
    pub mechanism: String,
    /// Its wait class.
    pub wait_class: WaitClass,
    /// Mechanisms without trials that count in this setting.
    pub degraded: Vec<String>,
}

/// Ranks everything that is comparable; settings with a single mechanism are listed in [`Rankings::alone`] without a rank.
pub fn rank<'a>(records: impl IntoIterator<Item = &'a Record>) -> Rankings {
    let cases = cases::group(records);
    let mut groups: Vec<((CaseKey, WaitClass), Vec<&Case>)> = Vec::new();
    let mut at = std::collections::HashMap::new();
    let mut two_regimes = Vec::new();
    for case in cases.iter().filter(|c| c.trials() > 0) {
        let class = case.class();
        let key = (case.key.clone().without(&["mechanism", "wait"]), class);
        if let Some(regimes) = case.regimes() {
            let setting = format!("{}, {}", key.0.label(), class.name());
            two_regimes.push(TwoRegimes { setting, mechanism: case_contender(case), regimes });
            continue;
        }
        let i = *at.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[i].1.push(case);
    }
    let mut degraded: Vec<String> = Vec::new();
    let mut left_out: Vec<Vec<String>> = vec![Vec::new(); groups.len()];
    let is_degraded = |r: &&Record| r.status == Status::Degraded;
    for case in cases.iter().filter(|c| c.trials() == 0 && c.records.iter().any(is_degraded)) {
        let class = WaitClass::of(&case.records[0].inputs.wait);
        let key = (case.key.clone().without(&["mechanism", "wait"]), class);
        let setting = format!("{}, {}", key.0.label(), class.name());
        if let Some(&group) = at.get(&key) {
            left_out[group].push(case_contender(case));
        } else if !degraded.contains(&setting) {
            degraded.push(setting);
        }
    }
    let mut rankings = Vec::new();
    let (mut keys, mut alone, mut without_figures) = (Vec::new(), Vec::new(), Vec::new());
    for (((key, class), members), degraded) in groups.into_iter().zip(left_out) {
        let setting = format!("{}, {}", key.label(), class.name());
        if let [only] = members[..] {
            let mechanism = only.key.get("mechanism").unwrap_or_default().to_owned();
            alone.push(Alone { setting, mechanism, wait_class: class, degraded });
            continue;
        }
        let trials: Vec<&Record> = members.iter().flat_map(|case| case.good()).collect();
        let Some(speed) = speed(&trials) else { continue };
        let by_speed = places(&members, |r| speed.of(r), speed.more_is_better());
        let by_bits_per_cpu_s =
            places(&members, |r| r.cost.map(|c| c.bits_per_cpu_s).filter(|bits| *bits > 0.0), true);
        if by_speed.is_empty() && by_bits_per_cpu_s.is_empty() {
            let why = trials.iter().find_map(|r| r.nulls.get(speed.field()).cloned());
            without_figures.push(WithoutFigures { setting, why });
            continue;
        }
        rankings.push(Ranking {
            setting,
            inputs: cases::FIELD_NAMES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), key.get(name)?.to_owned())))
                .filter(|(_, value)| !value.is_empty())
                .collect(),
            wait_class: class,
            speed,
            degraded,
            by_speed,
            by_bits_per_cpu_s,
        });
        keys.push((key, class));
    }
    let reversals = reversals(&rankings, &keys);
    let warnings = durations::pooled(&cases).into_iter().collect();
    Rankings { rankings, reversals, alone, degraded, without_figures, two_regimes, warnings }
}

fn case_contender(case: &Case) -> String {
    let of = |name| case.key.get(name).unwrap_or_default();
    contender(of("mechanism"), of("wait"))
}

/// The name of a mechanism in a ranking, followed by its way of waiting if that is hybrid, e.g. `hybrid-20us`.
pub fn contender(mechanism: &str, wait: &str) -> String {
    if wait.starts_with("hybrid") { format!("{mechanism} {wait}") } else { mechanism.to_owned() }
}

fn lost_share(case: &Case) -> Option<f64> {
    let counts = || case.good().filter_map(|r| r.counts);
    let sent: u64 = counts().map(|c| c.sent).sum();
    let lost: u64 = counts().map(|c| c.sent.saturating_sub(c.received)).sum();
    (lost > 0).then(|| lost as f64 / sent as f64)
}

fn places(
    members: &[&Case],
    figure: impl Fn(&Record) -> Option<f64>,
    more_is_better: bool,
) -> Vec<Entry> {
    let lines: Vec<f64> = members.iter().flat_map(|c| c.cache_line_ns()).collect();
    let usual = stats::median(&lines);
    let mut entries: Vec<Entry> = members
        .iter()
        .filter_map(|case| {
            Some(Entry {
                rank: None,
                mechanism: case.key.get("mechanism")?.to_owned(),
                wait: case.key.get("wait")?.to_owned(),
                figure: Summary::of(&case.figures(&figure))?,
                cores_moved: case.moved_from(usual),
                beyond_limit: bound::beyond(&case.good().collect::<Vec<_>>()),
                rates: Rates::of_case(case),
                below_rate: case.good().filter(|r| cases::missed_rate(r)).count(),
                lost_share: lost_share(case),
            })
        })
        .collect();
    let ranks = ties::order(&mut entries, |e| e.figure.estimate, more_is_better);
    for (entry, rank) in entries.iter_mut().zip(ranks) {
        entry.rank = rank;
    }
    entries
}

/// Finds pairs in which one mechanism ranks higher without load and the other one under load, without a tie in either
/// ranking.
fn reversals(rankings: &[Ranking], keys: &[(CaseKey, WaitClass)]) -> Vec<Reversal> {
    let mut found = Vec::new();
    for (idle, idle_key) in rankings.iter().zip(keys) {
        if idle_key.0.get("load") != Some("idle") {
            continue;
        }
        for (loaded, loaded_key) in rankings.iter().zip(keys) {
            let same = |k: &(CaseKey, WaitClass)| (k.0.clone().without(&["load"]), k.1);
            if loaded_key == idle_key || same(idle_key) != same(loaded_key) {
                continue;
            }
            for (by, quiet, busy) in [
                (By::Speed, &idle.by_speed, &loaded.by_speed),
                (By::BitsPerCpuS, &idle.by_bits_per_cpu_s, &loaded.by_bits_per_cpu_s),
            ] {
                let place = |of: &[Entry], like: &Entry| {
                    of.iter()
                        .find(|e| e.mechanism == like.mechanism && e.wait == like.wait)
                        .and_then(|e| e.rank)
                };
                for (at, better) in quiet.iter().enumerate() {
                    let behind = |w: &&Entry| w.rank.is_some() && w.rank > better.rank;
                    for worse in quiet[at + 1..].iter().filter(behind) {
                        let (Some(was_better), Some(was_worse)) =
                            (place(busy, better), place(busy, worse))
                        else {
                            continue;
                        };
                        if was_worse < was_better {
                            found.push(Reversal {
                                setting: idle.setting.clone(),
                                load: loaded_key.0.get("load").unwrap_or_default().to_owned(),
                                better_idle: better.mechanism.clone(),
                                better_loaded: worse.mechanism.clone(),
                                by,
                            });
                        }
                    }
                }
            }
        }
    }
    found
}

/// The word for figures from trials during which the hypervisor moved the CPUs to other cores.
pub const MOVED: &str = "moved cores";

/// Explains [`MOVED`].
pub fn moved_explained() -> String {
    format!(
        "{MOVED}: the cache-line round trip between the cores changed during one of these trials or between them by a factor \
         of more than {MOVED_FACTOR}, or it differs by more than this factor from the competitors' round trip, so the \
         machine may be the reason for the figure and its rank"
    )
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
