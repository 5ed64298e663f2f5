"""The median of a few ratios and its interval, for the scripts that compare programs in rounds."""

import random
import statistics


def interval(ratios):
    """The median, and the range that holds 95 % of the medians of resampled ratios."""
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(4000))
    return statistics.median(ratios), medians[100], medians[-101]
