//! Tests a mechanism within one process, and converts the outcome to a probe's result.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crossway_sys::{Obstacle, seccomp};

use crate::erased::Erased;
use crate::{Mechanism, OpenError, Probe, Rx, Spec, Tx, Wait, opening};

impl Probe {
    /// Returns the result for a mechanism that the kernel provides.
    pub(crate) fn of_kernel<T, E: Display>(tried: Result<T, E>, remedy: &str) -> Self {
        Self::of(tried, kernel_version, remedy)
    }

    /// Returns the result for any mechanism. `version` returns the version of the software that provides it.
    pub(crate) fn of<T, E: Display>(
        tried: Result<T, E>,
        version: impl FnOnce() -> String,
        remedy: &str,
    ) -> Self {
        match tried {
            Ok(_) => Probe::Ready { version: version() },
            Err(why) => Probe::Missing(obstacle(why.to_string(), remedy, seccomp::is_filtered())),
        }
    }
}

/// Why a mechanism does not work, and what helps. A limit of this process that the error names is
/// the cause, whatever mechanism it is.
fn obstacle(why: String, usual: &str, is_filtered: bool) -> Obstacle {
    if why.contains("RLIMIT_NOFILE") {
        return Obstacle::said(&why, usual);
    }
    let remedy = remedy_for(&why, usual, is_filtered);
    Obstacle::new(why, remedy)
}

/// What helps against a failed call. `usual` helps if the call failed by itself; but if a seccomp filter is active and
/// the error is one that filters return, the filter may be the cause, whatever mechanism it is.
fn remedy_for(why: &str, usual: &str, is_filtered: bool) -> String {
    // The end of the text of an I/O error: EPERM, EACCES, ENOSYS, EOPNOTSUPP.
    let by_filter = ["(os error 1)", "(os error 13)", "(os error 38)", "(os error 95)"];
    if !is_filtered || usual.contains("seccomp") || !by_filter.iter().any(|end| why.contains(end)) {
        return usual.to_owned();
    }
    format!(
        "a seccomp filter restricts this process, as in many containers and sandboxes, and may refuse this call: run \
         it outside of them, or start the container with --security-opt seccomp=unconfined. If that does not help: {usual}"
    )
}

/// Returns the version of the kernel, which provides most mechanisms.
pub(crate) fn kernel_version() -> String {
    format!("linux {}", crossway_sys::kernel::release())
}

/// How long an accept waits before it looks whether connecting has failed.
const STEP: Duration = Duration::from_millis(500);

/// Reaches the mechanism through virtual calls: compiled once for each of them, this would contain all of its functions
/// once more.
fn exchange(mechanism: Erased) -> Result<(), String> {
    // On a busy machine, above all in a guest, one byte may take seconds; a missing mechanism fails
    // immediately.
    let limit = Duration::from_secs(20);
    let spec = Spec { open_timeout: limit, max_message: 1024, ..Spec::default() };
    let until = Some(Instant::now() + limit);
    let (mut listener, mut offer) = (mechanism.listen)(&spec).map_err(|e| e.to_string())?;
    // In a thread, because TIPC's connect returns only after the other side's accept.
    let connecting = std::thread::spawn(move || (mechanism.connect)(&spec, &mut offer));
    let accepted = loop {
        let step = Instant::now() + STEP;
        let accepted = listener.accept(until.min(Some(step)));
        let timed_out = matches!(accepted, Err(OpenError::TimedOut { .. }));
        // If connecting has failed, nobody is to wait for.
        if !timed_out || connecting.is_finished() || until <= Some(step) {
            break accepted;
        }
    };
    let connected = connecting.join().map_err(|_| "connecting panicked".to_owned())?;
    let mut ours = connected.map_err(|e| e.to_string())?;
    let mut theirs = accepted.map_err(|e| e.to_string())?;
    ours.0.send(b"?", until).map_err(|e| e.to_string())?;
    theirs.1.recv(&mut [0], until).map_err(|e| e.to_string())?;
    Ok(())
}

/// Opens a channel within this process and sends one byte through it.
pub(crate) fn exchange_a_byte<M: Mechanism>() -> Result<(), String> {
    exchange(Erased::of::<M>())
}

/// Opens a small channel, sends a byte each way, and closes it. For rings: known to the compiler, these calls without a
/// deadline leave the deadline out of the waits that are measured.
pub(crate) fn round_trip<M: Mechanism>(wait: Wait) -> Result<(), String> {
    let spec = Spec { max_message: 64, wait, ..Spec::default() };
    let text = |e: &dyn Display| e.to_string();
    let (mut listener, mut offer) = opening::listen::<M>(&spec).map_err(|e| text(&e))?;
    let (mut our_tx, mut our_rx) = opening::accept(&mut listener, None).map_err(|e| text(&e))?;
    let (mut tx, mut rx) = opening::connect::<M>(&spec, &mut offer).map_err(|e| text(&e))?;
    let mut byte = [0];
    tx.send(b"?", None).map_err(|e| text(&e))?;
    our_rx.recv(&mut byte, None).map_err(|e| text(&e))?;
    our_tx.send(&byte, None).map_err(|e| text(&e))?;
    rx.recv(&mut byte, None).map_err(|e| text(&e))?;
    if byte == *b"?" { Ok(()) } else { Err("the byte came back changed".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_named_only_where_there_is_one_and_it_can_be_the_cause() {
        let usual = "raise the limit of open files (ulimit -n)";
        for error in [1, 13, 38, 95].map(std::io::Error::from_raw_os_error) {
            let why = format!("memfd_create: {error}");
            let remedy = remedy_for(&why, usual, true);
            assert!(remedy.contains("seccomp=unconfined") && remedy.ends_with(usual), "{remedy}");
            assert_eq!(remedy_for(&why, usual, false), usual);
        }
        let full = format!("memfd_create: {}", std::io::Error::from_raw_os_error(24));
        assert_eq!(remedy_for(&full, usual, true), usual, "EMFILE is of no filter");
    }

    #[test]
    fn a_limit_that_the_error_names_is_the_cause() {
        let full = crossway_sys::OsError::new("posix_openpt", "", crossway_sys::Errno::MFILE);
        let usual = "raise the limit of pseudoterminals";
        let found = obstacle(full.to_string(), usual, false);
        assert!(found.why.ends_with("(RLIMIT_NOFILE)"), "{found}");
        assert_eq!(found.remedy, "raise it: ulimit -n 1024");
    }
}
