//! Tests of sending and receiving signals.

use crossway_linx::signal::{ATTACH, USER_BASE};
use crossway_linx::{Endpoint, Error, Filter, Signal};

use super::{any, now, number, on_every_transport, signal, soon};

#[test]
fn signals_of_every_size_arrive_whole_while_the_sender_waits_for_room() {
    on_every_transport(|host| {
        let mut b = host.open("b");
        let to = b.spid();
        let sizes = [0, 1, 3, 4, 60, 4096, 65_532, 65_536, 300_000, 16 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut a = host.open("a");
                for (n, size) in sizes.into_iter().enumerate() {
                    let mut out = a.alloc(USER_BASE + n as u32, size).unwrap();
                    for (at, byte) in out.payload_mut().iter_mut().enumerate() {
                        *byte = (at * 7 + n) as u8;
                    }
                    a.send(out, to).unwrap();
                }
            });
            for (n, size) in sizes.into_iter().enumerate() {
                let got = any(&mut b);
                assert_eq!(got.number(), USER_BASE + n as u32);
                assert_eq!(got.payload().len(), size);
                let right =
                    got.payload().iter().enumerate().all(|(at, b)| *b == (at * 7 + n) as u8);
                assert!(right, "the content of the signal of {size} bytes");
                b.free(got);
            }
        });
    });
}

#[test]
fn receiving_by_number_and_sender_leaves_the_rest_in_order() {
    on_every_transport(|host| {
        let (mut a, mut b, mut c) = (host.open("a"), host.open("b"), host.open("c"));
        for n in 0..6 {
            a.send(signal(n), c.spid()).unwrap();
        }
        let third = c.receive(&Filter::only(&[USER_BASE + 9, USER_BASE + 3]), soon()).unwrap();
        assert_eq!(third.unwrap().number(), USER_BASE + 3);
        b.send(signal(2), c.spid()).unwrap();
        let from_b = c.receive(&Filter::ANY.from(b.spid()), soon()).unwrap().unwrap();
        assert_eq!((from_b.number(), from_b.sender()), (USER_BASE + 2, Some(b.spid())));
        let except = Filter::except(&[USER_BASE, USER_BASE + 1]);
        for wanted in [2, 4, 5] {
            assert_eq!(c.receive(&except, soon()).unwrap().unwrap().number(), USER_BASE + wanted);
        }
        assert!(c.receive(&except, now()).unwrap().is_none());
        assert_eq!([number(&mut c), number(&mut c)], [USER_BASE, USER_BASE + 1]);
    });
}

#[test]
fn out_of_band_signals_stand_before_those_that_were_queued() {
    on_every_transport(|host| {
        let (mut a, mut b) = (host.open("a"), host.open("b"));
        for n in 0..3 {
            a.send(signal(n), b.spid()).unwrap();
        }
        a.send_out_of_band(signal(8), b.spid()).unwrap();
        a.send_out_of_band(signal(9), b.spid()).unwrap();
        // All of them are in the queue after a receive that accepts none.
        while b.receive(&Filter::only(&[1]), now()).unwrap().is_some() {}
        let eight = any(&mut b);
        assert!(eight.is_out_of_band());
        assert_eq!(eight.number(), USER_BASE + 8);
        for wanted in [9, 0, 1, 2] {
            assert_eq!(number(&mut b), USER_BASE + wanted);
        }
    });
}

#[test]
fn a_signal_may_come_in_the_name_of_an_endpoint_of_the_same_user() {
    on_every_transport(|host| {
        let (mut a, mut b, c) = (host.open("a"), host.open("b"), host.open("c"));
        a.send(signal(0), b.spid()).unwrap();
        a.send_as(signal(1), c.spid(), b.spid()).unwrap();
        a.send(signal(2), b.spid()).unwrap();
        a.send_as(signal(3), c.spid(), b.spid()).unwrap();
        for (n, from) in [(0, a.spid()), (1, c.spid()), (2, a.spid()), (3, c.spid())] {
            let got = any(&mut b);
            assert_eq!((got.number(), got.sender()), (USER_BASE + n, Some(from)));
        }
        let gone = c.spid();
        drop(c);
        b.attach(gone, None).unwrap();
        assert_eq!(number(&mut b), ATTACH);
        let late = a.send_as(signal(4), gone, b.spid());
        assert!(matches!(late, Ok(()) | Err(Error::Gone { .. })), "{late:?}");
    });
}

#[test]
fn two_that_send_to_each_other_without_receiving_do_not_block_each_other() {
    on_every_transport(|host| {
        let (mut a, mut b) = (host.open("a"), host.open("b"));
        let (to_a, to_b) = (a.spid(), b.spid());
        let flood = |endpoint: &mut Endpoint, to| {
            for _ in 0..200 {
                endpoint.send(Signal::new(USER_BASE, 20_000).unwrap(), to).unwrap();
            }
            for _ in 0..200 {
                any(endpoint);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| flood(&mut a, to_b));
            flood(&mut b, to_a);
        });
    });
}

#[test]
fn a_sender_that_is_never_out_of_signals_hides_no_other() {
    on_every_transport(|host| {
        let mut busy = host.open("busy");
        let mut other = host.open("other");
        let mut b = host.open("b");
        for n in 0..100 {
            busy.send(signal(n), b.spid()).unwrap();
        }
        assert_eq!(number(&mut b), USER_BASE);
        other.send(signal(1000), b.spid()).unwrap();
        let found = (0..5000).any(|n| {
            busy.send(signal(n % 100), b.spid()).unwrap();
            number(&mut b) == USER_BASE + 1000
        });
        assert!(found, "nothing but the busy sender's signals");
    });
}

#[test]
fn a_signal_larger_than_its_channel_arrives_although_the_sender_makes_no_other_call() {
    on_every_transport(|host| {
        let (mut a, mut b) = (host.open("a"), host.open("b"));
        let to_b = b.spid();
        let (received, waits) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                a.send(Signal::new(USER_BASE, 2 << 20).unwrap(), to_b).unwrap();
                let _ = waits.recv();
            });
            assert_eq!(any(&mut b).payload().len(), 2 << 20);
            drop(received);
        });
    });
}
