//! Channels within one process: switches under load, the descriptor for poll, the policy, names and closing.

mod stream;

use std::time::{Duration, Instant};

use crossway_channel::{
    Channel, Directory, Error, EventKind, Options, Policy, Reason, RecvError, SendError, Transport,
};
use stream::{soon, stream_while};

fn options(dir: &tempfile::TempDir) -> Options {
    Options {
        max_message: 4096,
        capacity_bytes: Some(64 << 10),
        policy: Policy { dry_run: true, ..Policy::default() },
        directory: Directory::at(dir.path()),
        ..Options::default()
    }
}

/// Returns the accepted end and the connecting one.
fn pair(options: Options) -> (Channel, Channel) {
    let listener = options.clone().listen("a/b").unwrap();
    let there = options.connect("a/b", soon()).unwrap();
    (listener.accept(soon()).unwrap(), there)
}

#[test]
fn messages_of_all_lengths_pass_in_order_both_ways_on_every_transport() {
    let dir = tempfile::tempdir().unwrap();
    for transport in Transport::LOCAL {
        let (mut here, mut there) = pair(options(&dir));
        let handle = here.handle();
        handle.switch_to(transport, soon()).unwrap();
        assert_eq!(handle.transport(), transport);
        for len in [0, 1, 47, 48, 49, 4095, 4096, 0] {
            let msg = vec![len as u8; len];
            here.sender().send(&msg, soon()).unwrap();
            there.sender().try_send(&msg).unwrap();
            there.sender().send_in_place(len, soon(), |place| place.copy_from_slice(&msg)).unwrap();
            let mut buf = vec![0; 4096];
            assert_eq!(there.receiver().recv(&mut buf, soon()).unwrap(), len);
            assert_eq!(buf[..len], msg);
            let seen = here.receiver().recv_in_place(soon(), <[u8]>::to_vec).unwrap();
            assert_eq!(seen, msg);
            assert_eq!(here.receiver().try_recv(&mut buf).unwrap(), len);
            assert!(matches!(here.receiver().try_recv(&mut buf), Err(RecvError::Empty)));
        }
        let refused = here.sender().send(&[0; 4097], soon());
        assert!(matches!(refused, Err(SendError::TooLarge { len: 4097, max: 4096 })));
        let late = Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(here.receiver().recv(&mut [0; 8], late), Err(RecvError::TimedOut)));
        here.sender().send(&[7; 100], soon()).unwrap();
        let small = there.receiver().recv(&mut [0; 99], soon());
        assert!(matches!(small, Err(RecvError::TooSmall { need: 100, have: 99 })), "{small:?}");
        assert_eq!(there.receiver().recv(&mut [0; 100], soon()).unwrap(), 100, "it has stayed");
        assert_eq!((here.sender().sequence(), there.receiver().sequence()), (9, 9));
    }
}

/// Sends and receives at both ends at full load, while the transport changes all the time. Returns how long each switch
/// took, in microseconds.
fn switch_under_load(switches: u32) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = pair(options(&dir));
    let (leader, follower) = (here.handle(), there.handle());
    let events = leader.events();
    let sent = stream_while(here, there, || {
        let mut to = Transport::LOCAL.into_iter().cycle();
        let mut done = 0;
        while done < switches {
            let to = to.next().expect("endless");
            if to != leader.transport() {
                leader.switch_to(to, soon()).unwrap();
                done += 1;
            }
        }
    });
    eprintln!("{switches} switches, {sent:?} messages");
    assert!(sent.iter().all(|&n| n > u64::from(switches)), "{sent:?}: there was load");
    assert_eq!(leader.epoch(), switches);
    assert!(follower.epoch() >= switches - 1, "the last Moved may be under way");
    let took = |event: crossway_channel::Event| match event.what {
        EventKind::Switched { took_us, why: Reason::Asked, .. } => Some(took_us),
        _ => None,
    };
    events.try_iter().filter_map(took).collect()
}

