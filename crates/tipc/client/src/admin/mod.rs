//! Administration of a `tipcd`: the state that an operator can query and the settings that can be changed.
//!
//! An [`Order`] is sent over the control connection as a JSON request. The [`Outcome`] is returned as JSON in an
//! anonymous file, because a name table may be larger than any message. Only root and the user who runs the tipcd may
//! give orders.

mod frames;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossway_sys::Errno;

pub use crossway_tipc_orders::*;
pub use frames::{Frames, Station, TracedFrame, encode_frame};

use crate::daemon::{ANSWER_LIMIT, Daemon, ENDED, outcome};
use crate::error::Error;
use crate::protocol::control::Request;

/// Maximum time to wait for the answer. The system may take seconds to attach a bearer to a device or to detach it: on a
/// machine whose kernel threads got no CPU time, more than 10 s.
const fn answer_limit(order: &Order) -> Duration {
    match order {
        Order::EnableBearer { .. } | Order::DisableBearer { .. } => Duration::from_secs(60),
        _ => ANSWER_LIMIT,
    }
}

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Connecting to the tipcd failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// The user is not authorised.
    #[error(
        "the tipcd at {path} accepts commands only from root and the user who started it: run this as that user, or with sudo"
    )]
    NotPermitted {
        /// Path of the tipcd's socket.
        path: String,
    },
    /// The tipcd has refused the order, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The tipcd has not answered in time.
    #[error(
        "the tipcd at {path} has not answered for {} s: it is stopped, or still waits for the system to carry out the \
         command; look at its state before you repeat the command", .limit.as_secs()
    )]
    Late {
        /// Path of the tipcd's socket.
        path: String,
        /// How long it had time to answer.
        limit: Duration,
    },
    /// The tipcd's answer is invalid or incomplete.
    #[error(
        "the tipcd at {path} did not answer this command correctly ({why}): check that it still runs, and that it is \
         of the same release as this program"
    )]
    Nonsense {
        /// Path of the tipcd's socket.
        path: String,
        /// What is wrong with the answer.
        why: String,
    },
}

/// A connection for administering a tipcd.
#[derive(Debug)]
pub struct Administration {
    daemon: Arc<Daemon>,
}

impl Administration {
    /// Connects to the tipcd at `path`.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    pub fn at(path: &Path) -> Result<Self, AdminError> {
        Ok(Self { daemon: Daemon::at(path)? })
    }

    /// Path of the tipcd's socket.
    pub fn path(&self) -> &Path {
        self.daemon.path()
    }

    /// Sends an order and waits for its outcome.
    ///
    /// # Errors
    /// [`AdminError`] if the order fails.
    pub fn order(&self, order: &Order) -> Result<Outcome, AdminError> {
        self.carry_out(order).map(|(outcome, _)| outcome)
    }

    /// Starts a trace of all frames on all bearers.
    ///
    /// # Errors
    /// [`AdminError`] if the order fails.
    pub fn trace(&self) -> Result<Frames, AdminError> {
        match self.carry_out(&Order::Trace)? {
            (_, Some(fd)) => Ok(Frames::new(fd)),
            _ => Err(self.nonsense("its answer has no descriptor from which to read frames")),
        }
    }

    /// Queries the whole name table.
    ///
    /// # Errors
    /// [`AdminError`] if the order fails.
    pub fn names(&self) -> Result<Vec<NameView>, AdminError> {
        let mut bindings = Vec::new();
        let mut behind = None;
        loop {
            let Outcome::Names(page) = self.order(&Order::Names { behind })? else {
                return Err(self.nonsense("its answer has no name table"));
            };
            bindings.extend(page.bindings);
            behind = page.next;
            if behind.is_none() {
                return Ok(bindings);
            }
        }
    }

    /// Returns the error for an answer that does not match the order.
    pub fn nonsense(&self, why: impl ToString) -> AdminError {
        AdminError::Nonsense { path: self.path().display().to_string(), why: why.to_string() }
    }

    fn carry_out(&self, order: &Order) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        let json = order.to_json().map_err(|e| self.nonsense(e))?;
        let path = || self.path().display().to_string();
        let limit = answer_limit(order);
        let answer = match self.daemon.exchange(&Request::Administer { order: &json }, limit) {
            Ok(answer) => outcome(answer),
            Err(ENDED) => {
                let path = self.path().to_owned();
                return Err(Error::DaemonGone { path, what: ENDED }.into());
            }
            Err(_) => return Err(AdminError::Late { path: path(), limit }),
        };
        let answer = answer.map_err(|errno| match errno {
            Errno::PERM => AdminError::NotPermitted { path: path() },
            errno => self.nonsense(errno),
        })?;
        let mut fds = answer.fds.into_iter();
        let Some(file) = fds.next() else { return Err(self.nonsense("its answer has no result")) };
        let mut text = Vec::new();
        File::from(file).read_to_end(&mut text).map_err(|e| self.nonsense(e))?;
        match Outcome::from_json(&text).map_err(|e| self.nonsense(e))? {
            Outcome::Refused(why) => Err(AdminError::Refused(why)),
            outcome => Ok((outcome, fds.next())),
        }
    }
}
