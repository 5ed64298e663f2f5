//! The languages of starter programs.

use std::fmt;
use std::str::FromStr;

/// A language in which starter programs are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C11 with POSIX threads.
    C,
    /// Rust, standard library only.
    Rust,
    /// Python 3, standard library only.
    Python,
}

impl Language {
    /// All languages with their names.
    pub const ALL: [(&'static str, Language); 3] =
        [("c", Language::C), ("rust", Language::Rust), ("python", Language::Python)];

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        Language::ALL.iter().find(|(_, language)| *language == self).map_or("", |(name, _)| name)
    }

    /// The ending of its source files.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Language::C => "c",
            Language::Rust => "rs",
            Language::Python => "py",
        }
    }
}

/// The languages of the client and of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Languages {
    /// Of the client.
    pub client: Language,
    /// Of the server.
    pub server: Language,
}

impl FromStr for Languages {
    type Err = String;

    /// Parses one language for both programs, or two, as `python,c`: the client's and the server's.
    fn from_str(text: &str) -> Result<Languages, String> {
        let language = |word: &str| {
            let found = Language::ALL.iter().find(|(name, _)| *name == word.trim());
            found.map(|(_, language)| *language).ok_or_else(|| {
                format!("'{word}' is none of c, rust and python; write one, or CLIENT,SERVER")
            })
        };
        let (client, server) = text.split_once(',').unwrap_or((text, text));
        Ok(Languages { client: language(client)?, server: language(server)? })
    }
}

impl fmt::Display for Languages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client == self.server {
            true => f.write_str(self.client.name()),
            false => write!(f, "{},{}", self.client.name(), self.server.name()),
        }
    }
}
