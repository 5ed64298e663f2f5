//! Tests how an end detects that the other one has closed.

use std::time::{Duration, Instant};

use super::bench::*;
use crossway_mech::{Mechanism, RecvError, Reliability, Rx, SendError, Tx};

/// Discards the messages that are left, and asserts that `end` then reports that its peer has closed, to receivers and
/// to senders. TCP may accept a few messages before the peer's host answers that the connection is closed. If the
/// mechanism does not claim to detect the peer's end, asserts instead that nothing is reported.
pub(crate) fn must_say_closed<M: Mechanism>(end: &mut End<M>) {
    if !M::caps().detects_peer_death {
        let until = Some(Instant::now() + Duration::from_millis(30));
        let outcome = end.rx.recv(&mut [0; 64], until);
        let silent = matches!(outcome, Err(RecvError::TimedOut));
        assert!(
            silent,
            "the end of the peer was reported, but the mechanism does not claim to detect it: {outcome:?}"
        );
        return;
    }
    // Some of the peer's messages may still be in flight.
    let mut buf = vec![0; if keeps_boundaries::<M>() { 64 * 1024 } else { 64 }];
    let outcome = loop {
        match end.rx.recv(&mut buf, soon()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(outcome, RecvError::PeerClosed), "{outcome:?}");
    let again = end.rx.try_recv(&mut buf);
    assert!(matches!(again, Err(RecvError::PeerClosed)), "{again:?} the second time");
    let limit = soon();
    let outcome = loop {
        match end.tx.send(&buf[..fits::<M>(64)], soon()) {
            Ok(()) => assert!(Some(Instant::now()) < limit, "sends to nobody without an error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(outcome, SendError::PeerClosed), "{outcome:?}");
}

pub(crate) fn a_closed_peer_is_noticed_after_its_last_message<M: Mechanism>() {
    check::<M>(|| {
        for listener_closes in [false, true] {
            let (a, b) = open::<M>(&natural_spec::<M>());
            let (mut stays, mut goes) = if listener_closes { (b, a) } else { (a, b) };
            let len = fits::<M>(64);
            goes.tx.send(&[6; 64][..len], soon()).unwrap();
            if M::caps().carries_empty {
                goes.tx.send(&[], soon()).unwrap();
            }
            goes.tx.send(&[7; 64][..len], soon()).unwrap();
            goes.tx.flush().unwrap();
            drop(goes);
            let mut buf = vec![0; len];
            assert_eq!(stays.rx.recv(&mut buf, soon()).unwrap(), len);
            assert_eq!(buf, [6; 64][..len]);
            if M::caps().carries_empty {
                assert_eq!(stays.rx.recv(&mut buf, soon()).unwrap(), 0, "the empty message");
            }
            assert_eq!(stays.rx.recv(&mut buf, soon()).unwrap(), len);
            assert_eq!(buf, [7; 64][..len]);
            must_say_closed(&mut stays);
        }
    });
}

/// Waits until the thread with the id `tid` sleeps, if the mechanism supports sleeping.
fn let_it_sleep<M: Mechanism>(tid: u32) {
    if !M::caps().can_block {
        return;
    }
    let limit = soon();
    while Some(Instant::now()) < limit {
        let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        if text[text.rfind(')').unwrap()..].starts_with(") S") {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the waiting thread never sleeps");
}

/// Runs `blocks` in a thread, and `then` in this one as soon as that thread sleeps. Returns the result of `blocks`.
fn while_blocked<M: Mechanism, T: Send + 'static>(
    blocks: impl FnOnce() -> T + Send + 'static,
    then: impl FnOnce(),
) -> T {
    let (told, tid) = std::sync::mpsc::channel();
    let thread = start("blocked", move || {
        told.send(crate::peer::thread_id()).unwrap();
        blocks()
    });
    let_it_sleep::<M>(tid.recv().unwrap());
    then();
    join(thread)
}

pub(crate) fn a_blocked_receiver_notices_that_its_peer_closes<M: Mechanism>() {
    if !M::caps().detects_peer_death {
        return;
    }
    check::<M>(|| {
        for listener_closes in [false, true] {
            let (a, b) = open::<M>(&natural_spec::<M>());
            let (mut stays, goes) = if listener_closes { (b, a) } else { (a, b) };
            let outcome = while_blocked::<M, _>(
                move || stays.rx.recv(&mut [0; 64], None).map(|_| stays),
                move || drop(goes),
            );
            assert!(matches!(outcome, Err(RecvError::PeerClosed)));
        }
    });
}

pub(crate) fn a_blocked_sender_notices_that_its_peer_closes<M: Mechanism>() {
    let caps = M::caps();
    // A mechanism that drops messages never blocks.
    if caps.reliability == Reliability::Lossy {
        return;
    }
    check::<M>(|| {
        for listener_closes in [false, true] {
            let (a, b) = open::<M>(&natural_spec::<M>());
            let (mut stays, goes) = if listener_closes { (b, a) } else { (a, b) };
            let len = fits::<M>(4096);
            while stays.tx.try_send(&[1; 4096][..len]).is_ok() {}
            let outcome = while_blocked::<M, _>(
                move || loop {
                    if let Err(error) = stays.tx.send(&[1; 4096][..len], None) {
                        break error;
                    }
                },
                move || drop(goes),
            );
            assert!(matches!(outcome, SendError::PeerClosed), "{outcome:?}");
        }
    });
}
