//! Decides which frames of an impaired link are lost, delayed, duplicated or reordered. The decisions come from a
//! seeded generator; time is an argument.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::Impairment;

/// Maximum time for which a reordered frame waits for the next frame of its link, if there is no delay. It is limited
/// because the last frame of a burst must arrive, too.
const MAX_HOLD: Duration = Duration::from_millis(10);

/// Counts of the frames of a network since it came up, by the effect of the impairment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpairmentCounts {
    /// Number of frames that hosts sent.
    pub frames: u64,
    /// Frames dropped at random, as `loss` requests.
    pub lost: u64,
    /// Frames sent twice, as `duplicate` requests.
    pub duplicated: u64,
    /// Frames sent early, or held back until after the next frame.
    pub reordered: u64,
    /// Frames dropped because a queue was full.
    pub overflowed: u64,
}

/// When a copy of a frame is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At this instant of the caller's clock.
    At(Duration),
    /// After the next frame of its link, but at this instant at the latest.
    BehindNext(Duration),
}

/// Impairs the frames of one link.
#[derive(Debug)]
pub(crate) struct Impairer {
    spec: Impairment,
    draws: Pcg64Mcg,
}

impl Impairer {
    /// Creates the impairer of link number `link`; each link of a network has its own random sequence.
    pub(crate) fn new(spec: &Impairment, link: u64) -> Impairer {
        // Multiplying by bits of the golden ratio spreads consecutive link numbers over all seeds.
        let seed = spec.seed ^ link.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Impairer { spec: spec.clone(), draws: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Decides when the copies (none, one or two) of a frame that arrives at `now` are sent.
    pub(crate) fn draw(
        &mut self,
        now: Duration,
        counts: &mut ImpairmentCounts,
    ) -> [Option<Due>; 2] {
        counts.frames += 1;
        // One draw per property and frame, regardless of the other results, so a frame's loss depends only on the seed
        // and its number.
        let [lost, twice, overtakes] = [self.spec.loss, self.spec.duplicate, self.spec.reorder]
            .map(|share| self.happens(share));
        let delays = [self.delay(), self.delay()];
        if lost {
            counts.lost += 1;
            return [None, None];
        }
        counts.duplicated += u64::from(twice);
        counts.reordered += u64::from(overtakes);
        let delayed = !self.spec.delay.is_zero() || !self.spec.jitter.is_zero();
        let first = match (overtakes, delayed) {
            (true, true) => Due::At(now),
            (true, false) => Due::BehindNext(now + MAX_HOLD),
            (false, _) => Due::At(now + delays[0]),
        };
        [Some(first), twice.then_some(Due::At(now + delays[1]))]
    }

    fn happens(&mut self, share: f64) -> bool {
        // A number in [0, 1): never for a share of 0, always for 1.
        self.draws.random::<f64>() < share
    }

    fn delay(&mut self) -> Duration {
        let jitter = self.spec.jitter.as_secs_f64();
        let swing = (self.draws.random::<f64>() * 2.0 - 1.0) * jitter;
        Duration::from_secs_f64((self.spec.delay.as_secs_f64() + swing).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    fn impair(spec: Impairment, frames: usize) -> (Vec<[Option<Due>; 2]>, ImpairmentCounts) {
        let (mut impairer, mut counts) = (Impairer::new(&spec, 1), ImpairmentCounts::default());
        ((0..frames).map(|_| impairer.draw(NOW, &mut counts)).collect(), counts)
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn shares_come_out_and_repeat_with_the_seed() {
        let spec = Impairment {
            loss: 0.1,
            duplicate: 0.02,
            reorder: 0.05,
            seed: 7,
            ..Impairment::default()
        };
        let (copies, counts) = impair(spec.clone(), 100_000);
        // Five standard deviations of a binomial count.
        let near = |count: u64, n: f64, p: f64| {
            (count as f64 - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt()
        };
        assert!(near(counts.lost, 1e5, 0.1), "{counts:?}");
        assert!(near(counts.duplicated, 9e4, 0.02), "{counts:?}");
        assert!(near(counts.reordered, 9e4, 0.05), "{counts:?}");
        assert_eq!(impair(spec.clone(), 100_000).0, copies);
        assert_ne!(impair(Impairment { seed: 8, ..spec }, 100_000).0, copies);
    }

    #[test]
    fn the_same_frames_are_lost_whatever_else_goes_wrong() {
        let spec = Impairment { loss: 0.1, seed: 7, ..Impairment::default() };
        let lost = |spec| impair(spec, 1000).0.iter().map(|f| f[0].is_none()).collect::<Vec<_>>();
        let more = Impairment { duplicate: 0.5, reorder: 0.5, delay: ms(3), ..spec.clone() };
        assert_eq!(lost(spec), lost(more));
    }

    #[test]
    fn a_delay_keeps_its_range_and_those_that_overtake_have_none() {
        let spec =
            Impairment { delay: ms(3), jitter: ms(1), reorder: 0.25, ..Impairment::default() };
        let (copies, counts) = impair(spec, 1000);
        let at: Vec<Duration> = copies
            .iter()
            .map(|f| match f[0] {
                Some(Due::At(at)) => at - NOW,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(at.iter().filter(|d| d.is_zero()).count() as u64, counts.reordered);
        assert!(at.iter().filter(|d| !d.is_zero()).all(|d| (ms(2)..=ms(4)).contains(d)));
    }

    #[test]
    fn without_a_delay_a_reordered_frame_waits_for_the_next() {
        let (copies, _) = impair(Impairment { reorder: 1.0, ..Impairment::default() }, 1);
        assert_eq!(copies[0], [Some(Due::BehindNext(NOW + MAX_HOLD)), None]);
        let (copies, counts) = impair(Impairment { loss: 1.0, ..Impairment::default() }, 50);
        assert!(copies.iter().all(|f| *f == [None, None]) && counts.lost == 50);
    }
}
