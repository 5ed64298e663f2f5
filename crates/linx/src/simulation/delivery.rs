//! Delivers the messages in flight in the simulation, and checks them.

use crate::registry::Route;

use super::{Post, World};
use crate::signal::{ATTACH, HUNT, USER_BASE};
use crate::wire::body::Body;
use crate::wire::link::Message;
use crate::wire::local::Event;
use crate::{Filter, Reference, Spid};

impl World {
    pub(super) fn send(&mut self, node: usize, from: Spid, to: Spid, sequence: u64) {
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
            Route::Unknown => panic!("a hunt found {to}, which never existed"),
        }
    }

    /// Delivers one of the messages in flight; returns false if there is none.
    pub(super) fn step(&mut self) -> bool {
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
                assert!(
                    !program.ended.contains(&from),
                    "a signal from {from} arrived after the notice of its end"
                );
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
                        "a notice of an end must answer exactly one pending attach"
                    );
                }
                number => panic!("a signal with the number {number:#x} arrived, which nobody sent"),
            }
            assert!(signal.number() < USER_BASE);
        }
    }

    /// Follows a path of link names from `node`, over links that are up; returns the node reached and the last name in
    /// the path, or `None` if a link is not up.
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

    /// Delivers everything in flight, then checks that every attach and hunt that should have been answered was
    /// answered.
    pub(super) fn check_rest(&mut self) {
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
