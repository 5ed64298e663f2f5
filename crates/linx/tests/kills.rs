//! Kills programs and nodes (SIGKILL) at random instants while they send, receive, hunt and attach, and checks that
//! each attach results in exactly one signal, after the last signal that arrived, and that nothing is left behind.
//!
//! `CROSSWAY_LINX_KILLS=1000 cargo test -p crossway-linx --test kills` sets the number of kills.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_linx::signal::{ATTACH, HUNT, USER_BASE};
use crossway_linx::{
    Endpoint, EndpointInfo, EndpointKind, Error, Filter, LinkSettings, Node, NodeThread, Options,
    Settings, Signal, Spid, Transport, list,
};

/// A time limit that only serves to catch hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The environment variable that makes the child process run as the victim. Its value names the [`Act`].
const ACT: &str = "CROSSWAY_LINX_VICTIM";
/// The environment variable with the number of kills; 100 by default.
const KILLS: &str = "CROSSWAY_LINX_KILLS";

fn soon() -> Option<Instant> {
    Some(Instant::now() + WATCHDOG)
}

/// What a victim does in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Send,
    Receive,
    Hunt,
    Attach,
    /// Sends signals in the memory shared with its witness, which sends some of them back.
    Pool,
    /// Does the same as `Send`, but from a node of its own, which dies with the victim.
    Node,
}

const ACTS: [Act; 6] = [Act::Send, Act::Receive, Act::Hunt, Act::Attach, Act::Pool, Act::Node];

/// Pseudo-random numbers from a seed that the test prints.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Returns the payload of the victim's nth signal.
fn payload(n: u32) -> Vec<u8> {
    let len = match n % 50 {
        0 => 0,
        7 => 300_000,
        n if n % 3 == 0 => 5_000,
        _ => 60,
    };
    (0..len).map(|at| (at as u32).wrapping_add(n) as u8).collect()
}

/// The child process: opens an endpoint and does one thing until it is killed.
#[test]
fn victim() {
    let Ok(words) = std::env::var(ACT) else { return };
    let words: Vec<&str> = words.split_whitespace().collect();
    let [act, transport, dir, path, link] = words[..] else { panic!("{words:?}") };
    let act = ACTS[act.parse::<usize>().unwrap()];
    let transport: Transport = transport.parse().unwrap();
    let options = Options { transport: Some(transport), ..Options::default() };
    let settings = || dialling("far", link, LINK_TIMEOUT);
    let _node = (act == Act::Node).then(|| Node::spawn(Path::new(dir), settings()).unwrap());
    let mut own = Endpoint::open_with(Path::new(dir), "victim", &options).unwrap();
    let witness = own.hunt_and_wait(path, None).unwrap();
    own.attach(witness, None).unwrap();
    let until = || Some(Instant::now() + Duration::from_micros(50));
    let mut held = VecDeque::new();
    // Few enough not to reach a limit, however late the kill.
    for n in 0..20_000 {
        match act {
            // One signal in any case, so that there is a channel.
            _ if n == 0 => own.send_copy(USER_BASE, &payload(0), witness, None).unwrap(),
            Act::Send | Act::Node => {
                own.send_copy(USER_BASE + n, &payload(n), witness, None).unwrap();
            }
            Act::Pool => {
                let payload = payload(n);
                let mut signal = own.alloc_for(USER_BASE + n, payload.len(), witness).unwrap();
                signal.payload_mut().copy_from_slice(&payload);
                own.send(signal, witness).unwrap();
                if let Some(back) = own.receive(&Filter::ANY, Some(Instant::now())).unwrap() {
                    assert!(back.is_shared());
                    held.push_back(back);
                }
                if held.len() > 20 {
                    held.pop_front();
                }
            }
            Act::Receive => drop(own.receive(&Filter::ANY, None).unwrap()),
            Act::Hunt => {
                let never = own.hunt("nobody", None).unwrap();
                own.hunt(path, None).unwrap();
                own.hunt_for("nobody/at-all", None, Some(witness)).unwrap();
                own.receive(&Filter::only(&[HUNT]), until()).unwrap();
                if n % 3 > 0 {
                    own.cancel_hunt(never).unwrap();
                }
            }
            Act::Attach => {
                let attach = own.attach(witness, None).unwrap();
                let own_spid = own.spid();
                own.attach(own_spid, None).unwrap();
                own.request_timeout(Duration::from_micros(20), None).unwrap();
                own.receive(&Filter::ANY, until()).unwrap();
                if n % 5 > 0 {
                    own.detach(attach).unwrap();
                }
            }
        }
    }
    std::thread::sleep(WATCHDOG);
}

/// How long a node may be without a connection before its peer considers it dead.
const LINK_TIMEOUT: Duration = Duration::from_millis(200);

/// Returns the settings of a node that listens.
fn listening(link_timeout: Duration) -> Settings {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    Settings { listen, link_timeout, ..Settings::default() }
}

