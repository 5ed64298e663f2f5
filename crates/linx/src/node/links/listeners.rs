//! The addresses at which a node listens for other nodes.

use std::time::{Duration, Instant};

use crossway_sys::epoll::Trigger;
use crossway_sys::{Errno, OsError};

use super::super::{Node, Token};
use super::cluster::Cluster;
use super::line::LinkListener;
use super::{LinkAddress, Peer, chance};
use crate::Error;

/// Maximum number of connections whose peer has not introduced itself; more are refused.
const STRANGERS: usize = 64;

/// Pause before an address of a `tipcd` that has ended is opened again.
const REOPEN: Duration = Duration::from_millis(500);

/// An address at which this node listens.
pub(super) struct ListenAddress {
    address: LinkAddress,
    /// The listening socket; `None` while it cannot be opened because its `tipcd` has ended.
    listener: Option<LinkListener>,
    /// When to try to open the address again; `None` while it is open.
    open_at: Option<Instant>,
}

impl ListenAddress {
    pub(super) fn next_instant(&self) -> Option<Instant> {
        self.open_at
    }
}

impl Node {
    /// Starts to listen for other nodes and to dial them.
    pub(in crate::node) fn open_links(&mut self) -> Result<(), Error> {
        let mut listen = self.settings.listen.clone();
        if let Some(service) = self.settings.cluster {
            let cluster = Cluster::new(service, &self.settings.name);
            listen.push(cluster.address());
            self.links.cluster = Some(cluster);
        }
        for (index, address) in listen.into_iter().enumerate() {
            let listener = LinkListener::open(address, &self.settings.tipc)?;
            self.epoll.add(
                &listener,
                Token::LinkListener(index).number(),
                Trigger::WhileReadable,
            )?;
            let (listener, open_at) = (Some(listener), None);
            self.links.listeners.push(ListenAddress { address, listener, open_at });
        }
        for link in self.settings.links.clone() {
            crate::check_name(&link.name)?;
            self.links.peers.insert(Peer::new(link.name, link.addresses, chance()?));
        }
        Ok(())
    }

    /// Returns the addresses at which this node listens, with the ports that the system chose.
    pub fn listens_at(&self) -> Vec<LinkAddress> {
        let listeners = self.links.listeners.iter().filter_map(|place| place.listener.as_ref());
        listeners.filter_map(LinkListener::address).collect()
    }

    /// Accepts waiting connections.
    pub(in crate::node) fn admit_wires(&mut self, index: usize) -> Result<(), Error> {
        loop {
            let Some(listener) = &self.links.listeners[index].listener else { return Ok(()) };
            match listener.accept() {
                Ok(line) => {
                    let strangers =
                        self.links.wires.iter().filter(|(_, w)| w.peer.is_none()).count();
                    if strangers < STRANGERS {
                        self.add_wire(line, None)?;
                    }
                }
                Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => return Ok(()),
                Err(errno) if listener.has_ended(errno) => {
                    let place = &mut self.links.listeners[index];
                    let why = std::io::Error::from(errno);
                    tracing::warn!(
                        "cannot accept connections at {}: {why}; trying again",
                        place.address
                    );
                    place.listener = None;
                    place.open_at = Some(Instant::now() + REOPEN);
                    return Ok(());
                }
                Err(_) => {}
            }
        }
    }

    /// Listens again at addresses whose `tipcd` had ended.
    pub(super) fn reopen_listeners(&mut self) -> Result<(), OsError> {
        let now = Instant::now();
        for (index, place) in self.links.listeners.iter_mut().enumerate() {
            if place.open_at.is_none_or(|at| at > now) {
                continue;
            }
            match LinkListener::open(place.address, &self.settings.tipc) {
                Ok(listener) => {
                    self.epoll.add(
                        &listener,
                        Token::LinkListener(index).number(),
                        Trigger::WhileReadable,
                    )?;
                    place.listener = Some(listener);
                    place.open_at = None;
                }
                Err(_) => place.open_at = Some(now + REOPEN),
            }
        }
        Ok(())
    }
}
