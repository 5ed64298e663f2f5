//! Channels between hosts whose programs allow loss: each message that arrives does so once and in order, the others
//! are counted, and a close always arrives.

mod addresses;
mod child;
mod cutter;
mod relay;
mod remote_end;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use addresses::free_address;
use crossway_channel::{
    Channel, Directory, Error, EventKind, Handle, Hosts, Key, Listener, MAX_LOSSY_MESSAGE, Network,
    Options, Policy, Reason, Receiver, RecvError, SendError, Sender, SwitchError, Transport,
};
use crossway_sys::poll::{Interest, wait_ready};
use cutter::Cutter;
use remote_end::{ROLES, start_and_meet};

const NAME: &str = "camera/left";

/// A deadline that only serves to catch hangs.
fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(120))
}

/// Returns the options of a program on a simulated host, which reaches the name at an address.
fn host(dir: &Path, address: SocketAddr, key: Option<&Key>, lossy: bool) -> Options {
    Options {
        max_message: MAX_LOSSY_MESSAGE,
        policy: Policy { lossy, ..Policy::default() },
        directory: Directory::at(dir),
        network: Some(Network {
            hosts: Hosts::default().with(NAME, address),
            plain: key.is_none(),
            key: key.cloned(),
            ..Network::default()
        }),
        ..Options::default()
    }
}

struct Pair {
    here: Channel,
    there: Channel,
    _listener: Listener,
    _dirs: [tempfile::TempDir; 2],
}

/// Opens a channel. The connecting end connects to the listener's address or to a middlebox in front of it.
fn pair(addresses: [SocketAddr; 2], key: Option<&Key>, lossy: [bool; 2]) -> Pair {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let listener = host(dirs[0].path(), addresses[0], key, lossy[0]).listen(NAME).unwrap();
    let there = host(dirs[1].path(), addresses[1], key, lossy[1]).connect(NAME, soon()).unwrap();
    let here = listener.accept(soon()).unwrap();
    Pair { here, there, _listener: listener, _dirs: dirs }
}

/// Waits until `is` returns true for a channel; panics with `what` after a time limit.
fn wait_for(handle: &Handle, what: &str, is: impl Fn(&Handle) -> bool) {
    let limit = soon().unwrap();
    while !is(handle) {
        assert!(Instant::now() < limit, "no {what}: {:?}", handle.log());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for_udp(handle: &Handle) {
    wait_for(handle, "udp", |handle| handle.transport() == Transport::Udp);
}

#[test]
fn messages_travel_by_udp_if_both_ends_allow_loss() {
    let key = Key::generate().unwrap();
    for key in [None, Some(&key)] {
        let address = free_address();
        let Pair { mut here, mut there, _listener, _dirs } = pair([address; 2], key, [true; 2]);
        wait_for_udp(&here.handle());
        wait_for_udp(&there.handle());
        let why = here.handle().log().pop().unwrap().what;
        assert!(matches!(&why, EventKind::Switched { why: Reason::LossAllowed, .. }), "{why:?}");
        let mut buf = [0; MAX_LOSSY_MESSAGE];
        for len in [0, 1, 47, 48, 49, 1000, MAX_LOSSY_MESSAGE] {
            let msg: Vec<u8> = (0..len).map(|i| i as u8).collect();
            here.sender().send(&msg, soon()).unwrap();
            assert_eq!(there.receiver().recv(&mut buf, soon()).unwrap(), len);
            assert_eq!(buf[..len], msg);
            there.sender().send_in_place(len, soon(), |place| place.copy_from_slice(&msg)).unwrap();
            let seen = here.receiver().recv_in_place(soon(), <[u8]>::to_vec).unwrap();
            assert_eq!(seen, msg);
            assert!(matches!(here.receiver().try_recv(&mut buf), Err(RecvError::Empty)));
        }
        let refused = here.sender().send(&[0; MAX_LOSSY_MESSAGE + 1], soon());
        assert!(matches!(refused, Err(SendError::TooLarge { max: MAX_LOSSY_MESSAGE, .. })));
        let late = Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(here.receiver().recv(&mut buf, late), Err(RecvError::TimedOut)));
        let status = here.handle().status();
        assert_eq!((status.received_msgs, status.lost_msgs), (7, 0));
    }
}

#[test]
fn a_channel_stays_reliable_unless_both_ends_allow_loss() {
    for lossy in [[true, false], [false, true], [false; 2]] {
        let pair = pair([free_address(); 2], None, lossy);
        let refused = pair.here.handle().switch_to(Transport::Udp, soon());
        let Err(SwitchError::Refused { why, .. }) = refused else {
            panic!("{lossy:?} {refused:?}")
        };
        assert!(why.contains("both ends must allow loss"), "{why}");
        assert_eq!(pair.here.handle().transport(), Transport::Tcp);
    }
}

#[test]
fn longer_messages_than_datagrams_hold_are_refused_when_the_channel_is_opened() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let options = host(dir.path(), address, None, true);
    let long = Options { max_message: MAX_LOSSY_MESSAGE + 1, ..options };
    let Err(Error::Policy(why)) = long.connect(NAME, soon()) else { panic!("it connects") };
    assert!(why.contains("1400") && why.contains("1401"), "{why}");
}

