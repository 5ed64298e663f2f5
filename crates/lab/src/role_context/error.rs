//! Why a role cannot go on.

use crossway_mech::{OpenError, RecvError, SendError};

use crate::control::{Answer, ControlError};

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
    /// Somebody broke a rule: the controller, or this role's own program.
    #[error("{0}")]
    Wrong(String),
    /// A contender's program ended, failed or kept silent, of itself or because its peer had.
    #[error("{0}")]
    Program(String),
    /// A contender cannot do what the case asks.
    #[error("{0}")]
    Unsupported(String),
    /// What was wrong has been told to the controller already.
    #[error("told already")]
    Told,
}

impl RoleError {
    /// What the controller is told; `None` where it is gone or knows.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let unsupported = matches!(
            self,
            RoleError::Open(OpenError::Unsupported { .. }) | RoleError::Unsupported(_)
        );
        match self {
            RoleError::Told | RoleError::Control(ControlError::Closed) => None,
            error => Some(Answer::Failed {
                reason: error.to_string(),
                unsupported,
                own_fault: matches!(error, RoleError::Wrong(_)),
            }),
        }
    }
}
