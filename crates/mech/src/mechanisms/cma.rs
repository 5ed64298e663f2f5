//! Cross-memory attach: the receiver copies the message straight out of the sender's memory (`process_vm_readv(2)`), as MPI
//! libraries do.
//!
//! Each message costs one system call at the sender (`sendto` of the notice) and two at the receiver (`recvfrom`,
//! `process_vm_readv`), plus one at each end for an acknowledgement, which the receiver sends each time it has taken
//! half as many messages as there are slots. With [`Tx::send_in_place`](crate::Tx::send_in_place), a message is copied
//! once in total. Bytes passed to [`Tx::send`](crate::Tx::send) are copied to a slot first, so that the caller can
//! reuse its buffer immediately.
//!
//! The receiver needs permission to trace the sender: both must run as the same user, and where Yama is active
//! (`ptrace_scope` 1), the sender permits tracing when the channel is opened. The sender's process ID has no meaning in
//! another PID namespace, so both ends must be in the same one.
//!
//! The slots are in a memfd. The receiver has its descriptor but does not map it. From this descriptor it reads
//! messages that were sent before the sender closed or died, because the sender's memory then no longer exists. Each
//! slot has a stamp, which is read after the payload. If the stamp is correct, the memory was the sender's, even if its
//! process ID or addresses have been reused since.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_sys::pages::{Pages, read_at};
use crossway_sys::poll::is_hung_up;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError, cma, shm};

use crate::building_blocks::complete::Complete;
use crate::building_blocks::parcel::{Notice, ParcelRx, ParcelTx, Store, Taker, os_error};
use crate::building_blocks::slots::Layout;
use crate::{
    Caps, Carrier, Family, Mechanism, Meeting, Offer, OpenError, Privilege, Probe, RecvError, Spec,
    Transport,
};

/// Length in bytes of a slot's header: the stamp, padded to a cache line.
const HEADER: usize = 64;

/// Maximum time for which a dying process may have lost its memory but still hold its descriptors.
const DYING: Duration = Duration::from_secs(10);

/// The mechanism `cma`: process_vm_readv(2) from the sender's memory, announced over a UNIX socket.
#[derive(Debug)]
pub struct Cma;

/// The sending half: a pool of slots in its own memory, and the socket on which notices are sent.
pub type CmaTx = ParcelTx<Slots>;
/// The receiving half: reads announced messages out of the sender's memory.
pub type CmaRx = ParcelRx<Reader>;

/// The sender's slots in its own memory.
#[derive(Debug)]
pub struct Slots {
    pages: Pages,
    layout: Layout,
    /// A random number. Added to a message's number, it makes a stamp that no other memory contains.
    nonce: u64,
    pid: u32,
}

impl Slots {
    fn new(pages: Pages, layout: Layout) -> Self {
        cma::let_others_read();
        let nonce = RandomState::new().build_hasher().finish();
        Slots { pages, layout, nonce, pid: std::process::id() }
    }
}

impl Store for Slots {
    #[inline]
    fn payload(&mut self, slot: usize, len: usize) -> &mut [u8] {
        let start = slot * self.layout.slot_bytes + HEADER;
        self.pages.bytes_mut(start..start + len)
    }

    #[inline]
    fn notice(&mut self, slot: usize, number: u64, len: usize) -> Notice {
        let start = slot * self.layout.slot_bytes;
        let stamp = self.nonce.wrapping_add(number);
        self.pages.bytes_mut(start..start + 8).copy_from_slice(&stamp.to_ne_bytes());
        Notice {
            stamp,
            address: self.pages.address() + start as u64,
            len: len as u64,
            slot: slot as u32,
            pid: self.pid,
        }
    }

