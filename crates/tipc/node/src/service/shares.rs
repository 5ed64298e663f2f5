//! Shares of each process and each user in common resources, so that none can take everything: connections, and descriptors in flight.
//!
//! A descriptor passed to a program is in flight until the program has received it. The system limits the descriptors in flight of an unprivileged
//! user to the number that a process may have open (unix(7), ETOOMANYREFS), and counts the tipcd's against the tipcd's user: without shares, a
//! program that never receives could block all others.

use std::collections::HashMap;

use crossway_sys::proc;
use crossway_sys::socket::Credentials;
use crossway_tipc_client::protocol::refusal::Refusal;

use super::limits::ServiceLimits;

/// Minimum number of descriptors in flight that a process may have: those of two answers.
const PROCESS_LEAST: usize = 4;

/// Number of descriptors reserved for operators.
const RESERVE: std::ops::RangeInclusive<usize> = 12..=64;

/// Share of one process or one user.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    clients: usize,
    in_flight: usize,
}

/// The shares of all processes and users.
#[derive(Debug)]
pub(super) struct Shares {
    processes: HashMap<u32, Share>,
    users: HashMap<u32, Share>,
    in_flight: usize,
    clients_per_process: usize,
    clients_per_user: usize,
    /// Number of descriptors that this process may have open, which is also the limit of those in flight.
    descriptors: usize,
}

/// Whether these credentials are authorised to give orders to this node and to use reserved connections.
pub(super) fn is_operator(who: Option<Credentials>) -> bool {
    who.is_some_and(|who| who.uid == 0 || who.uid == proc::effective_user())
}

/// Programs with unknown credentials, and processes without a number in this namespace, only count for their user.
fn process(who: Option<Credentials>) -> u32 {
    who.map_or(0, |who| who.pid)
}

fn user(who: Option<Credentials>) -> u32 {
    who.map_or(u32::MAX, |who| who.uid)
}

impl Shares {
    /// Shares of this number of descriptors.
    pub(super) fn new(limits: &ServiceLimits, descriptors: usize) -> Self {
        Self {
            processes: HashMap::new(),
            users: HashMap::new(),
            in_flight: 0,
            clients_per_process: limits.clients_per_process,
            clients_per_user: limits.clients_per_user,
            descriptors,
        }
    }

    /// Descriptors from this number on are reserved for operators: the system always assigns the lowest free number.
    pub(super) fn first_kept(&self) -> usize {
        self.descriptors
            - (self.descriptors / 8).clamp(*RESERVE.start(), *RESERVE.end()).min(self.descriptors)
    }

    /// Reason why one more connection of this process or user is refused, if it is.
    pub(super) fn refuses(&self, who: Option<Credentials>) -> Option<Refusal> {
        if process(who) != 0 && self.of_process(who).clients >= self.clients_per_process {
            return Some(Refusal::PlacesOfProcess);
        }
        let full = self.of_user(who).clients >= self.clients_per_user;
        (full && !is_operator(who)).then_some(Refusal::PlacesOfUser)
    }

    fn of_process(&self, who: Option<Credentials>) -> Share {
        self.processes.get(&process(who)).copied().unwrap_or_default()
    }

    fn of_user(&self, who: Option<Credentials>) -> Share {
        self.users.get(&user(who)).copied().unwrap_or_default()
    }

    /// Maximum number of descriptors in flight to one process.
    fn process_in_flight_max(&self) -> usize {
        (self.descriptors / 8).max(PROCESS_LEAST)
    }

    /// Whether this many more descriptors may be sent to a program.
    pub(super) fn may_fly(&self, who: Option<Credentials>, count: usize) -> bool {
        let of_process = self.of_process(who).in_flight + count <= self.process_in_flight_max();
        let others = is_operator(who)
            || self.of_user(who).in_flight + count <= self.descriptors / 2
                && self.in_flight + count <= self.descriptors / 4 * 3;
        (process(who) == 0 || of_process) && others
    }

    /// Whether one more connection request may be passed to a program. It may stay in the queue indefinitely: a process that leaves many there must
    /// still have room for the answers to its own requests.
    pub(super) fn may_be_offered(&self, who: Option<Credentials>) -> bool {
        let room = self.of_process(who).in_flight < self.process_in_flight_max() / 4 * 3;
        (process(who) == 0 || room) && self.may_fly(who, 1)
    }

    /// Whether half of a process's limit of descriptors in flight is used.
    pub(super) fn is_crowded(&self, who: Option<Credentials>) -> bool {
        self.of_process(who).in_flight >= self.process_in_flight_max() / 2
    }

    fn change(&mut self, who: Option<Credentials>, by: impl Fn(&mut Share)) {
        for (shares, key) in [(&mut self.processes, process(who)), (&mut self.users, user(who))] {
            let share = shares.entry(key).or_default();
            by(share);
            if share.clients == 0 && share.in_flight == 0 {
                shares.remove(&key);
            }
        }
    }

