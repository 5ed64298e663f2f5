//! Judges claims by confidence intervals, and estimates how many trials would decide a claim that its interval leaves
//! open.

use crossway_records::stats::{Estimate, Interval, TRIALS_AT_LEAST};

use crate::units::count;

/// Two figures count as equal if the larger is at most this many times the smaller. Curves in a printed diagram may
/// differ by about this much and still seem to coincide.
const EQUAL_FACTOR: f64 = 1.25;
/// Largest number of trials per case that is still practical to suggest.
const TRIALS_AT_MOST: f64 = 2000.0;
/// Ratios within this factor of a bound differ negligibly from it.
const NEGLIGIBLE_FACTOR: f64 = 1.05;

/// The judgement of a claim by the interval of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The claim holds.
    Holds,
    /// The claim does not hold.
    Fails,
    /// The trials do not decide the claim. The value is the number of trials per case that would, estimated from how
    /// fast intervals narrow; `None` if the median lies so close to the bound that no practical number would.
    Open(Option<u32>),
    /// The claim is undecided for another reason than too few trials per case, such as too few sizes.
    Lacking,
}

impl Call {
    /// Returns [`Call::Open`] for a figure whose interval contains one or more of `bounds`, the edges of the claim. An
    /// interval narrows with the square root of the number of trials, so the number needed follows from the distances
    /// of the median from these bounds. A figure with too few trials for an interval needs [`TRIALS_AT_LEAST`].
    pub(super) fn open(figure: &Estimate, bounds: &[f64]) -> Call {
        if !enough(figure) {
            return Call::Open(Some(TRIALS_AT_LEAST as u32));
        }
        let needed =
            bounds.iter().filter(|b| figure.low <= **b && **b <= figure.high).map(|bound| {
                let reach = if *bound < figure.value {
                    figure.value - figure.low
                } else {
                    figure.high - figure.value
                };
                let distance = (figure.value - bound).abs();
                figure.n as f64 * (reach / distance).powi(2)
            });
        Call::open_until(needed.fold(0.0f64, f64::max), figure.n)
    }

    /// Returns [`Call::Holds`] if the figure has enough trials for a verdict, otherwise [`Call::Open`].
    pub(super) fn open_unless_enough(figure: &Estimate) -> Call {
        if enough(figure) { Call::Holds } else { Call::open(figure, &[]) }
    }

    /// Returns [`Call::Open`] after `n` trials, given an estimate that `needed` trials would decide the claim. Suggests
    /// at least `n + 1` trials, and makes no suggestion unless `needed` is from 1 to [`TRIALS_AT_MOST`].
    fn open_until(needed: f64, n: usize) -> Call {
        let decides = (1.0..=TRIALS_AT_MOST).contains(&needed);
        Call::Open(decides.then(|| (needed.ceil() as u32).max(n as u32 + 1)))
    }
}

/// Returns whether there are enough trials for a meaningful interval.
pub(super) fn enough(figure: &Estimate) -> bool {
    figure.n >= TRIALS_AT_LEAST
}

/// Judges the claim that the ratio is above `bound`. It fails if the whole interval is below the bound, or so close to
/// it that the difference is negligible.
pub(super) fn above(ratio: &Estimate, bound: f64) -> Call {
    if !enough(ratio) {
        Call::open(ratio, &[])
    } else if ratio.low > bound {
        Call::Holds
    } else if ratio.high <= bound
        || (ratio.low >= bound / NEGLIGIBLE_FACTOR && ratio.high <= bound * NEGLIGIBLE_FACTOR)
    {
        Call::Fails
    } else {
        Call::open(ratio, &[bound])
    }
}

/// Judges the claim that the first of two independent figures is the larger one.
pub(super) fn larger(a: &Estimate, b: &Estimate) -> Call {
    if !enough(a) || !enough(b) {
        Call::Open(Some(TRIALS_AT_LEAST as u32))
    } else if a.low > b.high {
        Call::Holds
    } else if a.high < b.low {
        Call::Fails
    } else {
        // The two intervals must shrink until the halves that face each other no longer meet.
        let (above, below) = if a.value > b.value { (a, b) } else { (b, a) };
        let reach = (above.value - above.low) + (below.high - below.value);
        let n = a.n.min(b.n);
        Call::open_until(n as f64 * (reach / (above.value - below.value)).powi(2), n)
    }
}

/// Combines the judgements of single cases for a claim that holds if it holds in any one case.
pub(super) fn any(calls: &[Call]) -> Call {
    if calls.contains(&Call::Holds) {
        return Call::Holds;
    }
    let open =
        calls.iter().filter_map(|c| if let Call::Open(needed) = c { Some(*needed) } else { None });
    match open.reduce(|a, b| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }) {
        Some(needed) => Call::Open(needed),
        None if calls.contains(&Call::Lacking) => Call::Lacking,
        None => Call::Fails,
    }
}

