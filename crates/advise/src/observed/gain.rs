//! By how much a whole program gets faster if a flow moves to another mechanism.
//!
//! An exchange of the program takes a time of which the channel is a part. The recording says how long it takes and, if
//! the recorder's own cost is not too large, how much of that is the program's.
//!
//! If the program waits for each answer, the recorded channel is replayed, with what the program
//! does between its calls, on one CPU and on two: what two mechanisms differ in is the time of a
//! whole exchange. If many exchanges are open at once, messages of the recorded sizes are measured;
//! an end that always works is what counts, and the channel costs it the time of its calls, without
//! the time of falling asleep and waking up.
//!
//! Each quantity is an interval, and so is the answer.

use std::path::Path;

use serde::Serialize;

use super::rounds::{Ends, Rounds, Times, around, by_round, in_pairs, in_program, interval};
use super::verdict::{middle, run_is_enough, verdict};
use super::{Flow, median};
use crossway_lab::plan::{Plan, PlanError, number, table};
use crossway_lab::replay::{Channels, Replay};
use crossway_records::figure::Figure;
use crossway_records::inputs::{ReplayShape, Workload};
use crossway_records::record::{Record, Status};
use crossway_records::sorting::SortSmall;
use crossway_records::stats::Interval;
use toml::{Table, Value};

/// Trials of each mechanism and placement.
const TRIALS: u64 = 15;
/// What waking a CPU costs drifts from one tenth of a second to the next.
const MEASURE_MS: u64 = 250;
const WARMUP_MS: u64 = 30;
/// A gain that cannot exceed this part of the time is not worth a change.
pub const NOT_WORTH: f64 = 0.02;
/// Nothing saves more of a program's time than this.
const MOST: f64 = 0.98;
/// How exactly the recorder's cost for a call is known, as a factor in both directions.
const COST_SPREAD: f64 = 0.25;

/// What a program would gain from one mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct With {
    /// The mechanism's id.
    pub mechanism: String,
    /// Whether `crossway run` does it, with the programs as they are: its ends look before they sleep.
    pub unmodified: bool,
    /// Time that it saves in each exchange, nanoseconds; negative if it takes longer.
    pub saved_ns: Interval,
    /// Part of the program's time that it saves: 0.2 means that what took 10 s takes 8 s. Negative if it takes longer.
    pub less_time: Interval,
    /// CPU time that both ends save together in each exchange, nanoseconds; `None` if it could not be measured.
    pub cpu_saved_ns: Option<Interval>,
    /// The answer in words.
    pub verdict: String,
}

/// What a program would gain if a flow moved to another mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The flow in words.
    pub flow: String,
    /// The mechanism that it uses.
    pub now: String,
    /// What an exchange of the program takes, nanoseconds: everything between two exchanges included.
    pub exchange_ns: Interval,
    /// The part of the time of each end that went into the flow's calls while it was recorded: the end that sends
    /// first, and the other one.
    pub share_of_time: [f64; 2],
    /// Whether the program waits for each answer.
    pub in_turn: bool,
    /// The mechanisms that were compared with it.
    pub with: Vec<With>,
    /// Whether `crossway run` gives the programs, as they are, about as much as the best of the others.
    pub run_is_enough: bool,
    /// What limits the prediction.
    pub remarks: Vec<String>,
}

/// The mechanism that `crossway run` makes of one that programs use, if it does anything for it.
fn unmodified(now: &str) -> Option<&str> {
    match now {
        "tcp" | "tcp-nodelay" => Some("uds-stream"),
        "uds-stream" | "uds-dgram" | "uds-seqpacket" => Some(now),
        _ => None,
    }
}

