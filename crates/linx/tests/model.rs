//! Tests of the model as programs see it, over every transport between endpoints of one node.

use std::path::Path;
use std::time::{Duration, Instant};

use crossway_linx::signal::{ATTACH, HUNT, NEW_LINK, TIMEOUT, USER_BASE};
use crossway_linx::{
    Count, Endpoint, Error, Filter, Node, NodeThread, Options, Queue, Settings, Signal, Spid,
    Transport, WhenFull,
};
use crossway_sys::poll::{Interest, wait_ready};

/// A limit that only catches hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

fn soon() -> Option<Instant> {
    Some(Instant::now() + WATCHDOG)
}

fn now() -> Option<Instant> {
    Some(Instant::now())
}

struct Host {
    dir: std::path::PathBuf,
    _node: NodeThread,
    _temporary: tempfile::TempDir,
}

impl Host {
    fn new(transport: Transport) -> Host {
        let temporary = tempfile::tempdir().unwrap();
        let settings = Settings { transport, ..Settings::default() };
        let dir = temporary.path().join("n");
        let node = Node::spawn(&dir, settings).unwrap();
        Host { dir, _node: node, _temporary: temporary }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn open(&self, name: &str) -> Endpoint {
        Endpoint::open(self.dir(), name).unwrap()
    }

    fn open_with(&self, name: &str, options: Options) -> Endpoint {
        Endpoint::open_with(self.dir(), name, &options).unwrap()
    }
}

fn signal(n: u32) -> Signal {
    Signal::with_payload(USER_BASE + n, b"payload").unwrap()
}

fn any(endpoint: &mut Endpoint) -> Signal {
    endpoint.receive(&Filter::ANY, soon()).unwrap().expect("a signal comes")
}

fn number(endpoint: &mut Endpoint) -> u32 {
    any(endpoint).number()
}

fn nothing(endpoint: &mut Endpoint) {
    assert_eq!(endpoint.receive(&Filter::ANY, now()).unwrap(), None);
}

fn on_every_transport(test: impl Fn(&Host)) {
    for transport in Transport::ALL {
        println!("by {transport}");
        test(&Host::new(transport));
    }
}

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

fn readable(endpoint: &mut Endpoint, until: Option<Instant>) -> bool {
    wait_ready(endpoint.descriptor().unwrap(), Interest::Readable, until).unwrap()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
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

#[test]
fn the_list_shows_the_state_of_endpoints() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    let mut b = host.open("b");
    a.attach(b.spid(), None).unwrap();
    a.hunt("nobody", None).unwrap();
    b.send(signal(1), a.spid()).unwrap();
    let info = a.info(b.spid()).unwrap();
    assert_eq!((info.name.as_str(), info.pid), ("b", std::process::id()));
    let dir = host.dir().to_owned();
    std::thread::scope(|scope| {
        let spid = a.spid();
        scope.spawn(move || {
            let wanted = Filter::only(&[USER_BASE + 5]);
            assert_eq!(a.receive(&wanted, soon()).unwrap().unwrap().number(), USER_BASE + 5);
        });
        let row = loop {
            let rows = crossway_linx::list(&dir).unwrap();
            assert_eq!(rows.len(), 2);
            let row = rows.into_iter().find(|row| row.spid == spid).unwrap();
            if row.condition.as_ref().is_some_and(|condition| condition.queued == 1) {
                break row;
            }
        };
        let condition = row.condition.unwrap();
        assert_eq!(condition.waits_for, crossway_linx::WaitsFor::Only(vec![USER_BASE + 5]));
        assert_eq!((row.attached_to, row.hunts, row.channels), (1, 1, 1));
        // The same by the call of an endpoint, which also answers about itself.
        assert_eq!(b.condition(spid).unwrap(), condition);
        let own = b.condition(b.spid()).unwrap();
        assert_eq!(own.traffic.sent(), Count { signals: 1, bytes: signal(1).size() as u64 });
        assert_eq!((own.traffic.sent_remote, own.queued), (Count::default(), 0));
        b.send(signal(5), spid).unwrap();
    });
}

#[test]
fn the_end_of_the_node_is_reported_and_its_directory_is_free_again() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    a.request_new_link(0).unwrap();
    let dir = host.dir().to_owned();
    let second = Node::bind(&dir, Settings::default());
    assert!(second.unwrap_err().to_string().contains("serves in"));
    drop(host);
    assert!(matches!(a.receive(&Filter::only(&[NEW_LINK]), soon()), Err(Error::NodeGone)));
    assert!(!dir.exists());
    let none = Endpoint::open(&dir, "a").unwrap_err();
    assert!(none.to_string().contains("crossway linx node"), "{none}");
}

#[test]
fn the_directory_has_the_requested_permissions_and_group() {
    use std::os::unix::fs::MetadataExt;
    let temporary = tempfile::tempdir().unwrap();
    let own_group = temporary.path().metadata().unwrap().gid();
    for (name, mode) in [("all", 0o777), ("group", 0o770), ("user", 0o700)] {
        let dir = temporary.path().join(name);
        let settings = Settings { mode, group: Some(own_group), ..Settings::default() };
        let _node = Node::spawn(&dir, settings).unwrap();
        let about = dir.metadata().unwrap();
        assert_eq!((about.mode() & 0o7777, about.gid()), (mode, own_group), "whatever the umask");
    }
    // A user who is not a member of a group cannot assign it, and leaves no directory behind.
    let dir = temporary.path().join("other");
    let settings = Settings { group: Some(4_000_000), ..Settings::default() };
    match Node::spawn(&dir, settings) {
        Ok(_node) => assert_eq!(dir.metadata().unwrap().gid(), 4_000_000),
        Err(error) => {
            assert!(error.to_string().contains("chown"), "{error}");
            assert!(!dir.exists());
        }
    }
}
