//! Copies this program to a host, in the file for the host's processor.
//!
//! The copy is made in three short commands, of which the host needs only `sh` and what every busybox has: `prepare.sh`
//! finds a folder that only the user may write to, `dd` writes the file, and `accept.sh` gives it its name if its SHA-256
//! is right. Scripts and file pass through standard input, and no argument needs quotes, so it does not matter through
//! how many shells the command prefix leads. A copy that is there already is used again.

mod processor;
mod remote;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossway_sys::{Obstacle, lease, trust};
use processor::Processor;
use sha2::{Digest, Sha256};

use super::HostError;
use crossway_records::testbed::HostWords;

const PREPARE: &str = include_str!("prepare.sh");
const ACCEPT: &str = include_str!("accept.sh");
/// Time limit for a script, which includes connecting.
const SCRIPT_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for the copy: 15 MB at 50 kB/s.
const COPY_LIMIT: Duration = Duration::from_secs(300);
/// How many digits of the SHA-256 are in the name of a copy.
const NAMED_DIGITS: usize = 16;

/// Which program is the agent on a host named on the command line. On this machine, it is always this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentProgram {
    /// `crossway` in the PATH of a host reached by ssh, otherwise the file of this program, which namespaces, guests and
    /// clusters with a shared file system can see.
    #[default]
    Usual,
    /// The program at this path.
    At(String),
    /// A copy of the file for the host's processor: of this program, or from a folder that contains files as `make dist`
    /// names them, `crossway-VERSION-TARGET`. Without a folder, they are looked for beside this program.
    Pushed {
        /// The folder that the user named.
        folder: Option<PathBuf>,
    },
}

/// Copies the program to the host, unless it is there already, and returns the path of the copy. `folder` is the one of
/// [`AgentProgram::Pushed`], `own` the file of this program.
///
/// # Errors
/// The host cannot be reached, there is no file for its processor, or no folder for the copy.
pub(crate) fn push(
    host: &HostWords,
    folder: Option<&Path>,
    own: &Path,
    interrupt: Option<BorrowedFd<'_>>,
) -> Result<String, HostError> {
    let told = remote::run(host, &["sh"], PREPARE.as_bytes(), SCRIPT_LIMIT, interrupt)?;
    let no_file = |obstacle| HostError::NoFile { host: host.name.clone(), obstacle };
    let unusable = |why: &str, remedy: &str| no_file(Obstacle::new(why, remedy));
    if told.about("nowhere").next().is_some() {
        return Err(unusable(
            "there is no folder there in which programs may run and that only the user may write to",
            "state one there: XDG_CACHE_HOME=/FOLDER; or copy crossway there and add --agent-program PATH",
        ));
    }
    let (Some(machine), Some(place)) = (told.about("machine").next(), told.about("folder").next())
    else {
        return Err(unusable(
            "sh did not read a script from its standard input",
            "the command prefix in --hosts must pass on standard input",
        ));
    };
    let file = file_for(machine, folder, own).map_err(no_file)?;
    let unread = |e: std::io::Error| {
        unusable(&format!("{} cannot be read: {e}", file.display()), "make it readable")
    };
    let sum = sum(&file).map_err(unread)?;
    let copy = format!("{place}/crossway-{}", &sum[..NAMED_DIGITS]);
    let there = format!("{sum}  - {copy}");
    if told.about("copy").any(|line| line == there) {
        return Ok(copy);
    }
    let part = format!("{place}/part.{:016x}", lease::random_number());
    let to = format!("of={part}");
    let bytes = File::open(&file).map_err(unread)?;
    remote::run(host, &["dd", &to, "bs=65536"], bytes, COPY_LIMIT, interrupt)?;
    let script = format!("PART={part}\nCOPY={copy}\nSUM={sum}\n{ACCEPT}");
    let told = remote::run(
        host,
        &["sh"],
        std::io::Cursor::new(script.into_bytes()),
        SCRIPT_LIMIT,
        interrupt,
    )?;
    if told.about("accepted").next().is_some() {
        return Ok(copy);
    }
    let came = told.about("refused").next().unwrap_or("none");
    Err(unusable(
        &format!("the copy has the SHA-256 {came} instead of {sum}"),
        "check the space on that host's disk, and that the command prefix transfers bytes unchanged",
    ))
}

