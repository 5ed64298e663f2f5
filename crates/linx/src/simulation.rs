//! Simulates three nodes in a row, their programs and their links: a seed determines the order of all events, links break,
//! endpoints end, and the guarantees of the model are checked at each step and at the end.
//!
//! `CROSSWAY_LINX_SEEDS` sets the number of seeds to try, and `CROSSWAY_LINX_SEED` selects one to repeat.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::mailbox::{Mailbox, RequestKind};
use crate::registry::{LinkId, Output, Registry, Route};
use crate::signal::{ATTACH, HUNT, USER_BASE};
use crate::spid::Widths;
use crate::wire::body::Body;
use crate::wire::link::Message;
use crate::wire::local::Event;
use crate::{Filter, Queue, Reference, Signal, Spid};

/// Pseudo-random numbers derived from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Something in flight to a program.
enum Post {
    Event(Event),
    Data { from: Spid, sequence: u64 },
}

/// A program's side of an endpoint.
struct Program {
    mailbox: Mailbox,
    posts: VecDeque<Post>,
    /// Its attaches that are neither answered nor cancelled, with their targets.
    attaches: BTreeMap<Reference, Spid>,
    hunts: BTreeMap<Reference, String>,
    /// The endpoints whose end was reported: nothing more may arrive from them.
    ended: HashSet<Spid>,
    /// Endpoints it has found.
    known: Vec<Spid>,
    sent: HashMap<Spid, u64>,
    received: HashMap<Spid, u64>,
}

struct Site {
    registry: Registry,
    programs: BTreeMap<Spid, Program>,
    /// Every number that was ever assigned.
    given: HashSet<Spid>,
}

/// A link between two neighbours.
struct Span {
    nodes: [usize; 2],
    /// The name of the link on each side.
    names: [&'static str; 2],
    up: Option<[LinkId; 2]>,
    /// Messages in flight to each side.
    messages: [VecDeque<Message>; 2],
}

struct World {
    chance: Chance,
    sites: Vec<Site>,
    spans: Vec<Span>,
    last_link: u64,
}

const NAMES: [&str; 4] = ["ant", "bee", "cat", "dog"];

impl World {
    fn new(seed: u64) -> World {
        let site = |_| Site {
            // A small number space, so that indices are reused often.
            registry: Registry::new(Widths { index: 7, instance: 12 }),
            programs: BTreeMap::new(),
            given: HashSet::new(),
        };
        let span = |nodes, names| Span { nodes, names, up: None, messages: Default::default() };
        World {
            chance: Chance(seed),
            sites: (0..3).map(site).collect(),
            spans: vec![span([0, 1], ["east", "west"]), span([1, 2], ["east", "west"])],
            last_link: 0,
        }
    }

    /// The span and the side at which a node has a link with this id.
    fn span_of(&self, node: usize, id: LinkId) -> Option<(usize, usize)> {
        self.spans.iter().enumerate().find_map(|(at, span)| {
            let side = span.nodes.iter().position(|of| *of == node)?;
            (span.up?[side] == id).then_some((at, side))
        })
    }

    fn pump(&mut self, node: usize) {
        while let Some(output) = self.sites[node].registry.poll_output() {
            match output {
                Output::Event(spid, event) => {
                    if let Some(program) = self.sites[node].programs.get_mut(&spid) {
                        program.posts.push_back(Post::Event(event));
                    }
                }
                Output::Link(id, message) => self.say(node, id, message),
            }
        }
    }

    fn say(&mut self, node: usize, id: LinkId, message: Message) {
        if let Some((at, side)) = self.span_of(node, id) {
            self.spans[at].messages[1 - side].push_back(message);
        }
    }

    fn open(&mut self, node: usize) {
        let name = NAMES[self.chance.below(NAMES.len())];
        let site = &mut self.sites[node];
        if site.programs.len() >= 8 {
            return;
        }
        let spid = site.registry.handle_open(name, 1, 1).unwrap();
        assert!(site.given.insert(spid), "the number {spid} was assigned twice");
        site.programs.insert(
            spid,
            Program {
                mailbox: Mailbox::new(Queue::default()),
                posts: VecDeque::new(),
                attaches: BTreeMap::new(),
                hunts: BTreeMap::new(),
                ended: HashSet::new(),
                known: Vec::new(),
                sent: HashMap::new(),
                received: HashMap::new(),
            },
        );
        self.pump(node);
    }

    fn any_program(&mut self) -> Option<(usize, Spid)> {
        let node = self.chance.below(3);
        let count = self.sites[node].programs.len();
        if count == 0 {
            return None;
        }
        let nth = self.chance.below(count);
        self.sites[node].programs.keys().nth(nth).map(|spid| (node, *spid))
    }

