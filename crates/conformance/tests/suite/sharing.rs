//! Tests how many channels one offer allows, and whether several senders can send to one receiver.

use super::bench::*;
use crossway_mech::{Listener, Mechanism, Offer, OpenError, Rx, Tx};

fn copy_of(offer: &Offer) -> Offer {
    Offer { words: offer.words.clone(), fds: Vec::new() }
}

pub(crate) fn an_offer_gives_as_many_channels_as_claimed<M: Mechanism>() {
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut listener, offer) = M::listen(&spec).unwrap();
        if !M::caps().reconnects {
            let there = spec.clone();
            let mut offer = offer;
            let connector = start("connector", move || M::connect(&there, &mut offer).unwrap());
            let first = listener.accept(soon()).unwrap();
            let second = join(connector);
            if !M::caps().fan_in {
                let again = listener.accept(soon());
                assert!(matches!(again, Err(OpenError::Unsupported { .. })));
            }
            drop((first, second));
            return;
        }
        let mut channels = Vec::new();
        for n in 0..4_u8 {
            let (there, mut copy) = (spec.clone(), copy_of(&offer));
            let connector = start("connector", move || M::connect(&there, &mut copy).unwrap());
            let (tx, rx) = listener.accept(soon()).unwrap();
            let here = End::<M> { tx, rx };
            let (tx, rx) = join(connector);
            channels.push((n, here, End::<M> { tx, rx }));
            if n == 1 {
                // A closed channel does not affect the next one.
                channels.remove(0);
            }
        }
        for (n, here, there) in &mut channels {
            here.tx.send(&[*n; 8], soon()).unwrap();
            there.tx.send(&[*n + 100; 8], soon()).unwrap();
        }
        for (n, here, there) in &mut channels {
            let mut buf = [0; 8];
            there.rx.recv(&mut buf, soon()).unwrap();
            assert_eq!(buf, [*n; 8]);
            here.rx.recv(&mut buf, soon()).unwrap();
            assert_eq!(buf, [*n + 100; 8]);
        }
    });
}

pub(crate) fn several_senders_feed_one_receiver_where_claimed<M: Mechanism>() {
    if !M::caps().fan_in {
        return;
    }
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut listener, offer) = M::listen(&spec).unwrap();
        let senders = 3;
        let connectors: Vec<_> = (0..senders)
            .map(|n| {
                let (there, mut copy) = (spec.clone(), copy_of(&offer));
                start(&format!("sender {n}"), move || {
                    let (mut tx, rx) = M::connect(&there, &mut copy).unwrap();
                    for count in 0..50_u8 {
                        let mut msg = [n; 128];
                        msg[1] = count;
                        tx.send(&msg, soon()).unwrap();
                    }
                    tx.flush().unwrap();
                    (tx, rx)
                })
            })
            .collect();
        let (_tx, mut rx) = listener.accept(soon()).unwrap();
        let mut next = vec![0_u8; senders.into()];
        for _ in 0..u32::from(senders) * 50 {
            let mut msg = [0; 128];
            assert_eq!(rx.recv(&mut msg, soon()).unwrap(), 128);
            let sender = &mut next[usize::from(msg[0])];
            assert_eq!(msg[1], *sender, "order of sender {}", msg[0]);
            assert!(msg[2..].iter().all(|&byte| byte == msg[0]), "a torn message");
            *sender += 1;
        }
        assert!(next.iter().all(|&count| count == 50));
        connectors.into_iter().for_each(|connector| drop(join(connector)));
    });
}

pub(crate) fn one_send_reaches_all_that_connected_where_claimed<M: Mechanism>() {
    if !M::caps().fan_out {
        return;
    }
    check::<M>(|| {
        let spec = natural_spec::<M>();
        let (mut listener, offer) = M::listen(&spec).unwrap();
        let (joined, all_joined) = std::sync::mpsc::channel();
        let audience: Vec<_> = (0..3)
            .map(|n| {
                let (there, mut copy, joined) = (spec.clone(), copy_of(&offer), joined.clone());
                start(&format!("listener {n}"), move || {
                    let (tx, mut rx) = M::connect(&there, &mut copy).unwrap();
                    joined.send(()).unwrap();
                    for count in 0..20_u8 {
                        let mut msg = [0; 128];
                        assert_eq!(rx.recv(&mut msg, soon()).unwrap(), 128);
                        assert_eq!(msg, [count; 128], "order at receiver {n}");
                    }
                    (tx, rx)
                })
            })
            .collect();
        let (mut tx, rx) = listener.accept(soon()).unwrap();
        audience.iter().for_each(|_| all_joined.recv().unwrap());
        for count in 0..20_u8 {
            tx.send(&[count; 128], soon()).unwrap();
        }
        tx.flush().unwrap();
        audience.into_iter().for_each(|receiver| drop(join(receiver)));
        drop(rx);
    });
}
