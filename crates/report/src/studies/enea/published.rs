//! The figures that the study published in Tables 1 and 2, in microseconds.

/// A line of Tables 1 and 2: the pair of CPUs, then the round trips of mempipe (`None` if both ends share a core),
/// pipe, tcp and unix.
pub(super) type Line = ((u32, u32), [Option<f64>; 4]);

/// The columns of both tables, with the corresponding mechanisms here. In the latency measurements mempipe spins.
pub(super) const COLUMNS: [(&str, &str); 4] =
    [("mempipe", "shm-spin"), ("pipe", "pipe"), ("tcp", "tcp"), ("unix", "uds-stream")];

const fn line(a: u32, b: u32, mempipe: Option<f64>, pipe: f64, tcp: f64, unix: f64) -> Line {
    ((a, b), [mempipe, Some(pipe), Some(tcp), Some(unix)])
}

/// Table 1: no load.
pub(super) const TABLE_1: [Line; 16] = [
    line(0, 0, None, 6.3, 13.0, 11.0),
    line(0, 1, Some(0.13), 4.8, 36.0, 8.0),
    line(0, 2, Some(0.56), 13.0, 26.0, 14.0),
    line(0, 3, Some(0.52), 12.0, 26.0, 14.0),
    line(1, 0, Some(0.28), 12.0, 36.0, 16.0),
    line(1, 1, None, 4.8, 13.0, 11.0),
    line(1, 2, Some(0.58), 8.0, 26.0, 6.2),
    line(1, 3, Some(0.20), 5.6, 25.0, 14.0),
    line(2, 0, Some(0.54), 12.0, 26.0, 13.0),
    line(2, 1, Some(0.58), 12.0, 26.0, 14.0),
    line(2, 2, None, 8.7, 14.0, 11.0),
    line(2, 3, Some(0.28), 4.8, 35.0, 6.2),
    line(3, 0, Some(0.24), 9.0, 26.0, 6.1),
    line(3, 1, Some(0.56), 12.0, 26.0, 15.0),
    line(3, 2, Some(0.33), 13.0, 35.0, 19.0),
    line(3, 3, None, 7.8, 12.0, 6.0),
];

/// Table 2: under load.
pub(super) const TABLE_2: [Line; 16] = [
    line(0, 0, None, 6.7, 11.0, 11.0),
    line(0, 1, Some(0.12), 66.0, 21.0, 48.0),
    line(0, 2, Some(0.24), 25.0, 22.0, 81.0),
    line(0, 3, Some(0.21), 9.4, 21.0, 19.0),
    line(1, 0, Some(0.12), 14.0, 19.0, 70.0),
    line(1, 1, None, 10.0, 16.0, 9.5),
    line(1, 2, Some(0.22), 45.0, 17.0, 28.0),
    line(1, 3, Some(0.22), 18.0, 14.0, 28.0),
    line(2, 0, Some(0.21), 57.0, 19.0, 59.0),
    line(2, 1, Some(0.20), 83.0, 22.0, 44.0),
    line(2, 2, None, 11.0, 13.0, 9.0),
    line(2, 3, Some(0.10), 16.0, 28.0, 116.0),
    line(3, 0, Some(0.21), 48.0, 19.0, 58.0),
    line(3, 1, Some(0.22), 26.0, 16.0, 78.0),
    line(3, 2, Some(0.12), 110.0, 29.0, 67.0),
    line(3, 3, None, 4.0, 12.0, 8.9),
];

/// Describes how the two CPUs of a pair are related on the study's machine: CPUs 0 and 1 share a core, 2 and 3 share
/// another.
pub(super) fn relation((a, b): (u32, u32)) -> &'static str {
    match () {
        () if a == b => "same core",
        () if a / 2 == b / 2 => "two threads of one core",
        () => "two cores",
    }
}