impl Flow {
    /// The plan that measures what the flow's channel costs now and with each of `others`, and what it would cost with
    /// `crossway run`, whose ends look for `look_us` microseconds before they sleep; `None` to leave that out.
    ///
    /// # Errors
    /// There is no such mechanism.
    pub fn gain_plan(
        &self,
        now: &str,
        others: &[String],
        look_us: Option<u64>,
        recording: &Path,
    ) -> Result<Plan, PlanError> {
        let replay = self.replayed(recording);
        let size = median(&self.requests).unwrap_or(1).max(1);
        let mut mechanisms: Vec<Value> = vec![now.into()];
        mechanisms.extend(others.iter().filter(|other| *other != now).map(|o| o.clone().into()));
        let mut groups = Table::new();
        let natural = ("natural", Value::from("natural"), mechanisms.clone());
        let mut ways = if self.never_sleeps() { Vec::new() } else { vec![natural] };
        if !self.is_in_turn() || self.never_sleeps() {
            ways.push(("spin", "spin".into(), mechanisms));
        } else if let Some((look_us, id)) = look_us.zip(unmodified(now)) {
            // Whoever does not wait for an answer gains nothing from looking for it.
            let wait = table([("hybrid", table([("spin_us", number(look_us))]))]);
            ways.push(("unmodified", wait, vec![id.into()]));
        }
        for (name, wait, mechanisms) in ways {
            let mut group = Table::new();
            group.insert("mechanisms".into(), Value::Array(mechanisms));
            group.insert("wait".into(), wait);
            if let Some(replay) = &replay {
                group.insert("workload".into(), replay.clone());
                // Programs run on one CPU or on two, as the kernel decides, and that decides what
                // an exchange costs. On one, an end that looks would keep the other one from
                // answering; `crossway run` looks on two.
                let places = if name == "natural" {
                    &["same-core", "other-core"][..]
                } else {
                    &["other-core"]
                };
                let places = places.iter().map(|place| Value::from(*place)).collect();
                group.insert("placement".into(), Value::Array(places));
            } else {
                self.insert_messages(&mut group, size, name == "natural");
            }
            group.insert("trials".into(), number(TRIALS));
            group.insert("warmup_ms".into(), number(WARMUP_MS));
            group.insert("measure_ms".into(), number(MEASURE_MS));
            groups.insert(name.to_owned(), Value::Table(group));
        }
        let mut top = Table::new();
        top.insert("about".into(), format!("The channel of a recording: {}", self.words()).into());
        top.insert("group".into(), Value::Table(groups));
        Plan::parse("observed", "the recording's plan", &top.to_string())
    }

    /// The recorded channel as a workload; `None` if its calls cannot be replayed, or if the
    /// program does not wait for each answer.
    fn replayed(&self, recording: &Path) -> Option<Value> {
        let exchanges = self.shape == ReplayShape::Exchanges && self.is_in_turn();
        let channel = *self.channels.first().filter(|_| exchanges)?;
        Replay::load(recording, &Channels::These(vec![channel]), 100).ok()?;
        let file = recording.to_string_lossy().into_owned();
        Some(table([("replay", file.into()), ("channel", number(u64::from(channel)))]))
    }

    /// Messages of the recorded sizes, without what the program does between them, in place of a
    /// replay.
    fn insert_messages(&self, group: &mut Table, size: u64, sleeps: bool) {
        group.insert("size_bytes".into(), number(size));
        let workload = match self.shape {
            ReplayShape::Exchanges => "ping-pong",
            ReplayShape::Stream | ReplayShape::Bulk => "throughput",
        };
        group.insert("workload".into(), workload.into());
        if let Some(reply) = median(&self.replies) {
            group.insert("reply_bytes".into(), number(reply.max(1)));
        }
        if let [Some(a), Some(b)] = self.cpus {
            // Ends that stay awake do not stay on one CPU, and on one they are not measured at all.
            let one = a == b && sleeps;
            group.insert("placement".into(), if one { "same-core" } else { "other-core" }.into());
        }
    }

    /// What an exchange of the program takes, from the recording: without and with the least of what the recorder cost.
    /// `cost_ns` is that cost for each call.
    pub fn exchange_ns(&self, cost_ns: Option<u64>) -> Interval {
        let each = self.span_ns as f64 / self.exchanges.max(1) as f64;
        let Some(cost_ns) = cost_ns else {
            // Nobody knows what it cost: everything may have been the recorder's, except what no call takes.
            return Interval { low: each * 0.05, high: each };
        };
        let calls = self.calls.iter().sum::<u64>() as f64 / self.exchanges.max(1) as f64;
        // Ends that take turns pay one after the other; others may pay at the same time.
        let at_once = if self.is_in_turn() { 1.0 } else { 2.0 };
        let cost = |factor: f64| calls * cost_ns as f64 * factor;
        let least = (each - cost(1.0 + COST_SPREAD)).max(each * 0.05);
        Interval { low: least, high: (each - cost(1.0 - COST_SPREAD) / at_once).max(least) }
    }

