//! Tests of hunts, attaches and time-outs.

use std::time::Duration;

use crossway_linx::signal::{ATTACH, HUNT, TIMEOUT, USER_BASE};
use crossway_linx::{Error, Filter, Spid, Transport};

use super::{Host, any, nothing, now, number, on_every_transport, signal, soon};

#[test]
fn a_hunt_finds_what_is_there_and_what_comes_later_and_signals_go_both_ways() {
    on_every_transport(|host| {
        let mut a = host.open("a");
        a.hunt("b", Some(signal(1))).unwrap();
        nothing(&mut a);
        let mut b = host.open("b");
        let found = any(&mut a);
        assert_eq!((found.number(), found.sender()), (USER_BASE + 1, Some(b.spid())));
        assert_eq!(found.payload(), b"payload");
        b.hunt("a", None).unwrap();
        let found = any(&mut b);
        assert_eq!((found.number(), found.sender()), (HUNT, Some(a.spid())));

        for n in 0..100 {
            a.send(signal(n), b.spid()).unwrap();
            b.send(signal(1000 + n), a.spid()).unwrap();
        }
        for n in 0..100 {
            let at_b = any(&mut b);
            assert_eq!((at_b.number(), at_b.sender()), (USER_BASE + n, Some(a.spid())));
            let mut at_a = any(&mut a);
            assert_eq!((at_a.number(), at_a.payload()), (USER_BASE + 1000 + n, &b"payload"[..]));
            // The buffer is reused for the answer.
            at_a.set_number(USER_BASE + 2000 + n).unwrap();
            a.send(at_a, b.spid()).unwrap();
        }
        for n in 0..100 {
            assert_eq!(number(&mut b), USER_BASE + 2000 + n);
        }
    });
}

#[test]
fn an_attach_is_answered_after_the_last_signal_and_immediately_for_dead_endpoints() {
    on_every_transport(|host| {
        let mut a = host.open("a");
        let mut b = host.open("b");
        let spid = b.spid();
        a.attach(spid, None).unwrap();
        let taken_back = a.attach(spid, Some(signal(99))).unwrap();
        a.attach(spid, Some(signal(77))).unwrap();
        for n in 0..50 {
            b.send(signal(n), a.spid()).unwrap();
        }
        a.detach(taken_back).unwrap();
        assert!(matches!(a.detach(taken_back), Err(Error::NotPending)));
        drop(b);
        for n in 0..50 {
            assert_eq!(number(&mut a), USER_BASE + n);
        }
        let told = any(&mut a);
        assert_eq!((told.number(), told.sender()), (ATTACH, Some(spid)));
        assert_eq!(number(&mut a), USER_BASE + 77);
        let late = a.attach(spid, None).unwrap();
        assert_eq!(any(&mut a).sender(), Some(spid));
        assert!(matches!(a.detach(late), Err(Error::NotPending)));
        nothing(&mut a);
        assert!(matches!(a.send(signal(1), spid), Err(Error::Gone { spid: gone }) if gone == spid));
        assert!(matches!(a.info(spid), Err(Error::Gone { .. })));
        let never = Spid::new(0xfff).unwrap();
        assert!(matches!(a.send(signal(1), never), Err(Error::Unknown { number: 0xfff })));
    });
}

#[test]
fn an_attach_signal_that_is_queued_is_taken_back_by_the_detach() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    let b = host.open("b");
    let attach = a.attach(b.spid(), None).unwrap();
    drop(b);
    // It has arrived, as the next check shows.
    while a.receive(&Filter::only(&[1]), now()).unwrap().is_none()
        && a.info(Spid::new(2).unwrap()).is_ok()
    {}
    a.receive(&Filter::only(&[1]), now()).unwrap();
    a.detach(attach).unwrap();
    nothing(&mut a);
}

#[test]
fn a_restarted_process_gets_another_number_and_is_found_again() {
    on_every_transport(|host| {
        let mut client = host.open("client");
        let mut spids = Vec::new();
        for _ in 0..5 {
            let mut server = host.open("server");
            let found = client.hunt_and_wait("server", soon()).unwrap();
            assert_eq!(found, server.spid());
            client.attach(found, None).unwrap();
            client.send(signal(1), found).unwrap();
            let asked = any(&mut server);
            server.send(asked, client.spid()).unwrap();
            drop(server);
            assert_eq!([number(&mut client), number(&mut client)], [USER_BASE + 1, ATTACH]);
            spids.push(found);
        }
        spids.sort_unstable();
        spids.dedup();
        assert_eq!(spids.len(), 5, "no number was assigned twice");
    });
}

#[test]
fn hunts_end_with_their_owner_or_when_they_are_cancelled() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    let owner = host.open("owner");
    a.hunt_for("late", Some(signal(1)), Some(owner.spid())).unwrap();
    let cancelled = a.hunt("late", Some(signal(2))).unwrap();
    a.hunt("late", Some(signal(3))).unwrap();
    a.cancel_hunt(cancelled).unwrap();
    a.attach(owner.spid(), None).unwrap();
    drop(owner);
    assert_eq!(number(&mut a), ATTACH);
    let _late = host.open("late");
    assert_eq!(number(&mut a), USER_BASE + 3);
    nothing(&mut a);
    assert!(a.hunt("", None).is_err() && a.hunt("a//b", None).is_err());
}

#[test]
fn timeouts_are_signals_of_the_endpoint_itself() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    let long = Duration::from_secs(1000);
    let ms = Duration::from_millis(1);
    a.request_timeout(ms, None).unwrap();
    let changed = a.request_timeout(long, Some(signal(1))).unwrap();
    let cancelled = a.request_timeout(ms, Some(signal(2))).unwrap();
    a.cancel_timeout(cancelled).unwrap();
    a.change_timeout(changed, 2 * ms).unwrap();
    let first = any(&mut a);
    assert_eq!((first.number(), first.sender()), (TIMEOUT, Some(a.spid())));
    assert_eq!(number(&mut a), USER_BASE + 1);
    assert!(matches!(a.change_timeout(changed, ms), Err(Error::NotPending)));
    nothing(&mut a);
}
