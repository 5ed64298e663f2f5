//! TCP that sends every message immediately.

use std::os::fd::{BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Inet};

use super::tcp;
use crate::building_blocks::connection::{ConnectionFamily, Dialling};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `tcp-nodelay`, tcp(7) with TCP_NODELAY at both ends.
#[derive(Debug)]
pub struct TcpNodelay;

impl ConnectionFamily for TcpNodelay {
    const NAME: &'static str = "tcp-nodelay";
    const SUMMARY: &'static str =
        "TCP with TCP_NODELAY: Nagle's algorithm off (ipc-bench: tcp_nodelay)";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Tcp);
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        channel(spec, fd)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        let (fd, offer) = tcp::listening(Inet::Tcp, spec)?;
        // Accepted sockets inherit the option, which saves a call per connection; the facts read it
        // back.
        socket::set_tcp_nodelay(&fd, true)?;
        Ok((fd, offer))
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        let (fd, address) = tcp::dialling(Self::NAME, Inet::Tcp, spec, offer)?;
        socket::set_tcp_nodelay(&fd, true)?;
        Ok((fd, address))
    }

    fn remedy() -> &'static str {
        "bring the loopback interface up: ip link set lo up"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        tcp::add_tcp_facts(fd, facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::tcp::Tcp;
    use crate::{Listener, Mechanism, Tx};

    fn nodelay_at_both_ends<M: Mechanism>() -> [i64; 2] {
        let (mut listener, mut offer) = M::listen(&Spec::default()).unwrap();
        let (tx, _rx) = M::connect(&Spec::default(), &mut offer).unwrap();
        let (other_tx, _rx) = listener.accept(None).unwrap();
        [tx, other_tx].map(|tx| tx.facts()["tcp_nodelay"])
    }

    #[test]
    fn nagle_is_off_at_both_ends_here_and_on_in_plain_tcp() {
        assert_eq!(nodelay_at_both_ends::<TcpNodelay>(), [1, 1]);
        assert_eq!(nodelay_at_both_ends::<Tcp>(), [0, 0]);
    }
}
