//! Facts about the channel and the machine that predict steps in a series.

use crossway_lab::catalogue::{NodeKind, Transport};
use crossway_records::inputs::Ends;
use crossway_records::steps::{Cutting, Facts};

use super::series::{Over, Series};
use crate::run::Run;

/// Size of a page in bytes if the run does not tell it, as runs of earlier versions.
const PAGE_BYTES: u64 = 4096;
/// Size of the header of a TIPC message on a connection, bytes.
const TIPC_HEADER: u32 = 24;
/// Size of the IPv4 and TCP headers without options, bytes.
const TCP_HEADER: u32 = 40;

/// Collects the facts of a series from its records and the machine's fingerprint.
pub(super) fn of(run: &Run, series: &Series<'_>) -> Facts {
    let carrier =
        crossway_records::family::carrier(&run.summary.contenders[series.contender].mechanism);
    let transport = carrier.map(|carrier| carrier.transport);
    // LINX puts a header before each message and cuts it by its own rules.
    let linx = carrier.is_some_and(|carrier| carrier.node == Some(NodeKind::Linx));
    let first = series.places.iter().flat_map(|(_, trials)| trials).next();
    let fact = |name: &str| {
        first
            .and_then(|r| r.facts.get(name))
            .and_then(|v| u64::try_from(*v).ok())
            .filter(|v| *v > 0)
    };
    let mut facts = Facts { message_bytes: series.size_bytes, ..Facts::default() };
    if series.over != Over::Size {
        return facts;
    }
    facts.pipe_bytes = fact("pipe_bytes");
    // A pipe's buffers are pages.
    facts.page_bytes = (transport == Some(Transport::Pipe) && !linx)
        .then(|| run.machine.page_bytes.unwrap_or(PAGE_BYTES));
    facts.cache_bytes = run.machine.data_cache_bytes.clone();
    let link = first
        .filter(|r| r.inputs.ends == Ends::Between)
        .and_then(|r| r.inputs.testbed_spec.as_ref())
        .map(|testbed| testbed.mtu_bytes);
    let mtu = link.or_else(|| fact("mtu_bytes").and_then(|bytes| u32::try_from(bytes).ok()));
    match transport {
        Some(Transport::Tipc) if !linx => {
            if let Some(mtu) = mtu {
                facts.cuttings = vec![Cutting::tipc(mtu, true), Cutting::tipc(mtu, false)];
                facts.packet = Some((mtu, TIPC_HEADER));
            }
        }
        Some(Transport::Udp) => facts.cuttings = mtu.map(Cutting::udp).into_iter().collect(),
        Some(Transport::Tcp) => {
            // A byte stream is cut into full packets regardless of message boundaries.
            facts.packet = mtu.map(|mtu| (mtu, TCP_HEADER));
            facts.recut = true;
        }
        _ => {}
    }
    facts
}
