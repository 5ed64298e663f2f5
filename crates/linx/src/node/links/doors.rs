//! The addresses at which a node listens for others.

use std::time::{Duration, Instant};

use crossway_sys::epoll::Report as When;
use crossway_sys::{Errno, OsError};

use super::super::{Node, Token};
use super::cluster::Cluster;
use super::line::LinkDoor;
use super::{LinkAddress, Peer, chance};
use crate::Error;

/// Maximum number of connections whose peer has not introduced itself; more are refused.
const STRANGERS: usize = 64;

/// How soon an address of a `tipcd` that has ended is opened again.
const REOPEN: Duration = Duration::from_millis(500);

/// An address at which this node listens.
pub(super) struct Entrance {
    address: LinkAddress,
    /// `None` while it cannot be opened: its `tipcd` has ended.
    door: Option<LinkDoor>,
    /// When to try again.
    open_at: Option<Instant>,
}

impl Entrance {
    pub(super) fn next_instant(&self) -> Option<Instant> {
        self.open_at
    }
}

impl Node {
    /// Starts to listen for other nodes, and to dial them.
    pub(in crate::node) fn open_links(&mut self) -> Result<(), Error> {
        let mut listen = self.settings.listen.clone();
        if let Some(service) = self.settings.cluster {
            let cluster = Cluster::new(service, &self.settings.name);
            listen.push(cluster.address());
            self.links.cluster = Some(cluster);
        }
        for (index, address) in listen.into_iter().enumerate() {
            let door = LinkDoor::open(address, &self.settings.tipc)?;
            self.epoll.add(&door, Token::LinkDoor(index).number(), When::WhileReadable)?;
            let (door, open_at) = (Some(door), None);
            self.links.doors.push(Entrance { address, door, open_at });
        }
        for link in self.settings.links.clone() {
            crate::check_name(&link.name)?;
            self.links.peers.insert(Peer::new(link.name, link.addresses, chance()?));
        }
        Ok(())
    }

    /// The addresses at which this node listens, with the ports that the system chose.
    pub fn listens_at(&self) -> Vec<LinkAddress> {
        let doors = self.links.doors.iter().filter_map(|entrance| entrance.door.as_ref());
        doors.filter_map(LinkDoor::address).collect()
    }

    /// Accepts waiting connections.
    pub(in crate::node) fn admit_wires(&mut self, index: usize) -> Result<(), Error> {
        loop {
            let Some(door) = &self.links.doors[index].door else { return Ok(()) };
            match door.accept() {
                Ok(line) => {
                    let strangers =
                        self.links.wires.iter().filter(|(_, w)| w.peer.is_none()).count();
                    if strangers < STRANGERS {
                        self.add_wire(line, None)?;
                    }
                }
                Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => return Ok(()),
                Err(errno) if door.has_ended(errno) => {
                    let entrance = &mut self.links.doors[index];
                    let why = std::io::Error::from(errno);
                    tracing::warn!("no connections at {}: {why}; trying again", entrance.address);
                    entrance.door = None;
                    entrance.open_at = Some(Instant::now() + REOPEN);
                    return Ok(());
                }
                Err(_) => {}
            }
        }
    }

    /// Listens again at addresses of a `tipcd` that had ended.
    pub(super) fn reopen_doors(&mut self) -> Result<(), OsError> {
        let now = Instant::now();
        for (index, entrance) in self.links.doors.iter_mut().enumerate() {
            if entrance.open_at.is_none_or(|at| at > now) {
                continue;
            }
            match LinkDoor::open(entrance.address, &self.settings.tipc) {
                Ok(door) => {
                    self.epoll.add(&door, Token::LinkDoor(index).number(), When::WhileReadable)?;
                    entrance.door = Some(door);
                    entrance.open_at = None;
                }
                Err(_) => entrance.open_at = Some(now + REOPEN),
            }
        }
        Ok(())
    }
}
