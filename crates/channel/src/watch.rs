//! The periodic checks of a channel by the control thread, with the policy's judgement.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossway_sys::procfs;

use crate::event::EventKind;
use crate::judge::Sight;
use crate::link::{Link, flag};
use crate::page::{Half, Seen};
use crate::profile::Traffic;
use crate::protocol::Role;
use crate::transport::Transport;

/// Time between checks of a channel whose ends spin; it is short because spinning ends on one CPU stall each other.
const SPINNING: Duration = Duration::from_millis(20);
/// Time between checks of a channel with traffic.
const BUSY: Duration = Duration::from_millis(100);
/// Time between checks of a channel without traffic.
const IDLE: Duration = Duration::from_millis(500);
/// The shortest interval over which a rate is measured.
const SHORTEST: Duration = Duration::from_millis(10);
/// A half that has not recorded its CPU for this number of checks counts as not running.
const FORGOTTEN: u32 = 3;

/// The last record of where a half ran, and for how many checks it has made no new one.
#[derive(Default)]
struct Trace {
    seen: Option<Seen>,
    age: u32,
}

impl Trace {
    fn update(&mut self, seen: Option<Seen>) -> Option<u32> {
        self.age = if seen == self.seen { self.age.saturating_add(1) } else { 0 };
        self.seen = seen;
        seen.filter(|_| self.age < FORGOTTEN).map(|seen| seen.cpu)
    }
}

/// What the control thread remembers of one channel.
pub(crate) struct Watch {
    next: Instant,
    last: Instant,
    counts: (u64, u64),
    traffic: Traffic,
    /// The leader's sender and receiver, and the follower's sender and receiver, in this order.
    traces: [Trace; 4],
    would: Option<Transport>,
}

impl Watch {
    pub(crate) fn new(now: Instant) -> Watch {
        Watch {
            next: now,
            last: now,
            counts: (0, 0),
            traffic: Traffic::default(),
            traces: Default::default(),
            would: None,
        }
    }

    /// Makes a check if it is time; returns when to make the next one, `None` for never.
    pub(crate) fn look(&mut self, link: &Arc<Link>, now: Instant) -> Option<Instant> {
        if !link.is_in_a_hurry() && now < self.next {
            return Some(self.next);
        }
        let traffic = self.traffic(link, now);
        let same_cpu = self.same_cpu(link);
        let (current, over) = {
            let state = link.lock();
            (state.transport, state.over)
        };
        if over {
            return None;
        }
        let busy = traffic.rate_msgs_per_s > 0.0;
        if busy || current.spins() {
            link.tx.raise(flag::NOTE);
            link.rx.raise(flag::NOTE);
        }
        if link.role == Role::Leader {
            self.judge(link, traffic, same_cpu, now);
        }
        let pause = match (current.spins(), busy) {
            (true, _) => SPINNING,
            (false, true) => BUSY,
            (false, false) => IDLE,
        };
        self.next = now + pause;
        Some(self.next)
    }

    fn traffic(&mut self, link: &Link, now: Instant) -> Traffic {
        let ((sent, sent_bytes), (received, received_bytes)) =
            (link.sent.read(), link.received.read());
        let counts = (sent + received, sent_bytes + received_bytes);
        let msgs = counts.0.saturating_sub(self.counts.0) as f64;
        let bytes = counts.1.saturating_sub(self.counts.1) as f64;
        let elapsed = now - self.last;
        if elapsed >= SHORTEST {
            (self.counts, self.last) = (counts, now);
            let rate_msgs_per_s = msgs / elapsed.as_secs_f64();
            self.traffic = Traffic { rate_msgs_per_s, mean_bytes: bytes / msgs.max(1.0) };
        }
        self.traffic
    }

    /// Returns a CPU on which both a sender and its receiver run; `None` if there is none.
    fn same_cpu(&mut self, link: &Link) -> Option<u32> {
        let page = link.page();
        let mut cpus = [None; 4];
        for (i, role) in [Role::Leader, Role::Follower].into_iter().enumerate() {
            for (j, half) in [Half::Sender, Half::Receiver].into_iter().enumerate() {
                cpus[2 * i + j] = self.traces[2 * i + j].update(page.seen(role, half));
            }
        }
        let [leader_tx, leader_rx, follower_tx, follower_rx] = cpus;
        let pairs = [(leader_tx, follower_rx), (follower_tx, leader_rx)];
        pairs.into_iter().find_map(|(tx, rx)| tx.filter(|_| tx == rx))
    }

    fn judge(&mut self, link: &Link, traffic: Traffic, same_cpu: Option<u32>, now: Instant) {
        let wakes_per_msg = link.take_wakes().per_msg();
        let verdict = {
            let mut guard = link.lock();
            let state = &mut *guard;
            if !state.switch.is_settled() || state.is_releasing() || state.is_elsewhere() {
                return;
            }
            let current = state.transport;
            let wished = state.wished.take().filter(|(to, _)| *to != current);
            let sight = Sight {
                current: state.transport,
                allowed: state.allowed(),
                traffic,
                wakes_per_msg,
                same_cpu,
                runnable: runnable(state.transport, traffic),
                cpus: cpus(),
                cpu_budget: state.policy.cpu_budget.min(state.peer_budget),
            };
            wished.map(|(to, why)| (to, why, true)).or_else(|| {
                if state.transport == Transport::Parked {
                    return None;
                }
                let verdict = state.judge.judge(&state.policy, &sight, now);
                verdict.map(|(to, why)| (to, why, !state.policy.dry_run))
            })
        };
        let Some((to, why, really)) = verdict else { return };
        if !really {
            if self.would.replace(to) != Some(to) {
                let mut state = link.lock();
                let from = state.transport;
                link.log(&mut state, EventKind::WouldSwitch { from, to, why });
            }
            return;
        }
        if let Err(error) = link.start(to, why.clone()) {
            let mut state = link.lock();
            let (from, because) = (state.transport, error.to_string());
            state.judge.failed(to, now);
            if from == Transport::Parked {
                // The channel is parked, so this transport is tried again at the next check.
                state.wished = Some((to, why));
            }
            link.log(&mut state, EventKind::Refused { from, to, because });
        }
    }
}

/// Returns the number of runnable threads other than this one. If the channel neither spins nor has traffic, the number
/// does not matter; it is not read, and the result is 0.
fn runnable(current: Transport, traffic: Traffic) -> u32 {
    if !current.spins() && traffic.rate_msgs_per_s == 0.0 {
        return 0;
    }
    let now = procfs::load_average().map_or(0, |load| load.runnable.saturating_sub(1));
    u32::try_from(now).unwrap_or(u32::MAX)
}

/// Returns the number of CPUs that are online on this machine, which is compared with the number of runnable threads of
/// the whole machine. It does not matter on how many CPUs this process may run: two ends that are restricted to one CPU
/// each can still spin if these CPUs differ. Whether two ends share a CPU is observed ([`Watch::same_cpu`]).
fn cpus() -> u32 {
    static CPUS: OnceLock<u32> = OnceLock::new();
    *CPUS.get_or_init(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        online
            .and_then(|text| crossway_sys::topology::parse_cpu_list(text.trim()).ok())
            .map(|list| list.len())
            .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(1)
    })
}
