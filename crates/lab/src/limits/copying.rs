//! Throughput of one copy and of two copies between two cores.

use crossway_sys::OsError;
use crossway_sys::topology::Topology;
use crossway_sys::yardstick::{Copies, CopyPlan, copy_run};

use super::{Ask, spread_of};
use crossway_loops::payload::working_set_bytes;
use crossway_records::limits::{CopyLimit, Layout, Spread};

/// Sizes of rings to try: one within the nearest cache, two within the private caches, one within the last level.
const RINGS: [usize; 4] = [16 << 10, 128 << 10, 512 << 10, 4 << 20];
/// Numbers of bytes to make available at a time, to be tried for small messages; 0 for one message at a time.
const HAND_OVERS: [usize; 3] = [0, 1 << 10, 8 << 10];

/// Number of layouts from the first round that are measured thoroughly.
const FINALISTS: usize = 3;
/// Approximate duration of a run while layouts are searched between two trials, milliseconds. `READING_MS` is the
/// duration of a later reading.
const SEARCH_MS: u32 = 1;
const READING_MS: u32 = 2;

/// Number of messages of `size` bytes for a first run of about `run_ms`, at least 16. Assumes 1 GB/s for small messages,
/// 3 GB/s for medium ones and 10 GB/s for large ones.
fn first_messages(size: usize, run_ms: u32) -> usize {
    let bytes_per_ms = match size {
        0..=128 => 1 << 20,
        129..=1024 => 3 << 20,
        _ => 10 << 20,
    };
    (run_ms as usize * bytes_per_ms / size).max(16)
}

/// Number of messages that take `run_ms` if each takes `message_ns`, but not fewer than in a first run, which may have been
/// disturbed. In a shorter run, the first pass through ring and working set, which are not in the caches yet, would make
/// the limit too low.
fn messages(size: usize, message_ns: f64, run_ms: u32) -> usize {
    let fitting = (f64::from(run_ms) * 1e6 / message_ns.max(1e-3)) as usize;
    fitting.max(first_messages(size, run_ms))
}

/// Layouts to try for a message size, as ring size and bytes made available at a time.
fn layouts(size: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for ring in RINGS {
        // Room for at least two messages, or four if the ring is created for large ones.
        let ring = ring.max(4 * size);
        for hand_over in HAND_OVERS {
            let hand_over = hand_over.max(size);
            if hand_over * 2 <= ring && !found.contains(&(ring, hand_over)) {
                found.push((ring, hand_over));
            }
        }
    }
    if size >= 64 << 10 {
        found.push((2 * size, size));
    }
    found
}

/// Measures one layout, nanoseconds per message.
fn time_ns(
    cpus: (u32, u32),
    (copies, size, working_set): (Copies, usize, usize),
    (ring_bytes, hand_over_bytes): (usize, usize),
    messages: usize,
) -> Result<f64, OsError> {
    let plan = CopyPlan {
        copies,
        message_bytes: size,
        ring_bytes,
        hand_over_bytes,
        working_set_bytes: working_set.max(2 * size),
        messages,
    };
    let time = copy_run(cpus, &plan)?;
    Ok(time.wall_ns as f64 / time.messages.max(1) as f64)
}

/// A quick, repeatable measurement for one message size and number of copies between two CPUs. The layouts are searched
/// once; later readings try only the best of them.
#[derive(Clone, Debug)]
pub(crate) struct Copying {
    cpus: (u32, u32),
    what: (Copies, usize, usize),
    /// The best layouts, each with the number of messages of a reading.
    layouts: Vec<((usize, usize), usize)>,
}

impl Copying {
    /// Tries every layout once, briefly, and keeps the best ones.
    pub(crate) fn search(
        topology: &Topology,
        cpus: (u32, u32),
        copies: Copies,
        size_bytes: u64,
    ) -> Result<Copying, OsError> {
        let size = (size_bytes.max(1) as usize).next_multiple_of(64);
        let what = (copies, size, working_set_bytes(topology, cpus.0) as usize);
        let mut tried = Vec::new();
        for layout in layouts(size) {
            tried.push((time_ns(cpus, what, layout, first_messages(size, SEARCH_MS))?, layout));
        }
        tried.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
        let reading = |(ns, layout)| (layout, messages(size, ns, READING_MS));
        let layouts = tried.into_iter().take(FINALISTS).map(reading).collect();
        Ok(Copying { cpus, what, layouts })
    }

