//! Decides which transport a channel should use, and when a switch is worth its cost. The decision depends only on what
//! is allowed and what was observed; this module does no I/O and reads no clock.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::event::Reason;
use crate::policy::Policy;
use crate::profile::{Load, Profile, Traffic};
use crate::transport::Transport;

/// What the leader observes of its channel and the machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sight {
    /// The transport in use.
    pub(crate) current: Transport,
    /// The transports that both ends allow.
    pub(crate) allowed: Vec<Transport>,
    /// The traffic since the last check.
    pub(crate) traffic: Traffic,
    /// Wake-ups of receivers per message since the last check, if the transport in use counts them.
    pub(crate) wakes_per_msg: Option<f64>,
    /// The CPU on which both a sender and its receiver run; `None` if they run on different ones.
    pub(crate) same_cpu: Option<u32>,
    /// Number of runnable threads on the machine.
    pub(crate) runnable: u32,
    /// Number of CPUs that are online on this machine.
    pub(crate) cpus: u32,
    /// CPU time that an end may spend waiting, as a share of one CPU: the smaller budget of the two ends.
    pub(crate) cpu_budget: f64,
}

/// Minimum saving for which a switch is made, as a fraction of the cost of a message.
const GAIN: f64 = 0.2;
/// Spinning must save this many seconds of waiting per second of CPU time that it takes.
const SPIN_PAYS: f64 = 0.05;
/// A transport must have been the cheapest in this many checks in a row before the channel switches to it.
const LOOKS: u32 = 3;
/// Shortest time between two switches that only reduce cost.
const LEAST_STAY: Duration = Duration::from_millis(500);
/// How long a channel does not try spinning, or UDP, again after a failure. The time doubles with each failure, up to
/// [`LONGEST_BAN`].
const FIRST_BAN: Duration = Duration::from_secs(5);
const LONGEST_BAN: Duration = Duration::from_secs(300);

/// The judge of one channel. It remembers earlier observations, so that the channel does not switch back and forth.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    favourite: Option<(Transport, u32)>,
    last_switch: Option<Instant>,
    same_cpu: u32,
    overloaded: u32,
    spinning: Ban,
    datagrams: Ban,
    /// The last number of wake-ups per message that was counted, and the message rate (messages per second) at that
    /// time; `None` before the first count.
    counted: Option<(f64, f64)>,
}

/// A transport, or a kind of transport, that is not tried for some time because it failed.
#[derive(Debug, Default)]
struct Ban {
    until: Option<Instant>,
    length: Option<Duration>,
}

impl Ban {
    fn begin(&mut self, now: Instant) {
        let length = self.length.map_or(FIRST_BAN, |length| (2 * length).min(LONGEST_BAN));
        self.length = Some(length);
        self.until = Some(now + length);
    }

    fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Judge {
    /// Returns the transport to switch to and the reason; `None` to keep the current one.
    pub(crate) fn judge(
        &mut self,
        policy: &Policy,
        sight: &Sight,
        now: Instant,
    ) -> Option<(Transport, Reason)> {
        self.same_cpu = if sight.same_cpu.is_some() { self.same_cpu + 1 } else { 0 };
        self.overloaded = if sight.runnable > sight.cpus { self.overloaded + 1 } else { 0 };
        let allowed = |t: Transport| sight.allowed.contains(&t);
        let load = self.load(&policy.profile, sight);
        let (_, spin_cpu) = policy.profile.expect(Transport::ShmSpin, load);
        // With one CPU the peer cannot run while this end spins; over budget it must not.
        let may_spin = sight.cpus > 1
            && !self.spinning.holds(now)
            && self.overloaded == 0
            && spin_cpu <= sight.cpu_budget
            && self.same_cpu == 0;
        let may_lose = sight.current == Transport::Udp || !self.datagrams.holds(now);
        let may_use = |t: &Transport| match t {
            Transport::Udp => may_lose,
            other => may_spin || !other.spins(),
        };
        let candidates: Vec<Transport> = sight.allowed.iter().copied().filter(may_use).collect();
        let settled = self.last_switch.is_some();
        let best = best(policy, &candidates, sight.current, load, settled)
            .or_else(|| sight.allowed.first().copied())?;
        if best == Transport::Udp && !may_lose {
            return None;
        }

        if !allowed(sight.current) {
            let first =
                matches!(sight.current, Transport::UdsSeqpacket) && self.last_switch.is_none();
            let why = if first { Reason::Upgrade } else { Reason::Policy };
            return self.go(best, why, now);
        }
        if best == sight.current {
            self.favourite = None;
            return None;
        }
        if sight.current.spins() && !best.spins() {
            if let (Some(cpu), 2..) = (sight.same_cpu, self.same_cpu) {
                self.spinning.begin(now);
                return self.go(best, Reason::SameCpu(cpu), now);
            }
            if self.overloaded >= LOOKS {
                self.spinning.begin(now);
                let why = Reason::Load { runnable: sight.runnable, cpus: sight.cpus };
                return self.go(best, why, now);
            }
            if spin_cpu > sight.cpu_budget {
                let permille = |share: f64| (share * 1000.0).round() as u32;
                let why = Reason::CpuBudget {
                    needed_permille: permille(spin_cpu),
                    allowed_permille: permille(sight.cpu_budget),
                };
                return self.go(best, why, now);
            }
        }
        if policy.prefer == Some(best) {
            return self.go(best, Reason::Preferred, now);
        }
        if best == Transport::Udp {
            return self.go(best, Reason::LossAllowed, now);
        }
        if self.last_switch.is_none() {
            return self.go(best, Reason::Upgrade, now);
        }
        let looks = match self.favourite {
            Some((favourite, looks)) if favourite == best => looks + 1,
            _ => 1,
        };
        self.favourite = Some((best, looks));
        let rested = self.last_switch.is_none_or(|last| now - last >= LEAST_STAY);
        if looks < LOOKS || !rested {
            return None;
        }
        let (before, _) = policy.profile.expect(sight.current, load);
        let (after, _) = policy.profile.expect(best, load);
        let why = Reason::Traffic {
            rate_msgs_per_s: sight.traffic.rate_msgs_per_s.round() as u64,
            mean_bytes: sight.traffic.mean_bytes.round() as u64,
            before_ns: before.round() as u64,
            after_ns: after.round() as u64,
        };
        self.go(best, why, now)
    }

    /// Records that the channel has switched, whoever requested it.
    pub(crate) fn switched(&mut self, now: Instant) {
        self.last_switch = Some(now);
        self.favourite = None;
        self.same_cpu = 0;
    }

    /// Returns the traffic together with the wake-ups per message, which are assumed to be the same for every
    /// transport. If the transport in use does not count wake-ups, the last count is used as long as the message rate
    /// is within a factor of 2 of the rate at the time of that count. Otherwise, the result is an estimate: the share
    /// of time without messages.
    fn load(&mut self, profile: &Profile, sight: &Sight) -> Load {
        let Sight { traffic, current, .. } = *sight;
        let rate = traffic.rate_msgs_per_s;
        if let Some(wakes_per_msg) = sight.wakes_per_msg {
            self.counted = Some((wakes_per_msg, rate));
            return Load { traffic, wakes_per_msg };
        }
        let alike = |then: f64| rate <= 2.0 * then && then <= 2.0 * rate;
        let remembered = self.counted.filter(|(_, then)| alike(*then)).map(|(wakes, _)| wakes);
        let wakes_per_msg = remembered.unwrap_or_else(|| profile.expect_idle(current, traffic));
        Load { traffic, wakes_per_msg }
    }

    fn go(&mut self, to: Transport, why: Reason, now: Instant) -> Option<(Transport, Reason)> {
        self.switched(now);
        Some((to, why))
    }

    /// Records that a transport could not be opened. UDP is then not tried for some time; other transports may be tried
    /// again immediately.
    pub(crate) fn failed(&mut self, transport: Transport, now: Instant) {
        if transport == Transport::Udp {
            self.datagrams.begin(now);
        }
    }
}

/// Returns the best candidate: the preferred one, else UDP (only channels that allow loss have it as a candidate), else
/// the cheapest; `None` without candidates. Spinning must also pay ([`SPIN_PAYS`]). Once the channel has `settled` on a
/// transport, it keeps it unless another one of its kind, sleeping or spinning, is cheaper by [`GAIN`].
fn best(
    policy: &Policy,
    candidates: &[Transport],
    current: Transport,
    load: Load,
    settled: bool,
) -> Option<Transport> {
    if let Some(preferred) = policy.prefer.filter(|t| candidates.contains(t)) {
        return Some(preferred);
    }
    // Programs that allow loss do not want to wait for lost messages, whatever a message costs.
    if candidates.contains(&Transport::Udp) {
        return Some(Transport::Udp);
    }
    let expect = |t: Transport| policy.profile.expect(t, load);
    let sleeping = candidates.iter().copied().filter(|t| !t.spins());
    let cheapest = sleeping.min_by(|a, b| expect(*a).0.total_cmp(&expect(*b).0));
    let spinning = candidates.iter().copied().find(|t| t.spins());
    let winner = match (cheapest, spinning) {
        (Some(sleeper), Some(spinner)) => {
            let (sleeper_ns, spinner_ns) = (expect(sleeper).0, expect(spinner).0);
            let saved = load.traffic.rate_msgs_per_s * (sleeper_ns - spinner_ns) / 1e9;
            let pays = saved > SPIN_PAYS * expect(spinner).1 && spinner_ns < sleeper_ns;
            // In between, whatever is in use stays in use.
            let barely = current.spins() && saved > SPIN_PAYS / 2.0 * expect(spinner).1;
            if pays || barely { spinner } else { sleeper }
        }
        (sleeper, spinner) => sleeper.or(spinner)?,
    };
    let stays = settled
        && candidates.contains(&current)
        && winner.spins() == current.spins()
        && expect(winner).0 > expect(current).0 * (1.0 - GAIN);
    Some(if stays { current } else { winner })
}
