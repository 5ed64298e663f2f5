//! Limits each process's and each user's share of common resources, so that none can take everything: connections and
//! descriptors in flight of processes and users, sockets and bindings of users.
//!
//! A descriptor passed to a program is in flight until the program has received it. The system limits the number of
//! descriptors in flight of an unprivileged user to the number that a process may have open (unix(7), ETOOMANYREFS).
//! Descriptors sent by a tipcd count for the user who runs it. So without shares, a program that never receives could
//! block all others.

use std::collections::HashMap;

use crossway_sys::proc;
use crossway_sys::socket::Credentials;
use crossway_tipc_client::protocol::refusal::Refusal;

use super::limits::ServiceLimits;

/// Smallest value of the limit on descriptors in flight to one process: enough for two answers.
const PROCESS_LEAST: usize = 4;

/// The least and the greatest number of descriptors reserved for operators.
const RESERVE: std::ops::RangeInclusive<usize> = 12..=64;

/// What one process or one user has of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    clients: usize,
    in_flight: usize,
    sockets: usize,
    bindings: usize,
}

/// The shares of all processes and users.
#[derive(Debug)]
pub(super) struct Shares {
    processes: HashMap<u32, Share>,
    users: HashMap<u32, Share>,
    in_flight: usize,
    /// What all programs except operators' have.
    others: Share,
    clients_per_process: usize,
    clients_per_user: usize,
    sockets_per_user: usize,
    /// Maximum number of sockets of all programs except operators'.
    sockets_max: usize,
    bindings_per_user: usize,
    /// Maximum number of bindings of all programs except operators'.
    bindings_max: usize,
    /// Number of descriptors that this process may have open. The system limits those in flight to the same number.
    descriptors: usize,
}

/// Whether these credentials belong to root or to the user who runs the node, who may give orders and use reserved
/// connections.
pub(super) fn is_operator(program: Option<Credentials>) -> bool {
    program.is_some_and(|program| program.uid == 0 || program.uid == proc::effective_user())
}

/// The user whose share a program's sockets use; `None` if no share limits them.
pub(super) fn limited_user(program: Option<Credentials>) -> Option<u32> {
    (!is_operator(program)).then(|| user(program))
}

/// The process ID under which a program is counted; 0, which is not limited, if it is unknown or the process has none
/// in this namespace.
fn process(program: Option<Credentials>) -> u32 {
    program.map_or(0, |program| program.pid)
}

fn user(program: Option<Credentials>) -> u32 {
    program.map_or(u32::MAX, |program| program.uid)
}

impl Shares {
    /// Creates the state without connections. `descriptors` is the number of descriptors that this process may have
    /// open.
    pub(super) fn new(limits: &ServiceLimits, descriptors: usize) -> Self {
        let most = |all: usize| all - all / 4;
        // An eighth of sockets and bindings is left for operators, so that several users cannot take everything together.
        let of_others = |all: usize| all - all / 8;
        let mut shares = Self {
            processes: HashMap::new(),
            users: HashMap::new(),
            in_flight: 0,
            others: Share::default(),
            clients_per_process: limits.clients_per_process,
            clients_per_user: limits.clients_per_user,
            sockets_per_user: 0,
            sockets_max: 0,
            bindings_per_user: limits.bindings_per_user.unwrap_or(most(limits.bindings)),
            bindings_max: of_others(limits.bindings),
            descriptors,
        };
        // Each socket is a descriptor of this process.
        let sockets = limits.sockets.min(shares.first_kept());
        shares.sockets_per_user = limits.sockets_per_user.unwrap_or(most(sockets));
        shares.sockets_max = of_others(sockets);
        shares
    }

    /// The first descriptor number that is reserved for operators. This works because the system always assigns the
    /// lowest free number.
    pub(super) fn first_kept(&self) -> usize {
        self.descriptors
            - (self.descriptors / 8).clamp(*RESERVE.start(), *RESERVE.end()).min(self.descriptors)
    }

    /// Returns the reason if one more connection of this process or user must be refused.
    pub(super) fn refuses(&self, program: Option<Credentials>) -> Option<Refusal> {
        if process(program) != 0 && self.of_process(program).clients >= self.clients_per_process {
            return Some(Refusal::PlacesOfProcess);
        }
        let full = self.of_user(program).clients >= self.clients_per_user;
        (full && !is_operator(program)).then_some(Refusal::PlacesOfUser)
    }

    /// Returns the reason if one more socket of this user must be refused.
    pub(super) fn refuses_socket(&self, program: Option<Credentials>) -> Option<Refusal> {
        let full = self.of_user(program).sockets >= self.sockets_per_user
            || self.others.sockets >= self.sockets_max;
        (full && !is_operator(program)).then_some(Refusal::SocketsOfUser)
    }

