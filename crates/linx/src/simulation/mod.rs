//! Simulates three nodes in a row, their programs and their links. A seed determines the order of all events; links
//! break, endpoints end, and the guarantees of the model are checked at each step and at the end.
//!
//! `CROSSWAY_LINX_SEEDS` sets the number of seeds to try, and `CROSSWAY_LINX_SEED` selects one to repeat.

mod delivery;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::mailbox::{Mailbox, RequestKind};
use crate::registry::{LinkId, Output, Registry};
use crate::signal::{ATTACH, HUNT};
use crate::spid::Widths;
use crate::wire::link::Message;
use crate::wire::local::Event;
use crate::{Queue, Reference, Signal, Spid};

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
    /// The program's attaches that are neither answered nor cancelled, with their targets.
    attaches: BTreeMap<Reference, Spid>,
    hunts: BTreeMap<Reference, String>,
    /// The endpoints whose end was reported. No more signals may arrive from them.
    ended: HashSet<Spid>,
    /// Endpoints that the program has found.
    known: Vec<Spid>,
    sent: HashMap<Spid, u64>,
    received: HashMap<Spid, u64>,
}

struct Site {
    registry: Registry,
    programs: BTreeMap<Spid, Program>,
    /// All numbers that were ever assigned.
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

    /// Returns the span on which a node has a link with this id, and the node's side of it.
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
