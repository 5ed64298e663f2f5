//! Channels between hosts: directories that share nothing, TCP between them, keys, peers that die, and (in `cuts`)
//! connections that are cut.

#[path = "../addresses/mod.rs"]
mod addresses;
#[path = "../child/mod.rs"]
mod child;
mod cuts;
#[path = "../cutter/mod.rs"]
mod cutter;
#[path = "../remote_end/mod.rs"]
mod remote_end;
#[path = "../stream/mod.rs"]
mod stream;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use addresses::free_address;
use crossway_channel::{
    Channel, Directory, Error, EventKind, Hosts, Key, Listener, Network, Options, Policy,
    RecvError, SendError, SwitchError, Transport,
};
use remote_end::{ROLES, start_and_meet};
use stream::{Stream, check, fill, soon};

const NAME: &str = "camera/left";

/// Returns the options of a simulated host, which shares no directory with others.
fn host(dir: &Path, network: &Network) -> Options {
    Options {
        max_message: 4096,
        capacity_bytes: Some(64 << 10),
        policy: Policy::default(),
        directory: Directory::at(dir),
        network: Some(network.clone()),
    }
}

fn network(address: SocketAddr, key: Option<&Key>) -> Network {
    Network {
        hosts: Hosts::default().with(NAME, address),
        plain: key.is_none(),
        key: key.cloned(),
        ..Network::default()
    }
}

/// Two hosts that can reach each other: the options of the listener and of the connector.
struct Hosts2 {
    here: Options,
    there: Options,
    _dirs: [tempfile::TempDir; 2],
}

impl Hosts2 {
    fn new(key: Option<&Key>) -> Hosts2 {
        let address = free_address();
        Self::at(&network(address, key), &network(address, key))
    }

    fn at(here: &Network, there: &Network) -> Hosts2 {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (here, there) = (host(dirs[0].path(), here), host(dirs[1].path(), there));
        Hosts2 { here, there, _dirs: dirs }
    }

    /// Returns the accepted end, the connecting end and the listener.
    fn pair(&self) -> (Channel, Channel, Listener) {
        let listener = self.here.clone().listen(NAME).unwrap();
        let there = self.there.clone().connect(NAME, soon()).unwrap();
        (listener.accept(soon()).unwrap(), there, listener)
    }
}

#[test]
fn messages_of_all_lengths_pass_in_order_both_ways_plain_and_sealed() {
    let key = Key::generate().unwrap();
    for key in [None, Some(&key)] {
        let hosts = Hosts2::new(key);
        let (mut here, mut there, _listener) = hosts.pair();
        let mut buf = [0; 4096];
        for len in [0, 1, 47, 48, 49, 64, 1000, 4096] {
            let msg: Vec<u8> = (0..len).map(|i| i as u8).collect();
            here.sender().send(&msg, soon()).unwrap();
            there.sender().send_in_place(len, soon(), |place| place.copy_from_slice(&msg)).unwrap();
            there.sender().try_send(&msg).unwrap();
            assert_eq!(there.receiver().recv(&mut buf, soon()).unwrap(), len);
            assert_eq!(buf[..len], msg);
            let seen = here.receiver().recv_in_place(soon(), <[u8]>::to_vec).unwrap();
            assert_eq!(seen, msg);
            let seen = here.receiver().recv_in_place(soon(), <[u8]>::to_vec).unwrap();
            assert_eq!(seen, msg);
            assert!(matches!(here.receiver().try_recv(&mut buf), Err(RecvError::Empty)));
        }
        let refused = here.sender().send(&[0; 4097], soon());
        assert!(matches!(refused, Err(SendError::TooLarge { len: 4097, max: 4096 })));
        let late = Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(here.receiver().recv(&mut [0; 8], late), Err(RecvError::TimedOut)));
        assert_eq!(here.handle().transport(), Transport::Tcp);
        assert_eq!((here.handle().id(), here.sender().sequence()), (there.handle().id(), 8));
        // A ring cannot reach another host, and the channel stays as it is.
        let refused = here.handle().switch_to(Transport::ShmFutex, soon());
        let Err(SwitchError::Refused { why, .. }) = refused else { panic!("{refused:?}") };
        assert!(why.contains("another host"), "{why}");
    }
}

