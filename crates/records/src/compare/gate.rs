//! The condition under which a comparison fails (`compare --fail-on`).

use super::{Comparison, ComparisonReport, SIGNIFICANT};

/// The condition under which a comparison fails (`--fail-on`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailOn {
    /// Bound on the slowdown: 0.05 is 5 %.
    pub slower_by: f64,
    /// Whether undecided figures pass.
    pub allow_unclear: bool,
}

/// The gate's verdict on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateCall {
    /// Not slower by more than the bound.
    Passes,
    /// Slower by more than the bound; the whole interval is beyond it.
    Slower,
    /// The trials do not decide whether it is slower by more than the bound.
    Undecided,
}

impl std::str::FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<FailOn, String> {
        // Whoever reports this names the value.
        let error = || "write slower, or slower and a percentage, e.g. slower:5%".to_owned();
        let by = match text.split_once(':') {
            None if text == "slower" => 0.0,
            Some(("slower", by)) => parse_percent(by).ok_or_else(error)?,
            _ => return Err(error()),
        };
        Ok(FailOn { slower_by: by, allow_unclear: false })
    }
}

/// Parses a percentage such as `5%` or `5` and returns it as a fraction; `None` unless it is a number from 0 to below a
/// million.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().trim_end_matches('%').trim_end().parse().ok()?;
    (number.is_finite() && (0.0..1e6).contains(&number)).then_some(number / 100.0)
}

/// Describes a ratio as the change of the figure: 0.376 is `-62.4 %`, 1.2 is `+20.0 %`, 12 is `12.0 times`.
pub fn change(ratio: f64) -> String {
    match (ratio - 1.0) * 100.0 {
        _ if !ratio.is_finite() => "–".to_owned(),
        _ if ratio >= 10.0 => format!("{ratio:.1} times"),
        // Avoid "-0.0 %".
        percent if percent.abs() < 0.05 => "0.0 %".to_owned(),
        percent => format!("{percent:+.1} %"),
    }
}

/// Describes an interval of ratios as changes of the figure: `-6.0..+6.4 %`, `12.0..46.0 times`, or, if only the high
/// end is a change by a factor of ten or more, `-94.8 % to 14.5 times`.
pub fn change_range(low: f64, high: f64) -> String {
    let (low, high) = (change(low), change(high));
    for unit in [" %", " times"] {
        if let Some(low) = low.strip_suffix(unit)
            && high.ends_with(unit)
        {
            return format!("{low}..{high}");
        }
    }
    format!("{low} to {high}")
}

impl FailOn {
    /// The gate's verdict on a figure: whether the interval of the slowdown is below, beyond or around the bound. As
    /// for the verdict "slower", both tests must agree that the figure is slower. If both sides contain the same
    /// trials, the figure passes; if the virtual CPUs moved, or without an interval, it is undecided. The verdicts
    /// "same" and "unclear" have other bounds and do not matter here.
    pub fn call(&self, comparison: &Comparison) -> GateCall {
        let bound = 1.0 + self.slower_by;
        match comparison.slowdown_interval {
            _ if comparison.same_trials => GateCall::Passes,
            _ if comparison.cores_moved => GateCall::Undecided,
            Some(slowdown) if slowdown.high <= bound => GateCall::Passes,
            Some(slowdown) if slowdown.low > bound && comparison.p < SIGNIFICANT => {
                GateCall::Slower
            }
            _ => GateCall::Undecided,
        }
    }

    /// The message for a figure that the trials leave undecided. For a figure without an interval, the message does not
    /// contain `change`, since the trials are too few.
    fn undecided(&self, c: &Comparison, change: &str) -> String {
        let note = c.note.as_deref().unwrap_or("the trials do not decide whether it is slower");
        let Some(slowdown) = c.slowdown_interval else {
            return format!("{}: {}: undecided: {note}", c.case, c.figure);
        };
        let bound = format!("the bound of {:.1} %", self.slower_by * 100.0);
        let interval = change_range(slowdown.low, slowdown.high);
        let why = if c.cores_moved {
            note.to_owned()
        } else if slowdown.low > 1.0 + self.slower_by {
            format!(
                "the two tests disagree: the interval of the slowdown, {interval}, is beyond {bound}, but the Mann-Whitney test does not exclude equality (p = {:.2})",
                c.p
            )
        } else {
            format!("the interval of the slowdown, {interval}, contains {bound}")
        };
        format!("{}: {}: {change}, undecided: {why}", c.case, c.figure)
    }

    /// Messages for everything that fails the gate: figures that are slower, cases with failed trials in B, cases with
    /// figures in A but only degraded trials in B, and, unless undecided figures are allowed, these and cases that
    /// cannot be compared.
    pub fn failures(&self, report: &ComparisonReport) -> Vec<String> {
        let mut failures = Vec::new();
        for c in &report.comparisons {
            let change = change(c.ratio);
            match self.call(c) {
                GateCall::Passes => {}
                GateCall::Slower => {
                    failures.push(format!("{}: {}: {change}, which is slower", c.case, c.figure));
                }
                GateCall::Undecided if self.allow_unclear => {}
                GateCall::Undecided => {
                    failures.push(self.undecided(c, &change));
                }
            }
        }
        failures.extend(report.failed_in_b.iter().cloned());
        let lost = report.degraded_in_b.iter();
        failures.extend(lost.map(|case| format!("{case}; as a result, B has no figures for it")));
        if !self.allow_unclear {
            let without = report.degraded_in_a.iter();
            failures
                .extend(without.map(|case| format!("{case}; A has no figures for it, undecided")));
            let neither = report.without_figures.iter();
            failures
                .extend(neither.map(|case| format!("{case}; A has no figures either, undecided")));
            let other = report.not_compared.iter();
            failures.extend(other.map(|case| format!("{case}, undecided")));
            let missing = report.only_in_a.iter();
            failures.extend(missing.map(|case| format!("{case}: measured in A only, undecided")));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_word_and_a_percentage() {
        let by = |text: &str| text.parse::<FailOn>().map(|gate| gate.slower_by);
        assert_eq!(
            (by("slower"), by("slower:5%"), by("slower:2.5")),
            (Ok(0.0), Ok(0.05), Ok(0.025))
        );
        for wrong in ["slower:abc", "faster:5%", "slower:-1%", ""] {
            let error = by(wrong).unwrap_err();
            // The command line says which value it was.
            assert!(error.contains("e.g. slower:5%") && !error.contains("invalid"), "{error}");
        }
    }
}
