//! Open loop: each burst is due at a fixed time, even if earlier bursts are late. Latency counts from that time, so a
//! stall is charged to every message that it delayed. The delay with which the sender itself began each burst is
//! reported separately, because the latency includes the cost of the kernel's timer and scheduler, for which the
//! mechanism is not responsible.

use std::os::fd::BorrowedFd;

use crossway_mech::{Rx, Tx, Wait};
use crossway_sys::clock::{monotonic_ns, sleep_until_ns};

use super::latencies::Arrivals;
use super::throughput::{end_lossy, receive_lossy};
use super::{Put, enter, metered, take};
use crate::LoopError;
use crate::ends::Ends;
use crate::role_context::{Distribution, RoleContext};
use crate::{Outcome, PaceSeen, Window};
use crossway_records::inputs::{Inputs, messages_per_burst};

/// A burst counts as late if it begins later than this, in nanoseconds, or than a tenth of the period, whichever is
/// less.
const LATE_NS: u64 = 1_000_000;

/// Time before each burst at which a spinning sender stops sleeping, nanoseconds. It spins until the burst is due, so
/// that no wake-up delays the burst; it occupies a core anyway.
const SPIN_AHEAD_NS: u64 = 150_000;

/// Interval in nanoseconds at which an open-ended stream checks whether it should end, while it waits until a burst is
/// due.
const LOOK_EVERY_NS: u64 = 20_000_000;

/// The schedule of bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    first_ns: u64,
    period_ns: u64,
    messages_per_burst: u64,
}

impl Pace {
    pub(super) fn new(burst_bytes: u64, period_us: u64, size: usize, first_ns: u64) -> Pace {
        Pace {
            first_ns,
            period_ns: period_us * 1_000,
            messages_per_burst: messages_per_burst(burst_bytes, size as u64),
        }
    }

    pub(super) fn messages_per_burst(&self) -> u64 {
        self.messages_per_burst
    }

    /// Creates a schedule with one message per period.
    pub(super) fn of_one(period_ns: u64, first_ns: u64) -> Pace {
        Pace { first_ns, period_ns, messages_per_burst: 1 }
    }

    /// The burst to which a message belongs; messages are numbered from one.
    pub(super) fn burst_of(&self, message: u64) -> u64 {
        message.saturating_sub(1) / self.messages_per_burst
    }

    pub(super) fn period_ns(&self) -> u64 {
        self.period_ns
    }

    pub(super) fn instant_ns(&self, burst: u64) -> u64 {
        self.first_ns + burst * self.period_ns
    }

    /// Waits until a burst is due; returns the time at which the wait ended, CLOCK_MONOTONIC, nanoseconds.
    pub(super) fn wait_for(&self, burst: u64, spin_ahead_ns: u64) -> u64 {
        self.wait_by(burst, spin_ahead_ns, sleep_until_ns)
    }

    /// Like [`Pace::wait_for`], with another call that sleeps. A burst that is overdue begins without this call: even
    /// if its deadline has passed, the call can cost more than the period, and would then limit the rate.
    fn wait_by(&self, burst: u64, spin_ahead_ns: u64, sleep_until_ns: impl FnOnce(u64)) -> u64 {
        let instant = self.instant_ns(burst);
        let asleep_until = instant.saturating_sub(spin_ahead_ns);
        let mut now = monotonic_ns();
        if now < asleep_until {
            sleep_until_ns(asleep_until);
            now = monotonic_ns();
        }
        while now < instant {
            crossway_sys::spin::hint();
            now = monotonic_ns();
        }
        now
    }

    /// Waits until a burst is due, and checks periodically whether the stream should end. Returns true if the burst is
    /// due, and false if the stream should end.
    pub(super) fn wait_unless<E>(
        &self,
        burst: u64,
        mut ended: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let instant = self.instant_ns(burst);
        loop {
            if ended()? {
                return Ok(false);
            }
            let now = monotonic_ns();
            if now >= instant {
                return Ok(true);
            }
            sleep_until_ns(instant.min(now + LOOK_EVERY_NS));
        }
    }

    fn late_after_ns(&self) -> u64 {
        LATE_NS.min(self.period_ns / 10)
    }
}

/// Records how late a paced sender began its bursts.
pub(crate) struct Punctuality {
    late_after_ns: u64,
    /// Time at which the sender had finished its previous burst.
    free_ns: u64,
    lateness: Distribution,
    seen: PaceSeen,
}

impl Punctuality {
    pub(super) fn new(pace: &Pace) -> Punctuality {
        let seen = PaceSeen { bursts: 0, late_bursts: 0, drift_ns: 0, lateness: String::new() };
        Punctuality {
            late_after_ns: pace.late_after_ns(),
            free_ns: 0,
            lateness: Distribution::new(),
            seen,
        }
    }

