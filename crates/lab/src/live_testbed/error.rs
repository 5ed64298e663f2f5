//! Reasons why a testbed cannot be used.

use crossway_netlab::NetError;
use crossway_sys::OsError;

use crate::agent::HostError;

/// The reason why a testbed cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TestbedError {
    /// The network, the containers or the guests cannot be created, or a host lacks what a case needs. The fields are
    /// reason and remedy.
    #[error("{0}; {1}")]
    Obstacle(String, String),
    /// A host cannot be used.
    #[error("{0}")]
    Host(#[from] HostError),
}

impl TestbedError {
    /// Splits the error into reason and remedy.
    pub(crate) fn split(&self) -> (String, String) {
        match self {
            TestbedError::Obstacle(why, remedy) => (why.clone(), remedy.clone()),
            TestbedError::Host(error) => {
                let (remedy, whole) = (error.remedy(), error.to_string());
                let why = whole.strip_suffix(&format!("; {remedy}")).unwrap_or(&whole).to_owned();
                (why, remedy)
            }
        }
    }
}

impl From<NetError> for TestbedError {
    fn from(error: NetError) -> Self {
        let text = error.to_string();
        match text.split_once("; ") {
            Some((why, remedy)) => TestbedError::Obstacle(why.to_owned(), remedy.to_owned()),
            None => TestbedError::Obstacle(
                text,
                "find out manually what fails: crossway net up, crossway guest up".to_owned(),
            ),
        }
    }
}

impl TestbedError {
    /// The error if a socket has no possible path, because the directory of the leases cannot be created.
    pub(super) fn no_socket_path(error: &OsError) -> TestbedError {
        TestbedError::Obstacle(
            error.to_string(),
            "make XDG_RUNTIME_DIR or /tmp writable".to_owned(),
        )
    }
}
