//! The windows of a trial: those of the warm-up, until the rate is stable, and then the measured window.

use std::time::Duration;

use crossway_mech::Reliability;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::schedule::Schedule;
use super::warmup::{Next, WarmUp};
use super::{STEP_LIMIT, TrialRun, unexpected, wall_ns};
use crate::control::{Answer, Order, Outcome, Window};
use crate::launcher::{HeldDescriptor, LaunchError};
use crate::meters::{HostAsk, HostReading};
use crate::replay::Replay;
use crossway_records::inputs::{Extent, Measure};
use crossway_records::record::Transport;

/// Time limit for a window as a multiple of its expected duration, in addition to the time limit of a step.
const PATIENCE_FACTOR: u64 = 20;
/// Time from the order to begin a paced or timed window until the window starts, nanoseconds. All roles get ready
/// during this time.
const LEAD_NS: u64 = 3_000_000;
/// Factor by which the number of send times grows from one warm-up window of a paced stream to the next.
const WINDOW_GROWTH: u64 = 16;
/// Maximum number of repetitions of a measured window that was too short. `MOST_CORRECTION` is the maximum factor by
/// which the rate is corrected each time.
const ATTEMPTS: u32 = 4;
const MOST_CORRECTION: f64 = 100.0;
/// Number of round trips that all trials of a case together should have. A p99 needs 1,000 samples; the rest is a
/// margin for trials that are left out.
const POOLED_ROUND_TRIPS: u64 = 1250;
/// Maximum duration of a measured window that is lengthened to reach [`POOLED_ROUND_TRIPS`], as a multiple of the
/// requested duration.
const LONGEST: u64 = 4;
/// If a message takes fewer clock steps than this, several messages are timed together.
const STEPS_PER_SAMPLE: f64 = 20.0;

/// The results of the measured window.
pub(super) struct Measured {
    pub(super) window: Window,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) hosts: Vec<HostReading>,
    /// Number of messages in windows that were discarded because they were too short.
    pub(super) discarded: u64,
}

