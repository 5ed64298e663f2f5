//! Why a role cannot go on.

use crossway_mech::{OpenError, RecvError, SendError};

use crate::control::ControlError;

/// Why a role gives up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoleError {
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("sending: {0}")]
    Send(#[from] SendError),
    #[error("receiving: {0}")]
    Recv(#[from] RecvError),
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
    #[error("{0}")]
    Wrong(String),
    /// A contender cannot do what the case asks.
    #[error("{0}")]
    Unsupported(String),
}
