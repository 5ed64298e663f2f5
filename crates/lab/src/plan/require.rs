//! Parses `require`: the goals that the cases of a group must meet.

use toml::{Table, Value};

use super::PlanError;
use super::at::{At, kind};
use crossway_records::goals::{self, GoalFigure, Goals};
use crossway_records::inputs::Workload;

/// Parses goals for these workloads. A goal that no trial of a workload can decide is rejected here, before anything is
/// measured.
pub(super) fn read(at: &At<'_>, value: &Value, workloads: &[Workload]) -> Result<Goals, PlanError> {
    let table = at.table(value)?;
    at.only(table, &GoalFigure::ALL.map(GoalFigure::key))?;
    let mut goals = Goals::default();
    for figure in GoalFigure::ALL {
        if let Some(value) = table.get(figure.key()) {
            let at = at.key(figure.key());
            let bound = bound(&at, value)?;
            if let Some(without) =
                workloads.iter().find(|workload| figure.figure(workload).is_none())
            {
                return Err(at.bad(goals::without_latencies(without)));
            }
            goals.0.insert(figure, bound);
        }
    }
    if goals.is_empty() {
        let keys = GoalFigure::ALL.map(GoalFigure::key).join(", ");
        return Err(at.bad(format!("the table is empty; allowed: {keys}")));
    }
    Ok(goals)
}

fn bound(at: &At<'_>, value: &Value) -> Result<f64, PlanError> {
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    number
        .filter(|n| *n > 0.0 && n.is_finite())
        .ok_or_else(|| at.bad(format!("expected a number above 0, not {}", kind(value))))
}

/// Writes the goals that this workload can decide as a value for a plan, and omits the others. Records of earlier
/// versions may contain goals that their workload cannot decide.
pub(super) fn written(goals: &Goals, workload: &Workload) -> Value {
    let decided = goals.0.iter().filter(|(figure, _)| figure.figure(workload).is_some());
    let entries = decided.map(|(figure, bound)| (figure.key().to_owned(), Value::Float(*bound)));
    Value::Table(entries.collect::<Table>())
}