/// Judges the claim that two figures are equal, within [`EQUAL_FACTOR`].
pub(super) fn equal(ratio: &Estimate) -> Call {
    let bounds = Interval { low: 1.0 / EQUAL_FACTOR, high: EQUAL_FACTOR };
    if !enough(ratio) {
        Call::open(ratio, &[])
    } else if bounds.contains(ratio.low) && bounds.contains(ratio.high) {
        Call::Holds
    } else if ratio.low > bounds.high || ratio.high < bounds.low {
        Call::Fails
    } else {
        Call::open(ratio, &[bounds.low, bounds.high])
    }
}

/// Combines the judgements of single cases for a claim that must hold in all cases: it fails if any fails, and is open
/// if any is open and none fails.
pub(super) fn all(calls: impl IntoIterator<Item = Call>) -> Call {
    let mut whole = Call::Holds;
    for call in calls {
        match call {
            Call::Fails => return Call::Fails,
            Call::Open(needed) => whole = more_of(whole, needed),
            Call::Lacking => whole = Call::Lacking,
            Call::Holds => {}
        }
    }
    whole
}

/// Combines the judgement so far with an open one that needs `needed` trials. The result is open and needs the larger
/// of the two numbers of trials, which is unknown if either is unknown. [`Call::Lacking`] stays as it is, because more
/// trials alone would not decide that claim.
fn more_of(call: Call, needed: Option<u32>) -> Call {
    match call {
        Call::Open(before) => Call::Open(before.zip(needed).map(|(a, b)| a.max(b))),
        Call::Lacking => Call::Lacking,
        _ => Call::Open(needed),
    }
}

/// Returns how many of the judgements are `wanted`.
fn number_of(calls: &[Call], wanted: Call) -> usize {
    calls.iter().filter(|call| **call == wanted).count()
}

/// Combines the judgements of a claim at many sizes. At most one in twenty of the decided sizes may contradict it,
/// because a 95 % interval is wrong that often. For the same reason, a few contradictions among many undecided sizes do
/// not refute the claim: half of the sizes must be decided, or [`SIZES_AT_LEAST`] must contradict it.
pub(super) fn mostly(calls: &[Call]) -> Call {
    let (holds, fails) = (number_of(calls, Call::Holds), number_of(calls, Call::Fails));
    if holds == 0 && fails == 0 {
        still_open(calls)
    } else if fails * 20 <= holds + fails {
        // The undecided sizes must not be the majority.
        if holds * 2 >= calls.len() { Call::Holds } else { still_open(calls) }
    } else if (holds + fails) * 2 >= calls.len() || fails >= SIZES_AT_LEAST {
        Call::Fails
    } else {
        still_open(calls)
    }
}

/// Returns [`Call::Open`] with the median of the numbers of trials that the undecided sizes need, which would decide
/// half of them: that is enough. Returns [`Call::Lacking`] if no size needs more trials.
fn still_open(calls: &[Call]) -> Call {
    let mut needed: Vec<u32> = calls
        .iter()
        .filter_map(|c| if let Call::Open(needed) = c { *needed } else { None })
        .collect();
    needed.sort_unstable();
    match calls.iter().any(|c| matches!(c, Call::Open(_))) {
        true => Call::Open(needed.get(needed.len() / 2).copied()),
        false => Call::Lacking,
    }
}

/// Minimum number of sizes that confirm a claim about all sizes.
const SIZES_AT_LEAST: usize = 3;

/// Judges a claim about all sizes by the judgement `call` of its sizes together and by those of the single sizes. A
/// claim that holds at fewer than [`SIZES_AT_LEAST`] sizes stays undecided; fewer sizes can still contradict it.
pub(super) fn at_all_sizes(call: Call, sizes: &[Call]) -> Call {
    match call {
        Call::Fails => Call::Fails,
        // More trials alone would not decide it.
        _ if sizes.len() < SIZES_AT_LEAST => Call::Lacking,
        Call::Holds if number_of(sizes, Call::Holds) < SIZES_AT_LEAST => still_open(sizes),
        call => call,
    }
}

/// Says what is missing if a claim about all sizes cannot be confirmed because too few sizes were measured; otherwise an
/// empty text.
pub(super) fn few_sizes(call: Call, sizes: usize, plan: &str) -> String {
    if sizes >= SIZES_AT_LEAST || call == Call::Fails {
        return String::new();
    }
    format!(
        "; fewer than {SIZES_AT_LEAST} measured sizes cannot confirm a claim about all sizes: `crossway measure {plan}` \
         measures more"
    )
}

/// Says in how many cases a claim holds, does not hold and is undecided: "yes at 3 of 9 sizes, no at 1, undecided at 5".
/// `place` is the preposition, `one` and `many` are the words for the cases.
pub(super) fn in_words(calls: &[Call], place: &str, one: &str, many: &str) -> String {
    let (holds, fails) = (number_of(calls, Call::Holds), number_of(calls, Call::Fails));
    let all = count(calls.len(), one, many);
    let told = [("yes", holds), ("no", fails), ("undecided", calls.len() - holds - fails)];
    let told: Vec<(&str, usize)> = told.into_iter().filter(|(_, n)| *n > 0).collect();
    match told.as_slice() {
        [(word, 1)] => format!("{word} {place} {all}"),
        [(word, 2)] => format!("{word} {place} both {many}"),
        [(word, _)] => format!("{word} {place} all {all}"),
        [(word, n), others @ ..] => {
            let others = others.iter().map(|(word, n)| format!(", {word} {place} {n}"));
            format!("{word} {place} {n} of {all}{}", others.collect::<String>())
        }
        [] => "not measured".to_owned(),
    }
}

