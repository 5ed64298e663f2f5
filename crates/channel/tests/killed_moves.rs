//! Processes that are killed at every step of a move of the listening end, while messages flow both ways: the old
//! process, the new one, and the connecting end. The others get an error, or continue if the channel is intact, and no
//! resources are left behind.
//!
//! The process to be killed is a child that runs this test program with a role; the two others are threads of this
//! process. The survivors' searches for each other, which take most of the time, run in parallel.

mod addresses;
mod child;
mod holdings;
mod loopback;
mod serving;
mod stream;

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use child::{Killed, start};
use crossway_channel::{Error, Options, Policy, RecvError, SendError, TakenOver};
use holdings::{nothing_is_left, settled_holdings};
use loopback::{Host, NAME, options};
use serving::serve;
use stream::{Stream, check, fill, soon};

const ROLE: &str = "CROSSWAY_CHANNEL_TEST_ROLE";
const DIR: &str = "CROSSWAY_CHANNEL_TEST_DIR";
const ADDRESSES: &str = "CROSSWAY_CHANNEL_TEST_ADDRESSES";
/// The signal number of SIGKILL.
const KILL: i32 = 9;
/// Number of messages that pass each way before the move.
const BEFORE: u64 = 10;
/// Number of moves in progress at the same time; the channel of each carries messages both ways at full load.
const AT_ONCE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The listening process that hands its channel over.
    Old,
    /// The process that takes the channel over.
    New,
    /// The connecting end.
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// All three are on one host: the new process receives the connection.
    Replaced,
    /// The listening end leaves the client's host.
    Away,
    /// The listening end moves to the client's host.
    Back,
}

/// A move during which the process with a certain role is killed, and the step at which that happens, as `STEP@COUNT`.
#[derive(Clone, Copy, Debug)]
struct Death {
    way: Way,
    role: Role,
    step: &'static str,
}

/// The steps at which each process is killed. The first switch parks the channel, and the second one ends the move.
const DEATHS: [(Way, Role, &[&str]); 9] = [
    (
        Way::Away,
        Role::Old,
        &[
            "Made@1",
            "Offer@1",
            "Marked@1",
            "Followed@1",
            "Settled@1",
            "Moving@1",
            "Left@1",
            "Handed@1",
        ],
    ),
    (
        Way::Away,
        Role::New,
        &["Taken@1", "Welcomed@1", "Found@1", "Made@1", "Marked@1", "Followed@1", "Settled@1"],
    ),
    (
        Way::Away,
        Role::Client,
        &[
            "Marked@1",
            "Followed@1",
            "Settled@1",
            "Gone@1",
            "Answered@1",
            "Rejoined@1",
            "Opened@2",
            "Marked@2",
            "Followed@2",
            "Settled@2",
        ],
    ),
    (Way::Back, Role::Old, &["Settled@1", "Moving@1", "Left@1", "Handed@1"]),
    (Way::Back, Role::New, &["Taken@1", "Welcomed@1", "Found@1", "Settled@1"]),
    (Way::Back, Role::Client, &["Settled@1", "Gone@1", "Answered@1", "Rejoined@1", "Settled@2"]),
    (Way::Replaced, Role::Old, &["Settled@1", "Left@1", "Handed@1"]),
    (Way::Replaced, Role::New, &["Taken@1", "Marked@1", "Settled@1"]),
    (Way::Replaced, Role::Client, &["Settled@1", "Settled@2"]),
];

/// Returns the directory of a role's host, and the addresses that its program knows.
fn place(way: Way, role: Role, [here, there]: &[Host; 2]) -> (PathBuf, Vec<SocketAddr>) {
    let (host, addresses) = match (way, role) {
        (Way::Replaced, _) => (here, vec![]),
        (Way::Away, Role::Old) => (here, vec![here.address]),
        (Way::Away, Role::New) => (there, vec![there.address, here.address]),
        (Way::Back, Role::Old) => (there, vec![there.address]),
        (Way::Back, Role::New) => (here, vec![here.address, there.address]),
        (Way::Away | Way::Back, Role::Client) => (here, vec![there.address]),
    };
    (host.dir.path().to_owned(), addresses)
}

/// Returns options with which only the move makes the channel switch.
fn of(place: &(PathBuf, Vec<SocketAddr>)) -> Options {
    Options {
        policy: Policy { dry_run: true, ..Policy::default() },
        ..options(&place.0, &place.1, None)
    }
}

