//! Parses the TOML files that declare contenders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossway_mech::{Boundaries, Caps, Family};
use crossway_sys::trust::Untrusted;
use serde::Deserialize;

use super::Contender;
use super::folders;

/// Maximum value of `deadline_s`, the seconds that a program may take to answer. The time limit of the controller is a
/// little longer than this maximum.
const LONGEST_DEADLINE_S: u32 = 30;

/// Errors in declarations.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    /// The file cannot be read.
    #[error("cannot read the contender's declaration {file}: {cause}")]
    Unreadable {
        /// The file.
        file: String,
        /// The reason.
        cause: std::io::Error,
    },
    /// The file is not valid TOML, or has unknown keys.
    #[error("{file}: {why}")]
    NotTheFormat {
        /// The file.
        file: String,
        /// Position in the file, and reason.
        why: String,
    },
    /// A value is invalid.
    #[error("{file}: contender '{id}': {why}")]
    Bad {
        /// The file.
        file: String,
        /// The contender's id.
        id: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// Others may write to the file, whose commands would run with the privileges of this user.
    #[error("the contender's declaration {file} is not used: {why}")]
    Untrusted {
        /// The file.
        file: PathBuf,
        /// The part of the path that others own or may write to.
        why: Untrusted,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    contender: BTreeMap<String, Declared>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    about: String,
    #[serde(default = "other")]
    family: String,
    #[serde(default)]
    build: Vec<String>,
    #[serde(default)]
    probe: Vec<String>,
    run: Vec<String>,
    #[serde(default)]
    remedy: Option<String>,
    #[serde(default = "longest_deadline")]
    deadline_s: u32,
    #[serde(default)]
    languages: Vec<String>,
    #[serde(default)]
    licence: Option<String>,
    #[serde(default)]
    caps: DeclaredCaps,
}

/// Capabilities; the defaults are those of [`Caps::PLAIN`].
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DeclaredCaps {
    boundaries: Option<Boundaries>,
    max_message_bytes: Option<usize>,
    carries_empty: Option<bool>,
    crosses_hosts: Option<bool>,
    can_block: Option<bool>,
    can_spin: Option<bool>,
    detects_peer_death: Option<bool>,
}

fn longest_deadline() -> u32 {
    LONGEST_DEADLINE_S
}

fn other() -> String {
    "other".to_owned()
}

/// Reads a declaration file. The contenders that it declares are built below `cache`.
pub(super) fn read(file: &Path, cache: &Path) -> Result<Vec<Contender>, DeclarationError> {
    let unreadable =
        |cause| DeclarationError::Unreadable { file: file.display().to_string(), cause };
    let text = crossway_sys::text_file::read(file).map_err(unreadable)?;
    let file = std::fs::canonicalize(file).map_err(unreadable)?;
    parse(&text, &file, cache)
}

fn parse(text: &str, file: &Path, cache: &Path) -> Result<Vec<Contender>, DeclarationError> {
    let shown = file.display().to_string();
    let declared: File = toml::from_str(text).map_err(|e| DeclarationError::NotTheFormat {
        file: shown.clone(),
        why: e.to_string().trim_end().to_owned(),
    })?;
    if declared.contender.is_empty() {
        let why = "it declares no contender; begin with [contender.ID]".to_owned();
        return Err(DeclarationError::NotTheFormat { file: shown, why });
    }
    let names = Names {
        dir: file.parent().unwrap_or(Path::new("/")).to_owned(),
        out: folders::out(cache, file),
        helpers: folders::helpers(cache),
    };
    let of = |(id, declared)| one(id, declared, file, &names);
    declared.contender.into_iter().map(of).collect()
}

/// The values that replace the names in braces in a command.
struct Names {
    dir: PathBuf,
    out: PathBuf,
    helpers: PathBuf,
}

impl Names {
    fn fill(&self, words: &[String]) -> Vec<String> {
        let fill = |word: &String| {
            word.replace("{dir}", &self.dir.to_string_lossy())
                .replace("{out}", &self.out.to_string_lossy())
                .replace("{helpers}", &self.helpers.to_string_lossy())
        };
        words.iter().map(fill).collect()
    }
}

fn one(
    id: String,
    declared: Declared,
    file: &Path,
    names: &Names,
) -> Result<Contender, DeclarationError> {
    let bad = |why: &str| DeclarationError::Bad {
        file: file.display().to_string(),
        id: id.clone(),
        why: why.to_owned(),
    };
    let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !id.starts_with(|c: char| c.is_ascii_lowercase()) || !id.chars().all(kebab) {
        return Err(bad(
            "an id consists of lower-case letters, digits and '-', and begins with a letter",
        ));
    }
    if declared.run.first().is_none_or(String::is_empty) {
        return Err(bad("'run' is empty; name the program and its arguments, each a string"));
    }
    let Some(family) = Family::of_contender(&declared.family) else {
        let allowed = Family::OF_CONTENDERS.map(Family::word).join(", ");
        return Err(bad(&format!("unknown family '{}'; allowed: {allowed}", declared.family)));
    };
    let Some(remedy) = declared.remedy.filter(|remedy| !remedy.trim().is_empty()) else {
        let why = "'remedy' is missing; state what helps if the contender does not work, such as an apt-get command";
        return Err(bad(why));
    };
    if !(1..=LONGEST_DEADLINE_S).contains(&declared.deadline_s) {
        let why = format!(
            "deadline_s = {} is not between 1 and {LONGEST_DEADLINE_S}",
            declared.deadline_s
        );
        return Err(bad(&why));
    }
    if let Some(word) = declared.languages.iter().find(|word| !is_language(word)) {
        let why =
            format!("'{word}' in languages is not a valid name; use lower case, such as \"c++\"");
        return Err(bad(&why));
    }
    if declared.licence.as_ref().is_some_and(|licence| licence.trim().is_empty()) {
        return Err(bad(
            "'licence' is empty; write an SPDX expression, such as \"MIT OR Apache-2.0\"",
        ));
    }
    let said = declared.caps;
    let boundaries = said.boundaries.unwrap_or(Boundaries::Message);
    let (can_block, can_spin) = (said.can_block.unwrap_or(true), said.can_spin.unwrap_or(false));
    if !can_block && !can_spin {
        return Err(bad(
            "caps: can_block and can_spin are both false; a contender must support at least one way of waiting",
        ));
    }
    let caps = Caps {
        boundaries,
        max_message: said.max_message_bytes,
        carries_empty: said.carries_empty.unwrap_or(false) && boundaries == Boundaries::Message,
        crosses_hosts: said.crosses_hosts.unwrap_or(false),
        can_block,
        can_spin,
        detects_peer_death: said.detects_peer_death.unwrap_or(true),
        send_deadline: false,
        ..Caps::PLAIN
    };
    Ok(Contender {
        about: declared.about,
        family,
        languages: declared.languages,
        licence: declared.licence,
        caps,
        build: names.fill(&declared.build),
        probe: names.fill(&declared.probe),
        run: names.fill(&declared.run),
        remedy,
        deadline: Duration::from_secs(u64::from(declared.deadline_s)),
        file: file.to_owned(),
        out: names.out.clone(),
        helpers: names.helpers.clone(),
        id,
    })
}

/// Whether `word` has the form of a language name, as in questions of `crossway advise`.
pub fn is_language(word: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+#-".contains(c);
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Contender>, String> {
        parse(text, Path::new("/d/x.toml"), Path::new("/c")).map_err(|e| e.to_string())
    }

    const WHOLE: &str = "[contender.my-queue]\nabout = \"mine\"\nrun = [\"{out}/q\", \"{dir}\"]\n\
                         remedy = \"sudo apt-get install q\"\n";

    #[test]
    fn a_declaration_is_read_with_its_names_filled_in() {
        let more = "languages = [\"c\", \"c++\"]\nlicence = \"MIT\"\n";
        let all =
            parsed(&format!("{WHOLE}{more}[contender.my-queue.caps]\nboundaries = \"stream\"\n"))
                .unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].caps.boundaries, Boundaries::Stream);
        assert_eq!(all[0].languages, ["c", "c++"]);
        assert_eq!(all[0].licence.as_deref(), Some("MIT"));
        assert_eq!(all[0].run[1], "/d");
        assert!(all[0].run[0].starts_with("/c/contenders/x-"), "{:?}", all[0].run);
        assert!(!all[0].caps.can_spin && all[0].caps.can_block);
    }

    #[test]
    fn what_is_wrong_is_named_with_file_and_key() {
        for (text, words) in [
            ("", "missing field `contender`"),
            ("[contender]\n", "declares no contender"),
            ("x = [", "/d/x.toml"),
            (&WHOLE.replace("my-queue", "My_Queue"), "contender 'My_Queue': an id consists"),
            (&WHOLE.replace("remedy", "rmedy"), "unknown field `rmedy`"),
            (&WHOLE.replace("sudo apt-get install q", " "), "'remedy' is missing"),
            (&WHOLE.replace("\"{out}/q\", \"{dir}\"", ""), "'run' is empty"),
            (&format!("{WHOLE}languages = [\"C\"]\n"), "'C' in languages is not a valid name"),
            (&format!("{WHOLE}licence = \"\"\n"), "'licence' is empty"),
            (&format!("{WHOLE}family = \"x\"\n"), "unknown family 'x'; allowed: library"),
            (
                &format!("{WHOLE}caps = {{ can_block = false }}\n"),
                "can_block and can_spin are both",
            ),
            (&format!("{WHOLE}caps = {{ lossy = true }}\n"), "unknown field `lossy`"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