/// Returns the bytes of message `number`.
fn message(number: u64) -> Vec<u8> {
    let len = 8 + number as usize * 37 % (MAX_LOSSY_MESSAGE - 7);
    let mut msg = vec![number as u8; len];
    msg[..8].copy_from_slice(&number.to_le_bytes());
    msg
}

/// Sends numbered messages until `stop` is set, then closes; returns the number of messages. Short pauses let the
/// receiver keep up with most of them.
fn pump(mut sender: Sender, stop: &AtomicBool) -> u64 {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            sender.close(soon()).unwrap();
            return number;
        }
        sender.send(&message(number), soon()).unwrap();
        if number % 16 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    unreachable!("numbers do not end")
}

/// Receives numbered messages until an error, and checks that they are whole and that their numbers increase. Returns
/// the number of messages and the error.
fn drain(mut receiver: Receiver) -> (u64, RecvError) {
    let (mut next, mut count) = (0, 0);
    loop {
        let got = receiver.recv_in_place(soon(), |msg| {
            let number = u64::from_le_bytes(*msg.first_chunk().expect("a number"));
            assert!(number >= next, "{number} after {next}");
            assert_eq!(msg, message(number));
            (next, count) = (number + 1, count + 1);
        });
        if let Err(end) = got {
            return (count, end);
        }
    }
}

/// Sends and receives at both ends while `happens` runs, then closes. Returns for each direction how many messages were
/// sent, how many arrived, and how many were counted as lost.
fn stream_while(here: Channel, there: Channel, happens: impl FnOnce()) -> [(u64, u64, u64); 2] {
    let stop = &AtomicBool::new(false);
    let handles = [there.handle(), here.handle()];
    let ((here_tx, here_rx), (there_tx, there_rx)) = (here.split(), there.split());
    let counts = std::thread::scope(|scope| {
        let sent = [scope.spawn(|| pump(here_tx, stop)), scope.spawn(|| pump(there_tx, stop))];
        let received = [scope.spawn(|| drain(there_rx)), scope.spawn(|| drain(here_rx))];
        happens();
        stop.store(true, Ordering::Relaxed);
        let sent = sent.map(|thread| thread.join().unwrap());
        let received = received.map(|thread| thread.join().unwrap());
        for (_, end) in &received {
            assert!(matches!(end, RecvError::Closed), "a close is heard: {end}");
        }
        [(sent[0], received[0].0), (sent[1], received[1].0)]
    });
    [0, 1].map(|end| {
        let status = handles[end].status();
        assert_eq!(status.received_msgs, counts[end].1);
        assert_eq!(status.received_msgs + status.lost_msgs, counts[end].0, "all are accounted for");
        (counts[end].0, counts[end].1, status.lost_msgs)
    })
}