    /// Predicts the gain from trials of [`Flow::gain_plan`]. `cost_ns` is what the recorder cost for each call;
    /// `rate_per_s` is how many exchanges per second the program makes when nobody records it, if the user knows it.
    pub fn gain(
        &self,
        now: &str,
        records: &[Record],
        cost_ns: Option<u64>,
        rate_per_s: Option<f64>,
    ) -> Gain {
        let exchange_ns = match rate_per_s {
            Some(rate) => Interval { low: 1e9 / rate, high: 1e9 / rate },
            None => self.exchange_ns(cost_ns),
        };
        let in_turn = self.is_in_turn();
        let polls = self.never_sleeps();
        let mut remarks = Vec::new();
        if exchange_ns.high > 2.0 * exchange_ns.low {
            remarks.push(
                "the recorder cost so much that the program's own time is hardly known: state how many exchanges per \
                 second it makes when nobody records it (--real-rate), or record in a cheaper way"
                    .to_owned(),
            );
        }
        let mut ways: Vec<(&str, bool)> =
            records.iter().map(|r| (r.mechanism.as_str(), Ends::of(r) == Ends::Look)).collect();
        ways.sort_unstable();
        ways.dedup();
        let mut with = Vec::new();
        for (id, unmodified) in ways.into_iter().filter(|way| *way != (now, false)) {
            let ways = [(now, false), (id, unmodified)];
            let trials = ways.map(|way| self.trials(way, records));
            let rounds =
                Times::of(&trials, |record| Some(self.time_of(record)? * self.left_awake(record)));
            let replayed = |r: &&Record| matches!(r.inputs.workload, Workload::Replay { .. });
            let whole = trials.iter().flat_map(Rounds::values).all(replayed);
            let saved = self.saved(&rounds, exchange_ns, whole);
            let Some(Saved { ns: saved_ns, share: less_time }) = saved else {
                remarks.push(format!(
                    "{now} and {id} could not be compared here: {}",
                    self.why_no_cost(ways, records)
                ));
                continue;
            };
            let naturally = ways.map(|(id, looks)| {
                by_round(records, id, if looks { Ends::Look } else { Ends::Natural })
            });
            let cpu = in_pairs(&naturally, |record| Some(record.cost?.cpu_ns_per_msg));
            let cpu_saved_ns = interval(&cpu, |[was, is]| was - is);
            with.push(With {
                mechanism: id.to_owned(),
                unmodified,
                saved_ns,
                less_time,
                cpu_saved_ns,
                // A part of 1 says nothing of how much faster programs compute that do not sleep.
                verdict: verdict(less_time, unmodified && whole && self.awake >= 1.0),
            });
        }
        with.sort_small_by(|a, b| middle(b.less_time).total_cmp(&middle(a.less_time)));
        if polls {
            remarks.push(
                "the programs never sleep while they wait, so nothing is predicted for crossway run, which spares sleeping"
                    .to_owned(),
            );
        }
        if self.shape == ReplayShape::Stream {
            remarks.push(
                "the program sends at its own pace, so another channel saves CPU time but no waiting".to_owned(),
            );
        } else if !in_turn {
            remarks.push(
                "several exchanges are open at once: the prediction assumes that one end is always busy".to_owned(),
            );
        }
        let share =
            |end: usize| (self.in_calls_ns[end] as f64 / self.span_ns.max(1) as f64).min(1.0);
        Gain {
            flow: self.words(),
            now: now.to_owned(),
            exchange_ns,
            share_of_time: [share(0), share(1)],
            in_turn,
            run_is_enough: run_is_enough(&with),
            with,
            remarks,
        }
    }

