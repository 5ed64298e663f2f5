//! What is compared, where, and what the ratio should be.

use std::time::Duration;

use crossway_netlab::{HostKind, HostSpec, Impairment, Link, Topology};
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
    /// Two hosts, no limit, every frame made and checked by its host.
    Unlimited,
    /// One node, one machine.
    Local,
}

/// 100 Mbit/s, counted on Ethernet frames without preamble and checksum.
pub(crate) const RATE_BITS_PER_S: f64 = 100e6;

impl Place {
    pub(crate) const ALL: [Self; 5] =
        [Self::Link100, Self::Unlimited, Self::Local, Self::Loss01, Self::Loss1];

    /// The network it needs.
    pub(crate) fn topology(self) -> Option<Topology> {
        let host = |name: &str| HostSpec {
            name: name.to_owned(),
            kind: HostKind::Namespace,
            cpus: Vec::new(),
        };
        let loss = match self {
            Self::Loss01 => 0.001,
            Self::Loss1 => 0.01,
            Self::Link100 | Self::Unlimited | Self::Local => 0.0,
        };
        let rate = (self != Self::Unlimited).then(|| "100mbit".parse().ok()).flatten();
        let impairment = Impairment { loss, seed: 1, ..Impairment::default() };
        let link = Link { rate, impairment, ..Link::default() };
        let hosts = vec![host("a"), host("b")];
        (self != Self::Local).then_some(Topology { name: None, hosts, link })
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
    pub(crate) ours: Carrier,
    pub(crate) theirs: Carrier,
    pub(crate) by: By,
    /// At least or at most this; `None`: shown for information.
    pub(crate) target: Option<f64>,
}

impl Case {
    /// Rare losses need a longer look.
    pub(crate) fn measured(&self, asked: Duration) -> Duration {
        if matches!(self.place, Place::Loss01 | Place::Loss1) { asked * 4 } else { asked }
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
    Case { name, place, work: Work::Flow, size, ours, theirs, by, target: Some(target) }
}

const fn ping(
    name: &'static str,
    place: Place,
    (ours, theirs): (Carrier, Carrier),
    by: By,
    target: f64,
) -> Case {
    let (work, size) = (Work::Ping, 64);
    Case { name, place, work, size, ours, theirs, by, target: Some(target) }
}

/// Every comparison.
pub(crate) fn all() -> Vec<Case> {
    use By::{Rate, RoundTrip, RoundTrip99, ShareOfRate};
    use Carrier::{Tcp, TcpNodelay, TipcRdm, TipcSeqpacket, TipcStream, Udp};
    use Place::{Link100, Local, Loss01, Loss1, Unlimited};
    let (stream, seqpacket, rdm) = (TipcStream, TipcSeqpacket, TipcRdm);
    vec![
        flow("link100/stream-64k", Link100, 65_536, (stream, Tcp), ShareOfRate, 0.97),
        flow("link100/seqpacket-66000", Link100, 66_000, (seqpacket, Tcp), ShareOfRate, 0.96),
        flow("link100/stream-64", Link100, 64, (stream, Tcp), Rate, 1.0),
        // Full packets of 14 messages take 1,510 octets of the link, 14 datagrams 1,484: on a link that is full to
        // the end 0.98 is all there is.
        flow("link100/rdm-64", Link100, 64, (rdm, Udp), Rate, 1.0),
        flow("unlimited/stream-64k", Unlimited, 65_536, (stream, Tcp), Rate, 0.5),
        flow("unlimited/seqpacket-64k", Unlimited, 65_536, (seqpacket, Tcp), Rate, 0.5),
        flow("unlimited/stream-64", Unlimited, 64, (stream, TcpNodelay), Rate, 2.0),
        flow("unlimited/seqpacket-64", Unlimited, 64, (seqpacket, TcpNodelay), Rate, 2.0),
        // Bundled against one packet for each message.
        flow("unlimited/rdm-64", Unlimited, 64, (rdm, Udp), Rate, 3.0),
        ping("unlimited/round-trip", Unlimited, (seqpacket, TcpNodelay), RoundTrip, 2.0),
        flow("local/seqpacket-64", Local, 64, (seqpacket, TcpNodelay), Rate, 1.0),
        flow("local/rdm-64", Local, 64, (rdm, TcpNodelay), Rate, 1.0),
        ping("local/round-trip", Local, (seqpacket, TcpNodelay), RoundTrip, 2.0),
        flow("loss-0.1%/stream-64k", Loss01, 65_536, (stream, Tcp), Rate, 0.5),
        flow("loss-1%/stream-64k", Loss1, 65_536, (stream, Tcp), Rate, 0.5),
        ping("loss-1%/round-trip-p99", Loss1, (rdm, TcpNodelay), RoundTrip99, 1.0),
    ]
}
