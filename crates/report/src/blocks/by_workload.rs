//! Tables of exchanges, and of workloads with several senders or receivers: one per workload and size, with a row per
//! contender.

use crossway_records::inputs::Workload;
use crossway_records::rank::{MOVED, WaitClass};
use crossway_records::record::Span;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::Estimate;

use super::footnotes::{MISSED, TWO_REGIMES, marks_explained, two_regimes, without_cpu_time};
use super::{
    CPU_ROUND_TRIP, DEGRADED, NOISE, duration, leave_out_empty_noise, noise_cell, text_figure,
};
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Case, Summary, workload_name};
use crate::units::{self, Quantity};

/// Head of the column with the fairness of the least fair trial.
pub(crate) const LEAST_FAIR: &str = "Least fair";

/// Returns the tables of exchanges: connect, request, reply, close.
pub(super) fn exchanges(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let heads = ["Set-up p50", "Exchange p50", "Tear-down p50", "Total", "CPU / exchange"];
    let p50 = |case: &Case, span| case.latency(span).map(|l| l.p50);
    const SPANS: [Span; 3] = [Span::SetUp, Span::Exchange, Span::TearDown];
    let whole = move |case: &Case| -> Option<f64> {
        SPANS.iter().map(|span| p50(case, *span).map(|e| e.value)).sum()
    };
    let row = move |case: &Case| {
        let mut cells: Vec<Cell> =
            SPANS.iter().map(|span| Cell::figure(Quantity::Duration, p50(case, *span))).collect();
        cells.push(text_figure(Quantity::Duration, whole(case)));
        cells.push(Cell::figure(Quantity::Duration, case.cpu_ns_per_msg));
        cells
    };
    let order = move |case: &Case| whole(case).unwrap_or(f64::INFINITY);
    let noise = move |case: &Case| [p50(case, Span::Exchange), None];
    by_workload(summary, setting, |c| c.workload == Workload::Exchange, &heads, row, noise, order)
}

/// Returns the tables of workloads with several senders or receivers: pairs, fan-in, fan-out.
pub(super) fn shared(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let heads = ["Throughput", "Messages", "Fairness", LEAST_FAIR, "Longest wait", "CPU / message"];
    let is_shared = |case: &Case| {
        let facts = case.workload.facts();
        facts.timed() && !facts.has_replies
    };
    let row = |case: &Case| {
        let fairness = case.fairness.as_ref();
        vec![
            Cell::figure(Quantity::ByteRate, case.bytes_per_s),
            Cell::figure(Quantity::MessageRate, case.msgs_per_s),
            Cell::figure(Quantity::Number, fairness.map(|f| f.jain)),
            text_figure(Quantity::Number, fairness.map(|f| f.least_jain)),
            fairness.map_or(Cell::text("–"), |f| duration(f.longest_wait_ns)),
            Cell::figure(Quantity::Duration, case.cpu_ns_per_msg),
        ]
    };
    let order = |case: &Case| case.bytes_per_s.map_or(f64::INFINITY, |rate| -rate.value);
    let noise = |case: &Case| [None, case.bytes_per_s];
    let mut sheets = by_workload(summary, setting, is_shared, &heads, row, noise, order);
    for sheet in &mut sheets {
        sheet.notes.push(
            "Fairness is Jain's index: 1 if all ends had the same share. It is the median of the trials; “least fair” \
             is the trial with the smallest index, and the longest wait is that of any end in any trial."
                .to_owned(),
        );
    }
    sheets
}

/// Returns the tables of clients of one server: one per number of clients and of requests in flight, and size.
pub(super) fn clients(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let heads = ["p50", "p99", "max", "Requests", CPU_ROUND_TRIP];
    let row = |case: &Case| {
        let latency = case.latency(Span::RoundTrip);
        vec![
            Cell::figure(Quantity::Duration, latency.map(|l| l.p50)),
            Cell::figure(Quantity::Duration, latency.and_then(|l| l.p99)),
            latency.map_or(Cell::text("–"), |l| duration(l.max)),
            Cell::figure(Quantity::MessageRate, case.msgs_per_s),
            Cell::figure(Quantity::Duration, case.cpu_ns_per_msg),
        ]
    };
    let p50 = |case: &Case| case.latency(Span::RoundTrip).map(|l| l.p50);
    let order = move |case: &Case| p50(case).map_or(f64::INFINITY, |p50| p50.value);
    let noise = move |case: &Case| [p50(case), None];
    let are_clients = |case: &Case| matches!(case.workload, Workload::Clients { period_ns: 0, .. });
    let mut sheets = by_workload(summary, setting, are_clients, &heads, row, noise, order);
    for sheet in &mut sheets {
        sheet.notes.push(
            "The time from each request to its reply, of all clients together; it contains the wait behind other requests."
                .to_owned(),
        );
    }
    sheets
}

