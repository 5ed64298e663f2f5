//! A program's rules for the transports of its channel.

use crate::error::Error;
use crate::profile::Profile;
use crate::transport::Transport;

/// Which transports a channel may use, and how it chooses among them. Only transports that both ends allow by `pin`,
/// `forbid`, `pollable` and `lossy` are used. The other settings have an effect only at the accepting end, which
/// chooses the transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The only transport to use; both ends must allow it. `None` for no such restriction.
    pub pin: Option<Transport>,
    /// The transport to use whenever both ends allow it, even if another one is cheaper; `None` for no preference.
    /// Spinning is still avoided on a single CPU, under load, and beyond the CPU budget.
    pub prefer: Option<Transport>,
    /// Transports that must not be used. A channel may still begin on sockets that are forbidden, but then leaves them
    /// immediately.
    pub forbid: Vec<Transport>,
    /// Whether the receiver must have a descriptor for poll ([`Receiver::poll_fd`](crate::Receiver::poll_fd)). If so,
    /// only transports with such a descriptor are used.
    pub pollable: bool,
    /// Maximum CPU time that an end may spend waiting, as a share of one CPU. Below 1, spinning is only used while
    /// messages are so frequent that the transport is expected to be idle for at most this share of the time.
    pub cpu_budget: f64,
    /// Whether messages between hosts may be lost. If so, they travel by UDP if the other end allows loss, too, and the
    /// hosts are connected by TCP. Each message that arrives does so once and in order. Messages are at most
    /// [`MAX_LOSSY_MESSAGE`](crate::MAX_LOSSY_MESSAGE) bytes long. Within a host, nothing is lost.
    pub lossy: bool,
    /// Whether to log the switches that would be made instead of making them, even those away from a forbidden
    /// transport. Switches that a program asks for are still made.
    pub dry_run: bool,
    /// The cost of messages on each transport, which determines the choice.
    pub profile: Profile,
}

impl Default for Policy {
    /// Allows everything, but loss only if CROSSWAY_CHANNEL_LOSSY is 1. The profile is read from the file in
    /// CROSSWAY_CHANNEL_PROFILE; without that variable, or if the file is not a valid profile, the built-in one is
    /// used.
    fn default() -> Self {
        let profile = std::env::var_os("CROSSWAY_CHANNEL_PROFILE")
            .and_then(|path| Profile::read(path.as_ref()).ok())
            .unwrap_or_default();
        Policy {
            pin: None,
            prefer: None,
            forbid: Vec::new(),
            pollable: false,
            cpu_budget: 1.0,
            lossy: std::env::var_os("CROSSWAY_CHANNEL_LOSSY").is_some_and(|value| value == "1"),
            dry_run: false,
            profile,
        }
    }
}

impl Policy {
    /// Checks that the policy allows at least one transport: within a host or, if `may_be_abroad` is true, between
    /// hosts.
    pub(crate) fn check(&self, may_be_abroad: bool) -> Result<(), Error> {
        let between = may_be_abroad
            && [Transport::Tcp, Transport::Udp, Transport::Tipc]
                .into_iter()
                .any(|t| self.allows(t));
        if self.transports().is_empty() && !between {
            return Err(Error::Policy(
                "the policy allows no transport; check pin, forbid, pollable and lossy (tcp, udp and tipc also need \
                 settings for other hosts)"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns the transports that this end allows within a host.
    pub fn transports(&self) -> Vec<Transport> {
        Transport::LOCAL.into_iter().filter(|t| self.allows(*t)).collect()
    }

    /// Returns the transports that this end allows between hosts that are connected by `transport`: that one and, for
    /// TCP, also UDP.
    pub(crate) fn transports_between(&self, transport: Transport) -> Vec<Transport> {
        let beside = (transport == Transport::Tcp).then_some(Transport::Udp);
        [transport].into_iter().chain(beside).filter(|t| self.allows(*t)).collect()
    }

    fn allows(&self, transport: Transport) -> bool {
        self.pin.is_none_or(|pinned| pinned == transport)
            && !self.forbid.contains(&transport)
            && (!self.pollable || transport.pollable())
            && (self.lossy || transport != Transport::Udp)
    }
}
