//! Tests calls that do not wait, calls that wait until a deadline, and the descriptor with which a program can wait for
//! messages.

use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::usage::thread_switches;

use super::bench::*;
use crossway_mech::{Mechanism, RecvError, Reliability, Rx, SendError, Tx, Wait};

/// How long the checks of deadlines wait. In one of the studies, a sender without support for deadlines used up CPU
/// time during a wait of this length.
const PATIENCE: Duration = Duration::from_millis(50);

/// Maximum number of sleeps of a call that waits until a deadline: one, and a few more after spurious wake-ups.
const SLEEPS_AT_MOST: u64 = 16;

/// A number of bytes far above what any channel here holds.
const FAR_TOO_MUCH: usize = 256 << 20;

/// Number of bytes sent to a receiver that drops messages for which it has no room: far more than it has room for. It
/// is not larger, because sending it takes seconds if several checks share a slow emulated kernel, and sending ten
/// times as much took minutes.
const FAR_TOO_MUCH_TO_DROP: usize = 24 << 20;

pub(crate) fn an_empty_channel_is_empty_at_once<M: Mechanism>() {
    check::<M>(|| {
        let (mut here, mut there) = open::<M>(&natural_spec::<M>());
        let mut buf = [0; 16];
        for end in [&mut here, &mut there] {
            assert!(matches!(end.rx.try_recv(&mut buf), Err(RecvError::Empty)));
        }
        let len = fits::<M>(16);
        here.tx.send(&[5; 16][..len], soon()).unwrap();
        here.tx.flush().unwrap();
        assert_eq!(there.rx.recv(&mut buf, soon()).unwrap(), len);
        assert!(matches!(there.rx.try_recv(&mut buf), Err(RecvError::Empty)));
    });
}

/// Sends numbered messages, from `first` on, until there is no room; returns the first number that was not accepted.
/// `None` if there was room for `bytes` bytes.
fn fill<M: Mechanism>(end: &mut End<M>, size: usize, first: u64, bytes: usize) -> Option<u64> {
    let mut msg = vec![0; size];
    for n in first..first + (bytes / size) as u64 {
        msg[..8].copy_from_slice(&n.to_le_bytes());
        match end.tx.try_send(&msg) {
            Ok(()) => {}
            Err(SendError::Full) => return Some(n),
            Err(error) => panic!("{error}"),
        }
    }
    None
}

pub(crate) fn a_full_channel_is_full_at_once_and_keeps_what_it_took<M: Mechanism>() {
    check::<M>(|| {
        let (mut here, mut there) = open::<M>(&natural_spec::<M>());
        let size = fits::<M>(1000);
        if M::caps().reliability == Reliability::Lossy {
            // A receiver that drops messages never makes the sender report "full".
            let taken = fill(&mut here, fits::<M>(size * 8), 0, FAR_TOO_MUCH_TO_DROP);
            assert_eq!(taken, None, "a lossy mechanism reports that it is full");
            let room = there.rx.facts().get("so_rcvbuf_bytes").copied().unwrap_or(0);
            assert!(FAR_TOO_MUCH_TO_DROP as i64 > 8 * room, "a receiver with {room} bytes of room");
            return;
        }
        let taken = fill(&mut here, size, 0, FAR_TOO_MUCH).expect("the channel fills up");
        assert!(taken > 0, "full before the first message");
        // A stream may still hold a part of the last message, which is sent when there is room.
        let sender = start("flush", move || {
            here.tx.flush().unwrap();
            here
        });
        let mut buf = vec![0; size];
        for n in 0..taken {
            assert_eq!(there.rx.recv(&mut buf, soon()).unwrap(), size);
            assert_eq!(buf[..8], n.to_le_bytes(), "order");
            assert!(buf[8..].iter().all(|&byte| byte == 0));
        }
        let mut here = join(sender);
        let more = there.rx.try_recv(&mut buf);
        assert!(matches!(more, Err(RecvError::Empty)), "{more:?}");
        here.tx.send(&buf, soon()).unwrap();
        here.tx.flush().unwrap();
        assert_eq!(there.rx.recv(&mut buf, soon()).unwrap(), size);
    });
}

