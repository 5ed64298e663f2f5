//! The greeting: the first line that each side of a connection sends. It identifies the side and its version, and its
//! format never changes.

use serde::Serialize;

use super::PROTOCOL;
use crossway_records::record::SCHEMA;

/// Maximum length of a greeting in bytes; a longer first line is not a greeting.
pub(crate) const LONGEST: usize = 4096;

/// The versions that a side announces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Version of the control protocol.
    pub protocol: u32,
    /// Version of the program.
    pub program: String,
    /// Version of the record schema.
    pub schema: u32,
}

impl Version {
    /// The version of this program.
    pub(crate) fn own() -> Version {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Version { protocol: PROTOCOL, program, schema: SCHEMA }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (protocol {}, records {})", self.program, self.protocol, self.schema)
    }
}

/// Names of the two sides in greetings.
pub(crate) const AGENT: &str = "crossway-agent";
pub(crate) const CONTROLLER: &str = "crossway-controller";

/// The greeting line of `side`.
pub(crate) fn line(side: &str) -> String {
    let Version { protocol, program, schema } = Version::own();
    format!("{side} protocol={protocol} version={program} records={schema}\n")
}

/// Parses the version in a greeting of `side`; `None` if the line is not a greeting.
pub(crate) fn read(side: &str, line: &str) -> Option<Version> {
    let words = line.trim_end().strip_prefix(side)?;
    let value = |name: &str| {
        words.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    Some(Version {
        protocol: value("protocol")?.parse().ok()?,
        program: value("version")?.to_owned(),
        schema: value("records")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_back_and_nothing_else_is_one() {
        assert_eq!(read(AGENT, &line(AGENT)), Some(Version::own()));
        let newer = "crossway-agent protocol=9 version=7.0 records=3 and=more\n";
        assert_eq!(read(AGENT, newer).unwrap().to_string(), "7.0 (protocol 9, records 3)");
        for other in ["Welcome!\n", "crossway-agent\n", &line(CONTROLLER), ""] {
            assert_eq!(read(AGENT, other), None, "{other}");
        }
    }
}
