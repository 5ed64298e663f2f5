//! `uring-msg`: each message is a completion that the sender posts into the receiver's io_uring
//! (IORING_OP_MSG_RING). A program that waits for its input in one ring thus waits for the messages
//! of other processes there, too.
//!
//! A completion carries 64 bits and a length. So the payload is in the sender's shared memory, in
//! slots that are used in turn; the 64 bits are the message's number. Each message costs one system
//! call at the sender, and one at a receiver that waits (`io_uring_enter`). Each time the receiver
//! has taken half as many messages as there are slots, it posts into the sender's ring that these
//! are free.
//!
//! Each end needs a descriptor of the other's rings, and UNIX sockets have not carried those since
//! Linux 6.7. So both take them from the other process (pidfd_getfd), for which they need
//! permission to trace each other.

mod halves;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use crossway_sys::pages::{Pages, View};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, SocketType};
use crossway_sys::uring_msg::{Mailbox, is_ring};
use crossway_sys::{Errno, OsError, cma, proc, shm};

use super::cma::{check_namespace, remedy};
use super::uring_stream::missing_ring;
use crate::building_blocks::complete::no_second_channel;
use crate::building_blocks::slots::Layout;
use crate::self_test::exchange_a_byte;
use crate::{
    Caps, Carrier, Deadline, Family, Listener, Mechanism, Meeting, Offer, OpenError, Privilege,
    Probe, Spec, Transport,
};

use halves::Line;
pub use halves::{UringMsgRx, UringMsgTx};

/// The mechanism `uring-msg`.
#[derive(Debug)]
pub struct UringMsg;

/// Length in bytes of the largest message; a completion's length has 31 bits.
const LARGEST: usize = 1 << 30;

/// The process and the number of a ring's descriptor, by which an end introduces itself.
const HELLO_LEN: usize = 8;

/// A ring and the sockets of one direction, before the peer's ring is known.
#[derive(Debug)]
struct Half {
    mailbox: Mailbox,
    /// Tells when the peer has ended.
    socket: OwnedFd,
    /// Tells the peer when this half has ended. No ring may watch it: see [`Line`].
    life: OwnedFd,
}

impl Half {
    fn new(layout: Layout, socket: OwnedFd, life: OwnedFd) -> Result<Half, OpenError> {
        Ok(Half { mailbox: Mailbox::new(layout.slots as u32)?, socket, life })
    }

    /// The number of the ring's descriptor in this process.
    fn number(&self) -> i32 {
        self.mailbox.as_fd().as_raw_fd()
    }

    /// Tells the listening end which ring this is.
    fn introduce(&self) -> Result<(), OpenError> {
        let mut hello = [0; HELLO_LEN];
        hello[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        hello[4..].copy_from_slice(&self.number().to_ne_bytes());
        let sent = socket::send(&self.life, &hello, false);
        Ok(sent.map(drop).map_err(|e| OsError::new("send", "introduction", e))?)
    }

    /// Waits for the connecting end's introduction.
    fn meet(&self, until: Deadline) -> Result<OwnedFd, OpenError> {
        let start = Instant::now();
        if !wait_ready(&self.socket, Interest::Readable, until)
            .map_err(|e| OsError::new("poll", "introduction", e))?
        {
            let waited = start.elapsed();
            return Err(OpenError::TimedOut { mechanism: UringMsg::ID, waited });
        }
        let mut hello = [0; HELLO_LEN];
        match socket::recv(&self.socket, &mut hello, true) {
            Ok(HELLO_LEN) => {
                let four = |at: usize| std::array::from_fn(|i| hello[at + i]);
                take_ring(u32::from_ne_bytes(four(0)), i32::from_ne_bytes(four(4)))
            }
            Ok(_) => Err(OsError::new("recv", "introduction", Errno::CONNRESET).into()),
            Err(errno) => Err(OsError::new("recv", "introduction", errno).into()),
        }
    }

    fn with(self, peer: OwnedFd) -> Line {
        Line::new(self.mailbox, peer, self.socket, self.life)
    }
}

/// Takes a descriptor of a ring out of another process.
fn take_ring(pid: u32, number: i32) -> Result<OwnedFd, OpenError> {
    let ring = proc::descriptor_of(pid, number)?;
    if is_ring(&ring) {
        return Ok(ring);
    }
    let why = format!("descriptor {number} of process {pid} is not an io_uring");
    Err(OpenError::BadOffer { mechanism: UringMsg::ID, why })
}

/// The layout of a direction's slots.
fn layout(spec: &Spec) -> Result<Layout, OpenError> {
    if spec.max_message <= LARGEST {
        return Ok(Layout::of(spec, 0));
    }
    let why = format!("messages have at most {LARGEST} bytes; request a smaller size");
    Err(OpenError::Unsupported { mechanism: UringMsg::ID, why })
}

/// The listening side, which knows the peer's rings only once that has introduced itself.
#[derive(Debug)]
pub struct UringMsgListener {
    halves: Option<[Half; 2]>,
    /// The peer's rings that are known so far.
    met: Vec<OwnedFd>,
    memory: Option<(Pages, View)>,
    layout: Layout,
    spec: Spec,
}

impl Listener for UringMsgListener {
    type Tx = UringMsgTx;
    type Rx = UringMsgRx;

