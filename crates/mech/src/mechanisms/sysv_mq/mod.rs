//! System V message queues, one each way.
//!
//! Each message costs one system call at each end (`msgsnd`, `msgrcv`). Waiting with a deadline takes four: these calls
//! have no timeout, so they are tried once without waiting, and then made under a timer that interrupts them.
//!
//! A queue exists until it is removed, and does not know which processes use it. The receiving end removes its queue
//! and holds a lease on it. If the receiver has died, the sending end removes the queue, which wakes a sleeping sender
//! (`EIDRM`). When the sender has ended, the receiver's watching thread puts a note into the queue, with a type that is
//! received after all messages. docs/decisions/0020-queues-and-peer-death.md describes the alternatives.

mod halves;

use std::ffi::c_long;

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::patience::Patience;
use crossway_sys::peer_watch::{self};
use crossway_sys::sysv_queue::{Envelope, Limits, SysvQueue};
use crossway_sys::{Errno, OsError};

use crate::building_blocks::complete::Complete;
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport};

pub use halves::{SysvRx, SysvTx};

/// The type of messages. A note that reports the end of the sender has the next higher type, which is received last.
const MESSAGE: c_long = 1;
const NOTE: c_long = 2;

/// Number of random keys to try until one is free. There are 2^31 keys, so the first one usually is.
const KEYS_TO_TRY: usize = 16;

/// The mechanism `sysv-mq`, svipc(7): two queues with random keys, one each way.
#[derive(Debug)]
pub struct SysvMq;

/// Creates a queue for the spec. Returns it with its lease and key.
fn leased_queue(spec: &Spec) -> Result<(SysvQueue, Lease, i32), OpenError> {
    let mut tries = 0;
    let (queue, lease, key) = loop {
        let key = lease::fresh_key();
        let lease = lease::hold(Resource::SysvMsg { key })?;
        match SysvQueue::create(key) {
            Ok(queue) => break (queue, lease, key),
            Err(error) => {
                lease.cancel();
                tries += 1;
                if error.errno() != Errno::EXIST.raw_os_error() || tries == KEYS_TO_TRY {
                    return Err(error.into());
                }
            }
        }
    };
    let granted = queue.status()?.queue_bytes;
    let wanted = spec.capacity_bytes.unwrap_or(granted).max(spec.max_message);
    if wanted != granted {
        match queue.set_queue_bytes(wanted) {
            // Above msgmnb: the capacity is reduced to what the system grants.
            Err(error) if error.errno() == Errno::PERM.raw_os_error() => {
                if spec.max_message > granted {
                    return Err(too_large(spec.max_message, Limits::read()));
                }
            }
            done => done?,
        }
    }
    Ok((queue, lease, key))
}

fn check_size(spec: &Spec) -> Result<(), OpenError> {
    match Limits::read() {
        Some(limits) if spec.max_message > limits.message_bytes => {
            Err(too_large(spec.max_message, Some(limits)))
        }
        _ => Ok(()),
    }
}

fn too_large(len: usize, limits: Option<Limits>) -> OpenError {
    let shown = |limit: fn(&Limits) -> usize| {
        limits.as_ref().map_or("unknown".to_owned(), |limits| limit(limits).to_string())
    };
    let (msgmax, msgmnb) = (shown(|l| l.message_bytes), shown(|l| l.queue_bytes));
    let remedy = SysvMq::remedy_for_size(len).unwrap_or_default();
    OpenError::Unsupported {
        mechanism: SysvMq::ID,
        why: format!(
            "messages of {len} bytes exceed kernel.msgmax = {msgmax} or kernel.msgmnb = {msgmnb}; {remedy}, or request \
             smaller messages"
        ),
    }
}

