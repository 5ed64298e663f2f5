//! The charts of total speed and fairness for workloads with many pairs, senders or receivers.

use crossway_records::inputs::Workload;
use crossway_records::stats::Estimate;

use super::{Axis, Chart, ChartKind, Scale, Series, View};
use crate::summary::{Case, Summary};
use crate::units;

/// Describes the roles of which a workload has several, such as `senders to one receiver`, and returns their number;
/// `None` for workloads of two roles.
fn roles(workload: Workload) -> Option<(&'static str, u32)> {
    match workload {
        Workload::Pairs { pairs } => Some(("independent pairs", pairs)),
        Workload::FanIn { senders, receiver_us: 0, period_us: 0 } => {
            Some(("senders to one receiver", senders))
        }
        Workload::FanIn { senders, period_us: 0, .. } => {
            Some(("senders to one slow receiver", senders))
        }
        Workload::FanOut { receivers, period_us: 0 } => {
            Some(("receivers of one sender", receivers))
        }
        Workload::Throughput
        | Workload::PingPong
        | Workload::Paced { .. }
        | Workload::Requests { .. }
        | Workload::Exchange
        | Workload::FanIn { .. }
        | Workload::FanOut { .. }
        | Workload::Clients { .. }
        | Workload::Replay { .. } => None,
    }
}

fn views(
    summary: &Summary,
    axis: Option<&Axis>,
    name: &str,
    factor: f64,
    figure: impl Fn(&Case) -> Option<Estimate>,
) -> Vec<View> {
    let mut views = Vec::new();
    let has = |c: &Case| roles(c.workload).is_some() && figure(c).is_some();
    for setting in super::settings_with(summary, has) {
        for kind in [
            "senders to one receiver",
            "senders to one slow receiver",
            "independent pairs",
            "receivers of one sender",
        ] {
            let of_kind = |c: &Case| has(c) && roles(c.workload).is_some_and(|(k, _)| k == kind);
            for size in summary.sizes(|c| c.setting == setting && of_kind(c)) {
                let mut series: Vec<Series> = Vec::new();
                for case in summary.cases.iter().filter(|c| c.setting == setting && of_kind(c)) {
                    let (Some((_, count)), Some(value)) = (roles(case.workload), figure(case))
                    else {
                        continue;
                    };
                    if case.size_bytes != size {
                        continue;
                    }
                    if series.last().is_none_or(|s| s.contender != Some(case.contender)) {
                        series.push(Series::of_contender(case.contender));
                    }
                    if let Some(line) = series.last_mut() {
                        line.push(f64::from(count), &value, factor, case.degraded);
                    }
                }
                views.push(View {
                    label: format!(
                        "{name}, {kind}, {}, {}",
                        units::size(size),
                        summary.settings[setting].label()
                    ),
                    value_axis: axis.cloned(),
                    size_bytes: Some(size),
                    series,
                    ..View::default()
                });
            }
        }
    }
    views
}

pub(super) fn scaling(summary: &Summary) -> Option<Chart> {
    let messages = Axis::new("Messages per second, total", Scale::Log, "msg/s");
    let views = views(summary, None, "messages", 1.0, |c| c.msgs_per_s);
    (!views.is_empty()).then(|| Chart {
        id: "scaling",
        title: "Several senders, receivers or pairs".to_owned(),
        findings: Vec::new(),
        reading: "Total message rate against the number of roles, which are the senders, receivers or pairs. A level \
                  line means that they share one bottleneck; a falling line means that contention costs throughput. \
                  With more processes than cores, the figure includes the time that they wait for a core."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::new("Roles", Scale::Linear, ""),
        y: messages,
        views,
        initial: 0,
        workloads: &["fan", "pairs"],
    })
}

pub(super) fn fairness(summary: &Summary) -> Option<Chart> {
    let jain = Axis::new("Jain's index", Scale::Linear, "");
    let wait = Axis::new("Longest wait of one role", Scale::Log, "s");
    let mut all =
        views(summary, Some(&jain), "Jain's index", 1.0, |c| c.fairness.as_ref().map(|f| f.jain));
    all.extend(views(summary, Some(&wait), "longest wait", 1e-9, |c| {
        let ns = c.fairness.as_ref()?.longest_wait_ns as f64;
        Some(Estimate { value: ns, low: ns, high: ns, n: c.fairness.as_ref()?.jain.n })
    }));
    let wasted = Axis::new("Futile wake-ups per message", Scale::Linear, "");
    all.extend(views(summary, Some(&wasted), "futile wake-ups", 1.0, |c| {
        c.fairness.as_ref()?.wasted_wakeups_per_msg
    }));
    (!all.is_empty()).then(|| Chart {
        id: "fairness",
        title: "Fairness".to_owned(),
        findings: unfair(summary).into_iter().collect(),
        reading: "Roles are the senders, receivers or pairs that share the work. Jain's index is 1 if all roles had \
                  the same share, and 1/n if one of n roles had everything. The longest wait is the worst of any role \
                  in any trial. A futile wake-up is one after which a sender still found no room; the figure is a \
                  lower bound, since it counts only the sleeps beyond one per message sent."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::new("Roles", Scale::Linear, ""),
        y: jain,
        views: all,
        initial: 0,
        workloads: &["fan", "pairs"],
    })
}

/// Returns a sentence on the least fair of the cases whose shares are clearly unequal, without degraded ones; `None` if
/// there is no such case.
fn unfair(summary: &Summary) -> Option<String> {
    let worst = summary
        .cases
        .iter()
        .filter(|c| !c.degraded)
        .filter_map(|c| Some((c, c.fairness.as_ref()?)))
        .filter(|(_, f)| f.jain.high < 0.95)
        .min_by(|a, b| a.1.jain.value.total_cmp(&b.1.jain.value));
    let (case, fairness) = worst?;
    let (least, most) = fairness
        .shares
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(lo, hi), s| (lo.min(*s), hi.max(*s)));
    Some(format!(
        "Least fair: {} with {} roles at {}, where one role had {} % of the messages and another {} % (Jain's index {}).",
        summary.contenders[case.contender].label(),
        fairness.shares.len(),
        units::size(case.size_bytes),
        units::three_digits(least * 100.0),
        units::three_digits(most * 100.0),
        units::three_digits(fairness.jain.value)
    ))
}
