//! Hosts that are directories which share nothing, with TCP over loopback addresses between them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use crossway_channel::{Directory, Hosts, Key, Network, Options};

/// The channel's name.
pub(crate) const NAME: &str = "moves/away";

/// An address at which nothing listens, on a loopback address of its own.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let [b, c] = [128 + pid / 250 % 64, 1 + pid % 250].map(|byte| byte as u8);
    let host = Ipv4Addr::new(127, b, c, NEXT.fetch_add(1, Ordering::Relaxed));
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

/// The options of a program on the host with this directory, which knows these addresses for the name.
pub(crate) fn options(dir: &Path, addresses: &[SocketAddr], key: Option<&Key>) -> Options {
    let hosts = addresses.iter().fold(Hosts::default(), |hosts, a| hosts.with(NAME, *a));
    let network = Network { hosts, plain: key.is_none(), key: key.cloned(), ..Network::default() };
    Options {
        max_message: 4096,
        capacity_bytes: Some(64 << 10),
        directory: Directory::at(dir),
        network: Some(network),
        ..Options::default()
    }
}

/// A host. All addresses belong to this machine; a listener skips those that another one has bound.
pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) address: SocketAddr,
}

impl Host {
    pub(crate) fn new() -> Host {
        Host { dir: tempfile::tempdir().unwrap(), address: free_address() }
    }

    pub(crate) fn options(&self, addresses: &[SocketAddr], key: Option<&Key>) -> Options {
        options(self.dir.path(), addresses, key)
    }
}
