//! Measures what a node can handle: many endpoints, hunts among them, the death of an endpoint that thousands are
//! attached to, and the throughput of a link compared with bare TCP.
//!
//! `cargo bench -p crossway-linx --bench node`, with `-- hunts`, `-- storm` or `-- link` for only one of the three. The
//! node runs in a thread of this process and needs one descriptor for each endpoint. The endpoints are in as many other
//! processes as necessary, and each endpoint needs two descriptors in its own process. If the limit of descriptors
//! (`ulimit -n`) is below 70,000, there are fewer endpoints, and the benchmark says so. This is a benchmark, not a
//! test: the exit status is always 0.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_linx::signal::{ATTACH, USER_BASE};
use crossway_linx::{
    Endpoint, Filter, LinkSettings, Node, NodeThread, Options, Settings, Signal, Spid,
};
use crossway_sys::clock::monotonic_ns;
use crossway_sys::proc;

/// The number of processes in Enea's study, used here as the number of endpoints.
const ENDPOINTS: usize = 70_000;
const HUNTS: usize = 5_000;
const WATCHERS: usize = 10_000;
/// Number of descriptors set aside for purposes other than endpoints.
const SPARE: usize = 1200;
const LARGE: usize = 16 << 20;
const PAIRS: usize = 7;

fn open(node: &NodeThread, name: &str) -> Endpoint {
    Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
}

fn any(endpoint: &mut Endpoint) -> Signal {
    endpoint.receive(&Filter::ANY, None).unwrap().expect("without a deadline")
}

/// Returns a quantile of sorted values; `share` is between 0 and 1 (0.5 for the median).
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

/// Returns the number of descriptors that a process can use for endpoints.
fn room() -> usize {
    let limit = usize::try_from(proc::raise_descriptor_limit()).unwrap_or(usize::MAX);
    limit.saturating_sub(SPARE)
}

/// Returns `wanted`, or the number of endpoints for which the node has enough descriptors if that is lower.
fn within_limit(wanted: usize) -> usize {
    // No process may have more than half of a node's descriptors, but many processes together may have all.
    let room = room();
    if room < wanted {
        println!(
            "the limit of descriptors allows only {room} of {wanted} endpoints: see ulimit -n"
        );
    }
    room.min(wanted)
}

