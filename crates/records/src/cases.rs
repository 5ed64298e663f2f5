//! Groups records into cases: all trials of one mechanism under the same inputs.
//!
//! Everything that reads records uses this grouping, so that all commands agree on what is comparable and which trials
//! count.

use std::collections::HashMap;

use crossway_mech::Wait;

use crate::inputs::{Beside, Load};
use crate::limits::{cores_moved, cores_moved_between};
use crate::rank::WaitClass;
use crate::record::{LOCAL, Pacing, RATE_REACHED, Record, Status};
use crate::regimes::Regimes;
use crate::stats;

/// The inputs that distinguish cases, each as text. Inputs that vary between trials (order, seed) or between runs
/// (durations, the CPUs chosen for a placement) are not included.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaseKey {
    fields: [(&'static str, String); FIELDS],
}

const FIELDS: usize = 15;

/// Names of the inputs that distinguish cases, in display order.
pub const FIELD_NAMES: [&str; FIELDS] = [
    "testbed",
    "ends",
    "host",
    "mechanism",
    "workload",
    "size",
    "reply",
    "wait",
    "access",
    "placement",
    "load",
    "beside",
    "socket-buffer",
    "capacity",
    "messages",
];

impl CaseKey {
    /// The key of a record's case.
    pub fn of(record: &Record) -> CaseKey {
        let inputs = &record.inputs;
        let bytes = |b: Option<u64>| b.map_or("default".to_owned(), |b| b.to_string());
        let values = [
            inputs.testbed.clone().unwrap_or_else(|| LOCAL.to_owned()),
            // Without a testbed, the ends have no location.
            inputs.testbed.as_ref().map_or(String::new(), |_| inputs.ends.name().to_owned()),
            record.host.clone(),
            record.mechanism.clone(),
            inputs.workload.word(),
            inputs.size_bytes.to_string(),
            bytes(inputs.reply_bytes),
            wait_name(&inputs.wait),
            match inputs.access {
                crossway_mech::Access::Copy => "copy".to_owned(),
                crossway_mech::Access::InPlace => "in-place".to_owned(),
            },
            inputs.placement.word(),
            load_name(&inputs.load),
            beside_name(&inputs.beside),
            bytes(inputs.socket_buffer_bytes),
            bytes(inputs.capacity_bytes),
            inputs.messages.map_or("timed".to_owned(), |m| m.to_string()),
        ];
        let mut values = values.into_iter();
        CaseKey { fields: FIELD_NAMES.map(|name| (name, values.next().unwrap_or_default())) }
    }

    /// The value of the input with this name; `None` if no input in [`FIELD_NAMES`] has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    /// The key without the inputs with these names. Cases that differ only in such inputs then have equal keys.
    pub fn without(mut self, names: &[&str]) -> CaseKey {
        for (name, value) in &mut self.fields {
            if names.contains(name) {
                value.clear();
            }
        }
        self
    }

    /// A readable label: the inputs that are set and not at their defaults.
    pub fn label(&self) -> String {
        let usual = ["local", "default", "timed", "copy", "idle", "nothing", ""];
        self.fields
            .iter()
            .filter(|(_, value)| !usual.contains(&value.as_str()))
            .map(|(name, value)| match *name {
                "size" => size_text(value),
                "reply" => format!("reply {}", size_text(value)),
                "socket-buffer" | "capacity" | "messages" | "load" | "beside" => {
                    format!("{name} {value}")
                }
                _ => value.clone(),
            })
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A size as text, in the largest unit that divides it.
pub fn size_words(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

fn size_text(value: &str) -> String {
    value.parse().map_or_else(|_| format!("{value} B"), size_words)
}

/// The name of a way of waiting.
pub fn wait_name(wait: &Wait) -> String {
    match wait {
        Wait::Block => "block".to_owned(),
        Wait::Spin => "spin".to_owned(),
        Wait::Hybrid { spin_us } => format!("hybrid-{spin_us}us"),
    }
}

/// The name of a background load.
pub fn load_name(load: &Load) -> String {
    if load.is_idle() {
        return "idle".to_owned();
    }
    [("cpu", load.cpu), ("memory", load.memory), ("io", load.io)]
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name}-{n}"))
        .collect::<Vec<_>>()
        .join("+")
}

/// The name of the concurrent workloads.
pub fn beside_name(beside: &[Beside]) -> String {
    if beside.is_empty() {
        return "nothing".to_owned();
    }
    beside.iter().map(Beside::word).collect::<Vec<_>>().join("+")
}

/// All trials of a case.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The inputs that distinguish the case from others.
    pub key: CaseKey,
    /// The case's records of any status, in the order in which they were written.
    pub records: Vec<&'a Record>,
}

impl<'a> Case<'a> {
    /// The trials that count; see [`good`].
    pub fn good(&self) -> impl Iterator<Item = &'a Record> + '_ {
        good(&self.records).into_iter()
    }

    /// How many trials count.
    pub fn trials(&self) -> usize {
        self.good().count()
    }

    /// The wait class within which the case is ranked, by the trials that count.
    pub fn class(&self) -> WaitClass {
        WaitClass::of_trials(&self.good().collect::<Vec<_>>())
            .unwrap_or_else(|| WaitClass::of(&self.records[0].inputs.wait))
    }

    /// The two groups into which the trials that count fall; `None` if they do not, as usual.
    pub fn regimes(&self) -> Option<Regimes> {
        Regimes::of(&self.good().collect::<Vec<_>>())
    }

    /// Whether any trial ran, however it ended.
    pub fn ran(&self) -> bool {
        self.records.iter().any(|r| r.status != Status::Skipped)
    }

    /// The values of one figure, from every trial that counts and has the figure.
    pub fn figures(&self, of: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
        self.good().filter_map(of).filter(|x| x.is_finite()).collect()
    }

    /// Whether the hypervisor moved the virtual CPUs to other cores during any of the trials that count, or between
    /// them.
    pub fn moved(&self) -> bool {
        self.good().any(|r| r.calibration.cores_moved())
            || cores_moved_between(
                &self.good().filter_map(|r| r.calibration.readings()).collect::<Vec<_>>(),
            )
    }

    /// Whether the cores of the case were moved ([`Case::moved`]) or differ from those of its
    /// competitors, whose usual cache-line round trip is `usual_ns`.
    pub fn moved_from(&self, usual_ns: Option<f64>) -> bool {
        let own = stats::median(&self.cache_line_ns());
        self.moved() || usual_ns.zip(own).is_some_and(|(usual, own)| cores_moved(usual, own))
    }

    /// Cache-line round trips measured around the trials that count, nanoseconds.
    pub fn cache_line_ns(&self) -> Vec<f64> {
        self.good()
            .flat_map(|r| [r.calibration.cache_line_before_ns, r.calibration.cache_line_after_ns])
            .flatten()
            .collect()
    }
}

/// Whether a trial's figures count: it is verified, and nothing disturbed it. A trial that only missed its rate counts:
/// without these, the figures of a case would be those of the trials in which the mechanism was fast enough.
pub fn counts(record: &Record) -> bool {
    record.status == Status::Ok || missed_rate(record)
}

/// Whether a trial is degraded for the only reason that it achieved less than [`RATE_REACHED`] of
/// its rate: the mechanism was too slow, and nothing else was wrong.
///
/// [`RATE_REACHED`]: crate::record::RATE_REACHED
pub fn missed_rate(record: &Record) -> bool {
    let missed = |pacing: Option<Pacing>| pacing.is_some_and(|p| p.missed());
    let disturbed = record.beside.iter().any(|beside| missed(beside.pacing))
        || record.calibration.cores_moved()
        || stolen(record).is_some();
    record.status == Status::Degraded && missed(record.pacing) && !disturbed
}

/// The trials of a case from which its figures come: those that count, unless their median missed the rate of the case.
/// Such a case was not measured at its rate, so it has none.
pub fn good<'a>(trials: &[&'a Record]) -> Vec<&'a Record> {
    let counting: Vec<&Record> = trials.iter().copied().filter(|r| counts(r)).collect();
    if at_rate(&counting) { counting } else { Vec::new() }
}

