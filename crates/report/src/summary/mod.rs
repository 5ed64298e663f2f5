//! Groups records by case, which is all trials with the same inputs, and computes each figure with its interval.

mod beside;
mod case;
pub(crate) mod moved;
mod reasons;
mod setting;
mod workload;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crossway_records::cases;
use crossway_records::inputs::Workload;
use crossway_records::rank::{Rankings, Reversal, rank};
use crossway_records::record::{Counts, LOCAL, Record, Status};
use crossway_records::sorting::{CollectTree, SortSmall};
use crossway_records::stats::{Estimate, TRIALS_AT_LEAST};

use crate::contender::Contender;
use crate::histograms::Histograms;

pub use beside::BesideSummary;
pub use case::{Case, FairnessSummary, LatencySummary, PacingSummary, Packets, Pooled, RoleShare};
use case::{case, used};
use moved::UsualCores;
pub(crate) use reasons::{Reason, by_reason, without_numbers};
pub use setting::{Setting, beside_name, load_name, placement_name};
pub use workload::workload_name;
pub(crate) use workload::workload_rank;

/// Trials that were skipped, failed or degraded for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    /// Status of the trials.
    pub status: Status,
    /// Id of the mechanism.
    pub mechanism: String,
    /// The reason, as the records state it.
    pub reason: String,
    /// The command or step that fixes the cause; `None` if there is none.
    pub remedy: Option<String>,
    /// Names of the cases affected.
    pub cases: Vec<String>,
    /// Number of trials affected.
    pub trials: usize,
}

/// Messages lost by a mechanism that is allowed to lose some. Only cases with losses are counted, and of these only the
/// trials from which the figures come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Messages sent in all these trials.
    pub sent: u64,
    /// Messages that did not arrive.
    pub lost: u64,
    /// Number of these trials in which messages were lost.
    pub trials: usize,
    /// Number of these trials in total.
    pub of_trials: usize,
    /// The shares of messages lost in the case with the smallest share, and in that with the
    /// largest.
    pub shares: (f64, f64),
}

/// All records of a run, aggregated by case.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The contenders, ordered by family and name.
    pub contenders: Vec<Contender>,
    /// The settings: first those without load, then those with fewer background workloads, then those with more cases.
    pub settings: Vec<Setting>,
    /// The cases, ordered by contender, workload, size and setting.
    pub cases: Vec<Case>,
    /// Causes of skipped, failed and degraded trials.
    pub troubles: Vec<Trouble>,
    /// What unreliable mechanisms lost, by mechanism.
    pub losses: BTreeMap<String, Loss>,
    /// Warnings with the number of trials that have them, most frequent first.
    pub warnings: Vec<(String, usize)>,
    /// Pairs of mechanisms whose order is reversed under load.
    pub reversals: Vec<Reversal>,
    /// Whether the cores of most cases moved, so that it would be said of nearly every mechanism.
    pub mostly_moved: bool,
    /// Whether `crossway rank` has a ranking; false also in a run without load whose summary names winners, which does not
    /// need to know.
    pub ranked: bool,
    /// Number of trials by status: ok, degraded, failed, skipped.
    pub trials_by_status: BTreeMap<Status, usize>,
}

/// The trials of a case that ran to their end.
struct Group<'a> {
    /// Index into [`Summary::contenders`].
    contender: usize,
    /// Index into [`Summary::settings`].
    setting: usize,
    case: cases::Case<'a>,
}

impl Summary {
    /// Aggregates records, in time linear in their number.
    pub fn of(records: &[Record]) -> Summary {
        type Cause<'a> = (Status, &'a str, &'a str, Option<&'a str>);
        let mut troubles: BTreeMap<Cause<'_>, (Vec<&str>, usize)> = BTreeMap::new();
        let mut warnings: HashMap<&str, usize> = HashMap::new();
        let mut trials_by_status = BTreeMap::new();
        for record in records {
            *trials_by_status.entry(record.status).or_insert(0) += 1;
            for warning in &record.warnings {
                *warnings.entry(warning).or_insert(0) += 1;
            }
            if record.status != Status::Ok {
                let reason = record.reason.as_deref().unwrap_or("no reason was recorded");
                let (cases, trials) = troubles
                    .entry((record.status, &record.mechanism, reason, record.remedy.as_deref()))
                    .or_default();
                cases.push(&record.case);
                *trials += 1;
            }
        }
        let ran = |r: &&Record| matches!(r.status, Status::Ok | Status::Degraded);
        let grouped = cases::group(records.iter().filter(ran));
        let places: Vec<(Contender, Setting)> = grouped
            .iter()
            .map(|c| (contender_of(c.records[0]), Setting::of(c.records[0])))
            .collect();

