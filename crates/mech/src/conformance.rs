//! The one suite that every mechanism passes.

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::registry::{self, Visitor};
    use crate::{Listener, Mechanism, OpenError, Probe, RecvError, Rx, SendError, Spec, Tx, Wait};

    struct RoundTrips(Wait);

    impl Visitor for RoundTrips {
        type Out = ();

        fn visit<M: Mechanism>(self) {
            let until = || Some(Instant::now() + Duration::from_secs(20));
            let large = Spec { wait: self.0, ..Spec::default() };
            // Message queues carry 8 KiB where nobody has raised their limits.
            let small = Spec { max_message: 8192, ..large.clone() };
            let (spec, (mut listener, mut offer)) = match M::listen(&large) {
                Err(OpenError::Unsupported { .. }) => (small.clone(), M::listen(&small).unwrap()),
                made => (large, made.unwrap()),
            };
            let rounds = spec.max_message.min(60_000) / 299;
            let there = spec.clone();
            let peer = std::thread::spawn(move || {
                let (mut tx, mut rx) = M::connect(&there, &mut offer).unwrap();
                let mut buf = vec![0; 60_000];
                for n in 0..rounds {
                    let len = 1 + n * 299;
                    rx.recv(&mut buf[..len], until()).unwrap();
                    tx.send(&buf[..len], None).unwrap();
                }
            });
            let (mut tx, mut rx) = listener.accept(until()).unwrap();
            assert!(matches!(rx.try_recv(&mut [0; 8]), Err(RecvError::Empty)));
            for n in 0..rounds {
                let len = 1 + n * 299;
                let sent: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
                let mut got = vec![0; len];
                tx.send(&sent, until()).unwrap();
                assert_eq!(rx.recv(&mut got, None).unwrap(), len);
                assert!(sent == got, "{} bytes", len);
            }
            peer.join().unwrap();
            assert!(matches!(rx.recv(&mut [0; 8], None), Err(RecvError::PeerClosed)));
            // TCP takes one message more: only its answer tells that nobody is there.
            let late = until();
            let error = loop {
                match tx.send(&[0; 8], None) {
                    Ok(()) => assert!(Some(Instant::now()) < late),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, SendError::PeerClosed));
        }
    }

    #[test]
    fn every_mechanism_here_carries_round_trips() {
        for entry in registry::ALL {
            match (entry.probe)() {
                Probe::Missing { why, remedy } => eprintln!("SKIP {}: {why}; {remedy}", entry.id),
                Probe::Ready { .. } => {
                    let caps = (entry.caps)();
                    for (wait, can) in [
                        (Wait::Block, caps.can_block),
                        (Wait::Spin, caps.can_spin),
                        (Wait::Hybrid { spin_us: 20 }, caps.can_block && caps.can_spin),
                    ] {
                        if !can {
                            continue;
                        }
                        registry::dispatch(entry.id, RoundTrips(wait)).unwrap();
                    }
                }
            }
        }
    }
}
