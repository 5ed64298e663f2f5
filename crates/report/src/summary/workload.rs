//! The names and the order of workloads.

use crossway_records::inputs::{Workload, messages_per_burst};

use crate::units;

/// Returns the human-readable name of a workload.
pub fn workload_name(workload: Workload, size: u64) -> String {
    match workload {
        Workload::Throughput => "one way".to_owned(),
        Workload::PingPong => "round trip".to_owned(),
        Workload::Exchange => "exchange".to_owned(),
        Workload::Requests { period_ns } => {
            format!("one request every {}", units::exact_duration(period_ns))
        }
        Workload::Pairs { pairs } => units::count(pairs as usize, "pair", "pairs"),
        Workload::FanIn { senders, receiver_us, period_us } => {
            let senders = units::count(senders as usize, "sender", "senders");
            let slow = match receiver_us {
                0 => String::new(),
                us => format!(" that takes {us} µs per message"),
            };
            let each = match period_us {
                0 => String::new(),
                us => {
                    let period = units::exact_duration(u64::from(us) * 1_000);
                    format!(", one message every {period} each")
                }
            };
            format!("{senders} to one receiver{slow}{each}")
        }
        Workload::FanOut { receivers, period_us } => {
            let receivers = units::count(receivers as usize, "receiver", "receivers");
            match period_us {
                0 => format!("one sender to {receivers}"),
                us => format!(
                    "one message to {receivers} every {}",
                    units::exact_duration(u64::from(us) * 1_000)
                ),
            }
        }
        Workload::Clients { clients, in_flight, period_ns } => {
            let clients = units::count(clients as usize, "client", "clients");
            match period_ns {
                0 => {
                    let requests = units::count(in_flight as usize, "request", "requests");
                    format!("{clients} of one server, {requests} in flight each")
                }
                ns => {
                    let period = units::exact_duration(ns);
                    let several = match in_flight {
                        1 => String::new(),
                        most => format!(", at most {most} in flight"),
                    };
                    format!("{clients} of one server, one request every {period} each{several}")
                }
            }
        }
        Workload::Replay { recording, channel, channels, speed_percent, .. } => {
            let what = match channels {
                1 => format!("channel {channel}"),
                several => format!("{several} channels"),
            };
            // The checksum tells recordings apart that have the same channel.
            let replay = format!("replay of {what} of recording {recording:08x}");
            match speed_percent {
                0 => format!("{replay}, as fast as possible"),
                100 => replay,
                percent => format!("{replay} at {} times its speed", f64::from(percent) / 100.0),
            }
        }
        Workload::Paced { burst_bytes, period_us } => {
            let period = units::exact_duration(period_us * 1000);
            // What is sent, not what the plan says: the burst in a record may end with part of a message.
            match messages_per_burst(burst_bytes, size) {
                1 => format!("one message every {period}"),
                messages => format!("{} every {period}", units::size(messages * size)),
            }
        }
    }
}

/// Returns the sort key that orders workloads: by kind, then by parameters.
pub(crate) fn workload_rank(workload: Workload) -> (u8, u64, u64) {
    match workload {
        Workload::PingPong => (0, 0, 0),
        Workload::Throughput => (1, 0, 0),
        Workload::Paced { burst_bytes, period_us } => (2, burst_bytes, u64::MAX - period_us),
        Workload::Exchange => (3, 0, 0),
        Workload::Requests { period_ns } => (7, 0, u64::MAX - period_ns),
        Workload::Pairs { pairs } => (4, pairs.into(), 0),
        Workload::FanIn { senders, receiver_us, period_us: 0 } => {
            (5, senders.into(), receiver_us.into())
        }
        Workload::FanIn { senders, receiver_us, period_us } => {
            (11, u64::from(senders) << 32 | u64::from(receiver_us), period_us.into())
        }
        Workload::FanOut { receivers, period_us } => (6, receivers.into(), period_us.into()),
        Workload::Clients { clients, in_flight, period_ns: 0 } => {
            (9, clients.into(), in_flight.into())
        }
        Workload::Clients { clients, in_flight, period_ns } => {
            (10, u64::from(clients) << 32 | u64::from(in_flight), u64::MAX - period_ns)
        }
        Workload::Replay { recording, channel, speed_percent, .. } => {
            (8, u64::from(recording) << 32 | u64::from(channel), speed_percent.into())
        }
    }
}
