//! Which transport a channel should use, as a pure function of what is allowed and what is seen, and when it is worth a switch.

use std::time::{Duration, Instant};

use crate::event::Reason;
use crate::policy::Policy;
use crate::profile::{Load, Profile, Traffic};
use crate::transport::Transport;

/// What the leader sees of its channel and the machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sight {
    /// The transport in use.
    pub(crate) current: Transport,
    /// What both ends allow.
    pub(crate) allowed: Vec<Transport>,
    /// The traffic since the last look.
    pub(crate) traffic: Traffic,
    /// Wake-ups of receivers per message since the last look, if the transport in use counts them.
    pub(crate) wakes_per_msg: Option<f64>,
    /// A sender and its receiver run on this CPU.
    pub(crate) same_cpu: Option<u32>,
    /// Threads that want to run.
    pub(crate) runnable: u32,
    /// CPUs on which this process may run.
    pub(crate) cpus: u32,
}

/// A switch must make a message cheaper by this share.
const GAIN: f64 = 0.2;
/// Spinning must save this many seconds of waiting per second of CPU time it takes.
const SPIN_PAYS: f64 = 0.05;
/// A transport must have been the cheapest at this many looks in a row before the channel switches to it.
const LOOKS: u32 = 3;
/// Shortest time between two switches that only save cost.
const LEAST_STAY: Duration = Duration::from_millis(500);
/// How long spinning, or UDP, is not tried again after it failed; doubled each time, up to [`LONGEST_BAN`].
const FIRST_BAN: Duration = Duration::from_secs(5);
const LONGEST_BAN: Duration = Duration::from_secs(300);

/// The judge of one channel: remembers what it needs not to flap.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    favourite: Option<(Transport, u32)>,
    last_switch: Option<Instant>,
    same_cpu: u32,
    overloaded: u32,
    spinning: Ban,
    datagrams: Ban,
    /// The wake-ups per message that were counted last, and the messages per second at that time.
    counted: Option<(f64, f64)>,
}