/// A process that owns some of the endpoints.
struct Herd {
    child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Herd {
    fn all(dir: &Path, count: usize) -> Vec<Herd> {
        let each = (room() / 3).clamp(1, 30_000);
        let firsts = (0..count).step_by(each);
        let mut herds: Vec<Herd> =
            firsts.map(|first| Herd::start(dir, first, each.min(count - first))).collect();
        herds.iter_mut().for_each(|herd| drop(herd.line()));
        herds
    }

    fn start(dir: &Path, first: usize, count: usize) -> Herd {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--herd").arg(dir).args([first.to_string(), count.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (say, hear) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Herd { child, say, hear: BufReader::new(hear) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.hear.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "a process with endpoints has ended");
        line
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of a [`Herd`]'s process. It opens its endpoints and prints a line. Then, for each endpoint number
/// that it reads, it attaches all its endpoints to the endpoint with that number, waits until each of them has received
/// the notice that this endpoint has ended, and prints the time.
fn herd(words: &[String]) {
    proc::raise_descriptor_limit();
    let (dir, first, count) = (Path::new(&words[0]), &words[1], &words[2]);
    let (first, count): (usize, usize) = (first.parse().unwrap(), count.parse().unwrap());
    let open = |n| Endpoint::open(dir, &format!("endpoint-{n}")).unwrap();
    let mut all: Vec<Endpoint> = (first..first + count).map(open).collect();
    println!("open");
    for line in std::io::stdin().lines() {
        let spid = Spid::new(line.unwrap().parse().unwrap()).unwrap();
        for endpoint in &mut all {
            endpoint.attach(spid, None).unwrap();
        }
        for endpoint in &mut all {
            let told = any(endpoint);
            assert_eq!((told.number(), told.sender()), (ATTACH, Some(spid)));
        }
        println!("{}", monotonic_ns());
    }
}

/// Returns the numbers below a limit in a fixed order that looks random.
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
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let _node = Node::spawn(&at, Settings::default()).unwrap();
    let count = within_limit(ENDPOINTS);
    let start = Instant::now();
    let herds = Herd::all(&at, count);
    let each = start.elapsed().as_secs_f64() / count as f64;
    println!("{count} endpoints on one node, {:.1} us to open each", each * 1e6);
    let mut hunter = Endpoint::open(&at, "hunter").unwrap();
    let mut found = Vec::new();
    for n in shuffled(count).take(HUNTS) {
        let start = Instant::now();
        hunter.hunt_and_wait(&format!("endpoint-{n}"), None).unwrap();
        found.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times("hunt for one of them", 1000.0, found);
    let mut late = Vec::new();
    for n in 0..HUNTS.min(1000) {
        let name = format!("late-{n}");
        hunter.hunt(&name, None).unwrap();
        let start = Instant::now();
        let opened = Endpoint::open(&at, &name).unwrap();
        assert_eq!(any(&mut hunter).sender(), Some(opened.spid()));
        late.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times("from opening an endpoint to the answer of the hunt that waits for it", 1000.0, late);
    drop(herds);
}

fn storm() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let _node = Node::spawn(&at, Settings::default()).unwrap();
    let count = within_limit(WATCHERS);
    let mut herds = Herd::all(&at, count);
    let mut asks = Endpoint::open(&at, "asks").unwrap();
    let mut taken = Vec::new();
    for _ in 0..PAIRS {
        let victim = Endpoint::open(&at, "victim").unwrap();
        let spid = victim.spid();
        herds.iter_mut().for_each(|herd| writeln!(herd.say, "{}", spid.get()).unwrap());
        while (asks.info(spid).unwrap().attached_from as usize) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let start_ns = monotonic_ns();
        drop(victim);
        let told = herds.iter_mut().map(|herd| herd.line().trim().parse::<u64>().unwrap());
        let last_ns = told.max().unwrap();
        taken.push(last_ns.saturating_sub(start_ns) as f64 / 1e3);
    }
    times(&format!("one dies, {count} are notified"), 1e6, taken);
}

/// Returns the time in seconds that `count` large signals take over a link.
fn by_link(
    client: &mut Endpoint,
    there: Spid,
    server: &mut Endpoint,
    count: usize,
    in_place: bool,
) -> f64 {
    let bytes = vec![0; LARGE];
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                if in_place {
                    let signal = client.alloc_for(USER_BASE, LARGE, there).unwrap();
                    client.send(signal, there).unwrap();
                } else {
                    client.send_copy(USER_BASE, &bytes, there, None).unwrap();
                }
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
    by_tcp(&mut from, &mut to, 2);
    for in_place in [true, false] {
        by_link(&mut client, there, &mut server, 8, in_place);
        let mut ratios = Vec::new();
        let mut rates = Vec::new();
        for pair in 0..PAIRS {
            let (mut link, mut tcp) = (0.0, 0.0);
            for turn in 0..2 {
                if (pair + turn) % 2 == 0 {
                    link = by_link(&mut client, there, &mut server, COUNT, in_place);
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
            "16 MiB signals {}, over a link on loopback: {:.0} MB/s, {:.3} times the rate of bare TCP (least \
             {:.3}, most {:.3}), target 0.9: {}",
            if in_place { "allocated for their receiver" } else { "copied by their sender" },
            at(&rates, 0.5),
            at(&ratios, 0.5),
            at(&ratios, 0.0),
            at(&ratios, 1.0),
            if at(&ratios, 0.5) >= 0.9 { "reached" } else { "MISSED" }
        );
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--herd") {
        return herd(&words[1..]);
    }
    // `cargo bench` adds arguments of its own, which begin with hyphens.
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    for (name, run) in [("hunts", hunts as fn()), ("storm", storm), ("link", link)] {
        if wanted.is_empty() || wanted.iter().any(|word| *word == name) {
            run();
        }
    }
}
