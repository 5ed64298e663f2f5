//! Progress of a run: a bar on a terminal, occasional lines elsewhere. Both are only written between trials, because
//! writing during a trial would disturb the measurement.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crossway_lab::estimate::{self, human};
use crossway_lab::preflight::{Finding, Severity};
use crossway_lab::run::RunEvent;
use crossway_records::record::{Rates, Record, Span, Status};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::{Quantity, count};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::ui::Ui;

/// Number of units that must be finished before the time left is estimated: the first trial includes the preparations,
/// and a single one says little about the others.
const ESTIMATE_FROM: u64 = 3;

/// Minimum time between two progress lines if there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Number of progress lines of a run without a terminal, so that a log of an hour is no longer than
/// that of a minute.
const LINES: u64 = 10;

/// Time after which a line follows in any case, so that a slow run is not taken for one that hangs.
const AT_LATEST: Duration = Duration::from_secs(600);

/// Maximum number of failed trials that are shown during the run. The report has the reasons of all.
const FAILED_MAX: u64 = 5;

/// The environment variable that replaces this time for tests, in milliseconds.
const EVERY_VARIABLE: &str = "CROSSWAY_PROGRESS_MS";

/// Shows a run's events on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    lines: Option<Lines>,
    /// Number of trials to run; `over` is how many of them are finished.
    trials: u64,
    over: u64,
    failed: u64,
    quiet: bool,
    colour: bool,
    verbose: bool,
    terminal: bool,
    /// Width of standard error in columns.
    width: u16,
}

/// Progress as lines, for a log file or a pipe.
struct Lines {
    /// What is counted, in the plural.
    unit: &'static str,
    begun: Instant,
    last: Instant,
    /// Number of finished units in the last line.
    told: u64,
    /// Minimum time between two lines.
    every: Duration,
}

impl Lines {
    fn new(unit: &'static str) -> Self {
        let now = Instant::now();
        let ms = std::env::var(EVERY_VARIABLE).ok().and_then(|ms| ms.parse().ok());
        Lines {
            unit,
            begun: now,
            last: now,
            told: 0,
            every: ms.map_or(EVERY, Duration::from_millis),
        }
    }

    /// Returns a progress line, given that `over` of `all` units are finished; `None` if all are
    /// finished, or if too little time has passed and too little has been done since the last line
    /// or the start.
    fn after(&mut self, over: u64, all: u64) -> Option<String> {
        let waited = self.last.elapsed();
        let is_much = over >= self.told + all.div_ceil(LINES) || waited >= AT_LATEST;
        if waited < self.every || !is_much || over >= all {
            return None;
        }
        (self.last, self.told) = (Instant::now(), over);
        let mut line = format!("{over} of {all} {}", self.unit);
        if over >= ESTIMATE_FROM {
            let each = self.begun.elapsed().as_millis() as u64 / over;
            line.push_str(&format!(", about {} left", human(each * (all - over))));
        }
        Some(line)
    }
}

/// Shows the progress of work that is counted in something other than trials.
pub(crate) struct Steps {
    bar: ProgressBar,
    lines: Option<Lines>,
}

impl Steps {
    /// Starts the display of progress; `unit` is what is counted, in the plural.
    pub(crate) fn of(unit: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        Steps { bar, lines: (!std::io::stderr().is_terminal()).then(|| Lines::new(unit)) }
    }

