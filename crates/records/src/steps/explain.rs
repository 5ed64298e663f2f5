//! Predicts steps from facts about a machine, and finds the prediction that explains a step.

use super::Step;

/// How a protocol splits a message that does not fit in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutting {
    /// Largest message that fits in one packet, bytes.
    pub whole: u32,
    /// Bytes of a split message in each packet.
    pub piece: u32,
    /// Size in bytes of the message's own header, which is split along with the message.
    pub head: u32,
}

impl Cutting {
    /// Returns the splitting of UDP over IPv4: fragments end at multiples of 8 bytes (RFC 791), and the UDP header is
    /// split along with the message.
    pub fn udp(mtu: u32) -> Cutting {
        let (ip, udp) = (20, 8);
        let piece = mtu.saturating_sub(ip) / 8 * 8;
        Cutting { whole: mtu.saturating_sub(ip + udp), piece, head: udp }
    }

    /// Returns the splitting of a connection of Linux' TIPC. Its largest packet is the link's MTU minus 40 bytes
    /// reserved for a tunnel header, and minus another 32 if the kernel is built with TIPC encryption. Each fragment
    /// has a header of 40 bytes and contains a part of the message, including the message's own header of 24 bytes
    /// (net/tipc/link.c, net/tipc/msg.c).
    pub fn tipc(mtu: u32, with_encryption: bool) -> Cutting {
        let largest = mtu.saturating_sub(40 + if with_encryption { 32 } else { 0 });
        Cutting { whole: largest.saturating_sub(24), piece: largest.saturating_sub(40), head: 24 }
    }

    /// Number of packets for a message of `size` bytes.
    pub fn packets(&self, size: u64) -> u64 {
        if size <= u64::from(self.whole) || self.piece == 0 {
            return 1;
        }
        (size + u64::from(self.head)).div_ceil(u64::from(self.piece))
    }

    /// Smallest message, in bytes, that needs `packets` packets, which must be at least 2.
    fn first_with(&self, packets: u64) -> u64 {
        let full = (packets - 1) * u64::from(self.piece) + 1;
        full.saturating_sub(u64::from(self.head)).max(u64::from(self.whole) + 1)
    }
}

/// Facts about the machine and the channel; unknown facts are `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The link's MTU and the size of the protocol header in each packet, bytes (24 for a TIPC connection, 40 for TCP
    /// over IPv4 without options, 52 with time stamps).
    pub packet: Option<(u32, u32)>,
    /// How the protocol splits messages: all variants that are possible here.
    pub cuttings: Vec<Cutting>,
    /// Whether the protocol combines messages into full packets, as a byte stream does. If so, no step is expected
    /// where a message needs one more packet.
    pub recut: bool,
    /// Capacity of one of the channel's pipes in bytes (F_GETPIPE_SZ).
    pub pipe_bytes: Option<u64>,
    /// Page size in bytes, for mechanisms that move pages.
    pub page_bytes: Option<u64>,
    /// Data cache sizes in bytes, innermost first.
    pub cache_bytes: Vec<u64>,
    /// Message size in bytes, if x is the size of a socket buffer.
    pub message_bytes: Option<u64>,
    /// Largest message in bytes that is sent unfragmented.
    pub fragment_bytes: Option<u64>,
}

/// Why a step is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A message needs one more packet.
    Packet {
        /// Number of packets that a message needs from the predicted x on.
        packets: u32,
        /// Payload of one packet, bytes.
        payload: u32,
    },
    /// A message is split into one more fragment.
    Fragment {
        /// Number of packets that a message needs from the predicted x on.
        packets: u64,
        /// How the message is split.
        cutting: Cutting,
    },
    /// The socket buffer holds a whole message.
    BufferHoldsMessage,
    /// A message no longer fits into the pipe.
    PipeFull,
    /// A message needs one more page.
    Page {
        /// Number of pages that a message needs from the predicted x on.
        pages: u64,
    },
    /// A message no longer fits into a cache.
    Cache {
        /// Index of the cache; 0 is the innermost.
        index: usize,
    },
    /// A message is split into fragments.
    Fragmented,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Packet { packets, payload } => {
                write!(
                    f,
                    "a message needs {packets} packets once it exceeds {} x {payload} bytes",
                    packets - 1
                )
            }
            Cause::Fragment { packets, cutting } if *packets == 2 => {
                write!(f, "a message of more than {} bytes needs 2 packets", cutting.whole)
            }
            Cause::Fragment { packets, cutting: Cutting { piece, head, .. } } => write!(
                f,
                "a message needs {packets} packets once it exceeds {} x {piece} - {head} (its header) bytes",
                packets - 1
            ),
            Cause::BufferHoldsMessage => {
                f.write_str("the socket buffer holds a whole message (W = L)")
            }
            Cause::PipeFull => {
                f.write_str("a message is larger than the pipe's buffer (F_GETPIPE_SZ)")
            }
            Cause::Page { pages } => write!(f, "a message needs {pages} pages"),
            Cause::Cache { index } => {
                write!(f, "a message is larger than the level-{} data cache", index + 1)
            }
            Cause::Fragmented => {
                f.write_str("a message is too large for one fragment and is split")
            }
        }
    }
}

/// A step that the facts predict.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// x of the first point after the step.
    pub x: f64,
    /// The reason for the step.
    pub cause: Cause,
}

/// Maximum number of predictions of one kind. A series with more steps is a staircase.
const AT_MOST: u64 = 64;

