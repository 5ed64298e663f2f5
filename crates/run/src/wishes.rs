//! What the user asks for besides moving connections (`crossway run --only`, `--cpu-budget`), as the environment tells it to
//! programs.

use std::str::FromStr;
use std::time::Duration;

/// Names the families of connections, separated by commas; all if it is not set.
pub const ONLY_VARIABLE: &str = "CROSSWAY_RUN_ONLY";
/// Contains the CPU budget in percent of one CPU, for example `20%`; [`Budget::DEFAULT`] if it is not set.
pub const BUDGET_VARIABLE: &str = "CROSSWAY_RUN_CPU_BUDGET";

/// A family of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// TCP: connections within this host are moved.
    Tcp,
    /// UNIX sockets: they stay what they are, but the CPU budget holds for them, too.
    Unix,
}

impl Family {
    /// The families with their names.
    pub const ALL: [(Family, &str); 2] = [(Family::Tcp, "tcp"), (Family::Unix, "unix")];
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(family, _)| family).ok_or_else(
            || format!("'{text}' is not a family of connections; there are tcp and unix"),
        )
    }
}

/// Whether the environment asks for connections of this family. A value that is not understood asks for all.
pub fn wants(family: Family) -> bool {
    let only = std::env::var(ONLY_VARIABLE).unwrap_or_default();
    let families: Result<Vec<Family>, _> = only.split(',').map(Family::from_str).collect();
    families.map_or(true, |families| families.contains(&family))
}

/// How long a call that waits for a connection looks at it, at most, before it sleeps. Also KVM's limit for a processor that
/// halts: whoever waits longer loses less by being woken than the wait costs.
pub const LONGEST_LOOK: Duration = Duration::from_micros(200);

/// How much CPU time a process may spend on waiting, as a share of the time that passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    permille: u32,
}

impl Budget {
    /// No CPU time: a process that waits sleeps.
    pub const NONE: Budget = Budget { permille: 0 };
    /// If nothing is said: little enough not to be noticed, and enough for most answers of a program that does not only wait.
    pub const DEFAULT: Budget = Budget { permille: 200 };

    /// The one that the environment grants. A value that is not understood grants none.
    pub fn of_environment() -> Self {
        std::env::var(BUDGET_VARIABLE)
            .map_or(Self::DEFAULT, |text| text.parse().unwrap_or(Self::NONE))
    }

    /// Thousandth parts of one CPU.
    pub fn permille(self) -> u32 {
        self.permille
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", f64::from(self.permille) / 10.0)
    }
}

impl FromStr for Budget {
    type Err = String;

    /// Reads a percentage of one CPU, with or without the sign: 0 for none, or from 0.1 % to 100 %.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        match number.parse::<f64>() {
            Ok(percent) if percent == 0.0 || (0.1..=100.0).contains(&percent) => {
                Ok(Self { permille: (percent * 10.0).round() as u32 })
            }
            _ => Err("write a percentage of one CPU up to 100%, e.g. 20%, or 0".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_percentage_of_one_cpu() {
        for (text, permille) in
            [("20%", 200), ("20", 200), ("0.1 %", 1), ("100%", 1000), ("0", 0), ("0%", 0)]
        {
            assert_eq!(text.parse(), Ok(Budget { permille }), "{text}");
        }
        for text in ["", "%", "0.01%", "-1%", "100.1%", "1e9", "NaN", "inf", "much"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
        assert_eq!(Budget { permille: 25 }.to_string(), "2.5%");
    }

    #[test]
    fn families_have_names() {
        for (family, name) in Family::ALL {
            assert_eq!(name.parse(), Ok(family));
        }
        assert!("udp".parse::<Family>().is_err());
    }
}
