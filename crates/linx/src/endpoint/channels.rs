//! How an endpoint gets a channel, and what happens if its descriptors do not arrive.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use crossway_ring::pool::Pool;
use crossway_sys::epoll::Trigger;
use crossway_sys::pipe::{PipeEnd, ignore_sigpipe};

use super::{Endpoint, Way};
use crate::channel::{Broken, Channel, Pipe, RingChannel, StreamChannel};
use crate::limits::LARGEST_SIGNAL;
use crate::wire::local::{self, Request};
use crate::{Error, Spid, Transport};

/// Returns the number of descriptors of one end of a channel.
fn descriptors(transport: Transport, has_pool: bool) -> usize {
    match transport {
        Transport::Uds => 1 + usize::from(has_pool),
        Transport::Fifo => 2,
        Transport::Shm => 3 + usize::from(has_pool),
    }
}

impl Endpoint {
    /// Adds a channel announced by the node. If its descriptors did not arrive, the channel does not exist: the node
    /// informs the other end, and the next receive of this endpoint reports an error.
    pub(super) fn add_channel(
        &mut self,
        spid: Spid,
        told: local::Channel,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Error> {
        let has_pool = told.pool > 0;
        let enough = |transport: &Transport| fds.len() >= descriptors(*transport, has_pool);
        let transport = told.transport.filter(enough);
        if told.transport.is_some() && transport.is_none() {
            // The kernel drops descriptors if this process has no room for them.
            self.starved = Some(spid);
            if !told.relay {
                return self.control.say(&Request::NoChannel { spid });
            }
        }
        self.routes.insert(spid, told.number);
        self.last_route = None;
        let Some(transport) = transport else { return Ok(()) };
        let mut fds = fds.into_iter();
        let mut fd = || {
            let missing = || Error::Protocol("a channel without its descriptors".into());
            fds.next().ok_or_else(missing)
        };
        let mut when = Trigger::WhileReadable;
        let channel = match transport {
            Transport::Uds => {
                let pipe = Pipe::Socket(fd()?);
                let pool = match has_pool {
                    // The node's end is the first.
                    true => Some(Pool::map(&fd()?, told.pool as usize, false)?),
                    false => None,
                };
                Channel::Stream(StreamChannel::new(pipe, told.number, told.relay, pool))
            }
            Transport::Fifo => {
                ignore_sigpipe();
                let (read, write) = (PipeEnd::new(fd()?)?, PipeEnd::new(fd()?)?);
                let pipe = Pipe::Fifo { read, write };
                Channel::Stream(StreamChannel::new(pipe, told.number, told.relay, None))
            }
            Transport::Shm => {
                let (memory, own, other) = (fd()?, fd()?, fd()?);
                let capacity = (told.capacity as usize).min(LARGEST_SIGNAL);
                let pool = match has_pool {
                    true => Some(Pool::map(&fd()?, told.pool as usize, told.first)?),
                    false => None,
                };
                let ring = RingChannel::new(
                    &memory,
                    (own, other),
                    capacity,
                    told.first,
                    told.number,
                    pool,
                )?;
                // Each wake-up is reported once, so nothing has to be read from the eventfd.
                when = Trigger::Input;
                Channel::Ring(ring)
            }
        };
        self.epoll.add(channel.read_fd(), u64::from(told.number) + 1, when)?;
        let peer = (!told.relay).then_some(spid);
        let way = Way { channel, peer, vouched: HashSet::new(), is_hot: false };
        self.ways.insert(told.number, way);
        self.make_hot(told.number);
        Ok(())
    }

    /// Removes a channel whose other end did not get its descriptors.
    pub(super) fn lose_channel(&mut self, spid: Spid) {
        if let Some(number) = self.routes.remove(&spid) {
            self.channel_ended(number, Broken::Ended);
            self.lost.insert(spid);
            self.last_route = None;
        }
    }

    /// Returns an error, once, if signals for `to` were lost with their channel.
    pub(super) fn check_lost(&mut self, to: Spid) -> Result<(), Error> {
        if self.lost.remove(&to) { Err(Error::NoChannel { spid: to }) } else { Ok(()) }
    }

    /// Returns an error, once, if this process had no descriptors left for a channel.
    pub(super) fn check_starved(&mut self) -> Result<(), Error> {
        let Some(spid) = self.starved.take() else { return Ok(()) };
        Err(Error::Limit(format!(
            "cannot open a channel to endpoint {spid}: this process has no file descriptors left; raise its limit \
             (ulimit -n)"
        )))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Endpoint, Error, Filter, Node, Options, Settings, Signal, Transport};

    const NUMBER: u32 = 0x1000_0001;

    #[test]
    fn both_ends_report_a_channel_whose_descriptors_were_lost_and_the_next_one_works() {
        for transport in [Transport::Uds, Transport::Fifo, Transport::Shm] {
            let node = Node::spawn_private(Settings { transport, ..Settings::default() }).unwrap();
            let open = |name| {
                Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
            };
            let (mut a, mut b) = (open("a"), open("b"));
            let signal = || Signal::with_payload(NUMBER, b"payload").unwrap();
            a.send(signal(), b.spid()).unwrap();
            let (event, descriptors) = b.control.hear(false).unwrap().unwrap();
            drop(descriptors);
            assert_eq!(b.handle(event, Vec::new(), &Filter::ANY, false).unwrap(), None);
            let starved = b.receive(&Filter::ANY, None);
            assert!(matches!(starved, Err(Error::Limit(_))), "{transport:?}: {starved:?}");
            let lost = loop {
                match a.send(signal(), b.spid()) {
                    // Signals are accepted until the end of the channel or the node's notice arrives.
                    Ok(()) | Err(Error::Gone { .. }) => {}
                    Err(error) => break error,
                }
            };
            assert!(matches!(lost, Error::NoChannel { spid } if spid == b.spid()), "{lost:?}");
            a.send(signal(), b.spid()).unwrap();
            let received = b.receive(&Filter::ANY, None).unwrap().unwrap();
            assert_eq!(received.payload(), b"payload");
            // The channel also works in the other direction.
            b.send(signal(), a.spid()).unwrap();
            assert_eq!(a.receive(&Filter::ANY, None).unwrap().unwrap().payload(), b"payload");
        }
    }

    #[test]
    fn a_report_about_another_endpoints_channel_changes_nothing() {
        let node = Node::spawn_private(Settings::default()).unwrap();
        let open = |name| {
            Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
        };
        let (mut a, mut b, mut c) = (open("a"), open("b"), open("c"));
        let signal = || Signal::with_payload(NUMBER, b"payload").unwrap();
        a.send(signal(), b.spid()).unwrap();
        c.control.say(&super::Request::NoChannel { spid: a.spid() }).unwrap();
        // The node answers in order, so it has handled the report.
        c.info(b.spid()).unwrap();
        for _ in 0..2 {
            assert!(b.receive(&Filter::ANY, None).unwrap().is_some());
            a.send(signal(), b.spid()).unwrap();
        }
        assert!(b.receive(&Filter::ANY, None).unwrap().is_some());
    }
}
