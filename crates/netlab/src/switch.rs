//! A learning Ethernet switch in user space that impairs the frames that pass it: for kernels without netem, and where
//! a seed must reproduce the same losses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_sys::lifeline::Lifeline;
use crossway_sys::port::{Batch, Port};
use crossway_sys::{affinity, netns, poll};

use crate::build::port;
use crate::impairer::{Due, Impairer, ImpairmentCounts};
use crate::network::namespace_path;
use crate::{NetError, Network};

/// Number of frames taken from a port at a time, before the other ports have their turn.
const BATCH: usize = 64;

/// Maximum number of frames that wait for their delay, over all links; the same limit that netem gets. Further frames
/// are lost.
const MAX_WAITING_FRAMES: usize = 100_000;

/// The output of a switch process once it forwards frames.
pub(crate) const READY: &str = "ready";

/// The open ports of a network's switch.
pub(crate) struct Switch {
    ports: Vec<Port>,
    impairers: Vec<Impairer>,
    counts: Arc<Mutex<ImpairmentCounts>>,
    stations: BTreeMap<[u8; 6], usize>,
    /// Frames that wait for an instant, the earliest on top; frames with equal instants keep their order.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// For each port, frames that wait for the port's next frame.
    held: Vec<Vec<Waiting>>,
    /// Frames to send now, by outgoing port.
    leaving: Vec<Vec<Vec<u8>>>,
    serial: u64,
    start: Instant,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Duration,
    serial: u64,
    from: usize,
    frame: Vec<u8>,
}

/// A switch that runs on a thread of this process until dropped.
#[derive(Debug)]
pub(crate) struct Running {
    hold: Option<OwnedFd>,
    worker: Option<JoinHandle<()>>,
    counts: Arc<Mutex<ImpairmentCounts>>,
}

impl Switch {
    /// Opens every port of the network's switch.
    pub(crate) fn open(network: &Network) -> Result<Switch, NetError> {
        let space =
            network.switch.as_deref().map(namespace_path).ok_or_else(|| NetError::Unknown {
                kind: "switch",
                name: network.name.clone(),
                known: "its two hosts are joined directly".to_owned(),
            })?;
        let ports = netns::inside(&space, || {
            let hosts = network.hosts.iter().enumerate();
            hosts.map(|(at, host)| Port::open(&port(at, host))).collect::<Result<Vec<_>, _>>()
        })??;
        let impairer = |link| Impairer::new(&network.link.impairment, link as u64);
        Ok(Switch {
            impairers: (0..ports.len()).map(impairer).collect(),
            held: ports.iter().map(|_| Vec::new()).collect(),
            leaving: ports.iter().map(|_| Vec::new()).collect(),
            ports,
            counts: Arc::default(),
            stations: BTreeMap::new(),
            waiting: BinaryHeap::new(),
            serial: 0,
            start: Instant::now(),
        })
    }

    /// Starts the switch on a thread, on one of the given CPUs, if any.
    pub(crate) fn start(self, cpus: &[u32]) -> Result<Running, NetError> {
        let (stop, hold) = Lifeline::pair()?;
        let counts = Arc::clone(&self.counts);
        let cpu = cpus.first().copied();
        let worker = std::thread::spawn(move || {
            if let Some(cpu) = cpu {
                let _ = affinity::pin(cpu);
            }
            self.run(&stop);
        });
        Ok(Running { hold: Some(hold), worker: Some(worker), counts })
    }

    /// Runs until `stop` becomes readable or is hung up.
    pub(crate) fn run(mut self, stop: &impl AsFd) {
        let mut batch = Batch::new(BATCH);
        loop {
            let fds: Vec<_> =
                std::iter::once(stop.as_fd()).chain(self.ports.iter().map(AsFd::as_fd)).collect();
            let until = self.next_due().map(|due| self.start + due);
            let Ok(ready) = poll::any_readable(&fds, until) else { return };
            if ready[0] {
                return;
            }
            let mut counts = ImpairmentCounts::default();
            for at in 0..self.ports.len() {
                if ready[at + 1] {
                    self.take(at, &mut batch, &mut counts);
                }
            }
            self.release();
            // Before the frames leave: whoever has received one finds it counted.
            add(&self.counts, &counts);
            let overflowed = self.send();
            add(&self.counts, &ImpairmentCounts { overflowed, ..ImpairmentCounts::default() });
        }
    }

    fn next_due(&self) -> Option<Duration> {
        let held = self.held.iter().flatten().map(|w| w.due);
        held.chain(self.waiting.peek().map(|Reverse(w)| w.due)).min()
    }

