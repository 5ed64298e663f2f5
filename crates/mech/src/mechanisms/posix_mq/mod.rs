//! POSIX message queues, one each way.
//!
//! Each message costs one system call at each end (`mq_timedsend`, `mq_timedreceive`), with or
//! without a deadline.
//!
//! A queue does not know which processes have it open, so after a peer's death the other end would
//! sleep for ever. Each half therefore holds one end of a lifeline, and has a thread that sleeps on
//! it (`PeerWatch`). When the peer ends, the thread of a receiver puts a note into the queue with a
//! lower priority than any message, so that the note is received after everything that the peer has
//! sent. The thread of a sender empties the queue, which nobody reads any more. Each of these two
//! actions wakes an end that sleeps in the plain call. docs/decisions/0020-queues-and-peer-death.md
//! describes the alternatives.

mod halves;

use std::os::fd::AsFd;

use crossway_sys::lease::{self, Resource};
use crossway_sys::mqueue::{Limits, MessageQueue, largest_message_bytes};
use crossway_sys::patience::Patience;
use crossway_sys::peer_watch;
use crossway_sys::proc::message_queue_limits;
use crossway_sys::{Errno, OsError};

use crate::building_blocks::complete::Complete;
use crate::{Caps, Carrier, Family, Mechanism, Meeting, Offer, OpenError, Probe, Spec, Transport};

pub use halves::{MqRx, MqTx};

/// The priority of messages. A note that reports the end of the sender has the next lower priority.
const MESSAGE: u32 = 1;
const NOTE: u32 = 0;

/// Number of messages in a queue if no capacity is requested: the kernel's own default
/// (`msg_default`).
const DEFAULT_MESSAGES: usize = 10;

/// The mechanism `posix-mq`, mq_overview(7): two queues, one each way, whose names are removed
/// immediately.
#[derive(Debug)]
pub struct PosixMq;

/// Creates two queues for the spec. The capacity is reduced to what the system grants; the message
/// size is not reduced.
fn two_queues(spec: &Spec) -> Result<(MessageQueue, MessageQueue), OpenError> {
    let message_bytes = spec.max_message.max(1);
    let mut messages = spec.capacity_bytes.map_or(DEFAULT_MESSAGES, |n| (n / message_bytes).max(1));
    let limits = Limits::read();
    let name = format!("/{}", lease::fresh_name("mq"));
    // Each name is unlinked immediately, so the second queue can reuse the name of the first.
    let lease = lease::hold(Resource::PosixMq { name: name.clone() })?;
    let create = |messages| {
        let first = MessageQueue::create_unnamed(&name, messages, message_bytes)?;
        Ok((first, MessageQueue::create_unnamed(&name, messages, message_bytes)?))
    };
    let made = loop {
        let error: OsError = match create(messages) {
            Ok(queues) => break Ok(queues),
            Err(error) => error,
        };
        let most = limits.map_or(messages, |l| l.messages);
        match error.errno() {
            libc_errno::EINVAL if messages > most => messages = most,
            libc_errno::EMFILE if messages > 1 => messages /= 2,
            libc_errno::EINVAL | libc_errno::EMFILE => {
                break Err(OpenError::Unsupported {
                    mechanism: PosixMq::ID,
                    why: too_large(message_bytes, limits, &error),
                });
            }
            _ => break Err(error.into()),
        }
    };
    // The names were unlinked, or never created.
    lease.cancel();
    made
}

/// The errnos by which `mq_open` reports that a limit is exceeded.
mod libc_errno {
    pub(super) const EINVAL: i32 = crossway_sys::Errno::INVAL.raw_os_error();
    pub(super) const EMFILE: i32 = crossway_sys::Errno::MFILE.raw_os_error();
}

fn too_large(message_bytes: usize, limits: Option<Limits>, error: &OsError) -> String {
    if error.errno() == libc_errno::EMFILE {
        return format!(
            "two queues for messages of {message_bytes} bytes exceed RLIMIT_MSGQUEUE or the limit of open files \
             ({error}); raise the limit ({}, or ulimit -n), or request smaller messages",
            raising_queue_limit(message_bytes, message_queue_limits())
        );
    }
    let granted = limits.map_or("unknown".to_owned(), |l| l.message_bytes.to_string());
    let remedy = PosixMq::remedy_for_size(message_bytes).unwrap_or_default();
    format!(
        "messages of {message_bytes} bytes exceed fs.mqueue.msgsize_max = {granted}; {remedy}, or request smaller \
         messages"
    )
}

/// Returns how many bytes of RLIMIT_MSGQUEUE two queues of one message each need: for each message,
/// the kernel counts two small structures in addition to the message's size.
fn least_queue_limit(message_bytes: usize) -> u64 {
    2 * (message_bytes as u64 + 128)
}

/// Returns the command that raises RLIMIT_MSGQUEUE, given its value and maximum, so that two queues
/// fit beside other queues of this user that need as much.
fn raising_queue_limit(message_bytes: usize, (_, maximum): (u64, u64)) -> String {
    let wanted = 2 * least_queue_limit(message_bytes);
    if wanted <= maximum {
        format!("ulimit -q {wanted}")
    } else {
        format!("as root: prlimit --pid PID --msgqueue={wanted}, with the PID of your shell")
    }
}

/// Returns the commands that make messages of `len` bytes possible, given the value and the maximum
/// of RLIMIT_MSGQUEUE.
fn raising_message_size(len: usize, queue_limits: (u64, u64)) -> String {
    let mut text = format!("run as root: sysctl -w fs.mqueue.msgsize_max={len}");
    if queue_limits.0 < least_queue_limit(len) {
        text.push_str(&format!("; then {}", raising_queue_limit(len, queue_limits)));
    }
    text
}

