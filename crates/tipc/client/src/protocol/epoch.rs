//! Counters that show when a destination that was reachable may have become unreachable.
//!
//! `tipcd` counts withdrawn bindings and lost nodes in counters called *epochs*. A hash of the service type or the node
//! selects the counter. Once a program knows that a destination is reachable, it sends without asking `tipcd` again
//! until the counter changes. So the send call itself fails with EHOSTUNREACH, as with the kernel, at the cost of one
//! load.

use crate::address::Address;

/// Number of counters. If two destinations share a counter, the only cost is an additional request now and then.
pub const COUNT: usize = 512;

const fn mix(number: u32) -> usize {
    // The upper bits of a multiplication depend on all bits of the number.
    (number.wrapping_mul(0x9e37_79b1) >> 23) as usize % COUNT
}

/// Returns the index of the counter for a service type.
pub const fn of_service(service: u32) -> usize {
    mix(service)
}

/// Returns the index of the counter for a node.
pub const fn of_node(node: u32) -> usize {
    mix(node ^ 0x5bd1_e995)
}

/// Returns the index of the counter for a destination.
pub const fn of(address: Address) -> usize {
    match address {
        Address::Range(range) => of_service(range.service),
        Address::Service { service, domain: 0, .. } => of_service(service),
        Address::Service { domain, .. } => of_node(domain),
        Address::Socket(socket) => of_node(socket.node),
    }
}
