//! Which figure is best, and which of the others the trials do not distinguish from it.

use crate::sorting::SortSmall;
use crate::stats::Estimate;

/// Sorts entries by their figures, the best first, and returns their ranks in the new order, from 1. Entries that tie
/// have the same rank and are listed together. Figures with too few trials for an interval come last, without a rank.
///
/// An entry ties with the first one of a rank if their intervals overlap. An overlap with the last one is not enough,
/// because a chain of overlaps would tie all.
pub fn order<T>(
    entries: &mut [T],
    estimate: impl Fn(&T) -> Estimate,
    more_is_better: bool,
) -> Vec<Option<usize>> {
    entries.sort_small_by(|a, b| {
        let (a, b) = (estimate(a), estimate(b));
        let order = a.value.total_cmp(&b.value);
        let order = if more_is_better { order.reverse() } else { order };
        b.has_interval().cmp(&a.has_interval()).then(order)
    });
    let ranked = entries.iter().take_while(|e| estimate(e).has_interval()).count();
    let mut ranks = vec![None; entries.len()];
    let mut leader = 0;
    while leader < ranked {
        let first = estimate(&entries[leader]);
        let apart = |e: &T| !estimate(e).overlaps(&first);
        // One that ties is listed with the first, even if the median of one that does not lies between them.
        entries[leader + 1..ranked].sort_small_by_key(apart);
        let tied = entries[leader + 1..ranked].iter().take_while(|e| !apart(e)).count();
        ranks[leader..=leader + tied].fill(Some(leader + 1));
        leader += 1 + tied;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, low: f64, high: f64, n: usize) -> Estimate {
        Estimate { value, low, high, n }
    }

    #[test]
    fn what_overlaps_the_first_ties_with_it_and_a_chain_does_not() {
        let mut times = [of(30.0, 28.0, 33.0, 5), of(10.0, 8.0, 20.0, 5), of(21.0, 20.5, 29.0, 5)];
        times.reverse();
        let ranks = order(&mut times, |e| *e, false);
        assert_eq!(times.map(|e| e.value), [10.0, 21.0, 30.0]);
        assert_eq!(ranks, [Some(1), Some(2), Some(2)]);
        // One that overlaps the first stands before one that does not, although its median is worse.
        let mut rates = [of(30.0, 29.0, 31.0, 5), of(32.0, 22.0, 40.0, 5), of(25.0, 20.0, 36.0, 5)];
        let ranks = order(&mut rates, |e| *e, true);
        assert_eq!(rates.map(|e| e.value), [32.0, 30.0, 25.0]);
        assert_eq!(ranks, [Some(1); 3]);
    }

    #[test]
    fn figures_of_few_trials_come_last_and_have_no_rank() {
        let mut times = [of(1.0, 1.0, 1.0, 4), of(9.0, 8.0, 10.0, 5)];
        let ranks = order(&mut times, |e| *e, false);
        assert_eq!((times[0].value, ranks), (9.0, vec![Some(1), None]));
    }
}