impl Mechanism for SysvMq {
    const ID: &'static str = "sysv-mq";
    const ABOUT: &'static str = "System V message queue, one each way (msgget, msgsnd, msgrcv)";
    const CARRIER: Carrier = Carrier::new(Family::Queue, Transport::Queue);
    type Tx = SysvTx;
    type Rx = SysvRx;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        Caps { max_message: Limits::read().map(|limits| limits.message_bytes), ..Caps::PLAIN }
    }

    fn remedy_for_size(len: usize) -> Option<String> {
        let (msgmax, msgmnb) = Limits::read().map_or((0, 0), |l| (l.message_bytes, l.queue_bytes));
        Some(format!(
            "run as root: sysctl -w kernel.msgmax={} kernel.msgmnb={}",
            len.max(msgmax),
            (4 * len).max(msgmnb)
        ))
    }

    fn probe() -> Probe {
        let tried = leased_queue(&Spec { max_message: 8, ..Spec::default() }).and_then(
            |(queue, _lease, _)| {
                let mut envelope = Envelope::with_room(8);
                queue
                    .send(&mut envelope, MESSAGE, 1, Patience::Now)
                    .and_then(|_| queue.receive(&mut envelope, NOTE, Patience::Now))
                    .map_err(|errno| OsError::new("msgrcv", queue.id(), errno).into())
            },
        );
        Probe::of_kernel(
            tried,
            "use a kernel with CONFIG_SYSVIPC; if it has no free queue, remove unused ones (ipcs -q, ipcrm) or raise \
             the limit as root: sysctl -w kernel.msgmni=32000",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check_size(spec)?;
        let (there, there_lease, there_key) = leased_queue(spec)?;
        let (back, back_lease, _) = leased_queue(spec)?;
        let (there_here, there_peer) = peer_watch::pair()?;
        let (back_here, back_peer) = peer_watch::pair()?;
        let offer = Offer::new()
            .with_word("read-id", there.id())
            .with_word("read-key", there_key)
            .with_word("write-id", back.id())
            .with_fd("read-lifeline", there_peer)
            .with_fd("write-lifeline", back_peer);
        let max = spec.max_message;
        let tx = SysvTx::new(there, Some(there_lease), there_here, spec.wait, max)?;
        let rx = SysvRx::new(back, back_lease, back_here, spec.wait, max)?;
        Ok((Complete::new(Self::ID, (tx, rx)), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let read = SysvQueue::from_id(offer.word(Self::ID, "read-id")?);
        read.status()?;
        // The queue no longer exists if the peer has already ended; the first send will report that.
        let write = SysvQueue::from_id(offer.word(Self::ID, "write-id")?);
        let key = offer.word(Self::ID, "read-key")?;
        let read_lifeline = offer.take_fd(Self::ID, "read-lifeline")?;
        let write_lifeline = offer.take_fd(Self::ID, "write-lifeline")?;
        let lease = lease::hold(Resource::SysvMsg { key })?;
        let max = spec.max_message;
        let tx = SysvTx::new(write, None, write_lifeline, spec.wait, max)?;
        let rx = SysvRx::new(read, lease, read_lifeline, spec.wait, max)?;
        Ok((tx, rx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, RecvError, Rx, Tx};

    fn exists(id: i32) -> bool {
        SysvQueue::from_id(id).status().is_ok()
    }

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let watchdog = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !holds() {
            assert!(std::time::Instant::now() < watchdog, "never: {what}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn an_offer_that_nobody_takes_leaves_no_queue() {
        let spec = Spec { max_message: 64, ..Spec::default() };
        let (listener, offer) = SysvMq::listen(&spec).unwrap();
        let ids: Vec<i32> =
            ["read-id", "write-id"].map(|w| offer.word("sysv-mq", w).unwrap()).to_vec();
        assert!(ids.iter().all(|&id| exists(id)));
        drop(listener);
        drop(offer);
        wait_until("both queues removed", || !ids.iter().any(|&id| exists(id)));
    }

    #[test]
    fn messages_sent_before_the_receiver_opened_and_the_sender_closed_arrive() {
        let spec = Spec { max_message: 64, ..Spec::default() };
        let (mut listener, mut offer) = SysvMq::listen(&spec).unwrap();
        let id = offer.word("sysv-mq", "read-id").unwrap();
        let (mut tx, rx) = listener.accept(None).unwrap();
        tx.send(b"early", None).unwrap();
        drop((tx, rx, listener));
        let (_tx, mut rx) = SysvMq::connect(&spec, &mut offer).unwrap();
        let mut buf = [0; 64];
        assert_eq!(rx.recv(&mut buf, None).unwrap(), 5);
        assert!(matches!(rx.recv(&mut buf, None), Err(RecvError::PeerClosed)));
        drop(rx);
        assert!(!exists(id));
    }

    #[test]
    fn an_unavailable_size_names_the_command_that_raises_it() {
        let msgmax = Limits::read().unwrap().message_bytes;
        let spec = Spec { max_message: msgmax + 1, ..Spec::default() };
        let error = SysvMq::listen(&spec).unwrap_err().to_string();
        assert!(error.contains(&format!("sysctl -w kernel.msgmax={}", msgmax + 1)), "{error}");
    }
}
