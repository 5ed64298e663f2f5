//! Addresses for the listeners of tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU8, Ordering};

/// Returns an address at which nothing listens. Each call uses another loopback IP address, so no other test or program
/// can take the port before it is used.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let [b, c] = [64 + pid / 250 % 190, 1 + pid % 250].map(|byte| byte as u8);
    let host = Ipv4Addr::new(127, b, c, NEXT.fetch_add(1, Ordering::Relaxed));
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}
