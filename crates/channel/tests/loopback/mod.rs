//! Simulated hosts: directories that share nothing, connected by TCP over loopback addresses.

use std::net::SocketAddr;
use std::path::Path;

use crossway_channel::{Directory, Hosts, Key, Network, Options};

use crate::addresses::free_address;

/// The channel's name.
pub(crate) const NAME: &str = "moves/away";

/// Returns the options of a program on the host with this directory; the program knows these addresses for the name.
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

/// A simulated host. All addresses belong to this machine; a listener skips those to which another one is bound.
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
