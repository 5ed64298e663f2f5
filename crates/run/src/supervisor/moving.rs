//! Moves the ends of a supervised program's connections: one that it makes, and one that it has accepted.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use crossway_sys::Errno;
use crossway_sys::socket::{self, internet, twin};
use crossway_sys::supervision::{self, Call};

use super::calls::{explain, explain_moved};
use super::{Site, alone};
use crate::ends::{self, Connecting};
use crate::reason::{self, Reason};
use crate::rendezvous::Table;

// From the headers of the system, as /proc shows a descriptor's flags.
const O_CLOEXEC: u32 = 0o2_000_000;

/// A connect that may be moved.
pub(super) struct Attempt {
    pub(super) call: Call,
    pub(super) fd: RawFd,
    pub(super) pid: u32,
    pub(super) is_nonblocking: bool,
    pub(super) socket: OwnedFd,
    pub(super) to: SocketAddr,
    pub(super) listener: usize,
}

impl Attempt {
    /// The attempt, if the connection may be moved.
    pub(super) fn check(mut self, table: &Table) -> Result<Self, Reason> {
        if table.is_paused(self.listener) {
            return Err(reason::PAUSED);
        }
        if !alone::is_of_this_user(self.pid) {
            return Err(reason::CHANGED_USER);
        }
        if !internet::is_own_address(internet::plain(self.to)) {
            return Err(reason::ANOTHER_HOST);
        }
        self.is_nonblocking = twin::waits_plainly(&self.socket).ok_or(reason::RAISES_SIGNALS)?;
        if twin::is_special(&self.socket) {
            return Err(reason::ONLY_TCP);
        }
        alone::check(self.pid, self.fd, twin::inode(&self.socket))?;
        Ok(self)
    }

    /// Connects, moves the connection if the other end accepts it in time, and answers the call.
    pub(super) fn run(self, site: &Site, table: &Table) {
        let plain = internet::plain(self.to);
        let offered = Connecting::new(&self.socket, self.to.is_ipv6()).and_then(|offered| {
            let offer = table.announce(self.listener, plain.port(), offered.note());
            Ok((offered, offer.ok_or(reason::NO_PLACE)?))
        });
        let outcome = twin::connect_as(&self.socket, self.to);
        let has_connected = outcome.is_ok();
        if has_connected || outcome == Err(Errno::INPROGRESS) {
            let moved = offered.and_then(|(offered, mut offer)| {
                if !has_connected && !twin::is_established(&self.socket) {
                    return Err(reason::NOT_AT_ONCE);
                }
                let ends = twin::ends(&self.socket).ok_or(reason::HAS_ENDED)?;
                let end =
                    offered.wait(&self.socket, &mut offer, ends, self.is_nonblocking, None)?;
                self.put(site, &end)?;
                explain_moved(&self.call, "connects", ends.0, ends.1);
                Ok(end)
            });
            let own = twin::own_end(&self.socket);
            match moved {
                Ok(end) => site.keep(end, self.socket),
                Err(why) => explain(&self.call, "connects", own, plain, &why),
            }
        }
        site.supervisor.answer(&self.call, outcome.map(|()| 0));
    }

    /// Puts the end of the pair in the place of the socket.
    fn put(&self, site: &Site, end: &OwnedFd) -> Result<(), Reason> {
        let _ = twin::take_over(&self.socket, end);
        if self.is_nonblocking {
            let _ = socket::set_nonblocking(end);
        }
        let about = std::fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.pid, self.fd));
        let about = about.unwrap_or_default();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        let closes = flags.is_none_or(|flags| flags & O_CLOEXEC != 0);
        let given = site.supervisor.give(&self.call, end, Some(self.fd), closes);
        // The accepting end has been moved. Only a killed program does not get the other end.
        given.map(drop).map_err(|_| "the program was killed")
    }
}

/// A connection that has been accepted for a program, which has it as descriptor `at`.
pub(super) struct Accepted {
    pub(super) call: Call,
    pub(super) socket: OwnedFd,
    pub(super) at: RawFd,
    pub(super) is_nonblocking: bool,
    pub(super) closes: bool,
}

impl Accepted {
    /// Moves the connection if its other end offers it, and answers the call.
    pub(super) fn settle(self, site: &Site, table: Option<&Table>) {
        let Self { call, socket, at, .. } = &self;
        let ends = twin::ends(socket);
        let claim = table.zip(ends).and_then(|(table, (own, peer))| {
            Some((ends::claim(table, socket, own, peer)?, own, peer))
        });
        let as_seen = socket::peer_address(socket).ok();
        let as_seen = as_seen.and_then(|address| SocketAddr::try_from(address).ok());
        let mut end = None;
        if let Some((claim, own, peer)) = claim {
            let moved = (|| {
                let process = supervision::process_of(call.thread);
                if !process.is_ok_and(alone::is_of_this_user) {
                    return Err(reason::CHANGED_USER);
                }
                if twin::is_special(socket) {
                    return Err("the listener has an option that only TCP provides");
                }
                let end = ends::accepted_end(socket, &claim, own, peer)?;
                if !self.is_nonblocking {
                    socket::set_waiting(&end, true).map_err(|_| "ioctl failed")?;
                }
                twin::take_over(socket, &end).map_err(|_| reason::NO_OPTION)?;
                if !claim.agree() {
                    return Err(reason::WITHDRAWN);
                }
                let given = site.supervisor.give(call, &end, Some(*at), self.closes);
                given.map_err(|_| "the program was killed")?;
                Ok(end)
            })();
            match moved {
                Ok(stream) => {
                    explain_moved(call, "accepts", peer, own);
                    end = Some(stream);
                }
                Err(why) => explain(call, "accepts", Some(peer), own, &why),
            }
        }
        let wants_address = call.arguments[1] != 0;
        let outcome = match as_seen.filter(|_| wants_address) {
            Some(address) => site.give_address(call, address),
            None => Ok(()),
        };
        let (call, at) = (self.call, self.at);
        if let Some(end) = end {
            site.keep(end, self.socket);
        }
        site.supervisor.answer(&call, outcome.map(|()| at.into()));
    }
}