impl TrialRun<'_> {
    /// Runs windows until two agree or the time is up. Returns the number of messages sent, and the rate in messages
    /// per second.
    pub(super) fn warm_up(&mut self) -> Result<(u64, f64), LaunchError> {
        self.group.phase("warming up");
        let inputs = self.setting.inputs;
        let limit_ns = inputs.warmup_ms * 1_000_000;
        match inputs.workload.facts().extent {
            Extent::Messages => {}
            Extent::Instants { period_ns, burst_bytes } => {
                let schedule = Schedule::new(period_ns, burst_bytes, inputs.size_bytes);
                return self.warm_up_paced(schedule, limit_ns);
            }
            Extent::Time => {
                let window = self.next_window(0, 1, false);
                self.prepare(&window)?;
                let outcomes = self.go(&window, 0.0)?;
                return Ok((outcomes.iter().map(|o| o.sent).sum(), 0.0));
            }
            Extent::Recorded => {
                let replay = self.setting.replay;
                let messages = replay.map_or(1, |replay| replay.messages_in(inputs.warmup_ms));
                let window = self.next_window(messages, 1, false);
                self.prepare(&window)?;
                let outcomes = self.go(&window, replay.map_or(0.0, Replay::rate))?;
                let wall_ns = self.wall_ns(&outcomes).max(1);
                return Ok((window.messages, window.messages as f64 * 1e9 / wall_ns as f64));
            }
        }
        let mut warm_up = WarmUp::new(limit_ns);
        let mut messages = warm_up.first();
        let mut spent = 0;
        let mut rate = 0.0;
        loop {
            let window = self.next_window(messages, 1, false);
            self.prepare(&window)?;
            let outcomes = self.go(&window, rate)?;
            spent += window.messages;
            let wall_ns = self.wall_ns(&outcomes).max(1);
            rate = window.messages as f64 * 1e9 / wall_ns as f64;
            match warm_up.after(window.messages, wall_ns) {
                Next::Window(more) => messages = more,
                Next::Rate(rate) => return Ok((spent, rate)),
            }
        }
    }

    /// Runs longer and longer windows until their send times fill the requested time, or until one of the windows shows
    /// that the offered rate cannot be achieved. A single long window at a rate that is too high by some factor would
    /// take that many times as long as requested.
    fn warm_up_paced(
        &mut self,
        schedule: Schedule,
        limit_ns: u64,
    ) -> Result<(u64, f64), LaunchError> {
        let inputs = self.setting.inputs;
        let mut left = schedule.instants_in(limit_ns);
        let (mut instants, mut spent) = (1, 0);
        loop {
            let window = self.next_window(instants * schedule.at_once, 1, false);
            self.prepare(&window)?;
            let outcomes = self.go(&window, schedule.rate())?;
            spent += window.messages * inputs.workload.schedules();
            left -= instants;
            let wall_ns = self.wall_ns(&outcomes).max(1);
            if schedule.is_missed(instants, wall_ns, limit_ns) {
                return Ok((spent, window.messages as f64 * 1e9 / wall_ns as f64));
            }
            if left == 0 {
                return Ok((spent, schedule.rate()));
            }
            instants = (instants * WINDOW_GROWTH).min(left);
        }
    }

    fn next_window(&mut self, messages: u64, batch: u32, measured: bool) -> Window {
        self.window += 1;
        // A replay ends with an exchange.
        let messages =
            self.setting.replay.map_or(messages, |replay| replay.script.whole_exchanges(messages));
        Window { number: self.window, messages, batch, measured, open: false }
    }

    /// Returns the measured window, sized for this rate in messages per second.
    fn measured_window(&mut self, rate: f64) -> Window {
        let inputs = self.setting.inputs;
        let by_time = || (rate * inputs.measure_ms as f64 / 1e3) as u64;
        let facts = inputs.workload.facts();
        match facts.extent {
            Extent::Time => self.next_window(0, 1, true),
            Extent::Recorded => {
                let replay = self.setting.replay;
                let by_recording = || replay.map_or(1, |r| r.messages_in(inputs.measure_ms));
                self.next_window(inputs.messages.unwrap_or_else(by_recording), 1, true)
            }
            Extent::Instants { period_ns, burst_bytes } => {
                let schedule = Schedule::new(period_ns, burst_bytes, inputs.size_bytes);
                let by_schedule = || schedule.messages_in(inputs.measure_ms, rate);
                self.next_window(inputs.messages.unwrap_or_else(by_schedule), 1, true)
            }
            Extent::Messages if facts.measure == Measure::RoundTrip => {
                let by_time = || round_trips(by_time(), inputs.trials);
                let messages = inputs.messages.unwrap_or_else(by_time).max(1);
                let round_trip_ns = 1e9 / rate;
                let batch = (STEPS_PER_SAMPLE * self.setting.clock_step_ns / round_trip_ns).ceil();
                // A replay times each exchange.
                let batch = if self.setting.replay.is_some() { 1.0 } else { batch };
                let batch = (batch as u64).clamp(1, messages);
                let messages = messages.next_multiple_of(batch);
                self.next_window(messages, batch as u32, true)
            }
            Extent::Messages => {
                self.next_window(inputs.messages.unwrap_or_else(by_time).max(1), 1, true)
            }
        }
    }

    /// Runs the measured window. A disturbance during the warm-up makes `rate` too low and the window too short. A
    /// window that is too short is discarded and repeated at the rate that it has shown.
    pub(super) fn measure(&mut self, mut rate: f64) -> Result<Measured, LaunchError> {
        let inputs = self.setting.inputs;
        let least_ns = inputs.measure_ms * 1_000_000 / 2;
        let by_rate = |rate: f64| match inputs.workload.facts().extent {
            _ if inputs.messages.is_some() => false,
            Extent::Messages => true,
            Extent::Instants { period_ns, burst_bytes } => {
                Schedule::new(period_ns, burst_bytes, inputs.size_bytes).is_beyond(rate)
            }
            Extent::Time | Extent::Recorded => false,
        };
        let mut discarded = 0;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let window = self.measured_window(rate);
            self.prepare(&window)?;
            let outcomes = self.go(&window, rate)?;
            let hosts = self.group.read_meters()?;
            let wall_ns = self.wall_ns(&outcomes).max(1);
            if !by_rate(rate) || wall_ns >= least_ns || attempt == ATTEMPTS {
                return Ok(Measured { window, outcomes, hosts, discarded });
            }
            discarded += window.messages;
            let seen = window.messages as f64 * 1e9 / wall_ns as f64;
            rate = seen.min(rate * MOST_CORRECTION);
        }
    }

    fn wall_ns(&self, outcomes: &[Outcome]) -> u64 {
        let has_replies = self.setting.inputs.workload.facts().has_replies;
        wall_ns(&self.layout, outcomes, has_replies, self.group.one_clock())
    }

    /// The first barrier: waits until every role is ready, and then starts the hosts' meters.
    fn prepare(&mut self, window: &Window) -> Result<(), LaunchError> {
        self.ready(window)?;
        self.group.start_meters(&self.host_ask(window))
    }

    /// Makes every role prepare the window.
    pub(super) fn ready(&mut self, window: &Window) -> Result<(), LaunchError> {
        for role in self.all() {
            self.group.order(role, &Order::Prepare { window: *window }, Vec::new())?;
        }
        for (answer, _) in self.group.answers(&self.all(), STEP_LIMIT)? {
            let Answer::Ready = answer else { return Err(unexpected(&answer)) };
        }
        Ok(())
    }

    /// What the hosts' meters read around a window, in addition to CPU time. Only the measured window of a mechanism
    /// that works between hosts, without concurrent workloads, has such readings.
    fn host_ask(&self, window: &Window) -> HostAsk {
        // Counters of interfaces and protocols do not distinguish workloads.
        let alone = self.setting.inputs.beside.is_empty();
        let counts = window.measured && self.setting.caps.crosses_hosts && alone;
        HostAsk {
            interfaces: counts,
            transport: Transport::of(self.setting.mechanism).filter(|_| counts),
            series_ms: self.setting.inputs.packet_series_ms.filter(|_| counts),
            own_cpus_only: false,
        }
    }

    /// The second barrier and the window: starts the window in every role and waits for the results.
    fn go(&mut self, window: &Window, rate: f64) -> Result<Vec<Outcome>, LaunchError> {
        let inputs = self.setting.inputs;
        let span_ms = if window.measured { inputs.measure_ms } else { inputs.warmup_ms };
        let mut span_ns = 0;
        let mut expected = Duration::ZERO;
        if inputs.workload.facts().timed() {
            span_ns = span_ms * 1_000_000;
            expected = Duration::from_millis(span_ms);
        } else if rate > 0.0 {
            expected = Duration::from_secs_f64((window.messages as f64 / rate).min(1e6));
        }
        if window.measured {
            self.group.phase("measuring");
        }
        let onlooker = self.setting.onlooker.filter(|_| window.measured);
        if let Some(onlooker) = onlooker {
            onlooker.begin(&self.group.processes(), &self.servers)?;
        }
        self.give_go(span_ns)?;
        let limit = STEP_LIMIT + expected * PATIENCE_FACTOR as u32;
        let answers = self.window_answers(limit)?;
        if let Some(onlooker) = onlooker {
            onlooker.end()?;
        }
        let outcomes: Vec<Outcome> = answers
            .into_iter()
            .map(|(answer, _)| match answer {
                Answer::Done { outcome } => Ok(*outcome),
                other => Err(unexpected(&other)),
            })
            .collect::<Result<_, _>>()?;
        self.servers = outcomes.iter().filter_map(|o| o.server.map(|s| s.pid)).collect();
        self.servers.dedup();
        Ok(outcomes)
    }

    /// Waits for every role's answer. If messages may be lost, the senders repeat their end mark until they are ordered to
    /// stop, because all receivers have answered. A receiver's acknowledgement could be lost like any message.
    fn window_answers(
        &mut self,
        limit: Duration,
    ) -> Result<Vec<(Answer, Vec<HeldDescriptor>)>, LaunchError> {
        let all = self.all();
        let has_replies = self.setting.inputs.workload.facts().has_replies;
        if self.setting.caps.reliability != Reliability::Lossy || has_replies {
            return self.group.answers(&all, limit);
        }
        let listens = |role: &usize| self.layout.roles[*role].listeners > 0;
        let (mut receivers, senders): (Vec<_>, Vec<_>) = all.iter().partition(|role| listens(role));
        self.group.answers_then(&all, limit, |group, role| {
            let waited = receivers.len();
            receivers.retain(|receiver| *receiver != role);
            if waited > 0 && receivers.is_empty() {
                for sender in &senders {
                    group.order(*sender, &Order::Stop, Vec::new())?;
                }
            }
            Ok(())
        })
    }

    /// Starts the window in every role, beginning with the listening roles, which wait for the others. Timed windows
    /// end after `span_ns`. Roles with schedules of their own each begin at a random time within a period, as independent
    /// programs would; the listening roles receive these times.
    pub(super) fn give_go(&mut self, span_ns: u64) -> Result<(), LaunchError> {
        let listening = |role: &usize| self.layout.roles[*role].listeners > 0;
        let (waiting, active): (Vec<_>, Vec<_>) = self.all().into_iter().partition(listening);
        let instants_ns = self.group.instants_ns(LEAD_NS + span_ns);
        let workload = self.setting.inputs.workload;
        let phases_ns: Vec<u64> = match workload.facts().extent {
            Extent::Instants { period_ns, .. } if workload.schedules() > 1 => {
                let mut random = Pcg64::seed_from_u64(self.setting.inputs.seed ^ instants_ns[0]);
                active.iter().map(|_| random.random_range(0..period_ns)).collect()
            }
            _ => Vec::new(),
        };
        for role in waiting {
            let order = Order::Go { at_ns: instants_ns[role], phases_ns: phases_ns.clone() };
            self.group.order(role, &order, Vec::new())?;
        }
        for (at, role) in active.into_iter().enumerate() {
            let at_ns = instants_ns[role] + phases_ns.get(at).unwrap_or(&0);
            self.group.order(role, &Order::Go { at_ns, phases_ns: Vec::new() }, Vec::new())?;
        }
        Ok(())
    }
}

/// Number of round trips of a window. `by_time` of them fit into the requested time. The result is larger if all trials
/// together would have too few for a p99, but never exceeds what fits into [`LONGEST`] times the requested time.
fn round_trips(by_time: u64, trials: u32) -> u64 {
    let for_p99 = POOLED_ROUND_TRIPS.div_ceil(u64::from(trials.max(1)));
    by_time.max(for_p99.min(by_time * LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_trials_together_have_enough_round_trips_for_a_p99() {
        // The plan `quick`: five trials of 40 ms, here with a round trip of 198, 400 and 1000 us.
        assert_eq!([202, 100, 40].map(|by_time| round_trips(by_time, 5)), [250, 250, 160]);
        assert!(5 * round_trips(202, 5) >= 1000);
        // Long trials keep their time, and a rate that is unknown stays so.
        assert_eq!((round_trips(5000, 5), round_trips(100, 15), round_trips(0, 5)), (5000, 100, 0));
    }
}
