//! One trial from the first process to the last: open, verify, warm up, measure, close.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crossway_mech::{Caps, Facts};
use crossway_sys::clock::{Ticker, monotonic_ns};

use crate::cast::Cast;
use crate::control::{Answer, OfferText, Order, Outcome, Task, Window};
use crate::inputs::{Inputs, Workload};
use crate::launcher::{CLOSE_LIMIT, Held, LaunchError, Stage, Troupe};
use crate::meters::{HostAsk, HostReading};
use crate::record::Transport;
use crate::workload::messages_per_burst;

/// The watchdog for whatever should be quick: opening, verifying, preparing.
const STEP_LIMIT: Duration = Duration::from_secs(12);
/// A window may take so many times what was expected, and this on top.
const PATIENCE_FACTOR: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// Paced and timed windows begin so long after the order, so that all roles are there.
const LEAD_NS: u64 = 3_000_000;
/// Messages in the first warm-up window.
const FIRST_WINDOW: u64 = 8;
/// A warm-up window is at most so many times the former.
const GROWTH: u64 = 16;
/// How often the measured window may be repeated because it was too short, and by how much its rate may be corrected at once.
const ATTEMPTS: u32 = 4;
const MOST_CORRECTION: f64 = 100.0;
/// Two windows agree when their rates differ by less than this.
const AGREEMENT: f64 = 0.05;
/// Below so many steps of the clock per message, several are timed together.
const STEPS_PER_SAMPLE: f64 = 20.0;

/// What a trial is given besides its inputs.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) mechanism: &'a str,
    pub(crate) caps: Caps,
    pub(crate) inputs: &'a Inputs,
    pub(crate) ticker: Ticker,
    pub(crate) clock_step_ns: f64,
    pub(crate) working_set_bytes: u64,
    /// Whether the case must still pass verification in this run.
    pub(crate) verify: bool,
    /// Where the listening end can be reached by the other one; null: loopback.
    pub(crate) bind_address: Option<IpAddr>,
}

/// What a trial brought.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) cast: Cast,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) window: Window,
    pub(crate) warmup: u64,
    pub(crate) facts: Facts,
    pub(crate) warnings: Vec<String>,
    /// What each host's meters read, with the hosts' names.
    pub(crate) hosts: Vec<HostReading>,
    /// Each role's host.
    pub(crate) role_hosts: Vec<String>,
    /// Whether instants of all roles can be compared.
    pub(crate) one_clock: bool,
}

/// Runs one trial.
pub(crate) fn run(setting: &Setting<'_>, stage: Stage<'_>) -> Result<Brought, LaunchError> {
    let cast = Cast::of(setting.inputs, &setting.caps);
    let listens = |role: usize| cast.roles[role].listeners > 0;
    let roles: Vec<_> = (0..cast.roles.len()).map(|at| (cast.name(at), listens(at))).collect();
    let troupe = Troupe::start(stage, &roles)?;
    let mut play = Play { setting, cast, troupe, window: 0 };
    let (facts, warnings) = play.open()?;
    if setting.verify {
        play.verify()?;
    }
    let (warmup, rate) = play.warm_up()?;
    let Measured { window, outcomes, hosts, discarded } = play.measure(rate)?;
    let warmup = warmup + discarded;
    play.close()?;
    let Play { cast, troupe, .. } = play;
    let role_hosts = (0..cast.roles.len()).map(|role| troupe.host_of(role).to_owned()).collect();
    let one_clock = troupe.one_clock();
    troupe.finish()?;
    Ok(Brought { cast, outcomes, window, warmup, facts, warnings, hosts, role_hosts, one_clock })
}

/// The window that counts.
struct Measured {
    window: Window,
    outcomes: Vec<Outcome>,
    hosts: Vec<HostReading>,
    /// Messages of windows that were too short to count.
    discarded: u64,
}

struct Play<'a> {
    setting: &'a Setting<'a>,
    cast: Cast,
    troupe: Troupe<'a>,
    window: u32,
}

