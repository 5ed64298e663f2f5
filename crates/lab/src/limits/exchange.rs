//! The bare blocking exchange: two threads that only wake each other and sleep. It is the limit of a blocking round
//! trip.

use std::time::Duration;

use crossway_sys::yardstick::{self, Exchanges, blocking_exchanges};

use super::spread_of;
use crossway_records::limits::{Exchange, ExchangeKind};
use crossway_records::stats;

/// Maximum number of round trips per reading.
const EXCHANGES_AT_MOST: usize = 20_000;
/// An exchange between two CPUs counts only if each thread slept in at least this share of its round trips. Two threads
/// that find each other's answer before they begin to wait never sleep, and take a fraction of the time.
const SLEPT: f64 = 0.9;
/// Maximum number of attempts to measure an exchange that counts.
pub(crate) const EXCHANGE_ATTEMPTS: usize = 3;
/// Maximum duration of the exchange's warm-up, and of its measurement, milliseconds.
pub(crate) const EXCHANGE_MS: u64 = 100;

/// Measures the exchange with futexes and with pipes, each for `span` after `warmup`, and returns the one with the
/// smaller median, of those in which the threads slept. A reading in which they did not is repeated up to `attempts`
/// times. The error says why none counts.
pub(crate) fn fastest_exchange(
    (a, b): (u32, u32),
    warmup: Duration,
    span: Duration,
    attempts: usize,
) -> Result<Exchange, String> {
    let mut best: Option<Exchange> = None;
    let mut why_not = String::new();
    for (kind, call) in [
        (ExchangeKind::Futex, yardstick::ExchangeKind::Futex),
        (ExchangeKind::Pipe, yardstick::ExchangeKind::Pipe),
    ] {
        for _ in 0..attempts {
            let exchanges = blocking_exchanges((a, b), call, warmup, span, EXCHANGES_AT_MOST)
                .map_err(|e| e.to_string())?;
            match asleep((a, b), &exchanges) {
                Ok(()) => {
                    let round_trip_ns = spread_of(&exchanges.times);
                    let here = Exchange { a, b, kind, round_trip_ns };
                    let is_better =
                        |best: &Exchange| round_trip_ns.median < best.round_trip_ns.median;
                    if best.as_ref().is_none_or(is_better) {
                        best = Some(here);
                    }
                    break;
                }
                Err(why) => why_not = why,
            }
        }
    }
    best.ok_or(why_not)
}

/// Checks that there are round trips and that the threads slept in nearly all of them. On one CPU, a round trip requires
/// two context switches in any case; one of them may be a preemption by the woken thread instead of a sleep.
fn asleep(cpus: (u32, u32), exchanges: &Exchanges) -> Result<(), String> {
    if stats::median(&exchanges.times).is_none() {
        return Err("no exchange was completed".to_owned());
    }
    let share = exchanges.sleeps_per_round_trip;
    if cpus.0 != cpus.1 && share < SLEPT {
        let percent = share * 100.0;
        return Err(format!("the two threads slept in only {percent:.0} % of the exchanges"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_of_threads_that_stayed_awake_do_not_count() {
        let of = |sleeps_per_round_trip| Exchanges { times: vec![271.0; 9], sleeps_per_round_trip };
        assert_eq!(asleep((0, 1), &of(0.97)), Ok(()));
        let why = asleep((0, 1), &of(0.03)).unwrap_err();
        assert_eq!(why, "the two threads slept in only 3 % of the exchanges");
        // On one CPU, the other thread cannot answer while this one runs.
        assert_eq!(asleep((1, 1), &of(0.03)), Ok(()));
        let none = Exchanges { times: Vec::new(), sleeps_per_round_trip: 0.0 };
        assert_eq!(asleep((0, 1), &none).unwrap_err(), "no exchange was completed");
    }
}
