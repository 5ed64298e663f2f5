//! Places boxes in ranks, so that most arrows lead from one rank to a later one.

use super::scene::Scene;
use crossway_records::sorting::SortSmall;

/// In which direction ranks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// From left to right, for wide screens.
    Across,
    /// From top to bottom, for narrow ones.
    Down,
}

/// Size of a box.
pub(super) const BOX: (f64, f64) = (150.0, 46.0);
const MARGIN: f64 = 12.0;

impl Axis {
    /// Distances between the begins of boxes, in x and y. Labels of arrows are between ranks.
    const fn pitch(self) -> (f64, f64) {
        match self {
            Axis::Across => (340.0, 84.0),
            Axis::Down => (162.0, 150.0),
        }
    }
}

/// Where the boxes are.
pub(super) struct Layout {
    pub(super) axis: Axis,
    /// The upper left corner of each box.
    pub(super) corners: Vec<(f64, f64)>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Maximum number of boxes in a rank; more continue in a further one.
const RANK_MAX: usize = 10;
/// Sweeps that put boxes near those with which they are connected; later ones change little.
const SWEEPS: usize = 6;

/// Places the boxes.
pub(super) fn place(scene: &Scene, axis: Axis) -> Layout {
    let ranks = ordered(scene, ranked(scene));
    let most = ranks.iter().map(Vec::len).max().unwrap_or(0);
    let (dx, dy) = axis.pitch();
    let mut corners = vec![(0.0, 0.0); scene.nodes.len()];
    for (rank, nodes) in ranks.iter().enumerate() {
        // In the middle of the longest rank.
        let offset = (most - nodes.len()) as f64 / 2.0;
        for (position, node) in nodes.iter().enumerate() {
            let across = position as f64 + offset;
            corners[*node] = match axis {
                Axis::Across => (MARGIN + rank as f64 * dx, MARGIN + across * dy),
                Axis::Down => (MARGIN + across * dx, MARGIN + rank as f64 * dy),
            };
        }
    }
    let end = |of: fn(&(f64, f64)) -> f64, size: f64| {
        corners.iter().map(of).fold(0.0, f64::max) + size + MARGIN
    };
    let (width, height) = (end(|c| c.0, BOX.0), end(|c| c.1, BOX.1));
    Layout { axis, corners, width, height }
}

/// The rank of each box: one more than that of any box from which an arrow leads to it. An arrow that closes a circle
/// does not count.
fn ranked(scene: &Scene) -> Vec<Vec<usize>> {
    let count = scene.nodes.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    for link in &scene.links {
        out[link.from].push(link.to);
    }
    // Depth first, without recursion: a box is finished after all that it leads to.
    let (mut state, mut finished) = (vec![0_u8; count], Vec::new());
    let mut forward: Vec<(usize, usize)> = Vec::new();
    for start in 0..count {
        let mut stack = vec![(start, 0)];
        if state[start] != 0 {
            continue;
        }
        state[start] = 1;
        while let Some((node, next)) = stack.pop() {
            match out[node].get(next) {
                None => {
                    state[node] = 2;
                    finished.push(node);
                }
                Some(to) => {
                    stack.push((node, next + 1));
                    if state[*to] != 1 {
                        forward.push((node, *to));
                    }
                    if state[*to] == 0 {
                        state[*to] = 1;
                        stack.push((*to, 0));
                    }
                }
            }
        }
    }
    let mut rank = vec![0_usize; count];
    for node in finished.iter().rev() {
        for (_, to) in forward.iter().filter(|(from, _)| from == node) {
            rank[*to] = rank[*to].max(rank[*node] + 1);
        }
    }
    let mut ranks: Vec<Vec<usize>> = Vec::new();
    for level in 0..=rank.iter().copied().max().unwrap_or(0) {
        let nodes: Vec<usize> = (0..count).filter(|node| rank[*node] == level).collect();
        ranks.extend(nodes.chunks(RANK_MAX).map(<[usize]>::to_vec));
    }
    ranks
}

/// Orders the boxes of each rank by the mean position of those with which they are connected.
fn ordered(scene: &Scene, mut ranks: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); scene.nodes.len()];
    for link in &scene.links {
        neighbours[link.from].push(link.to);
        neighbours[link.to].push(link.from);
    }
    let mut position = vec![0.0; scene.nodes.len()];
    let settle = |ranks: &[Vec<usize>], position: &mut Vec<f64>| {
        for nodes in ranks {
            for (at, node) in nodes.iter().enumerate() {
                position[*node] = at as f64 - nodes.len() as f64 / 2.0;
            }
        }
    };
    settle(&ranks, &mut position);
    for _ in 0..SWEEPS {
        for nodes in &mut ranks {
            let mean = |node: usize| {
                let near = &neighbours[node];
                match near.len() {
                    0 => position[node],
                    n => near.iter().map(|other| position[*other]).sum::<f64>() / n as f64,
                }
            };
            nodes.sort_small_by(|a, b| mean(*a).total_cmp(&mean(*b)));
        }
        settle(&ranks, &mut position);
    }
    ranks
}
