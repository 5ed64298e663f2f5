//! Forges frames, as a man in the middle between two nodes would.

use crossway_tipc_proto::addr::{BearerId, NodeAddr};
use crossway_tipc_proto::seq::Seq;
use crossway_tipc_proto::wire::{
    BundleBuilder, DomainRecord, Fragment, FragmentKind, Frame, LinkFields, Tunnel, TunnelKind,
    User, View,
};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Maximum number of frames that are kept as material for forgeries.
const MEMORY: usize = 400;

/// A man in the middle, with the frames that passed it as material for forgeries.
#[derive(Debug)]
pub(crate) struct Liar {
    /// Percentage of frames that always pass unchanged. Of the others, 70 per cent also do.
    honesty: u32,
    seen: Vec<Vec<u8>>,
}

impl Liar {
    pub(crate) fn new(honesty: u32) -> Self {
        Self { honesty, seen: Vec::new() }
    }

    /// Adds a frame to the material.
    pub(crate) fn see(&mut self, rng: &mut Pcg64Mcg, frame: &[u8]) {
        if self.seen.len() < MEMORY {
            self.seen.push(frame.to_vec());
        } else {
            let at = rng.random_range(0..MEMORY);
            self.seen[at] = frame.to_vec();
        }
    }

    fn old(&self, rng: &mut Pcg64Mcg) -> Option<Vec<u8>> {
        (!self.seen.is_empty()).then(|| self.seen[rng.random_range(0..self.seen.len())].clone())
    }

    /// Returns the frames that arrive instead of `frame`: none, the frame itself, another one, or several.
    pub(crate) fn pass(&self, rng: &mut Pcg64Mcg, frame: &[u8]) -> Vec<Vec<u8>> {
        if rng.random_range(0..100) < self.honesty {
            return vec![frame.to_vec()];
        }
        match rng.random_range(0..100) {
            0..70 => vec![frame.to_vec()],
            70..73 => vec![],
            73..76 => vec![frame.to_vec(), frame.to_vec()],
            76..80 => self.old(rng).into_iter().chain([frame.to_vec()]).collect(),
            80..84 => vec![self.nest(rng, frame), frame.to_vec()],
            84..86 => vec![gossip(rng, frame), frame.to_vec()],
            86..89 => {
                let nested = self.nest(rng, frame);
                vec![bend(rng, nested)]
            }
            89..95 => vec![bend(rng, frame.to_vec()), frame.to_vec()],
            95..98 => vec![bend(rng, frame.to_vec())],
            98 => {
                let len = rng.random_range(0..200);
                vec![(0..len).map(|_| rng.random()).collect()]
            }
            _ => self.old(rng).map(|old| bend(rng, old)).into_iter().collect(),
        }
    }

    /// Returns the frame, or an old one, inside a tunnel, a bundle or a fragment that carries the frame's own link
    /// fields.
    fn nest(&self, rng: &mut Pcg64Mcg, frame: &[u8]) -> Vec<u8> {
        let Ok(view) = View::parse(frame) else { return frame.to_vec() };
        let mut link = LinkFields::of(&view);
        if rng.random_bool(0.2) {
            link.seq = link.seq.add(rng.random_range(0..4));
        }
        let dest = view.dest_node().unwrap_or(NodeAddr(0x1000 + rng.random_range(0..2)));
        let inner = if rng.random_bool(0.5) { self.old(rng) } else { None };
        let inner = inner.unwrap_or_else(|| frame.to_vec());
        let mut out = Vec::new();
        match rng.random_range(0..4) {
            0 | 1 => {
                let kind =
                    if rng.random_bool(0.3) { TunnelKind::Synch } else { TunnelKind::Failover };
                let count = [0, 1, 2, 60, link.seq.0, rng.random()][rng.random_range(0..6)];
                let fragments = [0, 0, 0, 1, 2, 3][rng.random_range(0..6)];
                let fragment = rng.random_range(0..4);
                let bearer = BearerId(rng.random_range(0..4));
                Tunnel { kind, dest, bearer, count, fragment, fragments, body: &inner }
                    .encode(&link, &mut out);
            }
            2 => {
                let mut bundle = BundleBuilder::default();
                while bundle.try_push(&inner, 1500) && rng.random_bool(0.7) {}
                bundle.bundle(dest, 0).encode(&link, &mut out);
            }
            _ => {
                let kind = [FragmentKind::First, FragmentKind::Middle, FragmentKind::Last]
                    [rng.random_range(0..3)];
                let cut = rng.random_range(0..=inner.len());
                Fragment { kind, dest, number: 1, importance: 0, body: &inner[..cut] }
                    .encode(&link, &mut out);
            }
        }
        out
    }
}

