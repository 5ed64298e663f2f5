//! Tests that received messages equal the sent ones.

use super::bench::*;
use super::peer::{Job, Peer, Side};
use crossway_mech::{Mechanism, Reliability, Rx, Spec, Tx};

pub(crate) fn messages_of_every_size_arrive_whole_and_in_order<M: Mechanism>() {
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut here, mut there) = open::<M>(&spec);
        let sizes = sizes::<M>(spec.max_message);
        let in_step = M::caps().reliability == Reliability::Lossy;
        let sender = {
            let sizes = sizes.clone();
            start("sender", move || {
                let mut payload = Payload::new(1);
                for size in sizes {
                    here.tx.send(&payload.bytes(size), soon()).unwrap();
                    // With a mechanism that may drop messages, each one is sent after the previous
                    // one has arrived.
                    if in_step {
                        here.rx.recv(&mut [0; 1], soon()).unwrap();
                    }
                }
                here
            })
        };
        let mut payload = Payload::new(1);
        let mut buf = vec![0; spec.max_message];
        for (n, size) in sizes.into_iter().enumerate() {
            let room = if keeps_boundaries::<M>() { buf.len() } else { size };
            assert_eq!(there.rx.recv(&mut buf[..room], soon()).unwrap(), size, "message {n}");
            assert!(buf[..size] == payload.bytes(size), "message {n} of {size} bytes is damaged");
            if in_step {
                there.tx.send(&[1], soon()).unwrap();
            }
        }
        join(sender);
    });
}

pub(crate) fn every_way_of_waiting_carries_round_trips<M: Mechanism>() {
    check::<M>(|| {
        for wait in every_wait::<M>() {
            let spec = Spec { wait, ..natural_spec::<M>() };
            let (mut here, mut there) = open::<M>(&spec);
            let most = fits::<M>(512);
            let rounds = 60;
            let step = most.div_ceil(64);
            let length = move |n: usize| 1 + n * step % most;
            let echo = start("echo", move || {
                let mut buf = [0; 512];
                for n in 0..rounds {
                    let len = length(n);
                    there.rx.recv(&mut buf[..len], None).unwrap();
                    there.tx.send(&buf[..len], None).unwrap();
                }
                there
            });
            let mut payload = Payload::new(2);
            for n in 0..rounds {
                let sent = payload.bytes(length(n));
                let mut got = vec![0; sent.len()];
                here.tx.send(&sent, None).unwrap();
                assert_eq!(here.rx.recv(&mut got, None).unwrap(), sent.len());
                assert!(sent == got, "round {n} with {wait:?}");
            }
            join(echo);
        }
        let caps = M::caps();
        for (claimed, wait) in [
            (caps.can_block, crossway_mech::Wait::Block),
            (caps.can_spin, crossway_mech::Wait::Spin),
        ] {
            if !claimed {
                let spec = Spec { wait, ..natural_spec::<M>() };
                let refused =
                    matches!(M::listen(&spec), Err(crossway_mech::OpenError::Unsupported { .. }));
                assert!(refused, "{wait:?} is not supported and must be rejected");
            }
        }
    });
}

pub(crate) fn a_stream_can_be_read_in_other_pieces_than_it_was_written<M: Mechanism>() {
    if keeps_boundaries::<M>() {
        return;
    }
    check::<M>(|| {
        let total = 600_000;
        let (mut here, mut there) = open::<M>(&natural_spec::<M>());
        let sender = start("sender", move || {
            let all = Payload::new(3).bytes(total);
            let mut random = Payload::new(4);
            let mut rest = all.as_slice();
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(rest.len().min(1 + random.below(8000)));
                here.tx.send(piece, soon()).unwrap();
                rest = later;
            }
            here
        });
        let mut got = Vec::with_capacity(total);
        let mut random = Payload::new(5);
        while got.len() < total {
            let mut piece = vec![0; (total - got.len()).min(1 + random.below(8000))];
            // Calls that do not wait must not lose a partially received message.
            while matches!(there.rx.try_recv(&mut piece), Err(crossway_mech::RecvError::Empty)) {
                std::thread::yield_now();
            }
            got.extend_from_slice(&piece);
        }
        assert!(got == Payload::new(3).bytes(total));
        join(sender);
    });
}

pub(crate) fn in_place_and_by_copy_are_the_same_message<M: Mechanism>() {
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut here, mut there) = open::<M>(&spec);
        let mut payload = Payload::new(6);
        let mut scratch = vec![0xAA; spec.max_message];
        let mut buf = vec![0xBB; spec.max_message];
        for (n, size) in sizes::<M>(spec.max_message.min(4096)).into_iter().enumerate() {
            let sent = payload.bytes(size);
            if n % 2 == 0 {
                let fill = |room: &mut [u8]| {
                    assert_eq!(room.len(), size);
                    room.copy_from_slice(&sent);
                };
                here.tx.send_in_place(size, &mut scratch, soon(), fill).unwrap();
            } else {
                here.tx.send(&sent, soon()).unwrap();
            }
            here.tx.flush().unwrap();
            let room = if keeps_boundaries::<M>() { buf.len() } else { size };
            if n % 4 < 2 {
                let same = there.rx.recv_in_place(&mut buf[..room], soon(), |got| got == sent);
                assert!(same.unwrap(), "message {n} of {size} bytes");
            } else {
                assert_eq!(there.rx.recv(&mut buf[..room], soon()).unwrap(), size);
                assert!(buf[..size] == sent, "message {n} of {size} bytes");
            }
        }
    });
}

pub(crate) fn another_process_echoes_what_it_gets<M: Mechanism>() {
    check::<M>(|| {
        for side in [Side::Connects, Side::Listens] {
            let spec = natural_spec::<M>();
            let (mut here, peer) = Peer::open::<M>(&spec, side, Job::Echo);
            let mut payload = Payload::new(7);
            let mut buf = vec![0; spec.max_message];
            let len = fits::<M>(64);
            for n in 0..200 {
                let sent = payload.bytes(len);
                here.tx.send(&sent, soon()).unwrap();
                assert_eq!(here.rx.recv(&mut buf[..len], soon()).unwrap(), len);
                assert!(buf[..len] == sent, "message {n}");
            }
            drop(here);
            peer.must_end_well();
        }
    });
}