/// The file for a host of which `uname -m` says `machine`.
fn file_for(machine: &str, folder: Option<&Path>, own: &Path) -> Result<PathBuf, Obstacle> {
    let Some(processor) = Processor::of_machine(machine) else {
        return Err(Obstacle::new(
            format!("its processor, {machine}, is none for which crossway is published"),
            "compile crossway there and add --agent-program PATH",
        ));
    };
    let is_own = Processor::own() == Some(processor);
    if let (None, true) = (folder, is_own) {
        return Ok(own.to_owned());
    }
    let beside = own.parent().unwrap_or(Path::new("/"));
    let is_named = folder.is_some();
    let folder = folder.unwrap_or(beside);
    let name = format!("crossway-{}-{}", env!("CARGO_PKG_VERSION"), processor.target);
    let found =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).find(|path| {
            let file = path.file_name().map(|f| f.to_string_lossy());
            let rest = file.as_deref().and_then(|f| f.strip_prefix(&name));
            // Not the archive beside it.
            rest.is_some_and(|rest| !rest.contains('.')) && path.is_file()
        });
    let Some(found) = found else {
        if is_own {
            return Ok(own.to_owned());
        }
        return Err(Obstacle::new(
            format!(
                "its processor is {}, this file is for {}, and there is no {name}... in {}",
                processor.name,
                std::env::consts::ARCH,
                folder.display()
            ),
            format!(
                "build it (make dist TARGETS={}unknown-linux-gnu), or name its folder: --push=FOLDER",
                processor.target
            ),
        ));
    };
    // A folder that the user named is the user's choice.
    if !is_named {
        trust::check(&found)
            .map_err(|e| Obstacle::new(e.to_string(), "name the folder: --push=FOLDER"))?;
    }
    match processor::of_file(&found) {
        Some(kind) if kind == processor.name => Ok(found),
        kind => Err(Obstacle::new(
            format!(
                "its processor is {}, but {} is {}",
                processor.name,
                found.display(),
                kind.map_or("not a program".to_owned(), |kind| format!("for {kind}"))
            ),
            "replace that file",
        )),
    }
}

/// The SHA-256 of a file in hexadecimal.
fn sum(file: &Path) -> std::io::Result<String> {
    let mut file = File::open(file)?;
    let mut sum = Sha256::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => break,
            count => sum.update(&bytes[..count]),
        }
    }
    Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELF: &[u8; 20] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0";

    fn name(target: &str) -> String {
        format!("crossway-{}-{target}", env!("CARGO_PKG_VERSION"))
    }

    #[test]
    fn a_host_gets_the_file_for_its_processor() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let named = Some(dir.path());
        let file = |machine| file_for(machine, named, &own);
        let (other, target) = match std::env::consts::ARCH {
            "aarch64" => ("x86_64", "x86_64-unknown-linux-gnu"),
            _ => ("aarch64", "aarch64-unknown-linux-gnu"),
        };
        assert_eq!(file_for(std::env::consts::ARCH, None, &own), Ok(own.clone()));
        assert_eq!(file(std::env::consts::ARCH), Ok(own.clone()));

        let Obstacle { why, remedy } = file(other).unwrap_err();
        assert!(why.contains(&format!("this file is for {}", std::env::consts::ARCH)), "{why}");
        assert!(remedy.contains(target), "{remedy}");

        fs::write(dir.path().join(name(&format!("{target}.tar.xz"))), "an archive").unwrap();
        assert!(file(other).is_err());
        let there = dir.path().join(name(target));
        fs::copy(&own, &there).unwrap();
        let why = file(other).unwrap_err().why;
        assert!(why.ends_with(&format!("is for {}", std::env::consts::ARCH)), "{why}");
        fs::write(&there, "#!/bin/sh").unwrap();
        assert!(file(other).unwrap_err().why.ends_with("is not a program"));
        if other == "aarch64" {
            fs::write(&there, ELF).unwrap();
            assert_eq!(file(other), Ok(there));
        }
        assert!(file("s390x").unwrap_err().why.contains("s390x"));
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc");
        fs::write(&file, "abc").unwrap();
        // The example of FIPS 180-2.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum(&file).unwrap(), known);
    }
}
