//! Clocks: CLOCK_MONOTONIC and, where it is constant and non-stop, the time-stamp counter.