/// Limits the number of moves in progress at the same time.
struct Turns(Mutex<usize>, Condvar);

/// A permit for one move; dropping it permits the next.
struct Turn<'a>(&'a Turns);

impl Turns {
    fn new(free: usize) -> Turns {
        Turns(Mutex::new(free), Condvar::new())
    }

    fn take(&self) -> Turn<'_> {
        let free = self.1.wait_while(self.0.lock().unwrap(), |free| *free == 0);
        *free.unwrap() -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Ok(mut free) = self.0.0.lock() {
            *free += 1;
        }
        self.0.1.notify_one();
    }
}

/// Listens, and hands the channel over after [`BEFORE`] messages each way.
fn old(options: Options, met: impl FnOnce()) -> Result<usize, Error> {
    let listener = options.listen(NAME).unwrap();
    let mut channel = listener.accept(soon()).unwrap();
    met();
    assert!(serve(&listener, &mut channel, BEFORE).unwrap(), "nobody asked for the channel");
    listener.hand_over(vec![channel], soon())
}

/// Takes the channel over; returns the result of [`serve`], or `None` if the channel was not taken over.
fn new(options: Options) -> Option<Result<bool, RecvError>> {
    let TakenOver { listener, mut channels, .. } = options.take_over(NAME, soon()).ok()?;
    let mut channel = channels.pop()?;
    let ended = serve(&listener, &mut channel, 0);
    if ended.is_ok() {
        channel.split().0.close(soon()).unwrap();
    }
    Some(ended)
}

/// Sends until `stop` is set, and receives until an error, which it returns.
fn client(options: Options, met: impl FnOnce(), stop: &AtomicBool, back: &AtomicU64) -> RecvError {
    let (mut sender, mut receiver) = options.connect(NAME, soon()).unwrap().split();
    met();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, mut msg) = (Stream::new(1), [0; 4096]);
            while !stop.load(Ordering::Relaxed) {
                let len = fill(&mut stream, &mut msg);
                match sender.send(&msg[..len], soon()) {
                    Ok(()) => {}
                    Err(SendError::PeerClosed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
            sender.close(soon()).unwrap();
        });
        let mut stream = Stream::new(2);
        loop {
            match receiver.recv_in_place(soon(), |msg| check(&mut stream, msg)) {
                Ok(()) => back.store(stream.count(), Ordering::Relaxed),
                Err(error) => return error,
            }
        }
    })
}

/// The child: runs its role until it is killed.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let said = |name| std::env::var(name).expect("the parent says where");
    let addresses = said(ADDRESSES);
    let addresses = addresses.split_terminator(',').map(|a| a.parse().unwrap()).collect();
    let options = of(&(said(DIR).into(), addresses));
    match role.as_str() {
        "Old" => drop(old(options, || ())),
        "New" => drop(new(options)),
        "Client" => drop(client(options, || (), &AtomicBool::new(false), &AtomicU64::new(0))),
        other => panic!("{other} is no role"),
    }
}

fn start_child(role: Role, (dir, addresses): &(PathBuf, Vec<SocketAddr>), step: &str) -> Killed {
    let addresses: String = addresses.iter().map(|address| format!("{address},")).collect();
    let environment = [
        (ROLE, format!("{role:?}")),
        (DIR, dir.to_str().unwrap().to_owned()),
        (ADDRESSES, addresses),
    ];
    start(&environment, Some(step))
}

/// Waits for a child to end by itself; panics if it does not.
fn end_of(child: &mut Killed, what: &str) -> ExitStatus {
    let limit = soon().unwrap();
    loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < limit, "{what}: the child never came to this step");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a move in which one process is killed. Returns how long after the death the last survivor got an error; `None`
