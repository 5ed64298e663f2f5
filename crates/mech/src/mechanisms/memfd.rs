//! Messages in memfds that are passed over a UNIX socket (`SCM_RIGHTS`), as kdbus did for large payloads.
//!
//! The sender has a pool of memfds, whose size is sealed and which are mapped once. The receiver gets the descriptor
//! with each message, and either maps it and reads in place, or reads it into its own buffer. Each message costs one
//! system call at the sender (`sendmsg`). At the receiver it costs six in place (`recvmsg`, `fstat` and `fcntl` to
//! check the seals, `mmap`, `munmap`, `close`) or three by copy (`recvmsg`, `pread`, `close`). Each end makes one more
//! call for an acknowledgement, which the receiver sends each time it has taken half as many messages as the pool has
//! memfds.
//!
//! A new memfd for each message, sealed against writing, would make it unnecessary to trust the sender, but would cost
//! several times as much: docs/decisions/0021-memfd-pool.md.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::pages::{Pages, View, read_at};
use crossway_sys::socket::{self, SocketType};

use crate::building_blocks::complete::{self, Complete};
use crate::building_blocks::parcel::{Notice, ParcelRx, ParcelTx, Store, Taker};
use crate::building_blocks::slots::Layout;
use crate::{
    Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, RecvError, Spec, Transport,
};

/// Maximum number of memfds in a pool, because every descriptor in flight counts against the user's RLIMIT_NOFILE.
const MOST_MEMFDS: usize = 16;

/// The mechanism `memfd`: memfd_create(2) for the messages, unix(7) with SCM_RIGHTS to pass their descriptors.
#[derive(Debug)]
pub struct Memfd;

/// The sending half: a pool of memfds, and the socket that passes them.
pub type MemfdTx = ParcelTx<Pool>;
/// The receiving half: maps each memfd while its message is read, or copies out of it.
pub type MemfdRx = ParcelRx<Mapper>;

/// The sender's memfds, mapped and with sealed size, one message each.
#[derive(Debug)]
pub struct Pool(Vec<Pages>);

impl Pool {
    fn new(layout: Layout) -> Result<Self, OpenError> {
        let memfd = || Pages::new("crossway-memfd", layout.slot_bytes);
        Ok(Pool((0..layout.slots).map(|_| memfd()).collect::<Result<_, _>>()?))
    }
}

impl Store for Pool {
    #[inline]
    fn payload(&mut self, slot: usize, len: usize) -> &mut [u8] {
        self.0[slot].bytes_mut(0..len)
    }

    #[inline]
    fn notice(&mut self, slot: usize, number: u64, len: usize) -> Notice {
        Notice { stamp: number, address: 0, len: len as u64, slot: slot as u32, pid: 0 }
    }

    #[inline]
    fn descriptor(&self, slot: usize) -> Option<BorrowedFd<'_>> {
        Some(self.0[slot].as_fd())
    }
}

/// The receiver's access to the memfds.
#[derive(Debug)]
pub struct Mapper(Layout);

fn must_have(fd: Option<OwnedFd>) -> Result<OwnedFd, RecvError> {
    let none = || {
        RecvError::Damaged(
            "a message arrived without the descriptor of its memfd; this process may have reached its limit of open \
             files (ulimit -n)"
                .to_owned(),
        )
    };
    fd.ok_or_else(none)
}

impl Taker for Mapper {
    const DESCRIPTORS: bool = true;

    #[inline]
    fn copy(
        &mut self,
        _notice: &Notice,
        fd: Option<OwnedFd>,
        _socket: BorrowedFd<'_>,
        buf: &mut [u8],
    ) -> Result<(), RecvError> {
        let fd = must_have(fd)?;
        let read = if buf.is_empty() { 0 } else { read_at(fd.as_fd(), buf, 0)? };
        if read != buf.len() {
            return Err(RecvError::Damaged(format!(
                "a memfd contains only {read} of the {} bytes of its message",
                buf.len()
            )));
        }
        Ok(())
    }

