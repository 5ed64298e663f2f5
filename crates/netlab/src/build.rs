//! Creates networks: generates the input of `ip`, `tc` and `ethtool` and runs them in as few processes as possible.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crossway_sys::netns;

use crate::network::{INTERFACE, ImpairedBy};
use crate::registry::Making;
use crate::share::mask;
use crate::{Host, HostKind, Link, NetError, Network, Offloads, tool};

/// Length in bytes of the Ethernet header, which the shaper counts in addition to the IP packet (no preamble, no
/// checksum).
const ETHERNET_HEADER_BYTES: u64 = 14;

/// Maximum number of hosts set up at the same time. Each set-up mostly starts tools and waits for the kernel's network
/// lock.
const WORKERS: usize = 4;

/// Index of the interface at one end of a link; the other end gets the next number. They must differ: where the indices
/// are equal in both namespaces, the kernel assumes a physical link and may delay its carrier by a second.
const FIRST_INDEX: usize = 1001;

/// Time limit for a link to get its carrier, which normally takes microseconds.
const CARRIER_LIMIT: Duration = Duration::from_secs(60);

/// The output of a host's script if packet steering is not possible.
const UNSTEERED: &str = "unsteered";

/// Creates everything that `network` describes; returns whether the packets of each host are processed on that host's
/// CPUs. After an error, the caller must remove what was created. The tools hold the lock `making` as long as they run,
/// even if this process is killed.
pub(crate) fn make(network: &Network, making: &Making) -> Result<bool, NetError> {
    let spaces: String = network.namespaces().map(|ns| format!("netns add {ns}\n")).collect();
    tool::run_making(
        making,
        &format!("creating the namespaces of network '{}'", network.name),
        &["ip", "-batch", "-"],
        &spaces,
    )?;
    wire(network, making)?;
    let hosts: Vec<&Host> =
        network.hosts.iter().filter(|h| h.kind == HostKind::Namespace).collect();
    let share = hosts.len().div_ceil(WORKERS).max(1);
    let steered = std::thread::scope(|scope| -> Result<bool, NetError> {
        let workers: Vec<_> = hosts
            .chunks(share)
            .map(|mine| {
                scope.spawn(move || {
                    mine.iter().try_fold(true, |all, host| {
                        Ok::<_, NetError>(all & set_up(network, host, making)?)
                    })
                })
            })
            .collect();
        workers.into_iter().try_fold(true, |all, worker| {
            Ok(all & worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        })
    })?;
    hosts.iter().try_for_each(|host| await_carrier(network, host))?;
    Ok(steered)
}

/// Waits until the host's interface can transmit.
fn await_carrier(network: &Network, host: &Host) -> Result<(), NetError> {
    let start = Instant::now();
    netns::inside(&host.namespace_path(), || {
        while !netns::interface_runs(&host.interface)? {
            if start.elapsed() > CARRIER_LIMIT {
                return Err(NetError::Refused {
                    doing: format!("setting up host '{}/{}'", network.name, host.name),
                    said: format!("{} has no carrier after {CARRIER_LIMIT:?}", host.interface),
                });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    })?
}

/// Whether this kernel has netem. Unless the module is loaded, this is tested in a temporary namespace. Removing a
/// namespace keeps the kernel's network lock busy while other networks are being created, so a negative answer is
/// stored in `folder`, until the next boot.
pub(crate) fn has_netem(folder: &Path) -> bool {
    let (answer, ask) =
        (folder.join("without-netem"), ["unshare", "-n", "tc", "qdisc", "add", "dev"]);
    if Path::new("/sys/module/sch_netem").exists() {
        return true;
    }
    if answer.exists() {
        return false;
    }
    let ask: Vec<&str> = ask.into_iter().chain(["lo", "root", "netem", "limit", "1"]).collect();
    let have = tool::run("testing for netem", &ask, "").is_ok();
    if !have {
        let _ = std::fs::write(answer, "");
    }
    have
}

/// Connects the hosts: two hosts by a single veth pair, more by a switch that has a port for each.
fn wire(network: &Network, making: &Making) -> Result<(), NetError> {
    let mtu = network.link.mtu_bytes;
    let doing = format!("wiring network '{}'", network.name);
    let Some(switch) = &network.switch else {
        let [a, b] = &network.hosts[..] else { unreachable!("a direct link has two ends") };
        let line = format!(
            "link add {INTERFACE} index {} address {} mtu {mtu} type veth \
             peer name {INTERFACE} index {} address {} mtu {mtu} netns {}\n",
            FIRST_INDEX,
            a.mac,
            FIRST_INDEX + 1,
            b.mac,
            b.namespace
        );
        let argv = ["ip", "-n", &a.namespace, "-batch", "-"];
        return tool::run_making(making, &doing, &argv, &line).map(drop);
    };
    // The kernel forwards frames, unless Crossway's own switch impairs them, which reads the ports itself.
    let bridged = network.impaired_by != ImpairedBy::Crossway;
    let mut ip = String::from("link set lo up\n");
    if bridged {
        // Without snooping and spanning tree, the switch sends no frames of its own.
        let _ = writeln!(
            ip,
            "link add br0 mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set br0 addrgenmode none up"
        );
    }
    let mut tc = String::new();
    let mut offloads = String::new();
    for (at, host) in network.hosts.iter().enumerate() {
        let port = port(at, host);
        let _ = match host.kind {
            HostKind::Namespace => writeln!(
                ip,
                "link add {port} mtu {mtu} type veth \
                 peer name {INTERFACE} address {} mtu {mtu} netns {}",
                host.mac, host.namespace
            ),
            HostKind::Tap => {
                writeln!(ip, "tuntap add dev {port} mode tap\nlink set {port} mtu {mtu}")
            }
        };
        if bridged {
            let _ = writeln!(ip, "link set {port} master br0");
        }
        let _ = writeln!(ip, "link set {port} addrgenmode none up");
        tc.push_str(&shaper(&network.link, &port, ImpairedBy::Nobody));
        // The guest chooses the offloads of its tap.
        if network.link.offloads == Offloads::Off && host.kind == HostKind::Namespace {
            let _ = writeln!(offloads, "ethtool -K {port} tso off gso off gro off tx off rx off");
        }
    }
    tool::run_making(making, &doing, &["ip", "-n", switch, "-batch", "-"], &ip)?;
    if !tc.is_empty() {
        tool::run_making(making, &doing, &["tc", "-n", switch, "-batch", "-"], &tc)?;
    }
    if !offloads.is_empty() {
        tool::run_making(making, &doing, &["ip", "netns", "exec", switch, "sh", "-se"], &offloads)?;
    }
    Ok(())
}

/// The name, in the switch's namespace, of the switch's port for the host with index `at`.
pub(crate) fn port(at: usize, host: &Host) -> String {
    match host.kind {
        HostKind::Namespace => format!("port{at}"),
        HostKind::Tap => host.interface.clone(),
    }
}

/// Sets up addresses, rate, offloads and packet steering of one namespace host with one script: only the tools are
/// separate processes, the rest is built into the shell. Returns whether packets are steered to the host's CPUs.
fn set_up(network: &Network, host: &Host, making: &Making) -> Result<bool, NetError> {
    let link = &network.link;
    let mut script = String::new();
    // No duplicate address detection (it delays the first IPv6 packet by a second) and no router discovery: unsolicited
    // frames would be counted as traffic.
    for (key, value) in [("accept_dad", 0), ("accept_ra", 0), ("router_solicitations", 0)] {
        let _ = writeln!(script, "echo {value} > /proc/sys/net/ipv6/conf/{INTERFACE}/{key}");
    }
    let _ = writeln!(
        script,
        "ip -batch - <<'.'\nlink set lo up\naddr add {}/24 dev {INTERFACE}\n\
         addr add {}/64 dev {INTERFACE} nodad\nlink set {INTERFACE} up\n.",
        host.ipv4, host.ipv6
    );
    let shaper = shaper(link, INTERFACE, network.impaired_by);
    if !shaper.is_empty() {
        let _ = writeln!(script, "tc -batch - <<'.'\n{shaper}.");
    }
    if link.offloads == Offloads::Off {
        let _ = writeln!(script, "ethtool -K {INTERFACE} tso off gso off gro off tx off rx off");
    }
    // Receive packet steering: received packets are processed on the receiver's CPUs, wherever the sender ran. Root of
    // a user namespace may not configure this.
    let _ = writeln!(
        script,
        "(echo {} > /sys/class/net/{INTERFACE}/queues/rx-0/rps_cpus) 2>&- || echo {UNSTEERED}",
        mask(&host.cpus)
    );
    let said = tool::run_making(
        making,
        &format!("setting up host '{}/{}'", network.name, host.name),
        &["ip", "netns", "exec", &host.namespace, "sh", "-se"],
        &script,
    )?;
    Ok(!said.contains(UNSTEERED))
}

/// The lines for `tc` with the queueing disciplines of one end of a link: the token bucket and, above it, netem if the
/// kernel impairs the frames.
fn shaper(link: &Link, interface: &str, impaired_by: ImpairedBy) -> String {
    let mut lines = String::new();
    let mut parent = "root".to_owned();
    if impaired_by == ImpairedBy::Netem {
        let i = &link.impairment;
        let _ = write!(lines, "qdisc add dev {interface} root handle 1: netem limit 100000");
        let delay_us = i.delay.as_micros().max(u128::from(i.reorder > 0.0) * 1000);
        if delay_us > 0 || !i.jitter.is_zero() {
            let _ = write!(lines, " delay {delay_us}us {}us", i.jitter.as_micros());
        }
        for (word, share) in
            [("loss random", i.loss), ("duplicate", i.duplicate), ("reorder", i.reorder)]
        {
            if share > 0.0 {
                let _ = write!(lines, " {word} {}%", share * 100.0);
            }
        }
        lines.push('\n');
        parent = "parent 1:1".to_owned();
    }
    if let Some(rate) = link.rate {
        let frame = u64::from(link.mtu_bytes) + ETHERNET_HEADER_BYTES;
        let bytes_per_s = rate.bits_per_s / 8;
        // One millisecond's worth of data, so that the shaper's timer may be almost that late without the link idling,
        // and at least two frames.
        let burst = (bytes_per_s / 1000).max(2 * frame);
        // A queue of 50 ms, similar to that of a switch or a driver's ring, and at least 64 frames.
        let limit = (bytes_per_s / 20).max(64 * frame) + burst;
        let _ = writeln!(
            lines,
            "qdisc add dev {interface} {parent} handle 10: tbf rate {rate} burst {burst} limit {limit}"
        );
    }
    lines
}
