//! The log of a tipcd on standard output. It is limited in rate and written by a separate thread, so that a reader that
//! does not read, a full disk or a closed pipe never delays the node.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// Maximum number of lines in the writer's queue.
const WAITING_MAX: usize = 256;

/// Maximum burst: as many lines as the average rate allows in this number of seconds.
const BURST_SECONDS: u32 = 10;

/// How long [`Journal::end`] waits for a reader that does not read.
const END_LIMIT: Duration = Duration::from_millis(500);

/// The number of lines that may be logged, as a token bucket.
#[derive(Debug)]
struct Budget {
    per_second: f64,
    most: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    fn new(per_second: u32, at: Instant) -> Self {
        let most = f64::from(per_second) * f64::from(BURST_SECONDS);
        Self { per_second: per_second.into(), most, left: most, at }
    }

    /// Adds what has accrued since the last call.
    fn accrue(&mut self, at: Instant) {
        let passed = at.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.most);
        self.at = at;
    }

    fn take(&mut self, at: Instant) -> bool {
        self.accrue(at);
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

/// The log of a tipcd.
#[derive(Debug)]
pub(crate) struct Journal {
    lines: Option<SyncSender<String>>,
    ended: Receiver<()>,
    budget: Budget,
    left_out: u64,
}

impl Journal {
    /// Creates a log that writes to `out`, at most `per_second` lines on average.
    pub(crate) fn to(out: File, per_second: u32) -> io::Result<Self> {
        let (lines, waiting) = mpsc::sync_channel::<String>(WAITING_MAX);
        let (end, ended) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("journal".into()).spawn(move || {
            write_all(out, &waiting);
            let _ = end.send(());
        })?;
        let budget = Budget::new(per_second, Instant::now());
        Ok(Self { lines: Some(lines), ended, budget, left_out: 0 })
    }

    /// Creates a log without output.
    pub(crate) fn silent() -> Self {
        let (_, ended) = mpsc::sync_channel(1);
        Self { lines: None, ended, budget: Budget::new(0, Instant::now()), left_out: 0 }
    }

    /// Logs a line. The line is built only if the limit allows it.
    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        if self.lines.is_none() {
            return;
        }
        self.tell_of_left_out();
        if self.left_out > 0 || !self.budget.take(Instant::now()) || !self.put(line()) {
            self.left_out += 1;
        }
    }

    /// Logs how many lines were left out, once the rate limit permits and the writer's queue has room. Must be called
    /// regularly.
    pub(crate) fn tell_of_left_out(&mut self) {
        if self.left_out == 0 {
            return;
        }
        self.budget.accrue(Instant::now());
        // Wait for some budget rather than reporting after each line: during a persistent flood this logs about once per second.
        let enough = self.budget.per_second.min(self.budget.most);
        if self.budget.left >= enough.max(1.0) && self.put(left_out(self.left_out)) {
            self.budget.left -= 1.0;
            self.left_out = 0;
        }
    }

    /// Logs the final summary regardless of the rate limit, and waits until it has been written, at most for
    /// [`END_LIMIT`].
    pub(crate) fn end(mut self, words: String) {
        let words = match self.left_out {
            0 => words,
            count => format!("{}\n{words}", left_out(count)),
        };
        if !words.is_empty() {
            self.put(words);
        }
        if self.lines.take().is_some() {
            let _ = self.ended.recv_timeout(END_LIMIT);
        }
    }

    fn put(&mut self, line: String) -> bool {
        let Some(lines) = &self.lines else { return false };
        match lines.try_send(line) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => {
                // There is no reader any more.
                (self.lines, self.left_out) = (None, 0);
                false
            }
        }
    }
}

fn left_out(count: u64) -> String {
    format!(
        "lines left out here: {count} (--log-rate limits the log; `crossway tipc` shows the state)"
    )
}

/// Writes lines until the log ends or its reader is gone. Lines are lost while the disk is full; later ones may fit.
fn write_all(mut out: File, lines: &Receiver<String>) {
    while let Ok(mut line) = lines.recv() {
        line.push('\n');
        if let Err(error) = out.write_all(line.as_bytes())
            && error.kind() == ErrorKind::BrokenPipe
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_flood_is_cut_and_reported() {
        let mut file = tempfile::tempfile().unwrap();
        let mut journal = Journal::to(file.try_clone().unwrap(), 1).unwrap();
        for n in 0..1_000 {
            journal.say(|| format!("line {n}"));
        }
        journal.end("the end".into());
        let mut text = String::new();
        io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        // Ten seconds' worth, plus what accrued if the machine was slow.
        let (said, rest) = lines.split_at(lines.len() - 2);
        assert!((10..500).contains(&said.len()), "{text}");
        assert_eq!(said[9], "line 9");
        let told = said.iter().filter(|line| line.contains("left out")).count();
        assert!(told < said.len() - 9, "{text}");
        assert!(rest[0].contains("lines left out here: "), "{text}");
        assert_eq!(rest[1], "the end");
    }

    #[test]
    fn a_reader_that_does_not_read_or_is_gone_delays_nothing() {
        let (reader, writer) = io::pipe().unwrap();
        let mut journal = Journal::to(std::os::fd::OwnedFd::from(writer).into(), u32::MAX).unwrap();
        // More than the pipe and the queue can hold; it must return nevertheless.
        for _ in 0..2_000 {
            journal.say(|| "x".repeat(1_000));
        }
        assert!(journal.left_out > 0);
        drop(reader);
        journal.end("the end".into());
    }

    #[test]
    fn room_accrues_with_time() {
        let begin = Instant::now();
        let mut budget = Budget::new(2, begin);
        let takes = |budget: &mut Budget, at| (0..100).filter(|_| budget.take(at)).count();
        assert_eq!(takes(&mut budget, begin), 20);
        assert_eq!(takes(&mut budget, begin + Duration::from_secs(3)), 6);
        assert_eq!(takes(&mut budget, begin + Duration::from_secs(3_600)), 20);
    }
}