    #[inline]
    fn show<R>(
        &mut self,
        notice: &Notice,
        fd: Option<OwnedFd>,
        _socket: BorrowedFd<'_>,
        _scratch: &mut [u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let view = View::new(must_have(fd)?.as_fd(), self.0.slot_bytes, notice.len as usize)?;
        Ok(read(view.bytes()))
    }
}

fn layout(spec: &Spec) -> Layout {
    let layout = Layout::of(spec, 0);
    Layout { slots: layout.slots.min(MOST_MEMFDS), ..layout }
}

fn channel(spec: &Spec, write: OwnedFd, read: OwnedFd) -> Result<(MemfdTx, MemfdRx), OpenError> {
    let layout = layout(spec);
    let tx = ParcelTx::new(Pool::new(layout)?, write, layout, spec.wait);
    Ok((tx, ParcelRx::new(Mapper(layout), read, layout, spec.wait)))
}

impl Mechanism for Memfd {
    const ID: &'static str = "memfd";
    const ABOUT: &'static str =
        "messages in memfds that are passed over a UNIX socket (memfd_create, SCM_RIGHTS)";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Memory);
    type Tx = MemfdTx;
    type Rx = MemfdRx;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        Caps { in_place: true, waitable_fd: true, ..Caps::PLAIN }
    }

    fn probe() -> Probe {
        let tried = Pages::new("crossway-memfd", 1)
            .and_then(|pages| View::new(pages.as_fd(), pages.len(), 1).map(drop))
            .and_then(|()| socket::unix_pair(SocketType::Seqpacket).map(drop));
        Probe::of_kernel(
            tried,
            "use a kernel with CONFIG_MEMFD_CREATE, and raise the limit of open files (ulimit -n)",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let pair = || socket::unix_pair(SocketType::Seqpacket);
        complete::listen(Self::ID, pair()?, pair()?, |write, read| channel(spec, write, read))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        complete::connect(Self::ID, offer, |write, read| channel(spec, write, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rx, Tx};

    fn memfds_open() -> usize {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .filter(|target| target.to_string_lossy().contains("crossway-memfd-count"))
            .count()
    }

    /// Tests that many messages leave no memfds open other than those of the pool, and that none is open after the
    /// channel is dropped.
    #[test]
    fn descriptors_do_not_accumulate() {
        let slot_bytes = 4096_usize.next_multiple_of(crossway_sys::shm::page_len());
        let layout = Layout { slots: 4, slot_bytes, max: 4096 };
        let (write, read) = socket::unix_pair(SocketType::Seqpacket).unwrap();
        let memfd = |_| Pages::new("crossway-memfd-count", layout.slot_bytes).unwrap();
        let pool = Pool((0..layout.slots).map(memfd).collect());
        let mut tx = ParcelTx::new(pool, write, layout, crate::Wait::Block);
        let mut rx = ParcelRx::new(Mapper(layout), read, layout, crate::Wait::Block);
        let mut buf = [0; 4096];
        for n in 0..1000_usize {
            tx.send(&vec![n as u8; n % 4097], None).unwrap();
            if n % 2 == 0 {
                assert_eq!(rx.recv(&mut buf, None).unwrap(), n % 4097);
                assert!(buf[..n % 4097].iter().all(|&byte| byte == n as u8));
            } else {
                let read = |bytes: &[u8]| bytes.iter().all(|&byte| byte == n as u8);
                assert!(rx.recv_in_place(&mut buf, None, read).unwrap());
            }
        }
        assert_eq!(memfds_open(), layout.slots);
        tx.send(b"unread", None).unwrap();
        drop(tx);
        assert_eq!(rx.recv(&mut buf, None).unwrap(), 6);
        assert!(matches!(rx.recv(&mut buf, None), Err(RecvError::PeerClosed)));
        assert_eq!(memfds_open(), 0);
    }
}
