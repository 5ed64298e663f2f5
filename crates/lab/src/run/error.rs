//! Why a run could not be created, continued or completed, and what its user can do then.

use std::path::{Path, PathBuf};

use crossway_sys::OsError;
use crossway_sys::error::Explained;

use crate::plan::PlanError;
use crate::registers::RegistersLost;
use crossway_records::records_io::ReadError;
use crossway_records::shell;

/// For whom a run measures: decides what the user can do if its folder cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// `crossway measure`, which can continue a run that was cut short.
    Measure,
    /// `crossway advise`, whose answer needs all of its runs.
    Advise,
}

impl Asker {
    /// The option that names another folder.
    fn option(self) -> &'static str {
        match self {
            Asker::Measure => "--out",
            Asker::Advise => "--records",
        }
    }

    /// What to do once the cause has been removed.
    fn next_step(self, dir: &Path) -> String {
        match self {
            Asker::Measure => {
                format!("continue with: crossway measure --resume {}", shell::word(dir))
            }
            Asker::Advise => {
                "ask the same question again, or choose another folder with --records".to_owned()
            }
        }
    }
}

/// The reason why a run could not be created, continued or completed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No case is left after filtering.
    #[error("no case{} matches the filter {filters}; `crossway measure PLAN{} --list` shows all cases", between(*hosts),
        if *hosts { " --hosts ..." } else { "" })]
    Nothing {
        /// The filters, separated by commas.
        filters: String,
        /// Whether hosts were named on the command line.
        hosts: bool,
    },
    /// This is a guest whose kernel does not preserve the registers that this program uses.
    #[error("{0}")]
    Registers(#[from] RegistersLost),
    /// The folder is not a run.
    #[error("{}: cannot continue this run: {why}; name a folder that `crossway measure` wrote", dir.display())]
    NoRun {
        /// The folder.
        dir: PathBuf,
        /// The reason.
        why: String,
    },
    /// Another process is measuring this run.
    #[error("{}: this run is being measured by another process; wait until it has ended or stop it, then continue with: crossway measure --resume {}", dir.display(), shell::word(dir))]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// The records would come from different machines or builds.
    #[error("{}: cannot continue this run: {why}; its records would mix figures of two machines or builds; start a \
             new run", dir.display())]
    OtherOrigin {
        /// The folder.
        dir: PathBuf,
        /// What differs.
        why: String,
    },
    /// The cases are no longer those that the run's records come from.
    #[error("{}: cannot continue this run: {why}, so its plan.toml or the declared contenders have been changed; \
             restore them, or measure the plan as a new run: crossway measure {}", dir.display(),
             shell::word(dir.join(super::PLAN)))]
    OtherPlan {
        /// The folder.
        dir: PathBuf,
        /// What differs.
        why: String,
    },
    /// A host named on the command line cannot be used.
    #[error("{0}")]
    Host(crate::agent::HostError),
    /// The plan cannot run on the hosts that the run was started with.
    #[error("{0}")]
    Hosts(#[from] crate::plan::HostsError),
    /// The run was interrupted before its first trial.
    #[error("interrupted before the first trial")]
    Interrupted,
    /// The run's records cannot be read.
    #[error("{0}")]
    Records(#[from] ReadError),
    /// The run's plan cannot be read.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// The folder for the records could not be created.
    #[error("cannot create the run's folder {}: {}; choose another folder with {}", dir.display(), Explained(cause),
        asker.option())]
    NoFolder {
        /// The folder.
        dir: PathBuf,
        /// For whom.
        asker: Asker,
        /// The cause. It is part of the message and not the error's `source`, because a printed error chain would
        /// repeat the cause.
        cause: std::io::Error,
    },
    /// A file in the folder could not be written; the records before it are complete.
    #[error("cannot write {}: {}; fix that, then {}", path.display(), Explained(cause), asker.next_step(dir))]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// The run's folder.
        dir: PathBuf,
        /// For whom.
        asker: Asker,
        /// The cause. It is part of the message and not the error's `source`, because a printed error chain would
        /// repeat the cause.
        cause: std::io::Error,
    },
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

fn between(hosts: bool) -> &'static str {
    if hosts { " of a mechanism that works between hosts" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_one_of_the_command_that_measures() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let (path, dir) = (PathBuf::from("o/r/results.jsonl"), PathBuf::from("o/r"));
        for (asker, option, next) in [
            (Asker::Measure, "--out", "crossway measure --resume o/r"),
            (Asker::Advise, "--records", "ask the same question again"),
        ] {
            let refused = RunError::NoFolder { dir: dir.clone(), asker, cause: full() }.to_string();
            assert!(
                refused.ends_with(&format!("choose another folder with {option}")),
                "{refused}"
            );
            let (path, dir) = (path.clone(), dir.clone());
            let cut = RunError::Unwritten { path, dir, asker, cause: full() }.to_string();
            assert!(cut.contains(next), "{cut}");
            assert_eq!(cut.contains("--resume"), asker == Asker::Measure, "{cut}");
        }
    }
}
