//! Tests the largest message, buffers that are too small, and the facts that the system reports.

use super::bench::*;
use crossway_mech::{Mechanism, RecvError, Rx, SendError, Tx};

pub(crate) fn the_largest_message_arrives_and_one_byte_more_is_refused<M: Mechanism>() {
    check::<M>(|| {
        let (mut here, mut there) = open::<M>(&natural_spec::<M>());
        let largest = if keeps_boundaries::<M>() {
            let facts = here.tx.facts();
            usize::try_from(facts["max_message_bytes"]).unwrap()
        } else {
            3 << 20
        };
        let receiver = start("receiver", move || {
            let mut buf = vec![0; largest];
            assert_eq!(there.rx.recv(&mut buf, soon()).unwrap(), largest);
            let mut after = [0; 3];
            assert_eq!(there.rx.recv(&mut after, soon()).unwrap(), 3);
            assert_eq!(&after, b"end", "something of the refused message arrived");
            (buf, there)
        });
        let sent = Payload::new(8).bytes(largest + 1);
        here.tx.send(&sent[..largest], soon()).unwrap();
        if keeps_boundaries::<M>() {
            for refused in [here.tx.send(&sent, soon()), here.tx.try_send(&sent)] {
                match refused {
                    Err(SendError::TooLarge { len, max }) => {
                        assert_eq!((len, max), (largest + 1, largest));
                    }
                    other => panic!("one byte more gave {other:?}"),
                }
            }
        }
        here.tx.send(b"end", soon()).unwrap();
        here.tx.flush().unwrap();
        assert!(join(receiver).0 == sent[..largest], "the largest message is damaged");
    });
}

pub(crate) fn a_buffer_that_is_too_small_is_reported<M: Mechanism>() {
    if !keeps_boundaries::<M>() {
        return;
    }
    check::<M>(|| {
        let (mut here, mut there) = open::<M>(&natural_spec::<M>());
        let (long, short) = (fits::<M>(100), fits::<M>(100) / 8);
        here.tx.send(&[7; 100][..long], soon()).unwrap();
        here.tx.flush().unwrap();
        match there.rx.recv(&mut [0; 100][..short], soon()) {
            Err(RecvError::TooSmall { need, have }) if (need, have) == (long, short) => {}
            other => panic!("a message of {long} bytes into a buffer of {short} gave {other:?}"),
        }
        here.tx.send(&[8; 100][..short], soon()).unwrap();
        here.tx.flush().unwrap();
        let mut buf = [0; 100];
        let mut len = there.rx.recv(&mut buf, soon()).unwrap();
        if len == long {
            // Kept whole, unless the kernel truncates it.
            assert_eq!(buf[..long], [7; 100][..long]);
            len = there.rx.recv(&mut buf, soon()).unwrap();
        }
        assert_eq!(buf[..len], [8; 100][..short]);
    });
}

pub(crate) fn facts_are_read_back<M: Mechanism>() {
    check::<M>(|| {
        let (here, there) = open::<M>(&natural_spec::<M>());
        for end in [&here, &there] {
            let mut facts = end.tx.facts();
            facts.extend(end.rx.facts());
            assert!(!facts.is_empty());
            assert!(facts.values().all(|&value| value >= 0), "{facts:?}");
        }
        if keeps_boundaries::<M>() {
            let max = here.tx.facts()["max_message_bytes"];
            assert!(max >= natural_spec::<M>().max_message as i64, "{max}");
            if let Some(any) = M::caps().max_message {
                assert!(max <= any as i64, "{max} is above what any configuration carries");
            }
        }
    });
}