    fn act(&mut self) {
        let what = self.chance.below(100);
        match what {
            0..8 => {
                let node = self.chance.below(3);
                self.open(node);
            }
            8..10 => self.flap(),
            _ => {}
        }
        let Some((node, spid)) = self.any_program() else { return };
        let pick = self.chance.next() as usize;
        let site = &mut self.sites[node];
        let Some(program) = site.programs.get_mut(&spid) else { return };
        match what {
            10..15 => {
                site.programs.remove(&spid);
                site.registry.handle_close(spid);
            }
            15..30 => {
                let name = NAMES[pick % NAMES.len()];
                let prefixes = ["", "", "east/", "west/", "east/east/", "west/west/", "east/west/"];
                let path = format!("{}{name}", prefixes[pick / 7 % prefixes.len()]);
                let hunt = program.mailbox.hunt(Signal::bare(HUNT));
                program.hunts.insert(hunt, path.clone());
                site.registry.handle_hunt(spid, hunt.0, &path, None).unwrap();
            }
            30..40 if !program.known.is_empty() => {
                let to = program.known[pick % program.known.len()];
                let attach = program.mailbox.attach(Signal::bare(ATTACH));
                program.attaches.insert(attach, to);
                site.registry.handle_attach(spid, attach.0, to).unwrap();
            }
            40..45 if !program.attaches.is_empty() => {
                let (attach, _) =
                    program.attaches.iter().nth(pick % program.attaches.len()).unwrap();
                let attach = *attach;
                program.attaches.remove(&attach);
                if program.mailbox.cancel(attach, RequestKind::Attach).unwrap() {
                    site.registry.handle_detach(spid, attach.0);
                }
            }
            45..47 if !program.hunts.is_empty() => {
                let hunt = *program.hunts.keys().next().unwrap();
                program.hunts.remove(&hunt);
                if program.mailbox.cancel(hunt, RequestKind::Hunt).unwrap() {
                    site.registry.handle_cancel_hunt(spid, hunt.0);
                }
            }
            47..60 if !program.known.is_empty() => {
                let to = program.known[pick % program.known.len()];
                let sequence = program.sent.entry(to).or_default();
                *sequence += 1;
                let sequence = *sequence;
                self.send(node, spid, to, sequence);
            }
            _ => {
                self.step();
            }
        }
        self.pump(node);
    }

    fn send(&mut self, node: usize, from: Spid, to: Spid, sequence: u64) {
        match self.sites[node].registry.route(from, to) {
            Route::Local => {
                if let Some(program) = self.sites[node].programs.get_mut(&to) {
                    program.posts.push_back(Post::Data { from, sequence });
                }
            }
            Route::Link(over, there) => {
                self.pump(node);
                let piece = Body::of(&sequence.to_be_bytes());
                self.say(node, over, Message::Data { from, to: there, size: 8, flags: 1, piece });
            }
            Route::Gone => {}
            Route::Unknown => panic!("{to} was found, but never existed"),
        }
    }

    /// Makes a link break or come up.
    fn flap(&mut self) {
        let at = self.chance.below(self.spans.len());
        let nodes = self.spans[at].nodes;
        match self.spans[at].up.take() {
            Some(ids) => {
                self.spans[at].messages = Default::default();
                for (node, id) in nodes.into_iter().zip(ids) {
                    self.sites[node].registry.handle_link_down(id);
                    self.pump(node);
                }
            }
            None => {
                let ids = [LinkId(self.last_link + 1), LinkId(self.last_link + 2)];
                self.last_link += 2;
                self.spans[at].up = Some(ids);
                for (side, node) in nodes.into_iter().enumerate() {
                    let name = self.spans[at].names[side];
                    self.sites[node].registry.handle_link_up(ids[side], name).unwrap();
                    self.pump(node);
                }
            }
        }
    }

    /// Delivers something that is in flight; returns false if there is nothing.
    fn step(&mut self) -> bool {
        let mut ways = Vec::new();
        for (at, span) in self.spans.iter().enumerate() {
            let sides = (0..2).filter(|side| !span.messages[*side].is_empty());
            ways.extend(sides.map(|side| (true, at, side, None)));
        }
        for (node, site) in self.sites.iter().enumerate() {
            let programs = site.programs.iter().filter(|(_, program)| !program.posts.is_empty());
            ways.extend(programs.map(|(spid, _)| (false, node, 0, Some(*spid))));
        }
        if ways.is_empty() {
            return false;
        }
        match ways[self.chance.below(ways.len())] {
            (true, at, side, _) => self.arrive_at_node(at, side),
            (false, node, _, Some(spid)) => self.arrive_at_program(node, spid),
            _ => {}
        }
        true
    }