/// The judgement of a single case in one word.
pub(super) fn in_a_word(call: Call) -> &'static str {
    match call {
        Call::Holds => "yes",
        Call::Fails => "no",
        Call::Open(_) | Call::Lacking => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(value: f64, low: f64, high: f64, n: usize) -> Estimate {
        Estimate { value, low, high, n }
    }

    #[test]
    fn a_few_contradictions_among_undecided_sizes_refute_nothing() {
        let open = Call::Open(Some(20));
        let with = |holds: usize, fails: usize, undecided: usize| {
            let calls = [(Call::Holds, holds), (Call::Fails, fails), (open, undecided)];
            mostly(&calls.map(|(call, n)| vec![call; n]).concat())
        };
        assert_eq!(with(0, 1, 10), open);
        assert_eq!(with(1, 2, 8), open);
        assert_eq!((with(0, 3, 8), with(4, 2, 5)), (Call::Fails, Call::Fails));
        assert_eq!((with(0, 1, 0), with(0, 1, 1)), (Call::Fails, Call::Fails));
        assert_eq!((with(6, 0, 5), with(5, 0, 6)), (Call::Holds, open));
    }

    #[test]
    fn what_is_undecided_is_not_counted_as_no() {
        let open = Call::Open(None);
        let words = |calls: &[Call]| in_words(calls, "at", "size", "sizes");
        assert_eq!(words(&[open]), "undecided at 1 size");
        assert_eq!(words(&[Call::Holds; 3]), "yes at all 3 sizes");
        assert_eq!(words(&[Call::Fails; 2]), "no at both sizes");
        assert_eq!(words(&[Call::Fails, Call::Lacking]), "no at 1 of 2 sizes, undecided at 1");
        assert_eq!(
            words(&[Call::Holds, Call::Fails, open, Call::Holds]),
            "yes at 2 of 4 sizes, no at 1, undecided at 1"
        );
        assert_eq!(words(&[]), "not measured");
    }

    #[test]
    fn what_is_open_says_how_many_trials_would_decide() {
        // The interval reaches down by 0.4 and must reach less than 0.2: half the width needs four times the trials.
        let call = above(&ratio(1.2, 0.8, 1.6, 5), 1.0);
        assert_eq!(call, Call::Open(Some(20)));
        assert_eq!(above(&ratio(1.2, 0.8, 1.6, 4), 1.0), Call::Open(Some(5)));
        // If the median lies on the bound itself, no number of trials decides.
        assert_eq!(above(&ratio(1.0, 0.5, 1.5, 5), 1.0), Call::Open(None));
        assert_eq!(all([call, Call::Open(Some(7)), Call::Holds]), Call::Open(Some(20)));
        assert_eq!(all([call, Call::Open(None)]), Call::Open(None));
        assert_eq!(mostly(&[call, Call::Open(None)]), Call::Open(Some(20)));
        // More trials do not help if sizes are missing.
        assert_eq!(at_all_sizes(Call::Holds, &[Call::Holds]), Call::Lacking);
        assert_eq!(at_all_sizes(call, &[Call::Holds, call]), Call::Lacking);
        assert_eq!(at_all_sizes(Call::Fails, &[Call::Fails]), Call::Fails);
        assert_eq!(at_all_sizes(Call::Holds, &[Call::Holds, Call::Holds, call]), call);
        assert_eq!(all([call, Call::Lacking, Call::Open(None)]), Call::Lacking);
        assert_eq!(mostly(&[]), Call::Lacking);
        assert_eq!(any(&[Call::Lacking, Call::Fails]), Call::Lacking);
        // Intervals that reach 0.4 towards each other and are 0.2 apart.
        assert_eq!(
            larger(&ratio(1.2, 1.0, 1.4, 5), &ratio(1.0, 0.8, 1.2, 9)),
            Call::Open(Some(20))
        );
        assert_eq!(
            larger(&ratio(1.0, 0.8, 1.2, 9), &ratio(1.2, 1.0, 1.4, 5)),
            Call::Open(Some(20))
        );
        assert_eq!(larger(&ratio(1.2, 1.1, 1.4, 5), &ratio(1.0, 0.9, 1.05, 5)), Call::Holds);
        assert_eq!(
            larger(&ratio(1.2, 1.1, 1.4, 3), &ratio(1.0, 0.9, 1.05, 5)),
            Call::Open(Some(5))
        );
        assert_eq!(any(&[call, Call::Open(Some(7)), Call::Fails]), Call::Open(Some(7)));
        assert_eq!(any(&[Call::Open(None), Call::Fails]), Call::Open(None));
        assert_eq!(any(&[Call::Fails, Call::Holds, call]), Call::Holds);
        assert_eq!(any(&[Call::Fails]), Call::Fails);
    }
}
