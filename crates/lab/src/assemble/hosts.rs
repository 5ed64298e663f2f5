//! Adds the readings of the hosts' meters to a record: CPU time, traffic, packets per message, retransmissions.

use crossway_mech::Caps;

use crate::meters::{HostReading, packets};
use crossway_records::inputs::Workload;
use crossway_records::record::{Record, Transport};

/// Adds the readings of all hosts. The first role is the sender or client; the last role is the receiver or server.
pub(super) fn enter(record: &mut Record, readings: Vec<HostReading>, messages: u64, caps: &Caps) {
    let mut explain = |field: &str, why: String| record.nulls.insert(field.to_owned(), why);
    for reading in readings {
        match reading.cpu {
            Ok(cpu) => record.host_cpu.push(cpu),
            Err(why) => drop(explain("host_cpu", why)),
        }
        match reading.net {
            Ok(net) => record.net.extend(net),
            Err(why) => drop(explain("net", why)),
        }
        match reading.retransmissions {
            Ok(again) => record.retransmissions.extend(again),
            Err(why) => drop(explain("retransmissions", why)),
        }
        match reading.series {
            Ok(series) => record.packet_series.extend(series),
            Err(why) => drop(explain("packet_series", why)),
        }
    }
    if record.retransmissions.is_empty() && Transport::of(&record.mechanism).is_none() {
        explain("retransmissions", Transport::why_none(&record.mechanism));
    }
    let told = match (record.roles.first(), record.roles.last()) {
        _ if !caps.crosses_hosts => Err("the mechanism uses no network interface".to_owned()),
        _ if several(record.inputs.workload) => {
            Err("with several senders or receivers, packets cannot be attributed to one of them"
                .to_owned())
        }
        (Some(first), Some(last)) => packets(&record.net, &first.host, &last.host, messages),
        _ => Err("no role took part".to_owned()),
    };
    match told {
        Ok(told) => record.packets = Some(told),
        Err(why) => drop(record.nulls.insert("packets".to_owned(), why)),
    }
    if record.packets.is_some_and(|p| p.reverse_per_forward.is_none()) {
        let why = "on loopback, one counter covers both directions";
        record.nulls.insert("packets.reverse_per_forward".to_owned(), why.to_owned());
    }
}

/// Whether more than two roles exchange messages.
fn several(workload: Workload) -> bool {
    workload.facts().timed()
}
