//! The comparisons: their networks and the targets of their ratios.

use std::net::IpAddr;
use std::time::Duration;

use crossway_netlab::{Host, HostSpec, Impairment, Link, Offloads, Topology};
use serde::Serialize;

use crate::role::{Carrier, Work};

/// The network in which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Two hosts on 100 Mbit/s.
    Link100,
    /// Like [`Place::Link100`], with one frame in a thousand lost in each direction.
    Loss01,
    /// Like [`Place::Link100`], with one frame in a hundred lost in each direction.
    Loss1,
    /// Like [`Place::Loss01`], but the second host is a guest that uses its kernel's TIPC.
    LossGuest01,
    /// Like [`Place::Loss1`], with the guest of [`Place::LossGuest01`].
    LossGuest1,
    /// Two hosts without a rate limit. Every frame is built and checked by the host's CPU.
    Unlimited,
    /// Like [`Place::Unlimited`], with UDP bearers over IPv4 whose packets fit the device.
    UnlimitedUdp4,
    /// Like [`Place::UnlimitedUdp4`], over IPv6.
    UnlimitedUdp6,
    /// Two hosts whose devices accept runs of packets, with Ethernet bearers.
    Offloads,
    /// Like [`Place::Offloads`], with UDP bearers over IPv4.
    OffloadsUdp4,
    /// Like [`Place::Offloads`], with UDP bearers over IPv6.
    OffloadsUdp6,
    /// One node on one machine, without a network.
    Local,
}

/// 100 Mbit/s, counted in Ethernet frames without preamble and checksum.
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

    /// The fraction of frames lost in each direction.
    const fn loss(self) -> f64 {
        match self {
            Self::Loss01 | Self::LossGuest01 => 0.001,
            Self::Loss1 | Self::LossGuest1 => 0.01,
            _ => 0.0,
        }
    }

    /// The network that must be set up; `None` for one machine.
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

    /// The bearer specification of the node on a host.
    pub(crate) fn bearer(self, host: &Host) -> String {
        match self {
            Self::UnlimitedUdp4 | Self::OffloadsUdp4 => format!("udp:{},mtu=1472", host.ipv4),
            Self::UnlimitedUdp6 | Self::OffloadsUdp6 => {
                format!("udp:{}%{},mtu=1452", host.ipv6, host.interface)
            }
            _ => format!("eth:{}", host.interface),
        }
    }

    /// The address for TCP and UDP on a host.
    pub(crate) fn address(self, host: &Host) -> IpAddr {
        match self {
            Self::UnlimitedUdp6 | Self::OffloadsUdp6 => host.ipv6.into(),
            _ => host.ipv4.into(),
        }
    }
}

/// The figure by which the two carriers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    /// Payload bits per second, as a share of the link's rate. The other carrier, TCP, is only shown for comparison.
    ShareOfRate,
    /// Messages per second, as a ratio to those of the other carrier.
    Rate,
    /// Median round trip, as a ratio to that of the other carrier.
    RoundTrip,
    /// 99th percentile of the round trip, as a ratio to that of the other carrier.
    RoundTrip99,
}

impl By {
    /// Whether a higher figure is better.
    pub(crate) const fn grows(self) -> bool {
        matches!(self, Self::ShareOfRate | Self::Rate)
    }
}

/// A comparison of two carriers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) work: Work,
    pub(crate) size: usize,
    /// Index of the serving host, to which a flow is sent.
    pub(crate) server: usize,
    pub(crate) ours: Carrier,
    pub(crate) theirs: Carrier,
    pub(crate) by: By,
    /// Minimum for the figure if higher is better ([`By::grows`]), otherwise maximum; `None` if it is only shown for
    /// information.
    pub(crate) target: Option<f64>,
}

