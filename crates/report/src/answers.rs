//! The summary table at the top of the page: the best mechanism of each wait class by message size.

use serde::Serialize;

use crate::blocks::{BEYOND, BEYOND_MEANS, DEGRADED, FEW, TWO_REGIMES, chosen_sizes, marks};
use crate::ranking::{Metric, Ranking};
use crate::summary::{Case, Summary};
use crate::units;
use crate::verdict::list;
use crossway_records::rank::WaitClass;

/// A group of adjacent columns that share a heading.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The name of the wait class, which is the heading of the group.
    pub name: &'static str,
    /// The heads of the columns: the figures by which the best mechanism is chosen, one per column.
    pub columns: Vec<&'static str>,
}

/// The best mechanism for one size, wait class and figure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answer {
    /// Column head and wait class, repeated in the cell on narrow pages, where the table has no column heads.
    pub label: String,
    /// The best mechanism, or those tied for the best place; empty if there is none.
    pub names: String,
    /// Why there is none; empty if there is one.
    pub none: String,
    /// The figure of the first mechanism in `names`, with its unit.
    pub value: String,
    /// Footnote marks of `value`, as in the tables side by side.
    pub marks: String,
    /// The interval and the number of trials of `value`.
    pub interval: Vec<String>,
}

/// The row of one message size.
#[derive(Clone, Debug, Serialize)]
pub struct AnswerRow {
    /// The message size, as text.
    pub size: String,
    /// The cells, one per column.
    pub cells: Vec<Answer>,
}

/// The summary table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answers {
    /// The end of the caption: a space and the name of the setting in brackets; empty if the run has no setting.
    #[serde(rename = "where")]
    pub place: String,
    /// The column groups, one per wait class.
    pub groups: Vec<Group>,
    /// The rows, one per message size.
    pub rows: Vec<AnswerRow>,
    /// Explains the marks of the figures; empty if none has a mark.
    pub note: String,
}

const COLUMNS: [(&str, Metric); 3] = [
    ("Shortest round trip", Metric::ROUND_TRIP_P50),
    ("Most bytes per second", Metric::BYTE_RATE),
    ("Least CPU per message", Metric::CPU_PER_MESSAGE),
];

/// Maximum number of rows, so that the table fits the first screen.
const ROWS_MAX: usize = 4;

impl Answers {
    /// Builds the table from the summary's first setting.
    pub fn of(summary: &Summary) -> Answers {
        let has = |metric: Metric, class: WaitClass, size: u64| {
            Ranking::of(summary, metric, 0, size, class)
        };
        let all =
            summary.sizes(|c| c.setting == 0 && COLUMNS.iter().any(|(_, m)| m.of(c).is_some()));
        let mut sizes = chosen_sizes(&all);
        while sizes.len() > ROWS_MAX {
            sizes.remove(sizes.len() / 2);
        }
        let mut columns: Vec<(WaitClass, &'static str, Metric)> = Vec::new();
        let mut groups: Vec<Group> = Vec::new();
        for class in WaitClass::ALL {
            let present: Vec<_> = COLUMNS
                .iter()
                // A spinning end keeps its whole core busy, so a CPU column would only repeat the speed.
                .filter(|(_, m)| class != WaitClass::Spinning || *m != Metric::CPU_PER_MESSAGE)
                // There is little room, and the round trip is the reason to choose a hybrid or a busy one.
                .filter(|(_, m)| {
                    !matches!(class, WaitClass::Hybrid | WaitClass::Busy)
                        || *m == Metric::ROUND_TRIP_P50
                })
                .filter(|(_, m)| sizes.iter().any(|s| has(*m, class, *s).is_some()))
                .collect();
            if present.is_empty() {
                continue;
            }
            groups.push(Group {
                name: match class {
                    WaitClass::Blocking => "Blocks",
                    WaitClass::Busy => "Busy: owns two cores",
                    WaitClass::Hybrid => "Spins, then blocks",
                    WaitClass::Spinning => "Spins: owns two cores",
                },
                columns: present.iter().map(|(name, _)| *name).collect(),
            });
            columns.extend(present.iter().map(|(name, metric)| (class, *name, *metric)));
        }
        let rows: Vec<AnswerRow> = sizes
            .into_iter()
            .map(|size| AnswerRow {
                size: units::size(size),
                cells: columns
                    .iter()
                    .map(|(class, name, metric)| {
                        let label = format!("{name}, {}", class.name());
                        let Some(ranking) = has(*metric, *class, size) else {
                            let none = why_none(summary, *metric, *class, size);
                            return Answer { label, none, ..Answer::default() };
                        };
                        let leaders = ranking.leaders();
                        let figure = &leaders[0].figure;
                        let index = leaders[0].contender;
                        let of_it = |c: &&Case| {
                            c.contender == index && c.setting == 0 && c.size_bytes == size
                        };
                        let cases: Vec<&Case> = summary.cases.iter().filter(of_it).collect();
                        let names = leaders
                            .iter()
                            .take(if leaders.len() > 3 { 2 } else { 3 })
                            .map(|e| e.name(summary))
                            .chain(
                                (leaders.len() > 3).then(|| format!("{} more", leaders.len() - 2)),
                            );
                        Answer {
                            label,
                            none: String::new(),
                            names: list(names),
                            value: metric.quantity().show(figure.value),
                            marks: marks(*metric, &summary.contenders[index], &cases),
                            interval: crate::sheet::interval_note(metric.quantity(), figure)
                                .split(", ")
                                .map(str::to_owned)
                                .collect(),
                        }
                    })
                    .collect(),
            })
            .collect();
        let place = summary.settings.first().map_or(String::new(), |s| format!(" ({})", s.label()));
        let beyond = rows.iter().flat_map(|r| &r.cells).any(|cell| cell.marks.contains(BEYOND));
        let note = if beyond { format!("{BEYOND} {BEYOND_MEANS}") } else { String::new() };
        Answers { place, groups, rows, note }
    }
}

/// Why no mechanism of a class is ranked by a figure for messages of a size.
fn why_none(summary: &Summary, metric: Metric, class: WaitClass, size: u64) -> String {
    let cases = || {
        let of_class = |c: &&Case| c.setting == 0 && c.size_bytes == size && c.class == class;
        summary.cases.iter().filter(of_class).filter(|c| metric.of(c).is_some())
    };
    let mut reasons = Vec::new();
    if cases().any(|c| c.regimes.is_some()) {
        reasons.push(TWO_REGIMES);
    }
    if !Ranking::of_any(summary, metric, 0, size, class).too_few.is_empty() {
        reasons.push(FEW);
    }
    if cases().any(|c| c.degraded) {
        reasons.push(DEGRADED);
    }
    if reasons.is_empty() {
        // Whether a mechanism is busy is not asked for, but found.
        reasons.push(if class == WaitClass::Busy { "none" } else { "not measured" });
    }
    reasons.join(", ")
}