    /// Number of bursts so far.
    pub(super) fn bursts(&self) -> u64 {
        self.seen.bursts
    }

    /// Adds a burst that was due at `instant`, began at `began` and ended at `ended`. If the previous burst is still
    /// being sent at `instant`, the mechanism delays this burst, so the sender's own delay counts from the end of the
    /// previous burst.
    pub(super) fn add(&mut self, instant: u64, began: u64, ended: u64) {
        self.seen.bursts += 1;
        self.seen.late_bursts += u64::from(began - instant > self.late_after_ns);
        self.seen.drift_ns = ended as i64 - instant as i64;
        self.lateness.record(began.saturating_sub(instant.max(self.free_ns)));
        self.free_ns = ended;
    }

    /// Notes that the mechanism held up the sender until now, because earlier requests had no reply
    /// yet.
    pub(super) fn held_up_until(&mut self, now_ns: u64) {
        self.free_ns = now_ns;
    }

    pub(super) fn finish(mut self) -> PaceSeen {
        self.seen.lateness = self.lateness.encode();
        self.seen
    }
}

pub(super) fn send(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
    pace: &Pace,
    line: BorrowedFd<'_>,
) -> Result<Outcome, LoopError> {
    let mut punctuality = Punctuality::new(pace);
    let channels = ends.channels();
    context.sequences.resize(channels, 0);
    let mut outcome = metered(|| match channels {
        1 => ends.send_paced(context, window.messages, pace, &mut punctuality),
        _ => ends.publish(context, window.messages, pace, &mut punctuality),
    })?;
    // The first operation is the first burst, not the sleep before it.
    outcome.start_ns = outcome.start_ns.max(pace.first_ns);
    outcome.pacing = Some(punctuality.finish());
    outcome.sent = window.messages * channels as u64;
    if context.task.inputs.workload.ends_with_mark() {
        // What follows a window takes CPU time, which other senders on this CPU may still need for
        // their last messages.
        sleep_until_ns(pace.instant_ns(window.messages));
        if let Some((tx, _)) = ends.halves(0) {
            tx.send(context.source.end_message(), None)?;
            tx.flush()?;
        }
    } else if context.lossy() {
        end_lossy(ends, window.number, line)?;
    }
    Ok(outcome)
}

/// Sends each message to all receivers, one after another, beginning with the same one each time.
pub(crate) fn publish_loop<T: Tx, R: Rx, P: Put>(
    channels: &mut [(T, R)],
    context: &mut RoleContext,
    messages: u64,
    pace: &Pace,
    punctuality: &mut Punctuality,
    _: P,
) -> Result<(), LoopError> {
    let spin_ahead_ns = spin_ahead_ns(&context.task.inputs);
    let RoleContext { source, scratch, sequences, .. } = context;
    for message in 0..messages {
        let instant = pace.instant_ns(message);
        let began = pace.wait_for(message, spin_ahead_ns);
        for ((tx, _), sequence) in channels.iter_mut().zip(sequences.iter_mut()) {
            source.swap_sequence(sequence);
            P::put(tx, source, scratch)?;
            source.swap_sequence(sequence);
            tx.flush()?;
        }
        punctuality.add(instant, began, monotonic_ns());
    }
    Ok(())
}

pub(crate) fn send_loop<T: Tx, P: Put>(
    tx: &mut T,
    context: &mut RoleContext,
    messages: u64,
    pace: &Pace,
    punctuality: &mut Punctuality,
    _: P,
) -> Result<(), LoopError> {
    let spin_ahead_ns = spin_ahead_ns(&context.task.inputs);
    let RoleContext { source, scratch, .. } = context;
    let mut left = messages;
    for burst in 0..messages.div_ceil(pace.messages_per_burst) {
        let instant = pace.instant_ns(burst);
        let began = pace.wait_for(burst, spin_ahead_ns);
        for _ in 0..left.min(pace.messages_per_burst) {
            P::put(tx, source, scratch)?;
        }
        left = left.saturating_sub(pace.messages_per_burst);
        tx.flush()?;
        punctuality.add(instant, began, monotonic_ns());
    }
    Ok(())
}

/// How long before a burst the sender begins to spin, nanoseconds; 0 if it must not.
pub(super) fn spin_ahead_ns(inputs: &Inputs) -> u64 {
    if owns_a_core(inputs) { SPIN_AHEAD_NS } else { 0 }
}