impl Play<'_> {
    fn all(&self) -> Vec<usize> {
        (0..self.cast.roles.len()).collect()
    }

    /// Gives every role its task, relays the offers and completes the channels.
    fn open(&mut self) -> Result<(Facts, Vec<String>), LaunchError> {
        self.troupe.phase("opening");
        for role in self.all() {
            let task = Box::new(self.task(role));
            self.troupe.order(role, &Order::Begin { task }, Vec::new())?;
        }
        let mut offers = Vec::new();
        let mut warnings = Vec::new();
        for (answer, fds) in self.troupe.answers(&self.all(), STEP_LIMIT)? {
            let Answer::Offers { offers: texts, warnings: said } = answer else {
                return Err(unexpected(&answer));
            };
            warnings.extend(said.into_iter().filter(|w| !warnings.contains(w)).collect::<Vec<_>>());
            offers.push(split(texts, fds));
        }
        for role in self.all() {
            let links: Vec<_> =
                self.cast.links.iter().filter(|l| l.connector == role).copied().collect();
            if !links.is_empty() {
                let mut texts = Vec::new();
                let mut fds = Vec::new();
                for link in links {
                    let (text, taken) = hand_over(&mut offers[link.listener][link.offer]);
                    texts.push(text);
                    fds.extend(taken);
                }
                self.troupe.order(role, &Order::Connect { offers: texts }, fds)?;
            } else {
                self.troupe.order(role, &Order::Accept, Vec::new())?;
            }
        }
        drop(offers);
        let mut facts = Facts::new();
        for (answer, _) in self.troupe.answers(&self.all(), STEP_LIMIT)? {
            let Answer::Opened { facts: here } = answer else { return Err(unexpected(&answer)) };
            merge(&mut facts, here);
        }
        Ok((facts, warnings))
    }

    fn task(&self, role: usize) -> Task {
        let character = &self.cast.roles[role];
        Task {
            mechanism: self.setting.mechanism.to_owned(),
            inputs: self.setting.inputs.clone(),
            part: character.part,
            index: character.index,
            cpu: character.cpu,
            listeners: character.listeners,
            peers: character.peers,
            first_peer: character.first_peer,
            ticker: Some(self.setting.ticker),
            working_set_bytes: self.setting.working_set_bytes,
            leases: self.troupe.leases().map(Path::to_owned),
            bind_address: self.setting.bind_address,
        }
    }

    /// Proves each direction that the workload uses.
    fn verify(&mut self) -> Result<(), LaunchError> {
        self.troupe.phase("verifying");
        let both_ways = Cast::both_ways(self.setting.inputs.workload);
        for link in self.cast.links.clone() {
            // Who connects is who sends first, in every cast.
            let (here, there) = (link.connector, link.listener);
            let sender = self.cast.roles[here].index;
            self.verify_one((there, link.channel_there), (here, link.channel_here), sender)?;
            if both_ways {
                let sender = self.cast.roles[there].index;
                self.verify_one((here, link.channel_here), (there, link.channel_there), sender)?;
            }
        }
        Ok(())
    }

    fn verify_one(
        &mut self,
        to: (usize, u16),
        from: (usize, u16),
        sender: u16,
    ) -> Result<(), LaunchError> {
        for ((role, channel), sends) in [(to, false), (from, true)] {
            self.troupe.order(role, &Order::Verify { channel, sends, sender }, Vec::new())?;
        }
        let mut seen = Vec::new();
        for (answer, _) in self.troupe.answers(&[to.0, from.0], STEP_LIMIT)? {
            let Answer::Verified { messages, crc } = answer else {
                return Err(unexpected(&answer));
            };
            seen.push((messages, crc));
        }
        if seen[0] != seen[1] {
            let why = "verification: the receiver's checksum is not the sender's";
            return Err(LaunchError::Role(why.to_owned()));
        }
        Ok(())
    }

    /// Runs windows until two agree or the limit is reached; returns the messages spent and the rate, messages per
    /// second.
    fn warm_up(&mut self) -> Result<(u64, f64), LaunchError> {
        self.troupe.phase("warming up");
        let inputs = self.setting.inputs;
        let limit_ns = inputs.warmup_ms * 1_000_000;
        if let Workload::Paced { period_us, burst_bytes } = inputs.workload {
            let per_burst = messages_per_burst(burst_bytes, inputs.size_bytes);
            let bursts = (inputs.warmup_ms * 1_000 / period_us.max(1)).max(1);
            let rate = per_burst as f64 * 1e6 / period_us.max(1) as f64;
            let window = self.next_window(bursts * per_burst, 1, false);
            self.prepare(&window)?;
            self.go(&window, rate)?;
            return Ok((window.messages, rate));
        }
        if timed(inputs.workload) {
            let window = self.next_window(0, 1, false);
            self.prepare(&window)?;
            let outcomes = self.go(&window, 0.0)?;
            return Ok((outcomes.iter().map(|o| o.sent).sum(), 0.0));
        }
        let begun = monotonic_ns();
        let target_ns = (limit_ns / 5).max(100_000) as f64;
        let mut messages = FIRST_WINDOW;
        let mut spent = 0;
        let mut former: Option<f64> = None;
        let mut rate = 0.0;
        loop {
            let window = self.next_window(messages, 1, false);
            self.prepare(&window)?;
            let outcomes = self.go(&window, rate)?;
            let wall_ns = self.wall_ns(&outcomes).max(1);
            spent += messages;
            rate = messages as f64 * 1e9 / wall_ns as f64;
            let long_enough = wall_ns as f64 >= target_ns / 2.0;
            let agreed = former.is_some_and(|f| (f / rate - 1.0).abs() < AGREEMENT);
            if (long_enough && agreed) || monotonic_ns() - begun >= limit_ns {
                return Ok((spent, rate));
            }
            former = long_enough.then_some(rate);
            let wanted = (rate * target_ns / 1e9) as u64;
            messages = wanted.clamp(1, messages * GROWTH);
        }
    }

    fn next_window(&mut self, messages: u64, batch: u32, measured: bool) -> Window {
        self.window += 1;
        Window { number: self.window, messages, batch, measured }
    }

    /// The window that counts, from the rate seen.
    fn measured_window(&mut self, rate: f64) -> Window {
        let inputs = self.setting.inputs;
        let by_time = || (rate * inputs.measure_ms as f64 / 1e3) as u64;
        match inputs.workload {
            w if timed(w) => self.next_window(0, 1, true),
            Workload::Paced { burst_bytes, period_us } => {
                let per_burst = messages_per_burst(burst_bytes, inputs.size_bytes);
                let bursts = (inputs.measure_ms * 1_000 / period_us.max(1)).max(1);
                self.next_window(inputs.messages.unwrap_or(bursts * per_burst), 1, true)
            }
            Workload::PingPong => {
                let messages = inputs.messages.unwrap_or_else(by_time).max(1);
                let round_trip_ns = 1e9 / rate;
                let batch = (STEPS_PER_SAMPLE * self.setting.clock_step_ns / round_trip_ns).ceil();
                let batch = (batch as u64).clamp(1, messages);
                let messages = messages.next_multiple_of(batch);
                self.next_window(messages, batch as u32, true)
            }
            _ => self.next_window(inputs.messages.unwrap_or_else(by_time).max(1), 1, true),
        }
    }

    /// The window that counts. A disturbance while warming up makes the rate too low and the window too short; it is then
    /// discarded and done again with the rate that it showed.
    fn measure(&mut self, mut rate: f64) -> Result<Measured, LaunchError> {
        let inputs = self.setting.inputs;
        let least_ns = inputs.measure_ms * 1_000_000 / 2;
        let by_rate = inputs.messages.is_none()
            && matches!(
                inputs.workload,
                Workload::Throughput | Workload::PingPong | Workload::Exchange
            );
        let mut discarded = 0;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let window = self.measured_window(rate);
            self.prepare(&window)?;
            let outcomes = self.go(&window, rate)?;
            let hosts = self.troupe.read_meters()?;
            let wall_ns = self.wall_ns(&outcomes).max(1);
            if !by_rate || wall_ns >= least_ns || attempt == ATTEMPTS {
                return Ok(Measured { window, outcomes, hosts, discarded });
            }
            discarded += window.messages;
            let seen = window.messages as f64 * 1e9 / wall_ns as f64;
            rate = seen.min(rate * MOST_CORRECTION);
        }
    }

    fn wall_ns(&self, outcomes: &[Outcome]) -> u64 {
        wall_ns(&self.cast, outcomes, self.troupe.one_clock())
    }

    /// Both barriers' first half: every role is ready. The hosts' meters start here.
    fn prepare(&mut self, window: &Window) -> Result<(), LaunchError> {
        for role in self.all() {
            self.troupe.order(role, &Order::Prepare { window: *window }, Vec::new())?;
        }
        for (answer, _) in self.troupe.answers(&self.all(), STEP_LIMIT)? {
            let Answer::Ready = answer else { return Err(unexpected(&answer)) };
        }
        self.troupe.start_meters(&self.host_ask(window))
    }

    /// What the host's meters read around a window: all there is around the one that counts.
    fn host_ask(&self, window: &Window) -> HostAsk {
        let counts = window.measured && self.setting.caps.crosses_hosts;
        HostAsk {
            interfaces: counts,
            transport: Transport::of(self.setting.mechanism).filter(|_| counts),
            series_ms: self.setting.inputs.packet_series_ms.filter(|_| counts),
            own_cpus_only: false,
        }
    }

    /// The second barrier, and the window itself. Who waits is told first.
    fn go(&mut self, window: &Window, rate: f64) -> Result<Vec<Outcome>, LaunchError> {
        let inputs = self.setting.inputs;
        let span_ms = if window.measured { inputs.measure_ms } else { inputs.warmup_ms };
        let mut lead_ns = LEAD_NS;
        let mut expected = Duration::ZERO;
        if timed(inputs.workload) {
            lead_ns += span_ms * 1_000_000;
            expected = Duration::from_millis(span_ms);
        } else if rate > 0.0 {
            expected = Duration::from_secs_f64((window.messages as f64 / rate).min(1e6));
        }
        if window.measured {
            self.troupe.phase("measuring");
        }
        let listening = |role: &usize| self.cast.roles[*role].listeners > 0;
        let (waiting, active): (Vec<_>, Vec<_>) = self.all().into_iter().partition(listening);
        let instants_ns = self.troupe.instants_ns(lead_ns);
        for role in waiting.into_iter().chain(active) {
            let at_ns = instants_ns[role];
            self.troupe.order(role, &Order::Go { at_ns }, Vec::new())?;
        }
        let limit = PATIENCE + expected * PATIENCE_FACTOR as u32;
        let answers = self.troupe.answers(&self.all(), limit)?;
        answers
            .into_iter()
            .map(|(answer, _)| match answer {
                Answer::Done { outcome } => Ok(*outcome),
                other => Err(unexpected(&other)),
            })
            .collect()
    }

    fn close(&mut self) -> Result<(), LaunchError> {
        self.troupe.phase("closing");
        for role in self.all() {
            self.troupe.order(role, &Order::Close, Vec::new())?;
        }
        for (answer, _) in self.troupe.answers(&self.all(), CLOSE_LIMIT)? {
            let Answer::Closed = answer else { return Err(unexpected(&answer)) };
        }
        Ok(())
    }
}

