//! What a picture shows: boxes, arrows between them, and the rows of the list.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crossway_observe::map::{Carrier, Channel, Map, Party};
use crossway_observe::recording::{Direction, DirectionSummary, Recording, Spread, Summary};
use serde::Serialize;

use crate::units::Quantity;
use crossway_records::sorting::{CollectTree, SortSmall};

/// Maximum number of boxes in the picture. With more, arrows cannot be followed any more.
const BOXES_MAX: usize = 40;
/// Maximum number of processes at one end that get an arrow of their own.
const ENDS_MAX: usize = 4;

/// The kinds of channels that have different colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Unix,
    Pipe,
    Memory,
    Local,
    Remote,
    Other,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] =
        [Kind::Unix, Kind::Pipe, Kind::Memory, Kind::Local, Kind::Remote, Kind::Other];

    pub(super) const fn class(self) -> &'static str {
        match self {
            Kind::Unix => "k-unix",
            Kind::Pipe => "k-pipe",
            Kind::Memory => "k-memory",
            Kind::Local => "k-local",
            Kind::Remote => "k-remote",
            Kind::Other => "k-other",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Unix => "UNIX socket",
            Kind::Pipe => "pipe or FIFO",
            Kind::Memory => "shared memory",
            Kind::Local => "TCP, UDP or SCTP on this host",
            Kind::Remote => "network to other hosts",
            Kind::Other => "other",
        }
    }

    fn of(carrier: Carrier) -> Kind {
        match carrier {
            Carrier::UnixStream | Carrier::UnixDatagram | Carrier::UnixSeqpacket => Kind::Unix,
            Carrier::Pipe | Carrier::Fifo => Kind::Pipe,
            Carrier::SharedMemory => Kind::Memory,
            Carrier::TcpLocal | Carrier::UdpLocal | Carrier::Sctp => Kind::Local,
            Carrier::TcpRemote | Carrier::UdpRemote => Kind::Remote,
            _ => Kind::Other,
        }
    }
}

/// A box.
pub(super) struct Node {
    pub(super) name: String,
    /// A second line: the number of a process.
    pub(super) detail: String,
    /// Whether it is a process that was asked for or recorded.
    pub(super) observed: bool,
}

/// All channels of the same carrier between the same two boxes.
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
    pub(super) carrier: &'static str,
    pub(super) channels: usize,
    /// Whether anything flows from `to` to `from`, too.
    pub(super) two_ways: bool,
    /// `None`: not known.
    pub(super) forward_bytes: Option<u64>,
    pub(super) backward_bytes: Option<u64>,
}

/// A row of the list.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) class: &'static str,
    pub(super) texts: Vec<String>,
    pub(super) figures: Vec<String>,
}

/// What is drawn and listed.
pub(super) struct Scene {
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    /// Number of boxes that are in the list only.
    pub(super) hidden: usize,
    pub(super) heads: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
}

/// Gathers boxes by a key, and arrows between them.
#[derive(Default)]
struct Builder {
    keys: HashMap<String, usize>,
    nodes: Vec<Node>,
    links: BTreeMap<(usize, usize, Carrier), Link>,
}

impl Builder {
    fn node(&mut self, key: String, node: impl FnOnce() -> Node) -> usize {
        *self.keys.entry(key).or_insert_with(|| {
            self.nodes.push(node());
            self.nodes.len() - 1
        })
    }

    /// Adds a channel between all boxes at its ends. Its bytes go to the first pair, because nobody knows the shares.
    fn link(
        &mut self,
        (from, to): (&[usize], &[usize]),
        carrier: Carrier,
        two_ways: bool,
        bytes: (Option<u64>, Option<u64>),
    ) {
        let mut bytes = Some(bytes);
        for a in from.iter().take(ENDS_MAX) {
            for b in to.iter().take(ENDS_MAX).filter(|b| *b != a) {
                let link = self.links.entry((*a, *b, carrier)).or_insert_with(|| Link {
                    from: *a,
                    to: *b,
                    kind: Kind::of(carrier),
                    carrier: carrier.name(),
                    channels: 0,
                    two_ways: false,
                    forward_bytes: None,
                    backward_bytes: None,
                });
                link.channels += 1;
                link.two_ways |= two_ways;
                let (forward, backward) = bytes.take().unwrap_or_default();
                let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
                    (None, None) => None,
                    (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
                };
                link.forward_bytes = sum(link.forward_bytes, forward);
                link.backward_bytes = sum(link.backward_bytes, backward);
            }
        }
    }