    fn accept(&mut self, until: Deadline) -> Result<(UringMsgTx, UringMsgRx), OpenError> {
        let Some(halves) = &self.halves else { return Err(no_second_channel(UringMsg::ID)) };
        let until = until.or(Some(Instant::now() + self.spec.open_timeout));
        for half in &halves[self.met.len()..] {
            self.met.push(half.meet(until)?);
        }
        let taken = self.halves.take().zip(self.memory.take());
        let (Some(([tx, rx], (pages, view))), Some(to_rx), Some(to_tx)) =
            (taken, self.met.pop(), self.met.pop())
        else {
            return Err(no_second_channel(UringMsg::ID));
        };
        Ok((
            UringMsgTx::new(pages, tx.with(to_tx), self.layout, self.spec.wait),
            UringMsgRx::new(view, rx.with(to_rx), self.layout, self.spec.wait),
        ))
    }
}

impl Mechanism for UringMsg {
    const ID: &'static str = "uring-msg";
    const ABOUT: &'static str = "completions posted into the receiver's io_uring (IORING_OP_MSG_RING), \
         with the payload in shared memory";
    const CARRIER: Carrier =
        Carrier::new(Family::Uring, Transport::Memory).copied_once().meeting(&[Meeting::Pid]);
    type Tx = UringMsgTx;
    type Rx = UringMsgRx;
    type Listener = UringMsgListener;

    fn caps() -> Caps {
        Caps {
            max_message: Some(LARGEST),
            in_place: true,
            waitable_fd: true,
            privilege: Privilege::Ptrace,
            ..Caps::PLAIN
        }
    }

    fn probe() -> Probe {
        if let Some((why, remedy)) = missing_ring() {
            return Probe::of_kernel(Err::<(), _>(why), remedy);
        }
        // Permission to trace another process; within one process, nothing is refused. A kernel
        // that cannot read the memory of others may know this mechanism all the same.
        if let Err(errno) = cma::try_here()
            && errno != Errno::NOSYS
        {
            let why =
                format!("descriptors of another process cannot be taken: pidfd_getfd: {errno}");
            return Probe::of_kernel(Err::<(), _>(why), &remedy(errno));
        }
        Probe::of_kernel(
            exchange_a_byte::<Self>(),
            "use Linux 5.18 or later, which has IORING_OP_MSG_RING, and allow pidfd_getfd in this \
             process's seccomp profile",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let layout = layout(spec)?;
        cma::let_others_read();
        let bytes = layout.slots * layout.slot_bytes;
        let pages = Pages::new("crossway-uring-msg", bytes)?;
        let back = shm::create_sealed("crossway-uring-msg", bytes)?;
        let view = View::new(back.as_fd(), bytes, bytes)?;
        let pair = || socket::unix_pair(SocketType::Seqpacket);
        let ((there, read), (there_life, read_life)) = (pair()?, pair()?);
        let ((back_again, write), (back_life, write_life)) = (pair()?, pair()?);
        let tx = Half::new(layout, there, there_life)?;
        let rx = Half::new(layout, back_again, back_life)?;
        let own =
            pages.as_fd().try_clone_to_owned().map_err(|e| OsError::new("dup", "memfd", e))?;
        let offer = Offer::new()
            .with_word("pid", std::process::id())
            .with_word("read-ring", tx.number())
            .with_word("write-ring", rx.number())
            .with_fd("read", read)
            .with_fd("read-life", read_life)
            .with_fd("read-memory", own)
            .with_fd("write", write)
            .with_fd("write-life", write_life)
            .with_fd("write-memory", back);
        let (halves, memory) = (Some([tx, rx]), Some((pages, view)));
        let met = Vec::new();
        Ok((UringMsgListener { halves, met, memory, layout, spec: spec.clone() }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let layout = layout(spec)?;
        cma::let_others_read();
        let pid: u32 = offer.word(Self::ID, "pid")?;
        let numbers = [offer.word(Self::ID, "write-ring")?, offer.word(Self::ID, "read-ring")?];
        let mut take = |name| offer.take_fd(Self::ID, name);
        let (write, read) = (take("write")?, take("read")?);
        let (write_life, read_life) = (take("write-life")?, take("read-life")?);
        let (own, others) = (take("write-memory")?, take("read-memory")?);
        check_namespace(Self::ID, pid, socket::peer_credentials(&read)?.pid)?;
        let bytes = layout.slots * layout.slot_bytes;
        let pages = Pages::of_memfd(own)?;
        let view = View::new(others.as_fd(), bytes, bytes).ok().filter(|_| pages.len() == bytes);
        let Some(view) = view else {
            let why = "the offered memory does not have the size that this end expects; both ends \
                       must be opened with the same settings"
                .to_owned();
            return Err(OpenError::BadOffer { mechanism: Self::ID, why });
        };
        let [to_tx, to_rx] = [take_ring(pid, numbers[0])?, take_ring(pid, numbers[1])?];
        let (tx, rx) = (Half::new(layout, write_life, write)?, Half::new(layout, read_life, read)?);
        // The listening end waits on the socket of its sending half first.
        rx.introduce()?;
        tx.introduce()?;
        Ok((
            UringMsgTx::new(pages, tx.with(to_tx), layout, spec.wait),
            UringMsgRx::new(view, rx.with(to_rx), layout, spec.wait),
        ))
    }
}
