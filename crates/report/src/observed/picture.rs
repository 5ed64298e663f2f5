//! The picture: processes as boxes, channels as arrows.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::layout::{Axis, BOX, Layout, place};
use super::scene::{Link, Scene, bytes};
use crate::svg::escape;

/// Width of the arrow with the most bytes, and of one whose bytes are not known.
const WIDEST: f64 = 12.0;
const THINNEST: f64 = 1.6;
/// Distance between arrows of the same two boxes.
const APART: f64 = 26.0;
/// Labels are drawn up to this number of arrows; more would cover each other, and stay in the list.
const LABELS_MAX: usize = 24;
/// Letters of a name and of its detail that fit into a box.
const LETTERS: (usize, usize) = (15, 20);

/// Draws the picture; `None` if there are no boxes.
pub(super) fn svg(scene: &Scene, axis: Axis) -> Option<String> {
    if scene.nodes.is_empty() {
        return None;
    }
    let layout = place(scene, axis);
    let most = scene
        .links
        .iter()
        .flat_map(|link| [link.forward_bytes, link.backward_bytes])
        .flatten()
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg class=\"picture\" viewBox=\"0 0 {0:.0} {1:.0}\" width=\"{0:.0}\" height=\"{1:.0}\" role=\"img\" \
         aria-label=\"{2} processes and hosts, {3} connections; the list below has the same\">",
        layout.width,
        layout.height,
        scene.nodes.len(),
        scene.links.len()
    );
    // The arrows, whichever way they lead, and how many of them lie between the same two boxes.
    let arrows: Vec<Arrow<'_>> = scene.links.iter().flat_map(Arrow::of).collect();
    let mut lanes: HashMap<(usize, usize), usize> = HashMap::new();
    for arrow in &arrows {
        *lanes.entry(arrow.pair()).or_default() += 1;
    }
    let mut drawn: HashMap<(usize, usize), usize> = HashMap::new();
    let mut labels = Labels::around(&layout);
    for arrow in &arrows {
        let lane = drawn.entry(arrow.pair()).or_default();
        let curve = Curve::new(&layout, arrow.from, arrow.to, (*lane, lanes[&arrow.pair()]));
        *lane += 1;
        draw(&mut out, scene, arrow, &curve, most);
        if arrows.len() <= LABELS_MAX {
            labels.put(&curve, &arrow.labels());
        }
    }
    for (node, (x, y)) in scene.nodes.iter().zip(&layout.corners) {
        let class = if node.observed { "box observed" } else { "box" };
        let name = shortened(&node.name, LETTERS.0);
        let full = escape(format!("{} {}", node.name, node.detail).trim());
        let line = |shift: f64, class: &str, text: String| {
            format!(
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + BOX.0 / 2.0,
                y + shift,
                escape(&text)
            )
        };
        let _ = write!(
            out,
            "<g><title>{full}</title><rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{}\" height=\"{}\" \
             rx=\"7\"/>",
            BOX.0, BOX.1
        );
        if node.detail.is_empty() {
            out.push_str(&line(28.0, "name", name));
        } else {
            out.push_str(&line(20.0, "name", name));
            out.push_str(&line(36.0, "detail", shortened(&node.detail, LETTERS.1)));
        }
        out.push_str("</g>");
    }
    out.push_str(&labels.out);
    out.push_str("</svg>");
    Some(out)
}

fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

/// One way of a link.
struct Arrow<'a> {
    link: &'a Link,
    from: usize,
    to: usize,
    flow: Option<u64>,
    /// Whether it is the way back, which the other way names.
    back: bool,
}

impl<'a> Arrow<'a> {
    fn of(link: &'a Link) -> Vec<Arrow<'a>> {
        let there =
            Arrow { link, from: link.from, to: link.to, flow: link.forward_bytes, back: false };
        let back =
            Arrow { link, from: link.to, to: link.from, flow: link.backward_bytes, back: true };
        if link.two_ways { vec![there, back] } else { vec![there] }
    }

    fn pair(&self) -> (usize, usize) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    /// What is written beside it: the best form first, then narrower ones. Each has one or more
    /// lines.
    fn labels(&self) -> Vec<Vec<String>> {
        let name = match (self.back, self.link.channels) {
            (true, _) => String::new(),
            (false, 1) => self.link.carrier.to_owned(),
            (false, n) => format!("{n} × {}", self.link.carrier),
        };
        let flow = self.flow.map_or(String::new(), |n| bytes(Some(n)));
        let lines: Vec<String> = [name, flow].into_iter().filter(|text| !text.is_empty()).collect();
        let flow = lines.last().cloned();
        [vec![lines.join(" ")], lines].into_iter().chain(flow.map(|flow| vec![flow])).collect()
    }
}

/// Where on an arrow its label may be, the best places first.
const PLACES: [f64; 7] = [0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78];
/// Height of a label, and the width of a letter in it, rounded up.
const LABEL: (f64, f64) = (16.0, 7.0);

/// The labels of arrows, and what they must not cover.
struct Labels {
    taken: Vec<(Point, Point)>,
    size: Point,
    out: String,
}

impl Labels {
    fn around(layout: &Layout) -> Labels {
        let boxes = layout.corners.iter().map(|(x, y)| ((*x, *y), (x + BOX.0, y + BOX.1)));
        Labels { taken: boxes.collect(), size: (layout.width, layout.height), out: String::new() }
    }

    /// Writes the first form of a label that has a free place on its arrow, there. Without one, the
    /// arrow's figures are in its title and in the list.
    fn put(&mut self, curve: &Curve, forms: &[Vec<String>]) {
        let _ = forms
            .iter()
            .any(|lines| PLACES.iter().any(|place| self.put_at(curve.at(*place), lines)));
    }

