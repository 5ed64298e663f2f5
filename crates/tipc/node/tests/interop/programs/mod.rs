//! Tests a program on a `tipcd` and a program on the AF_TIPC of a guest's kernel that communicate with each other. Both
//! run the same code through the client library, and every check is run with either of them as the server.

mod connections;
mod groups;
mod messages;
mod topology;

use std::process::Command;
use std::time::{Duration, Instant};

use crossway_netlab::NetError;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::{
    Address, Backend, LoneTipcd, Patience, Scope, ServiceRange, Socket, SocketAddress, SocketKind,
};

use super::{Medium, Site};
use topology::Subscriber;

/// Time limit for a single step. It is only reached if something hangs.
const PATIENCE: Duration = Duration::from_secs(200);
/// Time limit for all steps together, in seconds.
const WATCHDOG: u32 = 900;
/// Additional time for each connection that ends in good order, in seconds.
const WATCHDOG_PER_END: u32 = 2;
/// Number of connections of each kind and direction that are to end in good order, unless `CROSSWAY_ORDERLY_ENDS` is
/// set.
const ENDS: u32 = 10;
/// First service of the first check; each check and each direction uses different ones.
const FIRST_SERVICE: u32 = 18_000;
/// Number of services that a check may use.
const SERVICES: u32 = 10;

fn soon() -> Patience {
    Patience::Until(Instant::now() + PATIENCE)
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "timed out while waiting for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_readable(socket: &Socket) -> bool {
    wait_ready(socket, Interest::Readable, Some(Instant::now())).unwrap()
}

/// Returns `len` bytes that differ from those of other seeds.
fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|n| ((n ^ seed).wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

/// One of the two programs in a check.
struct Part<'a> {
    backend: &'a Backend,
    /// First service that this check may use.
    service: u32,
    /// Number of connections of each kind that are to end in good order.
    ends: u32,
    /// Whether the sockets of the `tipcd` use lanes.
    lanes: bool,
}

impl Part<'_> {
    fn socket(&self, kind: SocketKind) -> Socket {
        Socket::open_on(self.backend, kind).unwrap()
    }

    fn bound(&self, kind: SocketKind, service: u32, lower: u32, upper: u32) -> Socket {
        let socket = self.socket(kind);
        // The client connects as soon as the name is found, so listen before bind.
        if kind.is_connected_kind() {
            socket.listen().unwrap();
        }
        let range = ServiceRange { service: self.service + service, lower, upper };
        socket.bind(range, Scope::Cluster).unwrap();
        socket
    }

    fn range(&self, service: u32, lower: u32, upper: u32) -> Option<Address> {
        Some(ServiceRange { service: self.service + service, lower, upper }.into())
    }

    fn name(&self, service: u32) -> Option<Address> {
        Some(Address::service(self.service + service, 1))
    }

    /// Waits until this node knows the server's name, and returns its address.
    fn server(&self, service: u32) -> SocketAddress {
        Subscriber::at(self, 0, self.service + service).published().2
    }

    fn connected(&self, kind: SocketKind, service: u32) -> Socket {
        self.server(service);
        let socket = self.socket(kind);
        socket.connect(self.name(service), soon()).unwrap();
        socket
    }

    fn accepted(&self, kind: SocketKind, service: u32) -> Socket {
        self.bound(kind, service, 1, 1).accept(soon()).unwrap().0
    }
}

/// A check: its name, the server's function and the client's.
type Check = (&'static str, fn(&Part<'_>), fn(&Part<'_>));

const CHECKS: [Check; 10] = [
    ("RDM messages of 1 to 66,000 bytes, singly and in a burst", messages::echo, messages::call),
    ("multicast by all methods", messages::members, messages::multicast),
    ("returned messages", messages::deaf, messages::returned),
    ("SEQPACKET of 1 to 66,000 bytes", connections::answer, connections::ask),
    ("a stream of 100 MB", connections::sink, connections::source),
    ("orderly ends", connections::ended, connections::ender),
    ("refusals and resets", connections::refuser, connections::refused),
    ("first message in the request", connections::accepter, connections::implied),
    ("a group", groups::first, groups::second),
    ("topology subscriptions at both nodes", topology::subject, topology::observer),
];

/// Runs one of the two programs. `words` are `kernel`, or `node` with the tipcd's socket; then the index of the
/// program, 0 or 1, the number of orderly ends, and `lanes` if the tipcd's sockets use lanes.
pub(crate) fn talk(words: &[&str]) {
    let (backend, rest) = match words {
        ["kernel", rest @ ..] => (Backend::Kernel, rest),
        ["node", path, rest @ ..] => (Backend::Node((*path).into()), rest),
        other => panic!("expected kernel or node, not {other:?}"),
    };
    let lanes = rest.get(2) == Some(&"lanes");
    let [place, ends] = [0, 1].map(|n| rest[n].parse::<u32>().expect("a number"));
    for (n, (name, serve, ask)) in (0..).zip(CHECKS) {
        for direction in 0..2 {
            let service = FIRST_SERVICE + SERVICES * (2 * n + direction);
            let part = Part { backend: &backend, service, ends, lanes };
            let begin = Instant::now();
            if direction == place {
                serve(&part)
            } else {
                ask(&part)
            }
            let role = if direction == place { "server" } else { "client" };
            eprintln!("  {} {role}: {name}, {} ms", words[0], begin.elapsed().as_millis());
        }
    }
    println!("all checks held");
}

/// Runs both programs to their end. With `lanes`, sockets of the tipcd use lanes from the first message on.
pub(crate) fn both(name: &str, medium: Medium, lanes: bool) -> Result<(), NetError> {
    let site = Site::up(name)?;
    let bearer = site.bearers(medium);
    let user = site.lab.host("user")?;
    let dir = tempfile::tempdir().expect("a directory");
    let mut tipcd = user.command(env!("CARGO_BIN_EXE_tipcd"));
    tipcd.args([&bearer, "--id", "user-space"]);
    if lanes {
        tipcd.args(["--lane-after", "1"]);
    }
    let tipcd = LoneTipcd::start(tipcd, &dir.path().join("tipcd.sock")).expect("tipcd serves");
    let own = std::env::current_exe().expect("this program has a file");
    let own = own.to_str().expect("a path in UTF-8");
    let ends =
        std::env::var("CROSSWAY_ORDERLY_ENDS").map_or(ENDS, |n| n.parse().expect("a number"));
    let watchdog = (WATCHDOG + WATCHDOG_PER_END * ends).to_string();
    let words = ["timeout", &watchdog, own, "talk"];
    let ends = ends.to_string();
    let path = tipcd.path().to_str().expect("a path in UTF-8");
    let mut one = Command::new(words[0]);
    one.args(&words[1..]).args(["node", path, "0"]);
    let mut two = site.in_guest(&words);
    two.args(["kernel", "1"]);
    for program in [&mut one, &mut two] {
        program.arg(&ends).args(lanes.then_some("lanes"));
    }
    let ends = [one, two].map(|mut command| {
        command.stdin(std::process::Stdio::null());
        std::thread::spawn(move || command.output().expect("the program starts"))
    });
    // If one fails, the other fails too, so print the output of both.
    let outputs = ends.map(|end| end.join().expect("no panic"));
    let held = outputs.iter().all(|o| o.status.success() && o.stdout == b"all checks held\n");
    for output in &outputs {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(held, "the programs ended with {:?}", outputs.map(|output| output.status));
    Ok(())
}
