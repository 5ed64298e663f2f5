//! The cases of LINX's own benchmark, `linx_bmark`: attach delay, round trip, burst, ramps of sizes with their CPU
//! time, and many pairs.
//!
//! A server ([`serve`]) answers; it runs in its own process, on this node or beyond links. A [`Client`] sends requests
//! and measures.

use std::path::Path;
use std::time::{Duration, Instant};

use crossway_sys::usage::Usage;

use crate::signal::{ATTACH, USER_BASE};
use crate::{Endpoint, Error, Filter, Signal, Spid};

/// The default name of a server.
pub const SERVER: &str = "crossway-linx-bench";

/// Size of a signal in bytes in the cases with a single size, as in `linx_bmark`.
pub const SIZE: usize = 2048;
/// Number of signals in a burst, as in `linx_bmark`.
pub const BURST: u32 = 40;
/// A ramp of signal sizes: how many sizes, and the smallest and the largest size in bytes, as in `linx_bmark`.
pub const RAMP: (usize, usize, usize) = (10, 1000, 65_536);

/// Number of a signal that the server returns unchanged.
const ECHO: u32 = USER_BASE + 0x0b00;
/// Number of a signal that the server does not answer.
const COUNT: u32 = USER_BASE + 0x0b01;
/// Number of a signal that the server returns after receiving everything before it.
const LAST: u32 = USER_BASE + 0x0b02;
/// Number of a signal that the server answers with the CPU time used by its process, in nanoseconds (big-endian).
const CPU: u32 = USER_BASE + 0x0b03;
/// Number of a signal that the server answers from a newly opened endpoint. A second one, sent to that endpoint, closes
/// it.
const OPEN: u32 = USER_BASE + 0x0b04;

/// The results of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Size of each signal in bytes.
    pub size: usize,
    /// Number of measured round trips, bursts or ends of an endpoint.
    pub times: usize,
    /// Total number of signals, not counting answers.
    pub signals: u64,
    /// The median duration in nanoseconds.
    pub median_ns: u64,
    /// The 99th percentile of the durations in nanoseconds.
    pub p99_ns: u64,
    /// The longest duration in nanoseconds.
    pub longest_ns: u64,
    /// The total duration in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the client's process, in nanoseconds.
    pub client_cpu_ns: u64,
    /// CPU time of the server's process, in nanoseconds. Like `client_cpu_ns`, it does not include the time of nodes.
    pub server_cpu_ns: u64,
}