    /// Returns the reason if one more binding of this user must be refused.
    pub(super) fn refuses_binding(&self, program: Option<Credentials>) -> Option<Refusal> {
        let full = self.of_user(program).bindings >= self.bindings_per_user
            || self.others.bindings >= self.bindings_max;
        (full && !is_operator(program)).then_some(Refusal::BindingsOfUser)
    }

    fn of_process(&self, program: Option<Credentials>) -> Share {
        self.processes.get(&process(program)).copied().unwrap_or_default()
    }

    fn of_user(&self, program: Option<Credentials>) -> Share {
        self.users.get(&user(program)).copied().unwrap_or_default()
    }

    /// Maximum number of descriptors in flight to one process.
    fn process_in_flight_max(&self) -> usize {
        (self.descriptors / 8).max(PROCESS_LEAST)
    }

    /// Whether `count` more descriptors may be sent to a program.
    pub(super) fn may_send(&self, program: Option<Credentials>, count: usize) -> bool {
        let of_process = self.of_process(program).in_flight + count <= self.process_in_flight_max();
        let others = is_operator(program)
            || self.of_user(program).in_flight + count <= self.descriptors / 2
                && self.in_flight + count <= self.descriptors / 4 * 3;
        (process(program) == 0 || of_process) && others
    }

    /// Whether another connection request may be passed to a program. The program may leave it in the queue
    /// indefinitely, so there must still be room for the answers to the process's own requests.
    pub(super) fn may_be_offered(&self, program: Option<Credentials>) -> bool {
        let room = self.of_process(program).in_flight < self.process_in_flight_max() / 4 * 3;
        (process(program) == 0 || room) && self.may_send(program, 1)
    }

    /// Whether a process has reached half of its limit of descriptors in flight.
    pub(super) fn is_crowded(&self, program: Option<Credentials>) -> bool {
        self.of_process(program).in_flight >= self.process_in_flight_max() / 2
    }

    fn change(&mut self, program: Option<Credentials>, by: impl Fn(&mut Share)) {
        if !is_operator(program) {
            by(&mut self.others);
        }
        for (shares, key) in
            [(&mut self.processes, process(program)), (&mut self.users, user(program))]
        {
            let share = shares.entry(key).or_default();
            by(share);
            if *share == Share::default() {
                shares.remove(&key);
            }
        }
    }

    /// Counts a new connection.
    pub(super) fn enter(&mut self, program: Option<Credentials>) {
        self.change(program, |share| share.clients += 1);
    }

    /// Counts the end of a connection.
    pub(super) fn leave(&mut self, program: Option<Credentials>) {
        self.change(program, |share| share.clients -= 1);
    }

    /// Counts a new socket.
    pub(super) fn opened(&mut self, program: Option<Credentials>) {
        self.change(program, |share| share.sockets += 1);
    }

    /// Counts the end of a socket that had this number of bindings.
    pub(super) fn closed(&mut self, program: Option<Credentials>, bindings: usize) {
        self.change(program, |share| share.sockets -= 1);
        self.bound(program, bindings, 0);
    }

    /// Counts the bindings of a socket that had `before` and has `after`.
    pub(super) fn bound(&mut self, program: Option<Credentials>, before: usize, after: usize) {
        self.change(program, |share| share.bindings = share.bindings - before + after);
    }

    /// Counts descriptors sent to a program.
    pub(super) fn sent(&mut self, program: Option<Credentials>, count: usize) {
        self.in_flight += count;
        self.change(program, |share| share.in_flight += count);
    }

    /// Counts descriptors that have been received or will never be received.
    pub(super) fn released(&mut self, program: Option<Credentials>, count: usize) {
        self.in_flight -= count;
        self.change(program, |share| share.in_flight -= count);
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

    fn credentials(pid: u32, uid: u32) -> Option<Credentials> {
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
            assert_eq!(shares.refuses(credentials(7, uid)), None);
            shares.enter(credentials(7, uid));
        }
        assert_eq!(shares.refuses(credentials(7, uid)), Some(Refusal::PlacesOfProcess));
        assert_eq!(shares.refuses(credentials(8, uid)), None);
        shares.enter(credentials(8, uid));
        assert_eq!(shares.refuses(credentials(9, uid)), Some(Refusal::PlacesOfUser));
        assert_eq!(shares.refuses(credentials(9, uid + 1)), None);
        assert_eq!(shares.largest_process(), Some((7, 2)));
        assert_eq!(shares.largest_user(), Some((uid, 3)));
        shares.leave(credentials(7, uid));
        assert_eq!(shares.refuses(credentials(9, uid)), None);
        // Root and the user who runs the tipcd are only limited by the share of a process.
        for pid in 100..200 {
            assert_eq!(shares.refuses(credentials(pid, proc::effective_user())), None);
            shares.enter(credentials(pid, proc::effective_user()));
        }
        // Processes without a number in this namespace do not count as one process.
        for _ in 0..3 {
            assert_eq!(shares.refuses(credentials(0, uid + 2)), None);
            shares.enter(credentials(0, uid + 2));
        }
        assert_eq!(shares.refuses(credentials(0, uid + 2)), Some(Refusal::PlacesOfUser));
    }