        let mut contenders: Vec<Contender> = places
            .iter()
            .map(|(contender, _)| contender.clone())
            .collect::<std::collections::HashSet<_>>()
            .into_iter()
            .collect();
        contenders.sort_small_by_key(Contender::sort_key);
        let mut by_setting: HashMap<&Setting, usize> = HashMap::new();
        for (_, setting) in &places {
            *by_setting.entry(setting).or_insert(0) += 1;
        }
        let mut settings: Vec<(Setting, usize)> =
            by_setting.into_iter().map(|(s, n)| (s.clone(), n)).collect();
        settings.sort_by_cached_key(|(s, n)| {
            (!s.load.is_idle(), s.beside.len(), std::cmp::Reverse(*n), s.sort_key())
        });
        let settings: Vec<Setting> = settings.into_iter().map(|(s, _)| s).collect();
        let contender_at: HashMap<&Contender, usize> =
            contenders.iter().enumerate().map(|(i, c)| (c, i)).collect();
        let setting_at: HashMap<&Setting, usize> =
            settings.iter().enumerate().map(|(i, s)| (s, i)).collect();

        let groups: Vec<Group<'_>> = std::iter::zip(grouped, &places)
            .map(|(case, (contender, setting))| Group {
                contender: contender_at[contender],
                setting: setting_at[setting],
                case,
            })
            .collect();
        let usual_cores = UsualCores::of(&groups);
        let mut cases: Vec<Case> = groups
            .iter()
            .map(|group| Case { cores_moved: usual_cores.moved(group), ..case(group) })
            .collect();
        cases.sort_by_cached_key(|c| {
            (c.contender, workload_rank(c.workload), c.size_bytes, c.setting, c.name.clone())
        });