    fn descriptor(&self, _slot: usize) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The receiver's access to the sender's slots.
#[derive(Debug)]
pub struct Reader {
    layout: Layout,
    /// The descriptor of the slots, used once their owner has ended.
    memory: OwnedFd,
}

impl Reader {
    /// Reads from the memfd, once the sender has ended, a message that could not be read from the sender's memory. If
    /// the sender does not end in time, returns the error `why`.
    #[cold]
    fn read_late(
        &self,
        notice: &Notice,
        socket: BorrowedFd<'_>,
        buf: &mut [u8],
        why: Errno,
    ) -> Result<(), RecvError> {
        let limit = Instant::now() + DYING;
        while !is_hung_up(socket).map_err(|e| os_error("poll", "notices", e))? {
            if Instant::now() >= limit {
                let object = format!("process {}", notice.pid);
                return Err(os_error("process_vm_readv", &object, why));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = notice.slot as usize * self.layout.slot_bytes + HEADER;
        let read = read_at(self.memory.as_fd(), buf, start as u64)?;
        if read != buf.len() {
            return Err(RecvError::Damaged(format!(
                "the sender has ended, and only {read} of the {} bytes of its message are left",
                buf.len()
            )));
        }
        Ok(())
    }
}

impl Taker for Reader {
    const DESCRIPTORS: bool = false;

    #[inline]
    fn copy(
        &mut self,
        notice: &Notice,
        _fd: Option<OwnedFd>,
        socket: BorrowedFd<'_>,
        buf: &mut [u8],
    ) -> Result<(), RecvError> {
        let mut stamp = [0; 8];
        let payload = notice.address.wrapping_add(HEADER as u64);
        let whole = stamp.len() + buf.len();
        // The pieces are read in order: a stamp found after the payload was valid during the whole read.
        match cma::read(notice.pid, [(payload, &mut *buf), (notice.address, &mut stamp)]) {
            Ok(read) if read == whole && u64::from_ne_bytes(stamp) == notice.stamp => Ok(()),
            Ok(_) => self.read_late(notice, socket, buf, Errno::FAULT),
            Err(errno) => self.read_late(notice, socket, buf, errno),
        }
    }

    #[inline]
    fn show<R>(
        &mut self,
        notice: &Notice,
        fd: Option<OwnedFd>,
        socket: BorrowedFd<'_>,
        scratch: &mut [u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        self.copy(notice, fd, socket, scratch)?;
        Ok(read(scratch))
    }
}

fn copy_of(fd: impl AsFd) -> Result<OwnedFd, OpenError> {
    let fd = fd.as_fd().try_clone_to_owned();
    Ok(fd.map_err(|e| OsError::new("dup", "memfd", e))?)
}

/// Rejects a listening end in another PID namespace, because its process ID would name another process
/// here, or none. `claimed` is the listening end's process ID according to its offer; `seen` is its process ID in this
/// namespace according to the kernel, 0 if it is not visible here.
pub(super) fn check_namespace(
    mechanism: &'static str,
    claimed: u32,
    seen: u32,
) -> Result<(), OpenError> {
    if claimed == seen {
        return Ok(());
    }
    Err(OpenError::Unsupported {
        mechanism,
        why: format!(
            "the listening end is process {claimed} in another PID namespace, so it cannot be \
             addressed from here; run both ends in one PID namespace"
        ),
    })
}

/// What helps if one process may not trace another, or cannot read its memory.
pub(super) fn remedy(errno: Errno) -> String {
    match (errno, cma::yama_scope()) {
        (Errno::NOSYS, _) => "use a kernel with CONFIG_CROSS_MEMORY_ATTACH".to_owned(),
        (_, Some(3)) => {
            "kernel.yama.ptrace_scope = 3 cannot be changed until the next boot: set it to 1 in /etc/sysctl.d and \
             reboot".to_owned()
        }
        (_, Some(2)) => "run as root: sysctl -w kernel.yama.ptrace_scope=1".to_owned(),
        _ => "allow the processes to trace each other: start a container with --cap-add SYS_PTRACE".to_owned(),
    }
}

impl Mechanism for Cma {
    const ID: &'static str = "cma";
    const ABOUT: &'static str =
        "cross-memory attach: the receiver reads the sender's memory (process_vm_readv)";
    const CARRIER: Carrier =
        Carrier::new(Family::Other, Transport::Memory).copied_once().meeting(&[Meeting::Pid]);
    type Tx = CmaTx;
    type Rx = CmaRx;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        Caps { in_place: true, waitable_fd: true, privilege: Privilege::Ptrace, ..Caps::PLAIN }
    }

    fn probe() -> Probe {
        let tried = cma::try_here();
        let why = |e| format!("another process's memory cannot be read: process_vm_readv: {e}");
        Probe::of_kernel(tried.map_err(why), &tried.map_or_else(remedy, |()| String::new()))
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let layout = Layout::of(spec, HEADER);
        let bytes = layout.slots * layout.slot_bytes;
        let pages = Pages::new("crossway-cma", bytes)?;
        let back = shm::create_sealed("crossway-cma", bytes)?;
        let (there_here, there_peer) = socket::unix_pair(SocketType::Seqpacket)?;
        let (back_here, back_peer) = socket::unix_pair(SocketType::Seqpacket)?;
        let offer = Offer::new()
            .with_word("pid", std::process::id())
            .with_fd("read", there_peer)
            .with_fd("read-memory", copy_of(&pages)?)
            .with_fd("write", back_peer)
            .with_fd("write-memory", copy_of(&back)?);
        let tx = ParcelTx::new(Slots::new(pages, layout), there_here, layout, spec.wait);
        let rx = ParcelRx::new(Reader { layout, memory: back }, back_here, layout, spec.wait);
        Ok((Complete::new(Self::ID, (tx, rx)), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let pid: u32 = offer.word(Self::ID, "pid")?;
        let mut take = |name| offer.take_fd(Self::ID, name);
        let (read, memory) = (take("read")?, take("read-memory")?);
        check_namespace(Self::ID, pid, socket::peer_credentials(&read)?.pid)?;
        let (write, own_memory) = (take("write")?, take("write-memory")?);
        let layout = Layout::of(spec, HEADER);
        let pages = Pages::of_memfd(own_memory)?;
        if pages.len() != layout.slots * layout.slot_bytes {
            let why =
                "the offered memory does not have the size that this end expects; both ends must be opened with the \
                 same settings"
                    .to_owned();
            return Err(OpenError::BadOffer { mechanism: Self::ID, why });
        }
        let tx = ParcelTx::new(Slots::new(pages, layout), write, layout, spec.wait);
        let rx = ParcelRx::new(Reader { layout, memory }, read, layout, spec.wait);
        Ok((tx, rx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listener;
    use crate::{Rx, Tx};

    #[test]
    fn memory_that_has_another_stamp_is_never_taken_for_the_message() {
        let spec = Spec { max_message: 64, ..Spec::default() };
        let layout = Layout::of(&spec, HEADER);
        let mut slots = Slots::new(Pages::new("crossway-test", 4096).unwrap(), layout);
        let memory = copy_of(&slots.pages).unwrap();
        slots.payload(0, 4).copy_from_slice(b"true");
        let notice = slots.notice(0, 0, 4);
        // Another program's memory at the same address of a process with the same id.
        let stranger = Pages::new("crossway-test", 4096).unwrap();
        let misled = Notice { address: stranger.address(), ..notice };
        let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket).unwrap();
        drop(theirs);
        let mut buf = [0; 4];
        let mut reader = Reader { layout, memory };
        reader.copy(&misled, None, ours.as_fd(), &mut buf).unwrap();
        assert_eq!(&buf, b"true");
    }

    #[test]
    fn an_end_in_another_pid_namespace_is_refused() {
        check_namespace(Cma::ID, 17, 17).unwrap();
        for seen in [0, 4711] {
            let error = check_namespace(Cma::ID, 17, seen).unwrap_err().to_string();
            assert!(error.contains("one PID namespace"), "{error}");
        }
        let spec = Spec { max_message: 64, ..Spec::default() };
        let (_listener, mut offer) = Cma::listen(&spec).unwrap();
        // What an offer from another namespace looks like here.
        offer.words.insert("pid".to_owned(), "1".to_owned());
        assert!(matches!(Cma::connect(&spec, &mut offer), Err(OpenError::Unsupported { .. })));
    }

    #[test]
    fn messages_of_a_dropped_half_are_still_received() {
        let spec = Spec { max_message: 64, ..Spec::default() };
        let (listener, mut offer) = Cma::listen(&spec).unwrap();
        let (mut tx, _rx) = Cma::connect(&spec, &mut offer).unwrap();
        let mut listener = listener;
        let (_tx, mut rx) = listener.accept(None).unwrap();
        for n in 0..5 {
            tx.send(&[n; 64], None).unwrap();
        }
        drop(tx);
        let mut buf = [0; 64];
        for n in 0..5 {
            assert_eq!(rx.recv(&mut buf, None).unwrap(), 64);
            assert_eq!(buf, [n; 64]);
        }
        assert!(matches!(rx.recv(&mut buf, None), Err(RecvError::PeerClosed)));
    }
}
