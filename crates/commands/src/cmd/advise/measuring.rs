//! Measures for an answer: where its runs are stored, and what works here.

use std::fs;
use std::path::{Path, PathBuf};

use crossway_advise::{Advice, AdviseError, Bench, Machine, Question, Sources, advise};
use crossway_lab::catalogue;
use crossway_lab::launcher::Launcher;
use crossway_lab::run::{Asker, Options, RunError, RunEvent, new_name};
use crossway_lab::shutdown;
use crossway_mech::Probe;
use crossway_records::records_io::RESULTS;
use crossway_records::runs::{OUT, QUESTION};
use crossway_report::units::count;

use super::Advise;
use crate::progress::Progress;
use crate::ui::Ui;

/// The folder of an answer: the question, and the runs that were measured for it.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    question: String,
}

impl Place {
    /// A folder of its own within `out`; if `out` is that of an earlier answer, the same one.
    pub(super) fn of(out: PathBuf, question: &Question) -> Place {
        let dir = if out.join(QUESTION).is_file() { out } else { out.join(new_name()) };
        Place { dir, question: question.text.clone() }
    }

    /// Creates the folder, unless it exists.
    pub(super) fn begin(&self) -> Result<(), RunError> {
        let file = self.dir.join(QUESTION);
        let create = || {
            fs::create_dir_all(&self.dir)?;
            if file.is_file() { Ok(()) } else { fs::write(&file, &self.question) }
        };
        create().map_err(|cause| RunError::NoFolder {
            dir: self.dir.clone(),
            asker: Asker::Advise,
            cause,
        })
    }

    /// Removes the folder if nothing was measured.
    pub(super) fn end(&self) {
        let is_run = |entry: fs::DirEntry| entry.path().is_dir();
        if !fs::read_dir(&self.dir).into_iter().flatten().flatten().any(is_run) {
            let _ = fs::remove_file(self.dir.join(QUESTION));
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

impl Advise {
    /// The folder for answers: the first one of records or, if that is a run, the one beside it.
    pub(super) fn folder(&self) -> PathBuf {
        let first = self.records.first().map_or(Path::new(OUT), PathBuf::as_path);
        match first.parent().filter(|_| first.join(RESULTS).is_file()) {
            Some(beside) => beside.to_owned(),
            None => first.to_owned(),
        }
    }

    /// Measures the candidates, and answers the question.
    pub(super) fn measured(
        &self,
        question: &Question,
        sources: &Sources<'_>,
        place: &Place,
        ui: &Ui,
        quiet: bool,
    ) -> Result<Advice, AdviseError> {
        let program = std::env::current_exe().map_err(|cause| {
            AdviseError::Run(RunError::NoFolder {
                dir: PathBuf::from("/proc/self/exe"),
                asker: Asker::Advise,
                cause,
            })
        })?;
        let launcher = Launcher::of(program, Some(shutdown::listen().map_err(RunError::Os)?));
        place.begin()?;
        let mut progress = Progress::new(ui, quiet);
        let mut seen = false;
        let mut machine = Machine {
            launcher: &launcher,
            options: Options {
                hosts: question.hosts.clone(),
                ..Options::new(place.dir.clone(), Asker::Advise)
            },
            runs: Vec::new(),
            // The answer says what the checks before the stages found. The hosts are shown once and not at every stage.
            tell: Box::new(move |event| match event {
                RunEvent::Begin { trials, .. } => {
                    seen = true;
                    progress.begin(*trials as u64);
                }
                RunEvent::Testbed { .. } | RunEvent::Hosts { .. } if seen => {}
                event => progress.show(event),
            }),
        };
        if !quiet {
            let most = sources.budget.unwrap_or_default();
            let more = match self.observed.is_given() {
                true => " Predicting the gain takes another half minute.",
                false => "",
            };
            eprintln!("Measuring takes at most about {:.0} s.{more}", most.as_secs_f64());
        }
        let bench: &mut dyn Bench = &mut machine;
        let answer = advise(question, sources, bench, &mut |stage| {
            if !quiet {
                eprintln!(
                    "{}: {}, {} each, about {:.0} s",
                    stage.purpose,
                    count(stage.candidates, "candidate", "candidates"),
                    count(stage.trials, "trial", "trials"),
                    stage.about.as_secs_f64()
                );
            }
        });
        place.end();
        answer
    }
}

/// Probes every mechanism and contender. If nothing will be measured, contenders that are already built count as ready
/// without a probe. Contenders are probed in parallel, because each is a separate program.
pub(super) fn probes(records_only: bool) -> Vec<(&'static str, Probe)> {
    let probe = |entry: catalogue::Entry| match entry.contender() {
        Some(contender) if records_only && contender.is_built() => {
            Probe::Ready { version: String::new() }
        }
        _ => entry.probe(),
    };
    let (contenders, mechanisms): (Vec<_>, Vec<_>) =
        catalogue::all().partition(catalogue::Entry::is_contender);
    std::thread::scope(|scope| {
        let tried: Vec<_> = contenders
            .into_iter()
            .map(|entry| scope.spawn(move || (entry.id(), probe(entry))))
            .collect();
        let mut all: Vec<_> = mechanisms.into_iter().map(|e| (e.id(), probe(e))).collect();
        for one in tried {
            all.push(one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    })
}