/// Calls `call` with a deadline and returns its result, which is true if it waited in vain. In that case, asserts that
/// it waited until the deadline and, if `wait` is [`Wait::Block`], that it hardly used a CPU in one of up to four
/// calls.
fn waits_in_vain(wait: Wait, mut call: impl FnMut(Instant) -> bool) -> bool {
    // Where CPU time is counted in ticks, another process's tick may be charged here; a call that spins is detected
    // every time.
    for attempt in 1.. {
        let (cpu_before, (sleeps_before, _)) = (thread_cpu_ns(), thread_switches());
        let begin = Instant::now();
        let until = begin + PATIENCE;
        if !call(until) {
            return false;
        }
        assert!(Instant::now() >= until, "returned before the deadline");
        let waited_ns = begin.elapsed().as_nanos() as u64;
        let used_ns = thread_cpu_ns() - cpu_before;
        let sleeps = thread_switches().0 - sleeps_before;
        if wait != Wait::Block || (used_ns < waited_ns / 4 && sleeps <= SLEEPS_AT_MOST) {
            break;
        }
        assert!(
            attempt < 4,
            "used {used_ns} ns of CPU and slept {sleeps} times while it waited {waited_ns} ns"
        );
    }
    true
}

pub(crate) fn a_receive_deadline_is_kept_without_burning_the_cpu<M: Mechanism>() {
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut here, mut there) = open::<M>(&spec);
        let mut buf = [0; 64];
        assert!(waits_in_vain(spec.wait, |until| {
            matches!(there.rx.recv(&mut buf, Some(until)), Err(RecvError::TimedOut))
        }));
        // The channel is still usable.
        let len = fits::<M>(64);
        here.tx.send(&[9; 64][..len], soon()).unwrap();
        here.tx.flush().unwrap();
        assert_eq!(there.rx.recv(&mut buf, None).unwrap(), len);
        assert_eq!(buf[..len], [9; 64][..len]);
    });
}

pub(crate) fn a_send_deadline_is_kept_without_burning_the_cpu<M: Mechanism>() {
    let caps = M::caps();
    if caps.reliability == Reliability::Lossy || !caps.send_deadline {
        return;
    }
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut here, mut there) = open::<M>(&spec);
        let size = fits::<M>(1000);
        let mut taken = fill(&mut here, size, 0, FAR_TOO_MUCH).expect("the channel fills up");
        // TCP's receiver may open its window late, so the channel is full only when a call has waited without success.
        while !waits_in_vain(spec.wait, |until| {
            let mut msg = [0; 1000];
            msg[..8].copy_from_slice(&taken.to_le_bytes());
            match here.tx.send(&msg[..size], Some(until)) {
                Ok(()) => false,
                Err(SendError::TimedOut) => true,
                Err(error) => panic!("{error:?}"),
            }
        }) {
            taken = fill(&mut here, size, taken + 1, FAR_TOO_MUCH).expect("the channel fills up");
        }
        let sender = start("flush", move || {
            here.tx.flush().unwrap();
            here
        });
        let mut buf = vec![0; size];
        for n in 0..taken {
            assert_eq!(there.rx.recv(&mut buf, soon()).unwrap(), size);
            assert_eq!(buf[..8], n.to_le_bytes());
        }
        let _here = join(sender);
        let more = there.rx.try_recv(&mut buf);
        assert!(matches!(more, Err(RecvError::Empty)), "the message that timed out: {more:?}");
    });
}

pub(crate) fn the_descriptor_to_wait_for_polls_correctly<M: Mechanism>() {
    check::<M>(|| {
        let (mut here, mut there) = open::<M>(&natural_spec::<M>());
        if !M::caps().waitable_fd {
            assert!(there.rx.wait_fd().is_none(), "an undeclared descriptor");
            return;
        }
        let readable = |end: &End<M>, until| {
            wait_ready(end.rx.wait_fd().expect("claimed"), Interest::Readable, until).unwrap()
        };
        let len = fits::<M>(32);
        for _ in 0..3 {
            // Binder wakes its receivers whenever their process starts another one, as other tests
            // do; a look settles that.
            let mut looks = 0;
            while readable(&there, Some(Instant::now())) {
                looks += 1;
                assert!(looks < 4, "readable though empty");
                let outcome = there.rx.try_recv(&mut [0; 32]);
                assert!(matches!(outcome, Err(RecvError::Empty)), "{outcome:?}");
            }
            for _ in 0..2 {
                here.tx.send(&[1; 32][..len], soon()).unwrap();
            }
            here.tx.flush().unwrap();
            // Nothing that has arrived is hidden in the receiving half after the first one.
            for _ in 0..2 {
                assert!(readable(&there, soon()), "not readable though a message is there");
                assert_eq!(there.rx.try_recv(&mut [0; 32]).unwrap(), len);
            }
        }
    });
}