/// Set CROSSWAY_SWITCHES=10000 for the long run.
#[test]
fn forced_switches_under_full_load_lose_double_and_reorder_nothing() {
    let switches = std::env::var("CROSSWAY_SWITCHES").map_or(300, |n| n.parse().expect("a number"));
    let mut took = switch_under_load(switches);
    assert_eq!(took.len(), switches as usize, "each one is in the log");
    took.sort_unstable();
    eprintln!(
        "from offer to end: median {} us, p99 {} us",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
}

#[test]
fn a_switch_comes_to_its_end_while_both_programs_are_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let (mut here, mut there) = pair(options(&dir));
    here.sender().send(b"before", soon()).unwrap();
    for to in [Transport::ShmFutex, Transport::ShmSpin, Transport::UdsSeqpacket] {
        // The waiting message does not block the switch: it is held for the program.
        here.handle().ask_for(to);
        if to == Transport::ShmFutex {
            let mut buf = [0; 16];
            while there.receiver().sequence() == 0 {
                match there.receiver().recv(&mut buf, soon()) {
                    Ok(len) => assert_eq!(&buf[..len], b"before"),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        there.handle().switch_to(to, soon()).unwrap();
        assert_eq!(there.handle().transport(), to);
        // Each end is settled once it has received the other's signal.
        here.handle().switch_to(to, soon()).unwrap();
    }
}

#[test]
fn one_descriptor_polls_across_switches() {
    use crossway_sys::poll::{Interest, wait_ready};
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir);
    options.policy.pollable = true;
    let (mut here, mut there) = pair(options);
    let fd = there.receiver().poll_fd().unwrap().try_clone_to_owned().unwrap();
    let handle = here.handle();
    let take = |there: &mut Channel| loop {
        assert!(wait_ready(&fd, Interest::Readable, soon()).unwrap(), "a message waits");
        let (number, mut buf) = (there.receiver().sequence(), [0; 8]);
        match there.receiver().try_recv(&mut buf) {
            Ok(_) => return assert_eq!(u64::from_le_bytes(buf), number),
            Err(RecvError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
    };
    for to in [Transport::ShmEventfd, Transport::UdsSeqpacket, Transport::ShmEventfd] {
        handle.ask_for(to);
        while handle.transport() != to {
            let number = here.sender().sequence();
            here.sender().send(&number.to_le_bytes(), soon()).unwrap();
            take(&mut there);
            assert!(matches!(here.receiver().try_recv(&mut [0; 8]), Err(RecvError::Empty)));
        }
        // No message is there, so it does not poll readable once a call has dealt with what the switch left behind.
        assert!(matches!(there.receiver().try_recv(&mut [0; 8]), Err(RecvError::Empty)));
        let now = Some(Instant::now());
        assert!(!wait_ready(&fd, Interest::Readable, now).unwrap(), "{to}");
    }
    drop(here);
    assert!(wait_ready(&fd, Interest::Readable, soon()).unwrap(), "the end polls readable, too");
}

#[test]
fn a_channel_begins_on_sockets_and_upgrades_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir);
    options.policy.dry_run = false;
    let (here, _there) = pair(options);
    let handle = here.handle();
    let events = handle.events();
    if handle.transport() != Transport::ShmFutex {
        let event = events.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(
            matches!(event.what, EventKind::Switched { to: Transport::ShmFutex, .. }),
            "{event}"
        );
    }
    let log = handle.log();
    let on = Transport::UdsSeqpacket;
    assert_eq!(log[0].what, EventKind::Connected { on });
    let EventKind::Switched { from, to, why, .. } = &log[1].what else { panic!("{}", log[1]) };
    assert_eq!((*from, *to, why), (on, Transport::ShmFutex, &Reason::Upgrade));
}

#[test]
fn what_is_pinned_or_forbidden_at_either_end_holds_for_both() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir);
    options.policy.dry_run = false;
    let listener = options.clone().listen("a/b").unwrap();
    let mut connecting = options.clone();
    connecting.policy.forbid = vec![Transport::ShmFutex, Transport::UdsSeqpacket];
    let there = connecting.connect("a/b", soon()).unwrap();
    let here = listener.accept(soon()).unwrap();
    let reaches = |wanted: Transport| {
        let limit = soon().unwrap();
        while here.handle().transport() != wanted {
            assert!(Instant::now() < limit, "{:?}", here.handle().log());
            std::thread::yield_now();
        }
    };
    reaches(Transport::ShmEventfd);
    let pin = Some(Transport::ShmSpin);
    here.handle().set_policy(Policy { pin, ..Policy::default() });
    reaches(Transport::ShmSpin);
    here.handle().set_policy(Policy::default());
    there.handle().set_policy(Policy { pin: Some(Transport::ShmFutex), ..Policy::default() });
    reaches(Transport::ShmFutex);
    let why = here.handle().log().into_iter().rev().find_map(|event| match event.what {
        EventKind::Switched { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(why, Some(Reason::Policy));
    // Nothing in common: refused with both lists.
    let mut only = options.clone();
    only.policy.pin = Some(Transport::ShmSpin);
    let strict = only.listen("strict").unwrap();
    options.policy.forbid = vec![Transport::ShmSpin];
    let Err(Error::Refused { why, .. }) = options.connect("strict", soon()) else {
        panic!("it connects")
    };
    assert!(why.contains("shm-spin") && why.contains("uds-seqpacket"), "{why}");
    drop(strict);
}

#[test]
fn a_closed_sender_is_heard_after_its_last_message_and_a_dropped_receiver_at_the_next_send() {
    let dir = tempfile::tempdir().unwrap();
    for transport in Transport::LOCAL {
        let (here, mut there) = pair(options(&dir));
        here.handle().switch_to(transport, soon()).unwrap();
        let (mut sender, mut receiver) = here.split();
        for byte in 0..3 {
            sender.send(&[byte], soon()).unwrap();
        }
        sender.close(soon()).unwrap();
        for byte in 0..3 {
            let got = there.receiver().recv_in_place(soon(), |msg| msg[0]).unwrap();
            assert_eq!(got, byte);
        }
        for _ in 0..2 {
            let end = there.receiver().recv(&mut [0; 8], soon());
            assert!(matches!(end, Err(RecvError::Closed)), "{end:?}");
        }
        // The other direction is still open.
        there.sender().send(b"still", soon()).unwrap();
        assert_eq!(receiver.recv(&mut [0; 8], soon()).unwrap(), 5);
        // Switches still work, too.
        let next =
            if transport == Transport::ShmFutex { Transport::ShmSpin } else { Transport::ShmFutex };
        there.handle().switch_to(next, soon()).unwrap();
        drop(receiver);
        let gone = loop {
            match there.sender().send(b"unheard", soon()) {
                Ok(()) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(matches!(gone, SendError::PeerClosed), "{gone}");
    }
}

#[test]
fn dropping_a_whole_channel_delivers_what_was_sent_even_if_the_peer_sent_what_nobody_read() {
    let dir = tempfile::tempdir().unwrap();
    for transport in Transport::LOCAL {
        let (mut here, mut there) = pair(options(&dir));
        here.handle().switch_to(transport, soon()).unwrap();
        there.sender().send(b"unread", soon()).unwrap();
        here.sender().send(b"last words", soon()).unwrap();
        drop(here);
        let mut buf = [0; 16];
        assert_eq!(there.receiver().recv(&mut buf, soon()).unwrap(), 10, "{transport}");
        let end = there.receiver().recv(&mut buf, soon());
        assert!(matches!(end, Err(RecvError::Closed)), "{transport}: {end:?}");
        let limit = soon().unwrap();
        while there.handle().log().last().unwrap().what != EventKind::PeerClosed {
            assert!(Instant::now() < limit, "{:?}", there.handle().log());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_listener_may_come_late_die_and_return_and_several_share_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let now = Some(Instant::now());
    let Err(Error::NobodyListens { name, .. }) = options(&dir).connect("late", now) else {
        panic!("it connects")
    };
    assert_eq!(name, "late");
    let late = std::thread::spawn({
        let options = options(&dir);
        move || options.connect("late", soon()).unwrap()
    });
    let first = options(&dir).listen("late").unwrap();
    let mut early = first.accept(soon()).unwrap();
    let mut connected = late.join().unwrap();
    // The name's listener is dropped, but its channel stays open.
    drop(first);
    early.sender().send(b"x", soon()).unwrap();
    assert_eq!(connected.receiver().recv(&mut [0; 4], soon()).unwrap(), 1);
    let both = [options(&dir).listen("late").unwrap(), options(&dir).listen("late").unwrap()];
    let mut clients = Vec::new();
    let mut accepted = [0, 0];
    while accepted.contains(&0) {
        clients.push(options(&dir).connect("late", soon()).unwrap());
        for (listener, count) in both.iter().zip(&mut accepted) {
            *count += u32::from(listener.accept(Some(Instant::now())).is_ok());
        }
    }
    drop(both);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no name is left");
}

/// Two threads on one CPU exchange messages over a spinning transport, so the one that waits keeps the other from
/// running.
#[test]
fn two_ends_that_spin_on_one_cpu_leave_for_a_transport_that_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir);
    options.policy.dry_run = false;
    // Started here, the control thread may run on every CPU.
    let (mut here, there) = pair(options);
    let handle = here.handle();
    let events = handle.events();
    let cpu = crossway_sys::affinity::current();
    let (mut back, mut heard) = there.split();
    let answering = std::thread::spawn(move || {
        crossway_sys::affinity::pin(cpu).unwrap();
        while heard.recv(&mut [0; 8], soon()).is_ok() {
            back.send(b"pong", soon()).unwrap();
        }
    });
    let asking = std::thread::spawn(move || {
        crossway_sys::affinity::pin(cpu).unwrap();
        let limit = soon().unwrap();
        handle.ask_for(Transport::ShmSpin);
        loop {
            assert!(Instant::now() < limit, "{:?}", handle.log());
            here.sender().send(b"ping", soon()).unwrap();
            here.receiver().recv(&mut [0; 8], soon()).unwrap();
            for event in events.try_iter() {
                if let EventKind::Switched { from: Transport::ShmSpin, why, .. } = event.what {
                    match why {
                        Reason::SameCpu(on) => return assert_eq!(on, cpu),
                        // On a machine under load, the policy may notice this first.
                        Reason::Load { .. } => return,
                        _ => handle.ask_for(Transport::ShmSpin),
                    }
                }
            }
        }
    });
    asking.join().unwrap();
    answering.join().unwrap();
}
