//! Traces as NetPerfMeter replays them: a line for each message with the seconds since the previous one, its size in
//! bytes, and optionally its stream.

use std::collections::HashMap;
use std::io::BufRead;

use super::assembly::{Assembly, Call};
use super::{End, ImportError, Place};
use crate::recording::Operation;

/// A message of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Message {
    delay_ns: i64,
    size_bytes: u64,
    stream: u32,
}

/// Reads a line; `None` if it is not one of a trace.
pub(super) fn message(line: &str) -> Option<Message> {
    let mut words = line.split_whitespace();
    let delay: f64 = words.next()?.parse().ok()?;
    let size_bytes = words.next()?.parse().ok()?;
    let stream = words.next().map_or(Some(0), |word| word.parse().ok())?;
    let good = words.next().is_none() && (0.0..1e9).contains(&delay);
    good.then_some(Message { delay_ns: (delay * 1e9).round() as i64, size_bytes, stream })
}

/// Reads a trace to its end into a recording: one thread that sends on a channel for each stream.
pub(super) fn read_trace(
    trace: impl BufRead,
    assembly: &mut Assembly,
    mut each: impl FnMut() -> bool,
) -> Result<(), ImportError> {
    let mut places: HashMap<u32, Place> = HashMap::new();
    assembly.rename(1, "sender");
    let mut at_ns = 0_i64;
    for line in trace.lines() {
        let line = line.map_err(ImportError::Log)?;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(message) = message(&line) else {
            assembly.lost.not_understood += 1;
            continue;
        };
        at_ns = at_ns.saturating_add(message.delay_ns);
        let stream = message.stream;
        let place = places.entry(stream).or_insert_with(|| {
            assembly.place(&End {
                channel: format!("stream:{stream}"),
                end: "sender".to_owned(),
                carrier: "other-socket",
                name: format!("stream {stream}"),
            })
        });
        let call = Call {
            thread: 1,
            at_ns,
            took_ns: 0,
            operation: Operation::Send,
            size_bytes: message.size_bytes,
            cpu: None,
            off_cpu_ns: None,
        };
        assembly.add(call, Some(*place))?;
        assembly.flush_if_due()?;
        if !each() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two_or_three_numbers_are_messages() {
        let expected = Message { delay_ns: 40_000_000, size_bytes: 1500, stream: 2 };
        assert_eq!(message("0.04\t1500 2"), Some(expected));
        assert_eq!(message("0.04 1500"), Some(Message { stream: 0, ..expected }));
        for bad in ["", "1", "-1 5", "1 -5", "x 5", "1 2 3 4", "1.0 2.5", "nan 4", "inf 4"] {
            assert_eq!(message(bad), None, "{bad}");
        }
    }
}
