//! Contenders: external programs that are measured like Crossway's own mechanisms.
//!
//! A contender is declared in a TOML file ([`declaration`](self)) and uses the protocol described in
//! docs/CONTENDERS.md ([`protocol`]). `crossway role` mediates between it and the controller ([`role`](crate::role)): it
//! starts the program, translates orders and answers, writes the payload, checks the content, and measures from
//! outside what the program uses. The controller, the plans and the records treat it like any mechanism.

mod building;
pub(crate) mod content;
mod declaration;
mod end;
mod folders;
pub(crate) mod program;
pub mod protocol;
mod starter;

use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::{Caps, Family, Probe};
use crossway_records::record::ContenderNote;
use crossway_sys::Obstacle;
use serde::{Deserialize, Serialize};

pub use building::BuildError;
pub use declaration::DeclarationError;
pub use declaration::is_language;
pub(crate) use end::End;
pub use folders::{Declared, Folders, NoFolder};
pub(crate) use program::ProgramError;
pub use starter::{Language, StarterError, write_starter};

use program::Program;

/// The key under which an offer contains the prefix of the listening end's names in `/dev/shm`. The program of the
/// connecting end does not receive this value. The connecting end creates objects with this prefix, too, and may be the
/// last to create one, so it must also remove them.
pub(crate) const SHM_PREFIX: &str = "crossway-shm-prefix";

/// A contender as described by its declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The contender's id, which is distinct from those of the mechanisms.
    pub id: String,
    /// A one-line description.
    pub about: String,
    /// The family with which the report groups the contender.
    pub family: Family,
    /// Languages from which the contender can be used, in lower case; empty if the declaration does not state them.
    pub languages: Vec<String>,
    /// The contender's licence, an SPDX expression; `None` if the declaration does not state it.
    pub licence: Option<String>,
    /// The contender's capabilities.
    pub caps: Caps,
    /// The command that builds the contender; empty if nothing has to be built.
    pub build: Vec<String>,
    /// A command that succeeds if everything that the contender needs is available; empty if there is no such command.
    pub probe: Vec<String>,
    /// The command that runs one of the contender's roles.
    pub run: Vec<String>,
    /// What helps if the contender cannot be built or started, usually an apt-get command.
    pub remedy: String,
    /// Time limit for the contender's program to answer an order.
    pub deadline: Duration,
    /// The declaration's file.
    pub file: PathBuf,
    /// The folder in which the contender is built.
    pub out: PathBuf,
    /// The folder of the helpers.
    pub helpers: PathBuf,
}

/// Everything that a role's process needs to start a contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The contender's id.
    pub id: String,
    /// The command that runs the role.
    pub run: Vec<String>,
    /// The folder of the helpers.
    pub helpers: PathBuf,
    /// The contender's capabilities.
    pub caps: Caps,
    /// Time limit for the contender's program to answer an order.
    pub deadline: Duration,
    /// A number from which the payload is derived: the same for all roles of a trial, and not disclosed to their
    /// programs.
    pub secret: u64,
}

impl Contender {
    /// The data for starting the contender's roles; `secret` should differ between trials.
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

    /// The facts about the contender that its records state.
    pub fn note(&self) -> ContenderNote {
        ContenderNote {
            family: self.family.word().to_owned(),
            file: self.file.clone(),
            protocol: protocol::VERSION,
        }
    }

    /// Tests whether the contender works here: its dependencies are available, it is built, and its program sends its
    /// greeting.
    pub fn probe(&self) -> Probe {
        let missing = |why: String, remedy: &str| Probe::Missing(Obstacle::new(why, remedy));
        if let Err(error) = folders::prepare(self) {
            let why = format!("cannot use {}: {}", error.dir.display(), error.cause);
            return missing(why, folders::REMEDY);
        }
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

    /// The files in the declaration's folder that its commands name.
    fn own_files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let commands = [&self.build, &self.probe, &self.run];
        commands.into_iter().flat_map(|command| building::named_files(self, command))
    }

    /// Whether the contender was built by this command from these sources, or need not be built, and nobody else may
    /// write to what it consists of.
    pub fn is_built(&self) -> bool {
        building::is_built(self)
    }

    /// Builds the contender as declared.
    ///
    /// # Errors
    /// The folder or a file of the build cannot be written, or the command cannot be started or fails. The error of a
    /// command contains the remedy and, if the command was started, the end of its output.
    pub fn build(&self) -> Result<(), BuildError> {
        building::build(self)
    }
}
