//! Tests two links between a node in user space and a kernel, over two separate media, with traffic of every kind in
//! both directions. Each link is cut at either end, with and without notification of the device, and restored, while
//! the other link carries the traffic.

use std::time::{Duration, Instant};

use crossway_netlab::NetError;
use crossway_tipc_proto::addr::NodeId;

use super::{Capture, KernelSide, Site, UserSide};

const TRAFFIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/kernel_planes.py");
/// A file whose existence in the guest ends the traffic.
const STOP: &str = "/tmp/stop";
/// Time limit for a step. A cut link is detected after 2.4 s and found again after a minute at most, and both ends are
/// slow when the machine is busy.
const PATIENCE: Duration = Duration::from_secs(300);

/// Packet size over UDP in bytes. It is what a device of an Ethernet plane accepts, which is less than what a tunnel
/// accepts.
const UDP_MTU: u32 = 1_320;

/// The medium of one of the two links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plane {
    Udp,
    UdpV6,
    Ethernet,
}

/// How a link is cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The device of the node in user space goes down.
    UserDevice,
    /// The kernel's device goes down, and its bearer is notified immediately.
    KernelDevice,
    /// Frames sent by the kernel are lost without any notification.
    KernelSilence,
    /// The kernel's bearer is disabled.
    KernelBearer,
}

struct Planes {
    site: Site,
    media: [Plane; 2],
    /// Priorities of the kernel's bearers; the link with the higher one carries everything that the kernel sends.
    priority: [u8; 2],
}

impl Planes {
    /// Sets up two tunnels between the hosts, each with a separate device at both ends.
    fn up(name: &str, media: [Plane; 2], priority: [u8; 2]) -> Result<Self, NetError> {
        let planes = Self { site: Site::up(name)?, media, priority };
        let (user, kernel) = (planes.site.lab.host("user")?, planes.site.lab.host("kernel")?);
        let (u, k) = (user.ipv4.to_string(), kernel.ipv4.to_string());
        for n in 0..2 {
            let mtu = match planes.media[n] {
                Plane::Ethernet => UDP_MTU,
                Plane::Udp | Plane::UdpV6 => 1_400,
            };
            let set_up = |local: &str, remote: &str, through: &str, last: u8| {
                format!(
                    "link add plane{n} type vxlan id {id} local {local} remote {remote} \
                     dev {through} dstport 4789\n\
                     addr add 10.99.{n}.{last}/24 dev plane{n}\n\
                     addr add fd99:{n}::{last}/64 dev plane{n} nodad\n\
                     link set plane{n} mtu {mtu} up",
                    id = 10 + n
                )
            };
            for line in set_up(&u, &k, &user.interface, 1).lines() {
                planes.user_does(line);
            }
            for line in set_up(&k, &u, "eth0", 2).lines() {
                planes.guest_ip(line);
            }
        }
        Ok(planes)
    }

    fn user_does(&self, line: &str) {
        let host = self.site.lab.host("user").expect("the host");
        let status = host.command("ip").args(line.split_whitespace()).status().expect("ip runs");
        assert!(status.success(), "ip {line}");
    }

    fn guest_ip(&self, line: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(line.split_whitespace()).collect();
        self.site.guest_does(&words);
    }

    fn tipc(&self, line: &str) -> String {
        let words: Vec<&str> = ["tipc"].into_iter().chain(line.split_whitespace()).collect();
        self.site.guest_does(&words)
    }

    /// Enables the kernel's bearer on a plane. Each UDP bearer has a different port, as the kernel requires.
    fn enable(&self, n: usize) {
        let priority = self.priority[n];
        match self.media[n] {
            Plane::Udp => self.tipc(&format!(
                "bearer enable priority {priority} media udp name P{n} localip 10.99.{n}.2 localport {port} \
                 remoteip 10.99.{n}.1 remoteport {port}",
                port = 6118 + n
            )),
            Plane::UdpV6 => self.tipc(&format!(
                "bearer enable priority {priority} media udp name P{n} localip fd99:{n}::2 localport {port} \
                 remoteip fd99:{n}::1 remoteport {port}",
                port = 6118 + n
            )),
            Plane::Ethernet => self
                .tipc(&format!("bearer enable priority {priority} media eth device plane{n}")),
        };
    }

    /// Returns the specifications of the node's bearers, in the form that its program expects.
    fn bearers(&self) -> String {
        let of = |n: usize| match self.media[n] {
            Plane::Udp => {
                format!("udp:10.99.{n}.1:{p},mtu={UDP_MTU},10.99.{n}.2:{p}", p = 6118 + n)
            }
            Plane::UdpV6 => {
                format!("udp:[fd99:{n}::1]:{p},mtu={UDP_MTU},[fd99:{n}::2]:{p}", p = 6118 + n)
            }
            Plane::Ethernet => format!("eth:plane{n}"),
        };
        format!("{}+{}", of(0), of(1))
    }

    fn cut(&self, n: usize, how: Cut) {
        match how {
            Cut::UserDevice => self.user_does(&format!("link set plane{n} down")),
            Cut::KernelDevice => self.guest_ip(&format!("link set plane{n} down")),
            Cut::KernelSilence => {
                let line = format!("tc qdisc add dev plane{n} root netem loss 100%");
                self.site.guest_does(&line.split(' ').collect::<Vec<_>>());
            }
            Cut::KernelBearer => {
                let words = match self.media[n] {
                    Plane::Udp | Plane::UdpV6 => format!("bearer disable media udp name P{n}"),
                    Plane::Ethernet => format!("bearer disable media eth device plane{n}"),
                };
                self.tipc(&words);
            }
        }
    }