/// Returns the settings of a node with this name, which has a link named "near" to the node at this address.
fn dialling(name: &str, address: &str, link_timeout: Duration) -> Settings {
    let links =
        vec![LinkSettings { name: "near".to_owned(), addresses: vec![address.parse().unwrap()] }];
    Settings { name: name.to_owned(), links, link_timeout, ..Settings::default() }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the number of open descriptors of this process, including those of its nodes.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of mapped pools of two endpoints. A node keeps the pool of a link until the other node has
/// acknowledged all signals in that pool.
fn pools() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("crossway-linx-pool")).count()
}

/// Waits until no more than `before` descriptors are open. There may be fewer than before, because some that were
/// counted then were already being closed.
fn until_holding(before: usize, what: &str) {
    let limit = Instant::now() + WATCHDOG;
    while descriptors() > before {
        assert!(Instant::now() < limit, "{what}: {} descriptors, not {before}", descriptors());
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// What a witness has received from the victim.
#[derive(Default)]
struct Heard {
    victim: Option<Spid>,
    signals: u32,
    deaths: u32,
    /// The shared signals whose number is divisible by four. `back` is a shared signal that will be sent back to the
    /// victim.
    held: Vec<Signal>,
    back: Option<Signal>,
}

impl Heard {
    /// Handles a signal: attaches to the victim when the hunt has found it, and checks that signals arrive whole, in
    /// order, and before the notice of the victim's end.
    fn take(&mut self, witness: &mut Endpoint, signal: Signal, round: &str) {
        let from = signal.sender().unwrap();
        match signal.number() {
            HUNT => {
                self.victim = Some(from);
                for _ in 0..ATTACHES {
                    witness.attach(from, None).unwrap();
                }
            }
            ATTACH => {
                assert_eq!(self.victim, Some(from), "{round}");
                self.deaths += 1;
            }
            number => {
                assert_eq!(self.deaths, 0, "{round}: a signal after the end");
                let n = number - USER_BASE;
                assert_eq!(n, self.signals, "{round}: a signal is missing or repeated");
                assert_eq!(signal.payload(), payload(n), "{round}: signal {n}");
                self.signals += 1;
                if signal.is_shared() && n.is_multiple_of(4) {
                    self.held.push(signal);
                } else if signal.is_shared() && n % 4 == 1 {
                    self.back = Some(signal);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.deaths == ATTACHES
    }
}

/// Number of attaches of each witness.
const ATTACHES: u32 = 3;

struct Place {
    near: PathBuf,
    far: PathBuf,
    /// The directory of a node with a short link timeout, linked to nodes that are killed.
    short: PathBuf,
    /// The address at which that node listens.
    address: String,
    /// Endpoints named `beacon`, one on each node.
    _beacons: [Endpoint; 3],
    _nodes: [NodeThread; 3],
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        let (near, far, short) = (at("near"), at("far"), at("short"));
        // No test waits for this timeout, and a busy machine does not reach it.
        let of_near = Node::spawn(&near, listening(WATCHDOG)).unwrap();
        let address = of_near.listens_at()[0].to_string();
        let of_far = Node::spawn(&far, dialling("far", &address, WATCHDOG)).unwrap();
        let of_short = Node::spawn(&short, listening(LINK_TIMEOUT)).unwrap();
        let address = of_short.listens_at()[0].to_string();
        for (dir, link) in [(&near, "far"), (&far, "near")] {
            let mut first = Endpoint::open(dir, "first").unwrap();
            first.hunt_and_wait(link, soon()).unwrap();
        }
        let _beacons = [&near, &far, &short].map(|dir| Endpoint::open(dir, "beacon").unwrap());
        Place { near, far, short, address, _beacons, _nodes: [of_near, of_far, of_short], dir }
    }

    /// Kills a victim once and checks the consequences. Returns the number of signals that the first witness has
    /// received.
    fn kill(&self, number: u64, chance: &mut Chance) -> u32 {
        let act = ACTS[(number % 6) as usize];
        let transport = match act {
            Act::Pool => Transport::Shm,
            _ => Transport::ALL[(number / 6 % 3) as usize],
        };
        let by_link = !matches!(act, Act::Node | Act::Pool) && number / 18 % 2 == 1;
        let round = format!("kill {number}: {act:?} by {transport}, over a link: {by_link}");
        let before = descriptors();
        let options = Options { transport: Some(transport), ..Options::default() };
        let here = if act == Act::Node { &self.short } else { &self.near };
        let mut witnesses: Vec<Endpoint> = (0..3)
            .map(|n| Endpoint::open_with(here, &format!("witness-{n}"), &options).unwrap())
            .collect();
        let path = match act {
            _ if by_link || act == Act::Node => "far/victim",
            _ => "victim",
        };
        for witness in &mut witnesses {
            witness.hunt(path, None).unwrap();
        }
        let own = self.dir.path().join(format!("node-{number}"));
        let (dir, to_witness) = match act {
            Act::Node => (&own, "near/witness-0"),
            _ if by_link => (&self.far, "near/witness-0"),
            _ => (&self.near, "witness-0"),
        };
        let held = descriptors();
        let words =
            format!("{} {transport} {} {to_witness} {}", number % 6, dir.display(), self.address);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "victim", "--nocapture"]).env(ACT, words);
        let mut child = Killed(child.stdout(Stdio::null()).spawn().unwrap());

        let mut heard: Vec<Heard> = witnesses.iter().map(|_| Heard::default()).collect();
        // Some die before their endpoint is open; most during their loop.
        let early = chance.below(8) == 0;
        let mut instant =
            early.then(|| Instant::now() + Duration::from_micros(chance.below(15_000)));
        let (mut dead, mut passed) = (false, false);
        let limit = Instant::now() + WATCHDOG;
        while !heard.iter().all(Heard::is_over) {
            assert!(Instant::now() < limit, "{round}: an attach is not answered");
            let never_opened = heard.iter().all(|heard| heard.victim.is_none());
            if passed && never_opened {
                break;
            }
            if dead && never_opened && descriptors() <= held {
                // Its connection is closed. An answer that is still on its way arrives before that to a later hunt.
                let beacon = if by_link { "far/beacon" } else { "beacon" };
                let mut asker = Endpoint::open(here, "asker").unwrap();
                asker.hunt_and_wait(beacon, soon()).unwrap();
                passed = true;
            }
            for (n, witness) in witnesses.iter_mut().enumerate() {
                let soon = Some(Instant::now() + Duration::from_micros(100));
                while let Some(signal) = witness.receive(&Filter::ANY, soon).unwrap() {
                    heard[n].take(witness, signal, &round);
                    if n == 0 && heard[0].signals == 1 {
                        instant.get_or_insert_with(|| {
                            Instant::now() + Duration::from_micros(chance.below(10_000))
                        });
                    }
                    if let Some(back) = heard[n].back.take() {
                        let victim = back.sender().unwrap();
                        match witness.send(back, victim) {
                            Ok(()) | Err(Error::Gone { .. }) => {}
                            Err(error) => panic!("{round}: {error}"),
                        }
                    }
                    if instant.is_some_and(|at| at <= Instant::now()) && !dead {
                        break;
                    }
                }
                if let (Some(victim), Act::Receive, true) =
                    (heard[n].victim, act, heard[0].signals > 0)
                {
                    match witness.send_copy(USER_BASE, &payload(7), victim, soon) {
                        Ok(()) | Err(Error::Gone { .. } | Error::TimedOut) => {}
                        Err(error) => panic!("{round}: {error}"),
                    }
                }
            }
            if !dead && instant.is_some_and(|at| at <= Instant::now()) {
                child.0.kill().unwrap();
                child.0.wait().unwrap();
                dead = true;
            }
            // A victim whose link timed out exits by itself.
            dead |= act == Act::Node && child.0.try_wait().unwrap().is_some();
        }
        // A link's peer may be too slow for its short timeout.
        assert!(dead || act == Act::Node, "{round}: an attach was answered before the end");
        drop(child);
        for (witness, heard) in witnesses.iter_mut().zip(&heard) {
            let after = witness.receive(&Filter::ANY, Some(Instant::now())).unwrap();
            assert_eq!(after, None, "{round}: a signal arrives after the end");
            let spid = witness.spid();
            let info = witness.info(spid).unwrap();
            let left = (info.attached_from, info.attached_to);
            assert_eq!(left, (0, 0), "{round}: attaches are left");
            let hunts = u32::from(heard.victim.is_none());
            assert_eq!(info.hunts, hunts, "{round}: hunts are left");
            if let Some(victim) = heard.victim {
                assert!(matches!(witness.info(victim), Err(Error::Gone { .. })), "{round}");
            }
        }
        drop(witnesses);
        // Signals outlive the program that shared them, and the memory ends with them.
        assert_eq!(pools(), usize::from(!heard[0].held.is_empty()), "{round}");
        for (n, signal) in heard[0].held.drain(..).enumerate() {
            assert_eq!(signal.payload(), payload(4 * (n as u32 + 1)), "{round}");
        }
        assert_eq!(pools(), 0, "{round}: shared memory is left");
        until_holding(before, &round);
        heard[0].signals
    }
}

#[test]
fn a_killed_program_gives_one_signal_per_attach_and_leaves_nothing() {
    let count = std::env::var(KILLS).map_or(100, |count| count.parse().unwrap());
    let seed = u64::from(std::process::id()) << 20 | 1;
    println!("seed {seed:#x}");
    let mut chance = Chance(seed);
    let place = Place::new();
    let (mut opened, mut signals) = (0, 0);
    for number in 0..count {
        let came = place.kill(number, &mut chance);
        opened += u32::from(came > 0);
        signals += came;
    }
    println!("{count} killed, {opened} of them after their first signal, {signals} signals came");
    for dir in [&place.near, &place.far, &place.short] {
        let left = list(dir).unwrap();
        let of_the_test =
            |info: &EndpointInfo| info.kind == EndpointKind::Link || info.name.ends_with("beacon");
        assert!(left.iter().all(of_the_test), "{left:?}");
    }
}
