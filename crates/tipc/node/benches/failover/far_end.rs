//! The far end of the traffic: a program in a guest that uses the TIPC of the guest's kernel. It answers queries about
//! what it has observed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crossway_tipc_client::{Address, Backend, Patience, Scope, ServiceRange, Socket, SocketKind};

use super::flows::Flows;

/// The first argument of this program when it is started in the guest.
pub(crate) const ROLE: &str = "far-end";

/// Type and instance of the service at which the far end answers queries.
const ANSWERS: (u32, u32) = (2_100, 0);

/// Interval between two messages of a flow. A guest's kernel and its programs share one CPU, and could not keep up with
/// five times as many messages.
pub(crate) const PACE: Duration = Duration::from_millis(5);

/// The service type for link states: the kernel publishes a binding when a link comes up and withdraws it when the link
/// goes down.
const LINK_STATE: u32 = 2;
const WITHDRAWN: u32 = 2;

/// A query, sent together with an instant. Instants and times are those of the guest's clock, in nanoseconds since
/// 1970.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Question {
    /// The current time.
    Clock,
    /// The longest pause that ended after the instant, in any flow, in nanoseconds.
    Pause,
    /// The first time after the instant at which a link went down; 0 if none did.
    Down,
    /// The total number of messages received. After this query, the far end exits.
    Finish,
}

const QUESTIONS: [Question; 4] =
    [Question::Clock, Question::Pause, Question::Down, Question::Finish];

fn soon() -> Patience {
    Patience::Until(Instant::now() + Duration::from_secs(60))
}

fn nanoseconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Sends a query, with the instant `at`, to the far end and returns the answer.
pub(crate) fn ask(socket: &Socket, what: Question, at: u64) -> anyhow::Result<u64> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(what as u64).to_ne_bytes());
    bytes[8..].copy_from_slice(&at.to_ne_bytes());
    socket.send(&bytes, Some(Address::service(ANSWERS.0, ANSWERS.1)), soon())?;
    let mut answer = [0; 8];
    socket.recv(&mut answer, soon())?;
    Ok(u64::from_ne_bytes(answer))
}

/// Starts to record the times at which links go down.
fn watch_links() -> Arc<Mutex<Vec<u64>>> {
    let downs = Arc::new(Mutex::new(Vec::new()));
    let topology = Socket::open_on(&Backend::Kernel, SocketKind::Seqpacket).expect("a socket");
    topology.connect(Some(Address::service(1, 1)), soon()).expect("the topology service");
    let subscription = [LINK_STATE, 0, u32::MAX, u32::MAX, 1, 0, 0];
    let bytes: Vec<u8> = subscription.into_iter().flat_map(u32::to_ne_bytes).collect();
    topology.send(&bytes, None, soon()).expect("a subscription");
    let noted = downs.clone();
    std::thread::spawn(move || {
        let mut event = [0; 64];
        while topology.recv(&mut event, Patience::Forever).is_ok_and(|len| len > 0) {
            if event[..4] == WITHDRAWN.to_ne_bytes() {
                noted.lock().expect("no panic").push(nanoseconds(SystemTime::now()));
            }
        }
    });
    downs
}

/// Runs the far end of the flows, and answers queries until it is asked to finish.
pub(crate) fn run() {
    let downs = watch_links();
    let flows = Flows::start_ends([None, Some(&Backend::Kernel)], PACE);
    let socket = Socket::open_on(&Backend::Kernel, SocketKind::Rdm).expect("a socket");
    socket.bind(ServiceRange::single(ANSWERS.0, ANSWERS.1), Scope::Cluster).expect("a name");
    let mut bytes = [0; 16];
    loop {
        let asked = socket.recv_message(&mut bytes, Patience::Forever).expect("a question");
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let at = word(8);
        let answer = match QUESTIONS.get(word(0) as usize) {
            Some(Question::Clock) => nanoseconds(SystemTime::now()),
            Some(Question::Pause) => {
                let past = nanoseconds(SystemTime::now()).saturating_sub(at);
                let since = Instant::now().checked_sub(Duration::from_nanos(past));
                let pause = flows.longest_pause_since(since.unwrap_or_else(Instant::now));
                pause.as_nanos() as u64
            }
            Some(Question::Down) => {
                let downs = downs.lock().expect("no panic");
                downs.iter().find(|down| **down > at).copied().unwrap_or(0)
            }
            Some(Question::Finish) => {
                let messages = flows.finish().to_ne_bytes();
                socket.send(&messages, Some(Address::Socket(asked.from)), soon()).expect("room");
                return;
            }
            None => panic!("no such question"),
        };
        let to = Some(Address::Socket(asked.from));
        socket.send(&answer.to_ne_bytes(), to, soon()).expect("room");
    }
}
