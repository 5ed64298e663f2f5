//! Writes a plan that repeats one record, from the record's inputs.

use crossway_records::sorting::CollectTree;
use serde::Serialize;
use toml::{Table, Value};

use super::replaying::written;
use super::{Plan, PlanError, beside, require, testbeds};
use crate::replay::AS_FAST_AS_POSSIBLE;
use crossway_records::inputs::{Load, Workload};
use crossway_records::record::Record;

impl Plan {
    /// Creates a plan with one case, which has the inputs of this record and the same number of
    /// trials. Hosts are not taken from the record, because their prefixes are commands:
    /// [`Plan::set_hosts`] names them.
    pub fn repeating(record: &Record) -> Result<Plan, PlanError> {
        let inputs = &record.inputs;
        let mut group = Table::new();
        group.insert("mechanisms".into(), record.mechanism.clone().into());
        if let (Workload::Replay { channel, speed_percent, .. }, Some(file)) =
            (inputs.workload, &inputs.recording)
        {
            let speed = match speed_percent {
                AS_FAST_AS_POSSIBLE => "as-fast-as-possible".into(),
                percent => Value::Float(f64::from(percent) / 100.0),
            };
            let file = file.to_string_lossy().into_owned();
            let channels = match &inputs.recorded_channels[..] {
                [] => &[channel],
                several => several,
            };
            let replay =
                [("replay", file.into()), ("channel", written(channels)), ("speed", speed)];
            group.insert("workload".into(), table(replay));
        } else {
            group.insert("workload".into(), value(inputs.workload)?);
            group.insert("size_bytes".into(), number(inputs.size_bytes));
            if let Some(bytes) = inputs.reply_bytes {
                group.insert("reply_bytes".into(), number(bytes));
            }
        }
        group.insert("wait".into(), value(inputs.wait)?);
        group.insert("access".into(), value(inputs.access)?);
        group.insert("placement".into(), value(inputs.placement)?);
        group.insert("load".into(), load_value(inputs.load)?);
        if !inputs.beside.is_empty() {
            group.insert("beside".into(), beside::written(&inputs.beside)?);
        }
        let goals = require::written(&inputs.require, &inputs.workload);
        if goals.as_table().is_some_and(|goals| !goals.is_empty()) {
            group.insert("require".into(), goals);
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
        Plan::parse("rerun", "the record's inputs", &top.to_string())
    }
}

/// A number as TOML; larger ones than TOML has become its largest.
pub fn number(n: u64) -> Value {
    Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

/// A table with these entries.
pub fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect_tree())
}

/// Converts a value of a record to TOML; values have the same form in plans as in records.
pub fn value(value: impl Serialize) -> Result<Value, PlanError> {
    Value::try_from(value).map_err(|error| PlanError::NotToml {
        file: "the record's inputs".to_owned(),
        why: error.to_string(),
    })
}

/// Converts a load to TOML, as plans write it.
///
/// # Errors
/// TOML cannot express a number of workers.
pub fn load_value(load: Load) -> Result<Value, PlanError> {
    if load.is_idle() { Ok("idle".into()) } else { value(load) }
}

#[cfg(test)]
mod tests {
    use crossway_sys::topology::Topology;

    use crate::case;
    use crate::plan::Plan;

    #[test]
    fn every_value_of_every_axis_can_be_repeated() {
        for (count, axis) in [
            (
                13,
                "workload = [\"throughput\", \"ping-pong\", \"exchange\", { paced = { burst_bytes = 640, period_us = 100 } }, \
             { requests = { period_ns = 5000 } }, { pairs = { pairs = 3 } }, { fan-in = { senders = 2 } }, \
             { fan-in = { senders = 2, receiver_us = 7 } }, { fan-in = { senders = 2, period_us = 70 } }, { fan-out = { receivers = 4 } }, \
             { clients = { clients = 3, in_flight = 2 } }, { clients = { clients = 3, period_ns = 5000 } }, \
             { clients = { clients = 3, in_flight = 2, period_ns = 5000 } }]",
            ),
            (3, "wait = [\"block\", \"spin\", { hybrid = { spin_us = 20 } }]"),
            (2, "access = [\"copy\", \"in-place\"]"),
            (
                7,
                "placement = [\"same-core\", \"smt-sibling\", \"shared-cache\", \"other-core\", \"cross-socket\", \"unpinned\", \
             { cpus = { a = 0, b = 1 } }]",
            ),
            (2, "load = [\"idle\", { cpu = 1, memory = 2, io = 3 }]"),
        ] {
            let workload =
                if axis.starts_with("workload") { "" } else { "workload = \"throughput\"\n" };
            let text = format!(
                "[group.g]\nmechanisms = \"shm-futex\"\nsize_bytes = 64\n{workload}{axis}\n"
            );
            let topology = Topology::read().unwrap_or_default();
            let cases = |plan: &Plan| case::expand(plan, &topology, &[]);
            let all = cases(&Plan::parse("test", "test.toml", &text).unwrap());
            assert_eq!(all.len(), count, "{axis}");
            for case in all {
                let mut record =
                    crossway_records::samples::ping_pong(case.mechanism, 64, 0, 1, 1.0);
                record.inputs = case.inputs.clone();
                record.group.clone_from(&case.group);
                assert_eq!(cases(&Plan::repeating(&record).unwrap()), [case]);
            }
        }
    }
}
