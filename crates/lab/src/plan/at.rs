//! A position in a plan: gives access to the values there, and creates errors that name the position.

use toml::{Table, Value};

use super::PlanError;

/// A position in a plan, for error messages.
#[derive(Clone, Debug)]
pub struct At<'a> {
    file: &'a str,
    key: String,
}

impl<'a> At<'a> {
    /// The top of the plan.
    pub fn top(file: &'a str) -> At<'a> {
        At { file, key: String::new() }
    }

    /// The position of a key of the table at this one.
    pub fn key(&self, key: &str) -> At<'a> {
        let key = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        At { file: self.file, key }
    }

    /// An error at this position.
    pub fn bad(&self, why: impl Into<String>) -> PlanError {
        PlanError::Bad { file: self.file.to_owned(), key: self.key.clone(), why: why.into() }
    }

    /// Rejects keys other than these.
    pub fn only(&self, table: &Table, allowed: &[&str]) -> Result<(), PlanError> {
        match table.keys().find(|key| !allowed.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                Err(self.key(key).bad(format!("unknown key; allowed: {}", allowed.join(", "))))
            }
        }
    }

    /// The value as a table.
    ///
    /// # Errors
    /// It is something else.
    pub fn table<'v>(&self, value: &'v Value) -> Result<&'v Table, PlanError> {
        value.as_table().ok_or_else(|| self.bad(format!("expected a table, not {}", kind(value))))
    }

    /// The value as a string.
    ///
    /// # Errors
    /// It is something else.
    pub fn text<'v>(&self, value: &'v Value) -> Result<&'v str, PlanError> {
        value.as_str().ok_or_else(|| self.bad(format!("expected a string, not {}", kind(value))))
    }

    /// Parses a number within bounds.
    pub fn number(&self, value: &Value, least: u64, most: u64) -> Result<u64, PlanError> {
        let number = value
            .as_integer()
            .ok_or_else(|| self.bad(format!("expected an integer, not {}", kind(value))))?;
        u64::try_from(number)
            .ok()
            .filter(|n| (least..=most).contains(n))
            .ok_or_else(|| self.bad(format!("{number} is not between {least} and {most}")))
    }

    /// Parses a required number of a table.
    pub fn field(
        &self,
        table: &Table,
        name: &str,
        least: u64,
        most: u64,
    ) -> Result<u64, PlanError> {
        let value = table.get(name).ok_or_else(|| self.bad(format!("'{name}' is missing")))?;
        self.key(name).number(value, least, most)
    }

    /// Parses one value or a list of them; a list must not be empty.
    pub fn axis<T>(
        &self,
        value: &Value,
        mut read: impl FnMut(&At<'a>, &Value) -> Result<T, PlanError>,
    ) -> Result<Vec<T>, PlanError> {
        match value {
            Value::Array(values) if values.is_empty() => Err(self.bad("the list is empty")),
            Value::Array(values) => values.iter().map(|v| read(self, v)).collect(),
            one => Ok(vec![read(self, one)?]),
        }
    }
}

pub(super) fn kind(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        other => other.to_string(),
    }
}
