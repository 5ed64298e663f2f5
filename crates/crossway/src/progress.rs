//! The progress bar. It is drawn between trials only: drawing during one would be measured, too.

use crossway_lab::preflight::Severity;
use crossway_lab::record::Status;
use crossway_lab::run::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ui::Ui;

/// Shows a run's events on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    colour: bool,
    failed: u64,
}

impl Progress {
    pub(crate) fn new(ui: &Ui, quiet: bool) -> Self {
        Progress { bar: None, quiet, colour: ui.colour_stderr, failed: 0 }
    }

    pub(crate) fn show(&mut self, event: &Event<'_>) {
        if self.quiet {
            return;
        }
        match event {
            Event::Limits { what } => {
                let spinner = self.bar.get_or_insert_with(ProgressBar::new_spinner);
                spinner.set_message(format!("limits of this machine: {what}"));
                spinner.tick();
            }
            Event::Testbed { testbed } => {
                self.finish();
                eprintln!("setting up testbed {} ({})", testbed.name, testbed.kind.name());
            }
            Event::Hosts { testbed, hosts, one_clock } => {
                for host in *hosts {
                    eprintln!(
                        "  host '{}': Linux {}, reached by {}",
                        host.name, host.kernel, host.prefix_kind
                    );
                }
                if !one_clock {
                    eprintln!(
                        "  clocks of {} are not compared: no one-way latencies; rates are the receiver's own",
                        testbed.name
                    );
                }
            }
            Event::NoTestbed { testbed, why } => {
                eprintln!("testbed {} is left out: {why}", testbed.name);
            }
            Event::Begin { folder, trials, findings } => {
                self.finish();
                for finding in findings.iter().filter(|f| f.severity > Severity::Note) {
                    eprintln!("{}: {}; {}", finding.about, finding.what, finding.next_step);
                }
                eprintln!("{trials} trials into {}", folder.dir().display());
                self.bar = Some(bar(*trials as u64, self.colour));
            }
            Event::Trial { case, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(case.full_id());
                    bar.tick();
                }
            }
            Event::Written { record } => {
                let Some(bar) = &self.bar else { return };
                if record.status == Status::Failed {
                    self.failed += 1;
                    let reason = record.reason.as_deref().unwrap_or("no reason");
                    bar.suspend(|| eprintln!("failed: {}/{}: {reason}", record.group, record.case));
                }
                let ran = record.status != Status::Skipped || record.inputs.order > 0;
                if ran {
                    bar.inc(1);
                }
            }
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(trials: u64, colour: bool) -> ProgressBar {
    let template = if colour {
        "{bar:30.cyan/blue} {pos}/{len}  {eta} left  {wide_msg:.dim}"
    } else {
        "{bar:30} {pos}/{len}  {eta} left  {wide_msg}"
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar
}
