//! Tests of queues with a limit, and of the descriptor that shows their state.

use std::time::{Duration, Instant};

use crossway_linx::signal::{TIMEOUT, USER_BASE};
use crossway_linx::{Endpoint, Error, Filter, Options, Queue, Signal, WhenFull};
use crossway_sys::poll::{Interest, wait_ready};

use super::{any, nothing, now, number, on_every_transport, signal, soon};

fn readable(endpoint: &mut Endpoint, until: Option<Instant>) -> bool {
    wait_ready(endpoint.descriptor().unwrap(), Interest::Readable, until).unwrap()
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn a_full_queue_holds_senders_back_until_their_deadline() {
    on_every_transport(|host| {
        let queue = Queue { signals: 2, ..Queue::default() };
        let mut b = host.open_with("b", Options { queue, ..Options::default() });
        let mut a = host.open("a");
        let mut sent = 0;
        let big = || Signal::new(USER_BASE, 64 << 10).unwrap();
        loop {
            let until = Some(Instant::now() + Duration::from_millis(20));
            match a.send_until(big(), b.spid(), until) {
                Ok(()) => sent += 1,
                Err(Error::TimedOut) => break,
                Err(other) => panic!("{other}"),
            }
            assert!(sent < 1000, "the sender is never blocked");
        }
        // It waits for a signal that cannot arrive, and gets an error.
        let full = b.receive(&Filter::only(&[1]), None);
        assert!(matches!(full, Err(Error::QueueFull { signals: 2 })), "{full:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| a.flush(soon()).unwrap());
            for _ in 0..sent {
                assert_eq!(any(&mut b).payload().len(), 64 << 10);
            }
        });
        nothing(&mut b);
    });
}

#[test]
fn a_queue_may_drop_instead() {
    on_every_transport(|host| {
        let queue = Queue { signals: 2, when_full: WhenFull::DropOldest, ..Queue::default() };
        let mut b = host.open_with("b", Options { queue, ..Options::default() });
        let mut a = host.open("a");
        for n in 0..10 {
            a.send(signal(n), b.spid()).unwrap();
        }
        while b.receive(&Filter::only(&[1]), now()).unwrap().is_some() {}
        assert_eq!([number(&mut b), number(&mut b)], [USER_BASE + 8, USER_BASE + 9]);
        nothing(&mut b);
    });
}

#[test]
fn the_descriptor_is_readable_while_something_can_be_received() {
    on_every_transport(|host| {
        let (mut a, mut b) = (host.open("a"), host.open("b"));
        assert!(!readable(&mut b, now()));
        a.send(signal(0), b.spid()).unwrap();
        a.send(signal(1), b.spid()).unwrap();
        for n in 0..2 {
            // It may be spuriously readable at first.
            loop {
                assert!(readable(&mut b, soon()));
                if let Some(got) = b.receive(&Filter::ANY, now()).unwrap() {
                    assert_eq!(got.number(), USER_BASE + n);
                    break;
                }
            }
        }
        nothing(&mut b);
        assert!(!readable(&mut b, now()));
        a.send(signal(2), b.spid()).unwrap();
        assert!(readable(&mut b, soon()));
        assert_eq!(number(&mut b), USER_BASE + 2);
        b.request_timeout(Duration::from_millis(2), None).unwrap();
        assert!(readable(&mut b, soon()));
        assert_eq!(number(&mut b), TIMEOUT);
    });
}

#[test]
fn an_endpoint_with_a_descriptor_sleeps_although_its_queue_has_other_signals() {
    on_every_transport(|host| {
        let mut a = host.open("a");
        let mut b = host.open("b");
        b.descriptor().unwrap();
        for n in 0..3 {
            a.send(signal(n), b.spid()).unwrap();
        }
        assert_eq!(number(&mut b), USER_BASE);
        let (before, start) = (cpu_time(), Instant::now());
        let other = Filter::only(&[USER_BASE + 9]);
        let until = Some(start + Duration::from_millis(300));
        assert_eq!(b.receive(&other, until).unwrap(), None);
        let (used, took) = (cpu_time() - before, start.elapsed());
        assert!(used < took / 4, "{used:?} of CPU in {took:?}");
        assert!(readable(&mut b, now()), "signals are queued");
    });
}

#[test]
fn the_descriptor_shows_what_arrives_during_calls_that_do_not_receive() {
    on_every_transport(|host| {
        let mut a = host.open("a");
        let mut b = host.open("b");
        let spid = b.spid();
        b.descriptor().unwrap();
        // A channel that is new, and one whose signals are taken in while a send waits for room.
        for n in 0..2 {
            b.send(signal(n), a.spid()).unwrap();
            assert_eq!(number(&mut a), USER_BASE + n);
            a.send(signal(n), spid).unwrap();
            assert!(readable(&mut b, soon()), "a reply, round {n}");
            assert_eq!(number(&mut b), USER_BASE + n);
        }
        a.send(signal(7), spid).unwrap();
        let briefly = || Some(Instant::now() + Duration::from_millis(20));
        while b.send_until(signal(1), a.spid(), briefly()).is_ok() {}
        assert!(readable(&mut b, soon()), "a signal that arrived while a send waited");
        assert_eq!(number(&mut b), USER_BASE + 7);
    });
}