    /// Writes the lines of a label around a point if that is free, and returns whether it is.
    fn put_at(&mut self, (x, y): Point, lines: &[String]) -> bool {
        let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        if letters == 0 {
            return false;
        }
        let half = (letters as f64 * LABEL.1 / 2.0, lines.len() as f64 * LABEL.0 / 2.0);
        let (low, high) = ((x - half.0, y - half.1), (x + half.0, y + half.1));
        let inside = low.0 >= 0.0 && high.0 <= self.size.0;
        let free = self
            .taken
            .iter()
            .all(|(from, to)| high.0 < from.0 || to.0 < low.0 || high.1 < from.1 || to.1 < low.1);
        if !inside || !free {
            return false;
        }
        self.taken.push((low, high));
        for (nth, line) in lines.iter().enumerate() {
            let _ = write!(
                self.out,
                "<text class=\"on-arrow\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                low.1 + (nth as f64 + 0.5) * LABEL.0 + 4.0,
                escape(line)
            );
        }
        true
    }
}

/// Draws an arrow as a curve with a head of its own, so that its width does not change the head.
fn draw(out: &mut String, scene: &Scene, arrow: &Arrow<'_>, curve: &Curve, most: u64) {
    let Arrow { link, from, to, flow, .. } = *arrow;
    let width = match flow {
        // The area of what is seen grows with the bytes.
        Some(n) if most > 0 => THINNEST + (WIDEST - THINNEST) * (n as f64 / most as f64).sqrt(),
        _ => THINNEST,
    };
    let dashed = if flow.is_none() { " unknown" } else { "" };
    let class = link.kind.class();
    let title = format!(
        "{} to {}: {}{}{}",
        scene.nodes[from].name,
        scene.nodes[to].name,
        link.carrier,
        if link.channels > 1 { format!(", {} channels", link.channels) } else { String::new() },
        flow.map_or(String::new(), |n| format!(", {}", bytes(Some(n))))
    );
    let ((x1, y1), (x2, y2), (x3, y3), (x4, y4)) = curve.points;
    let (dx, dy) = (x4 - x3, y4 - y3);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let (long, half) = (9.0 + width * 0.6, 4.0 + width * 0.6);
    // The curve ends where the head begins.
    let (bx, by) = (x4 - ux * long, y4 - uy * long);
    let _ = write!(
        out,
        "<g class=\"arrow {class}{dashed}\"><title>{}</title><path d=\"M{x1:.1} {y1:.1}C{x2:.1} {y2:.1} {:.1} {:.1} \
         {bx:.1} {by:.1}\" stroke-width=\"{width:.1}\"/><polygon points=\"{x4:.1},{y4:.1} {:.1},{:.1} \
         {:.1},{:.1}\"/></g>",
        escape(&title),
        x3 - ux * long,
        y3 - uy * long,
        bx - uy * half,
        by + ux * half,
        bx + uy * half,
        by - ux * half,
    );
}

type Point = (f64, f64);

/// A cubic curve from the edge of one box to the edge of another.
struct Curve {
    points: (Point, Point, Point, Point),
}

impl Curve {
    /// `lane`: which arrow between these boxes it is, of how many; arrows of both ways lie side by side.
    fn new(layout: &Layout, from: usize, to: usize, lane: (usize, usize)) -> Curve {
        let shift = (lane.0 as f64 - (lane.1 as f64 - 1.0) / 2.0) * APART;
        let limit = |shift: f64, size: f64| shift.clamp(8.0 - size / 2.0, size / 2.0 - 8.0);
        let centre = |node: usize| {
            let (x, y) = layout.corners[node];
            (x + BOX.0 / 2.0, y + BOX.1 / 2.0)
        };
        let (a, b) = (centre(from), centre(to));
        let points = match layout.axis {
            Axis::Across => {
                let (start, end, bend) = facing(a.0, b.0, BOX.0 / 2.0);
                let near = limit(shift, BOX.1);
                let (from, to) = ((start, a.1 + near), (end, b.1 + near));
                let out = shift - near;
                (from, (start + bend.0, from.1 + out * 1.4), (end + bend.1, to.1 + out * 1.4), to)
            }
            Axis::Down => {
                let (start, end, bend) = facing(a.1, b.1, BOX.1 / 2.0);
                let near = limit(shift * 1.6, BOX.0);
                let (from, to) = ((a.0 + near, start), (b.0 + near, end));
                let out = shift * 1.6 - near;
                (from, (from.0 + out * 1.4, start + bend.0), (to.0 + out * 1.4, end + bend.1), to)
            }
        };
        Curve { points }
    }

    /// The point at a share of the curve.
    fn at(&self, t: f64) -> Point {
        let (a, b, c, d) = self.points;
        let u = 1.0 - t;
        let at = |p: fn(&Point) -> f64| {
            u * u * u * p(&a)
                + 3.0 * u * u * t * p(&b)
                + 3.0 * u * t * t * p(&c)
                + t * t * t * p(&d)
        };
        (at(|p| p.0), at(|p| p.1))
    }
}

/// Where a curve leaves the first box and enters the second one along the axis of ranks, and how far its control points
/// are from there. Boxes of the same rank are connected by a bow on the far side.
fn facing(a: f64, b: f64, half: f64) -> (f64, f64, (f64, f64)) {
    let reach = (b - a).abs() / 2.4;
    if (b - a).abs() < 1.0 {
        (a + half, b + half, (70.0, 70.0))
    } else if b > a {
        (a + half, b - half, (reach - half / 2.0, -(reach - half / 2.0)))
    } else {
        (a - half, b + half, (-(reach - half / 2.0), reach - half / 2.0))
    }
}
