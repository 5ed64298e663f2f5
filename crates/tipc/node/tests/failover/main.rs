//! Tests two `tipcd` processes with two links between them, while messages and streams are sent in both directions.
//! However a medium is cut, everything arrives once and in order. `cargo bench -p crossway-tipc-node --bench failover`
//! measures how long that takes.

mod flows;
mod planes;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_netlab::NetError;
use crossway_tipc_client::admin::{Order, Settings};
use flows::Flows;
use planes::{Cut, Planes, ip};

/// Sets up the network. If that is impossible here, prints the reason and returns `None`.
fn planes(tolerance: Duration) -> Option<Planes> {
    match Planes::up(tolerance) {
        Ok(planes) => Some(planes),
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP failover: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn everything_arrives_once_and_in_order_whichever_medium_is_cut_and_however() {
    // Far longer than a busy machine delays a daemon: contact must not be lost while one of the links is cut.
    let Some(mut planes) = planes(Duration::from_millis(1_000)) else { return };
    let flows = Flows::start([&planes.nodes[0].path, &planes.nodes[1].path]);
    let cuts = [
        (0, Cut::Silence),
        (1, Cut::Device),
        (1, Cut::Carrier),
        (1, Cut::Silence),
        (0, Cut::Carrier),
        (0, Cut::Device),
    ];
    for (n, how) in cuts {
        let cut = planes.cut(n, how);
        let noticed = planes.noticed(n);
        flows.await_arrivals_after(noticed[0].max(noticed[1]));
        let pause = flows.longest_pause_since(cut);
        eprintln!("{how:?}: noticed after {:?}, pause {pause:?}", noticed.map(|at| at - cut));
        planes.restore(n, how);
    }
    // The removal of a device is reported like one that went down; its replacement is a different device, which the operator specifies
    // again.
    ip(&mut planes.lab, "a", "link del p1");
    let noticed = planes.noticed(1);
    flows.await_arrivals_after(noticed[0].max(noticed[1]));
    for line in [
        "link add p1 type veth peer name q1",
        "link set q1 master br1",
        "link set q1 up",
        "link set p1 up",
    ] {
        ip(&mut planes.lab, "a", line);
    }
    planes.nodes[0].order(&Order::DisableBearer { name: "p1".into() });
    let (bearer, settings) = ("eth:p1".into(), Settings::default());
    planes.nodes[0].order(&Order::EnableBearer { bearer, name: None, settings });
    planes.await_links(2);
    let messages = flows.finish();
    assert!(messages > 100, "{messages}");
}

/// Tests that bearers can be added and removed while links have the shortest tolerance. The system needs three to ten
/// times that tolerance to set up a bearer on a busy machine, which must not delay the links.
#[test]
fn links_of_the_shortest_tolerance_outlive_bearers_that_are_added_and_removed() {
    // If the machine gives a daemon no CPU time for as long as the tolerance, links fail too, as they should. A thread that needs
    // hardly any CPU time detects this; then the test is repeated. Links that do not survive changes of bearers fail every time.
    for attempt in 1.. {
        let Some(planes) = planes(SHORTEST) else { return };
        let control = Control::start();
        let outcome = catch_unwind(AssertUnwindSafe(|| add_and_remove_bearers(planes)));
        let longest_wait = control.stop();
        let Err(failure) = outcome else { return };
        if attempt == 10 || longest_wait < SHORTEST / 2 {
            resume_unwind(failure);
        }
        eprintln!("attempt {attempt}: the machine paused for {longest_wait:?}");
    }
}

/// The shortest tolerance that a link may have.
const SHORTEST: Duration = Duration::from_millis(50);

/// A thread that repeatedly sleeps for a moment, to measure how long the machine delays it.
struct Control {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Control {
    const NAP: Duration = Duration::from_millis(2);

    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                std::thread::sleep(Self::NAP);
                longest = longest.max(begin.elapsed() - Self::NAP);
            }
            longest
        });
        Self { stop, thread }
    }

    /// Stops the thread. Returns the longest time for which it had to wait for a CPU.
    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn add_and_remove_bearers(mut planes: Planes) {
    let flows = Flows::start([&planes.nodes[0].path, &planes.nodes[1].path]);
    ip(&mut planes.lab, "a", "link add third type veth peer name far");
    ip(&mut planes.lab, "a", "link set far up");
    ip(&mut planes.lab, "a", "link set third up");
    flows.await_arrivals_after(Instant::now());
    for node in &planes.nodes {
        assert!(node.said.try_iter().count() > 0, "a node logged nothing about its links");
    }
    for _ in 0..10 {
        let begin = Instant::now();
        let (bearer, settings) = ("eth:third".into(), Settings::default());
        planes.nodes[0].order(&Order::EnableBearer { bearer, name: None, settings });
        let enabled = begin.elapsed();
        planes.nodes[0].order(&Order::DisableBearer { name: "third".into() });
        let pause = flows.longest_pause_since(begin);
        eprintln!("enabled after {enabled:?}, both after {:?}, pause {pause:?}", begin.elapsed());
    }
    flows.await_arrivals_after(Instant::now());
    let said = planes.nodes.iter().flat_map(|node| node.said.try_iter());
    let down: Vec<_> = said.filter(|(_, line)| line.contains(" down")).collect();
    assert!(down.is_empty(), "{down:#?}");
    let messages = flows.finish();
    assert!(messages > 100, "{messages}");
}
