//! Tests of the judge's decisions.

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
        cpu_budget: 1.0,
    }
}

/// Checks every 100 ms until the judge decides to switch; `None` if it does not within 2 s.
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
    // In the range between, the channel keeps the one in use.
    for current in [Transport::ShmSpin, Transport::ShmFutex] {
        let between = sight(current, 7_500.0);
        assert_eq!(decide(&mut judge, &policy(), &between, later + LEAST_STAY), None);
    }
}

#[test]
fn wake_ups_are_charged_as_they_are_counted_and_not_one_for_each_message() {
    // The receiver takes messages in batches, so few of them wake it. More threads want to run than there are CPUs,
    // which rules out spinning.
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
    // If the socket wakes its receiver at a lower cost, a channel on the ring moves to it only if most messages wake
    // the receiver.
    let mut cheap = policy();
    if let Some(cost) = cheap.profile.costs.get_mut(&Transport::UdsSeqpacket) {
        cost.wake_ns = 1_000.0;
    }
    let mut judge = settled();
    let rare = stream(Transport::ShmFutex, Some(0.02));
    assert_eq!(decide(&mut judge, &cheap, &rare, now), None);
    let rate = 10_000.0;
    let each = Sight { wakes_per_msg: Some(1.0), runnable: 9, ..sight(Transport::ShmFutex, rate) };
    let left = decide(&mut judge, &cheap, &each, now);
    assert!(matches!(left, Some((Transport::UdsSeqpacket, Reason::Traffic { .. }))), "{left:?}");
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
    let left = verdict(&policy(), &Sight { cpu_budget: 0.1, ..spin.clone() });
    assert!(matches!(left, Some((Transport::ShmFutex, Reason::CpuBudget { .. }))), "{left:?}");
    let there = Sight { cpu_budget: 0.1, ..sight(Transport::ShmFutex, 50_000.0) };
    let never = verdict(&policy(), &there);
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
    // A preferred ring that spins is left on one CPU, and not used again immediately.
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