    fn arrive_at_node(&mut self, at: usize, side: usize) {
        let (Some(message), Some(ids)) =
            (self.spans[at].messages[side].pop_front(), self.spans[at].up)
        else {
            return;
        };
        let (node, id) = (self.spans[at].nodes[side], ids[side]);
        match message {
            Message::Data { from, to, piece, .. } => {
                let from = self.sites[node].registry.remote(id, from).expect("published before");
                let sequence = u64::from_be_bytes((*piece).try_into().unwrap());
                if self.sites[node].registry.get(to).is_some() {
                    self.send(node, from, to, sequence);
                }
            }
            message => assert!(self.sites[node].registry.handle_message(id, message)),
        }
        self.pump(node);
    }

    fn arrive_at_program(&mut self, node: usize, spid: Spid) {
        let Some(program) = self.sites[node].programs.get_mut(&spid) else { return };
        match program.posts.pop_front() {
            Some(Post::Data { from, sequence }) => {
                assert!(!program.ended.contains(&from), "a signal from {from} after its end");
                let last = program.received.insert(from, sequence).unwrap_or(0);
                assert!(sequence > last, "signals of {from} came out of order");
            }
            Some(Post::Event(Event::Found { id, spid })) => {
                program.mailbox.found(Reference(id), spid);
            }
            Some(Post::Event(Event::Gone { id, spid })) => {
                program.mailbox.gone(Reference(id), spid);
            }
            _ => {}
        }
        while let Some(signal) = program.mailbox.take(&Filter::ANY) {
            let from = signal.sender().unwrap();
            match signal.number() {
                HUNT => {
                    program.known.push(from);
                    let pending = &program.mailbox;
                    program.hunts.retain(|hunt, _| pending.is_pending(*hunt));
                }
                ATTACH => {
                    program.ended.insert(from);
                    let told = program.attaches.len();
                    let pending = &program.mailbox;
                    program.attaches.retain(|attach, _| pending.is_pending(*attach));
                    // Each signal answers exactly one attach.
                    assert_eq!(
                        told - program.attaches.len(),
                        1,
                        "an attach was answered twice or never made"
                    );
                }
                number => panic!("a signal {number:#x} that was never sent"),
            }
            assert!(signal.number() < USER_BASE);
        }
    }

    /// Where a path leads from a node, over links that are up.
    fn leads_to(&self, mut node: usize, path: &str) -> Option<(usize, String)> {
        let mut names: Vec<&str> = path.split('/').collect();
        let last = names.pop()?;
        for name in names {
            node = self.spans.iter().find_map(|span| {
                let side = (0..2).find(|s| span.nodes[*s] == node && span.names[*s] == name)?;
                span.up?;
                Some(span.nodes[1 - side])
            })?;
        }
        Some((node, last.to_owned()))
    }

    /// Checks that no answers are missing after everything has arrived.
    fn check_rest(&mut self) {
        while self.step() {}
        for (node, site) in self.sites.iter().enumerate() {
            for (spid, program) in &site.programs {
                for target in program.attaches.values() {
                    assert!(
                        site.registry.get(*target).is_some(),
                        "{spid} of node {node} was not notified of the end of {target}"
                    );
                }
                for path in program.hunts.values() {
                    if let Some((there, name)) = self.leads_to(node, path) {
                        let exists = self.sites[there].programs.keys().any(|spid| {
                            self.sites[there].registry.get(*spid).is_some_and(|e| e.name == name)
                        });
                        assert!(!exists, "{spid} of node {node} still hunts for {path}");
                    }
                }
            }
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let steps = 200 + world.chance.below(400);
    for _ in 0..steps {
        world.act();
    }
    world.check_rest();
    // All endpoints end, and nothing remains.
    for node in 0..3 {
        let all: Vec<Spid> = world.sites[node].programs.keys().copied().collect();
        for spid in all {
            world.sites[node].programs.remove(&spid);
            world.sites[node].registry.handle_close(spid);
            world.pump(node);
        }
    }
    while world.step() {}
    assert!(world.sites.iter().all(|site| site.programs.is_empty()));
}

#[test]
fn the_guarantees_of_the_model_hold_in_any_order_of_events() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("CROSSWAY_LINX_SEED") {
        return run(seed);
    }
    for seed in 0..number("CROSSWAY_LINX_SEEDS").unwrap_or(300) {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "repeat this with CROSSWAY_LINX_SEED={seed}");
    }
}
