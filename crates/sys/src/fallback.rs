//! Switches off features of newer kernels on request, so that tests exercise the code paths for older kernels on every
//! kernel.
//!
//! The features to switch off are listed in an environment variable ([`VARIABLE`]). Only programs built with debug
//! assertions read it: in a release build, it could silently distort measurements.

use std::sync::LazyLock;

/// The environment variable that lists the features to do without, separated by commas.
pub const VARIABLE: &str = "CROSSWAY_WITHOUT";

/// A feature that not every kernel of a supported distribution has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newer {
    /// `RWF_NOWAIT` on pipes: since Linux 6.4.
    PipeNowait,
}

impl Newer {
    const ALL: [Newer; 1] = [Newer::PipeNowait];

    /// The feature's name in [`VARIABLE`].
    pub const fn name(self) -> &'static str {
        match self {
            Newer::PipeNowait => "pipe-nowait",
        }
    }
}

/// Whether this process must do without the feature.
///
/// # Panics
/// With debug assertions, if the variable contains an unknown name: otherwise a test would silently exercise the wrong
/// path.
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
                format!("unknown feature '{name}'; known: {known}")
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