/// A transport, or a kind of them, that is not tried for some time because it failed.
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
    /// The transport to switch to, and why; `None` to keep the current one.
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
            && spin_cpu <= policy.cpu_budget
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
            if spin_cpu > policy.cpu_budget {
                let permille = |share: f64| (share * 1000.0).round() as u32;
                let why = Reason::CpuBudget {
                    needed_permille: permille(spin_cpu),
                    allowed_permille: permille(policy.cpu_budget),
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

    /// The channel has switched, whoever asked for it.
    pub(crate) fn switched(&mut self, now: Instant) {
        self.last_switch = Some(now);
        self.favourite = None;
        self.same_cpu = 0;
    }

    /// The traffic with its wake-ups, which are charged to every transport alike. If the transport in use does not count them, the last count
    /// per message is used while the message rate is within a factor of 2 of the rate at that time, otherwise the share of time without messages.
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

    /// A transport could not be opened.
    pub(crate) fn failed(&mut self, transport: Transport, now: Instant) {
        if transport == Transport::Udp {
            self.datagrams.begin(now);
        }
    }
}

/// The cheapest candidate; once the channel has `settled` on one, that unless another is cheaper by [`GAIN`].
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
    // Programs that allow loss do not want to wait for what was lost, whatever a message costs.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy { profile: Profile::default(), ..Policy::default() }
    }

    fn sight(current: Transport, rate_msgs_per_s: f64) -> Sight {
        Sight {
            current,
            allowed: Transport::LOCAL.to_vec(),
            traffic: Traffic { rate_msgs_per_s, mean_bytes: 64.0 },
            wakes_per_msg: None,
            same_cpu: None,
            runnable: 1,
            cpus: 4,
        }
    }

    /// Looks until it decides, every 100 ms.
    fn decide(
        judge: &mut Judge,
        policy: &Policy,
        sight: &Sight,
        from: Instant,
    ) -> Option<(Transport, Reason)> {
        (1..20).find_map(|n| judge.judge(policy, sight, from + n * Duration::from_millis(100)))
    }

    #[test]
    fn a_new_channel_leaves_its_sockets_for_a_ring_that_sleeps_at_the_first_look() {
        let mut judge = Judge::default();
        let now = Instant::now();
        let first = judge.judge(&policy(), &sight(Transport::UdsSeqpacket, 0.0), now);
        assert_eq!(first, Some((Transport::ShmFutex, Reason::Upgrade)));
        let pollable = Policy { pollable: true, ..policy() };
        let seen = Sight { allowed: pollable.transports(), ..sight(Transport::UdsSeqpacket, 0.0) };
        let first = Judge::default().judge(&pollable, &seen, now);
        assert_eq!(first, Some((Transport::ShmEventfd, Reason::Upgrade)));
    }

    #[test]
    fn where_loss_is_allowed_datagrams_are_used_unless_they_do_not_pass() {
        let (mut judge, now) = (Judge::default(), Instant::now());
        let allowed = vec![Transport::Tcp, Transport::Udp];
        let seen = Sight { allowed, ..sight(Transport::Tcp, 1000.0) };
        let udp = Some((Transport::Udp, Reason::LossAllowed));
        assert_eq!(judge.judge(&policy(), &seen, now), udp);
        let there = Sight { current: Transport::Udp, ..seen.clone() };
        assert_eq!(decide(&mut judge, &policy(), &there, now), None, "it stays");
        judge.failed(Transport::Udp, now);
        let pinned = Sight { allowed: vec![Transport::Udp], ..seen.clone() };
        for seen in [&seen, &pinned] {
            let soon = now + FIRST_BAN - Duration::from_millis(1);
            assert_eq!(judge.judge(&policy(), seen, soon), None);
        }
        assert_eq!(judge.judge(&policy(), &seen, now + FIRST_BAN), udp, "it is tried again");
        let reliable = Policy { prefer: Some(Transport::Tcp), ..policy() };
        assert_eq!(judge.judge(&reliable, &seen, now + FIRST_BAN), None);
    }

    #[test]
    fn frequent_exchanges_are_worth_spinning_for_and_seldom_ones_are_not() {
        let (mut judge, now) = (Judge::default(), Instant::now());
        judge.switched(now);
        let busy = decide(&mut judge, &policy(), &sight(Transport::ShmFutex, 50_000.0), now);
        assert!(matches!(busy, Some((Transport::ShmSpin, Reason::Traffic { .. }))), "{busy:?}");
        let later = now + Duration::from_secs(10);
        let quiet = decide(&mut judge, &policy(), &sight(Transport::ShmSpin, 50.0), later);
        assert!(matches!(quiet, Some((Transport::ShmFutex, Reason::Traffic { .. }))), "{quiet:?}");
        // In between neither is left for the other.
        for current in [Transport::ShmSpin, Transport::ShmFutex] {
            let between = sight(current, 7_500.0);
            assert_eq!(decide(&mut judge, &policy(), &between, later + LEAST_STAY), None);
        }
    }

    #[test]
    fn wake_ups_are_charged_as_they_are_counted_and_not_one_for_each_message() {
        // The receiver takes messages in batches, so few of them wake it. More threads want to run than there are CPUs, which rules out spinning.
        let now = Instant::now();
        let stream = |current, wakes_per_msg| Sight {
            wakes_per_msg,
            runnable: 9,
            ..sight(current, 1_000_000.0)
        };
        let settled = || {
            let mut judge = Judge::default();
            judge.switched(now);
            judge
        };
        for wakes_per_msg in [Some(0.02), None] {
            let seen = stream(Transport::ShmFutex, wakes_per_msg);
            assert_eq!(decide(&mut settled(), &policy(), &seen, now), None, "{wakes_per_msg:?}");
        }
        // Under the same traffic, a channel on a socket, which counts no wake-ups, moves to the ring.
        let seen = stream(Transport::UdsSeqpacket, None);
        let left = decide(&mut settled(), &policy(), &seen, now);
        assert!(matches!(left, Some((Transport::ShmFutex, Reason::Traffic { .. }))), "{left:?}");
        // If the socket wakes its receiver at a lower cost, a channel on the ring moves to it only if most messages wake the receiver.
        let mut cheap = policy();
        if let Some(cost) = cheap.profile.costs.get_mut(&Transport::UdsSeqpacket) {
            cost.wake_ns = 1_000.0;
        }
        let mut judge = settled();
        let rare = stream(Transport::ShmFutex, Some(0.02));
        assert_eq!(decide(&mut judge, &cheap, &rare, now), None);
        let rate = 10_000.0;
        let each =
            Sight { wakes_per_msg: Some(1.0), runnable: 9, ..sight(Transport::ShmFutex, rate) };
        let left = decide(&mut judge, &cheap, &each, now);
        assert!(
            matches!(left, Some((Transport::UdsSeqpacket, Reason::Traffic { .. }))),
            "{left:?}"
        );
        // The socket counts nothing, so the count of the ring is still used while the rate stays about the same.
        let there = Sight { current: Transport::UdsSeqpacket, wakes_per_msg: None, ..each };
        let later = now + Duration::from_secs(5);
        assert_eq!(decide(&mut judge, &cheap, &there, later), None);
    }

    #[test]
    fn one_look_does_not_make_a_switch_and_a_fresh_switch_is_left_alone() {
        let (mut judge, now) = (Judge::default(), Instant::now());
        judge.switched(now);
        let busy = sight(Transport::ShmFutex, 50_000.0);
        let at = |ms| now + Duration::from_millis(ms);
        for ms in [1, 2, 3, 4, 5] {
            assert_eq!(judge.judge(&policy(), &busy, at(ms)), None, "too soon");
        }
        assert!(judge.judge(&policy(), &busy, at(501)).is_some());
        judge.switched(at(501));
        assert_eq!(judge.judge(&policy(), &busy, at(1100)), None, "first look");
        assert_eq!(judge.judge(&policy(), &sight(Transport::ShmFutex, 9.0), at(1200)), None);
        assert_eq!(judge.judge(&policy(), &busy, at(1300)), None, "first look again");
    }

    #[test]
    fn two_ends_on_one_cpu_stop_spinning_at_the_second_look_and_do_not_come_back_soon() {
        let (mut judge, now) = (Judge::default(), Instant::now());
        judge.switched(now);
        let mut seen = Sight { same_cpu: Some(3), ..sight(Transport::ShmSpin, 50_000.0) };
        assert_eq!(judge.judge(&policy(), &seen, now), None, "once is chance");
        let escape = judge.judge(&policy(), &seen, now + Duration::from_millis(20));
        assert_eq!(escape, Some((Transport::ShmFutex, Reason::SameCpu(3))));
        (seen.same_cpu, seen.current) = (None, Transport::ShmFutex);
        let soon = now + Duration::from_secs(1);
        assert_eq!(decide(&mut judge, &policy(), &seen, soon), None, "banned");
        let late = now + FIRST_BAN + Duration::from_secs(1);
        assert!(decide(&mut judge, &policy(), &seen, late).is_some());
    }

    #[test]
    fn spinning_ends_under_load_on_one_cpu_and_over_the_budget() {
        let now = Instant::now();
        let spin = sight(Transport::ShmSpin, 50_000.0);
        let verdict = |policy: &Policy, sight: &Sight| {
            let mut judge = Judge::default();
            judge.switched(now);
            decide(&mut judge, policy, sight, now)
        };
        let loaded = Sight { runnable: 9, ..spin.clone() };
        let why = Reason::Load { runnable: 9, cpus: 4 };
        assert_eq!(verdict(&policy(), &loaded), Some((Transport::ShmFutex, why)));
        let lone = Sight { cpus: 1, allowed: Transport::LOCAL.to_vec(), ..spin.clone() };
        assert!(matches!(verdict(&policy(), &lone), Some((Transport::ShmFutex, _))));
        let frugal = Policy { cpu_budget: 0.1, ..policy() };
        let left = verdict(&frugal, &spin);
        assert!(matches!(left, Some((Transport::ShmFutex, Reason::CpuBudget { .. }))), "{left:?}");
        let never = verdict(&frugal, &sight(Transport::ShmFutex, 50_000.0));
        assert_eq!(never, None);
    }

    #[test]
    fn what_is_preferred_is_used_unless_it_is_forbidden_or_ruled_out() {
        let now = Instant::now();
        let preferring = |prefer| Policy { prefer: Some(prefer), ..policy() };
        let seen = |current| sight(current, 50.0);
        let mut judge = Judge::default();
        judge.switched(now);
        let costly = preferring(Transport::UdsSeqpacket);
        let taken = judge.judge(&costly, &seen(Transport::ShmFutex), now);
        assert_eq!(taken, Some((Transport::UdsSeqpacket, Reason::Preferred)));
        assert_eq!(decide(&mut judge, &costly, &seen(Transport::UdsSeqpacket), now), None, "stays");
        let forbidden = Sight { allowed: vec![Transport::ShmFutex], ..seen(Transport::ShmFutex) };
        assert_eq!(decide(&mut judge, &costly, &forbidden, now), None);
        // A preferred ring that spins is left on one CPU, and not taken up again at once.
        let spinning = preferring(Transport::ShmSpin);
        let mut judge = Judge::default();
        let taken = judge.judge(&spinning, &seen(Transport::UdsSeqpacket), now);
        assert_eq!(taken, Some((Transport::ShmSpin, Reason::Preferred)));
        let shared = Sight { same_cpu: Some(1), ..seen(Transport::ShmSpin) };
        let left = decide(&mut judge, &spinning, &shared, now);
        assert_eq!(left, Some((Transport::ShmFutex, Reason::SameCpu(1))));
        let soon = now + Duration::from_secs(1);
        assert_eq!(decide(&mut judge, &spinning, &seen(Transport::ShmFutex), soon), None);
    }

    #[test]
    fn what_is_forbidden_is_left_at_once_and_what_is_pinned_is_taken() {
        let pinned = Policy { pin: Some(Transport::UdsSeqpacket), ..policy() };
        let seen = Sight { allowed: pinned.transports(), ..sight(Transport::ShmFutex, 0.0) };
        let mut judge = Judge::default();
        judge.switched(Instant::now());
        let left = judge.judge(&pinned, &seen, Instant::now());
        assert_eq!(left, Some((Transport::UdsSeqpacket, Reason::Policy)));
        // A pinned spinning ring stays, whatever is seen.
        let pinned = Policy { pin: Some(Transport::ShmSpin), ..policy() };
        let seen = Sight {
            allowed: pinned.transports(),
            same_cpu: Some(0),
            runnable: 99,
            ..sight(Transport::ShmSpin, 0.0)
        };
        assert_eq!(decide(&mut Judge::default(), &pinned, &seen, Instant::now()), None);
    }
}
