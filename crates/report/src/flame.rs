//! Flame graphs as SVG: each box is a function on top of its caller, with a width proportional to its number of
//! samples. The picture has no scripts; a tooltip on each box shows the function's name and share of the samples.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::units::count;

/// Width of the picture, in SVG units.
const WIDTH: f64 = 1200.0;
/// Height of a box, in SVG units.
const HEIGHT: f64 = 17.0;
/// Width reserved for a letter, in SVG units.
const LETTER: f64 = 6.6;
/// Minimum width of a box, in SVG units; narrower ones are left out.
const LEAST: f64 = 0.6;
/// Suffix of the names of kernel functions in the stacks.
const KERNEL: &str = "_[k]";

/// A function in the call tree, with its number of samples and the functions that it calls.
#[derive(Default)]
struct Call<'a> {
    samples: u64,
    calls: BTreeMap<&'a str, Call<'a>>,
}

impl<'a> Call<'a> {
    fn add(&mut self, stack: impl Iterator<Item = &'a str>, samples: u64) {
        self.samples += samples;
        let mut at = self;
        for name in stack {
            at = at.calls.entry(name).or_default();
            at.samples += samples;
        }
    }

    fn depth(&self, scale: f64) -> usize {
        let shown = self.calls.values().filter(|call| call.samples as f64 * scale >= LEAST);
        shown.map(|call| 1 + call.depth(scale)).max().unwrap_or(0)
    }
}

/// Draws a flame graph of stacks and their sample counts. The functions of a stack are separated by `;`, outermost
/// first. Returns an empty string if there are no samples.
pub fn svg(stacks: &[(String, u64)], label: &str) -> String {
    let mut root = Call::default();
    for (stack, samples) in stacks {
        root.add(stack.split(';'), *samples);
    }
    if root.samples == 0 {
        return String::new();
    }
    let scale = WIDTH / root.samples as f64;
    let height = HEIGHT * root.depth(scale) as f64 + 2.0;
    let mut svg = format!(
        "<svg class=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" role=\"img\" aria-label=\"{}\">",
        minijinja::HtmlEscape(label)
    );
    draw(&root, root.samples, 0.0, height - 1.0, scale, &mut svg);
    svg + "</svg>"
}

fn draw(of: &Call<'_>, total: u64, mut x: f64, floor: f64, scale: f64, svg: &mut String) {
    for (name, call) in &of.calls {
        let width = call.samples as f64 * scale;
        if width >= LEAST {
            let y = floor - HEIGHT;
            let (shown, tone) = match name.strip_suffix(KERNEL) {
                Some(kernel) => (kernel, "kernel"),
                None => (*name, "program"),
            };
            let share = 100.0 * call.samples as f64 / total as f64;
            let fits = (width / LETTER) as usize;
            let text: String = match shown.chars().count() {
                letters if letters <= fits => shown.to_owned(),
                _ if fits >= 4 => shown.chars().take(fits - 1).chain(['…']).collect(),
                _ => String::new(),
            };
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<g><title>{}: {share:.1} %, {}</title>\
                 <rect class=\"{tone}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\"/>",
                minijinja::HtmlEscape(shown),
                count(call.samples as usize, "sample", "samples"),
                HEIGHT - 1.0,
            );
            if !text.is_empty() {
                let _ = write!(
                    svg,
                    "<text x=\"{:.2}\" y=\"{:.1}\">{}</text>",
                    x + 2.0,
                    y + 12.0,
                    minijinja::HtmlEscape(&text)
                );
            }
            svg.push_str("</g>");
            draw(call, total, x, y, scale, svg);
        }
        x += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_wide_as_their_samples_are_many() {
        let stacks = [("a;b<c>".to_owned(), 3), ("a;write_[k]".to_owned(), 1)];
        let svg = svg(&stacks, "x & y");
        assert!(svg.contains("width=\"1200.00\"") && svg.contains("width=\"900.00\""), "{svg}");
        assert!(svg.contains("class=\"kernel\" x=\"900.00\""), "{svg}");
        assert!(
            svg.contains("b&lt;c&gt;: 75.0 %, 3 samples") && svg.contains("x &amp; y"),
            "{svg}"
        );
        assert!(!svg.contains("_[k]"), "{svg}");
        assert_eq!(super::svg(&[], "x"), "");
    }
}