/// Returns the tables of replayed recordings: one per channel.
pub(super) fn replays(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let heads = ["Exchange or latency p50", "p90", "max", "Exchanges or messages", "CPU / each"];
    let latency = |case: &Case| {
        case.workload.facts().measure.span().and_then(|span| case.latency(span).cloned())
    };
    let row = move |case: &Case| {
        let latency = latency(case);
        vec![
            Cell::figure(Quantity::Duration, latency.as_ref().map(|l| l.p50)),
            Cell::figure(Quantity::Duration, latency.as_ref().map(|l| l.p90)),
            latency.map_or(Cell::text("–"), |l| duration(l.max)),
            Cell::figure(Quantity::MessageRate, case.msgs_per_s),
            Cell::figure(Quantity::Duration, case.cpu_ns_per_msg),
        ]
    };
    let is_replay = |case: &Case| matches!(case.workload, Workload::Replay { .. });
    let order = move |case: &Case| match latency(case) {
        Some(latency) => latency.p50.value,
        None => case.msgs_per_s.map_or(f64::INFINITY, |rate| -rate.value),
    };
    let noise = move |case: &Case| [latency(case).map(|l| l.p50), None];
    let mut sheets = by_workload(summary, setting, is_replay, &heads, row, noise, order);
    for sheet in &mut sheets {
        sheet.notes.push(
            "An exchange lasts from the first message of the end that sends first to the last answer, and includes \
             what the other program does meanwhile. CPU time is that of sending, receiving and waiting, without what \
             the programs compute. The size is that of the largest message."
                .to_owned(),
        );
    }
    sheets
}

/// Makes one table per workload and size of the selected cases, with a row per contender.
pub(super) fn by_workload(
    summary: &Summary,
    setting: usize,
    wanted: impl Fn(&Case) -> bool,
    heads: &[&str],
    row: impl Fn(&Case) -> Vec<Cell>,
    noise: impl Fn(&Case) -> [Option<Estimate>; 2],
    order: impl Fn(&Case) -> f64,
) -> Vec<Sheet> {
    let cases: Vec<&Case> =
        summary.cases.iter().filter(|c| c.setting == setting && wanted(c)).collect();
    let mut tables: Vec<(Workload, u64)> = Vec::new();
    for case in &cases {
        if !tables.contains(&(case.workload, case.size_bytes)) {
            tables.push((case.workload, case.size_bytes));
        }
    }
    let sheet = |(workload, size): (Workload, u64)| {
        let name = workload_name(workload, size);
        let shown = || {
            let cases = cases.iter().copied();
            cases.filter(|c| c.workload == workload && c.size_bytes == size)
        };
        let mut rows: Vec<((WaitClass, f64), Row)> = shown()
            .map(|case| {
                let contender = &summary.contenders[case.contender];
                let label = Cell::text(contender.label());
                let mut cells: Vec<Cell> = std::iter::once(label).chain(row(case)).collect();
                if case.degraded {
                    // Trials that do not represent the case give no interval for it.
                    for cell in cells.iter_mut().filter(|cell| cell.trials.is_some()) {
                        (cell.trials, cell.note) = (None, None);
                    }
                }
                cells.push(noise_cell(if case.degraded { [None; 2] } else { noise(case) }));
                let missed = case.pacing.as_ref().is_some_and(|p| p.missed_trials > 0);
                let words = [
                    (DEGRADED, case.degraded),
                    (MISSED, missed && !case.degraded),
                    (MOVED, case.cores_moved && !case.degraded),
                    (TWO_REGIMES, case.regimes.is_some()),
                ];
                let row = super::row(case.class, cells, case.degraded, &words);
                ((case.class, order(case)), row)
            })
            .collect();
        let place = |class: WaitClass| WaitClass::ALL.iter().position(|c| *c == class);
        rows.sort_small_by(|(a, _), (b, _)| place(a.0).cmp(&place(b.0)).then(a.1.total_cmp(&b.1)));
        let mut rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
        let heads = ["Mechanism"].iter().chain(heads).chain(&[NOISE]);
        let mut heads: Vec<String> = heads.map(|head| (*head).to_owned()).collect();
        leave_out_empty_noise(&mut heads, &mut rows);
        let mut notes = marks_explained(&heads, &mut rows);
        notes.extend(two_regimes(summary, shown()));
        notes.extend(without_cpu_time(summary, shown()));
        Sheet {
            title: format!("{} messages, {name}", units::size(size)),
            notes,
            heads,
            rows,
            sortable: true,
        }
    };
    tables.into_iter().map(sheet).collect()
}
