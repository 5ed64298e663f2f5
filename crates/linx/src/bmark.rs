//! The cases of LINX's own benchmark, `linx_bmark`: attach delay, round trip, burst, ramps of sizes with the CPU they take, and many pairs.
//!
//! A [`serve`]r answers; it runs in a process of its own, on this node or beyond links. A [`Client`] asks and measures.

use std::path::Path;
use std::time::{Duration, Instant};

use crossway_sys::usage::Usage;

use crate::signal::{ATTACH, USER_BASE};
use crate::{Endpoint, Error, Filter, Signal, Spid};

/// The name of a server unless it is given another one.
pub const SERVER: &str = "crossway-linx-bench";

/// Bytes of a signal in the cases of one size, as `linx_bmark` has it.
pub const SIZE: usize = 2048;
/// Signals of a burst, as `linx_bmark` has it.
pub const BURST: u32 = 40;
/// Steps of a ramp and its ends in bytes, as `linx_bmark` has them.
pub const RAMP: (usize, usize, usize) = (10, 1000, 65_536);

/// Comes back as it is.
const ECHO: u32 = USER_BASE + 0x0b00;
/// Is counted.
const COUNT: u32 = USER_BASE + 0x0b01;
/// Comes back when everything before it was received.
const LAST: u32 = USER_BASE + 0x0b02;
/// Comes back with the CPU time of the server's process so far, in nanoseconds, big-endian.
const CPU: u32 = USER_BASE + 0x0b03;
/// Is answered by an endpoint of the server that was opened for it, and closes that when it comes to it.
const OPEN: u32 = USER_BASE + 0x0b04;

/// What a case came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Bytes of each signal.
    pub size: usize,
    /// What was timed: so many round trips, bursts or deaths.
    pub times: usize,
    /// Signals in all, answers not counted.
    pub signals: u64,
    /// The median, in nanoseconds.
    pub median_ns: u64,
    /// 99 of 100 took no longer, in nanoseconds.
    pub p99_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// All of it, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the client's process, in nanoseconds.
    pub client_cpu_ns: u64,
    /// CPU time of the server's process, in nanoseconds. Nodes are in neither.
    pub server_cpu_ns: u64,
}

impl Figures {
    /// Signals in a second.
    pub fn signals_per_s(&self) -> f64 {
        self.signals as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Both processes' share of one CPU, in percent; up to 200.
    pub fn cpu_percent(&self) -> f64 {
        (self.client_cpu_ns + self.server_cpu_ns) as f64 * 100.0 / self.elapsed_ns.max(1) as f64
    }
}

/// Answers clients at an endpoint of this name, until the node ends.
///
/// # Errors
/// As [`Endpoint::open`] and [`Endpoint::receive`].
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
            // Nobody's who measures.
            _ => Ok(()),
        };
        match answered {
            // It gave up.
            Ok(()) | Err(Error::Gone { .. } | Error::Unknown { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens an endpoint for a client and closes it as soon as the client wants that; the client waits for nothing else meanwhile.
fn open_for(dir: &Path, client: Spid) -> Result<(), Error> {
    let mut short = Endpoint::open(dir, "crossway-linx-bench-short")?;
    // Its sender shows the client who this is.
    short.send_copy(OPEN, &[], client, None)?;
    short.attach(client, None)?;
    short.receive(&Filter::only(&[OPEN, ATTACH]), None)?;
    Ok(())
}

/// Asks a server, and measures.
#[derive(Debug)]
pub struct Client {
    own: Endpoint,
    server: Spid,
    patience: Duration,
}

impl Client {
    /// Finds the server at this path, waiting for it as long as for every answer.
    ///
    /// # Errors
    /// As [`Endpoint::open`] and [`Endpoint::hunt_and_wait`].
    pub fn new(dir: &Path, server: &str, patience: Duration) -> Result<Client, Error> {
        let mut own = Endpoint::open(dir, "crossway-linx-bench-client")?;
        let server = own.hunt_and_wait(server, Some(Instant::now() + patience))?;
        own.attach(server, None)?;
        Ok(Client { own, server, patience })
    }

    /// The next signal of this number.
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

    /// CPU time of this process and of the server's so far.
    fn cpu_ns(&mut self) -> Result<(u64, u64), Error> {
        self.send(CPU, &[])?;
        let signal = self.answer(CPU)?;
        let of_server = signal.payload().try_into().map_or(0, u64::from_be_bytes);
        Ok((Usage::now().cpu_ns, of_server))
    }

    /// Times something, `signals` of `size` bytes each time.
    fn times(
        &mut self,
        size: usize,
        times: usize,
        signals: u64,
        mut once: impl FnMut(&mut Self) -> Result<Duration, Error>,
    ) -> Result<Figures, Error> {
        // Channels are made and buffers are warm afterwards.
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

    /// From the signal that lets an endpoint of the server close to the signal of its end.
    ///
    /// # Errors
    /// As [`Endpoint::receive`]; [`Error::Gone`] if the server ends, [`Error::TimedOut`] if it does not answer.
    pub fn attach_delay(&mut self, times: usize) -> Result<Figures, Error> {
        self.times(crate::limits::LEAST_SIGNAL, times, 1, |client| {
            client.send(OPEN, &[])?;
            let short = client.answer(OPEN)?.sender().ok_or(Error::TimedOut)?;
            client.own.attach(short, Some(Signal::bare(OPEN)))?;
            // The node has it.
            client.own.info(short)?;
            let start = Instant::now();
            client.own.send_copy(OPEN, &[], short, None)?;
            client.answer(OPEN)?;
            Ok(start.elapsed())
        })
    }

    /// A signal there and back.
    ///
    /// # Errors
    /// As [`Client::attach_delay`].
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

    /// Signals one after the other, until the server has received the last one.
    ///
    /// # Errors
    /// As [`Client::attach_delay`].
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

/// The sizes of a ramp.
pub fn ramp() -> impl Iterator<Item = usize> {
    let (steps, first, last) = RAMP;
    (0..steps).map(move |step| first + (last - first) * step / (steps - 1))
}

/// What follows the number of a signal of so many bytes.
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
    fn every_case_counts_what_it_was_asked_for_and_an_end_of_the_server_is_told() {
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