        let troubles = troubles
            .into_iter()
            .map(|((status, mechanism, reason, remedy), (mut cases, trials))| {
                cases.sort_unstable();
                cases.dedup();
                Trouble {
                    status,
                    mechanism: mechanism.to_owned(),
                    reason: reason.to_owned(),
                    remedy: remedy.map(str::to_owned),
                    cases: cases.into_iter().map(str::to_owned).collect(),
                    trials,
                }
            })
            .collect();
        let mut warnings: Vec<(String, usize)> =
            warnings.into_iter().map(|(w, n)| (w.to_owned(), n)).collect();
        warnings.sort_small_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        // Ranking all records again is worth the time only if there is load to compare with, or if there may be no winner
        // to name.
        let loaded = settings.iter().any(|s| !s.load.is_idle());
        let compared = |w: &Workload| {
            *w == Workload::PingPong || *w == Workload::Throughput || w.facts().paced()
        };
        let rankings = if loaded || !cases.iter().any(|c| compared(&c.workload)) {
            rank(records)
        } else {
            Rankings::default()
        };
        let entries = rankings.rankings.iter().flat_map(|ranking| &ranking.by_speed);
        let ranked = entries.filter(|entry| entry.rank.is_some()).count() > 0;
        let moved = cases.iter().filter(|case| case.cores_moved).count();
        Summary {
            contenders,
            settings,
            mostly_moved: moved >= 3 && moved * 4 > cases.len() * 3,
            cases,
            troubles,
            losses: losses(groups.iter().map(|group| group.case.records.as_slice())),
            warnings,
            reversals: rankings.reversals,
            ranked,
            trials_by_status,
        }
    }

    /// Pools the samples of all trials of cases whose single trials have too few for the 99th or 99.9th percentile.
    /// Without pooling, runs of short plans would have no such percentiles.
    pub fn pool(&mut self, histograms: &Histograms) {
        for latency in self.cases.iter_mut().flat_map(|c| &mut c.latencies) {
            let lacks = latency.p99.is_none() || latency.p999.is_none();
            if lacks && latency.histograms.len() > 1 {
                let all = histograms.pooled(latency.span, &latency.histograms);
                latency.pooled = all.map(|all| {
                    let (p99, p999) = (all.value_at(0.99), all.value_at(0.999));
                    Pooled { n: all.n, p99, p999 }
                });
            }
        }
    }

    /// Returns the indices of the contender and the setting of a record; `None` if no case with figures has that
    /// contender or that setting.
    pub fn place_of(&self, record: &Record) -> Option<(usize, usize)> {
        let (contender, setting) = (contender_of(record), Setting::of(record));
        let contender = self.contenders.iter().position(|c| *c == contender)?;
        Some((contender, self.settings.iter().position(|s| *s == setting)?))
    }

    /// Returns the number of trials that have this status.
    pub fn trials(&self, status: Status) -> usize {
        self.trials_by_status.get(&status).copied().unwrap_or(0)
    }

    /// Says which degraded trials the figures include.
    pub(crate) fn degraded_means(&self) -> &'static str {
        let missed = |case: &Case| case.pacing.as_ref().is_some_and(|p| p.missed_trials > 0);
        if self.cases.iter().any(missed) {
            "kept, but left out of the figures where clean trials exist, except those that only missed their rate"
        } else {
            "kept, but left out of the figures where clean trials exist"
        }
    }

    /// Returns the mechanisms that were skipped and have no figure at all.
    pub fn skipped_mechanisms(&self) -> Vec<&str> {
        let mut ids: Vec<&str> = self
            .troubles
            .iter()
            .filter(|t| t.status == Status::Skipped)
            .map(|t| t.mechanism.as_str())
            .filter(|id| !self.contenders.iter().any(|c| c.mechanism == **id))
            .collect();
        ids.dedup();
        ids
    }

    /// Returns whether a case has enough trials for an interval.
    pub fn has_intervals(&self) -> bool {
        let enough = |figure: &Estimate| figure.has_interval();
        self.cases.iter().any(|case| {
            case.msgs_per_s.as_ref().is_some_and(enough)
                || case.latencies.iter().any(|latency| enough(&latency.p50))
        })
    }

    /// Returns the numbers of trials of the figures that have an interval, each once.
    pub(crate) fn trials_of_figures(&self) -> BTreeSet<usize> {
        let latencies = |case: &'_ Case| case.latencies.iter().map(|l| l.p50.n).collect::<Vec<_>>();
        let figures = self.cases.iter().filter(|c| !c.degraded);
        figures
            .flat_map(|c| c.msgs_per_s.iter().map(|f| f.n).chain(latencies(c)).collect::<Vec<_>>())
            .filter(|n| *n >= TRIALS_AT_LEAST)
            .collect_tree()
    }

    /// Returns the message sizes of the cases that satisfy `wanted`, in ascending order.
    pub fn sizes(&self, wanted: impl Fn(&Case) -> bool) -> Vec<u64> {
        let mut sizes: Vec<u64> =
            self.cases.iter().filter(|c| wanted(c)).map(|c| c.size_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Returns what was lost in the trials from which the figures of these cases come, by mechanism. Cases without losses
/// are left out: otherwise the many messages of round trips would hide the losses of a stream.
fn losses<'a>(cases: impl Iterator<Item = &'a [&'a Record]>) -> BTreeMap<String, Loss> {
    let mut losses: BTreeMap<String, Loss> = BTreeMap::new();
    for trials in cases.map(used) {
        let counts = || trials.iter().filter_map(|r| Some((&r.mechanism, r.counts?)));
        if counts().all(|(_, counts)| counts.received >= counts.sent) {
            continue;
        }
        let lost = |counts: Counts| counts.sent.saturating_sub(counts.received);
        let sum = |of: &dyn Fn(Counts) -> u64| counts().map(|(_, counts)| of(counts)).sum::<u64>();
        let (sent, all_lost) = (sum(&|counts| counts.sent), sum(&lost));
        let share = all_lost as f64 / sent as f64;
        let Some((mechanism, _)) = counts().next() else { continue };
        let none = Loss { sent: 0, lost: 0, trials: 0, of_trials: 0, shares: (share, share) };
        let loss = losses.entry(mechanism.clone()).or_insert(none);
        loss.sent += sent;
        loss.lost += all_lost;
        loss.trials += counts().filter(|(_, counts)| lost(*counts) > 0).count();
        loss.of_trials += counts().count();
        loss.shares = (loss.shares.0.min(share), loss.shares.1.max(share));
    }
    losses
}

fn contender_of(record: &Record) -> Contender {
    Contender {
        mechanism: record.mechanism.clone(),
        wait: record.inputs.wait,
        access: record.inputs.access,
        family: crossway_records::family::family_of(record),
        // On a testbed the hosts belong to the setting: contenders are compared only between the
        // same hosts.
        host: (record.host != LOCAL && record.inputs.testbed.is_none())
            .then(|| record.host.clone()),
    }
}