#[test]
fn what_a_bad_network_loses_is_counted_and_what_it_repeats_delays_and_forges_is_not_received() {
    let key = Key::generate().unwrap();
    for key in [None, Some(&key)] {
        let address = free_address();
        let IpAddr::V4(ip) = address.ip() else { panic!("not an IPv4 address") };
        let deeds = relay::before(ip);
        let cutter = Cutter::before(address);
        let Pair { here, there, _listener, _dirs } =
            pair([address, cutter.address()], key, [true; 2]);
        let handle = there.handle();
        wait_for_udp(&here.handle());
        let counts = stream_while(here, there, || {
            // This must be true even if connections break meanwhile.
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(100));
                cutter.cut();
            }
        });
        let did = |deed: &std::sync::atomic::AtomicU64| deed.load(Ordering::Relaxed);
        let dropped = did(&deeds.dropped);
        eprintln!("{counts:?}, {dropped} dropped, {} forged", did(&deeds.forged));
        assert!(cutter.cuts() > 0, "connections broke");
        assert!(dropped > 0 && did(&deeds.repeated) > 0 && did(&deeds.delayed) > 0);
        assert!(did(&deeds.forged) > 0);
        for (sent, received, lost) in counts {
            assert!(lost > 0 && received > sent / 4, "{sent} sent, {received} received");
        }
        assert!(handle.log().iter().any(|event| event.what == EventKind::Interrupted));
    }
}

#[test]
fn where_no_datagram_passes_the_channel_stays_on_tcp_and_loses_nothing() {
    let address = free_address();
    // The middlebox forwards TCP connections and nothing else, so no datagram passes.
    let cutter = Cutter::before(address);
    let Pair { here, there, _listener, _dirs } = pair([address, cutter.address()], None, [true; 2]);
    let (leader, follower) = (here.handle(), there.handle());
    let counts = stream_while(here, there, || {
        wait_for(&follower, "refusal", |handle| {
            handle.log().iter().any(|event| match &event.what {
                EventKind::Refused { to: Transport::Udp, because, .. } => {
                    because.contains("no datagram")
                }
                _ => false,
            })
        });
    });
    assert_eq!(leader.transport(), Transport::Tcp);
    for (sent, received, lost) in counts {
        assert_eq!((received, lost), (sent, 0));
    }
}

