//! A private `tipcd` that runs only while it is needed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::error::Error;

/// Maximum time that a tipcd may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A tipcd without bearers that listens at its own socket path. It ends when this value is dropped or this process
/// ends, however that happens.
#[derive(Debug)]
pub struct LoneTipcd {
    child: Child,
    lifeline: Option<ChildStdin>,
    path: PathBuf,
}

/// Why the tipcd could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LoneError {
    /// The program could not be run.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Program that was started.
        program: String,
        /// Why the program could not be started.
        source: std::io::Error,
    },
    /// The tipcd ended, or did not accept connections in time.
    #[error("{program} does not accept connections at {}: {said}", .path.display())]
    Silent {
        /// Program that was started.
        program: String,
        /// Expected path of the tipcd's socket.
        path: PathBuf,
        /// The tipcd's output on standard error, and the error from connecting.
        said: String,
    },
}

impl LoneTipcd {
    /// Starts a tipcd with its socket at `path`. `command` runs a program that accepts tipcd's arguments.
    ///
    /// # Errors
    /// [`LoneError`] if it does not start.
    pub fn start(mut command: Command, path: &Path) -> Result<Self, LoneError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .args(["--quiet", "--until-stdin-ends", "--socket"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|source| LoneError::Start { program: program.clone(), source })?;
        let lifeline = child.stdin.take();
        let mut lone = Self { child, lifeline, path: path.to_owned() };
        let begin = Instant::now();
        loop {
            let error = match Daemon::at(path) {
                Ok(_) => return Ok(lone),
                Err(error) => error,
            };
            let ended = !matches!(lone.child.try_wait(), Ok(None));
            if ended || begin.elapsed() > START_LIMIT || !matches!(error, Error::NoDaemon { .. }) {
                let mut said = String::new();
                if ended && let Some(mut stderr) = lone.child.stderr.take() {
                    let _ = stderr.read_to_string(&mut said);
                }
                let said = match said.trim() {
                    "" => error.to_string(),
                    said => format!("{said} ({error})"),
                };
                return Err(LoneError::Silent { program, path: path.to_owned(), said });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Path of the tipcd's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Process ID of the tipcd.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for LoneTipcd {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}