/// Forges the nodes that a STATE message lists as present, mostly in a well-formed record; leaves other frames
/// unchanged.
fn gossip(rng: &mut Pcg64Mcg, frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    let is_state =
        View::parse(frame).is_ok_and(|v| v.user() == Some(User::LinkProtocol) && v.msg_type() == 0);
    if !is_state || frame.len() < 44 {
        return out;
    }
    // Goes after a gap-ack record that reports no gap.
    out.truncate(40);
    out.extend_from_slice(&[0, 4, 0, 0]);
    let member = |rng: &mut Pcg64Mcg| NodeAddr(0x0fff + rng.random_range(0..4));
    let record = DomainRecord {
        generation: Seq([rng.random_range(0..10), rng.random()][rng.random_range(0..2)]),
        acked: Seq([rng.random_range(0..10), rng.random()][rng.random_range(0..2)]),
        up: [0, u64::MAX, rng.random()][rng.random_range(0..3)],
        members: (0..[1, 2, 64][rng.random_range(0..3)]).map(|_| member(rng)).collect(),
    };
    record.encode(&mut out);
    if rng.random_bool(0.2) {
        let at = rng.random_range(44..out.len());
        out[at] = rng.random();
    }
    set_size(&mut out);
    out
}

/// Changes up to three things in a frame, mostly in its header.
fn bend(rng: &mut Pcg64Mcg, mut frame: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.random_range(1..4) {
        if frame.len() < 24 {
            break;
        }
        match rng.random_range(0..8) {
            // Change a number field a little.
            0 | 1 => {
                let at = [6, 8, 10, 16, 18, 20, 36, 38][rng.random_range(0..8)];
                if at + 2 <= frame.len() {
                    let old = Seq(u16::from_be_bytes([frame[at], frame[at + 1]]));
                    let by = [1, 2, 3, 60, 0x7fff, 0xffff, 0xfffe][rng.random_range(0..7)];
                    frame[at..at + 2].copy_from_slice(&old.add(by).0.to_be_bytes());
                }
            }
            // Change the user or the message type.
            2 => frame[0] = frame[0] & 0xe1 | rng.random_range(0..16) << 1,
            3 => frame[4] = frame[4] & 0x1f | rng.random_range(0..8) << 5,
            4 => {
                let len = if rng.random_bool(0.8) { frame.len().min(60) } else { frame.len() };
                let at = rng.random_range(0..len);
                frame[at] = [0, 0xff, frame[at] ^ 1 << rng.random_range(0..8), rng.random()]
                    [rng.random_range(0..4)];
            }
            5 => {
                // Truncate the frame, and set its size field accordingly.
                let len = rng.random_range(24..=frame.len());
                frame.truncate(len);
                set_size(&mut frame);
            }
            6 => {
                let more = rng.random_range(0..3_000);
                frame.resize(frame.len() + more, 0x41);
                set_size(&mut frame);
            }
            _ => {
                let len = rng.random_range(0..=frame.len());
                frame.truncate(len);
            }
        }
    }
    frame
}

fn set_size(frame: &mut [u8]) {
    let size = frame.len().min(0x1_ffff) as u32;
    let word = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) & !0x1_ffff | size;
    frame[..4].copy_from_slice(&word.to_be_bytes());
}

/// Decodes a frame. If it is valid, checks that what was decoded is unchanged after it was encoded and decoded again.
/// Returns whether it is valid.
pub(crate) fn decode(frame: &[u8]) -> bool {
    let Ok(first) = Frame::decode(frame) else { return false };
    let mut again = Vec::new();
    first.encode(&mut again);
    let second = Frame::decode(&again).expect("what was encoded can be decoded");
    assert_eq!(first, second, "encoding loses something");
    true
}
