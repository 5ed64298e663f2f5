//! Benchmarks the name table with a million bindings, and the topology service with a hundred thousand subscriptions.
//!
//! `cargo bench -p crossway-tipc-proto --bench names` prints medians; `-- --json` prints them as one JSON object. Each
//! figure is the median over batches of 64 operations on randomly drawn names; the median ignores batches disturbed by
//! other load. The memory per binding is derived from the growth of the process's resident memory.

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::limits::BINDINGS_PER_NODE_MAX;
use crossway_tipc_proto::name_table::{Binding, NameTable};
use crossway_tipc_proto::node::{Config, Node};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

const BINDINGS: u32 = 1_000_000;
/// Number of nodes that own the bindings: large enough that no node exceeds its limit of bindings.
const NODES: u32 = 16;
const _: () = assert!((BINDINGS / NODES) as usize <= BINDINGS_PER_NODE_MAX);
const BATCH: usize = 64;
const BATCHES: usize = 4_000;
const SUBSCRIBERS: u32 = 100;
const SUBSCRIPTIONS_EACH: u32 = 1_000;

/// How a million bindings are distributed over names.
struct Spread {
    name: &'static str,
    binding: fn(u32) -> ServiceRange,
}

const SPREADS: [Spread; 5] = [
    Spread { name: "one service", binding: |n| ServiceRange::single(1_000, n) },
    Spread { name: "one service each", binding: |n| ServiceRange::single(1_000 + n, 0) },
    Spread {
        name: "ranges of 16",
        binding: |n| ServiceRange { service: 1_000, lower: 16 * n, upper: 16 * n + 15 },
    },
    Spread {
        name: "overlapping ranges",
        binding: |n| ServiceRange { service: 1_000, lower: n, upper: n + 100_000 },
    },
    Spread { name: "16 sockets per name", binding: |n| ServiceRange::single(1_000, n / NODES) },
];

struct Figure {
    what: String,
    value: f64,
    unit: String,
}

/// A linear congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Median time of one operation, in nanoseconds, over this number of batches.
fn median_ns(batches: usize, mut operation: impl FnMut()) -> f64 {
    let batch = |_| {
        let begin = Instant::now();
        (0..BATCH).for_each(|_| operation());
        begin.elapsed().as_nanos() as f64 / BATCH as f64
    };
    median((0..batches).map(batch).collect())
}

/// Resident memory of the process in bytes; `None` if /proc does not provide it.
fn resident_bytes() -> Option<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096.0)
}

fn binding(spread: &Spread, n: u32) -> Binding {
    let socket = SocketAddr { port: Port(n + 1), node: NodeAddr(1 + n % NODES) };
    Binding { range: (spread.binding)(n), socket, key: n + 1, scope: Scope::Cluster }
}

fn table(spread: &Spread, figures: &mut Vec<Figure>) {
    let mut add = |what: &str, value, unit: &str| {
        let what = format!("{}: {what}", spread.name);
        figures.push(Figure { what, value, unit: unit.into() });
    };
    let before = resident_bytes();
    let mut table = NameTable::default();
    let mut n = 0;
    let ns = median_ns(BINDINGS as usize / BATCH, || {
        table.insert(binding(spread, n)).expect("the binding is new and within the limits");
        n += 1;
    });
    add("insert", ns, "ns");
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        add("memory per binding", (after - before) / f64::from(n), "bytes");
    }
    let mut draw = Draw(1);
    let mut lookup = |local: Option<NodeAddr>| {
        median_ns(BATCHES, || {
            let range = (spread.binding)(draw.below(BINDINGS));
            black_box(table.lookup(range.service, range.lower, local));
        })
    };
    add("lookup", lookup(None), "ns");
    add("lookup for one node", lookup(Some(NodeAddr(3))), "ns");
    let ns = median_ns(BATCHES, || {
        let gone = binding(spread, draw.below(n));
        table.remove(gone.range, gone.socket, gone.key).expect("the binding exists");
        table.insert(gone).expect("there is room again");
    });
    add("remove and insert", ns, "ns");
    let begin = Instant::now();
    let lost = table.remove_node(NodeAddr(1)).len();
    add("loss of a node, per binding", begin.elapsed().as_nanos() as f64 / lost as f64, "ns");
}

/// Makes a single node process the messages between its own sockets.
fn settle(node: &mut Node) {
    let mut frame = Vec::new();
    node.handle_timeout(Nanos(1));
    while node.poll_transmit(Nanos(1), &mut frame).is_some() {}
    while node.poll_event().is_some() {}
}

