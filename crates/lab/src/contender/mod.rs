//! Programs outside of Crossway that are measured like the mechanisms inside: contenders.
//!
//! A contender is declared in a TOML file ([`declaration`](self)) and speaks the protocol that docs/CONTENDERS.md describes
//! ([`protocol`]). `crossway role` stands between it and the controller ([`role`](self)): it starts the program, translates
//! orders and answers, writes the payload, judges the content, and reads from outside what the program used. The
//! controller, the plans and the records see no difference.

mod building;
mod content;
mod declaration;
mod examination;
mod folders;
mod program;
pub mod protocol;
mod role;
mod starter;

use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::{Caps, Probe};
use serde::{Deserialize, Serialize};

pub use building::BuildError;
pub use declaration::DeclarationError;
pub(crate) use declaration::is_language;
pub use examination::{Verdict, examine};
pub use folders::{Folders, NoFolder};
pub(crate) use role::live;
pub use starter::{Language, StarterError, write_starter};

use crate::inputs::Workload;
use program::Program;

/// A program that can be measured, as its declaration describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its id, among those of the mechanisms.
    pub id: String,
    /// One line for people.
    pub about: String,
    /// With what it is drawn in the report.
    pub family: String,
    /// Languages from which it can be used, in small letters; empty: the declaration does not say.
    pub languages: Vec<String>,
    /// Its licence, an SPDX expression; `None`: the declaration does not say.
    pub licence: Option<String>,
    /// What it can do.
    pub caps: Caps,
    /// The command that builds it; empty: nothing is to be built.
    pub build: Vec<String>,
    /// A command whose success tells that what it needs is there; empty: none.
    pub probe: Vec<String>,
    /// The command that runs one role of it.
    pub run: Vec<String>,
    /// What helps where it cannot be built or does not start: usually a line for apt-get.
    pub remedy: String,
    /// How long its program may take for an answer.
    pub deadline: Duration,
    /// The declaration's file.
    pub file: PathBuf,
    /// Where it is built.
    pub out: PathBuf,
    /// Where the helpers for C and Python are.
    pub helpers: PathBuf,
}

/// How a role of a contender is started; all that the process of the role is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The contender's id.
    pub id: String,
    /// The command.
    pub run: Vec<String>,
    /// Where the helpers are.
    pub helpers: PathBuf,
    /// What it can do.
    pub caps: Caps,
    /// How long its program may take for an answer.
    pub deadline: Duration,
    /// The same for all roles of a trial and told to none of their programs: what the payload is made from.
    pub secret: u64,
}

impl Contender {
    /// How its roles are started; `secret` should be another for each trial.
    pub fn launch(&self, secret: u64) -> Launch {
        Launch {
            id: self.id.clone(),
            run: self.run.clone(),
            helpers: self.helpers.clone(),
            caps: self.caps,
            deadline: self.deadline,
            secret,
        }
    }

    /// Whether it works here: what it needs is there, it is built, and its program greets.
    pub fn probe(&self) -> Probe {
        let missing = |why: String, remedy: &str| Probe::Missing { why, remedy: remedy.to_owned() };
        if let Err(why) = building::try_probe(self) {
            return missing(why, &self.remedy);
        }
        if !building::is_built(self) {
            let remedy = format!("crossway contender build {}", self.id);
            return missing("it is not built".to_owned(), &remedy);
        }
        match Program::start(&self.launch(0), None) {
            Ok(mut program) => match program.greeting(self.deadline) {
                Ok(greeting) => Probe::Ready { version: greeting.library },
                Err(error) => missing(error.to_string(), &self.remedy),
            },
            Err(error) => missing(error.to_string(), &self.remedy),
        }
    }

    /// Whether it was built by this command from these sources, or need not be.
    pub fn is_built(&self) -> bool {
        building::is_built(self)
    }

    /// Builds it, as its declaration says.
    ///
    /// # Errors
    /// The command cannot be started or fails; the error quotes what it wrote and carries the remedy.
    pub fn build(&self) -> Result<(), BuildError> {
        building::build(self)
    }
}

/// Whether the protocol has this workload.
pub(crate) fn carries(workload: Workload) -> bool {
    matches!(workload, Workload::Throughput | Workload::PingPong)
}
