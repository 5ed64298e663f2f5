//! A listening end that moves between hosts while messages flow: from its peer's host to another one, to a third, and
//! back.

mod addresses;
mod cutter;
mod loopback;
mod serving;
mod stream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use addresses::free_address;
use crossway_channel::{
    Channel, Error, Event, EventKind, Handle, Key, Listener, Network, Options, Reason, RecvError,
    SendError, TakenOver, Transport,
};
use cutter::Cutter;
use loopback::{Host, NAME};
use serving::serve;
use stream::{drain, pump, soon};

/// The current listening end. Each new one continues the counts of the one before.
struct Server {
    listener: Listener,
    channel: Channel,
}

/// Serves until another process wants to take over, or until the client closes.
fn run(mut server: Server) {
    if serve(&server.listener, &mut server.channel, 0).unwrap() {
        let Server { listener, channel } = server;
        assert_eq!(listener.hand_over(vec![channel], soon()).unwrap(), 1);
    } else {
        let (sender, _receiver) = server.channel.split();
        sender.close(soon()).unwrap();
    }
}

/// Runs the client's program while each of `hosts` in turn takes the listening end over. `meanwhile` is called during
/// each move.
fn moves(
    client: Options,
    first: Options,
    hosts: Vec<Options>,
    meanwhile: impl Fn() + Sync,
) -> (Handle, [u64; 2]) {
    let listener = first.listen(NAME).unwrap();
    let channel = client.connect(NAME, soon()).unwrap();
    let mut server = Server { channel: listener.accept(soon()).unwrap(), listener };
    let handle = channel.handle();
    let (sender, receiver) = channel.split();
    let (stop, there, back) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (stop, there, back) = (&stop, &there, &back);
    let mut last_move_ms = 0;
    let counts = std::thread::scope(|scope| {
        let sending = scope.spawn(move || pump(sender, 1, stop, there));
        let receiving = scope.spawn(move || drain(receiver, 2, back));
        for host in hosts {
            let serving = scope.spawn(move || run(server));
            // Messages flow both ways before each move.
            let enough = [there, back].map(|count| (count, count.load(Ordering::Relaxed) + 10));
            while enough.iter().any(|(count, enough)| count.load(Ordering::Relaxed) < *enough) {
                let ended = [sending.is_finished(), receiving.is_finished(), serving.is_finished()];
                assert_eq!(ended, [false; 3], "{:?}", handle.log());
                std::thread::sleep(Duration::from_millis(1));
            }
            last_move_ms = UNIX_EPOCH.elapsed().unwrap().as_millis();
            let taking = scope.spawn(|| host.take_over(NAME, soon()).unwrap());
            meanwhile();
            let TakenOver { listener, mut channels, incomplete } = taking.join().unwrap();
            assert!(incomplete.is_none(), "{incomplete:?}");
            serving.join().unwrap();
            assert_eq!(channels.len(), 1);
            server = Server { listener, channel: channels.remove(0) };
        }
        let serving = scope.spawn(move || run(server));
        let enough = back.load(Ordering::Relaxed) + 10;
        // The last switch is logged when both directions use the new transport, which may be after these messages.
        let is_logged = || {
            let last = |event: &Event| u128::from(event.at_unix_ms) >= last_move_ms;
            handle.log().iter().filter(|event| last(event)).any(|event| moved_to(event).is_some())
        };
        while back.load(Ordering::Relaxed) < enough || !is_logged() {
            assert!(!receiving.is_finished() && !serving.is_finished(), "{:?}", handle.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        let counts = [sending.join().unwrap(), receiving.join().unwrap()];
        // The server ends normally only if it received all messages, each once and in order.
        serving.join().unwrap();
        counts
    });
    (handle, counts)
}

/// Returns the new transport if the event is a switch made because an end had moved.
fn moved_to(event: &Event) -> Option<Transport> {
    match event.what {
        EventKind::Switched { to, why: Reason::PeerMoved { .. }, .. } => Some(to),
        _ => None,
    }
}

/// Returns the transports to which the channel switched because an end had moved.
fn after_moves(handle: &Handle) -> Vec<Transport> {
    handle.log().iter().filter_map(moved_to).collect()
}

#[test]
fn a_client_streams_on_while_its_server_moves_to_other_hosts_and_back() {
    let key = Key::generate().unwrap();
    for key in [None, Some(&key)] {
        let [here, there, third] = [(); 3].map(|()| Host::new());
        let all = [here.address, there.address, third.address];
        // Each process that takes over must be able to reach the old one, wherever that runs.
        let on = |host: &Host, from: &Host| host.options(&[host.address, from.address], key);
        let hosts = vec![
            on(&there, &here),
            on(&third, &there),
            on(&here, &third),
            on(&there, &here),
            on(&here, &there),
        ];
        let client = here.options(&all, key);
        let first = here.options(&[here.address], key);
        let (handle, [sent, received]) = moves(client, first, hosts, || ());
        eprintln!("{sent} messages there, {received} back");
        use Transport::{Tcp, UdsSeqpacket};
        assert_eq!(
            after_moves(&handle),
            [Tcp, Tcp, UdsSeqpacket, Tcp, UdsSeqpacket],
            "{:?}",
            handle.log()
        );
        drop(handle);
        for host in [&here, &there, &third] {
            assert!(std::fs::read_dir(host.dir.path()).unwrap().next().is_none(), "a name is left");
        }
    }
}

#[test]
fn a_server_whose_client_is_on_another_host_is_replaced_on_its_host() {
    let [here, there] = [(); 2].map(|()| Host::new());
    let server = there.options(&[there.address], None);
    let client = here.options(&[there.address], None);
    let (handle, [sent, received]) =
        moves(client, server.clone(), vec![server.clone(), server], || ());
    eprintln!("{sent} messages there, {received} back");
    assert_eq!(after_moves(&handle), [Transport::Tcp; 2], "{:?}", handle.log());
}

/// Set CROSSWAY_MOVES=100 for the long run.
#[test]
fn moves_whose_connections_are_cut_at_any_time_lose_double_and_reorder_nothing() {
    let rounds = std::env::var("CROSSWAY_MOVES").map_or(3, |n| n.parse().expect("a number"));
    let [here, there, third] = [(); 3].map(|()| Host::new());
    // The client reaches the two other hosts through middleboxes.
    let boxes = [&there, &third].map(|host| Cutter::before(host.address));
    let client = here.options(&[boxes[0].address(), boxes[1].address()], None);
    let on = |host: &Host, from: SocketAddr| host.options(&[host.address, from], None);
    let round = [
        on(&there, here.address),
        on(&third, there.address),
        on(&there, third.address),
        on(&here, there.address),
    ];
    let hosts: Vec<Options> = round.iter().cycle().take(rounds * round.len()).cloned().collect();
    let first = here.options(&[here.address], None);
    let seed = AtomicU64::new(1);
    let (handle, [sent, received]) = moves(client, first, hosts, || {
        // Two cuts around each move, at times that differ from move to move.
        for _ in 0..2 {
            let n = seed.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(n * 7919 % 30_000));
            boxes.iter().for_each(Cutter::cut);
        }
    });
    let cuts: u32 = boxes.iter().map(Cutter::cuts).sum();
    eprintln!("{cuts} cuts, {sent} messages there, {received} back");
    assert!(cuts > 0);
    // The log is too short for the events of all moves.
    use Transport::{Tcp, UdsSeqpacket};
    let last = after_moves(&handle);
    assert!(last.ends_with(&[Tcp, UdsSeqpacket]), "{:?}", handle.log());
}

#[test]
fn a_client_without_a_way_to_other_hosts_stays_and_its_server_is_notified() {
    let [here, there] = [(); 2].map(|()| Host::new());
    let client = Options { network: Some(Network::default()), ..here.options(&[], None) };
    let listener = here.options(&[here.address], None).listen(NAME).unwrap();
    let mut left = client.connect(NAME, soon()).unwrap();
    let channel = listener.accept(soon()).unwrap();
    left.sender().send(b"before", soon()).unwrap();
    let next = there.options(&[there.address, here.address], None);
    let taking =
        std::thread::spawn(move || next.take_over(NAME, soon()).map(|taken| taken.channels.len()));
    let Err(error @ Error::CannotFollow { .. }) = listener.hand_over(vec![channel], soon()) else {
        panic!("it follows")
    };
    assert!(error.to_string().contains("CROSSWAY_CHANNEL_HOSTS"), "{error}");
    assert_eq!(taking.join().unwrap().unwrap(), 0);
    assert!(matches!(left.receiver().recv(&mut [0; 8], soon()), Err(RecvError::PeerDied)));
}

#[test]
fn a_client_whose_server_never_arrives_gets_an_error_as_does_a_server_whose_client_never_comes() {
    let [here, there] = [(); 2].map(|()| Host::new());
    // The client looks for its server at an address where nothing listens.
    let client = here.options(&[free_address()], None);
    let listener = here.options(&[here.address], None).listen(NAME).unwrap();
    let mut left = client.connect(NAME, soon()).unwrap();
    left.sender().send(b"before", soon()).unwrap();
    let channel = listener.accept(soon()).unwrap();
    let next = there.options(&[there.address, here.address], None);
    let taking = std::thread::spawn(move || next.take_over(NAME, soon()).unwrap());
    assert_eq!(listener.hand_over(vec![channel], soon()).unwrap(), 1);
    let TakenOver { listener: _listener, mut channels, .. } = taking.join().unwrap();
    let mut buf = [0; 8];
    // Messages sent before the move are delivered; then each end learns that the other did not come.
    assert_eq!(channels[0].receiver().recv(&mut buf, soon()).unwrap(), 6);
    assert!(matches!(channels[0].receiver().recv(&mut buf, soon()), Err(RecvError::PeerDied)));
    assert!(matches!(left.receiver().recv(&mut buf, soon()), Err(RecvError::PeerDied)));
    assert!(matches!(left.sender().send(b"after", soon()), Err(SendError::PeerClosed)));
}

#[test]
fn a_process_that_gives_up_taking_over_is_not_handed_anything() {
    let [here, there] = [(); 2].map(|()| Host::new());
    let listener = here.options(&[here.address], None).listen(NAME).unwrap();
    let near = here.options(&[], None);
    for impatient in [near, there.options(&[there.address, here.address], None)] {
        let late = Some(Instant::now() + Duration::from_millis(50));
        let Err(Error::HandOver(_)) = impatient.take_over(NAME, late) else {
            panic!("it takes over")
        };
        let limit = soon().unwrap();
        while listener.is_asked_to_hand_over() {
            assert!(Instant::now() < limit, "a process that is gone still asks");
            std::thread::yield_now();
        }
    }
}
