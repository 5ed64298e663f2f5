//! Writes a new working contender (declaration and program) as a starting point.

use std::fs;
use std::path::{Path, PathBuf};

/// The language of a new contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Uses the C header.
    C,
    /// Uses the Python module.
    Python,
    /// Uses the Go file, which is compiled with the program.
    Go,
    /// Uses the Rust file, as a module of the program.
    Rust,
}

/// The reason why no new contender was written.
#[derive(Debug, thiserror::Error)]
pub enum StarterError {
    /// The name is not a valid id.
    #[error(
        "'{0}' is not a valid id; use lower-case letters, digits and '-', and begin with a letter"
    )]
    Name(String),
    /// A file already exists, or cannot be written.
    #[error("cannot write {file}: {cause}")]
    Unwritten {
        /// The file.
        file: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
}

/// Writes a declaration and a program to the directory; returns the files, the declaration first.
///
/// # Errors
/// The name is not a valid id, or a file already exists or cannot be written. Nothing is overwritten.
pub fn write_starter(
    dir: &Path,
    name: &str,
    language: Language,
) -> Result<Vec<PathBuf>, StarterError> {
    let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(kebab) {
        return Err(StarterError::Name(name.to_owned()));
    }
    let (declaration, program, ending) = match language {
        Language::C => (
            include_str!("../../../../contenders/starters/c.toml.in"),
            include_str!("../../../../contenders/starters/c.c.in"),
            "c",
        ),
        Language::Python => (
            include_str!("../../../../contenders/starters/python.toml.in"),
            include_str!("../../../../contenders/starters/python.py.in"),
            "py",
        ),
        Language::Go => (
            include_str!("../../../../contenders/starters/go.toml.in"),
            include_str!("../../../../contenders/starters/go.go.in"),
            "go",
        ),
        Language::Rust => (
            include_str!("../../../../contenders/starters/rust.toml.in"),
            include_str!("../../../../contenders/starters/rust.rs.in"),
            "rs",
        ),
    };
    let files = [
        (dir.join(format!("{name}.toml")), declaration),
        (dir.join(format!("{name}.{ending}")), program),
    ];
    for (file, text) in &files {
        let unwritten = |cause| StarterError::Unwritten { file: file.clone(), cause };
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(file)
            .and_then(|mut out| {
                std::io::Write::write_all(&mut out, text.replace("@NAME@", name).as_bytes())
            })
            .map_err(unwritten)?;
    }
    Ok(files.into_iter().map(|(file, _)| file).collect())
}