    fn restore(&self, n: usize, how: Cut) {
        match how {
            // A device that goes down loses its IPv6 addresses.
            Cut::UserDevice => {
                self.user_does(&format!("link set plane{n} up"));
                self.user_does(&format!("addr replace fd99:{n}::1/64 dev plane{n} nodad"));
            }
            Cut::KernelDevice => {
                self.guest_ip(&format!("link set plane{n} up"));
                self.guest_ip(&format!("addr replace fd99:{n}::2/64 dev plane{n} nodad"));
            }
            Cut::KernelSilence => {
                let line = format!("tc qdisc del dev plane{n} root");
                self.site.guest_does(&line.split(' ').collect::<Vec<_>>());
            }
            Cut::KernelBearer => self.enable(n),
        }
    }

    /// Waits until both ends have this many links up while the node in user space is running. If the node ends, it
    /// prints the reason itself.
    fn await_links_of(&self, user: &mut UserSide, wanted: usize) {
        let reached = || {
            let ended = user.child.try_wait().expect("a child");
            assert_eq!(ended, None, "the node in user space ended, see above");
            user.links_up() == wanted
        };
        self.await_links_when(reached, wanted);
    }

    /// Waits until the kernel lists this many links as up.
    fn await_links(&self, wanted: usize) {
        self.await_links_when(|| true, wanted);
    }

    fn await_links_when(&self, mut reached: impl FnMut() -> bool, wanted: usize) {
        let start = Instant::now();
        loop {
            let other_end = reached();
            let list = self.tipc("link list");
            let up = |line: &&str| line.ends_with(": up") && !line.starts_with("broadcast-link");
            if other_end && list.lines().filter(up).count() == wanted {
                eprintln!("  {wanted} links up after {} ms", start.elapsed().as_millis());
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "not {wanted} links up, of user space {other_end}:\n{list}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Sends traffic over two links, and cuts them in turn.
fn failover(name: &str, media: [Plane; 2], cuts: &[(usize, Cut)]) -> Result<(), NetError> {
    let planes = Planes::up(name, media, [10; 2])?;
    let capture = Capture::start(&planes.site, name);
    let bearers = planes.bearers();
    // A kernel's connected socket keeps the packet size of its first link and fails with EMSGSIZE on one with smaller packets.
    planes.tipc(&format!("media set mtu {UDP_MTU} media udp"));
    planes.enable(0);
    planes.enable(1);
    let id = NodeId::from_text("user-space").expect("legal");
    let mut user = planes.site.user_program("user-side-planes", &bearers, id);
    planes.await_links_of(&mut user, 2);
    let mut traffic = KernelSide::run(&planes.site, TRAFFIC, &[STOP]);
    traffic.until("service found");
    for &(n, how) in cuts {
        eprintln!("  plane {n} is cut: {how:?}");
        planes.cut(n, how);
        planes.await_links_of(&mut user, 1);
        // Long enough for every kind of traffic to continue over the other link.
        std::thread::sleep(Duration::from_millis(300));
        planes.restore(n, how);
        // Both ends: a device that goes down takes the other end's link down immediately.
        planes.await_links_of(&mut user, 2);
    }
    planes.site.guest_does(&["touch", STOP]);
    traffic.finish();
    drop(user);
    capture.verdict();
    Ok(())
}

/// Tests a link over UDP and one over Ethernet. Each is cut at both ends, and every way of cutting occurs.
pub(crate) fn over_udp_and_ethernet() -> Result<(), NetError> {
    let cuts = [
        (0, Cut::UserDevice),
        (1, Cut::KernelSilence),
        (0, Cut::KernelDevice),
        (1, Cut::KernelDevice),
        (1, Cut::UserDevice),
        (0, Cut::KernelBearer),
    ];
    failover("cwp", [Plane::Udp, Plane::Ethernet], &cuts)
}

/// Tests a link over IPv4 and one over IPv6.
pub(crate) fn over_two_udp() -> Result<(), NetError> {
    let cuts = [(1, Cut::KernelSilence), (0, Cut::UserDevice), (1, Cut::KernelDevice)];
    failover("cwpu", [Plane::Udp, Plane::UdpV6], &cuts)
}

pub(crate) fn over_two_ethernet() -> Result<(), NetError> {
    failover("cwpe", [Plane::Ethernet; 2], &[(0, Cut::KernelDevice), (1, Cut::UserDevice)])
}

/// Tests a kernel that prefers one link and keeps the other as a standby, which carries the traffic while the first is
/// cut. Then the node in user space is killed, and its new incarnation is connected over both links.
pub(crate) fn preference_and_restart() -> Result<(), NetError> {
    let planes = Planes::up("cwpr", [Plane::Udp, Plane::Ethernet], [10, 20])?;
    let capture = Capture::start(&planes.site, "cwpr");
    planes.tipc(&format!("media set mtu {UDP_MTU} media udp"));
    let bearers = planes.bearers();
    planes.enable(0);
    planes.enable(1);
    let id = NodeId::from_text("user-space").expect("legal");
    let mut user = planes.site.user_program("user-side-planes", &bearers, id);
    planes.await_links_of(&mut user, 2);
    let mut traffic = KernelSide::run(&planes.site, TRAFFIC, &[STOP]);
    traffic.until("service found");
    planes.cut(1, Cut::UserDevice);
    planes.await_links_of(&mut user, 1);
    std::thread::sleep(Duration::from_millis(300));
    planes.restore(1, Cut::UserDevice);
    planes.await_links_of(&mut user, 2);
    planes.site.guest_does(&["touch", STOP]);
    traffic.finish();
    user.kill();
    planes.await_links(0);
    let user = planes.site.user_program("user-side-planes", &bearers, id);
    planes.await_links(2);
    KernelSide::start(&planes.site, &["messages"]).finish();
    drop(user);
    capture.verdict();
    Ok(())
}
