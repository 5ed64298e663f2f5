//! Errors that end a role while it works with its channels.

use crossway_mech::{OpenError, RecvError, SendError};

/// Why a role cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// A channel cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A message cannot be sent.
    #[error("sending: {0}")]
    Send(#[from] SendError),
    /// A message cannot be received.
    #[error("receiving: {0}")]
    Recv(#[from] RecvError),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
    /// The controller or this role's own program violated the protocol.
    #[error("{0}")]
    Wrong(String),
}
