//! Tests a node in user space and a Linux kernel's TIPC in one cluster: discovery, links, names, messages, multicast,
//! connections, streams, loss of contact and recovery, over UDP (IPv4 and IPv6) and Ethernet.
//!
//! The kernel runs in a user-mode guest, so this needs root, user-mode-linux, iproute2's `tipc` and python3; if one is
//! missing, the test prints that and passes. This program has several roles: it is the test itself, the guest's keeper
//! and first program, and the node.

mod capture;
mod keys;
#[path = "../on_lanes/mod.rs"]
mod on_lanes;
mod planes;
mod programs;
mod remote;
mod ring;
mod site;
mod user_side;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use capture::Capture;
use crossway_netlab::NetError;
use crossway_tipc_proto::addr::{MediaAddr, NodeId};
use site::{KernelSide, Medium, Site, UserSide};

const PYTHON: &str = "/usr/bin/python3";
const KERNEL_SIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/kernel_side.py");
/// Path of the script that runs in the guest and controls the node in user space.
const KERNEL_SOCKETS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/kernel_sockets.py");
/// Number of stream bytes in each direction in a test that also makes all other checks.
const STREAM_BYTES: &str = "10000000";
/// Number of stream bytes in each direction in the test of streams alone.
const LONG_STREAM_BYTES: &str = "100000000";
/// Time limit for a part of the test. It is only reached if something hangs.
const WATCHDOG: Duration = Duration::from_secs(900);

/// Tests every interaction of two nodes during contact.
fn all_checks(name: &str, medium: Medium) -> Result<(), NetError> {
    let site = Site::up(name)?;
    let capture = Capture::start(&site, name);
    let bearer = site.bearers(medium);
    let user = site.user_side(&bearer);
    KernelSide::start(&site, &["all", STREAM_BYTES]).finish();
    drop(user);
    capture.verdict();
    Ok(())
}

/// Tests an address conflict: the node tries the kernel's address, is refused, and takes the one that the kernel
/// suggests.
fn taken_address() -> Result<(), NetError> {
    let site = Site::up("cwta")?;
    let bearer = site.bearers(Medium::UdpV4);
    let kernels =
        NodeId::from_media(&MediaAddr::Udp { ip: site.lab.host("kernel")?.ipv4.into(), port: 0 });
    // A different identity whose four words result in the same address.
    let mut twin = kernels.0;
    (twin[4], twin[8]) = (1, 1);
    let twin = NodeId(twin);
    assert_eq!(twin.addr(), kernels.addr());
    let user = site.user_side_as(&bearer, twin);
    KernelSide::start(&site, &["messages"]).finish();
    drop(user);
    Ok(())
}

/// Tests the sockets of both nodes. A script in the guest controls them all.
fn sockets(medium: Medium) -> Result<(), NetError> {
    let site = Site::up("cwtk")?;
    let capture = Capture::start(&site, "cwtk");
    let bearer = site.bearers(medium);
    let id = NodeId::from_text("remote").expect("legal");
    let user = site.user_program("remote", &bearer, id);
    let parts = std::env::var("INTEROP_PARTS").unwrap_or_default();
    let parts: Vec<&str> = parts.split_whitespace().collect();
    KernelSide::run(&site, KERNEL_SOCKETS, &parts).finish();
    drop(user);
    capture.verdict();
    Ok(())
}

/// Tests streams with more packets than there are sequence numbers, in each direction.
fn long_streams() -> Result<(), NetError> {
    let site = Site::up("cwts")?;
    let bearer = site.bearers(Medium::Ethernet);
    let user = site.user_side(&bearer);
    KernelSide::start(&site, &["streams", LONG_STREAM_BYTES]).finish();
    drop(user);
    Ok(())
}

/// Tests losses: the node is killed and restarted; then the medium is cut and restored; then the kernel's bearer is
/// disabled and enabled; then the kernel is replaced.
fn loss_and_recovery(name: &str, medium: Medium) -> Result<(), NetError> {
    let site = Site::up(name)?;
    let capture = Capture::start(&site, name);
    let bearer = site.bearers(medium);
    let mut user = site.user_side(&bearer);
    let mut kernel = KernelSide::start(&site, &["watch-loss"]);
    kernel.until("service found");
    user.kill();
    kernel.until("service gone");
    let user = site.user_side(&bearer);
    kernel.finish();

    let mut kernel = KernelSide::start(&site, &["watch-loss"]);
    kernel.until("service found");
    let host = site.lab.host("user").unwrap();
    let ip = |words: &[&str]| {
        assert!(host.command("ip").args(words).status().expect("ip runs").success(), "{words:?}");
    };
    ip(&["link", "set", &host.interface, "down"]);
    kernel.until("service gone");
    ip(&["link", "set", &host.interface, "up"]);
    // A device that goes down loses its IPv6 addresses.
    if let Medium::UdpV6 = medium {
        let address = format!("{}/64", host.ipv6);
        ip(&["addr", "replace", &address, "dev", &host.interface, "nodad"]);
    }
    kernel.finish();

    let mut kernel = KernelSide::start(&site, &["watch-loss"]);
    kernel.until("service found");
    site.guest_does(Site::disabling(medium));
    kernel.until("service gone");
    site.bearers(medium);
    kernel.finish();

    let site = site.with_another_kernel()?;
    site.bearers(medium);
    KernelSide::start(&site, &["messages"]).finish();
    drop(user);
    capture.verdict();
    Ok(())
}

