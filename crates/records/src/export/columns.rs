//! The columns of exported tables: name, type, meaning, and how the value is taken from a record.

use crossway_mech::Access;

use crate::cases;
use crate::record::{HostMeters, IfaceMeters, Latency, Record, RoleMeters, Span};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text.
    Text,
    /// Unsigned 64-bit integer.
    Count,
    /// Signed 64-bit integer.
    Whole,
    /// IEEE double.
    Real,
    /// True or false.
    Flag,
}

/// The value of a field; `None` if it was not measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(Option<String>),
    /// Unsigned 64-bit integer.
    Count(Option<u64>),
    /// Signed 64-bit integer.
    Whole(Option<i64>),
    /// IEEE double.
    Real(Option<f64>),
    /// True or false.
    Flag(Option<bool>),
}

/// A column of an exported table.
pub struct Column {
    /// The column's name; the suffix is the unit.
    pub name: &'static str,
    /// The column's type.
    pub kind: ColumnKind,
    /// The column's meaning.
    pub about: &'static str,
    /// Returns the column's value for a record.
    pub value: fn(&Record) -> Value,
}

macro_rules! columns {
    ($($name:literal $kind:ident $about:literal $value:expr;)*) => {
        &[$(Column {
            name: $name,
            kind: ColumnKind::$kind,
            about: $about,
            value: |r| {
                // Naming the closure's type here saves doing so in each expression below.
                let value: fn(&Record) -> _ = $value;
                Value::$kind(value(r))
            },
        }),*]
    };
}

fn span(r: &Record, of: Span) -> Option<&Latency> {
    r.latency_ns.iter().find(|l| l.span == of)
}

/// The sum of a figure over the roles; `None` if there are no roles.
fn total(r: &Record, of: fn(&RoleMeters) -> u64) -> Option<u64> {
    (!r.roles.is_empty()).then(|| r.roles.iter().map(of).sum())
}

/// The sum of a counter over the roles; `None` if there are no roles, or if a role's machine does not have the counter.
fn counted(r: &Record, of: fn(&RoleMeters) -> Option<u64>) -> Option<u64> {
    (!r.roles.is_empty()).then(|| r.roles.iter().map(of).sum::<Option<u64>>()).flatten()
}

/// The sum of a figure over the hosts; `None` if the meters of the hosts could not be read.
fn hosts(r: &Record, of: fn(&HostMeters) -> u64) -> Option<u64> {
    (!r.host_cpu.is_empty()).then(|| r.host_cpu.iter().map(of).sum())
}

/// The sum of a counter over the interfaces; `None` if there are none, and in records of schema 1, which lack the
/// counter.
fn dropped(r: &Record, of: fn(&IfaceMeters) -> Option<u64>) -> Option<u64> {
    (!r.net.is_empty()).then(|| r.net.iter().map(of).sum::<Option<u64>>()).flatten()
}

