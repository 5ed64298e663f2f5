//! Shared Memory Communications: the calls of TCP, but the bytes are transferred by RDMA or, on one machine, through a
//! loopback device.
//!
//! A connection is opened over TCP, through which the ends agree on a device. If they find none, it silently remains a
//! TCP connection. The probe therefore sends more bytes than opening takes, and reads how many of them TCP has carried.
//! A message costs one system call and one copy at each end.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_sys::socket::{self, Inet};

use super::tcp;
use crate::building_blocks::connection::{ConnectionFamily, Dialling};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::{
    Caps, Carrier, Facts, Family, Listener, Mechanism, Offer, OpenError, Privilege, Rx, Spec,
    Transport, Tx,
};

/// The mechanism `smc`: SMC-R and SMC-D, shared memory behind the sockets interface (AF_SMC).
#[derive(Debug)]
pub struct Smc;

/// Number of bytes that the probe sends: many more than opening exchanges over TCP, and fewer than either buffer holds.
const TRIED_BYTES: usize = 16 << 10;

/// Name of the fact with the number of bytes that TCP has received on a connection.
const BY_TCP: &str = "tcp_bytes_received";

impl ConnectionFamily for Smc {
    const NAME: &'static str = "smc";
    const SUMMARY: &'static str =
        "Shared Memory Communications (AF_SMC): TCP's calls over RDMA or its loopback device";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Smc);
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        tcp::listening(Inet::Smc, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        tcp::dialling(Self::NAME, Inet::Smc, spec, offer)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        channel(spec, fd)
    }

    fn try_here() -> Result<(), String> {
        let limit = Duration::from_secs(20);
        let spec = Spec { open_timeout: limit, max_message: TRIED_BYTES, ..Spec::default() };
        let until = Some(Instant::now() + limit);
        let (mut listener, mut offer) = Self::listen(&spec).map_err(|e| e.to_string())?;
        let connecting = std::thread::spawn(move || Self::connect(&spec, &mut offer));
        let accepted = listener.accept(until);
        let connected = connecting.join().map_err(|_| "connecting panicked".to_owned())?;
        let (mut tx, _rx) = connected.map_err(|e| e.to_string())?;
        let (_tx, mut rx) = accepted.map_err(|e| e.to_string())?;
        let message = vec![1; TRIED_BYTES];
        tx.send(&message, until).map_err(|e| e.to_string())?;
        rx.recv(&mut vec![0; TRIED_BYTES], until).map_err(|e| e.to_string())?;
        match rx.facts().get(BY_TCP) {
            Some(&bytes) if bytes < TRIED_BYTES as i64 => Ok(()),
            Some(_) => {
                Err("the kernel has AF_SMC, but a connection over loopback fell back to TCP: \
                            there is no device for it"
                    .to_owned())
            }
            None => {
                Err("the kernel does not report whether a connection fell back to TCP".to_owned())
            }
        }
    }

    fn remedy() -> &'static str {
        "use a kernel with CONFIG_SMC and a loopback device (CONFIG_SMC_LO from Linux 6.10, CONFIG_DIBS_LO from 6.18), \
         and load the module as root: modprobe smc"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        if let Some(bytes) = socket::tcp_bytes_received(fd).ok().and_then(|n| i64::try_from(n).ok())
        {
            facts.insert(BY_TCP.to_owned(), bytes);
        }
    }
}
