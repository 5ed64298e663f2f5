//! What is compared, where, and what the ratio should be.

use std::net::IpAddr;
use std::time::Duration;

use crossway_netlab::{Host, HostSpec, Impairment, Link, Offloads, Topology};
use serde::Serialize;

use crate::role::{Carrier, Work};

/// Where a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Two hosts on 100 Mbit/s.
    Link100,
    /// The same, and each frame is lost with one in a thousand each way.
    Loss01,
    /// One in a hundred.
    Loss1,
    /// As [`Place::Loss01`], and the second host is a guest with a kernel's TIPC.
    LossGuest01,
    /// As [`Place::Loss1`] with that guest.
    LossGuest1,
    /// Two hosts, no limit, every frame made and checked by its host.
    Unlimited,
    /// The same, and the nodes on UDP over IPv4 in packets that fit the device.
    UnlimitedUdp4,
    /// The same over IPv6.
    UnlimitedUdp6,
    /// Devices that take runs of packets whole, the nodes on Ethernet.
    Offloads,
    /// The nodes on UDP over IPv4 there.
    OffloadsUdp4,
    /// The nodes on UDP over IPv6 there.
    OffloadsUdp6,
    /// One node, one machine.
    Local,
}

/// 100 Mbit/s, counted on Ethernet frames without preamble and checksum.
pub(crate) const RATE_BITS_PER_S: f64 = 100e6;

impl Place {
    pub(crate) const ALL: [Self; 12] = [
        Self::Link100,
        Self::Unlimited,
        Self::UnlimitedUdp4,
        Self::UnlimitedUdp6,
        Self::Offloads,
        Self::OffloadsUdp4,
        Self::OffloadsUdp6,
        Self::Local,
        Self::Loss01,
        Self::Loss1,
        Self::LossGuest01,
        Self::LossGuest1,
    ];

    /// Whether the second host runs a kernel of its own.
    pub(crate) const fn has_guest(self) -> bool {
        matches!(self, Self::LossGuest01 | Self::LossGuest1)
    }

    /// The share of frames that is lost each way.
    const fn loss(self) -> f64 {
        match self {
            Self::Loss01 | Self::LossGuest01 => 0.001,
            Self::Loss1 | Self::LossGuest1 => 0.01,
            _ => 0.0,
        }
    }

    /// The network it needs.
    pub(crate) fn topology(self) -> Option<Topology> {
        let loss = self.loss();
        let limited = self == Self::Link100 || loss > 0.0;
        let rate = limited.then(|| "100mbit".parse().ok()).flatten();
        let offloads = match self {
            Self::Offloads | Self::OffloadsUdp4 | Self::OffloadsUdp6 => Offloads::On,
            _ => Offloads::Off,
        };
        let impairment = Impairment { loss, seed: 1, ..Impairment::default() };
        let link = Link { rate, offloads, impairment, ..Link::default() };
        let second = if self.has_guest() { HostSpec::tap("b") } else { HostSpec::namespace("b") };
        let hosts = vec![HostSpec::namespace("a"), second];
        (self != Self::Local).then_some(Topology { name: None, hosts, link })
    }

    /// The bearer of the node on a host.
    pub(crate) fn bearer(self, host: &Host) -> String {
        match self {
            Self::UnlimitedUdp4 | Self::OffloadsUdp4 => format!("udp:{},mtu=1472", host.ipv4),
            Self::UnlimitedUdp6 | Self::OffloadsUdp6 => {
                format!("udp:{}%{},mtu=1452", host.ipv6, host.interface)
            }
            _ => format!("eth:{}", host.interface),
        }
    }

    /// Where TCP and UDP reach a host.
    pub(crate) fn address(self, host: &Host) -> IpAddr {
        match self {
            Self::UnlimitedUdp6 | Self::OffloadsUdp6 => host.ipv6.into(),
            _ => host.ipv4.into(),
        }
    }
}

/// What the figures are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    /// Payload bits over the link's rate, TCP's beside it.
    ShareOfRate,
    /// Messages per second over the other's.
    Rate,
    /// Median round trip over the other's.
    RoundTrip,
    /// The round trip that 99 of 100 stay below, over the other's.
    RoundTrip99,
}

impl By {
    /// Whether more is better.
    pub(crate) const fn grows(self) -> bool {
        matches!(self, Self::ShareOfRate | Self::Rate)
    }
}

/// One comparison.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) work: Work,
    pub(crate) size: usize,
    /// Which of the two hosts serves: the one that a flow goes to.
    pub(crate) server: usize,
    pub(crate) ours: Carrier,
    pub(crate) theirs: Carrier,
    pub(crate) by: By,
    /// At least or at most this; `None`: shown for information.
    pub(crate) target: Option<f64>,
}

impl Case {
    /// Rare losses need a longer look.
    pub(crate) fn measured(&self, asked: Duration) -> Duration {
        if self.place.loss() > 0.0 { asked * 4 } else { asked }
    }
}

