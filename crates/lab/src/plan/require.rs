//! Parses `require`: the goals that the cases of a group must meet.

use toml::{Table, Value};

use super::PlanError;
use super::at::{At, kind};
use crate::goals::{GoalFigure, Goals};

pub(super) fn read(at: &At<'_>, value: &Value) -> Result<Goals, PlanError> {
    let table = at.table(value)?;
    at.only(table, &GoalFigure::ALL.map(GoalFigure::key))?;
    let mut goals = Goals::default();
    for figure in GoalFigure::ALL {
        if let Some(value) = table.get(figure.key()) {
            goals.0.insert(figure, bound(&at.key(figure.key()), value)?);
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

pub(super) fn written(goals: &Goals) -> Value {
    let entries =
        goals.0.iter().map(|(figure, bound)| (figure.key().to_owned(), Value::Float(*bound)));
    Value::Table(entries.collect::<Table>())
}
