//! Builds contenders, and checks whether they are built.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Contender;
use super::folders::{self, NoFolder};

/// How many lines of a failed build's output are shown.
const SHOWN_LINES: usize = 12;

/// The reason why a contender was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder for builds cannot be created.
    #[error("{0}")]
    NoFolder(#[from] NoFolder),
    /// The command could not be started.
    #[error("contender '{id}': '{command}' cannot be started: {cause}; {remedy}")]
    Start {
        /// The contender.
        id: String,
        /// The command.
        command: String,
        /// The reason.
        cause: std::io::Error,
        /// The remedy.
        remedy: String,
    },
    /// The build command failed.
    #[error("contender '{id}': '{command}' failed ({status}); {remedy}\n{wrote}")]
    Failed {
        /// The contender.
        id: String,
        /// The command.
        command: String,
        /// The command's exit status.
        status: String,
        /// The remedy.
        remedy: String,
        /// The end of the command's output.
        wrote: String,
    },
    /// The lock or the stamp of the build could not be written.
    #[error("cannot write {file}: {cause}")]
    Unwritten {
        /// The file.
        file: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
}

/// Builds the contender, even if it is already built. Simultaneous builds of one declaration file wait for each other.
pub(super) fn build(contender: &Contender) -> Result<(), BuildError> {
    let Some((program, arguments)) = contender.build.split_first() else { return Ok(()) };
    folders::prepare(contender)?;
    folders::make(&contender.out)?;
    let unwritten = |file: &Path| {
        let file = file.to_owned();
        move |cause| BuildError::Unwritten { file, cause }
    };
    let turn = contender.out.join("turn");
    let lock = fs::File::create(&turn).map_err(unwritten(&turn))?;
    lock.lock().map_err(unwritten(&turn))?;
    let command = contender.build.join(" ");
    let out = Command::new(program)
        .args(arguments)
        .current_dir(&contender.out)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| BuildError::Start {
            id: contender.id.clone(),
            command: command.clone(),
            cause,
            remedy: contender.remedy.clone(),
        })?;
    if !out.status.success() {
        let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&out.stderr));
        let lines: Vec<&str> = text.lines().collect();
        return Err(BuildError::Failed {
            id: contender.id.clone(),
            command,
            status: out.status.to_string(),
            remedy: contender.remedy.clone(),
            wrote: lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"),
        });
    }
    let stamp = stamp_file(contender);
    fs::File::create(&stamp)
        .and_then(|mut file| file.write_all(stamp_text(contender).as_bytes()))
        .map_err(unwritten(&stamp))
}

/// Whether the contender was built by the current command from the current sources with the current helpers, or need
/// not be built, and nobody else may write to what was built.
pub(super) fn is_built(contender: &Contender) -> bool {
    folders::prepare(contender).is_ok()
        && (contender.build.is_empty()
            || fs::read_to_string(stamp_file(contender)).is_ok_and(|t| t == stamp_text(contender)))
}

/// Runs the declared probe; returns the reason if it fails.
pub(super) fn try_probe(contender: &Contender) -> Result<(), String> {
    let Some((program, arguments)) = contender.probe.split_first() else { return Ok(()) };
    let command = contender.probe.join(" ");
    let out = Command::new(program).args(arguments).current_dir("/").stdin(Stdio::null()).output();
    match out {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => {
            let wrote = String::from_utf8_lossy(&out.stderr);
            let last = wrote.trim().lines().last().unwrap_or_default().to_owned();
            let colon = if last.is_empty() { "" } else { ": " };
            Err(format!("'{command}' failed ({}){colon}{last}", out.status))
        }
        Err(e) => Err(format!("'{command}' cannot be started: {e}")),
    }
}

fn stamp_file(contender: &Contender) -> PathBuf {
    let words = crc32fast::hash(contender.build.join("\n").as_bytes());
    contender.out.join(format!("built-{words:08x}"))
}

/// The text that identifies a build: the command, and a hash of each file that the command mentions and that is in the
/// declaration's folder. The helpers need no hash, since the name of their folder identifies them.
fn stamp_text(contender: &Contender) -> String {
    let mut files: Vec<PathBuf> = named_files(contender, &contender.build).collect();
    files.sort_unstable();
    let mut text = contender.build.join("\n");
    for file in files {
        let hash = fs::read(&file).map(|bytes| crc32fast::hash(&bytes)).unwrap_or_default();
        text.push_str(&format!("\n{} {hash:08x}", file.display()));
    }
    text
}

/// The files in the declaration's folder that a command names.
pub(super) fn named_files<'a>(
    contender: &'a Contender,
    command: &'a [String],
) -> impl Iterator<Item = PathBuf> + 'a {
    let words = command.iter().flat_map(|word| word.split_whitespace());
    let named = words.map(|word| PathBuf::from(word.trim_end_matches(';')));
    named.filter(|path| path.starts_with(declared_in(contender)) && path.is_file())
}

fn declared_in(contender: &Contender) -> &Path {
    contender.file.parent().unwrap_or(Path::new("/"))
}