#[test]
fn the_same_program_uses_memory_within_a_host_and_tcp_between_hosts() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let network = network(free_address(), None);
    // The same calls with the same settings; only the host differs.
    let program = |dir: &tempfile::TempDir| host(dir.path(), &network);
    let listener = program(&dirs[0]).listen(NAME).unwrap();
    for (dir, wanted) in [(&dirs[0], Transport::ShmFutex), (&dirs[1], Transport::Tcp)] {
        let mut there = program(dir).connect(NAME, soon()).unwrap();
        let mut here = listener.accept(soon()).unwrap();
        let limit = soon().unwrap();
        while there.handle().transport() != wanted {
            assert!(Instant::now() < limit, "{:?}", there.handle().log());
            there.sender().send(b"hello", soon()).unwrap();
            assert_eq!(here.receiver().recv(&mut [0; 8], soon()).unwrap(), 5);
        }
        let peer = here.handle().status().peer_host;
        assert_eq!(peer.is_some(), wanted == Transport::Tcp, "{peer:?}");
    }
}

#[test]
fn what_is_not_protected_and_not_wanted_plain_is_refused_with_the_way_out() {
    let address = free_address();
    let [one, other] = [(); 2].map(|()| Key::generate().unwrap());
    let open = Network { plain: false, ..network(address, None) };
    let hosts = Hosts2::at(&open, &open);
    let listened = hosts.here.clone().listen(NAME).map(drop);
    for refused in [listened, hosts.there.clone().connect(NAME, soon()).map(drop)] {
        let Err(error @ Error::Unprotected { .. }) = refused else { panic!("{refused:?}") };
        let said = error.to_string();
        assert!(said.contains("KEY") && said.contains("PLAIN"), "{said}");
    }
    // Names that are on no other host need no key.
    drop(hosts.here.clone().listen("local/only").unwrap());
    for (ours, theirs, why) in [
        (Some(&one), None, "demands a key"),
        (None, Some(&one), "has no key"),
        (Some(&one), Some(&other), "is different"),
    ] {
        let address = free_address();
        let hosts = Hosts2::at(&network(address, ours), &network(address, theirs));
        let listener = hosts.here.clone().listen(NAME).unwrap();
        let Err(error @ Error::Disagreed { .. }) = hosts.there.clone().connect(NAME, soon()) else {
            panic!("they agree")
        };
        let said = error.to_string();
        assert!(said.contains(why) && said.contains(&address.to_string()), "{said}");
        assert!(listener.accept(Some(Instant::now())).is_err(), "nothing came of it");
    }
}

#[test]
fn names_abroad_are_looked_for_and_their_errors_say_where() {
    let address = free_address();
    let hosts = Hosts2::at(&network(address, None), &network(address, None));
    let now = Some(Instant::now());
    let Err(error @ Error::NobodyListens { .. }) = hosts.there.clone().connect(NAME, now) else {
        panic!("it connects")
    };
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    // 192.0.2.0/24 is reserved for documentation (RFC 5737), so no host has it.
    let foreign = network("192.0.2.1:7400".parse().unwrap(), None);
    let elsewhere = Hosts2::at(&foreign, &foreign);
    let Err(error @ Error::NotHere { .. }) = elsewhere.here.listen(NAME) else {
        panic!("it listens")
    };
    assert!(error.to_string().contains("192.0.2.1:7400"), "{error}");
    let taken = TcpListener::bind(address).unwrap();
    let Err(Error::Os(error)) = hosts.here.clone().listen(NAME) else { panic!("it listens") };
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    drop(taken);
    // A listener that starts late is found. A second listener of the name takes the address over when the first one
    // ends.
    let late = std::thread::spawn({
        let there = hosts.there.clone();
        move || there.connect(NAME, soon()).unwrap()
    });
    let first = hosts.here.clone().listen(NAME).unwrap();
    drop((first.accept(soon()).unwrap(), late.join().unwrap()));
    let second = hosts.here.clone().listen(NAME).unwrap();
    drop(first);
    let again = hosts.there.clone().connect(NAME, soon()).unwrap();
    assert_eq!(second.accept(soon()).unwrap().handle().id(), again.handle().id());
}

#[test]
fn a_sender_is_closed_once_its_peer_has_everything_and_no_connection_counts_as_lost() {
    for key in [None, Some(Key::generate().unwrap())] {
        let hosts = Hosts2::new(key.as_ref());
        let (mut here, there, _listener) = hosts.pair();
        let handle = there.handle();
        let (mut sender, receiver) = there.split();
        for number in 0..2_000_u32 {
            sender.send(&number.to_le_bytes(), soon()).unwrap();
            if number % 8 == 0 {
                here.receiver().recv(&mut [0; 4], soon()).unwrap();
            }
        }
        let closing = std::thread::spawn(move || {
            sender.close(soon()).unwrap();
            drop(receiver);
            handle.wait_until_over(soon())
        });
        let mut left = 0;
        while let Ok(len) = here.receiver().recv(&mut [0; 4], soon()) {
            left += len / 4;
        }
        assert_eq!(left, 2_000 - 250);
        assert!(closing.join().unwrap(), "{:?}", here.handle().log());
        assert!(here.handle().wait_until_over(soon()));
        let log = here.handle().log();
        assert_eq!(log.last().map(|event| &event.what), Some(&EventKind::PeerClosed), "{log:?}");
        assert!(log.iter().all(|event| event.what != EventKind::Interrupted), "{log:?}");
    }
}

