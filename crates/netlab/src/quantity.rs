//! Parses and formats rates, shares and durations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::NetError;

/// A link's rate. Written as for `tc`: `100mbit`, `1gbit`, `64kbit`, `2.5gbit`; units are powers of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    /// Bits per second.
    pub bits_per_s: u64,
}

/// Minimum rate in bits per second. At a lower rate, a frame can take longer than a second; no link of the studies is
/// that slow.
const SLOWEST: u64 = 16_000;
/// Maximum rate in bits per second. Above it, the shaper's burst (1 ms) exceeds what `tc` accepts.
const FASTEST: u64 = 400_000_000_000;

impl FromStr for Rate {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let impossible = |why: &str| NetError::Impossible {
            what: "rate",
            given: text.to_owned(),
            why: why.to_owned(),
        };
        let lower = text.trim().to_ascii_lowercase();
        let split = lower.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(lower.len());
        let (number, unit) = lower.split_at(split);
        let unit = match unit {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => {
                return Err(impossible(
                    "write a number with the unit bit, kbit, mbit or gbit, such as 100mbit",
                ));
            }
        };
        let number: f64 = number.parse().map_err(|_| {
            impossible("write a number with the unit bit, kbit, mbit or gbit, such as 100mbit")
        })?;
        let bits = number * unit;
        if !(bits >= SLOWEST as f64 && bits <= FASTEST as f64) {
            return Err(impossible("must be from 16kbit to 400gbit"));
        }
        Ok(Rate { bits_per_s: bits.round() as u64 })
    }
}

impl TryFrom<String> for Rate {
    type Error = NetError;

    fn try_from(text: String) -> Result<Self, NetError> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        rate.to_string()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.bits_per_s;
        for (unit, size) in [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)] {
            if b >= size && b.is_multiple_of(size) {
                return write!(f, "{}{unit}", b / size);
            }
        }
        write!(f, "{b}bit")
    }
}

/// Parses a share of all frames with its unit: `1%`, `0.5%`. A bare number is rejected, since 1 could mean 1 % or all
/// frames.
///
/// # Errors
/// The text is not a percentage, or outside 0 to 100.
pub fn parse_share(what: &'static str, text: &str) -> Result<f64, NetError> {
    let percent =
        text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share = percent.map(|percent| percent * 0.01).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| NetError::Impossible {
        what,
        given: text.to_owned(),
        why:
            "write a percentage of all frames from 0% to 100%, with the percent sign, such as 0.5%"
                .to_owned(),
    })
}

/// Parses a duration: `250us`, `1ms`, `1.5s`; at most 60 s.
///
/// # Errors
/// The text is not a duration, or it is too long.
pub fn parse_duration(what: &'static str, text: &str) -> Result<Duration, NetError> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let scale = match unit {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    };
    scale
        .zip(number.trim().parse::<f64>().ok())
        .map(|(scale, number)| scale * number)
        .filter(|seconds| (0.0..=60.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| NetError::Impossible {
            what,
            given: text.to_owned(),
            why: "write a duration of at most 60 s with its unit, such as 250us, 1ms or 1.5s"
                .to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_and_print_as_tc_writes_them() {
        for (text, bits, printed) in [
            ("100mbit", 100_000_000, "100mbit"),
            ("1Gbit", 1_000_000_000, "1gbit"),
            ("2.5gbit", 2_500_000_000, "2500mbit"),
            ("16kbit", 16_000, "16kbit"),
            ("16001bit", 16_001, "16001bit"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.bits_per_s, rate.to_string().as_str()), (bits, printed));
        }
        for text in
            ["", "0mbit", "15999bit", "401gbit", "100", "100mb", "-1mbit", "nanmbit", "1e99gbit"]
        {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("rate '{text}': ")), "{error}");
        }
    }

    #[test]
    fn shares_and_durations_keep_their_range() {
        assert_eq!(parse_share("loss", "1%").unwrap(), 0.01);
        assert_eq!(parse_share("loss", "100%").unwrap(), 1.0);
        assert_eq!(parse_duration("delay", "250us").unwrap(), Duration::from_micros(250));
        for bad in ["1", "0.01", "101%", "-1%", "", "x", "NaN", "%"] {
            assert!(parse_share("loss", bad).is_err(), "{bad}");
        }
        for bad in ["1", "ms", "-1ms", "61s", "1m", "inf s"] {
            assert!(parse_duration("delay", bad).is_err(), "{bad}");
        }
    }
}
