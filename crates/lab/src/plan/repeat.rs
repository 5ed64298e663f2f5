//! Writes a plan that repeats one record, from the record's inputs.

use crossway_mech::{Access, Wait};
use toml::{Table, Value};

use super::{Plan, PlanError, beside, require, testbeds};
use crate::inputs::{Load, Placement, Workload};
use crate::record::Record;

impl Plan {
    /// The plan of one case with the inputs of this record and the same number of trials.
    pub fn repeating(record: &Record) -> Result<Plan, PlanError> {
        let inputs = &record.inputs;
        let mut group = Table::new();
        group.insert("mechanisms".into(), record.mechanism.clone().into());
        group.insert("workload".into(), workload_value(inputs.workload));
        group.insert("size_bytes".into(), number(inputs.size_bytes));
        if let Some(bytes) = inputs.reply_bytes {
            group.insert("reply_bytes".into(), number(bytes));
        }
        group.insert("wait".into(), wait(inputs.wait));
        let access = match inputs.access {
            Access::Copy => "copy",
            Access::InPlace => "in-place",
        };
        group.insert("access".into(), access.into());
        group.insert("placement".into(), placement_value(inputs.placement));
        group.insert("load".into(), load_value(inputs.load));
        if !inputs.beside.is_empty() {
            group.insert("beside".into(), beside::written(&inputs.beside));
        }
        if !inputs.require.is_empty() {
            group.insert("require".into(), require::written(&inputs.require));
        }
        if let Some(bytes) = inputs.socket_buffer_bytes {
            group.insert("socket_buffer_bytes".into(), number(bytes));
        }
        if let Some(bytes) = inputs.capacity_bytes {
            group.insert("capacity_bytes".into(), number(bytes));
        }
        if let Some(messages) = inputs.messages {
            let scaled = inputs.study_messages.map(|study| {
                let scale = Value::Float(messages as f64 / study as f64);
                table([("study", number(study)), ("scale", scale)])
            });
            group.insert("messages".into(), scaled.unwrap_or(number(messages)));
        }
        if let Some(ms) = inputs.packet_series_ms {
            group.insert("packet_series_ms".into(), number(u64::from(ms)));
        }
        group.insert("trials".into(), number(u64::from(inputs.trials)));
        group.insert("warmup_ms".into(), number(inputs.warmup_ms));
        group.insert("measure_ms".into(), number(inputs.measure_ms));
        let mut top = Table::new();
        let about = format!("Repeats {} of run {}", record.case, record.run);
        top.insert("about".into(), about.into());
        top.insert("seed".into(), number(inputs.seed));
        if let Some(testbed) = &inputs.testbed_spec {
            group.insert("testbed".into(), testbed.name.clone().into());
            group.insert("ends".into(), inputs.ends.name().into());
            let written = Value::Table(testbeds::written(testbed));
            top.insert("testbed".into(), table([(testbed.name.as_str(), written)]));
        }
        top.insert("group".into(), table([(record.group.as_str(), Value::Table(group))]));
        let mut plan = Plan::parse("rerun", "the record's inputs", &top.to_string())?;
        if let (Some(own), Some(spec)) = (plan.testbeds.first_mut(), &inputs.testbed_spec) {
            own.hosts = spec.hosts.clone();
        }
        Ok(plan)
    }
}

pub(crate) fn number(n: u64) -> Value {
    Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

pub(crate) fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

pub(crate) fn workload_value(workload: Workload) -> Value {
    let count = |name, key, n: u32| table([(name, table([(key, number(u64::from(n)))]))]);
    match workload {
        Workload::Throughput => "throughput".into(),
        Workload::PingPong => "ping-pong".into(),
        Workload::Exchange => "exchange".into(),
        Workload::Paced { burst_bytes, period_us } => {
            let arguments =
                [("burst_bytes", number(burst_bytes)), ("period_us", number(period_us))];
            table([("paced", table(arguments))])
        }
        Workload::Requests { period_ns } => {
            table([("requests", table([("period_ns", number(period_ns))]))])
        }
        Workload::Pairs { pairs } => count("pairs", "pairs", pairs),
        Workload::FanIn { senders, receiver_us: 0 } => count("fan-in", "senders", senders),
        Workload::FanIn { senders, receiver_us } => {
            let arguments = [("senders", senders), ("receiver_us", receiver_us)];
            table([("fan-in", table(arguments.map(|(key, n)| (key, number(u64::from(n))))))])
        }
        Workload::FanOut { receivers } => count("fan-out", "receivers", receivers),
    }
}

pub(super) fn wait(wait: Wait) -> Value {
    match wait {
        Wait::Block => "block".into(),
        Wait::Spin => "spin".into(),
        Wait::Hybrid { spin_us } => {
            table([("hybrid", table([("spin_us", number(u64::from(spin_us)))]))])
        }
    }
}

pub(crate) fn placement_value(placement: Placement) -> Value {
    match placement {
        Placement::SameCore => "same-core".into(),
        Placement::SmtSibling => "smt-sibling".into(),
        Placement::SharedCache => "shared-cache".into(),
        Placement::OtherCore => "other-core".into(),
        Placement::CrossSocket => "cross-socket".into(),
        Placement::Unpinned => "unpinned".into(),
        Placement::Cpus { a, b } => {
            let cpus = [("a", number(u64::from(a))), ("b", number(u64::from(b)))];
            table([("cpus", table(cpus))])
        }
    }
}

pub(crate) fn load_value(load: Load) -> Value {
    if load.is_idle() {
        return "idle".into();
    }
    table([
        ("cpu", number(u64::from(load.cpu))),
        ("memory", number(u64::from(load.memory))),
        ("io", number(u64::from(load.io))),
    ])
}