#[test]
fn two_ends_that_are_dropped_at_the_same_time_let_go_of_each_other() {
    let hosts = Hosts2::new(None);
    let (mut here, mut there, _listener) = hosts.pair();
    let handles = [here.handle(), there.handle()];
    here.sender().send(b"unread", soon()).unwrap();
    there.sender().send(b"unread", soon()).unwrap();
    drop((here, there));
    for handle in handles {
        let limit = soon().unwrap();
        while !handle.is_over() {
            assert!(Instant::now() < limit, "{:?}", handle.log());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_message_that_is_too_long_for_the_network_is_refused() {
    let mut hosts = Hosts2::new(None);
    hosts.there.max_message = 2 << 30;
    let _listener = hosts.here.clone().listen(NAME).unwrap();
    let Err(Error::Refused { why, .. }) = hosts.there.connect(NAME, soon()) else {
        panic!("it connects")
    };
    assert!(why.contains("1073741824"), "{why}");
}

/// Returns settings for a test in which a peer dies. If `waits` is true, `resume` is short, because the test waits for
/// it; otherwise `resume` is an hour, so that the test fails by its time limit if an end waits for it.
fn network_for_deaths(address: SocketAddr, waits: bool) -> Network {
    let resume = if waits { Duration::from_millis(100) } else { Duration::from_secs(3600) };
    Network { resume, ..network(address, None) }
}

/// The child process: an end that sends until it is killed.
#[test]
fn child() {
    let options = |dir: &Path, address| host(dir, &network_for_deaths(address, false));
    let Some((_listener, mut channel)) = remote_end::open(options) else { return };
    let (mut stream, mut msg) = (Stream::new(1), [0; 4096]);
    loop {
        let len = fill(&mut stream, &mut msg);
        channel.sender().send(&msg[..len], soon()).unwrap();
    }
}

#[test]
fn a_killed_end_leaves_a_prefix_and_is_missed() {
    for role in ROLES {
        let (address, dirs) = (free_address(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        // If the listener is dead, its host refuses connections immediately; if the connector is dead, the listener
        // waits for it.
        let options = host(dirs[0].path(), &network_for_deaths(address, role == "connect"));
        let (mut child, mut channel) = start_and_meet(role, dirs[1].path(), address, options);
        let mut stream = Stream::new(1);
        for _ in 0..1000 {
            channel.receiver().recv_in_place(soon(), |msg| check(&mut stream, msg)).unwrap();
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        let end = loop {
            let got = channel.receiver().recv_in_place(soon(), |msg| check(&mut stream, msg));
            if let Err(error) = got {
                break error;
            }
        };
        assert!(matches!(end, RecvError::PeerDied), "{role}: {end}");
        let deaf = loop {
            if let Err(error) = channel.sender().send(b"in vain", soon()) {
                break error;
            }
        };
        assert!(matches!(deaf, SendError::PeerClosed), "{role}: {deaf}");
    }
}

#[test]
fn strangers_at_a_listener_s_address_do_no_harm() {
    use std::io::{Read, Write};
    let address = free_address();
    let key = Key::generate().unwrap();
    let hosts = Hosts2::at(&network(address, Some(&key)), &network(address, Some(&key)));
    let listener = hosts.here.clone().listen(NAME).unwrap();
    let hello = b"CWCHAN\x01\x01";
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"CWCHAN\x01\x00", b"CWCHAN\x09\x01", &[0; 4096]] {
        let mut stranger = std::net::TcpStream::connect(address).unwrap();
        stranger.write_all(said).unwrap();
        let mut answer = Vec::new();
        // The connection is closed, with or without a preamble that says what the listener requires.
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer == hello, "{answer:?}");
    }
    let mut guess = std::net::TcpStream::connect(address).unwrap();
    guess.write_all(&[&hello[..], &[48, 0], &[7; 48]].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = guess.read_to_end(&mut answer);
    assert_eq!(answer, b"CWCHAN\x01\x02", "the key is another one");
    let _there = hosts.there.clone().connect(NAME, soon()).unwrap();
    assert!(listener.accept(soon()).is_ok());
}