const fn flow(
    name: &'static str,
    place: Place,
    size: usize,
    (ours, theirs): (Carrier, Carrier),
    by: By,
    target: f64,
) -> Case {
    Case { name, place, work: Work::Flow, size, server: 1, ours, theirs, by, target: Some(target) }
}

const fn ping(
    name: &'static str,
    place: Place,
    (ours, theirs): (Carrier, Carrier),
    by: By,
    target: f64,
) -> Case {
    let (work, size) = (Work::Ping, 64);
    Case { name, place, work, size, server: 1, ours, theirs, by, target: Some(target) }
}

/// Every comparison.
pub(crate) fn all() -> Vec<Case> {
    use By::{Rate, RoundTrip, RoundTrip99, ShareOfRate};
    use Carrier::{Tcp, TcpNodelay, TipcRdm, TipcSeqpacket, TipcStream, Udp};
    use Place::{Link100, Local, Loss01, Loss1, LossGuest01, LossGuest1};
    use Place::{Offloads, OffloadsUdp4, OffloadsUdp6};
    use Place::{Unlimited, UnlimitedUdp4, UnlimitedUdp6};
    let (stream, seqpacket, rdm) = (TipcStream, TipcSeqpacket, TipcRdm);
    let shown = |name, place, size, carriers, by| Case {
        target: None,
        ..flow(name, place, size, carriers, by, 0.0)
    };
    // A kernel that sends repairs a lost tail at its own pace.
    let from_guest =
        |name, place| Case { server: 0, ..shown(name, place, 65_536, (stream, Tcp), Rate) };
    vec![
        flow("link100/stream-64k", Link100, 65_536, (stream, Tcp), ShareOfRate, 0.97),
        flow("link100/seqpacket-66000", Link100, 66_000, (seqpacket, Tcp), ShareOfRate, 0.96),
        flow("link100/stream-64", Link100, 64, (stream, Tcp), Rate, 1.0),
        // Full packets of 14 messages take 1,510 octets of the link, 14 datagrams 1,484: on a link that is full to
        // the end 0.98 is all there is.
        flow("link100/rdm-64", Link100, 64, (rdm, Udp), Rate, 0.98),
        flow("unlimited/stream-64k", Unlimited, 65_536, (stream, Tcp), Rate, 0.5),
        flow("unlimited/seqpacket-64k", Unlimited, 65_536, (seqpacket, Tcp), Rate, 0.5),
        flow("unlimited/stream-64", Unlimited, 64, (stream, TcpNodelay), Rate, 2.0),
        flow("unlimited/seqpacket-64", Unlimited, 64, (seqpacket, TcpNodelay), Rate, 2.0),
        // Bundled against one packet for each message.
        flow("unlimited/rdm-64", Unlimited, 64, (rdm, Udp), Rate, 3.0),
        ping("unlimited/round-trip", Unlimited, (seqpacket, TcpNodelay), RoundTrip, 2.0),
        flow("unlimited-udp4/stream-64k", UnlimitedUdp4, 65_536, (stream, Tcp), Rate, 0.5),
        flow("unlimited-udp4/seqpacket-64k", UnlimitedUdp4, 65_536, (seqpacket, Tcp), Rate, 0.5),
        flow("unlimited-udp6/stream-64k", UnlimitedUdp6, 65_536, (stream, Tcp), Rate, 0.5),
        flow("unlimited-udp6/seqpacket-64k", UnlimitedUdp6, 65_536, (seqpacket, Tcp), Rate, 0.5),
        // No target: TCP's packets stay whole from end to end there.
        shown("offloads/stream-64k", Offloads, 65_536, (stream, Tcp), Rate),
        shown("offloads-udp4/stream-64k", OffloadsUdp4, 65_536, (stream, Tcp), Rate),
        shown("offloads-udp6/stream-64k", OffloadsUdp6, 65_536, (stream, Tcp), Rate),
        flow("local/seqpacket-64", Local, 64, (seqpacket, TcpNodelay), Rate, 1.0),
        flow("local/rdm-64", Local, 64, (rdm, TcpNodelay), Rate, 1.0),
        ping("local/round-trip", Local, (seqpacket, TcpNodelay), RoundTrip, 2.0),
        flow("loss-0.1%/stream-64k", Loss01, 65_536, (stream, Tcp), Rate, 0.5),
        flow("loss-1%/stream-64k", Loss1, 65_536, (stream, Tcp), Rate, 0.5),
        ping("loss-1%/round-trip-p99", Loss1, (rdm, TcpNodelay), RoundTrip99, 1.0),
        flow("loss-guest-0.1%/to-kernel-64k", LossGuest01, 65_536, (stream, Tcp), Rate, 0.5),
        from_guest("loss-guest-0.1%/from-kernel-64k", LossGuest01),
        flow("loss-guest-1%/to-kernel-64k", LossGuest1, 65_536, (stream, Tcp), Rate, 0.5),
        from_guest("loss-guest-1%/from-kernel-64k", LossGuest1),
    ]
}
