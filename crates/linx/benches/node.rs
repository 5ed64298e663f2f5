//! What a node bears: many endpoints, hunts among them, one that dies while thousands are attached to it, and a link beside bare TCP.
//!
//! `cargo bench -p crossway-linx --bench node`. Node and endpoints are in this process, each node in a thread of its own. An endpoint takes
//! three descriptors here, two of its own and one of the node: with fewer than `ulimit -n 220000` there are fewer endpoints, and that
//! is said. A benchmark, not a test: the exit status is 0 whatever it finds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crossway_linx::signal::{ATTACH, USER_BASE};
use crossway_linx::{
    Endpoint, Filter, LinkSettings, Node, NodeThread, Options, Settings, Signal, Spid,
};
use crossway_sys::proc;

/// As many as Enea's study has processes.
const ENDPOINTS: usize = 70_000;
const HUNTS: usize = 5_000;
const WATCHERS: usize = 10_000;
/// Descriptors for everything but endpoints.
const SPARE: usize = 200;
const LARGE: usize = 16 << 20;
const PAIRS: usize = 7;

fn open(node: &NodeThread, name: &str) -> Endpoint {
    Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
}

fn any(endpoint: &mut Endpoint) -> Signal {
    endpoint.receive(&Filter::ANY, None).unwrap().expect("without a deadline")
}

/// The figure below which so large a share lies.
fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "MISSED" }
}

fn times(what: &str, target_us: f64, mut times_us: Vec<f64>) {
    times_us.sort_by(f64::total_cmp);
    let (median, p99) = (at(&times_us, 0.5), at(&times_us, 0.99));
    println!(
        "{what}: {} times, median {median:.1} us (target < {target_us} us: {}), p99 {p99:.1} us, longest {:.1} us",
        times_us.len(),
        verdict(median < target_us),
        at(&times_us, 1.0)
    );
}

/// As many endpoints as asked for, or as the descriptors allow.
fn within_limit(wanted: usize) -> usize {
    let limit = proc::raise_descriptor_limit();
    let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(SPARE) / 3;
    if room < wanted {
        println!(
            "{limit} descriptors are for {room} endpoints, not {wanted}: raise the limit with ulimit -n"
        );
    }
    room.min(wanted)
}

/// Numbers in a fixed order that looks like none.
fn shuffled(below: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    })
}

fn hunts() {
    let node = Node::spawn_private(Settings::default()).unwrap();
    let count = within_limit(ENDPOINTS);
    let start = Instant::now();
    let all: Vec<Endpoint> = (0..count).map(|n| open(&node, &format!("endpoint-{n}"))).collect();
    let each = start.elapsed().as_secs_f64() / count as f64;
    println!("{count} endpoints on one node, {:.1} us to open each", each * 1e6);
    let mut hunter = open(&node, "hunter");
    let mut found = Vec::new();
    for n in shuffled(count).take(HUNTS) {
        let start = Instant::now();
        let spid = hunter.hunt_and_wait(&format!("endpoint-{n}"), None).unwrap();
        found.push(start.elapsed().as_secs_f64() * 1e6);
        assert_eq!(spid, all[n].spid());
    }
    times("hunt for one of them", 1000.0, found);
    let mut late = Vec::new();
    for n in 0..HUNTS.min(1000) {
        let name = format!("late-{n}");
        hunter.hunt(&name, None).unwrap();
        let start = Instant::now();
        let opened = open(&node, &name);
        assert_eq!(any(&mut hunter).sender(), Some(opened.spid()));
        late.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times("from opening an endpoint to the answer of the hunt that waits for it", 1000.0, late);
    let start = Instant::now();
    drop(all);
    println!("closed in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
}

fn storm() {
    let node = Node::spawn_private(Settings::default()).unwrap();
    let count = within_limit(WATCHERS);
    let mut watchers: Vec<Endpoint> = (0..count).map(|_| open(&node, "watcher")).collect();
    let mut taken = Vec::new();
    for _ in 0..PAIRS {
        let victim = open(&node, "victim");
        let spid = victim.spid();
        for watcher in &mut watchers {
            watcher.attach(spid, None).unwrap();
        }
        let mut asks = open(&node, "asks");
        while (asks.info(spid).unwrap().attached_from as usize) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        drop(victim);
        for watcher in &mut watchers {
            let told = any(watcher);
            assert_eq!((told.number(), told.sender()), (ATTACH, Some(spid)));
        }
        taken.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times(&format!("one dies, {count} are told"), 1e6, taken);
}

/// Seconds for so many large signals over a link.
fn by_link(client: &mut Endpoint, there: Spid, server: &mut Endpoint, count: usize) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let signal = client.alloc(USER_BASE, LARGE).unwrap();
                client.send(signal, there).unwrap();
            }
        });
        for _ in 0..count {
            let signal = any(server);
            assert_eq!(signal.payload().len(), LARGE);
            server.free(signal);
        }
    });
    start.elapsed().as_secs_f64()
}

fn by_tcp(from: &mut TcpStream, to: &mut TcpStream, count: usize) -> f64 {
    let bytes = vec![0; LARGE];
    let mut into = vec![0; LARGE];
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..count).for_each(|_| from.write_all(&bytes).unwrap()));
        (0..count).for_each(|_| to.read_exact(&mut into).unwrap());
    });
    start.elapsed().as_secs_f64()
}

fn link() {
    const COUNT: usize = 20;
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let b = Node::spawn_private(Settings { listen, ..Settings::default() }).unwrap();
    let to_b = LinkSettings { name: "b".to_owned(), addresses: b.listens_at().to_vec() };
    let a = Node::spawn_private(Settings { links: vec![to_b], ..Settings::default() }).unwrap();
    let (mut client, mut server) = (open(&a, "client"), open(&b, "server"));
    let there = client.hunt_and_wait("b/server", None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut to, _) = listener.accept().unwrap();
    by_link(&mut client, there, &mut server, 2);
    by_tcp(&mut from, &mut to, 2);
    let mut ratios = Vec::new();
    let mut rates = Vec::new();
    for pair in 0..PAIRS {
        let (mut link, mut tcp) = (0.0, 0.0);
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                link = by_link(&mut client, there, &mut server, COUNT);
            } else {
                tcp = by_tcp(&mut from, &mut to, COUNT);
            }
        }
        ratios.push(tcp / link);
        rates.push((COUNT * LARGE) as f64 / link / 1e6);
    }
    ratios.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    println!(
        "16 MiB signals by a link over loopback: {:.0} MB/s, {:.3} of bare TCP (least {:.3}, most {:.3}); each byte crosses two sockets more than bare",
        at(&rates, 0.5),
        at(&ratios, 0.5),
        at(&ratios, 0.0),
        at(&ratios, 1.0)
    );
}

fn main() {
    hunts();
    storm();
    link();
}