/// Workloads that run until an instant instead of for a number of messages.
pub(crate) fn timed(workload: Workload) -> bool {
    matches!(workload, Workload::Pairs { .. } | Workload::FanIn { .. } | Workload::FanOut { .. })
}

/// First act to last, over all roles. Who listens starts earlier, waiting, so that the others' start counts. Without a clock
/// in common: the receivers' own interval, first to last receipt; where replies flow, or the first receipt was not taken, that
/// of those who send first.
pub(crate) fn wall_ns(cast: &Cast, outcomes: &[Outcome], one_clock: bool) -> u64 {
    let those = |listening: bool| {
        let pairs = cast.roles.iter().zip(outcomes);
        pairs.filter(move |(role, _)| (role.listeners > 0) == listening).map(|(_, o)| o)
    };
    if !one_clock {
        let first = those(true).filter_map(|o| o.first_receipt_ns).min();
        let last = those(true).map(|o| o.end_ns).max();
        return match (first, last) {
            (Some(first), Some(last)) if last > first => last - first,
            _ => sender_wall_ns(cast, outcomes),
        };
    }
    let start = those(false).map(|o| o.start_ns).min().unwrap_or(0);
    let end = outcomes.iter().map(|o| o.end_ns).max().unwrap_or(0);
    end.saturating_sub(start)
}