/// All columns, in output order.
pub const COLUMNS: &[Column] = columns! {
    "schema" Count "version of the record schema" |r| Some(u64::from(r.schema));
    "run" Text "name of the run: its start in UTC and a suffix" |r| Some(r.run.clone());
    "plan" Text "the plan's name" |r| Some(r.plan.clone());
    "group" Text "the plan's group that the case belongs to" |r| Some(r.group.clone());
    "case" Text "readable id of the case" |r| Some(r.case.clone());
    "mechanism" Text "the mechanism's id" |r| Some(r.mechanism.clone());
    "mechanism_version" Text "version of the kernel, library or program that provides the mechanism"
        |r| r.mechanism_version.clone();
    "host" Text "where the trial ran: local for this machine; on a testbed, the host or 'A to B'"
        |r| Some(r.host.clone());
    "testbed" Text "name of the testbed; null if the trial ran on this machine alone" |r| r.inputs.testbed.clone();
    "testbed_spec" Text "description of the testbed, as JSON; null without a testbed"
        |r| r.inputs.testbed_spec.as_ref().and_then(|spec| serde_json::to_string(spec).ok());
    "ends" Text "whether the ends are on two hosts or on one" |r| Some(r.inputs.ends.name().to_owned());
    "kernels" Text "the hosts' kernels, separated by spaces; null without a testbed"
        |r| (!r.hosts.is_empty()).then(|| r.hosts.iter().map(|h| h.kernel.as_str()).collect::<Vec<_>>().join(" "));
    "status" Text "ok, degraded, failed or skipped" |r| Some(r.status.name().to_owned());
    "reason" Text "why the status is not ok" |r| r.reason.clone();
    "remedy" Text "what to do about the reason; null if there is no remedy" |r| r.remedy.clone();
    "started_unix_ms" Count "start of the trial, milliseconds since 1970 UTC" |r| Some(r.started_unix_ms);
    "workload" Text "the workload" |r| Some(r.inputs.workload.word());
    "size_bytes" Count "message size" |r| Some(r.inputs.size_bytes);
    "reply_bytes" Count "reply size; null if it equals the message size, or if there are no replies" |r| r.inputs.reply_bytes;
    "wait" Text "how the ends waited" |r| Some(cases::wait_name(&r.inputs.wait));
    "access" Text "copy or in-place" |r| Some(match r.inputs.access {
        Access::Copy => "copy",
        Access::InPlace => "in-place",
    }.to_owned());
    "placement" Text "where the roles should run" |r| Some(r.inputs.placement.word());
    "cpus" Text "logical CPU per role, separated by spaces; null when unpinned"
        |r| (!r.inputs.cpus.is_empty()).then(|| {
            r.inputs.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
        });
    "load" Text "background load" |r| Some(cases::load_name(&r.inputs.load));
    "beside" Text "all inputs of the concurrent workloads, as JSON; null if there are none"
        |r| (!r.inputs.beside.is_empty()).then(|| serde_json::to_string(&r.inputs.beside).ok()).flatten();
    "beside_figures" Text "figures of the concurrent workloads, as JSON; null if there are none"
        |r| (!r.beside.is_empty()).then(|| serde_json::to_string(&r.beside).ok()).flatten();
    "socket_buffer_bytes" Count "requested SO_SNDBUF and SO_RCVBUF" |r| r.inputs.socket_buffer_bytes;
    "capacity_bytes" Count "requested capacity of the ring, pipe or queue" |r| r.inputs.capacity_bytes;
    "messages" Count "requested number of messages; null if the trial ends by time" |r| r.inputs.messages;
    "study_messages" Count "number of messages in the study, if the requested number is a fraction of it"
        |r| r.inputs.study_messages;
    "packet_series_ms" Count "requested interval of the packet series" |r| r.inputs.packet_series_ms.map(u64::from);
    "warmup_ms" Count "maximum duration of the warm-up" |r| Some(r.inputs.warmup_ms);
    "measure_ms" Count "measured time if the number of messages is null" |r| Some(r.inputs.measure_ms);
    "require" Text "goals of the case, as JSON; null if there are none"
        |r| (!r.inputs.require.is_empty()).then(|| serde_json::to_string(&r.inputs.require).ok()).flatten();
    "trial" Count "number of this trial within the case, from 0" |r| Some(u64::from(r.inputs.trial));
    "trials" Count "trials of this case in this run" |r| Some(u64::from(r.inputs.trials));
    "order" Count "position of the trial in the run, from 0" |r| Some(u64::from(r.inputs.order));
    "seed" Count "seed of the order of the trials and of the payload" |r| Some(r.inputs.seed);
    "sent_msgs" Count "messages sent" |r| r.counts.map(|c| c.sent);
    "received_msgs" Count "messages received" |r| r.counts.map(|c| c.received);
    "payload_bytes" Count "payload bytes received" |r| r.counts.map(|c| c.bytes);
    "out_of_order_msgs" Count "messages that arrived out of order" |r| r.counts.map(|c| c.out_of_order);
    "corrupt_msgs" Count "messages with wrong content" |r| r.counts.map(|c| c.corrupt);
    "warmup_msgs" Count "messages before the measured window" |r| r.counts.map(|c| c.warmup);
    "sender_wall_ns" Count "time from the first to the last send, by the sender's clock; null unless the hosts have \
                            different clocks"
        |r| r.throughput.and_then(|t| t.sender_wall_ns);
    "wall_ns" Count "time from the first send to the last receipt" |r| r.throughput.map(|t| t.wall_ns);
    "rate_msgs_per_s" Real "messages received per second" |r| r.throughput.map(|t| t.msgs_per_s);
    "rate_bytes_per_s" Real "payload bytes received per second" |r| r.throughput.map(|t| t.bytes_per_s);
    "round_trip_n" Count "number of samples of the round trip" |r| span(r, Span::RoundTrip).map(|l| l.n);
    "round_trip_batch_msgs" Count "round trips per sample" |r| span(r, Span::RoundTrip).map(|l| u64::from(l.batch));
    "round_trip_min_ns" Count "shortest round trip" |r| span(r, Span::RoundTrip).map(|l| l.min);
    "round_trip_mean_ns" Real "mean round trip" |r| span(r, Span::RoundTrip).map(|l| l.mean);
    "round_trip_p50_ns" Count "median round trip" |r| span(r, Span::RoundTrip).map(|l| l.p50);
    "round_trip_p90_ns" Count "90th percentile of the round trip" |r| span(r, Span::RoundTrip).map(|l| l.p90);
    "round_trip_p99_ns" Count "99th percentile of the round trip" |r| span(r, Span::RoundTrip).and_then(|l| l.p99);
    "round_trip_p999_ns" Count "99.9th percentile of the round trip" |r| span(r, Span::RoundTrip).and_then(|l| l.p999);
    "round_trip_p9999_ns" Count "99.99th percentile of the round trip"
        |r| span(r, Span::RoundTrip).and_then(|l| l.p9999);
    "round_trip_max_ns" Count "longest round trip" |r| span(r, Span::RoundTrip).map(|l| l.max);
    "one_way_n" Count "number of samples of the one-way latency, which counts from the intended time"
        |r| span(r, Span::OneWay).map(|l| l.n);
    "one_way_min_ns" Count "shortest one-way latency" |r| span(r, Span::OneWay).map(|l| l.min);
    "one_way_mean_ns" Real "mean one-way latency" |r| span(r, Span::OneWay).map(|l| l.mean);
    "one_way_p50_ns" Count "median one-way latency" |r| span(r, Span::OneWay).map(|l| l.p50);
    "one_way_p90_ns" Count "90th percentile of the one-way latency" |r| span(r, Span::OneWay).map(|l| l.p90);
    "one_way_p99_ns" Count "99th percentile of the one-way latency" |r| span(r, Span::OneWay).and_then(|l| l.p99);
    "one_way_p999_ns" Count "99.9th percentile of the one-way latency" |r| span(r, Span::OneWay).and_then(|l| l.p999);
    "one_way_p9999_ns" Count "99.99th percentile of the one-way latency"
        |r| span(r, Span::OneWay).and_then(|l| l.p9999);
    "one_way_max_ns" Count "longest one-way latency" |r| span(r, Span::OneWay).map(|l| l.max);
    "set_up_p50_ns" Count "time to connect, median" |r| span(r, Span::SetUp).map(|l| l.p50);
    "set_up_p99_ns" Count "time to connect, 99th percentile" |r| span(r, Span::SetUp).and_then(|l| l.p99);
    "exchange_p50_ns" Count "time from request to reply on a new connection, median"
        |r| span(r, Span::Exchange).map(|l| l.p50);
    "exchange_p99_ns" Count "time from request to reply on a new connection, 99th percentile"
        |r| span(r, Span::Exchange).and_then(|l| l.p99);
    "tear_down_p50_ns" Count "time to close, median" |r| span(r, Span::TearDown).map(|l| l.p50);
    "tear_down_p99_ns" Count "time to close, 99th percentile" |r| span(r, Span::TearDown).and_then(|l| l.p99);
    "bursts" Count "bursts in the schedule" |r| r.pacing.map(|p| p.bursts);
    "late_bursts" Count "bursts that began late" |r| r.pacing.map(|p| p.late_bursts);
    "drift_ns" Whole "end of the last burst minus its intended start" |r| r.pacing.map(|p| p.drift_ns);
    "intended_bits_per_s" Real "intended rate" |r| r.pacing.map(|p| p.intended_bits_per_s);
    "reached_bits_per_s" Real "achieved rate" |r| r.pacing.map(|p| p.reached_bits_per_s);
    "lateness_p50_ns" Count "how late the sender itself began a burst, median" |r| r.pacing?.lateness_ns.map(|l| l.p50);
    "lateness_p99_ns" Count "how late the sender itself began a burst, 99th percentile" |r| r.pacing?.lateness_ns?.p99;
    "lateness_max_ns" Count "how late the sender itself began a burst, largest"
        |r| r.pacing?.lateness_ns.map(|l| l.max);
    "roles" Count "roles that took part" |r| Some(r.roles.len() as u64);
    "user_ns" Count "user CPU time of all roles" |r| total(r, |m| m.user_ns);
    "system_ns" Count "system CPU time of all roles" |r| total(r, |m| m.system_ns);
    "switches_voluntary" Count "voluntary context switches of all roles" |r| total(r, |m| m.switches_voluntary);
    "switches_involuntary" Count "involuntary context switches of all roles" |r| total(r, |m| m.switches_involuntary);
    "faults_minor" Count "minor page faults of all roles" |r| total(r, |m| m.faults_minor);
    "faults_major" Count "major page faults of all roles" |r| total(r, |m| m.faults_major);
    "cycles" Count "CPU cycles of all roles" |r| counted(r, |m| m.cycles);
    "instructions" Count "instructions of all roles" |r| counted(r, |m| m.instructions);
    "cache_misses" Count "cache misses of all roles" |r| counted(r, |m| m.cache_misses);
    "host_busy_ns" Count "CPU time of all hosts except idle and I/O wait" |r| hosts(r, |h| h.busy_ns);
    "host_softirq_ns" Count "CPU time in soft interrupts of all hosts" |r| hosts(r, |h| h.softirq_ns);
    "host_irq_ns" Count "CPU time in hard interrupts of all hosts" |r| hosts(r, |h| h.irq_ns);
    "host_steal_ns" Count "steal time of all hosts: CPU time that the hypervisor took away"
        |r| hosts(r, |h| h.steal_ns);
    "host_cpus" Count "CPUs of all hosts" |r| hosts(r, |h| h.cpus.into());
    "sender_host_load" Real "share of the CPUs of the sender's or client's host that was busy, 0 to 1"
        |r| r.host_cpu.first()?.load();
    "receiver_host_load" Real "share of the CPUs of the receiver's or server's host that was busy, 0 to 1"
        |r| r.host_cpu.last()?.load();
    "servers_cpu_ns" Count "CPU time of the servers between the ends, such as a tipcd; null if there are none or their \
                            CPU time is unknown"
        |r| (!r.servers.is_empty()).then(|| r.servers.iter().map(|s| s.cpu_ns).sum::<Option<u64>>()).flatten();
    "cpu_ns_per_msg" Real "CPU time of all roles and servers per message" |r| r.cost.map(|c| c.cpu_ns_per_msg);
    "bits_per_cpu_s" Real "payload bits per CPU-second of all roles and servers" |r| r.cost.map(|c| c.bits_per_cpu_s);
    "host_ns_per_msg" Real "busy CPU time of all hosts per message" |r| r.cost.and_then(|c| c.host_ns_per_msg);
    "interfaces" Text "interfaces that carried the traffic, separated by spaces"
        |r| (!r.net.is_empty()).then(|| {
            r.net.iter().map(|i| format!("{}:{}", i.host, i.name)).collect::<Vec<_>>().join(" ")
        });
    "tx_packets" Count "packets sent on the interfaces that carried the traffic"
        |r| (!r.net.is_empty()).then(|| r.net.iter().map(|i| i.tx_packets).sum());
    "rx_packets" Count "packets received on the interfaces that carried the traffic"
        |r| (!r.net.is_empty()).then(|| r.net.iter().map(|i| i.rx_packets).sum());
    "tx_bytes" Count "bytes sent on the interfaces that carried the traffic"
        |r| (!r.net.is_empty()).then(|| r.net.iter().map(|i| i.tx_bytes).sum());
    "rx_bytes" Count "bytes received on the interfaces that carried the traffic"
        |r| (!r.net.is_empty()).then(|| r.net.iter().map(|i| i.rx_bytes).sum());
    "tx_dropped" Count "outgoing packets dropped by the interfaces that carried the traffic"
        |r| dropped(r, |i| i.tx_dropped);
    "rx_dropped" Count "incoming packets dropped by the interfaces that carried the traffic"
        |r| dropped(r, |i| i.rx_dropped);
    "packets_per_msg" Real "packets in both directions per message, round trip or exchange"
        |r| r.packets.map(|p| p.per_msg);
    "msgs_per_packet" Real "messages per forward packet" |r| r.packets.map(|p| p.msgs_per_packet);
    "reverse_per_forward" Real "packets in the reverse direction per forward packet"
        |r| r.packets.and_then(|p| p.reverse_per_forward);
    "transport_sent" Count "segments or packets sent by the transport protocols"
        |r| (!r.retransmissions.is_empty()).then(|| r.retransmissions.iter().map(|t| t.sent).sum());
    "transport_again" Count "segments or packets that the transport protocols retransmitted"
        |r| (!r.retransmissions.is_empty()).then(|| r.retransmissions.iter().map(|t| t.again).sum());
    "packet_series" Text "packets over time, as JSON"
        |r| (!r.packet_series.is_empty()).then(|| serde_json::to_string(&r.packet_series).ok()).flatten();
    "jain" Real "Jain's fairness index of the roles" |r| r.fairness.as_ref().map(|f| f.jain);
    "longest_wait_ns" Count "longest time that a role waited between two messages"
        |r| r.fairness.as_ref().map(|f| f.longest_wait_ns);
    "sleeps_per_msg" Real "voluntary context switches of the senders per message"
        |r| r.fairness.as_ref()?.sleeps_per_msg;
    "wasted_wakeups_per_msg" Real "wasted wake-ups per message, a lower bound: voluntary context switches of the \
                                   senders beyond one per message"
        |r| r.fairness.as_ref()?.wasted_wakeups_per_msg;
    "clock_read_ns" Real "cost of reading the clock" |r| Some(r.calibration.clock_read_ns);
    "clock_step_ns" Real "smallest step of the clock" |r| Some(r.calibration.clock_step_ns);
    "empty_loop_ns" Real "cost of the empty measuring loop per message" |r| Some(r.calibration.empty_loop_ns);
    "cache_line_before_ns" Real "cache-line round trip before the trial" |r| r.calibration.cache_line_before_ns;
    "cache_line_after_ns" Real "cache-line round trip after the trial" |r| r.calibration.cache_line_after_ns;
    "cores_moved" Flag "whether the cache-line round trips before and after the trial differ so much that the virtual \
                        CPUs were moved to other cores or used by other programs"
        |r| Some(crate::limits::cores_moved(r.calibration.cache_line_before_ns?, r.calibration.cache_line_after_ns?));
    "facts" Text "values read back from the system, as JSON" |r| serde_json::to_string(&r.facts).ok();
    "warnings" Text "warnings about the trial, separated by semicolons"
        |r| (!r.warnings.is_empty()).then(|| r.warnings.join("; "));
};