impl Mechanism for PosixMq {
    const ID: &'static str = "posix-mq";
    const ABOUT: &'static str = "POSIX message queue, one each way (mq_overview)";
    const CARRIER: Carrier =
        Carrier::new(Family::Queue, Transport::Queue).meeting(&[Meeting::Ipc, Meeting::Descriptor]);
    type Tx = MqTx;
    type Rx = MqRx;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        Caps { max_message: Some(largest_message_bytes()), waitable_fd: true, ..Caps::PLAIN }
    }

    fn remedy_for_size(len: usize) -> Option<String> {
        Some(raising_message_size(len, message_queue_limits()))
    }

    fn probe() -> Probe {
        let spec = Spec { max_message: 64, ..Spec::default() };
        let tried = two_queues(&spec).and_then(|(queue, _)| {
            let mut buf = [0; 64];
            let sent = queue.send(b"?", MESSAGE, Patience::Now);
            let received = sent.and_then(|_| queue.receive(&mut buf, Patience::Now));
            received.map_err(|errno| OsError::new("mq_timedreceive", "", errno).into())
        });
        let remedy = match &tried {
            Err(OpenError::Os(error)) if error.errno() == Errno::NOSYS.raw_os_error() => {
                "use a kernel with CONFIG_POSIX_MQUEUE"
            }
            _ => {
                "raise the limits as root: sysctl -w fs.mqueue.queues_max=1024; \
                 prlimit --pid PID --msgqueue=unlimited, with the PID of your shell"
            }
        };
        Probe::of_kernel(tried, remedy)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (there, back) = two_queues(spec)?;
        let (there_here, there_peer) = peer_watch::pair()?;
        let (back_here, back_peer) = peer_watch::pair()?;
        let copy = |queue: &MessageQueue| {
            queue.as_fd().try_clone_to_owned().map_err(|e| OsError::new("dup", "message queue", e))
        };
        let offer = Offer::new()
            .with_fd("read", copy(&there)?)
            .with_fd("read-lifeline", there_peer)
            .with_fd("write", copy(&back)?)
            .with_fd("write-lifeline", back_peer);
        let tx = MqTx::new(there, there_here, spec.wait)?;
        let rx = MqRx::new(back, back_here, spec.wait)?;
        Ok((Complete::new(Self::ID, (tx, rx)), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let mut take = |name| offer.take_fd(Self::ID, name);
        let (read, read_lifeline) = (take("read")?, take("read-lifeline")?);
        let (write, write_lifeline) = (take("write")?, take("write-lifeline")?);
        let tx = MqTx::new(MessageQueue::from_fd(write)?, write_lifeline, spec.wait)?;
        let rx = MqRx::new(MessageQueue::from_fd(read)?, read_lifeline, spec.wait)?;
        Ok((tx, rx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, RecvError, Rx, Tx};

    #[test]
    fn an_unavailable_size_names_the_command_that_raises_it() {
        let spec = Spec { max_message: (16 << 20) + 1, ..Spec::default() };
        let error = two_queues(&spec).unwrap_err().to_string();
        assert!(error.contains("sysctl -w fs.mqueue.msgsize_max=16777217"), "{error}");
    }

    #[test]
    fn the_limit_of_queues_is_only_raised_if_it_is_too_low() {
        let usual = (819_200, 819_200);
        assert_eq!(
            raising_message_size(65_536, usual),
            "run as root: sysctl -w fs.mqueue.msgsize_max=65536"
        );
        let large = raising_message_size(1 << 20, usual);
        assert!(
            large.ends_with(
                "; then as root: prlimit --pid PID --msgqueue=4194816, with the PID of your shell"
            ),
            "{large}"
        );
        let granted = raising_message_size(1 << 20, (819_200, u64::MAX));
        assert!(granted.ends_with("; then ulimit -q 4194816"), "{granted}");
    }

    #[test]
    fn room_is_cut_to_what_the_system_grants() {
        let spec = Spec { max_message: 64, capacity_bytes: Some(64 << 20), ..Spec::default() };
        let (queue, _) = two_queues(&spec).unwrap();
        let attributes = queue.attributes().unwrap();
        assert_eq!(attributes.message_bytes, 64);
        assert!(attributes.messages >= 1);
    }

    #[test]
    fn the_descriptor_stays_readable_after_the_peer_ended() {
        use crossway_sys::poll::{Interest, wait_ready};
        let spec = Spec { max_message: 64, ..Spec::default() };
        let (mut listener, mut offer) = PosixMq::listen(&spec).unwrap();
        let (mut tx, _rx) = PosixMq::connect(&spec, &mut offer).unwrap();
        let (_tx, mut rx) = listener.accept(None).unwrap();
        let sent = (0..u8::MAX).take_while(|n| tx.try_send(&[*n]).is_ok()).count();
        drop(tx);
        for n in 0..sent {
            assert!(wait_ready(rx.wait_fd().unwrap(), Interest::Readable, None).unwrap());
            let mut buf = [0; 1];
            assert_eq!(rx.recv(&mut buf, None).unwrap(), 1);
            assert_eq!(usize::from(buf[0]), n);
        }
        for _ in 0..2 {
            assert!(wait_ready(rx.wait_fd().unwrap(), Interest::Readable, None).unwrap());
            assert!(matches!(rx.try_recv(&mut [0; 64]), Err(RecvError::PeerClosed)));
        }
    }
}
