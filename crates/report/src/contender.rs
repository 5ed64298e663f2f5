//! A contender (a mechanism with its way of waiting and of accessing the payload), and the style in which it is drawn.

use crossway_lab::catalogue::Family;
use crossway_records::family::carrier;
use crossway_records::inputs::{Access, Wait};
use crossway_records::rank::WaitClass;

/// The style in which a family of mechanisms is drawn.
pub trait Style {
    /// The family's name in legends and headings.
    fn name(self) -> &'static str;

    /// Colours on a light and on a dark background. The hues follow Okabe and Ito's palette for colour-blind readers,
    /// darkened or lightened until each has a contrast of at least 4.5 to 1 against its background, because names are
    /// written in them. Members of a family differ by marker and dash style, never by hue alone.
    fn colours(self) -> (&'static str, &'static str);
}

impl Style for Family {
    fn name(self) -> &'static str {
        match self {
            Family::SharedMemory => "Shared memory",
            Family::Unix => "UNIX sockets",
            Family::Pipe => "Pipes",
            Family::Network => "Network sockets",
            Family::Queue => "Message queues",
            Family::Uring => "io_uring",
            Family::Tipc => "TIPC",
            Family::Library => "Libraries",
            Family::Language => "Languages",
            Family::Other => "Other",
        }
    }

    fn colours(self) -> (&'static str, &'static str) {
        match self {
            Family::SharedMemory => ("#c2410c", "#ff8a4c"),
            Family::Unix => ("#0b63b0", "#62b0ff"),
            Family::Pipe => ("#00795a", "#35c79a"),
            Family::Network => ("#a4307f", "#ec86c6"),
            Family::Queue => ("#8a6500", "#e2b93b"),
            Family::Uring => ("#1d7898", "#7fdcf5"),
            Family::Tipc => ("#5b3fc4", "#b09cff"),
            Family::Library => ("#8b4a2b", "#d9a078"),
            Family::Language => ("#4d6b00", "#a9c65a"),
            Family::Other => ("#565f6b", "#aab3bf"),
        }
    }
}

/// Markers of a family's members, in order, by their plotly names.
pub const MARKERS: [&str; 8] =
    ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "star", "cross"];

/// Dash styles of a family's members, in order, by their plotly names.
pub const DASHES: [&str; 5] = ["solid", "dash", "dot", "dashdot", "longdash"];

/// A mechanism with its way of waiting and of accessing the payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contender {
    /// The mechanism's id, as in the records.
    pub mechanism: String,
    /// How the mechanism's ends wait.
    pub wait: Wait,
    /// Whether the payload is copied, or written and read in place.
    pub access: Access,
    /// The family; [`Family::Other`] if this version of Crossway does not have the mechanism.
    pub family: Family,
    /// The label of the host, if the contender did not run on this machine.
    pub host: Option<String>,
}

impl Contender {
    /// The wait class within which the contender is ranked.
    pub fn discipline(&self) -> WaitClass {
        WaitClass::of(&self.wait)
    }

    /// Returns the name in tables and legends: the mechanism's id, and how the contender differs from one that blocks
    /// and copies.
    pub fn label(&self) -> String {
        let mut label = self.mechanism.clone();
        match self.wait {
            Wait::Block => {}
            // Of Crossway's own mechanisms, one with this name can only spin. A contender's name says nothing.
            Wait::Spin if self.mechanism.contains("spin") && carrier(&self.mechanism).is_some() => {
            }
            Wait::Spin => label.push_str(" (spin)"),
            Wait::Hybrid { spin_us } => label.push_str(&format!(" (hybrid {spin_us} µs)")),
        }
        if self.access == Access::InPlace {
            label.push_str(" in place");
        }
        if let Some(host) = &self.host {
            label.push_str(" @ ");
            label.push_str(host);
        }
        label
    }

    /// Returns the sort key for lists that no figure orders: family, then wait class, then name.
    pub fn sort_key(&self) -> (Family, WaitClass, String) {
        (self.family, self.discipline(), self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the relative luminance of a colour such as `#c2410c`, as defined by WCAG.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let v =
                f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("a number")) / 255.0;
            if v <= 0.039_28 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn names_in_the_colours_of_families_can_be_read() {
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for family in Family::ALL {
            let (light, dark) = family.colours();
            // The ground of the page's charts (`--card`) and of the page itself (`--paper`).
            for (colour, ground) in
                [(light, "#ffffff"), (light, "#fbfaf7"), (dark, "#1b1f25"), (dark, "#14171b")]
            {
                let found = contrast(colour, ground);
                assert!(found >= 4.5, "{family:?}: {colour} on {ground}: {found:.2}");
            }
        }
    }

    #[test]
    fn labels_say_what_is_not_a_plain_blocking_copy() {
        let make = |mechanism: &str, wait, access| {
            Contender {
                mechanism: mechanism.into(),
                wait,
                access,
                family: Family::Other,
                host: None,
            }
            .label()
        };
        assert_eq!(make("pipe", Wait::Block, Access::Copy), "pipe");
        assert_eq!(make("shm-spin", Wait::Spin, Access::Copy), "shm-spin");
        assert_eq!(make("uds-stream", Wait::Spin, Access::Copy), "uds-stream (spin)");
        assert_eq!(
            make("shm-futex", Wait::Hybrid { spin_us: 20 }, Access::InPlace),
            "shm-futex (hybrid 20 µs) in place"
        );
    }
}