    /// Measures the current throughput with the best layouts, payload bytes per second.
    pub(crate) fn bytes_per_s(&self) -> Result<f64, OsError> {
        let mut best = f64::INFINITY;
        for &(layout, messages) in &self.layouts {
            best = best.min(time_ns(self.cpus, self.what, layout, messages)?);
        }
        Ok(self.what.1 as f64 * 1e9 / best)
    }
}

/// Measures all sizes with one and two copies between two CPUs.
pub(super) fn measure(
    topology: &Topology,
    (a, b): (u32, u32),
    ask: &Ask,
) -> Result<Vec<CopyLimit>, OsError> {
    let working_set = working_set_bytes(topology, a) as usize;
    let mut limits = Vec::new();
    for &size in &ask.sizes_bytes {
        let size = (size.max(1) as usize).next_multiple_of(64);
        for (copies, number) in [(Copies::One, 1), (Copies::Two, 2)] {
            let time =
                |layout, messages| time_ns((a, b), (copies, size, working_set), layout, messages);
            // First every layout once, briefly; then the best ones, and the best that hands over each message
            // individually, in turn so that drift affects all alike.
            let mut tried = Vec::new();
            for layout in layouts(size) {
                tried.push((
                    time(layout, first_messages(size, ask.run_ms) / 2)?,
                    layout,
                    Vec::new(),
                ));
            }
            tried.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
            let by_itself = |layout: &(usize, usize)| layout.1 == size;
            let single = tried.iter().position(|t| by_itself(&t.1)).unwrap_or(0);
            if single >= FINALISTS {
                tried.swap(FINALISTS, single);
                tried.truncate(FINALISTS + 1);
            } else {
                tried.truncate(FINALISTS);
            }
            for _ in 0..ask.repeats.max(1) {
                for (first_ns, layout, times) in &mut tried {
                    times.push(time(*layout, messages(size, *first_ns, ask.run_ms))?);
                }
            }
            let best = |wanted: &dyn Fn(&(usize, usize)) -> bool| {
                tried
                    .iter()
                    .filter(|t| wanted(&t.1))
                    .min_by(|x, y| spread_of(&x.2).median.total_cmp(&spread_of(&y.2).median))
            };
            let (Some((_, (ring_bytes, hand_over_bytes), times)), Some((_, _, single_times))) =
                (best(&|_| true), best(&by_itself))
            else {
                continue;
            };
            let rate = |times: &[f64], factor: f64| {
                Spread::inverse(times, factor).expect("as many finite times as repeats")
            };
            limits.push(CopyLimit {
                copies: number,
                a,
                b,
                size_bytes: size as u64,
                msgs_per_s: rate(times, 1e9),
                each_by_itself_msgs_per_s: rate(single_times, 1e9),
                bytes_per_s: rate(times, size as f64 * 1e9),
                layout: Layout {
                    ring_bytes: *ring_bytes as u64,
                    hand_over_bytes: *hand_over_bytes as u64,
                    working_set_bytes: working_set.max(2 * size) as u64,
                },
            });
        }
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_first_run_does_not_shorten_a_reading() {
        // 64 KiB at 50 GB/s, and the same while other programs had the CPU.
        assert_eq!(messages(65_536, 1_310.0, 2), 1_526);
        assert_eq!(messages(65_536, 400_000.0, 2), first_messages(65_536, 2));
    }

    #[test]
    fn every_size_has_layouts_that_hold_two_hand_overs() {
        for size in [64, 256, 4096, 65536, 1 << 20] {
            let found = layouts(size);
            assert!(!found.is_empty());
            assert!(found.iter().any(|(_, hand_over)| *hand_over == size));
            assert!(
                found.iter().all(|(ring, hand_over)| hand_over * 2 <= *ring && *hand_over >= size)
            );
        }
    }
}