/// Whether the median of these trials reached the rate of the case. True for workloads without a rate.
pub fn at_rate(trials: &[&Record]) -> bool {
    let shares: Vec<f64> = trials
        .iter()
        .filter_map(|r| Some(r.pacing?.reached_share()))
        .filter(|s| s.is_finite())
        .collect();
    stats::median(&shares).is_none_or(|share| share >= RATE_REACHED)
}

/// Groups records into cases, in the order in which the cases first appear.
pub fn group<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Case<'a>> {
    let mut at: HashMap<CaseKey, usize> = HashMap::new();
    let mut cases: Vec<Case<'a>> = Vec::new();
    for record in records {
        let key = CaseKey::of(record);
        let i = *at.entry(key.clone()).or_insert_with(|| {
            cases.push(Case { key, records: Vec::new() });
            cases.len() - 1
        });
        cases[i].records.push(record);
    }
    cases
}

/// A figure is unreliable if the hypervisor took away more than this fraction of the trial's duration (steal time).
const STEAL_SHARE: f64 = 0.05;

/// The fraction of a trial's time that the hypervisor took away (steal), if it is large enough to distort the figures.
pub fn stolen(record: &Record) -> Option<f64> {
    let wall_ns = record.throughput.as_ref()?.wall_ns;
    // Several hosts may be on the same physical machine, so take the largest value instead of the sum.
    let steal_ns = record.host_cpu.iter().map(|host| host.steal_ns).max().unwrap_or(0);
    let share = steal_ns as f64 / wall_ns.max(1) as f64;
    // Below a few clock ticks of /proc/stat the fraction is meaningless.
    (steal_ns >= 30_000_000 && share > STEAL_SHARE).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Workload;
    use crate::record::{BesideFigures, Counts, HostMeters};
    use crate::samples;

    #[test]
    fn trials_of_one_case_are_together_whatever_their_order() {
        let mut records = samples::trials("pipe", 64, &[1, 2], 1.0);
        records.extend(samples::trials("fifo", 64, &[1], 1.0));
        records.extend(samples::trials("pipe", 64, &[3], 1.0));
        records[1].inputs.seed = 99;
        records[1].inputs.cpus = vec![1, 0];
        let cases = group(&records);
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].trials(), 3);
        assert_eq!(cases[0].key.label(), "pipe ping-pong 64 B block shared-cache");
        assert_eq!(cases[0].key.get("load"), Some("idle"));
        assert_eq!(
            cases[0].key.clone().without(&["mechanism"]),
            cases[1].key.clone().without(&["mechanism"])
        );
    }

    #[test]
    fn only_good_trials_count() {
        let mut records = samples::trials("pipe", 64, &[1, 2, 3], 1.0);
        records[0].status = Status::Degraded;
        records[2].status = Status::Failed;
        let cases = group(&records);
        assert_eq!(cases[0].figures(|r| r.latency_ns.first().map(|l| l.p50 as f64)), [2.0]);
    }

    #[test]
    fn trials_that_missed_their_rate_count_if_the_median_trial_reached_it() {
        let trials = |records: &[Record]| group(records)[0].trials();
        assert_eq!(trials(&samples::paced(&[1.0, 1.0, 1.0, 0.8, 0.7])), 5);
        assert_eq!(
            trials(&samples::paced(&[1.0, 1.0, 0.98, 0.8, 0.7])),
            0,
            "the median trial missed it"
        );
        let mut records = samples::paced(&[1.0, 1.0, 1.0, 1.0, 0.8]);
        records[4].calibration.cache_line_before_ns = Some(100.0);
        records[4].calibration.cache_line_after_ns = Some(400.0);
        assert_eq!(trials(&records), 4, "the machine may be the cause");
    }

    /// A late trial, or one that kept its rate, under these circumstances.
    fn paced(status: Status, share: f64, [beside, moved, stolen]: [bool; 3]) -> Record {
        let mut record = samples::paced(&[share]).remove(0);
        record.status = status;
        let throughput = record.throughput.as_mut().expect("a rate");
        throughput.wall_ns = throughput.wall_ns.max(1_000_000_000);
        let throughput = *throughput;
        record.beside = vec![BesideFigures {
            mechanism: "pipe".to_owned(),
            workload: Workload::PingPong,
            size_bytes: 64,
            counts: Counts::default(),
            throughput,
            latency_ns: Vec::new(),
            pacing: beside.then(|| samples::pacing(1000.0, 0.5)),
            roles: Vec::new(),
        }];
        if moved {
            record.calibration.cache_line_before_ns = Some(100.0);
            record.calibration.cache_line_after_ns = Some(400.0);
        }
        record.host_cpu = vec![HostMeters {
            host: "local".to_owned(),
            busy_ns: 0,
            softirq_ns: 0,
            irq_ns: 0,
            steal_ns: if stolen { throughput.wall_ns / 10 } else { 0 },
            cpus: 2,
            span_ns: Some(throughput.wall_ns),
        }];
        record
    }

    #[test]
    fn of_the_degraded_trials_only_one_that_merely_missed_its_rate_counts() {
        for status in [Status::Ok, Status::Degraded, Status::Failed, Status::Skipped] {
            for share in [1.0, 0.8] {
                for bits in 0..8 {
                    let circumstances = [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
                    let only_late = status == Status::Degraded && share < 1.0 && bits == 0;
                    assert_eq!(
                        counts(&paced(status, share, circumstances)),
                        status == Status::Ok || only_late,
                        "{status:?} {share} {circumstances:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_move_of_the_cores_is_seen() {
        let mut records = samples::trials("pipe", 64, &[1, 2], 1.0);
        assert!(!group(&records)[0].moved());
        records[1].calibration.cache_line_after_ns = Some(400.0);
        assert!(group(&records)[0].moved());
    }

    #[test]
    fn loads_and_workloads_have_words() {
        assert_eq!(load_name(&Load { cpu: 2, memory: 0, io: 1 }), "cpu-2+io-1");
        let paced = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };
        assert_eq!(paced.word(), "paced-262144B-80000us");
        assert_eq!(wait_name(&Wait::Hybrid { spin_us: 20 }), "hybrid-20us");
    }
}
