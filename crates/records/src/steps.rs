//! Steps and knees in a series of measurements over message size or buffer size.
//!
//! A *step* is a jump between two neighbouring points that the smooth curve around them does not explain (item T4 of
//! Toshiba's study: TIPC's throughput falls when a message needs one more packet). A *knee* is where a rising curve
//! reaches its plateau (item C3 of the cluster study: throughput against socket buffer). A *staircase* is a series of
//! steps at a constant distance, too close to be resolved individually. A step is reported only if it is significant
//! after correction for the number of places examined, so that a smooth curve yields none.
//!
//! [`predict`] derives from facts about the machine where steps are expected. [`explain`] matches expected steps with
//! found ones.

mod detect;
mod explain;
mod knee;
mod regression;

pub use detect::{Staircase, Step, find_steps, test_staircase};
pub use explain::{Cause, Cutting, Facts, Prediction, explain, predict};
pub use knee::{Knee, find_knee};

/// The figures of all trials at one point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Message size or buffer size, bytes.
    pub x: f64,
    /// One figure per trial, e.g. nanoseconds per message.
    pub figures: Vec<f64>,
}

/// Maximum probability of a false alarm in a whole series of pure noise.
pub const FALSE_ALARM: f64 = 0.01;

/// Smallest jump that is reported, as a fraction of the local level. Smaller jumps are not reported even if they are
/// significant.
pub const LEAST_JUMP: f64 = 0.015;

#[cfg(test)]
mod tests_support {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::Place;

    /// Random noise from a fixed seed.
    pub(super) struct Noise(Pcg64Mcg);

    impl Noise {
        pub(super) fn new(seed: u64) -> Self {
            Noise(Pcg64Mcg::seed_from_u64(seed))
        }

        /// A uniformly distributed number in 0..1.
        pub(super) fn unit(&mut self) -> f64 {
            self.0.random::<f64>()
        }

        /// An approximately normal number with mean 1 and standard deviation `spread`.
        pub(super) fn around_one(&mut self, spread: f64) -> f64 {
            let twelve: f64 = (0..12).map(|_| self.unit()).sum();
            1.0 + spread * (twelve - 6.0)
        }
    }

    pub(super) fn series(
        xs: impl Iterator<Item = f64>,
        trials: usize,
        mut figure: impl FnMut(f64) -> f64,
    ) -> Vec<Place> {
        xs.map(|x| Place { x, figures: (0..trials).map(|_| figure(x)).collect() }).collect()
    }
}