    /// Keeps the boxes with the most bytes and channels, and those that were asked for.
    fn finish(self, heads: Vec<&'static str>, rows: Vec<Row>) -> Scene {
        let links: Vec<Link> = self.links.into_values().collect();
        let mut weights: Vec<(bool, u64, usize)> =
            self.nodes.iter().map(|node| (node.observed, 0, 0)).collect();
        for link in &links {
            let bytes = link.forward_bytes.unwrap_or(0) + link.backward_bytes.unwrap_or(0);
            for end in [link.from, link.to] {
                weights[end].1 += bytes;
                weights[end].2 += link.channels;
            }
        }
        let linked = weights.iter().filter(|(_, _, channels)| *channels > 0).count();
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|n| weights[*n].2 > 0).collect();
        order.sort_small_by_key(|n| std::cmp::Reverse(weights[*n]));
        order.truncate(BOXES_MAX);
        let kept: BTreeSet<usize> = order.into_iter().collect_tree();
        let place: HashMap<usize, usize> =
            kept.iter().enumerate().map(|(to, n)| (*n, to)).collect();
        let nodes = self.nodes.into_iter().enumerate().filter(|(n, _)| kept.contains(n));
        let nodes: Vec<Node> = nodes.map(|(_, node)| node).collect();
        let links = links.into_iter().filter_map(|link| {
            Some(Link { from: *place.get(&link.from)?, to: *place.get(&link.to)?, ..link })
        });
        Scene { hidden: linked - nodes.len(), links: links.collect(), nodes, heads, rows }
    }
}

/// Bytes in a decimal unit; a dash if they are not known.
pub(super) fn bytes(known: Option<u64>) -> String {
    match known {
        None => "–".to_owned(),
        Some(n) if n < 1000 => format!("{n} B"),
        Some(n) => Quantity::ByteRate.show(n as f64).replace("/s", ""),
    }
}

impl Scene {
    pub(super) fn of_map(map: &Map) -> Scene {
        let mut builder = Builder::default();
        let mut rows: BTreeMap<_, Vec<&Channel>> = BTreeMap::new();
        for channel in &map.channels {
            // Nearly every process has a channel to the kernel; it is in the list.
            if channel.carrier != Carrier::Netlink {
                let mut ends = |parties: &[Party]| -> Vec<usize> {
                    parties.iter().map(|party| box_of(&mut builder, map, party)).collect()
                };
                let (from, to) = (ends(&channel.from), ends(&channel.to));
                let flow = (channel.forward_bytes, channel.backward_bytes);
                builder.link((&from, &to), channel.carrier, !channel.one_way, flow);
            }
            let key = (&channel.from, &channel.to, channel.carrier, &channel.name);
            rows.entry(key).or_default().push(channel);
        }
        let parties = |list: &[Party]| {
            list.iter().map(|party| map.party(party)).collect::<Vec<_>>().join(", ")
        };
        let sum = |channels: &[&Channel], of: fn(&Channel) -> Option<u64>| {
            let known: Vec<u64> = channels.iter().filter_map(|c| of(c)).collect();
            (!known.is_empty()).then(|| known.iter().sum())
        };
        let mut listed: Vec<(u64, Row)> = rows
            .into_iter()
            .map(|((from, to, carrier, name), channels)| {
                let forward = sum(&channels, |c| c.forward_bytes);
                let backward = sum(&channels, |c| c.backward_bytes);
                let row = Row {
                    class: Kind::of(carrier).class(),
                    texts: vec![
                        format!("{} {name}", carrier.name()).trim_end().to_owned(),
                        parties(from),
                        parties(to),
                    ],
                    figures: vec![
                        channels.len().to_string(),
                        bytes(forward),
                        bytes(backward),
                        bytes(sum(&channels, |c| c.queued_bytes)),
                        bytes(channels.iter().find_map(|c| c.mapped_bytes)),
                    ],
                };
                (forward.unwrap_or(0) + backward.unwrap_or(0), row)
            })
            .collect();
        listed.sort_small_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let heads =
            vec!["Channel", "From", "To", "Number", "→ bytes", "← bytes", "Queued", "Mapped"];
        builder.finish(heads, listed.into_iter().map(|(_, row)| row).collect())
    }

    pub(super) fn of_recording(recording: &Recording, summary: &Summary) -> Scene {
        let head = &recording.head;
        let mut builder = Builder::default();
        let directions: HashMap<(u32, Direction), &DirectionSummary> =
            summary.directions.iter().map(|d| ((d.channel, d.direction), d)).collect();
        for (index, channel) in head.channels.iter().enumerate() {
            let carrier = Carrier::of_word(&channel.carrier).unwrap_or(Carrier::OtherSocket);
            let flow = |direction| {
                directions.get(&(index as u32, direction)).map(|d: &&DirectionSummary| d.bytes)
            };
            let (forward, backward) = (flow(Direction::Forward), flow(Direction::Backward));
            if forward.is_none() && backward.is_none() {
                continue;
            }
            let mut ends = |processes: &BTreeSet<u32>| -> Vec<usize> {
                if processes.is_empty() {
                    let node = || Node {
                        name: "not recorded".to_owned(),
                        detail: channel.name.clone(),
                        observed: false,
                    };
                    return vec![builder.node(format!("outside {}", channel.name), node)];
                }
                let node = |index: &u32| {
                    let process = head.processes.get(*index as usize);
                    let detail = match process {
                        Some(process) if !head.anonymous => format!("process {}", process.pid),
                        _ => String::new(),
                    };
                    let name = process.map_or("?".to_owned(), |process| process.name.clone());
                    builder.node(format!("process {index}"), || Node {
                        name,
                        detail,
                        observed: true,
                    })
                };
                processes.iter().map(node).collect()
            };
            let (from, to) = (ends(&channel.from), ends(&channel.to));
            builder.link((&from, &to), carrier, backward.is_some(), (forward, backward));
        }
        let rows = summary.directions.iter().map(|d| recorded_row(recording, d)).collect();
        let heads = vec![
            "Channel",
            "From",
            "To",
            "Messages",
            "Bytes",
            "Size p50",
            "p99",
            "Gap p50",
            "Think p50",
            "In send",
            "In receive",
            "Off CPU",
        ];
        builder.finish(heads, rows)
    }
}