    /// Shows that `over` of `all` units are finished; `name` is the last finished one.
    pub(crate) fn show(&mut self, over: u64, all: u64, name: &str) {
        self.bar.set_length(all);
        self.bar.set_position(over);
        self.bar.set_message(name.to_owned());
        if let Some(line) = self.lines.as_mut().and_then(|lines| lines.after(over, all)) {
            eprintln!("{line}");
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress {
    pub(crate) fn new(ui: &Ui, quiet: bool) -> Self {
        Progress {
            bar: None,
            lines: None,
            trials: 0,
            over: 0,
            failed: 0,
            quiet,
            colour: ui.colour_stderr,
            verbose: ui.verbose > 0,
            terminal: std::io::stderr().is_terminal(),
            width: ui.width_stderr,
        }
    }

    /// Prints a line, wrapped at spaces to the width, above the bar if there is one.
    fn tell(&self, text: &str) {
        let text = wrap_indented(text, self.width, 0, 2);
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    pub(crate) fn show(&mut self, event: &RunEvent<'_>) {
        if let RunEvent::Begin { expected_ms, .. } = event
            && let Some(warning) = estimate::warning(*expected_ms)
        {
            self.tell(&format!("warning: {warning}"));
        }
        if self.quiet {
            return;
        }
        match event {
            RunEvent::Limits { what } => {
                if self.terminal {
                    let spinner = self.bar.get_or_insert_with(ProgressBar::new_spinner);
                    spinner.set_message(format!("measuring the limits of this machine: {what}"));
                    spinner.tick();
                } else if self.verbose {
                    eprintln!("measuring the limits of this machine: {what}");
                }
            }
            RunEvent::Testbed { testbed } => {
                self.finish();
                self.tell(&format!(
                    "setting up testbed {} ({})",
                    testbed.name,
                    testbed.kind.name()
                ));
            }
            RunEvent::Hosts { testbed, hosts, one_clock } => {
                for host in *hosts {
                    eprintln!(
                        "  host '{}': Linux {}, reached by {}",
                        host.name, host.kernel, host.prefix_kind
                    );
                }
                if !one_clock {
                    self.tell(&format!(
                        "the hosts of {} have different clocks: one-way latencies cannot be measured, and rates are \
                         computed from the receiver's clock",
                        testbed.name
                    ));
                }
            }
            RunEvent::NoTestbed { testbed, why } => {
                self.tell(&format!("skipping testbed {}: {why}", testbed.name));
            }
            RunEvent::Begin { folder, trials, expected_ms, findings } => {
                self.finish();
                for finding in findings.iter().filter(|f| f.severity > Severity::Note) {
                    self.tell(&format!(
                        "{}: {}; {}",
                        finding.about, finding.what, finding.next_step
                    ));
                }
                self.tell(&format!(
                    "{}; records go to {}",
                    announced(*trials, *expected_ms, findings),
                    folder.dir().display()
                ));
                self.begin(*trials as u64);
            }
            RunEvent::Repeat { trials } => {
                self.finish();
                let disturbed = count(*trials, "trial was", "trials were");
                let them = if *trials == 1 { "it" } else { "them" };
                self.tell(&format!("{disturbed} disturbed by the machine; repeating {them}"));
                self.begin(*trials as u64);
            }
            RunEvent::Trial { case, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(case.full_id());
                    bar.tick();
                }
            }
            RunEvent::Written { record } => self.written(record),
        }
    }

    /// Starts to show the progress of a run of `trials` trials.
    pub(crate) fn begin(&mut self, trials: u64) {
        if self.quiet {
            return;
        }
        self.finish();
        (self.trials, self.over) = (trials, 0);
        if self.terminal {
            self.bar = Some(bar(trials, self.colour));
        } else {
            self.lines = Some(Lines::new("trials"));
        }
    }

    fn written(&mut self, record: &Record) {
        let skipped_before = record.status == Status::Skipped && record.inputs.order == 0;
        let failed = record.status == Status::Failed;
        self.failed += u64::from(failed);
        if failed && self.failed <= FAILED_MAX || self.verbose && !skipped_before {
            self.tell(&outcome(record));
        } else if failed && self.failed == FAILED_MAX + 1 {
            self.tell("more trials failed; the report has the reasons, and -v prints each");
        }
        if skipped_before {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        self.over += 1;
        let (over, all) = (self.over, self.trials);
        if let Some(line) = self.lines.as_mut().and_then(|lines| lines.after(over, all)) {
            eprintln!("{line}");
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Describes a trial in one line: its case, its status, and its figure or the reason why it has none.
fn outcome(record: &Record) -> String {
    let status = record.status.name();
    let mut line = format!("{status}: {}/{}", record.group, record.case);
    if record.inputs.trials > 1 {
        line.push_str(&format!(", trial {}", record.inputs.trial + 1));
    }
    let figure = record
        .latency_ns
        .iter()
        .find(|latency| matches!(latency.span, Span::RoundTrip | Span::OneWay))
        .map(|latency| format!("p50 {}", Quantity::Duration.show(latency.p50 as f64)))
        .or_else(|| record.throughput.map(|t| Quantity::MessageRate.show(t.msgs_per_s)));
    if let Some(figure) = figure {
        line.push_str(&format!(": {figure}"));
    }
    if let Some(rates) = Rates::of(record) {
        let [offered, achieved] = [rates.offered_msgs_per_s, rates.achieved_msgs_per_s]
            .map(|rate| Quantity::MessageRate.show(rate));
        line.push_str(&format!(", offered {offered}, achieved {achieved}"));
    }
    if let Some(reason) = &record.reason {
        line.push_str(&format!(": {reason}"));
    }
    line
}

fn bar(trials: u64, colour: bool) -> ProgressBar {
    let template = if colour {
        "{bar:30.cyan/blue} {pos}/{len}{left}  {wide_msg:.dim}"
    } else {
        "{bar:30} {pos}/{len}{left}  {wide_msg}"
    };
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("left", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&left(state.pos(), state.eta()));
        });
    let bar = ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar
}

/// Formats the estimated time left, `eta`, for the bar; empty before [`ESTIMATE_FROM`] trials are finished.
fn left(over: u64, eta: Duration) -> String {
    if over < ESTIMATE_FROM { String::new() } else { format!("  {:#} left", HumanDuration(eta)) }
}

/// Says how many trials begin and how long they take, as far as that can be known: on a busy machine, they take longer.
pub(crate) fn announced(trials: usize, expected_ms: u64, findings: &[Finding]) -> String {
    let busy = findings.iter().any(Finding::takes_cpu_time);
    let idle = if busy { " on an idle machine" } else { "" };
    format!("{}, about {}{idle}", count(trials, "trial", "trials"), human(expected_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_of_an_idle_machine_if_the_machine_is_busy() {
        let finding = |about: &str| Finding {
            severity: Severity::Warning,
            about: about.to_owned(),
            what: String::new(),
            next_step: String::new(),
            continued: false,
        };
        assert_eq!(announced(1, 72_000, &[]), announced(1, 72_000, &[finding("governor")]));
        let busy = announced(960, 72_000, &[finding("governor"), finding("busy-cpu")]);
        assert_eq!(busy, format!("{} on an idle machine", announced(960, 72_000, &[])));
    }

    #[test]
    fn nothing_is_estimated_before_a_few_trials_are_finished() {
        assert_eq!(left(0, Duration::ZERO), "");
        assert_eq!(left(1, Duration::from_secs(300)), "");
        assert_eq!(left(3, Duration::from_secs(30)), "  30s left");
    }

    #[test]
    fn a_line_says_how_far_the_work_is_only_when_one_is_due() {
        let mut lines = Lines { every: EVERY, ..Lines::new("trials") };
        assert_eq!(lines.after(1, 4), None);
        lines.every = Duration::ZERO;
        assert_eq!(lines.after(1, 4).unwrap(), "1 of 4 trials");
        let line = lines.after(3, 4).unwrap();
        assert!(line.starts_with("3 of 4 trials, about"), "{line}");
        let mut many = Lines { every: Duration::ZERO, ..Lines::new("trials") };
        let told = (1..1000).filter(|over| many.after(*over, 1000).is_some()).count();
        assert_eq!(told, 9, "an hour has no more lines than a minute");
        // The result follows the last one, so no line is due.
        assert_eq!(lines.after(4, 4), None);
        let mut faults = Lines { every: Duration::ZERO, ..Lines::new("faults") };
        let faults = faults.after(90, 900).unwrap();
        assert!(faults.starts_with("90 of 900 faults, about "), "{faults}");
    }
}
