//! Tests that the event loop continues while a bearer is opened or closed, however long that takes, and that requests
//! and bearers are handled correctly in the meantime.

use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_tipc_client::admin::{Administration, Order};
use crossway_tipc_proto::node::Config;

use super::*;
use crate::daemon::Daemon;
use crate::service::{Service, ServiceLimits};

const WATCHDOG: Duration = Duration::from_secs(240);

/// Blocks a thread until it is released.
#[derive(Clone)]
struct Gate {
    reached: Arc<AtomicUsize>,
    passes: Arc<Mutex<Receiver<()>>>,
}

impl Gate {
    fn pass(&self) {
        self.reached.fetch_add(1, Ordering::SeqCst);
        self.passes.lock().unwrap().recv_timeout(WATCHDOG).expect("let through");
    }
}

struct Site {
    daemon: Option<Daemon>,
    path: std::path::PathBuf,
    orders: u32,
    gate: Gate,
    let_through: mpsc::Sender<()>,
    _dir: tempfile::TempDir,
}

impl Site {
    /// Creates a daemon whose bearers are opened and closed only when the test allows it.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tipcd.sock");
        // Each order uses a connection of its own, all from the same process.
        let limits = ServiceLimits { clients_per_process: 64, ..ServiceLimits::default() };
        let service = Service::open(&path, 0o600, limits).unwrap();
        let mut daemon = Daemon::new(Runner::new(Config::default()).unwrap(), service).unwrap();
        let (let_through, passes) = mpsc::channel();
        let reached = Arc::new(AtomicUsize::new(0));
        let gate = Gate { reached, passes: Arc::new(Mutex::new(passes)) };
        let (opening, closing) = (gate.clone(), gate.clone());
        let jobs = daemon.jobs();
        jobs.open = Arc::new(move |spec, network, bytes| {
            opening.pass();
            Bearer::open(spec, network, bytes)
        });
        jobs.close = Arc::new(move |_| closing.pass());
        Self { daemon: Some(daemon), path, orders: 0, gate, let_through, _dir: dir }
    }

    /// Sends an order as a separate program would. In this process, all orders would share one connection per path,
    /// with one request at a time.
    fn order(&mut self, order: Order) -> JoinHandle<Result<Outcome, String>> {
        self.orders += 1;
        let path = self.path.with_extension(self.orders.to_string());
        std::os::unix::fs::symlink(&self.path, &path).unwrap();
        std::thread::spawn(move || {
            let operator = Administration::at(&path).map_err(|e| e.to_string())?;
            operator.order(&order).map_err(|e| e.to_string())
        })
    }

    fn turn_until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < WATCHDOG, "no outcome in time");
            self.daemon.as_mut().unwrap().turn(Duration::from_millis(1)).unwrap();
        }
    }

    fn await_gate(&mut self, times: usize) {
        self.turn_until(|site| site.gate.reached.load(Ordering::SeqCst) == times);
    }

    fn outcome(&mut self, of: JoinHandle<Result<Outcome, String>>) -> Result<Outcome, String> {
        self.turn_until(|_| of.is_finished());
        of.join().unwrap()
    }

    fn bearers(&mut self) -> usize {
        let asked = self.order(Order::Bearers);
        match self.outcome(asked) {
            Ok(Outcome::Bearers(bearers)) => bearers.len(),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a free port that no other call in this process returns.
fn port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let from = 20_000 + std::process::id() as usize % 500 * 20;
    loop {
        let port = (from + NEXT.fetch_add(1, Ordering::SeqCst)) as u16;
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn enable(port: u16) -> Order {
    let bearer = format!("udp:127.0.0.1:{port},127.0.0.2");
    Order::EnableBearer { bearer, name: None, settings: Settings::default() }
}

#[test]
fn the_node_serves_its_programs_while_a_bearer_is_opened_and_while_it_is_closed() {
    let mut site = Site::new();
    let enabling = site.order(enable(port()));
    site.await_gate(1);
    for _ in 0..20 {
        assert_eq!(site.bearers(), 0, "an order that is answered meanwhile");
    }
    assert!(!enabling.is_finished());
    site.let_through.send(()).unwrap();
    assert_eq!(site.outcome(enabling), Ok(Outcome::Done));
    assert_eq!(site.bearers(), 1);
    let disabling = site.order(Order::DisableBearer { name: "udp0".into() });
    site.await_gate(2);
    assert_eq!(site.bearers(), 0, "detached at once, closed later");
    assert!(!disabling.is_finished());
    site.let_through.send(()).unwrap();
    assert_eq!(site.outcome(disabling), Ok(Outcome::Done));
}

#[test]
fn orders_that_change_bearers_are_carried_out_one_after_the_other() {
    let mut site = Site::new();
    let port = port();
    let enabling = site.order(enable(port));
    site.await_gate(1);
    let disabling = site.order(Order::DisableBearer { name: "udp0".into() });
    site.turn_until(|site| !site.daemon.as_mut().unwrap().jobs().waiting.is_empty());
    assert_eq!(site.gate.reached.load(Ordering::SeqCst), 1);
    site.let_through.send(()).unwrap();
    site.let_through.send(()).unwrap();
    assert_eq!(site.outcome(enabling), Ok(Outcome::Done));
    assert_eq!(site.outcome(disabling), Ok(Outcome::Done));
    assert_eq!(site.bearers(), 0);
}

#[test]
fn a_bearer_that_cannot_be_opened_or_enabled_gives_its_error_and_is_closed() {
    let mut site = Site::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    site.let_through.send(()).unwrap();
    let enabling = site.order(enable(taken.local_addr().unwrap().port()));
    let why = site.outcome(enabling).unwrap_err();
    assert!(why.contains("another program uses this address"), "{why}");
    for n in 0..4 {
        site.let_through.send(()).unwrap();
        let enabling = site.order(enable(port()));
        if n < 3 {
            assert_eq!(site.outcome(enabling), Ok(Outcome::Done));
        } else {
            site.let_through.send(()).unwrap();
            let why = site.outcome(enabling).unwrap_err();
            assert!(why.contains("at most 3 bearers"), "{why}");
        }
    }
    assert_eq!(site.gate.reached.load(Ordering::SeqCst), 6, "five opened, one of them closed");
    let settings = Settings { priority: Some(77), ..Settings::default() };
    let disabling = site.order(Order::DisableBearer { name: "udp1".into() });
    site.let_through.send(()).unwrap();
    assert_eq!(site.outcome(disabling), Ok(Outcome::Done));
    let bearer = format!("udp:127.0.0.1:{},127.0.0.2", port());
    let enabling = site.order(Order::EnableBearer { bearer, name: None, settings });
    site.let_through.send(()).unwrap();
    site.let_through.send(()).unwrap();
    let why = site.outcome(enabling).unwrap_err();
    assert!(why.contains("priority"), "{why}");
    assert_eq!(site.bearers(), 2);
}

#[test]
fn a_daemon_that_ends_meanwhile_leaves_nothing_open() {
    let mut site = Site::new();
    let port = port();
    let enabling = site.order(enable(port));
    site.await_gate(1);
    site.daemon.take();
    site.let_through.send(()).unwrap();
    // Its program notices the end of the connection.
    enabling.join().unwrap().unwrap_err();
    let begin = Instant::now();
    while UdpSocket::bind(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < WATCHDOG, "the bearer's socket is still open");
        std::thread::sleep(Duration::from_millis(1));
    }
}
