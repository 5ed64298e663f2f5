//! Reasons why a testbed cannot be used.

use crossway_netlab::NetError;
use crossway_sys::{Obstacle, OsError};

use crate::agent::HostError;

/// The reason why a testbed cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TestbedError {
    /// The network, the containers or the guests cannot be created.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// A host cannot be used.
    #[error("{0}")]
    Host(#[from] HostError),
}

impl TestbedError {
    /// The error as reason and remedy.
    pub(crate) fn obstacle(&self) -> Obstacle {
        match self {
            TestbedError::Obstacle(obstacle) => obstacle.clone(),
            TestbedError::Host(error) => error.obstacle(),
        }
    }
}

impl From<NetError> for TestbedError {
    fn from(error: NetError) -> Self {
        let usual = "find out manually what fails: crossway net up, crossway guest up";
        Obstacle::said(&error.to_string(), usual).into()
    }
}

impl TestbedError {
    /// The error if a socket has no possible path, because the directory of the leases cannot be created.
    pub(super) fn no_socket_path(error: &OsError) -> TestbedError {
        Obstacle::new(error.to_string(), "make XDG_RUNTIME_DIR or /tmp writable").into()
    }
}
