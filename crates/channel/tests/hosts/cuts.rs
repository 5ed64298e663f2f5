//! Connections between hosts that are cut: what both ends notice, and which messages arrive.

use std::time::{Duration, Instant};

use crossway_channel::{EventKind, Key, Network, RecvError, SendError};
use crossway_sys::poll::{Interest, wait_ready};

use super::addresses::free_address;
use super::cutter::Cutter;
use super::stream::{Stream, check, fill, soon, stream_while};
use super::{Hosts2, network};

/// Set CROSSWAY_CUTS=1000 for the long run.
#[test]
fn connections_that_are_cut_in_the_middle_of_traffic_lose_double_and_reorder_nothing() {
    let cuts = std::env::var("CROSSWAY_CUTS").map_or(30, |n| n.parse().expect("a number"));
    let key = Key::generate().unwrap();
    for key in [None, Some(&key)] {
        let address = free_address();
        let cutter = Cutter::before(address);
        let hosts = Hosts2::at(&network(address, key), &network(cutter.address(), key));
        let (here, there, listener) = hosts.pair();
        // The channels of a listener outlive it, and its places stay open for them.
        drop(listener);
        let (leader, follower) = (here.handle(), there.handle());
        let events = follower.events();
        let sent = stream_while(here, there, || {
            for _ in 0..cuts {
                let before = (leader.status().received_msgs, follower.status().received_msgs);
                cutter.cut();
                let limit = soon().unwrap();
                while leader.status().received_msgs == before.0
                    || follower.status().received_msgs == before.1
                {
                    assert!(Instant::now() < limit, "{:?}\n{:?}", leader.log(), follower.log());
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        assert!(cutter.cuts() >= cuts, "one connection at least each time: {}", cutter.cuts());
        let resumed = |what: &EventKind| matches!(what, EventKind::Resumed { .. });
        let resumed = events.try_iter().filter(|event| resumed(&event.what)).count();
        eprintln!("{cuts} cuts, {resumed} in the log, {sent:?} messages");
        assert!(resumed > 0, "{:?}", follower.log());
    }
}

#[test]
fn an_idle_channel_whose_connections_were_cut_goes_on_with_the_next_message() {
    let address = free_address();
    let cutter = Cutter::before(address);
    let hosts = Hosts2::at(&network(address, None), &network(cutter.address(), None));
    let (mut here, mut there, _listener) = hosts.pair();
    for round in 0..3_u8 {
        here.sender().send(&[round], soon()).unwrap();
        assert_eq!(there.receiver().recv_in_place(soon(), |msg| msg[0]).unwrap(), round);
        there.sender().send(&[round], soon()).unwrap();
        assert_eq!(here.receiver().recv_in_place(soon(), |msg| msg[0]).unwrap(), round);
        cutter.cut();
    }
}

#[test]
fn without_resumption_a_cut_ends_the_channel_with_a_prefix_at_most_once() {
    let address = free_address();
    let cutter = Cutter::before(address);
    let none = |address| Network { resume: Duration::ZERO, ..network(address, None) };
    let hosts = Hosts2::at(&none(address), &none(cutter.address()));
    let (here, there, _listener) = hosts.pair();
    let handles = [here.handle(), there.handle()];
    let ((mut sender, _rx), (_tx, mut receiver)) = (here.split(), there.split());
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let (mut stream, mut msg) = (Stream::new(1), [0; 4096]);
            loop {
                let len = fill(&mut stream, &mut msg);
                match sender.send(&msg[..len], soon()) {
                    Ok(()) => {}
                    Err(SendError::PeerClosed) => return stream.count(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let mut stream = Stream::new(1);
        for _ in 0..1000 {
            receiver.recv_in_place(soon(), |msg| check(&mut stream, msg)).unwrap();
        }
        cutter.cut();
        let end = loop {
            match receiver.recv_in_place(soon(), |msg| check(&mut stream, msg)) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(end, RecvError::PeerDied), "{end}");
        assert!(sending.join().unwrap() >= stream.count());
    });
    for handle in handles {
        let limit = soon().unwrap();
        while handle.log().last().map(|event| event.what.clone()) != Some(EventKind::PeerDied) {
            assert!(Instant::now() < limit, "{:?}", handle.log());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_closed_channel_is_heard_after_its_last_message_even_if_the_connection_is_cut_then() {
    let address = free_address();
    let cutter = Cutter::before(address);
    let hosts = Hosts2::at(&network(address, None), &network(cutter.address(), None));
    let (mut here, mut there, _listener) = hosts.pair();
    there.sender().send(b"unread", soon()).unwrap();
    for _ in 0..10 {
        here.sender().send(b"last words", soon()).unwrap();
    }
    drop(here);
    cutter.cut();
    for _ in 0..10 {
        assert_eq!(there.receiver().recv(&mut [0; 16], soon()).unwrap(), 10);
    }
    let end = there.receiver().recv(&mut [0; 16], soon());
    assert!(matches!(end, Err(RecvError::Closed)), "{end:?}");
    let limit = soon().unwrap();
    while there.handle().log().last().map(|event| event.what.clone()) != Some(EventKind::PeerClosed)
    {
        assert!(Instant::now() < limit, "{:?}", there.handle().log());
        std::thread::yield_now();
    }
}

#[test]
fn one_descriptor_polls_across_connections() {
    let address = free_address();
    let cutter = Cutter::before(address);
    let mut hosts = Hosts2::at(&network(address, None), &network(cutter.address(), None));
    hosts.there.policy.pollable = true;
    let (mut here, mut there, _listener) = hosts.pair();
    let fd = there.receiver().poll_fd().unwrap().try_clone_to_owned().unwrap();
    for round in 0..3_u8 {
        // Several arrive together; those that wait in memory must also make the descriptor readable.
        for part in 0..5 {
            here.sender().send(&[round, part], soon()).unwrap();
        }
        for part in 0..5 {
            let mut buf = [0; 8];
            loop {
                assert!(wait_ready(&fd, Interest::Readable, soon()).unwrap());
                match there.receiver().try_recv(&mut buf) {
                    Ok(len) => break assert_eq!(buf[..len], [round, part]),
                    Err(RecvError::Empty) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(matches!(there.receiver().try_recv(&mut [0; 8]), Err(RecvError::Empty)));
        assert!(!wait_ready(&fd, Interest::Readable, Some(Instant::now())).unwrap());
        cutter.cut();
    }
    drop(here);
    assert!(wait_ready(&fd, Interest::Readable, soon()).unwrap(), "the end polls readable, too");
}