/// Predicts the steps for x above `from` and up to `to` from `facts`, the strongest kind first.
pub fn predict(facts: &Facts, from: f64, to: f64) -> Vec<Prediction> {
    let mut all = Vec::new();
    let mut add = |x: f64, cause: Cause| {
        if x > from && x <= to {
            all.push(Prediction { x, cause });
        }
    };
    if let Some(bytes) = facts.message_bytes {
        add(bytes as f64, Cause::BufferHoldsMessage);
    }
    if let Some(bytes) = facts.fragment_bytes {
        add(bytes as f64 + 1.0, Cause::Fragmented);
    }
    if let Some(bytes) = facts.pipe_bytes {
        add(bytes as f64 + 1.0, Cause::PipeFull);
    }
    for &cutting in facts.cuttings.iter().filter(|c| c.piece > 0 && !facts.recut) {
        let first = (from / f64::from(cutting.piece)).max(1.0) as u64 + 1;
        for packets in first..first + AT_MOST {
            add(cutting.first_with(packets) as f64, Cause::Fragment { packets, cutting });
        }
    }
    if let (Some((mtu, header)), false) = (facts.packet, facts.recut) {
        let payload = mtu.saturating_sub(header);
        if payload > 0 {
            let first = (from / f64::from(payload)).max(0.0) as u64;
            for k in first.max(1)..first.max(1) + AT_MOST {
                let packets = u32::try_from(k + 1).unwrap_or(u32::MAX);
                add((k * u64::from(payload) + 1) as f64, Cause::Packet { packets, payload });
            }
        }
    }
    for (index, &bytes) in facts.cache_bytes.iter().enumerate() {
        add(bytes as f64 + 1.0, Cause::Cache { index });
    }
    if let Some(page) = facts.page_bytes.filter(|p| *p > 0) {
        let first = (from / page as f64).max(0.0) as u64;
        for k in first.max(1)..first.max(1) + AT_MOST {
            add((k * page + 1) as f64, Cause::Page { pages: k + 1 });
        }
    }
    all
}

/// The prediction that lies in the gap of `step`; if there are several, the one of the strongest kind.
pub fn explain<'a>(step: &Step, predictions: &'a [Prediction]) -> Option<&'a Prediction> {
    predictions.iter().find(|p| p.x > step.after_x && p.x <= step.at_x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(after_x: f64, at_x: f64) -> Step {
        Step { after_x, at_x, jump: 0.1, error: 0.01, p: 1e-6 }
    }

    #[test]
    fn the_studies_step_is_explained_by_the_third_packet() {
        let facts = Facts { packet: Some((1500, 24)), page_bytes: Some(4096), ..Facts::default() };
        let predictions = predict(&facts, 2900.0, 3000.0);
        let cause = &explain(&step(2952.0, 2953.0), &predictions).unwrap().cause;
        assert_eq!(*cause, Cause::Packet { packets: 3, payload: 1476 });
        assert_eq!(explain(&step(2953.0, 2954.0), &predictions), None);
        assert_eq!(cause.to_string(), "a message needs 3 packets once it exceeds 2 x 1476 bytes");
    }

    #[test]
    fn a_cut_message_is_counted_with_its_header() {
        // Linux' TIPC with encryption built in, on Ethernet: 1428 bytes per packet.
        let cutting = Cutting::tipc(1500, true);
        assert_eq!((cutting.whole, cutting.piece), (1404, 1388));
        for (size, packets) in
            [(1, 1), (1404, 1), (1405, 2), (2752, 2), (2753, 3), (4140, 3), (4141, 4)]
        {
            assert_eq!(cutting.packets(size), packets, "{size}");
        }
        let udp = Cutting::udp(1500);
        for (size, packets) in [(1472, 1), (1473, 2), (2952, 2), (2953, 3)] {
            assert_eq!(udp.packets(size), packets, "{size}");
        }
        let facts = Facts { cuttings: vec![cutting], ..Facts::default() };
        let all = predict(&facts, 1000.0, 3000.0);
        assert_eq!(all.iter().map(|p| p.x).collect::<Vec<_>>(), [1405.0, 2753.0]);
        assert_eq!(
            all[1].cause.to_string(),
            "a message needs 3 packets once it exceeds 2 x 1388 - 24 (its header) bytes"
        );
        // At large x, predictions are still made for the range of the series.
        let far = predict(&facts, 100_000.0, 103_000.0);
        assert!(far.iter().all(|p| p.x > 100_000.0) && far.len() >= 2, "{far:?}");
    }

    #[test]
    fn a_recut_stream_predicts_no_packet_steps() {
        let facts = Facts { packet: Some((1500, 40)), recut: true, ..Facts::default() };
        assert!(predict(&facts, 0.0, 100_000.0).is_empty());
    }

    #[test]
    fn buffer_pipe_cache_and_page_are_predicted_in_range_only() {
        let facts = Facts {
            message_bytes: Some(4096),
            pipe_bytes: Some(65_536),
            page_bytes: Some(4096),
            cache_bytes: vec![32_768, 1 << 20],
            fragment_bytes: Some(66_000),
            ..Facts::default()
        };
        let all = predict(&facts, 30_000.0, 70_000.0);
        assert!(all.iter().all(|p| p.x > 30_000.0 && p.x <= 70_000.0));
        for cause in [Cause::PipeFull, Cause::Cache { index: 0 }, Cause::Fragmented] {
            assert!(all.iter().any(|p| p.cause == cause), "{cause:?}");
        }
        assert!(!all.iter().any(|p| p.cause == Cause::BufferHoldsMessage));
        // A page boundary coincides with the pipe's capacity; the rarer cause is returned.
        let cause = &explain(&step(65_536.0, 65_600.0), &all).unwrap().cause;
        assert_eq!(*cause, Cause::PipeFull);
    }
}
