//! TCP whose sends the kernel does not have to copy (MSG_ZEROCOPY): it reads the sender's pages when
//! it transmits them, and notifies the sender when it has done with them.
//!
//! A message costs one call and one copy at each end, of which a network card that can gather saves
//! the sender's. Over loopback the kernel copies all the same, when the packet reaches its receiver,
//! and says so: the facts `zerocopy_sends` and `zerocopy_sends_copied` count sends and copies. On
//! top come the pinning of the pages and the notices, of which one call takes one or several. So
//! over loopback this shows what the bookkeeping costs, not what it can save.
//!
//! Bytes passed to [`Tx::send`](crate::Tx::send) are copied into the sender's pages first; with
//! [`Tx::send_in_place`](crate::Tx::send_in_place) the caller writes them there. No page is written
//! again before the notice of its last send. A sender without free pages waits for notices, which
//! come with the peer's acknowledgements.
//!
//! If the kernel refuses to pin more memory (ENOBUFS: `ulimit -l`, net.core.optmem_max), that send
//! is made with a copy, and counted as `zerocopy_sends_refused`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::shm::page_len;
use crossway_sys::socket::{self, Inet};
use crossway_sys::zerocopy;

use super::tcp;
use crate::building_blocks::byte_stream::StreamRx;
use crate::building_blocks::connection::{BACKLOG, ConnectionFamily, Dialling, SocketHalf};
use crate::building_blocks::pages_tx::{PagesTx, piece_bytes};
use crate::building_blocks::stream_socket::stream_caps;
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport};

mod completions;
mod outlet;

use outlet::{Notices, ZerocopyOutlet, ZerocopySource};

/// The mechanism `tcp-zerocopy`, tcp(7) with default options but for SO_ZEROCOPY.
#[derive(Debug)]
pub struct TcpZerocopy;

/// Length in bytes of the pages of all messages that are under way: as much as TCP keeps for one
/// connection by default (the largest of net.ipv4.tcp_wmem).
const POOL_BYTES: usize = 4 << 20;
/// The fewest messages that have pages at the same time, however long they are.
const FEWEST: usize = 4;
/// The most, however short: each takes a page, and its notice counts towards net.core.optmem_max.
const MOST: usize = 64;

impl ConnectionFamily for TcpZerocopy {
    const NAME: &'static str = "tcp-zerocopy";
    const SUMMARY: &'static str = "TCP sending out of the sender's pages (MSG_ZEROCOPY); over \
         loopback the kernel copies all the same";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Tcp);
    type Socket = OwnedFd;
    type Sender = PagesTx<ZerocopyOutlet>;
    type Receiver = StreamRx<ZerocopySource>;

    fn capabilities() -> Caps {
        Caps { in_place: true, ..stream_caps(true, Privilege::None) }
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let (sends, receives) = SocketHalf::both(fd);
        let notices = Notices::new();
        let messages = (POOL_BYTES / piece_bytes(spec)).clamp(FEWEST, MOST);
        let pages = messages * piece_bytes(spec).div_ceil(page_len());
        let outlet = ZerocopyOutlet::new(sends, notices.clone(), pages);
        let source = ZerocopySource::new(receives, notices);
        Ok((PagesTx::new(outlet, pages, spec)?, StreamRx::new(source, spec.wait)))
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        let (fd, offer) = tcp::bound(Inet::Tcp, spec)?;
        // Accepted sockets inherit the option.
        zerocopy::enable(&fd)?;
        socket::listen(&fd, BACKLOG)?;
        Ok((fd, offer))
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        let (fd, address) = tcp::dialling(Self::NAME, Inet::Tcp, spec, offer)?;
        zerocopy::enable(fd.as_fd())?;
        Ok((fd, address))
    }

    fn remedy() -> &'static str {
        "use Linux 4.14 or later, with the loopback interface up: ip link set lo up"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        tcp::add_tcp_facts(fd, facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, Mechanism, Probe, Rx, SendError, Tx};

    type Ends = [(<TcpZerocopy as Mechanism>::Tx, <TcpZerocopy as Mechanism>::Rx); 2];

    /// Both ends of a channel, the listening one first; `None` where it is missing.
    fn channel(spec: &Spec) -> Option<Ends> {
        if let Probe::Missing(missing) = TcpZerocopy::probe() {
            eprintln!("SKIP tcp-zerocopy: {missing}");
            return None;
        }
        let (mut listener, mut offer) = TcpZerocopy::listen(spec).unwrap();
        let connected = TcpZerocopy::connect(spec, &mut offer).unwrap();
        Some([listener.accept(None).unwrap(), connected])
    }

    #[test]
    fn a_connection_kept_full_carries_every_byte_as_it_was_sent() {
        let spec = Spec { max_message: 3 * page_len(), ..Spec::default() };
        let Some([(mut tx, _rx), (_tx, mut rx)]) = channel(&spec) else { return };
        let lens = [1, 64, page_len() - 1, page_len(), page_len() + 1, 3 * page_len()];
        let message = |n: usize| -> Vec<u8> {
            (0..lens[n % lens.len()]).map(|i| (i * 31 + n * 7) as u8).collect()
        };
        let mut received = 0;
        for sent in 0..3000 {
            // A partially sent message continues when there is room.
            while matches!(tx.try_send(&message(sent)), Err(SendError::Full)) {
                let mut buf = vec![0; lens[received % lens.len()]];
                rx.recv(&mut buf, None).unwrap();
                assert!(buf == message(received), "message {received}");
                received += 1;
            }
        }
        assert!(received > 1500, "the connection was not kept full: {received}");
    }

    #[test]
    fn sends_from_either_end_and_copies_over_loopback_are_counted() {
        let Some(mut ends) = channel(&Spec { max_message: 4096, ..Spec::default() }) else {
            return;
        };
        let rounds = 300;
        let mut buf = [0; 4096];
        for n in 0..rounds {
            for (from, to) in [(0, 1), (1, 0)] {
                ends[from].0.send(&[n as u8; 4096], None).unwrap();
                ends[to].1.recv(&mut buf, None).unwrap();
                assert_eq!(buf, [n as u8; 4096]);
            }
        }
        for (tx, _) in &ends {
            let facts = tx.facts();
            let [sends, copied, refused] =
                ["sends", "sends_copied", "sends_refused"].map(|n| facts[&format!("zerocopy_{n}")]);
            assert!(sends + refused >= rounds, "{facts:?}");
            // The notices of the last ones may still be under way.
            assert!(copied <= sends && copied + 64 >= sends, "{facts:?}");
        }
    }
}
