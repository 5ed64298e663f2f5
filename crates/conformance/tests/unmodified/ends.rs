//! Tests connections whose program sends more than a window, shuts down and closes immediately: the other end must read
//! everything that was sent and then the end of the stream, and never see a reset. `CROSSWAY_ORDERLY_ENDS=10000` sets
//! the number of connections of each kind in each place, which is one node or a pair of nodes; the default is small.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crossway_netlab::{Impairment, Link};

use crate::nodes::{Node, Site, Two, What};
use crate::{compiled, printed};

const KINDS: [&str; 2] = ["seqpacket", "stream"];
/// Number of connections of each kind in each place; [`ENDS_WITH_GUEST`] applies to places that include a guest, which
/// is slow.
const ENDS: u32 = 60;
const ENDS_WITH_GUEST: u32 = 20;
/// Number of connections of each kind over a lossy link: together they send more bytes than fit into the memory in
/// which IP reassembles fragments.
const ENDS_WITH_LOSSES: u32 = 30;
/// Number of processes that have connections at the same time.
const PROCESSES: &str = "4";
/// The first service type; each kind and each direction has its own.
const SERVICE: u32 = 18_930;
/// Time limit in seconds, long enough for a long run; nothing takes this long unless it hangs.
const WATCHDOG: &str = "3600";

fn ends(otherwise: u32) -> u32 {
    std::env::var("CROSSWAY_ORDERLY_ENDS").map_or(otherwise, |n| n.parse().unwrap())
}

fn words<'a>(
    program: &'a Path,
    role: &'a str,
    kind: &'a str,
    service: &'a str,
    [count, processes]: [&'a str; 2],
) -> [&'a Path; 6] {
    [
        program,
        Path::new(role),
        Path::new(kind),
        Path::new(service),
        Path::new(count),
        Path::new(processes),
    ]
}

fn expected(count: u32) -> String {
    format!("{count} of {count} connections ended in good order after 400000 bytes\n")
}

fn told(place: &str, kind: &str, count: u32, begin: Instant) {
    eprintln!("{place}, {kind}: {count} orderly ends, no reset, in {:?}", begin.elapsed());
}

/// Makes `count` connections of each kind from one node to another, with `processes` processes at each end.
fn between(
    program: &Path,
    place: &str,
    service: u32,
    [from, to]: [&Node; 2],
    count: u32,
    processes: &str,
) {
    for (kind, service) in KINDS.into_iter().zip(service..) {
        let (service, number, begin) = (service.to_string(), count.to_string(), Instant::now());
        let server = words(program, "server", kind, &service, [&number, processes]);
        let mut server = to.command_within(WATCHDOG, &server);
        let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let client = words(program, "client", kind, &service, [&number, processes]);
        let client = from.command_within(WATCHDOG, &client).output().unwrap();
        if !client.status.success() {
            let _ = server.kill();
        }
        let server = server.wait_with_output().unwrap();
        assert_eq!(printed(&format!("{place}, {kind}"), &server), expected(count));
        assert_eq!(printed(&format!("{place}, {kind}"), &client), "");
        told(place, kind, count, begin);
    }
}

#[test]
fn connections_end_in_good_order_within_a_node() {
    let site = Site::new();
    let Some(program) = compiled("ends", site.dir.path()) else { return };
    let count = ends(ENDS);
    for (kind, service) in KINDS.into_iter().zip(SERVICE..) {
        let (service, number, begin) = (service.to_string(), count.to_string(), Instant::now());
        let words = words(&program, "both", kind, &service, [&number, PROCESSES]);
        let output = site.command_within(WATCHDOG, &words).output().unwrap();
        assert_eq!(printed("within a node", &output), expected(count), "{kind}");
        told("within a node", kind, count, begin);
    }
}

#[test]
fn connections_end_in_good_order_between_two_tipcds() {
    let Some(two) = Two::new("ett", [What::Tipcd; 2]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ends", dir.path()) else { return };
    let [one, other] = &two.nodes;
    between(&program, "between two tipcds", SERVICE, [one, other], ends(ENDS), PROCESSES);
}

/// The link loses frames. IP sends a large packet as ten fragments, and the packet is lost if one of them is. So a
/// sixth of these packets is lost.
#[test]
fn connections_end_in_good_order_over_a_lossy_link() {
    let impairment = Impairment { loss: 0.02, duplicate: 0.01, ..Impairment::default() };
    let link = Link { impairment, ..Link::default() };
    let Some(two) = Two::over("etl", [What::Tipcd; 2], link, &[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ends", dir.path()) else { return };
    let [one, other] = &two.nodes;
    let count = ends(ENDS_WITH_LOSSES);
    between(&program, "over a lossy link", SERVICE, [one, other], count, PROCESSES);
}

#[test]
fn connections_end_in_good_order_between_a_tipcd_and_a_kernel() {
    let Some(two) = Two::new("etk", [What::Tipcd, What::Kernel]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ends", dir.path()) else { return };
    let [tipcd, kernel] = &two.nodes;
    let count = ends(ENDS_WITH_GUEST);
    between(&program, "from a tipcd to a kernel", SERVICE, [tipcd, kernel], count, PROCESSES);
    // One after the other: when several connections of a kernel have sent data, the end of a connection can overtake
    // that data, also on the way to another kernel.
    between(&program, "from a kernel to a tipcd", SERVICE + 2, [kernel, tipcd], count, "1");
}
