//! Errors that end a role.

use crossway_loops::LoopError;
use crossway_mech::{OpenError, RecvError, SendError};

use crate::control::{Answer, ControlError};

/// The reason why a role ends with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoleError {
    /// The role cannot continue to work with its channels.
    #[error("{0}")]
    Loops(#[from] LoopError),
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
    /// The controller or this role's own program violated the protocol.
    #[error("{0}")]
    Wrong(String),
    /// A contender's program exited, failed or did not answer. The cause may be the program itself or its peer.
    #[error("{0}")]
    Program(String),
    /// A contender does not support what the case requests.
    #[error("{0}")]
    Unsupported(String),
    /// The error has already been reported to the controller.
    #[error("already reported")]
    AlreadyReported,
}

impl RoleError {
    /// The answer that reports the error to the controller; `None` if the controller has gone or has already received
    /// it.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let unsupported = matches!(
            self,
            RoleError::Loops(LoopError::Open(OpenError::Unsupported { .. }))
                | RoleError::Unsupported(_)
        );
        match self {
            RoleError::AlreadyReported | RoleError::Control(ControlError::Closed) => None,
            error => Some(Answer::Failed {
                reason: error.to_string(),
                unsupported,
                own_fault: matches!(
                    error,
                    RoleError::Wrong(_) | RoleError::Loops(LoopError::Wrong(_))
                ),
            }),
        }
    }
}

impl From<SendError> for RoleError {
    fn from(error: SendError) -> Self {
        LoopError::from(error).into()
    }
}

impl From<RecvError> for RoleError {
    fn from(error: RecvError) -> Self {
        LoopError::from(error).into()
    }
}