#[test]
fn switches_between_udp_and_tcp_keep_order_and_one_descriptor_polls_across_them() {
    let (dirs, address) = ([(); 2].map(|()| tempfile::tempdir().unwrap()), free_address());
    let options = |dir: &tempfile::TempDir, pollable| {
        let options = host(dir.path(), address, None, true);
        // The policy does not interfere.
        let policy = Policy { dry_run: true, pollable, ..options.policy };
        Options { policy, ..options }
    };
    let listener = options(&dirs[0], false).listen(NAME).unwrap();
    let there = options(&dirs[1], true).connect(NAME, soon()).unwrap();
    let here = listener.accept(soon()).unwrap();
    let (leader, follower) = (here.handle(), there.handle());
    let ((sender, _keeps), (_keeps_too, mut receiver)) = (here.split(), there.split());
    let fd = receiver.poll_fd().unwrap().try_clone_to_owned().unwrap();
    let stop = &AtomicBool::new(false);
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| pump(sender, stop));
        let receiving = scope.spawn(move || {
            let (mut next, mut count, mut buf) = (0, 0, [0; MAX_LOSSY_MESSAGE]);
            loop {
                assert!(wait_ready(&fd, Interest::Readable, soon()).unwrap());
                match receiver.try_recv(&mut buf) {
                    Ok(len) => {
                        let number = u64::from_le_bytes(*buf.first_chunk().unwrap());
                        assert!(number >= next, "{number} after {next}");
                        assert_eq!(buf[..len], message(number));
                        (next, count) = (number + 1, count + 1);
                    }
                    Err(RecvError::Empty) => {}
                    Err(RecvError::Closed) => return count,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for round in 0..20 {
            let to = if round % 2 == 0 { Transport::Udp } else { Transport::Tcp };
            leader.switch_to(to, soon()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        (sending.join().unwrap(), receiving.join().unwrap())
    });
    let status = follower.status();
    assert_eq!((status.received_msgs, status.received_msgs + status.lost_msgs), (received, sent));
    assert!(leader.epoch() >= 20);
}

#[test]
fn a_listening_end_moves_to_another_host_and_what_was_lost_before_stays_counted() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let addresses = [free_address(), free_address()];
    let on = |dir: usize, reaches: &[SocketAddr]| {
        let mut options = host(dirs[dir].path(), reaches[0], None, true);
        if let (Some(network), Some(other)) = (&mut options.network, reaches.get(1)) {
            network.hosts = network.hosts.clone().with(NAME, *other);
        }
        options
    };
    let listener = on(0, &addresses[..1]).listen(NAME).unwrap();
    let client = on(2, &addresses).connect(NAME, soon()).unwrap();
    let mut server = listener.accept(soon()).unwrap();
    wait_for_udp(&client.handle());
    let (sender, _keeps) = client.split();
    let stop = &AtomicBool::new(false);
    let next = &mut 0;
    let mut take = |server: &mut Channel| {
        server.receiver().recv_in_place(soon(), |msg| {
            let number = u64::from_le_bytes(*msg.first_chunk().expect("a number"));
            assert!(number >= *next, "{number} after {next}");
            assert_eq!(msg, message(number));
            *next = number + 1;
        })
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| pump(sender, stop));
        // The socket's buffer cannot hold everything that arrives meanwhile.
        std::thread::sleep(Duration::from_millis(500));
        (0..100).for_each(|_| take(&mut server).unwrap());
        let new = on(1, &[addresses[1], addresses[0]]);
        let taking = scope.spawn(|| new.take_over(NAME, soon()).unwrap());
        while !listener.is_asked_to_hand_over() {
            take(&mut server).unwrap();
        }
        let before = server.handle().status().lost_msgs;
        assert_eq!(listener.hand_over(vec![server], soon()).unwrap(), 1);
        let mut taken = taking.join().unwrap();
        let mut server = taken.channels.remove(0);
        let handle = server.handle();
        while handle.transport() != Transport::Udp {
            take(&mut server).unwrap();
        }
        assert!(handle.status().lost_msgs >= before);
        stop.store(true, Ordering::Relaxed);
        let end = loop {
            if let Err(end) = take(&mut server) {
                break end;
            }
        };
        assert!(matches!(end, RecvError::Closed), "{end}");
        let status = handle.status();
        assert_eq!(status.received_msgs + status.lost_msgs, sending.join().unwrap());
        assert!(status.lost_msgs > 0);
    });
}

/// The child process: an end that sends until it is killed.
#[test]
fn child() {
    let options = |dir: &Path, address| host(dir, address, None, true);
    let Some((_listener, channel)) = remote_end::open(options) else { return };
    let (sender, _receiver) = channel.split();
    pump(sender, &AtomicBool::new(false));
}

#[test]
fn the_death_of_an_end_is_heard() {
    for role in ROLES {
        let (address, dirs) = (free_address(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let mut options = host(dirs[0].path(), address, None, true);
        // If the listener is dead, its host refuses connections immediately; if the connector is dead, the listener
        // waits for it.
        if let (Some(network), "connect") = (&mut options.network, role) {
            network.resume = Duration::from_millis(100);
        }
        let (mut child, channel) = start_and_meet(role, dirs[1].path(), address, options);
        let handle = channel.handle();
        let (mut sender, receiver) = channel.split();
        let killing = std::thread::spawn(move || {
            wait_for_udp(&handle);
            std::thread::sleep(Duration::from_millis(50));
            child.0.kill().unwrap();
            child.0.wait().unwrap();
        });
        let (count, end) = drain(receiver);
        assert!(count > 0 && matches!(end, RecvError::PeerDied), "{role}: {end} after {count}");
        killing.join().unwrap();
        let deaf = loop {
            if let Err(error) = sender.send(b"in vain", soon()) {
                break error;
            }
        };
        assert!(matches!(deaf, SendError::PeerClosed), "{role}: {deaf}");
    }
}
