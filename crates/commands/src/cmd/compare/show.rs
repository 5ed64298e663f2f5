//! Prints a comparison to the terminal.

use crossway_records::compare::{
    Comparison, ComparisonReport, RatesOfCase, Verdict, change, change_range,
};
use crossway_records::record::Rates;
use crossway_report::units::{Quantity, count};

use super::Compare;
use crate::table::{Align, Grid, Tone};
use crate::ui::Ui;

/// Maximum number of cases in each list below the figures, for example of the cases that only one run has. Further
/// cases are only counted.
const CASES_LISTED: usize = 10;

impl Compare {
    /// With `--markdown`, prints one table of all figures. Otherwise prints one table per case, with the case as its
    /// title and notes on the verdicts below it.
    fn print_figures(&self, ui: &Ui, report: &ComparisonReport) {
        let shown: Vec<&Comparison> = report
            .comparisons
            .iter()
            .filter(|c| !self.changes || matches!(c.verdict, Verdict::Faster | Verdict::Slower))
            .collect();
        if self.markdown {
            let mut grid = Grid::new([&[("case", Align::Left)], &HEADS[..]].concat());
            for c in &shown {
                let mut row = vec![(c.case.clone(), Tone::Plain)];
                row.extend(cells(c));
                let note = c.note.as_ref().filter(|_| !c.same_trials);
                if let (Some((verdict, _)), Some(note)) = (row.last_mut(), note) {
                    *verdict = format!("{verdict}: {note}");
                }
                grid.toned_row(row);
            }
            if !grid.is_empty() {
                println!("{}", grid.markdown());
            }
            for rates in report.rates.iter().filter(|r| shown.iter().any(|c| c.case == r.case)) {
                println!("- {}: {}", rates.case, rates_of(rates));
            }
            return;
        }
        for figures in shown.chunk_by(|x, y| x.case == y.case) {
            let mut grid = Grid::new(HEADS);
            let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
            for c in figures {
                grid.toned_row(cells(c));
                let Some(note) = c.note.as_deref().filter(|_| !c.same_trials) else { continue };
                match notes.iter_mut().find(|(noted, _)| *noted == note) {
                    Some((_, of)) => of.push(c.figure.to_string()),
                    None => notes.push((note, vec![c.figure.to_string()])),
                }
            }
            println!("{}", ui.paint("1", &figures[0].case));
            if let Some(rates) = report.rates.iter().find(|rates| rates.case == figures[0].case) {
                ui.print_wrapped(1, &rates_of(rates));
            }
            println!("{}", grid.text(ui));
            for (note, of) in notes {
                ui.print_wrapped(1, &format!("{}: {note}", of.join(", ")));
            }
            println!();
        }
    }

    pub(super) fn print(&self, ui: &Ui, report: &ComparisonReport, failures: &[String]) {
        self.print_figures(ui, report);
        println!(
            "{}: {} faster, {} slower, {} same, {} unclear",
            count(report.comparisons.len(), "figure", "figures"),
            report.count(Verdict::Faster),
            report.count(Verdict::Slower),
            report.count(Verdict::Same),
            report.count(Verdict::Unclear)
        );
        let list = |what: &str, cases: &[String]| {
            for case in cases.iter().take(CASES_LISTED) {
                ui.print_noted("2", what, case);
            }
            if let Some(more) = cases.len().checked_sub(CASES_LISTED).filter(|n| *n > 0) {
                println!("{} {more} more; --json lists all", ui.paint("2", what));
            }
        };
        list("only in A:", &report.only_in_a);
        list("only in B:", &report.only_in_b);
        list("not compared:", &report.not_compared);
        list("without figures:", &report.without_figures);
        list("degraded in A:", &report.degraded_in_a);
        list("degraded in B:", &report.degraded_in_b);
        list("fails in A:", &report.failed_in_a);
        list("fails in B:", &report.failed_in_b);
        for warning in &report.warnings {
            ui.print_noted("33", "warning", warning);
        }
        for failure in failures {
            ui.print_noted("31", "FAIL", failure);
        }
    }
}

/// Describes the rates of a case: `offered 1.00 k msg/s; achieved 1.00 k msg/s (100 %) in A, 992 msg/s (99.2 %) in B`.
fn rates_of(case: &RatesOfCase) -> String {
    let sides = [("A", case.a), ("B", case.b)];
    let sides: Vec<(&str, Rates)> =
        sides.into_iter().filter_map(|(name, rates)| Some((name, rates?))).collect();
    let rate = |rate| Quantity::MessageRate.show(rate);
    let achieved = |r: &Rates| {
        format!("{} ({})", rate(r.achieved_msgs_per_s), Quantity::Share.show(r.share()))
    };
    match &sides[..] {
        [(_, a), (_, b)] if a.offered_msgs_per_s == b.offered_msgs_per_s => format!(
            "offered {}; achieved {} in A, {} in B",
            rate(a.offered_msgs_per_s),
            achieved(a),
            achieved(b)
        ),
        sides => {
            let side = |(name, r): &(&str, Rates)| {
                format!("{name}: offered {}, achieved {}", rate(r.offered_msgs_per_s), achieved(r))
            };
            sides.iter().map(side).collect::<Vec<_>>().join("; ")
        }
    }
}

/// The columns of the table of figures.
const HEADS: [(&str, Align); 6] = [
    ("figure", Align::Left),
    ("A", Align::Right),
    ("B", Align::Right),
    ("change", Align::Right),
    ("95 % interval", Align::Right),
    ("verdict", Align::Left),
];

fn cells(c: &Comparison) -> Vec<(String, Tone)> {
    let quantity = Quantity::of(c.figure);
    let (verdict, tone) = verdict(c);
    let interval = c.ratio_interval.map_or("–".to_owned(), |i| change_range(i.low, i.high));
    let plain = |text: String| (text, Tone::Plain);
    let shown = |text: String| if c.lacks_samples { "–".to_owned() } else { text };
    vec![
        plain(c.figure.to_string()),
        plain(shown(quantity.show(c.a.estimate.value))),
        plain(shown(quantity.show(c.b.estimate.value))),
        (shown(change(c.ratio)), tone),
        plain(interval),
        (verdict, tone),
    ]
}

fn verdict(c: &Comparison) -> (String, Tone) {
    if c.same_trials {
        return ("same trials".to_owned(), Tone::Plain);
    }
    match c.verdict {
        Verdict::Faster => ("faster".to_owned(), Tone::Good),
        Verdict::Slower => ("slower".to_owned(), Tone::Bad),
        Verdict::Same => {
            (format!("same within {:.1} %", c.same_within.unwrap_or(0.0) * 100.0), Tone::Plain)
        }
        Verdict::Unclear => ("unclear".to_owned(), Tone::Unsure),
    }
}