/// The interval of those who send first, on their own clock.
pub(crate) fn sender_wall_ns(cast: &Cast, outcomes: &[Outcome]) -> u64 {
    let active = cast.roles.iter().zip(outcomes).filter(|(role, _)| role.listeners == 0);
    let (start, end) = active.fold((u64::MAX, 0), |(start, end), (_, outcome)| {
        (start.min(outcome.start_ns), end.max(outcome.end_ns))
    });
    end.saturating_sub(start)
}

fn unexpected(answer: &Answer) -> LaunchError {
    LaunchError::Role(format!("a role answered out of turn: {answer:?}"))
}

type HeldOffer = (OfferText, Vec<Held>);

/// Gives each offer its own descriptors out of those that came together.
fn split(texts: Vec<OfferText>, fds: Vec<Held>) -> Vec<HeldOffer> {
    let mut fds = fds.into_iter();
    texts
        .into_iter()
        .map(|text| {
            let own = fds.by_ref().take(text.fds.len()).collect();
            (text, own)
        })
        .collect()
}

/// The words as often as asked, the descriptors once.
fn hand_over(offer: &mut HeldOffer) -> HeldOffer {
    let fds = std::mem::take(&mut offer.1);
    let mut text = offer.0.clone();
    text.fds.truncate(fds.len());
    (text, fds)
}

/// Values of both ends; where they differ, the later one's get a prefix.
fn merge(facts: &mut BTreeMap<String, i64>, more: Facts) {
    for (name, value) in more {
        match facts.get(&name) {
            Some(&known) if known != value => {
                facts.insert(format!("peer_{name}"), value);
            }
            Some(_) => {}
            None => {
                facts.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_that_differ_are_both_kept() {
        let mut facts = Facts::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        merge(&mut facts, Facts::from([("a".to_owned(), 1), ("b".to_owned(), 3)]));
        assert_eq!(facts["b"], 2);
        assert_eq!(facts["peer_b"], 3);
        assert!(!facts.contains_key("peer_a"));
    }
}
