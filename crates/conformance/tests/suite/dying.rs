//! Tests kill -9 in every state, on either side: the survivor must notice, and never hang.

use std::time::{Duration, Instant};

use super::bench::*;
use super::closing::must_say_closed;
use super::peer::{Job, Peer, Side};
use crossway_mech::{Mechanism, RecvError, Reliability, Rx, SendError, Tx};

/// Kills a peer during its job, and asserts that the survivor receives what was sent before and then notices the death.
/// The peer is once the connecting and once the listening end.
fn kill_at<M: Mechanism>(job: Job) {
    check::<M>(move || {
        for side in [Side::Connects, Side::Listens] {
            let (mut here, mut peer) = Peer::open::<M>(&natural_spec::<M>(), side, job);
            peer.wait_until_at_work();
            peer.kill();
            if job == Job::FillUp {
                // A third process may be in between and still have the message.
                let first = here.rx.recv(&mut room::<M>(), soon());
                assert!(first.is_ok(), "what was sent before the death is lost: {first:?}");
            }
            drain_whole_messages(&mut here);
            must_say_closed(&mut here);
        }
    });
}

/// A buffer that is large enough for the result of one receive call.
fn room<M: Mechanism>() -> Vec<u8> {
    vec![0; if keeps_boundaries::<M>() { 64 * 1024 } else { 64 }]
}

/// Receives and discards everything that the dead peer had sent.
fn drain_whole_messages<M: Mechanism>(end: &mut End<M>) {
    let mut buf = room::<M>();
    while end.rx.try_recv(&mut buf).is_ok() {}
}

pub(crate) fn a_killed_idle_peer_is_noticed<M: Mechanism>() {
    kill_at::<M>(Job::Idle);
}

pub(crate) fn a_peer_killed_while_receiving_is_noticed<M: Mechanism>() {
    kill_at::<M>(Job::Receive);
}

pub(crate) fn a_peer_killed_while_sending_into_a_full_channel_is_noticed<M: Mechanism>() {
    // A mechanism that drops messages is never full.
    if M::caps().reliability == Reliability::Reliable {
        kill_at::<M>(Job::FillUp);
    }
}

pub(crate) fn a_peer_killed_while_it_writes_in_place_is_noticed<M: Mechanism>() {
    kill_at::<M>(Job::WriteInPlace);
}

pub(crate) fn a_peer_killed_amid_traffic_is_noticed<M: Mechanism>() {
    check::<M>(|| {
        let told = M::caps().detects_peer_death;
        for (side, rounds) in [(Side::Connects, 300), (Side::Listens, 301)] {
            let (mut here, mut peer) = Peer::open::<M>(&natural_spec::<M>(), side, Job::Echo);
            let mut buf = [0; 64];
            let mut echoed = 0;
            let outcome = loop {
                if let Err(error) = here.tx.send(&[1; 64][..fits::<M>(64)], soon()) {
                    assert!(matches!(error, SendError::PeerClosed), "{error:?}");
                    break RecvError::PeerClosed;
                }
                // The next message is sent to a process that is about to die.
                if echoed == rounds {
                    peer.kill_soon();
                }
                let silence = Some(Instant::now() + Duration::from_millis(300));
                // With a dead peer, only silence proves that nothing more arrives.
                let until = if told || echoed < rounds { soon() } else { silence };
                match here.rx.recv(&mut buf, until) {
                    Ok(len) => assert_eq!(buf[..len], [1; 64][..fits::<M>(64)]),
                    Err(error) => break error,
                }
                echoed += 1;
            };
            assert!(echoed >= rounds, "the peer was gone before it was killed");
            if told {
                assert!(matches!(outcome, RecvError::PeerClosed), "{outcome:?}");
                must_say_closed(&mut here);
            }
        }
    });
}