/// if the channel continued.
fn survive(death: Death, hosts: &[Host; 2], turns: &Turns) -> Option<Duration> {
    let Death { way, role, step } = death;
    let place = |role| place(way, role, hosts);
    // From this step on, the new process has the whole state of the channel.
    let goes_on = role == Role::Old && step == "Handed@1";
    let (stop, back) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let (met, meets) = mpsc::channel();
    let turn = turns.take();
    let told = std::thread::scope(|scope| {
        let mut dying = (role != Role::New).then(|| start_child(role, &place(role), step));
        let (met_too, as_old, as_client) =
            (met.clone(), of(&place(Role::Old)), of(&place(Role::Client)));
        let old =
            (role != Role::Old).then(|| scope.spawn(move || old(as_old, || met.send(()).unwrap())));
        let client = (role != Role::Client).then(|| {
            scope.spawn(move || client(as_client, || met_too.send(()).unwrap(), stop, back))
        });
        // The child is killed before the new process listens, so that the client does not find the new process.
        meets.recv().unwrap();
        let as_new = place(Role::New);
        let new = match role {
            Role::New => None,
            _ => Some(scope.spawn(move || new(of(&as_new)))),
        };
        let mut child = dying.take().unwrap_or_else(|| start_child(role, &place(role), step));
        let ended = end_of(&mut child, &format!("{death:?}"));
        assert_eq!(ended.signal(), Some(KILL), "{death:?}: {ended}");
        let died = Instant::now();
        if goes_on {
            let (limit, before) = (soon().unwrap(), back.load(Ordering::Relaxed));
            while back.load(Ordering::Relaxed) < before + BEFORE {
                let over = client.as_ref().is_some_and(|client| client.is_finished());
                assert!(!over && Instant::now() < limit, "{death:?}: the channel does not go on");
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        }
        drop(turn);
        let client = client.map(|client| client.join().unwrap());
        let new = new.map(|new| new.join().unwrap());
        let old = old.map(|old| old.join().unwrap());
        let right = match (role, &old, &new, &client) {
            (Role::Old, _, Some(Some(Ok(false))), Some(RecvError::Closed)) => goes_on,
            (Role::Old, _, Some(None), Some(RecvError::PeerDied)) => !goes_on,
            // Whether it notices the death while it still hands over depends on timing.
            (Role::New, Some(_), _, Some(RecvError::PeerDied)) => true,
            // A channel whose client is known to be dead is not handed over.
            (Role::Client, Some(Ok(0)), Some(None), _) => true,
            (Role::Client, Some(Ok(1)), Some(Some(Err(RecvError::PeerDied))), _) => true,
            _ => false,
        };
        assert!(right, "{death:?}: old {old:?}, new {new:?}, client {client:?}");
        (!goes_on).then(|| died.elapsed())
    });
    for host in hosts {
        // The name of a listener that was killed is removed by the next process that looks for it. The control thread
        // may be about to.
        let found = host.options(&[], None).connect(NAME, Some(Instant::now())).map(drop);
        assert!(matches!(found, Err(Error::NobodyListens { .. })), "{death:?}: {found:?}");
        let limit = soon().unwrap();
        while std::fs::read_dir(host.dir.path()).unwrap().next().is_some() {
            assert!(Instant::now() < limit, "{death:?}: a name is left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    told
}

#[test]
fn whoever_is_killed_at_any_step_of_a_move_is_missed_and_leaves_nothing() {
    let deaths: Vec<Death> = DEATHS
        .iter()
        .flat_map(|(way, role, steps)| {
            steps.iter().map(|step| Death { way: *way, role: *role, step })
        })
        .collect();
    // Before any child exists: a forked child keeps addresses bound here until it executes its program.
    let hosts: Vec<[Host; 2]> = deaths.iter().map(|_| [(); 2].map(|()| Host::new())).collect();
    let turns = Turns::new(AT_ONCE);
    // The control thread and its descriptors exist from now on.
    survive(
        Death { way: Way::Replaced, role: Role::New, step: "Taken@1" },
        &[(); 2].map(|()| Host::new()),
        &turns,
    );
    let before = settled_holdings();
    let told: Vec<(Death, Option<Duration>)> = std::thread::scope(|scope| {
        let turns = &turns;
        let running: Vec<_> = deaths
            .iter()
            .zip(&hosts)
            .map(|(death, hosts)| (*death, scope.spawn(move || survive(*death, hosts, turns))))
            .collect();
        running.into_iter().map(|(death, run)| (death, run.join().unwrap())).collect()
    });
    nothing_is_left(before, "after all moves");
    let mut late: Vec<_> =
        told.iter().filter_map(|(death, told)| Some((told.as_ref()?, death))).collect();
    late.sort_by_key(|(told, _)| **told);
    let went_on = told.len() - late.len();
    eprintln!("{} deaths; {went_on} channels went on; the latest: {:?}", told.len(), late.last());
}