impl Figures {
    /// Returns the number of signals per second of wall-clock time.
    pub fn signals_per_s(&self) -> f64 {
        self.signals as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the CPU usage of both processes together in percent of one CPU; up to 200.
    pub fn cpu_percent(&self) -> f64 {
        (self.client_cpu_ns + self.server_cpu_ns) as f64 * 100.0 / self.elapsed_ns.max(1) as f64
    }
}

/// Serves clients at an endpoint with this name, until an error such as the end of the node.
///
/// # Errors
/// Those of [`Endpoint::open`], [`Endpoint::receive`] and, unless the client has ended, [`Endpoint::send`].
pub fn serve(dir: &Path, name: &str) -> Result<(), Error> {
    let mut own = Endpoint::open(dir, name)?;
    loop {
        let Some(signal) = own.receive(&Filter::ANY, None)? else { continue };
        let Some(client) = signal.sender() else { continue };
        let answered = match signal.number() {
            ECHO | LAST => own.send(signal, client),
            COUNT => {
                own.free(signal);
                Ok(())
            }
            CPU => {
                let cpu_ns = Usage::now().cpu_ns.to_be_bytes();
                own.send_copy(CPU, &cpu_ns, client, None)
            }
            OPEN => open_for(dir, client),
            // Other signals are not part of a measurement.
            _ => Ok(()),
        };
        match answered {
            // The client gave up.
            Ok(()) | Err(Error::Gone { .. } | Error::Unknown { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens an endpoint for a client and closes it when the client asks for that. The server handles nothing else in the
/// meantime.
fn open_for(dir: &Path, client: Spid) -> Result<(), Error> {
    let mut short = Endpoint::open(dir, "crossway-linx-bench-short")?;
    // The sender of this signal tells the client the number of the endpoint.
    short.send_copy(OPEN, &[], client, None)?;
    short.attach(client, None)?;
    short.receive(&Filter::only(&[OPEN, ATTACH]), None)?;
    Ok(())
}

/// Sends requests to a server and measures.
#[derive(Debug)]
pub struct Client {
    own: Endpoint,
    server: Spid,
    patience: Duration,
}

impl Client {
    /// Creates a client: opens an endpoint and waits until it has found the server at this path. `patience` limits this
    /// wait and the wait for every answer.
    ///
    /// # Errors
    /// Those of [`Endpoint::open`] and [`Endpoint::hunt_and_wait`].
    pub fn new(dir: &Path, server: &str, patience: Duration) -> Result<Client, Error> {
        let mut own = Endpoint::open(dir, "crossway-linx-bench-client")?;
        let server = own.hunt_and_wait(server, Some(Instant::now() + patience))?;
        own.attach(server, None)?;
        Ok(Client { own, server, patience })
    }

    /// Waits for the next signal with this number.
    fn answer(&mut self, number: u32) -> Result<Signal, Error> {
        let until = Some(Instant::now() + self.patience);
        match self.own.receive(&Filter::only(&[number, ATTACH]), until)? {
            Some(signal) if signal.number() == number => Ok(signal),
            Some(_) => Err(Error::Gone { spid: self.server }),
            None => Err(Error::TimedOut),
        }
    }

    fn send(&mut self, number: u32, payload: &[u8]) -> Result<(), Error> {
        let until = Some(Instant::now() + self.patience);
        self.own.send_copy(number, payload, self.server, until)
    }

    /// Returns the CPU time in nanoseconds used so far by this process and by the server's.
    fn cpu_ns(&mut self) -> Result<(u64, u64), Error> {
        self.send(CPU, &[])?;
        let signal = self.answer(CPU)?;
        let of_server = signal.payload().try_into().map_or(0, u64::from_be_bytes);
        Ok((Usage::now().cpu_ns, of_server))
    }

    /// Performs an operation `times` times and measures each one. The operation sends `signals` signals of `size`
    /// bytes.
    fn times(
        &mut self,
        size: usize,
        times: usize,
        signals: u64,
        mut once: impl FnMut(&mut Self) -> Result<Duration, Error>,
    ) -> Result<Figures, Error> {
        // After these, channels exist and buffers are warm.
        for _ in 0..times.div_ceil(10) {
            once(self)?;
        }
        let before = self.cpu_ns()?;
        let start = Instant::now();
        let mut taken = Vec::with_capacity(times);
        for _ in 0..times {
            taken.push(once(self)?.as_nanos() as u64);
        }
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        let after = self.cpu_ns()?;
        taken.sort_unstable();
        let at = |share: usize| taken.get(times.saturating_sub(1) * share / 100).copied();
        Ok(Figures {
            size,
            times,
            signals: signals * times as u64,
            median_ns: at(50).unwrap_or(0),
            p99_ns: at(99).unwrap_or(0),
            longest_ns: at(100).unwrap_or(0),
            elapsed_ns,
            client_cpu_ns: after.0.saturating_sub(before.0),
            server_cpu_ns: after.1.saturating_sub(before.1),
        })
    }

    /// Measures the time from sending the signal that closes one of the server's endpoints to the arrival of the notice
    /// that this endpoint has ended.
    ///
    /// # Errors
    /// Those of [`Endpoint::send_until`] and [`Endpoint::receive`]; [`Error::Gone`] if the server ends,
    /// [`Error::TimedOut`] if it does not answer.
    pub fn attach_delay(&mut self, times: usize) -> Result<Figures, Error> {
        self.times(crate::limits::LEAST_SIGNAL, times, 1, |client| {
            client.send(OPEN, &[])?;
            let short = client.answer(OPEN)?.sender().ok_or(Error::TimedOut)?;
            client.own.attach(short, Some(Signal::bare(OPEN)))?;
            // After this the node has processed the attach.
            client.own.info(short)?;
            let start = Instant::now();
            client.own.send_copy(OPEN, &[], short, None)?;
            client.answer(OPEN)?;
            Ok(start.elapsed())
        })
    }

    /// Measures how long it takes to send a signal and receive its echo.
    ///
    /// # Errors
    /// Those of [`Client::attach_delay`].
    pub fn round_trip(&mut self, size: usize, times: usize) -> Result<Figures, Error> {
        let payload = payload(size)?;
        self.times(size, times, 1, |client| {
            let start = Instant::now();
            client.send(ECHO, &payload)?;
            let signal = client.answer(ECHO)?;
            client.own.free(signal);
            Ok(start.elapsed())
        })
    }

    /// Measures how long it takes to send `signals` signals and to receive the server's answer to the last one.
    ///
    /// # Errors
    /// Those of [`Client::attach_delay`].
    pub fn burst(&mut self, size: usize, signals: u32, times: usize) -> Result<Figures, Error> {
        let payload = payload(size)?;
        self.times(size, times, u64::from(signals), |client| {
            let start = Instant::now();
            for _ in 1..signals {
                client.send(COUNT, &payload)?;
            }
            client.send(LAST, &payload)?;
            let signal = client.answer(LAST)?;
            client.own.free(signal);
            Ok(start.elapsed())
        })
    }
}

/// Returns the sizes of a ramp in bytes.
pub fn ramp() -> impl Iterator<Item = usize> {
    let (steps, first, last) = RAMP;
    (0..steps).map(move |step| first + (last - first) * step / (steps - 1))
}

/// Returns the payload of a signal that has `size` bytes in total.
fn payload(size: usize) -> Result<Vec<u8>, Error> {
    let len = size.checked_sub(crate::limits::LEAST_SIGNAL).ok_or(Error::BadSize { size })?;
    crate::signal::check(ECHO, len)?;
    Ok(vec![0; len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, Settings, Transport};

    #[test]
    fn every_case_counts_as_requested_and_reports_the_end_of_the_server() {
        assert_eq!(ramp().collect::<Vec<_>>().len(), 10);
        assert_eq!((ramp().next(), ramp().last()), (Some(1000), Some(65_536)));
        for transport in Transport::ALL {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("n");
            let node = Node::spawn(&at, Settings { transport, ..Settings::default() }).unwrap();
            let server = std::thread::spawn({
                let at = at.clone();
                move || serve(&at, "server")
            });
            let mut client = Client::new(&at, "server", Duration::from_secs(60)).unwrap();
            let counts = |figures: Figures| (figures.size, figures.times, figures.signals);
            assert_eq!(counts(client.attach_delay(5).unwrap()), (4, 5, 5));
            let figures = client.round_trip(100, 20).unwrap();
            assert!(figures.median_ns <= figures.p99_ns && figures.p99_ns <= figures.longest_ns);
            assert!(figures.longest_ns <= figures.elapsed_ns && figures.client_cpu_ns > 0);
            assert_eq!(counts(figures), (100, 20, 20));
            assert_eq!(counts(client.burst(2048, 40, 5).unwrap()), (2048, 5, 200));
            assert!(matches!(client.round_trip(3, 1), Err(Error::BadSize { size: 3 })));
            drop(node);
            assert!(matches!(server.join().unwrap(), Err(Error::NodeGone)));
            assert!(client.round_trip(100, 1).is_err());
        }
    }
}