    #[test]
    fn descriptors_on_their_way_are_shared_and_some_are_left_for_operators() {
        let (mut shares, uid) = (shares(64), stranger());
        assert_eq!(shares.first_kept(), 52);
        let mut sent = |program, most: usize| {
            let mut count = 0;
            while count < most && shares.may_send(program, 1) {
                shares.sent(program, 1);
                count += 1;
            }
            count
        };
        assert_eq!(sent(credentials(1, uid), 100), 8);
        let of_user: usize = (2..20).map(|pid| sent(credentials(pid, uid), 100)).sum();
        assert_eq!(of_user, 24, "half of all for one user");
        let of_others: usize = (20..40).map(|pid| sent(credentials(pid, uid + 1), 100)).sum();
        assert_eq!(of_others, 16, "three quarters for all but operators");
        assert_eq!(sent(credentials(40, uid + 2), 1), 0);
        assert_eq!(sent(credentials(41, proc::effective_user()), 2), 2);
        shares.released(credentials(1, uid), 8);
        assert!(shares.may_send(credentials(40, uid + 2), 1));
    }

    #[test]
    fn requests_left_in_queues_do_not_prevent_further_requests() {
        let (mut shares, program) = (shares(64), credentials(1, stranger()));
        while shares.may_be_offered(program) {
            shares.sent(program, 1);
        }
        assert!(shares.is_crowded(program) && shares.may_send(program, 2));
    }

    #[test]
    fn sockets_and_bindings_are_shared_by_user_and_some_are_left_for_operators() {
        let limits = ServiceLimits { sockets: 100, bindings: 80, ..Default::default() };
        let (mut shares, uid) = (Shares::new(&limits, 1024), stranger());
        let opened = |shares: &mut Shares, pid, uid| {
            let program = credentials(pid, uid);
            let refused = shares.refuses_socket(program);
            refused.is_none().then(|| shares.opened(program)).ok_or(refused)
        };
        for pid in 0..75 {
            assert_eq!(opened(&mut shares, pid, uid), Ok(()));
        }
        assert_eq!(opened(&mut shares, 75, uid), Err(Some(Refusal::SocketsOfUser)));
        // Three quarters for one user, seven eighths for all but operators.
        for pid in 76..89 {
            assert_eq!(opened(&mut shares, pid, uid + 1), Ok(()));
        }
        assert_eq!(opened(&mut shares, 89, uid + 2), Err(Some(Refusal::SocketsOfUser)));
        for pid in 100..200 {
            assert_eq!(opened(&mut shares, pid, proc::effective_user()), Ok(()));
        }
        // The same holds for bindings.
        let bind = |shares: &mut Shares, pid, uid, most: usize| {
            let program = credentials(pid, uid);
            (0..most)
                .take_while(|n| {
                    let free = shares.refuses_binding(program).is_none();
                    if free {
                        shares.bound(program, *n, *n + 1);
                    }
                    free
                })
                .count()
        };
        assert_eq!(bind(&mut shares, 1, uid, 100), 60);
        assert_eq!(bind(&mut shares, 2, uid, 1), 0, "another process of the same user");
        assert_eq!(bind(&mut shares, 76, uid + 1, 100), 10);
        assert_eq!(bind(&mut shares, 100, proc::effective_user(), 100), 100);
        shares.closed(credentials(1, uid), 60);
        assert_eq!(bind(&mut shares, 3, uid + 2, 100), 60);
        assert_eq!(opened(&mut shares, 75, uid), Ok(()));
        // As many sockets as there is room for descriptors, if that is less.
        assert_eq!(Shares::new(&ServiceLimits::default(), 64).sockets_per_user, 39);
        let limits = ServiceLimits { sockets_per_user: Some(5), ..Default::default() };
        assert_eq!(Shares::new(&limits, 1024).sockets_per_user, 5);
    }

    #[test]
    fn what_is_given_back_is_forgotten() {
        let mut shares = shares(1024);
        shares.opened(credentials(7, 1));
        shares.bound(credentials(7, 1), 0, 5);
        shares.bound(credentials(7, 1), 5, 3);
        shares.closed(credentials(7, 1), 3);
        assert_eq!((shares.others.sockets, shares.others.bindings), (0, 0));
        shares.enter(credentials(7, 1));
        shares.sent(credentials(7, 1), 3);
        shares.released(credentials(7, 1), 3);
        shares.leave(credentials(7, 1));
        assert!(shares.processes.is_empty() && shares.users.is_empty());
        assert_eq!(shares.others, Share::default());
    }
}