    /// Counts a new connection.
    pub(super) fn enter(&mut self, who: Option<Credentials>) {
        self.change(who, |share| share.clients += 1);
    }

    /// Counts the end of a connection.
    pub(super) fn leave(&mut self, who: Option<Credentials>) {
        self.change(who, |share| share.clients -= 1);
    }

    /// Counts descriptors sent to a program.
    pub(super) fn fly(&mut self, who: Option<Credentials>, count: usize) {
        self.in_flight += count;
        self.change(who, |share| share.in_flight += count);
    }

    /// Counts descriptors that it has received or will never receive.
    pub(super) fn land(&mut self, who: Option<Credentials>, count: usize) {
        self.in_flight -= count;
        self.change(who, |share| share.in_flight -= count);
    }

    /// The process with the most connections, and their number.
    pub(super) fn largest_process(&self) -> Option<(u32, usize)> {
        let known = self.processes.iter().filter(|(pid, _)| **pid != 0);
        known.map(|(pid, share)| (*pid, share.clients)).max_by_key(|(_, clients)| *clients)
    }

    /// The user with the most connections, and their number.
    pub(super) fn largest_user(&self) -> Option<(u32, usize)> {
        let users = self.users.iter().map(|(uid, share)| (*uid, share.clients));
        users.max_by_key(|(_, clients)| *clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(pid: u32, uid: u32) -> Option<Credentials> {
        Some(Credentials { pid, uid, gid: uid })
    }

    fn shares(descriptors: usize) -> Shares {
        let limits =
            ServiceLimits { clients_per_process: 2, clients_per_user: 3, ..Default::default() };
        Shares::new(&limits, descriptors)
    }

    /// A user who is not authorised to give orders.
    fn stranger() -> u32 {
        proc::effective_user() + 70_000
    }

    #[test]
    fn places_are_shared_by_process_and_user() {
        let (mut shares, uid) = (shares(1024), stranger());
        for _ in 0..2 {
            assert_eq!(shares.refuses(who(7, uid)), None);
            shares.enter(who(7, uid));
        }
        assert_eq!(shares.refuses(who(7, uid)), Some(Refusal::PlacesOfProcess));
        assert_eq!(shares.refuses(who(8, uid)), None);
        shares.enter(who(8, uid));
        assert_eq!(shares.refuses(who(9, uid)), Some(Refusal::PlacesOfUser));
        assert_eq!(shares.refuses(who(9, uid + 1)), None);
        assert_eq!(shares.largest_process(), Some((7, 2)));
        assert_eq!(shares.largest_user(), Some((uid, 3)));
        shares.leave(who(7, uid));
        assert_eq!(shares.refuses(who(9, uid)), None);
        // Root and the user who runs the tipcd are only limited by the share of a process.
        for pid in 100..200 {
            assert_eq!(shares.refuses(who(pid, proc::effective_user())), None);
            shares.enter(who(pid, proc::effective_user()));
        }
        // Processes without a number in this namespace do not count as one process.
        for _ in 0..3 {
            assert_eq!(shares.refuses(who(0, uid + 2)), None);
            shares.enter(who(0, uid + 2));
        }
        assert_eq!(shares.refuses(who(0, uid + 2)), Some(Refusal::PlacesOfUser));
    }

    #[test]
    fn descriptors_on_their_way_are_shared_and_some_are_left_for_operators() {
        let (mut shares, uid) = (shares(64), stranger());
        assert_eq!(shares.first_kept(), 52);
        let mut sent = |who, most: usize| {
            let mut count = 0;
            while count < most && shares.may_fly(who, 1) {
                shares.fly(who, 1);
                count += 1;
            }
            count
        };
        assert_eq!(sent(who(1, uid), 100), 8);
        let of_user: usize = (2..20).map(|pid| sent(who(pid, uid), 100)).sum();
        assert_eq!(of_user, 24, "half of all for one user");
        let of_others: usize = (20..40).map(|pid| sent(who(pid, uid + 1), 100)).sum();
        assert_eq!(of_others, 16, "three quarters for all but operators");
        assert_eq!(sent(who(40, uid + 2), 1), 0);
        assert_eq!(sent(who(41, proc::effective_user()), 2), 2);
        shares.land(who(1, uid), 8);
        assert!(shares.may_fly(who(40, uid + 2), 1));
    }

    #[test]
    fn requests_left_in_queues_do_not_prevent_further_requests() {
        let (mut shares, who) = (shares(64), who(1, stranger()));
        while shares.may_be_offered(who) {
            shares.fly(who, 1);
        }
        assert!(shares.is_crowded(who) && shares.may_fly(who, 2));
    }

    #[test]
    fn what_is_given_back_is_forgotten() {
        let mut shares = shares(1024);
        shares.enter(who(7, 1));
        shares.fly(who(7, 1), 3);
        shares.land(who(7, 1), 3);
        shares.leave(who(7, 1));
        assert!(shares.processes.is_empty() && shares.users.is_empty());
    }
}
