//! Real-time signals that carry a value (`sigqueue(3)`), one signal number for each direction.
//!
//! Each message costs one system call at each end (`pidfd_send_signal`, `sigtimedwait`), and the kernel allocates an
//! entry for each queued signal. A message is the value of one signal, so it has at most 8 bytes. Its length and a
//! number that identifies the channel are in `si_errno`, which the kernel passes on. Larger messages are refused, not
//! divided, because no program would send them by signals.
//!
//! The kernel limits the total number of queued signals of a user's processes (`RLIMIT_SIGPENDING`). A sender that
//! reaches the limit gets EAGAIN, and is not notified when there is room again. So the receiver grants credits: each
//! time it has taken half a window of messages, it queues one signal to the sender. The receiver passes its pidfd in
//! the offer and is addressed by it, because a process ID may be reused, and the signal would then kill an unrelated
//! process. Signals do not reveal that the peer has closed or died. Each half therefore holds one end of a lifeline,
//! and has a thread that sleeps on it ([`peer_watch`]) and queues a note to its own process.
//!
//! A signal kills a process if one of its threads does not block that signal. Opening a channel therefore fails unless
//! all threads of the process block real-time signals (`crossway_sys::signal_queue::block_all`, before the first thread
//! is started). docs/decisions/0022-signals.md gives the reasons.

mod halves;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_sys::peer_watch;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::signal_queue::{self, Inbox, VALUE_BYTES};
use crossway_sys::{Errno, OsError, fdpass};

use halves::{Address, Peer, tag, watch};
pub use halves::{SignalRx, SignalTx};

use crate::building_blocks::complete::no_second_channel;
use crate::{
    Caps, Carrier, Deadline, Family, Listener, Mechanism, Meeting, Offer, OpenError, Probe, Spec,
    Transport, Wait,
};

/// Number of signals in flight in each direction if no capacity is requested.
const DEFAULT_MESSAGES: usize = 64;

/// One channel may use at most 1/`SHARE` of the signals that all processes of the user together may have queued.
const SHARE: usize = 8;

/// The mechanism `signal`: real-time signals with a value of up to 8 bytes, pidfd_send_signal(2) to queue and
/// sigtimedwait(2) to receive.
#[derive(Debug)]
pub struct Signal;

/// An end whose peer is not known yet.
#[derive(Debug)]
struct Half {
    messages: Inbox,
    credits: Inbox,
    at: Address,
}

impl Half {
    fn new() -> Result<Self, OpenError> {
        let claimed = || {
            Inbox::claim().map_err(|error| match Errno::from_raw_os_error(error.errno()) {
                Errno::BUSY => OpenError::Unsupported { mechanism: Signal::ID, why: error.object },
                _ => error.into(),
            })
        };
        let (messages, credits) = (claimed()?, claimed()?);
        let at = Address { messages: messages.signal(), credits: credits.signal(), tag: tag()? };
        Ok(Half { messages, credits, at })
    }

    /// Completes the end with its peer, the window, and the lifelines to the peer and from the peer.
    fn with(
        self,
        peer: Peer,
        window: u64,
        wait: Wait,
        (to, from): (OwnedFd, OwnedFd),
    ) -> Result<(SignalTx, SignalRx), OpenError> {
        let tag = self.at.tag;
        let tx = SignalTx {
            peer: peer.copy()?,
            watch: watch(to, &self.credits, tag)?,
            inbox: self.credits,
            tag,
            wait,
            window,
            credits: window,
        };
        let rx = SignalRx {
            peer,
            own: signal_queue::this_process()?,
            watch: watch(from, &self.messages, tag)?,
            inbox: self.messages,
            tag,
            wait,
            window,
            owed: 0,
        };
        Ok((tx, rx))
    }
}

/// The listening side. It waits for the address of the connecting end, which arrives on a lifeline.
#[derive(Debug)]
pub struct SignalListener {
    waiting: Option<(Half, OwnedFd, OwnedFd)>,
    window: u64,
    wait: Wait,
    timeout: Duration,
}

impl Listener for SignalListener {
    type Tx = SignalTx;
    type Rx = SignalRx;

    fn accept(&mut self, until: Deadline) -> Result<(SignalTx, SignalRx), OpenError> {
        let (half, to, from) = self.waiting.take().ok_or_else(|| no_second_channel(Signal::ID))?;
        let limit = Instant::now() + self.timeout;
        let until = until.map_or(limit, |until| until.min(limit));
        let arrived = wait_ready(&to, Interest::Readable, Some(until))
            .map_err(|e| OsError::new("poll", "lifeline", e))?;
        if !arrived {
            self.waiting = Some((half, to, from));
            return Err(OpenError::TimedOut { mechanism: Signal::ID, waited: self.timeout });
        }
        let (mut bytes, mut fds) = ([0; Address::BYTES], Vec::new());
        let got = fdpass::recv(&to, &mut bytes, &mut fds)?;
        let bad = |why: &str| OpenError::BadOffer { mechanism: Signal::ID, why: why.to_owned() };
        match fds.pop() {
            Some(process) if got == bytes.len() && fds.is_empty() => {
                let peer = Peer::new(process, Address::from_bytes(bytes))?;
                half.with(peer, self.window, self.wait, (to, from))
            }
            _ if got == 0 => Err(bad("the connecting end closed the channel before it was open")),
            _ => Err(bad("the connecting end sent no process descriptor")),
        }
    }
}

