//! Formats quantities for people, with three significant digits and a unit that keeps the number small.

use crossway_records::figure::Figure;
use serde::Serialize;

/// Formats a value with three significant digits and no exponent.
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    // Rounded first: 9.996 has the magnitude of 10.0.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let decimals = (2 - rounded.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{rounded:.decimals$}")
}

/// A unit of a quantity: the divisor and the unit's name.
type Scale = (f64, &'static str);

fn duration_scale(ns: f64) -> Scale {
    match ns.abs() {
        v if v < 999.5 => (1.0, "ns"),
        v if v < 999.5e3 => (1e3, "µs"),
        v if v < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

fn decimal_scale(value: f64, units: [&'static str; 4]) -> Scale {
    match value.abs() {
        v if v < 999.5 => (1.0, units[0]),
        v if v < 999.5e3 => (1e3, units[1]),
        v if v < 999.5e6 => (1e6, units[2]),
        _ => (1e9, units[3]),
    }
}

/// The physical quantity of a figure, which decides its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// A time in nanoseconds.
    Duration,
    /// Bytes per second.
    ByteRate,
    /// Messages per second.
    MessageRate,
    /// Bits per second, also per CPU-second.
    BitRate,
    /// System calls per second.
    CallRate,
    /// Bytes.
    Bytes,
    /// A dimensionless number: packets per message, Jain's index.
    Number,
    /// A fraction, shown in per cent.
    Share,
}

impl Quantity {
    /// Returns the quantity of a figure of a trial.
    pub fn of(figure: Figure) -> Quantity {
        match figure {
            Figure::MessageRate => Quantity::MessageRate,
            Figure::ByteRate => Quantity::ByteRate,
            Figure::Latency(..) | Figure::WholeExchange(_) | Figure::Cpu(_) => Quantity::Duration,
        }
    }

    fn scale(self, value: f64) -> Scale {
        match self {
            Quantity::Duration => duration_scale(value),
            Quantity::ByteRate => decimal_scale(value, ["B/s", "kB/s", "MB/s", "GB/s"]),
            Quantity::MessageRate => {
                decimal_scale(value, ["msg/s", "k msg/s", "M msg/s", "G msg/s"])
            }
            Quantity::BitRate => decimal_scale(value, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
            Quantity::CallRate => {
                decimal_scale(value, ["calls/s", "k calls/s", "M calls/s", "G calls/s"])
            }
            Quantity::Bytes => (1.0, "B"),
            Quantity::Number => (1.0, ""),
            Quantity::Share => (0.01, "%"),
        }
    }

    /// Formats the value with its unit: `13.2 µs`.
    pub fn show(self, value: f64) -> String {
        let (divisor, unit) = self.scale(value);
        join(&three_digits(value / divisor), unit)
    }

    /// Formats the value with two significant digits: `13 µs`.
    pub fn show_two(self, value: f64) -> String {
        let (divisor, unit) = self.scale(value);
        let rounded: f64 = format!("{:.1e}", value / divisor).parse().unwrap_or(value / divisor);
        let decimals = usize::from(rounded != 0.0 && rounded.abs() < 10.0)
            + usize::from(rounded != 0.0 && rounded.abs() < 1.0);
        join(&format!("{rounded:.decimals$}"), unit)
    }

    /// Formats an interval in the unit of its middle value: `12.9–13.5 µs`. If an end would be illegible in that unit,
    /// each end has its own: `581 ns–27.7 µs`.
    pub fn show_interval(self, middle: f64, low: f64, high: f64) -> String {
        let (divisor, unit) = self.scale(middle);
        let legible = |end: f64| end == 0.0 || (0.01..9_999.5).contains(&(end / divisor).abs());
        if !(legible(low) && legible(high)) && self.scale(low) != self.scale(high) {
            return format!("{}–{}", self.show(low), self.show(high));
        }
        let (low, high) = (three_digits(low / divisor), three_digits(high / divisor));
        if low == high { join(&low, unit) } else { join(&format!("{low}–{high}"), unit) }
    }
}

fn join(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

/// Formats a duration that was requested, without rounding: `2 ms`, `33.333333 ms`. Two that differ never look the same.
pub fn exact_duration(ns: u64) -> String {
    let (divisor, unit) = match ns {
        ns if ns >= 1_000_000_000 => (1_000_000_000, "s"),
        ns if ns >= 1_000_000 => (1_000_000, "ms"),
        ns if ns >= 1_000 => (1_000, "µs"),
        _ => (1, "ns"),
    };
    let width = u64::ilog10(divisor) as usize;
    let rest = format!("{:0width$}", ns % divisor);
    let rest = rest.trim_end_matches('0');
    let point = if rest.is_empty() { "" } else { "." };
    format!("{}{point}{rest} {unit}", ns / divisor)
}

/// Formats a size: in a binary unit if it is a whole multiple of one, else in bytes.
pub fn size(bytes: u64) -> String {
    const KIB: u64 = 1024;
    match bytes {
        b if b >= KIB * KIB * KIB && b.is_multiple_of(KIB * KIB * KIB) => {
            format!("{} GiB", b / (KIB * KIB * KIB))
        }
        b if b >= KIB * KIB && b.is_multiple_of(KIB * KIB) => format!("{} MiB", b / (KIB * KIB)),
        b if b >= KIB && b.is_multiple_of(KIB) => format!("{} KiB", b / KIB),
        b => format!("{b} B"),
    }
}

/// Formats a size as an adjective: `64-byte`, `4 KiB`.
pub fn size_adjective(bytes: u64) -> String {
    if bytes < 1024 || !bytes.is_multiple_of(1024) { format!("{bytes}-byte") } else { size(bytes) }
}

/// Formats milliseconds since 1970 as UTC, to the minute.
pub fn utc_minute(unix_ms: u64) -> String {
    // Civil date from days since the epoch (Howard Hinnant's algorithm).
    let minutes = unix_ms / 60_000;
    let days = (minutes / 1440) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let minute_of_day = minutes % 1440;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minute_of_day / 60, minute_of_day % 60)
}

/// Formats a number with its noun: `1 trial`, `5 trials`.
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Formats a number with its noun, a large one with two significant digits: `537 calls`, `540
/// thousand calls`.
pub fn about(n: usize, one: &str, many: &str) -> String {
    if n < 10_000 {
        return count(n, one, many);
    }
    // Rounded first: 999,999 is a million.
    let step = 10_usize.pow(n.ilog10() - 1);
    let rounded = n.saturating_add(step / 2) / step * step;
    let (divisor, word) = match rounded {
        0..1_000_000 => (1e3, "thousand"),
        1_000_000..1_000_000_000 => (1e6, "million"),
        _ => (1e9, "billion"),
    };
    let number = Quantity::Number.show_two(rounded as f64 / divisor);
    format!("{number} {word} {many}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_words_with_two_digits() {
        for (n, want) in [
            (1, "1 call"),
            (9_999, "9999 calls"),
            (10_400, "10 thousand calls"),
            (537_035, "540 thousand calls"),
            (994_999, "990 thousand calls"),
            (999_999, "1.0 million calls"),
            (995_000, "1.0 million calls"),
            (12_345_678, "12 million calls"),
            (2_345_678_901, "2.3 billion calls"),
        ] {
            assert_eq!(about(n, "call", "calls"), want);
        }
    }

    #[test]
    fn figures_keep_three_digits_and_a_fitting_unit() {
        for (ns, want) in [
            (0.0, "0 ns"),
            (0.25, "0.250 ns"),
            (37.0, "37.0 ns"),
            (999.6, "1.00 µs"),
            (9_996.0, "10.0 µs"),
            (13_240.0, "13.2 µs"),
            (999_600.0, "1.00 ms"),
            (2.5e9, "2.50 s"),
        ] {
            assert_eq!(Quantity::Duration.show(ns), want, "{ns}");
        }
        assert_eq!(Quantity::ByteRate.show(17.9e9), "17.9 GB/s");
        assert_eq!(Quantity::MessageRate.show(13.8e6), "13.8 M msg/s");
        assert_eq!(Quantity::Share.show(0.0916), "9.16 %");
        assert_eq!(Quantity::Number.show(f64::NAN), "–");
    }

    #[test]
    fn an_interval_takes_the_unit_of_its_middle() {
        assert_eq!(Quantity::Duration.show_interval(1000.0, 990.0, 1200.0), "0.990–1.20 µs");
        assert_eq!(Quantity::Duration.show_interval(5.0, 5.0, 5.0), "5.00 ns");
        assert_eq!(Quantity::Duration.show_interval(140.0, 0.0, 9_000.0), "0–9000 ns");
    }

    #[test]
    fn the_ends_of_a_wide_interval_have_units_of_their_own() {
        let time = |middle, low, high| Quantity::Duration.show_interval(middle, low, high);
        assert_eq!(time(140.0, 140.0, 12e6), "140 ns–12.0 ms");
        assert_eq!(time(600.0, 581.0, 27_700.0), "581 ns–27.7 µs");
        assert_eq!(time(12e6, 140.0, 13e6), "140 ns–13.0 ms");
        // A quantity with a single unit keeps it once.
        assert_eq!(Quantity::Share.show_interval(0.5, 0.0, 250.0), "0–25000 %");
    }

    #[test]
    fn sizes_use_binary_units_only_where_exact() {
        assert_eq!(size(64), "64 B");
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(2953), "2953 B");
        assert_eq!(size(3 << 20), "3 MiB");
        assert_eq!(size_adjective(64), "64-byte");
        assert_eq!(size_adjective(65_536), "64 KiB");
    }

    #[test]
    fn instants_are_civil_dates() {
        assert_eq!(utc_minute(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc_minute(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc_minute(1_795_290_540_000), "2026-11-21 19:49 UTC");
    }
}