type Test = (&'static str, fn() -> Result<(), NetError>);

const TESTS: [Test; 27] = [
    ("udp_over_ipv4_with_multicast", || all_checks("cwt4", Medium::UdpV4)),
    ("udp_over_ipv4_with_unicast_only", || all_checks("cwtu", Medium::UdpV4Unicast)),
    ("udp_over_ipv6", || all_checks("cwt6", Medium::UdpV6)),
    ("udp_over_ipv6_with_unicast_only", || all_checks("cwt7", Medium::UdpV6Unicast)),
    ("ethernet", || all_checks("cwte", Medium::Ethernet)),
    ("sockets_over_udp", || sockets(Medium::UdpV4)),
    ("sockets_over_ipv6", || sockets(Medium::UdpV6)),
    ("sockets_over_ethernet", || sockets(Medium::Ethernet)),
    ("cluster_key_over_udp", || keys::cluster_key("cwkc", Medium::UdpV4)),
    ("cluster_key_over_ethernet", || keys::cluster_key("cwke", Medium::Ethernet)),
    ("node_keys_over_udp", || keys::node_keys("cwkn", Medium::UdpV4)),
    ("node_keys_over_ethernet", || keys::node_keys("cwkm", Medium::Ethernet)),
    ("master_key_and_rekeying", keys::rekeying),
    ("kernels_with_other_keys_stay_outside", keys::other_keys),
    ("an_address_that_a_kernel_has_is_given_up", taken_address),
    ("streams_of_100_megabytes", long_streams),
    ("programs_on_a_tipcd_and_on_a_kernel_over_udp", || {
        programs::both("cwtp", Medium::UdpV4, false)
    }),
    ("programs_on_a_tipcd_and_on_a_kernel_over_ipv6", || {
        programs::both("cwto", Medium::UdpV6, false)
    }),
    ("programs_with_lanes_on_a_tipcd_and_on_a_kernel_over_ethernet", || {
        programs::both("cwtq", Medium::Ethernet, true)
    }),
    ("loss_and_recovery_over_ethernet", || loss_and_recovery("cwtl", Medium::Ethernet)),
    ("loss_and_recovery_over_udp", || loss_and_recovery("cwtm", Medium::UdpV4)),
    ("loss_and_recovery_over_ipv6", || loss_and_recovery("cwtn", Medium::UdpV6)),
    ("six_nodes_that_watch_each_other_along_a_ring", ring::watched_together),
    ("two_links_over_udp_and_ethernet", planes::over_udp_and_ethernet),
    ("two_links_over_udp_of_both_families", planes::over_two_udp),
    ("two_links_with_a_preference_and_a_restart", planes::preference_and_restart),
    ("two_links_over_ethernet", planes::over_two_ethernet),
];

fn run_tests(args: &[String]) -> ExitCode {
    let wanted = |name: &str| {
        let filters: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
        filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str()))
    };
    if args.iter().any(|a| a == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let missing = [PYTHON, "/usr/sbin/tipc", "/sbin/tipc"];
    if !Path::new(missing[0]).exists() || !missing[1..].iter().any(|p| Path::new(p).exists()) {
        eprintln!(
            "SKIP interop: {PYTHON} or iproute2's tipc is missing; install python3 and iproute2"
        );
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name}");
        match std::panic::catch_unwind(test) {
            Ok(Ok(())) => println!("test {name} ... ok"),
            Ok(Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. }))) => {
                eprintln!("SKIP {name}: {why}");
            }
            Ok(Err(why)) => {
                println!("test {name} ... FAILED: {why}");
                failed += 1;
            }
            Err(_) => {
                println!("test {name} ... FAILED");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(exit) = crossway_netlab::run_guest_subcommand(&args) {
        return exit;
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["talk", ..] => {
            programs::talk(&words[1..]);
            ExitCode::SUCCESS
        }
        [role @ ("user-side" | "user-side-planes" | "remote" | "ring"), bearer, id] => {
            let run = match role {
                "remote" => remote::run,
                "ring" => ring::run,
                "user-side" => user_side::run,
                _ => user_side::run_without_losing_contact,
            };
            run(bearer, NodeId(u128::from_str_radix(id, 16).expect("an identity").to_be_bytes()));
            ExitCode::SUCCESS
        }
        _ => run_tests(&args),
    }
}