/// Whether the sender may spin before bursts, because it already spins for its mechanism and no other role runs on its
/// CPU.
fn owns_a_core(inputs: &Inputs) -> bool {
    inputs.wait == Wait::Spin
        && inputs.workload.schedules() == 1
        && matches!(inputs.cpus[..], [a, b] if a != b)
}

pub(super) fn receive(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
    pace: &Pace,
) -> Result<Outcome, LoopError> {
    let mut arrivals = Arrivals::new(pace, &context.checkers, &[]);
    let mut outcome = metered(|| ends.receive_paced(context, window, &mut arrivals))?;
    arrivals.enter(&mut outcome);
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

pub(crate) fn receive_loop<R: Rx>(
    rx: &mut R,
    context: &mut RoleContext,
    window: &Window,
    arrivals: &mut Arrivals<'_>,
) -> Result<(), LoopError> {
    let lossy = context.lossy();
    let len = context.receive_len();
    let RoleContext { checkers, scratch, .. } = context;
    let checker = &mut checkers[0];
    let scratch = &mut scratch[..len];
    if lossy {
        receive_lossy(rx, scratch, window.number, |message| {
            checker.check(message);
            arrivals.note(0, checker.position());
        })?;
        return Ok(());
    }
    for _ in 0..window.messages {
        take(rx, scratch, checker)?;
        arrivals.note(0, checker.position());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::inputs::Workload;
    use crossway_records::{histogram, samples};

    #[test]
    fn only_a_sender_that_spins_on_a_core_of_its_own_spins_before_bursts() {
        let owns = |wait, cpus: &[u32]| {
            let mut inputs = samples::ping_pong("pipe", 64, 0, 1000, 1.0).inputs;
            (inputs.wait, inputs.cpus) = (wait, cpus.to_vec());
            let alone = owns_a_core(&inputs);
            // Several clients share a CPU.
            inputs.workload = Workload::Clients { clients: 2, in_flight: 1, period_ns: 1_000 };
            assert!(!owns_a_core(&inputs), "{wait:?} {cpus:?}");
            alone
        };
        assert!(owns(Wait::Spin, &[0, 1]));
        for (wait, cpus) in [
            (Wait::Spin, &[0, 0][..]),
            (Wait::Spin, &[]),
            (Wait::Block, &[0, 1]),
            (Wait::Block, &[0, 0]),
            (Wait::Hybrid { spin_us: 20 }, &[0, 1]),
        ] {
            assert!(!owns(wait, cpus), "{wait:?} {cpus:?}");
        }
    }

    #[test]
    fn a_burst_behind_a_slow_one_is_late_but_not_by_the_senders_doing() {
        let mut punctuality = Punctuality::new(&Pace::new(64, 100, 64, 0));
        punctuality.add(0, 3_000, 900_000);
        for burst in 1..4 {
            punctuality.add(burst * 100_000, 900_000 + burst * 10, 900_000 + burst * 10);
        }
        let seen = punctuality.finish();
        assert_eq!((seen.bursts, seen.late_bursts, seen.drift_ns), (4, 3, 600_030));
        let lateness = histogram::decode(&seen.lateness).unwrap();
        assert_eq!((lateness.len(), lateness.max() / 1000), (4, 3));
        assert!(lateness.value_at_quantile(0.75) < 100, "{lateness:?}");
    }

    #[test]
    fn an_overdue_burst_begins_without_a_call_that_sleeps() {
        let start = monotonic_ns();
        let waits = |pace: Pace, spin_ahead_ns| {
            let mut slept_until = None;
            let began = pace.wait_by(1, spin_ahead_ns, |until| {
                slept_until = Some(until);
                sleep_until_ns(until);
            });
            assert!(began >= start && began >= pace.instant_ns(1));
            slept_until
        };
        assert_eq!(waits(Pace::new(64, 10, 64, start - 10_000), 0), None);
        let soon = Pace::new(64, 500_000, 64, start);
        assert_eq!(waits(soon, 5_000_000), Some(start + 495_000_000));
        assert_eq!(waits(Pace::new(64, 1_000, 64, monotonic_ns()), 2_000_000), None);
    }

    #[test]
    fn instants_follow_the_period_and_lateness_its_tenth() {
        let pace = Pace::new(256 * 1024, 80_000, 4096, 1_000);
        assert_eq!(pace.messages_per_burst, 64);
        assert_eq!(pace.instant_ns(2), 160_001_000);
        assert_eq!(pace.late_after_ns(), 1_000_000);
        assert_eq!(Pace::new(64, 1_000, 64, 0).late_after_ns(), 100_000);
        assert_eq!(messages_per_burst(64, 4096), 1);
    }
}
