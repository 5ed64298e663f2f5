//! The records as a compact table for the page: columns, a dictionary of strings, and rows of numbers.

use std::collections::HashMap;

use crossway_records::record::{Record, Span};
use serde::Serialize;
use serde_json::{Value, json};

use crate::run::Run;
use crate::summary::{load_name, placement_name, workload_name};
use crossway_records::rank::WaitClass;

/// Maximum number of trials embedded in the page as a row each; with more, the page has one row per case.
pub const TRIALS_MAX: usize = 5000;
/// Maximum number of cases embedded in the page.
pub const CASES_MAX: usize = 20_000;

/// A column of the raw data.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The name of the column, with the unit.
    pub name: &'static str,
    /// Whether the cells are strings, given as indices into the dictionary.
    pub word: bool,
}

/// The table of raw data.
#[derive(Clone, Debug, Serialize)]
pub struct Raw {
    /// The columns of the table.
    pub columns: Vec<Column>,
    /// The dictionary: every string of the table, each once.
    pub words: Vec<String>,
    /// The rows. A cell is a number, an index into the dictionary, or null, depending on its column.
    pub rows: Vec<Vec<Value>>,
    /// A sentence that says what the table contains and what it leaves out.
    #[serde(skip)]
    pub rule: String,
}

#[derive(Default)]
struct Words {
    list: Vec<String>,
    at: HashMap<String, usize>,
}

impl Words {
    fn index(&mut self, text: &str) -> Value {
        if let Some(at) = self.at.get(text) {
            return json!(at);
        }
        let at = self.list.len();
        self.list.push(text.to_owned());
        self.at.insert(text.to_owned(), at);
        json!(at)
    }
}

impl Raw {
    /// Builds the table with one row per trial; with more than [`TRIALS_MAX`] trials, one row per case.
    pub fn of(run: &Run) -> Raw {
        if run.records.len() <= TRIALS_MAX { trials(run) } else { cases(run) }
    }
}

fn number(value: Option<f64>) -> Value {
    // Five digits are more than the precision of any figure here.
    value.map_or(Value::Null, |v| {
        if v.fract() == 0.0 && v.abs() < 1e15 {
            json!(v as i64)
        } else {
            json!(crate::charts::compact(v))
        }
    })
}

fn columns(list: &[(&'static str, bool)]) -> Vec<Column> {
    list.iter().map(|(name, word)| Column { name, word: *word }).collect()
}

fn trials(run: &Run) -> Raw {
    let mut words = Words::default();
    let rows = run
        .records
        .iter()
        .map(|r: &Record| {
            let latency =
                r.latency_ns.iter().find(|l| l.span == Span::RoundTrip).or(r.latency_ns.first());
            // Records of earlier versions repeat the reason among the warnings.
            let others = r.warnings.iter().filter(|warning| r.reason.as_ref() != Some(warning));
            let note = r.reason.iter().chain(others).cloned().collect::<Vec<_>>().join("; ");
            vec![
                words.index(&r.case),
                words.index(&r.mechanism),
                words.index(WaitClass::of(&r.inputs.wait).name()),
                words.index(&workload_name(r.inputs.workload, r.inputs.size_bytes)),
                json!(r.inputs.size_bytes),
                words.index(&placement_name(r.inputs.placement)),
                words.index(&load_name(r.inputs.load)),
                json!(r.inputs.trial),
                words.index(r.status.name()),
                number(r.throughput.map(|t| t.msgs_per_s)),
                number(r.throughput.map(|t| t.bytes_per_s)),
                number(latency.map(|l| l.p50 as f64)),
                number(latency.and_then(|l| l.p99).map(|p| p as f64)),
                number(latency.map(|l| l.max as f64)),
                number(latency.map(|l| l.n as f64)),
                number(r.cost.map(|c| c.cpu_ns_per_msg)),
                if note.is_empty() { Value::Null } else { words.index(&note) },
            ]
        })
        .collect();
    Raw {
        columns: columns(&[
            ("case", true),
            ("mechanism", true),
            ("wait", true),
            ("workload", true),
            ("size_bytes", false),
            ("placement", true),
            ("load", true),
            ("trial", false),
            ("status", true),
            ("msgs_per_s", false),
            ("bytes_per_s", false),
            ("latency_ns_p50", false),
            ("latency_ns_p99", false),
            ("latency_ns_max", false),
            ("latency_n", false),
            ("cpu_ns_per_msg", false),
            ("note", true),
        ]),
        words: words.list,
        rows,
        rule: format!(
            "The table has one row for each trial of the run ({} in all), with figures to five digits. The complete \
             records, one JSON object per line, are in results.jsonl in the run's directory; `crossway rerun {}:CASE` \
             repeats the case of that name.",
            run.records.len(),
            run.dir.display()
        ),
    }
}

fn cases(run: &Run) -> Raw {
    let mut words = Words::default();
    let summary = &run.summary;
    let rows: Vec<Vec<Value>> = summary
        .cases
        .iter()
        .take(CASES_MAX)
        .map(|c| {
            let contender = &summary.contenders[c.contender];
            let latency = c.latency(Span::RoundTrip).or(c.latencies.first());
            let low_high = |e: Option<crossway_records::stats::Estimate>| {
                let interval = e.and_then(|e| e.interval());
                let ends = [interval.map(|i| i.0), interval.map(|i| i.1)];
                [number(e.map(|e| e.value)), number(ends[0]), number(ends[1])]
            };
            let mut row = vec![
                words.index(&c.name),
                words.index(&contender.label()),
                words.index(c.class.name()),
                words.index(&workload_name(c.workload, c.size_bytes)),
                json!(c.size_bytes),
                words.index(&summary.settings[c.setting].label()),
                words.index(if c.degraded { "degraded" } else { "ok" }),
            ];
            row.extend(low_high(c.msgs_per_s));
            row.extend(low_high(latency.map(|l| l.p50)));
            row.push(number(latency.and_then(|l| l.p99).map(|e| e.value)));
            row.extend(low_high(c.cpu_ns_per_msg));
            row
        })
        .collect();
    let interval = if summary.has_intervals() { " and its interval" } else { "" };
    let rule = format!(
        "The run has {} trials. Since that is more than {TRIALS_MAX}, the table has one row per case, with its \
         median{interval}, instead of one per trial. It shows {} of {} cases (at most {CASES_MAX}). All trials are in \
         results.jsonl in the run's directory; `crossway rerun {}:CASE` repeats a case.",
        run.records.len(),
        rows.len(),
        summary.cases.len(),
        run.dir.display()
    );
    Raw {
        columns: columns(&[
            ("case", true),
            ("mechanism", true),
            ("wait", true),
            ("workload", true),
            ("size_bytes", false),
            ("setting", true),
            ("status", true),
            ("msgs_per_s", false),
            ("msgs_per_s_low", false),
            ("msgs_per_s_high", false),
            ("latency_ns_p50", false),
            ("latency_ns_p50_low", false),
            ("latency_ns_p50_high", false),
            ("latency_ns_p99", false),
            ("cpu_ns_per_msg", false),
            ("cpu_ns_per_msg_low", false),
            ("cpu_ns_per_msg_high", false),
        ]),
        words: words.list,
        rows,
        rule,
    }
}
