//! A `tipcd` and the kernel of a guest with two media between them, which are cut at the `tipcd`'s end.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use crossway_netlab::{Guest, GuestSpec, HostSpec, Lab, Link, Topology};
use crossway_tipc_client::admin::{Administration, Order, Outcome, Settings};
use crossway_tipc_client::{Backend, Socket, SocketKind};

use super::Site;
use super::far_end::{self, Question, ask};
use super::flows::Flows;
use super::planes::{Cut, Tipcd, cut_of_first, ip, mend_of_first, until};

/// Packet size in bytes: 1,500 less the overhead of a VXLAN tunnel.
const MTU: u32 = 1_450;

/// Number of queries for determining the offset of the guest's clock; the fastest answer is used.
const CLOCK_QUESTIONS: u32 = 100;

/// A network like that of two tipcd processes: the devices of the tipcd are connected to bridges, and the other port of
/// each bridge leads to the other end, here through a tunnel into the guest.
pub(crate) struct BesideKernel {
    flows: Flows,
    questions: Socket,
    /// By how much the guest's clock is ahead of this machine's, in nanoseconds.
    ahead: i64,
    _far_end: FarEnd,
    node: Tipcd,
    guest: Guest,
    lab: Lab,
    _dir: tempfile::TempDir,
}

/// The process in the guest. It ends when this value is dropped.
struct FarEnd(Child);

impl Drop for FarEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as i64
}

fn in_guest(guest: &Guest, line: &str) -> anyhow::Result<Command> {
    let prefix = guest.prefix();
    let (program, words) = prefix.split_first().context("a guest without a way in")?;
    let mut command = Command::new(program);
    command.args(words).args(line.split_whitespace()).stdin(Stdio::null());
    Ok(command)
}

