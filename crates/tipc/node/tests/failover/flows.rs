//! Sends continuous messages and streams between the nodes. Each flow is checked for completeness and order, and its
//! arrival times are recorded.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_tipc_client::{
    Address, Backend, Errno, Patience, Scope, ServiceRange, Socket, SocketKind,
};

/// Number of flows of each kind: enough that some have even and some odd port numbers, by which a node divides its
/// traffic between two links.
const FLOWS_OF_A_KIND: u32 = 6;
/// Default interval between two messages of a flow.
const PACE: Duration = Duration::from_millis(1);
const WATCHDOG: Duration = Duration::from_secs(240);
const MESSAGE_LEN: usize = 256;
/// Ends a flow. It is sent in place of a sequence number.
const LAST: u64 = u64::MAX;

/// The flows of both kinds in both directions.
pub(crate) struct Flows {
    stop: Arc<AtomicBool>,
    flows: Vec<Flow>,
}

struct Flow {
    arrivals: Arc<Mutex<Vec<Instant>>>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<u64>>,
}

fn soon() -> Patience {
    Patience::Until(Instant::now() + WATCHDOG)
}

fn message(number: u64) -> [u8; MESSAGE_LEN] {
    let mut bytes = [number as u8; MESSAGE_LEN];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// Returns the final message, which is sent after `count` messages.
fn last_message(count: u64) -> [u8; MESSAGE_LEN] {
    let mut bytes = message(LAST);
    bytes[8..16].copy_from_slice(&count.to_ne_bytes());
    bytes
}

impl Flows {
    pub(crate) fn start(nodes: [&Path; 2]) -> Self {
        let nodes = nodes.map(|path| Backend::Node(path.to_owned()));
        Self::start_ends([Some(&nodes[0]), Some(&nodes[1])], PACE)
    }

    /// Starts this process's ends of all flows, with this interval between two messages of a flow.
    pub(crate) fn start_ends(nodes: [Option<&Backend>; 2], pace: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut flows = Vec::new();
        for n in 0..FLOWS_OF_A_KIND {
            for kind in [SocketKind::Rdm, SocketKind::Stream] {
                let (from, to) = (nodes[n as usize % 2], nodes[1 - n as usize % 2]);
                flows.push(Flow::start((kind, n), [from, to], pace, &stop));
            }
        }
        Self { stop, flows }
    }

    /// The longest pause that ended after `begin`, in any flow.
    pub(crate) fn longest_pause_since(&self, begin: Instant) -> Duration {
        let pause = |flow: &Flow| {
            let arrivals = flow.arrivals.lock().expect("no panic");
            let pairs = arrivals.windows(2).rev().take_while(|pair| pair[1] >= begin);
            pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
        };
        self.flows.iter().map(pause).max().unwrap_or_default()
    }

    /// Waits until every flow received here has delivered a message after this instant.
    pub(crate) fn await_arrivals_after(&self, instant: Instant) {
        let begin = Instant::now();
        let goes_on = |flow: &Flow| {
            flow.arrivals.lock().expect("no panic").last().is_some_and(|last| *last > instant)
        };
        let here = |flow: &&Flow| flow.receiver.is_some();
        while !self.flows.iter().filter(here).all(goes_on) {
            assert!(begin.elapsed() < WATCHDOG, "a flow has stopped");
            std::thread::sleep(PACE);
        }
    }

    /// Ends all flows that are sent from here, and waits for the end of those that are received here. Returns the
    /// number of messages received, after checking that none is missing.
    pub(crate) fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = 0;
        for flow in self.flows {
            flow.sender.map_or(Ok(()), JoinHandle::join).expect("the sender found nothing wrong");
            let received = flow.receiver.map_or(Ok(0), JoinHandle::join);
            all += received.expect("the receiver found nothing wrong");
        }
        all
    }
}

impl Flow {
    fn start(
        (kind, n): (SocketKind, u32),
        [from, to]: [Option<&Backend>; 2],
        pace: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Self {
        let socket = |at: &Backend| Socket::open_on(at, kind).unwrap();
        let service = 2000 + kind as u32;
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let receiver = to.map(|to| {
            let server = socket(to);
            if kind == SocketKind::Stream {
                server.listen().unwrap();
            }
            server.bind(ServiceRange::single(service, n), Scope::Cluster).unwrap();
            let seen = arrivals.clone();
            std::thread::spawn(move || {
                let socket = match kind {
                    SocketKind::Stream => server.accept(soon()).unwrap().0,
                    _ => server,
                };
                receive(&socket, &seen)
            })
        });
        let sender = from.map(|from| {
            let (client, stop) = (socket(from), stop.clone());
            let to = Address::service(service, n);
            std::thread::spawn(move || send(kind, &client, to, &stop, pace))
        });
        Self { arrivals, sender, receiver }
    }
}

/// Sends numbered messages until `stop` is set, then the final one.
fn send(kind: SocketKind, client: &Socket, to: Address, stop: &AtomicBool, pace: Duration) {
    if kind == SocketKind::Stream {
        retry(|| client.connect(Some(to), soon()));
    }
    let to = Some(to).filter(|_| kind != SocketKind::Stream);
    let mut number = 0;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let bytes = if last { last_message(number) } else { message(number) };
        retry(|| match client.send(&bytes, to, soon()) {
            // The name is not known here yet: only allowed at the beginning.
            Err(errno) if number > 0 => panic!("message {number}: {errno}"),
            outcome => outcome.map(|len| assert_eq!(len, bytes.len())),
        });
        if last {
            return;
        }
        number += 1;
        std::thread::sleep(pace);
    }
}

fn retry(mut call: impl FnMut() -> Result<(), Errno>) {
    let begin = Instant::now();
    while let Err(errno) = call() {
        assert!(errno == Errno::HOSTUNREACH && begin.elapsed() < WATCHDOG, "{errno}");
        std::thread::sleep(PACE);
    }
}

/// Receives numbered messages until the final one; each must be the next in sequence.
fn receive(socket: &Socket, arrivals: &Mutex<Vec<Instant>>) -> u64 {
    let (mut buf, mut number) = ([0; MESSAGE_LEN], 0);
    loop {
        let mut have = 0;
        while have < MESSAGE_LEN {
            match socket.recv(&mut buf[have..], soon()) {
                Ok(len) if len > 0 => have += len,
                outcome => panic!("after {number} messages: {outcome:?}"),
            }
        }
        if buf == last_message(number) {
            return number;
        }
        assert!(buf == message(number), "not message {number}: {:?}", &buf[..9]);
        number += 1;
        arrivals.lock().expect("no panic").push(Instant::now());
    }
}
