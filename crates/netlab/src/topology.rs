//! The description of a network: hosts and their links.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{NetError, Rate};

/// Maximum number of hosts in a network, so that their IPv4 addresses fit into one /24.
pub const MAX_HOSTS: usize = 250;

/// Hosts on one shaped network. Two namespaces get a direct link, unless Crossway's own switch impairs the frames; all
/// other hosts are connected by a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// The network's name, which becomes part of its namespaces' names; `None`: a name is generated.
    pub name: Option<String>,
    /// The hosts, in the order of their addresses.
    pub hosts: Vec<HostSpec>,
    /// The properties of every host's link.
    pub link: Link,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// The host's name, such as `a`.
    pub name: String,
    /// Whether the host is a namespace or a place for a guest.
    pub kind: HostKind,
    /// Logical CPUs for the host's processes and soft interrupts; empty: an equal share of those allowed.
    pub cpus: Vec<u32>,
}

/// The implementation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    /// A network namespace of this kernel.
    Namespace,
    /// A tap device on the switch, to be used by a guest kernel.
    Tap,
}

/// The link of a host. Each direction is shaped independently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Rate in each direction. Ethernet frames count with their header (14 bytes), but without preamble and checksum;
    /// `None`: unshaped.
    pub rate: Option<Rate>,
    /// Largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Segmentation and checksum offloads.
    pub offloads: Offloads,
    /// The losses and delays on the link.
    pub impairment: Impairment,
}

/// Whether the interfaces perform segmentation and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offloads {
    /// TSO, GSO, checksums: what veth offers. GRO stays off, see NETLAB.md.
    On,
    /// None: every frame on the wire was created by the sender's stack and checked by the receiver's, as on the boards
    /// of the studies.
    Off,
}

/// The impairments of the frames that a host sends. Shares are fractions from 0 to 1, and each frame is drawn
/// independently.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Impairment {
    /// Share of frames that are dropped.
    pub loss: f64,
    /// Share of frames that are sent twice.
    pub duplicate: f64,
    /// Share of frames that are reordered. With a delay, they are sent immediately while other frames wait; without a
    /// delay, they are held back until after the next frame.
    pub reorder: f64,
    /// Delay of every frame.
    pub delay: Duration,
    /// Maximum deviation from the delay in either direction, uniformly distributed; frames may overtake each other.
    pub jitter: Duration,
    /// Seed of the random draws. Crossway's own impairment is reproducible with it; the kernel's netem before Linux
    /// 6.5 is not.
    pub seed: u64,
}

impl Impairment {
    /// Whether there is no impairment.
    pub fn is_none(&self) -> bool {
        self.loss == 0.0
            && self.duplicate == 0.0
            && self.reorder == 0.0
            && self.delay.is_zero()
            && self.jitter.is_zero()
    }
}

impl Default for Link {
    fn default() -> Self {
        Link {
            rate: None,
            mtu_bytes: 1500,
            offloads: Offloads::Off,
            impairment: Impairment::default(),
        }
    }
}

impl HostSpec {
    /// A namespace host that gets an equal share of the CPUs.
    pub fn namespace(name: &str) -> Self {
        HostSpec { name: name.to_owned(), kind: HostKind::Namespace, cpus: Vec::new() }
    }

    /// A place for a guest.
    pub fn tap(name: &str) -> Self {
        HostSpec { name: name.to_owned(), kind: HostKind::Tap, cpus: Vec::new() }
    }
}

impl Topology {
    /// A topology of namespace hosts with these names.
    pub fn of(hosts: &[&str], link: Link) -> Self {
        let hosts = hosts.iter().map(|name| HostSpec::namespace(name)).collect();
        Topology { name: None, hosts, link }
    }

    /// Whether the network consists of two namespaces. They are joined without a switch, unless Crossway's own switch
    /// impairs the frames.
    pub fn is_direct(&self) -> bool {
        self.hosts.len() == 2 && self.hosts.iter().all(|h| h.kind == HostKind::Namespace)
    }

    /// Rejects invalid topologies before anything is created.
    ///
    /// # Errors
    /// [`NetError::Impossible`], naming the property.
    pub fn check(&self) -> Result<(), NetError> {
        let impossible = |what, given: String, why: &str| {
            Err(NetError::Impossible { what, given, why: why.to_owned() })
        };
        if let Some(name) = &self.name {
            check_name("network name", name, 8)?;
        }
        if self.hosts.is_empty() || self.hosts.len() > MAX_HOSTS {
            let why = format!("a network has 1 to {MAX_HOSTS} hosts");
            return impossible("number of hosts", self.hosts.len().to_string(), &why);
        }
        for (at, host) in self.hosts.iter().enumerate() {
            check_name("host name", &host.name, 12)?;
            if self.hosts[..at].iter().any(|other| other.name == host.name) {
                return impossible(
                    "host name",
                    host.name.clone(),
                    "given twice; names must differ",
                );
            }
        }
        // IPv6 requires 1280 (RFC 8200); 65521 is the maximum of a tap device.
        if !(1280..=65521).contains(&self.link.mtu_bytes) {
            let given = self.link.mtu_bytes.to_string();
            return impossible("MTU", given, "must be from 1280 to 65521 bytes");
        }
        let shares = [
            ("loss", self.link.impairment.loss),
            ("duplicate", self.link.impairment.duplicate),
            ("reorder", self.link.impairment.reorder),
        ];
        for (what, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return impossible(what, share.to_string(), "must be from 0 to 1");
            }
        }
        Ok(())
    }
}

/// Checks a name of at most `most` characters, which becomes part of the names of namespaces, state files and guests.
/// `what` names it in errors.
pub(crate) fn check_name(what: &'static str, name: &str, most: usize) -> Result<(), NetError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fine = name.chars().all(|c| good(c) || c == '-')
        && name.starts_with(good)
        && name.ends_with(good)
        && name.len() <= most;
    if fine {
        return Ok(());
    }
    Err(NetError::Impossible {
        what,
        given: name.to_owned(),
        why: format!(
            "use 1 to {most} of the characters a-z, 0-9 and '-', without '-' at the start or end"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Topology)) -> String {
        let mut topology = Topology::of(&["a", "b"], Link::default());
        change(&mut topology);
        topology.check().unwrap_err().to_string()
    }

    #[test]
    fn invalid_values_are_rejected_by_name() {
        assert!(Topology::of(&["a", "b"], Link::default()).check().is_ok());
        assert!(refusal(|t| t.hosts.clear()).starts_with("number of hosts '0'"));
        assert!(
            refusal(|t| t.hosts[1].name = "a".into()).starts_with("host name 'a': given twice")
        );
        assert!(refusal(|t| t.hosts[1].name = "A/b".into()).starts_with("host name 'A/b'"));
        assert!(refusal(|t| t.name = Some("far-too-long".into())).starts_with("network name"));
        assert!(refusal(|t| t.name = Some("".into())).starts_with("network name ''"));
        assert!(refusal(|t| t.link.mtu_bytes = 1279).starts_with("MTU '1279'"));
        assert!(refusal(|t| t.link.mtu_bytes = 65522).starts_with("MTU '65522'"));
        assert!(refusal(|t| t.link.impairment.loss = f64::NAN).starts_with("loss 'NaN'"));
        assert!(refusal(|t| t.link.impairment.reorder = 1.5).starts_with("reorder '1.5'"));
    }
}
