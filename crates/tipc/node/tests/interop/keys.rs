//! Tests encryption between a node in user space and a kernel: with a cluster key, a key for each node, and a master key
//! with keys that both ends replace; and what happens without the right key.

use std::time::{Duration, Instant};

use crossway_netlab::NetError;
use crossway_tipc_node::Runner;
use crossway_tipc_proto::addr::NodeId;
use crossway_tipc_proto::crypto::{KeyOwner, Rekeying, SecretKey};
use crossway_tipc_proto::time::Nanos;

use super::STREAM_BYTES;
use super::site::{KernelSide, Medium, Site};

/// Environment variable with the keys of the node in user space: `OWNER=KEY`, separated by spaces, where the owner is
/// `cluster`, `master` or an identity; or `rekeying=SECONDS`.
const KEYS: &str = "INTEROP_KEYS";

/// The kernel's identity.
const KERNEL: &str = "in-the-kernel";
/// The identity of the node in user space.
const USER: &str = "user-space";

const KEY_128: &str = "a-128-bit-key-+-salt";
const KEY_192: &str = "the-192-bit-key-and-the-salt";
const KEY_256: &str = "some-256-bit-key-and-then-some-salt.";

/// Sets the keys of the node in user space. Returns whether there are any.
pub(crate) fn set(runner: &mut Runner, id: NodeId) -> bool {
    let Ok(keys) = std::env::var(KEYS) else { return false };
    let now = Nanos(crossway_sys::clock::monotonic_ns());
    for (owner, key) in keys.split(' ').map(|word| word.split_once('=').expect("OWNER=KEY")) {
        if owner == "rekeying" {
            let time = Duration::from_secs(key.parse().expect("seconds"));
            runner.keyring().set_rekeying(now, Rekeying::Every(time));
            continue;
        }
        let owner = match owner {
            "cluster" => KeyOwner::Cluster,
            "master" => KeyOwner::Master,
            node => KeyOwner::Node(NodeId::from_text(node).expect("an identity")),
        };
        let key = SecretKey::new(key.as_bytes()).expect("a legal length");
        runner.leave_room();
        runner.keyring().set_key(now, Some(id), key, owner).expect("a free slot");
    }
    true
}

/// Prints which keys are in use at the end.
pub(crate) fn report(runner: &mut Runner) {
    let now = Nanos(crossway_sys::clock::monotonic_ns());
    let ring = runner.keyring();
    eprintln!("user side: {} changes of key, {:?}", ring.switches(), ring.own_keys(now));
    for (id, uses, keys) in ring.peer_keys() {
        eprintln!("user side: peer {id} uses {uses}, {keys:?}");
    }
}

fn site(name: &str, medium: Medium, kernels: &[&[&str]]) -> Result<(Site, String), NetError> {
    let site = Site::up(name)?;
    site.guest_does(&["tipc", "node", "set", "identity", KERNEL]);
    let bearer = site.bearers(medium);
    for key in kernels {
        site.guest_does(&[&["tipc", "node", "set", "key"], *key].concat());
    }
    Ok((site, bearer))
}

fn all_checks(name: &str, medium: Medium, kernels: &[&[&str]], keys: &str) -> Result<(), NetError> {
    let (site, bearer) = site(name, medium, kernels)?;
    let user = site.user_side_with(&bearer, &[(KEYS, keys)]);
    KernelSide::start(&site, &["all", STREAM_BYTES]).finish();
    drop(user);
    Ok(())
}

/// Tests a key for the whole cluster.
pub(crate) fn cluster_key(name: &str, medium: Medium) -> Result<(), NetError> {
    all_checks(name, medium, &[&[KEY_128]], &format!("cluster={KEY_128}"))
}

/// Tests a key for each node, of different lengths.
pub(crate) fn node_keys(name: &str, medium: Medium) -> Result<(), NetError> {
    let kernels: [&[&str]; 2] = [&[KEY_192, "nodeid", KERNEL], &[KEY_256, "nodeid", USER]];
    all_checks(name, medium, &kernels, &format!("{KERNEL}={KEY_192} {USER}={KEY_256}"))
}

/// Tests a master key, from which both ends make others while messages and streams flow, for as many seconds as
/// `CROSSWAY_LONG_SECONDS` says, and at least four times.
pub(crate) fn rekeying() -> Result<(), NetError> {
    let long = std::env::var("CROSSWAY_LONG_SECONDS").ok().and_then(|text| text.parse().ok());
    let long = Duration::from_secs(long.unwrap_or(0));
    let (site, bearer) = site("cwkr", Medium::UdpV4, &[&[KEY_256, "master"]])?;
    let keys = format!("master={KEY_256} rekeying=3");
    let user = site.user_side_with(&bearer, &[(KEYS, &keys)]);
    KernelSide::start(&site, &["messages"]).finish();
    // A kernel changes to a key once it has been in use for ten seconds, and has three slots.
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 4 || start.elapsed() < long {
        rounds += 1;
        site.guest_does(&["tipc", "node", "set", "key", "rekeying", "now"]);
        KernelSide::start(&site, &["streams", STREAM_BYTES]).finish();
        std::thread::sleep(Duration::from_secs(6));
    }
    KernelSide::start(&site, &["messages"]).finish();
    // More than one on a machine so busy that the link was lost meanwhile.
    eprintln!("{rounds} rounds; the link came up {} times", user.links_up());
    assert!(user.links_up() > 0);
    drop(user);
    Ok(())
}

/// Tests that a kernel with another key, and one without a key, stay outside.
pub(crate) fn other_keys() -> Result<(), NetError> {
    let (site, bearer) = site("cwko", Medium::UdpV4, &[&[KEY_128]])?;
    let user = site.user_side_with(&bearer, &[(KEYS, &format!("cluster={KEY_192}"))]);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(user.links_up(), 0, "the kernel has another key");
    site.guest_does(&["tipc", "node", "flush", "key"]);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(user.links_up(), 0, "the kernel has no key");
    site.guest_does(&["tipc", "node", "set", "key", KEY_192]);
    KernelSide::start(&site, &["messages"]).finish();
    drop(user);
    Ok(())
}
