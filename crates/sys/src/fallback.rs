//! Doing without what newer kernels have, where it is there: tests so walk the paths for older kernels on every kernel.
//!
//! Only programs built with debug assertions look at the variable: in a release build it could spoil figures, and nothing
//! would say so.

use std::sync::LazyLock;

/// The environment variable that names what to do without, separated by commas.
pub const VARIABLE: &str = "CROSSWAY_WITHOUT";

/// Something that the kernels of supported distributions do not all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newer {
    /// Pipes take `RWF_NOWAIT`: since Linux 6.4.
    PipeNowait,
}

impl Newer {
    const ALL: [Newer; 1] = [Newer::PipeNowait];

    /// Its name in the variable.
    pub const fn name(self) -> &'static str {
        match self {
            Newer::PipeNowait => "pipe-nowait",
        }
    }
}

/// Whether this process is to do without it.
///
/// # Panics
/// With debug assertions, when the variable holds a name that is none: a test would else walk the wrong path.
pub fn does_without(newer: Newer) -> bool {
    static WITHOUT: LazyLock<Vec<Newer>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        parse(&text).unwrap_or_else(|why| panic!("{VARIABLE}={text}: {why}"))
    });
    cfg!(debug_assertions) && WITHOUT.contains(&newer)
}

fn parse(text: &str) -> Result<Vec<Newer>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| {
            Newer::ALL.into_iter().find(|newer| newer.name() == name).ok_or_else(|| {
                let known = Newer::ALL.map(Newer::name).join(", ");
                format!("nothing is called '{name}'; known: {known}")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_unknown_ones_refused_with_those_that_are_known() {
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse(" pipe-nowait,"), Ok(vec![Newer::PipeNowait]));
        let why = parse("pipe-nowait,pipes").unwrap_err();
        assert!(why.contains("'pipes'") && why.contains("known: pipe-nowait"), "{why}");
    }
}