/// Returns the number of messages that may be in flight for this spec. The user's limit of queued signals may reduce
/// it.
fn window(spec: &Spec) -> u64 {
    let wanted = spec.capacity_bytes.map_or(DEFAULT_MESSAGES, |bytes| bytes / VALUE_BYTES);
    let granted = signal_queue::most_queued()
        .and_then(|most| usize::try_from(most).ok())
        .map_or(wanted, |most| wanted.min(most / SHARE));
    granted.max(1) as u64
}

fn check(spec: &Spec) -> Result<(), OpenError> {
    if spec.max_message <= VALUE_BYTES {
        return Ok(());
    }
    Err(OpenError::Unsupported {
        mechanism: Signal::ID,
        why: format!(
            "a signal carries at most {VALUE_BYTES} bytes (the value of sigqueue), but messages of {} bytes were \
             requested; request smaller messages, or use another mechanism",
            spec.max_message
        ),
    })
}

impl Mechanism for Signal {
    const ID: &'static str = "signal";
    const ABOUT: &'static str =
        "real-time signals with a value of 8 bytes (sigqueue, sigwaitinfo; ipc-bench: signal)";
    const CARRIER: Carrier = Carrier::new(Family::Queue, Transport::Queue).meeting(&[Meeting::Pid]);
    type Tx = SignalTx;
    type Rx = SignalRx;
    type Listener = SignalListener;

    fn caps() -> Caps {
        Caps { max_message: Some(VALUE_BYTES), waitable_fd: true, ..Caps::PLAIN }
    }

    fn probe() -> Probe {
        let tried = signal_queue::try_here()
            .map_err(|errno| OsError::new("pidfd_send_signal", "this process", errno));
        Probe::of_kernel(
            tried,
            "use Linux 5.3 or later, and allow pidfd_open and pidfd_send_signal (seccomp filters may forbid them)",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check(spec)?;
        let half = Half::new()?;
        let (to, to_peer) = peer_watch::pair()?;
        let (from, from_peer) = peer_watch::pair()?;
        let window = window(spec);
        let offer = Offer::new()
            .with_word("messages", half.at.messages)
            .with_word("credits", half.at.credits)
            .with_word("tag", half.at.tag)
            .with_word("window", window)
            .with_fd("process", signal_queue::this_process()?)
            .with_fd("read-lifeline", to_peer)
            .with_fd("write-lifeline", from_peer);
        let listener = SignalListener {
            waiting: Some((half, to, from)),
            window,
            wait: spec.wait,
            timeout: spec.open_timeout,
        };
        Ok((listener, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        check(spec)?;
        let at = Address {
            messages: offer.word(Self::ID, "messages")?,
            credits: offer.word(Self::ID, "credits")?,
            tag: offer.word(Self::ID, "tag")?,
        };
        let window = offer.word::<u64>(Self::ID, "window")?.max(1);
        let peer = Peer::new(offer.take_fd(Self::ID, "process")?, at)?;
        let from = offer.take_fd(Self::ID, "read-lifeline")?;
        let to = offer.take_fd(Self::ID, "write-lifeline")?;
        let half = Half::new()?;
        fdpass::send(&from, &half.at.to_bytes(), &[signal_queue::this_process()?.as_fd()])?;
        half.with(peer, window, spec.wait, (to, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_above_the_value_of_a_signal_is_refused_with_the_reason() {
        let spec = Spec { max_message: 9, ..Spec::default() };
        let error = Signal::listen(&spec).unwrap_err().to_string();
        assert!(
            error.contains("at most 8 bytes") && error.contains("9 bytes were requested"),
            "{error}"
        );
    }

    /// Tests that opening fails in this process, whose threads do not block real-time signals.
    #[test]
    fn a_process_that_a_signal_would_kill_is_refused() {
        let spec = Spec { max_message: 8, ..Spec::default() };
        let error = Signal::listen(&spec).unwrap_err();
        assert!(matches!(error, OpenError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("before the first thread is started"), "{error}");
    }

    #[test]
    fn the_window_follows_the_capacity_within_the_users_limit() {
        let spec = |capacity_bytes| Spec { capacity_bytes, ..Spec::default() };
        assert_eq!(window(&spec(Some(0))), 1);
        let most = signal_queue::most_queued().unwrap_or(u64::MAX);
        assert!(window(&spec(Some(usize::MAX))) <= (most / SHARE as u64).max(1));
        assert_eq!(window(&spec(None)), (DEFAULT_MESSAGES as u64).min((most / 8).max(1)));
    }
}