/// A subscription request of 28 bytes with the given filter bits and without a time limit.
fn subscription(lower: u32, upper: u32, filter: u32) -> Vec<u8> {
    let words = [1_000, lower, upper, u32::MAX, filter, 0, 0];
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

fn subscriptions(figures: &mut Vec<Figure>) {
    let mut node = Node::new(Config { seed: 1, ..Config::default() });
    let now = Nanos(1);
    let service = Address::Service { service: 1, instance: 1, domain: NodeAddr(0) };
    let ports: Vec<Port> = (0..SUBSCRIBERS)
        .map(|_| {
            let port = node.open(SocketKind::Seqpacket).expect("a socket");
            // The connection is completed by `settle`.
            let _ = node.connect(now, port, Some(service), &[]);
            settle(&mut node);
            port
        })
        .collect();
    let send = |node: &mut Node, port, request: &[u8]| {
        node.send(now, port, None, request).expect("there is room for the request");
        settle(node);
    };
    let mut n = 0;
    let ns = median_ns((SUBSCRIBERS * SUBSCRIPTIONS_EACH) as usize / BATCH, || {
        let request = subscription(n, n, 1);
        send(&mut node, ports[(n % SUBSCRIBERS) as usize], &request);
        n += 1;
    });
    figures.push(Figure { what: "subscribe".into(), value: ns, unit: "ns".into() });
    let mut draw = Draw(1);
    let ns = median_ns(200, || {
        let instance = draw.below(n);
        let port = node.open(SocketKind::Rdm).expect("a socket");
        let range = ServiceRange::single(1_000, instance);
        node.bind(port, range, Scope::Cluster).expect("a binding");
        settle(&mut node);
        node.close(now, port).expect("the socket is open");
        settle(&mut node);
        let subscriber = ports[(instance % SUBSCRIBERS) as usize];
        let events = (0..2).filter(|_| node.recv(now, subscriber, 100).is_ok()).count();
        assert_eq!(events, 2, "published and withdrawn");
        settle(&mut node);
    });
    let what = format!("bind and close, reported to 1 of {n} subscriptions");
    figures.push(Figure { what, value: ns, unit: "ns".into() });
    let ns = median_ns(200, || {
        let instance = draw.below(n);
        let port = ports[(instance % SUBSCRIBERS) as usize];
        send(&mut node, port, &subscription(instance, instance, 1 | 4));
        send(&mut node, port, &subscription(instance, instance, 1));
    });
    figures.push(Figure { what: "cancel and subscribe".into(), value: ns, unit: "ns".into() });
}

/// Measures the distribution with this index in a separate process, so that memory freed by another distribution does
/// not affect the figures. Returns the standard output of that process: its figures, one per line.
fn apart(spread: usize) -> Result<String, std::io::Error> {
    let output = Command::new(std::env::current_exe()?).arg(spread.to_string()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn main() -> Result<(), std::io::Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut figures = Vec::new();
    if let Some(spread) = arguments.first().and_then(|a| SPREADS.get(a.parse::<usize>().ok()?)) {
        table(spread, &mut figures);
        figures.iter().for_each(|f| println!("{}\t{}\t{}", f.value, f.unit, f.what));
        return Ok(());
    }
    for spread in 0..SPREADS.len() {
        for line in apart(spread)?.lines() {
            let mut fields = line.splitn(3, '\t').map(str::to_owned);
            let mut next = || fields.next().unwrap_or_default();
            let (value, unit, what) = (next().parse().unwrap_or(f64::NAN), next(), next());
            figures.push(Figure { what, value, unit });
        }
    }
    subscriptions(&mut figures);
    if arguments.iter().any(|argument| argument == "--json") {
        let each = figures.iter().map(|f| {
            format!(
                "{{\"what\": \"{}\", \"value\": {:.1}, \"unit\": \"{}\"}}",
                f.what, f.value, f.unit
            )
        });
        let each: Vec<_> = each.collect();
        println!("{{\"bindings\": {BINDINGS}, \"figures\": [\n  {}\n]}}", each.join(",\n  "));
        return Ok(());
    }
    println!("{BINDINGS} bindings owned by {NODES} nodes; medians\n");
    for figure in figures {
        println!("{:>10.0} {:<7} {}", figure.value, figure.unit, figure.what);
    }
    Ok(())
}