fn box_of(builder: &mut Builder, map: &Map, party: &Party) -> usize {
    match party {
        Party::Process { pid } => {
            let process = map.processes.binary_search_by_key(pid, |p| p.pid).ok();
            let name =
                process.map_or_else(|| "process".to_owned(), |at| map.processes[at].name.clone());
            let observed = map.observed.binary_search(pid).is_ok();
            let detail = format!("process {pid}");
            builder.node(format!("process {pid}"), || Node { name, detail, observed })
        }
        Party::Outside { address } => {
            // One box per host.
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            let node = || Node {
                name: host.to_owned(),
                detail: "another host".to_owned(),
                observed: false,
            };
            builder.node(format!("host {host}"), node)
        }
        other => {
            let name = map.party(other);
            let node = || Node { name: name.clone(), detail: String::new(), observed: false };
            builder.node(name.clone(), node)
        }
    }
}

fn recorded_row(recording: &Recording, d: &DirectionSummary) -> Row {
    let channel = &recording.head.channels[d.channel as usize];
    let (from, to) = match d.direction {
        Direction::Forward => (&channel.from, &channel.to),
        Direction::Backward => (&channel.to, &channel.from),
    };
    let names = |indices: &BTreeSet<u32>| {
        let names: Vec<String> = indices.iter().map(|index| recording.process(*index)).collect();
        if names.is_empty() { "not recorded".to_owned() } else { names.join(", ") }
    };
    let carrier = Carrier::of_word(&channel.carrier).unwrap_or(Carrier::OtherSocket);
    let time = |ns: f64| Quantity::Duration.show(ns);
    let median = |spread: Option<Spread>| spread.map_or("–".to_owned(), |s| time(s.p50 as f64));
    let each = |ns: u64| time(ns as f64 / d.messages.max(1) as f64);
    let by = format!("{} {} {}", d.channel, carrier.name(), channel.name);
    Row {
        class: Kind::of(carrier).class(),
        texts: vec![by.trim_end().to_owned(), names(from), names(to)],
        figures: vec![
            d.messages.to_string(),
            bytes(Some(d.bytes)),
            format!("{} B", d.size_bytes.p50),
            format!("{} B", d.size_bytes.p99),
            median(d.gap_ns),
            median(d.think_ns),
            each(d.send_ns),
            each(d.receive_ns),
            d.off_cpu_share().map_or("–".to_owned(), |part| Quantity::Share.show(part)),
        ],
    }
}

/// What a recording says in words: how it was made; and what its processes did, and what it lacks.
pub(super) fn about(recording: &Recording, summary: &Summary) -> (Vec<String>, Vec<String>) {
    let method = &recording.head.method;
    let cost = method.cost_ns_per_call.map_or(String::new(), |cost| {
        format!(", which added about {} to each call", Quantity::Duration.show(cost as f64))
    });
    let span = Quantity::Duration.show(summary.span_ns as f64);
    let sentences = vec![format!("Recorded by {} for {span}{cost}.", method.name)];
    let mut notes: Vec<String> = Vec::new();
    for share in summary.processes.iter().take(20) {
        let of = |ns: u64| Quantity::Share.show(ns as f64 / summary.span_ns.max(1) as f64);
        notes.push(format!(
            "{}{} spent {} of the time in sends and receives, and {} in waits (all threads together).",
            recording.process(share.process),
            share.cpu_ns.map_or(String::new(), |ns| format!(" used {} of a CPU, and", of(ns))),
            of(share.in_channels_ns),
            of(share.in_waits_ns)
        ));
    }
    notes.extend(recording.defects.iter().map(|d| format!("Defect: {d}.")));
    notes.push(format!("Not seen: {}.", method.blind_to));
    if let Some(lost) = recording.head.totals.as_ref().and_then(|totals| totals.lost.sentence()) {
        notes.push(lost);
    }
    (sentences, notes)
}