impl Case {
    /// How long a trial measures: `asked`, or four times as long on a slow or lossy link. Losses are rare, and a slow
    /// link leaves the CPUs mostly idle, so that their busy time takes longer to measure.
    pub(crate) fn measured(&self, asked: Duration) -> Duration {
        let longer = self.place == Place::Link100 || self.place.loss() > 0.0;
        if longer { asked * 4 } else { asked }
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

/// Returns all comparisons.
pub(crate) fn all() -> Vec<Case> {
    use By::{Rate, RoundTrip, RoundTrip99, ShareOfRate};
    use Carrier::{Tcp, TcpNodelay, TipcRdm, TipcSeqpacket, TipcStream, Udp, Uds};
    use Carrier::{TipcSeqpacketLanes, TipcStreamLanes};
    use Place::{Link100, Local, Loss01, Loss1, LossGuest01, LossGuest1};
    use Place::{Offloads, OffloadsUdp4, OffloadsUdp6};
    use Place::{Unlimited, UnlimitedUdp4, UnlimitedUdp6};
    let (stream, seqpacket, rdm) = (TipcStream, TipcSeqpacket, TipcRdm);
    let shown = |name, place, size, carriers, by| Case {
        target: None,
        ..flow(name, place, size, carriers, by, 0.0)
    };
    // A sending kernel repairs a lost tail at its own pace.
    let from_guest =
        |name, place| Case { server: 0, ..shown(name, place, 65_536, (stream, Tcp), Rate) };
    vec![
        flow("link100/stream-64k", Link100, 65_536, (stream, Tcp), ShareOfRate, 0.97),
        flow("link100/seqpacket-66000", Link100, 66_000, (seqpacket, Tcp), ShareOfRate, 0.96),
        flow("link100/stream-64", Link100, 64, (stream, Tcp), Rate, 1.0),
        // Full packets of 14 messages take 1,510 bytes of the link, 14 datagrams 1,484: on a fully used link, 0.98
        // is the maximum.
        flow("link100/rdm-64", Link100, 64, (rdm, Udp), Rate, 0.98),
        flow("unlimited/stream-64k", Unlimited, 65_536, (stream, Tcp), Rate, 0.5),
        flow("unlimited/seqpacket-64k", Unlimited, 65_536, (seqpacket, Tcp), Rate, 0.5),
        flow("unlimited/stream-64", Unlimited, 64, (stream, TcpNodelay), Rate, 2.0),
        flow("unlimited/seqpacket-64", Unlimited, 64, (seqpacket, TcpNodelay), Rate, 2.0),
        // Bundles compared with one packet for each message.
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
        // Connected ends have direct lanes, connectionless ones have not.
        flow("local/stream-64", Local, 64, (stream, TcpNodelay), Rate, 10.0),
        flow("local/seqpacket-64", Local, 64, (seqpacket, TcpNodelay), Rate, 10.0),
        flow("local/stream-64-lanes", Local, 64, (stream, TipcStreamLanes), Rate, 2.0),
        flow("local/seqpacket-64-lanes", Local, 64, (seqpacket, TipcSeqpacketLanes), Rate, 2.0),
        flow("local/rdm-64", Local, 64, (rdm, TcpNodelay), Rate, 1.0),
        shown("local/stream-64k", Local, 65_536, (stream, Uds), Rate),
        shown("local/seqpacket-64k", Local, 65_536, (seqpacket, Uds), Rate),
        ping("local/stream-round-trip", Local, (stream, Uds), RoundTrip, 1.05),
        ping("local/round-trip", Local, (seqpacket, Uds), RoundTrip, 1.05),
        flow("loss-0.1%/stream-64k", Loss01, 65_536, (stream, Tcp), Rate, 0.5),
        flow("loss-1%/stream-64k", Loss1, 65_536, (stream, Tcp), Rate, 0.5),
        ping("loss-1%/round-trip-p99", Loss1, (rdm, TcpNodelay), RoundTrip99, 1.0),
        flow("loss-guest-0.1%/to-kernel-64k", LossGuest01, 65_536, (stream, Tcp), Rate, 0.5),
        from_guest("loss-guest-0.1%/from-kernel-64k", LossGuest01),
        flow("loss-guest-1%/to-kernel-64k", LossGuest1, 65_536, (stream, Tcp), Rate, 0.5),
        from_guest("loss-guest-1%/from-kernel-64k", LossGuest1),
    ]
}