    /// Receives a batch of frames from a port and decides what happens to each.
    fn take(&mut self, from: usize, batch: &mut Batch, counts: &mut ImpairmentCounts) {
        // A port that is down or removed delivers no frames; the host's end of the link shows the error to the user.
        if self.ports[from].receive(batch).unwrap_or(0) == 0 {
            return;
        }
        let now = self.start.elapsed();
        for frame in batch.frames() {
            if let Some(source) = station(frame, 6) {
                self.stations.insert(source, from);
            }
            let released = std::mem::take(&mut self.held[from]);
            for due in self.impairers[from].draw(now, counts).into_iter().flatten() {
                self.serial += 1;
                let (due, behind_next) = match due {
                    Due::At(due) => (due, false),
                    Due::BehindNext(due) => (due, true),
                };
                let waiting = Waiting { due, serial: self.serial, from, frame: frame.to_vec() };
                if behind_next {
                    self.held[from].push(waiting);
                } else if due <= now && self.waiting.is_empty() {
                    forward(&self.stations, &mut self.leaving, waiting);
                } else if self.waiting.len() < MAX_WAITING_FRAMES {
                    self.waiting.push(Reverse(waiting));
                } else {
                    counts.overflowed += 1;
                }
            }
            for waiting in released {
                forward(&self.stations, &mut self.leaving, waiting);
            }
        }
    }

    /// Forwards the frames that are due.
    fn release(&mut self) {
        let now = self.start.elapsed();
        while self.waiting.peek().is_some_and(|Reverse(w)| w.due <= now) {
            if let Some(Reverse(waiting)) = self.waiting.pop() {
                forward(&self.stations, &mut self.leaving, waiting);
            }
        }
        for held in &mut self.held {
            for waiting in held.extract_if(.., |w| w.due <= now) {
                forward(&self.stations, &mut self.leaving, waiting);
            }
        }
    }

    /// Sends the frames that were forwarded. Returns the number of those that did not fit into a port's queue.
    fn send(&mut self) -> u64 {
        let mut overflowed = 0;
        for (port, frames) in self.ports.iter().zip(&mut self.leaving) {
            if !frames.is_empty() {
                overflowed += port.send(frames) as u64;
                frames.clear();
            }
        }
        overflowed
    }
}

/// Runs the switch of the network `name` in this process until the process is killed. This impairs a network that
/// outlives the process that created it. Prints `ready` once it forwards frames.
///
/// # Errors
/// There is no such network, or its ports cannot be opened.
pub fn run_network_switch(name: &str) -> Result<(), NetError> {
    crossway_sys::confinement::close_inherited();
    let network = crate::find(name)?;
    let switch = Switch::open(&network)?;
    if let Some(cpu) = network.switch_cpus.first() {
        affinity::pin(*cpu)?;
    }
    println!("{READY}");
    let (stop, _hold) = Lifeline::pair()?;
    switch.run(&stop);
    Ok(())
}

/// Forwards a frame to the port where its destination was seen, or to all other ports if that is unknown or a group.
fn forward(stations: &BTreeMap<[u8; 6], usize>, leaving: &mut [Vec<Vec<u8>>], waiting: Waiting) {
    let Some(destination) = station(&waiting.frame, 0) else { return };
    // The lowest bit of the first byte marks a group address (IEEE 802).
    let known = if destination[0] & 1 == 0 { stations.get(&destination) } else { None };
    match known {
        Some(&to) if to == waiting.from => {}
        Some(&to) => leaving[to].push(waiting.frame),
        None => {
            for to in (0..leaving.len()).filter(|to| *to != waiting.from) {
                leaving[to].push(waiting.frame.clone());
            }
        }
    }
}

/// The address at an offset of the Ethernet header: 0 destination, 6 source.
fn station(frame: &[u8], offset: usize) -> Option<[u8; 6]> {
    let at = Port::HEADER_BYTES + offset;
    frame.get(at..at + 6)?.try_into().ok()
}

fn add(total: &Mutex<ImpairmentCounts>, more: &ImpairmentCounts) {
    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
    total.frames += more.frames;
    total.lost += more.lost;
    total.duplicated += more.duplicated;
    total.reordered += more.reordered;
    total.overflowed += more.overflowed;
}

impl Running {
    /// Counts of the frames so far.
    pub(crate) fn counts(&self) -> ImpairmentCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.hold.take());
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(destination: [u8; 6]) -> Waiting {
        let mut frame = vec![0; Port::HEADER_BYTES];
        frame.extend(destination);
        frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
        Waiting { due: Duration::ZERO, serial: 0, from: 0, frame }
    }

    #[test]
    fn frames_go_where_their_station_is_and_otherwise_everywhere_but_back() {
        let there = [2, 0, 0, 0, 0, 1];
        let sent = |stations: &[([u8; 6], usize)], destination| {
            let mut leaving = vec![Vec::new(), Vec::new(), Vec::new()];
            forward(&stations.iter().copied().collect(), &mut leaving, frame(destination));
            leaving.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sent(&[(there, 2)], there), [0, 0, 1]);
        assert_eq!(sent(&[], there), [0, 1, 1]);
        assert_eq!(
            sent(&[(there, 0)], there),
            [0, 0, 0],
            "its station is at the port it came from"
        );
        let group = [0xff; 6];
        assert_eq!(sent(&[(group, 2)], group), [0, 1, 1]);
        assert_eq!(station(&[0; 15], 0), None, "too short for a frame");
    }
}
