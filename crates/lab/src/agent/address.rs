//! Finds the address at which one host reaches another: one host listens, and the other tries all addresses of the
//! listening host.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::host::ABOUT_LIMIT;
use super::{FromAgent, Host, HostError, ToAgent};

/// The address at which `from` can reach `to`, determined by connecting.
pub(crate) fn find_address(
    from: &mut Host,
    to: &mut Host,
    interrupt: Option<BorrowedFd<'_>>,
) -> Result<IpAddr, HostError> {
    let (caller, callee) = (from.name().to_owned(), to.name().to_owned());
    let unreachable = |why: String| HostError::Unreachable { from: caller, to: callee, why };
    to.say(&ToAgent::Listen)?;
    let (port, password) = to.expect(ABOUT_LIMIT, interrupt, |message| match message {
        FromAgent::Listening { port, password } => Some((port, password)),
        _ => None,
    })?;
    let outcome = match port {
        Ok(port) => {
            from.say(&ToAgent::Reach { addresses: to.addresses(), port, password })?;
            from.expect(ABOUT_LIMIT, interrupt, |message| match message {
                FromAgent::Reached { outcome } => Some(outcome),
                _ => None,
            })?
        }
        Err(why) => Err(why),
    };
    to.say(&ToAgent::StopListening)?;
    outcome.map_err(unreachable)
}