    /// Why [`Flow::trials`] is empty for one of two mechanisms, and what to do.
    fn why_no_cost(&self, ways: [(&str, bool); 2], records: &[Record]) -> String {
        let missing = |(id, looks): &(&str, bool)| self.trials((*id, *looks), records).is_empty();
        let Some((id, looks)) = ways.into_iter().find(missing) else { return String::new() };
        let ends = match (looks, self.is_in_turn() && !self.never_sleeps()) {
            (true, _) => Ends::Look,
            (_, true) => Ends::Natural,
            (_, false) => Ends::Spin,
        };
        let how = match ends {
            Ends::Natural => "waiting as it does by itself",
            Ends::Look => "looking before it sleeps",
            Ends::Spin => "with ends that never sleep, as those of a busy program do",
        };
        // A mechanism that can only spin does that by itself.
        let fits = |of: Ends| of == ends || (ends == Ends::Natural && of == Ends::Spin);
        let mut tried = records.iter().filter(|r| r.mechanism == id && fits(Ends::of(r)));
        let Some((record, reason)) = tried.find_map(|r| Some((r, r.reason.as_ref()?))) else {
            return format!("{id} was not measured {how}; choose another mechanism with --instead");
        };
        let otherwise = "choose another mechanism with --instead";
        let remedy = record.remedy.as_deref().filter(|_| record.status != Status::Skipped);
        format!("{id}, {how}: {reason}; {}", remedy.unwrap_or(otherwise))
    }

    /// The trials of a mechanism that tell what it costs the program, by round. `looks`: the ends
    /// look before they sleep.
    fn trials<'r>(&self, (id, looks): (&str, bool), records: &'r [Record]) -> Rounds<'r> {
        if looks {
            return by_round(records, id, Ends::Look);
        }
        let natural = by_round(records, id, Ends::Natural);
        let sleeps = self.is_in_turn() && !natural.is_empty();
        if sleeps { natural } else { by_round(records, id, Ends::Spin) }
    }

    /// The time of an exchange in a trial, as far as the program has to wait for it.
    fn time_of(&self, record: &Record) -> Option<f64> {
        match (record.inputs.workload, self.shape) {
            // With what the program does between two calls.
            (Workload::Replay { .. }, _) => Figure::MessageRate.ns(record),
            (_, ReplayShape::Exchanges) => {
                let p50 = Figure::ROUND_TRIP.of(record)?;
                // One end works during half of a round trip in which nobody sleeps.
                Some(if self.is_in_turn() { p50 } else { p50 / 2.0 })
            }
            _ => Figure::MessageRate.ns(record),
        }
    }

    /// The part of a replay's time that is left if its ends compute as fast as the program does on CPUs that do not sleep.
    /// What a recording has between two calls is what the program computed after it had slept.
    fn left_awake(&self, record: &Record) -> f64 {
        let replay = record.replay.as_ref().filter(|_| Ends::of(record) != Ends::Natural);
        let Some(replay) = replay.filter(|_| !self.never_sleeps()) else { return 1.0 };
        // The ends take turns, so what both compute adds up.
        let wall_ns = replay.messages as f64 * 1e9 / replay.msgs_per_s_replayed;
        let computing = (replay.computed_ns as f64 / wall_ns).min(1.0);
        1.0 - computing * (1.0 - self.awake)
    }

    /// What a change saves of an exchange that takes so long, from the times before and after it in
    /// each round; `None` without rounds. `whole`: these are of the whole exchange, with what the
    /// program does in between.
    fn saved(&self, rounds: &[Times], exchange_ns: Interval, whole: bool) -> Option<Saved> {
        if self.shape == ReplayShape::Stream && !rounds.is_empty() {
            // The program decides when it sends, and is not held back.
            let nothing = Interval { low: 0.0, high: 0.0 };
            return Some(Saved { ns: nothing, share: nothing });
        }
        // What takes longer here than in the program is quicker there, with every mechanism. A whole
        // exchange that is quicker here lacks what a wake-up costs the program besides, such as its
        // cold caches: it is saved in proportion.
        let fits = |was: f64, ns: f64| match (self.is_in_turn(), whole) {
            (true, true) => ns / was,
            (true, false) => (ns / was).min(1.0),
            (false, _) => 1.0,
        };
        let of = |exchange_ns: f64| {
            let ns = |was: f64, is: f64| (was - is) * fits(was, exchange_ns);
            let share = |was: f64, is: f64| (ns(was, is) / exchange_ns).min(MOST);
            in_program(rounds, exchange_ns, ns).zip(in_program(rounds, exchange_ns, share))
        };
        let (a, b) = of(exchange_ns.low).zip(of(exchange_ns.high))?;
        Some(Saved { ns: around(a.0, b.0), share: around(a.1, b.1) })
    }
}

/// What a change saves of an exchange: the time, and the part of it.
struct Saved {
    ns: Interval,
    share: Interval,
}