fn guest_does(guest: &Guest, line: &str) -> anyhow::Result<String> {
    let output = in_guest(guest, line)?.output().context("cannot run a command in the guest")?;
    if !output.status.success() {
        bail!("in the guest, {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl BesideKernel {
    /// Sets up the network, both links with this tolerance, and traffic.
    pub(crate) fn up(tolerance: Duration) -> anyhow::Result<Self> {
        let mut topology = Topology::of(&[], Link::default());
        let name = format!("cwfo{:x}", std::process::id() % 0x1_0000);
        topology.name = Some(name.clone());
        topology.hosts = vec![HostSpec::namespace("a"), HostSpec::tap("kernel")];
        let mut lab = Lab::up(&topology).context("cannot make the network")?;
        let guest = Guest::boot(&GuestSpec::new(&name)?, Some((lab.network(), "kernel")))?;
        let (own, kernel) = (lab.host("a")?, lab.host("kernel")?);
        let (own_ip, kernel_ip) = (own.ipv4.to_string(), kernel.ipv4.to_string());
        let device = own.interface.clone();
        for n in 0..2 {
            let tunnel = |local: &str, remote: &str, through: &str| {
                let id = 10 + n;
                format!(
                    "link add r{n} type vxlan id {id} local {local} remote {remote} dev {through} dstport 4789"
                )
            };
            for line in [
                tunnel(&own_ip, &kernel_ip, &device),
                format!("link add br{n} type bridge"),
                format!("link add p{n} mtu {MTU} type veth peer name q{n} mtu {MTU}"),
                format!("link set q{n} master br{n}"),
                format!("link set r{n} mtu {MTU} master br{n}"),
                format!("link set br{n} up"),
                format!("link set q{n} up"),
                format!("link set r{n} up"),
                format!("link set p{n} up"),
            ] {
                ip(&mut lab, "a", &line);
            }
            guest_does(&guest, &format!("ip {}", tunnel(&kernel_ip, &own_ip, "eth0")))?;
            guest_does(&guest, &format!("ip link set r{n} mtu {MTU} up"))?;
            guest_does(&guest, &format!("tipc bearer enable media eth device r{n}"))?;
        }
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("a");
        let mut command = lab.host("a")?.command(env!("CARGO_BIN_EXE_tipcd"));
        command.args(["--until-stdin-ends", "--id", "a", "--address", "1001"]);
        command.args(["eth:p0", "eth:p1", "--socket"]).arg(&path);
        let node = Tipcd::start(&mut command, path.clone());
        until("the tipcd", || Administration::at(&path).is_ok());
        node.await_links(2);
        let Outcome::Links(links) = node.order(&Order::Links) else { bail!("no links") };
        let tolerance_ms = Some(u32::try_from(tolerance.as_millis())?);
        for link in links {
            let settings = Settings { tolerance_ms, ..Settings::default() };
            node.order(&Order::SetLink { name: link.name, settings });
        }
        let wanted = format!("tolerance {}", tolerance.as_millis());
        let mut command = in_guest(&guest, "")?;
        command.arg(std::env::current_exe()?).arg(far_end::ROLE);
        let far_end = FarEnd(command.spawn().context("cannot start the far end")?);
        let backend = Backend::Node(path);
        let flows = Flows::start_ends([Some(&backend), None], far_end::PACE);
        let questions = Socket::open_on(&backend, SocketKind::Rdm)?;
        let mut site =
            Self { flows, questions, ahead: 0, _far_end: far_end, node, guest, lab, _dir: dir };
        until("the far end", || ask(&site.questions, Question::Clock, 0).is_ok());
        let seen = guest_does(&site.guest, "tipc link list")?;
        for link in seen.lines().filter_map(|line| line.strip_suffix(": up")) {
            if link != "broadcast-link" {
                until("the tolerance at the other end", || {
                    let told =
                        guest_does(&site.guest, &format!("tipc link get tolerance link {link}"));
                    told.is_ok_and(|told| wanted.ends_with(told.trim()) && !told.trim().is_empty())
                });
            }
        }
        site.ahead = site.clocks_apart()?;
        Ok(site)
    }

    fn clocks_apart(&self) -> anyhow::Result<i64> {
        let mut best = (i64::MAX, 0);
        for _ in 0..CLOCK_QUESTIONS {
            let asked = now();
            let told = ask(&self.questions, Question::Clock, 0)? as i64;
            let answered = now();
            best = best.min((answered - asked, told - (asked + answered) / 2));
        }
        Ok(best.1)
    }

    fn ask(&self, what: Question, at: i64) -> u64 {
        ask(&self.questions, what, at as u64).expect("the far end answers")
    }

    /// Converts an instant to the guest's clock.
    fn in_guest_time(&self, at: Instant) -> i64 {
        now() - at.elapsed().as_nanos() as i64 + self.ahead
    }
}

impl Site for BesideKernel {
    fn cut(&mut self, n: usize, how: Cut) -> Instant {
        cut_of_first(&mut self.lab, n, how)
    }

    fn restore(&mut self, n: usize, how: Cut) {
        mend_of_first(&mut self.lab, n, how);
        self.node.await_links(2);
        until("both links at the other end", || {
            let list = guest_does(&self.guest, "tipc link list").unwrap_or_default();
            let up = |line: &&str| line.ends_with(": up") && !line.starts_with("broadcast-link");
            list.lines().filter(up).count() == 2
        });
    }

    fn noticed(&mut self, n: usize, cut: Instant) -> [Duration; 2] {
        let own = self.node.said_down(&format!(":p{n}-")).saturating_duration_since(cut);
        let at = self.in_guest_time(cut);
        let mut down = 0;
        until("the other end's loss", || {
            down = self.ask(Question::Down, at);
            down != 0
        });
        [own, Duration::from_nanos((down as i64 - at).max(0) as u64)]
    }

    fn await_arrivals_after(&self, instant: Instant) {
        self.flows.await_arrivals_after(instant);
    }

    fn longest_pause_since(&self, begin: Instant) -> Duration {
        let there = self.ask(Question::Pause, self.in_guest_time(begin));
        self.flows.longest_pause_since(begin).max(Duration::from_nanos(there))
    }

    fn finish(self) -> u64 {
        let Self { flows, questions, .. } = self;
        std::thread::scope(|scope| {
            let there = scope.spawn(|| ask(&questions, Question::Finish, 0));
            let here = flows.finish();
            here + there.join().expect("no panic").expect("the far end found nothing wrong")
        })
    }
}
